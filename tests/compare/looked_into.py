"""A look into a case on its first random input, for tests of what it finds."""

from graphmode.compare import Case
from graphmode.compare.parity.examination import Examination
from graphmode.compare.parity.inside.localise import Look


def look(case: Case, mode: str = "forward_backward") -> Look:
    exam = Examination(case, seed=0, draws=1, locate=False)
    question = next(t.question for t in exam.truths if t.question.mode == mode)
    port = exam.port_side(next(iter(case.models)), "float64")
    return Look(port, exam.judge.exact, question, case.modules)
