"""The self-test: a few plants end to end, and that its judging can say no."""

import dataclasses
import io

import pytest
from graphmode.compare import CaseError, check
from graphmode.compare.parity.check import CheckReport
from graphmode.compare.parity.mutations import judging
from graphmode.compare.parity.mutations.edits import in_model, methods, module_at, output, planted, variable
from graphmode.compare.parity.mutations.plants import PLANTS, first_of_each_kind, huggingface, missing
from graphmode.compare.parity.mutations.records import Alarm, Outcome, SelfTest
from graphmode.compare.parity.mutations.self_test import kinds, run_self_test
from graphmode.compare.parity.mutations.specimens import SPECIMENS, specimen
from graphmode.compare.parity.mutations.table import summary, verdict
from graphmode.compare.report.records import Cause, Divergence
from graphmode.models import zoo
from planting import MOST
from rich.console import Console
from typer.testing import CliRunner

from graphmode.cli import app


def plant(kind: str, site: str):
    return next(each for each in PLANTS if (each.kind, each.site) == (kind, site))


ENDS = [
    ("tie-order", "ranked"),
    ("clamp-at-limits", "limited"),
    ("loss-parameter", "huber"),
    ("label-smoothing", "loss"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "site"), ENDS)
def test_a_plant_is_caught_and_located(kind, site):
    outcome = judging.judge(plant(kind, site))
    assert outcome.caught, verdict(outcome)
    assert outcome.located, verdict(outcome)
    assert outcome.moved is None or outcome.moved > judging.MOVES


@pytest.mark.parametrize("kind", ["decay-missing", "absent-gradient-as-zero"])
def test_a_wrong_optimizer_is_caught_and_no_module_is_accused(kind):
    """But the optimizer itself."""
    outcome = judging.judge(next(each for each in PLANTS if each.kind == kind))
    assert outcome.caught
    assert outcome.located
    assert outcome.accused == ["the optimizer"]
    assert outcome.explained


def test_a_plant_that_moves_nothing_is_idle_and_not_counted():
    (nothing,) = planted("nothing", "losses", "hidden", edit=variable("bias", lambda bias: bias + 1e-14))
    outcome = judging.judge(nothing)
    assert outcome.idle
    assert not outcome.caught
    assert SelfTest(quick=True, seed=0, outcomes=[outcome]).counted == []


def test_a_bug_that_check_overlooks_is_no_idle_plant():
    """Whether a plant moves anything is not check's to say."""

    def blind(case, **_):
        return check(specimen(case.name), draws=1, compiled=False)

    outcome = judging.judge(plant("loss-scale", "square"), examine=blind)
    assert not outcome.idle
    assert not outcome.caught
    assert not SelfTest(quick=True, seed=0, outcomes=[outcome]).passed


def reporting(*divergences: Divergence):
    """A check whose look inside says this, whatever is there."""

    def examine(case, **options) -> CheckReport:
        report = check(case, **options, locate=False)
        (parity,) = report.parity
        return CheckReport(report.case, [dataclasses.replace(parity, divergences=list(divergences))])

    return examine


def accusing(module: str, *causes: str, outside: bool = False) -> Divergence:
    known = [Cause(id=each, says="made up", fix="none", residual=0.0) for each in causes]
    return Divergence(mode="inference", input="random 0", module=module, causes=known, outside=outside)


@pytest.mark.parametrize(
    ("divergences", "located"),
    [
        ([], False),
        ([accusing("smooth")], True),
        ([accusing("hidden")], False),
        ([accusing("smooth"), accusing("hidden")], False),
        ([accusing("")], False),
        ([accusing("smooth"), accusing("", outside=True)], False),
    ],
)
def test_where_a_report_puts_the_bug_counts(divergences, located):
    outcome = judging.judge(plant("ignore-index-counted", "smooth"), examine=reporting(*divergences))
    assert outcome.caught
    assert outcome.located == located
    assert ("NOT LOCATED" in verdict(outcome)) == (not located)


@pytest.mark.parametrize(
    ("causes", "explained", "wrongly"),
    [((), False, False), (("right",), True, False), (("wrong",), False, True), (("wrong", "right"), True, False)],
)
def test_causes_count_where_they_are_accepted(causes, explained, wrongly):
    known = dataclasses.replace(plant("ignore-index-counted", "smooth"), causes=("right", "also right"))
    outcome = judging.judge(known, examine=reporting(accusing("smooth", *causes)))
    assert (outcome.explained, outcome.explained_wrongly) == (explained, wrongly)


def test_a_port_that_cannot_be_compared_is_caught_and_not_located():
    (shorter,) = planted("shorter", "losses", "", edit=methods(spread=lambda self, values: values.sum(0)[:2]))
    outcome = judging.judge(shorter)
    assert outcome.caught
    assert not outcome.located
    assert "spread" in outcome.refused


def test_there_are_many_kinds_and_each_names_what_is_there():
    assert len(kinds()) >= 60
    assert len(first_of_each_kind()) == len(kinds())
    assert {each.specimen for each in PLANTS} <= {*SPECIMENS, *zoo.CASES}
    assert {each.specimen for each in first_of_each_kind()} <= set(SPECIMENS)


def test_each_change_leaves_the_correct_port_alone():
    case = specimen("losses")
    in_model("hidden", output(lambda x: x + 1))(case)
    assert judging.alarm("losses", seed=0).passed


def test_an_edit_of_what_is_not_there_is_an_error():
    class Thing:
        pass

    with pytest.raises(AttributeError, match="absent"):
        methods(absent=lambda self: None)(Thing())
    with pytest.raises(AttributeError, match="absent"):
        module_at(Thing(), "absent")


@pytest.mark.slow
def test_a_run_in_processes_has_every_result_and_its_pages(tmp_path):
    seen = []
    test = run_self_test(quick=True, only=["sort-direction"], on_result=lambda *each: seen.append(each), workers=1)
    assert [type(result) for result, _, _ in seen] == [Outcome, Alarm]
    assert [(done, total) for _, done, total in seen] == [(1, 2), (2, 2)]
    assert test.passed
    test.save(tmp_path / "self_test.json")
    assert SelfTest.load(tmp_path / "self_test.json").outcomes == test.outcomes
    page = io.StringIO()
    Console(width=120, file=page).print(summary(test))
    assert "0 false alarms in 1 checks" in page.getvalue()


def test_unknown_kinds_are_refused():
    with pytest.raises(CaseError, match="no kind or specimen is called so"):
        run_self_test(only=["no such kind"])
    result = CliRunner().invoke(app, ["check", "--self-test", "no such kind"])
    assert result.exit_code == 2
    assert "no such kind" in result.output


@pytest.mark.slow
def test_plants_of_every_kind_are_caught_and_no_correct_port_is_blamed():
    test = run_self_test(quick=True, only=kinds()[::3] if MOST else ())
    missed = [verdict(each) for each in test.counted if not each.caught or each.error]
    assert not missed, missed
    assert not test.false_alarms, [each.told for each in test.false_alarms]
    unlocated = [f"{each.name}: {verdict(each)}" for each in test.counted if not each.located]
    assert len(unlocated) < 0.1 * len(test.counted), unlocated


def test_what_cannot_be_built_here_is_left_out_and_said_so(monkeypatch):
    monkeypatch.setattr(huggingface, "IS_THERE", False)
    with pytest.raises(CaseError, match=r"bert cannot be built here: .*pip install 'graphmode\[huggingface\]'"):
        run_self_test(only=["bert"])
    test = SelfTest(quick=False, seed=0, left_out=missing())
    told = Console(width=200, file=io.StringIO())
    told.print(summary(test))
    assert "Left out: gpt2, its original is a class of transformers" in told.file.getvalue()
