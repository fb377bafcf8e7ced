"""Which rows are prepared beside which."""

from multiprocessing import Pipe

from graphmode.compare.speed import preparation
from graphmode.compare.speed.preparation import Job, prepared
from graphmode.compare.speed.rows import all_rows


class Waiting:
    """A seat that answers at once, and counts how many are prepared beside it."""

    is_loaded, open_now = True, 0

    def __init__(self):
        self.beside = 0
        self.ours, self.theirs = Pipe()

    def begin(self, mode):
        Waiting.open_now += 1
        self.beside = Waiting.open_now
        self.theirs.send("ready")
        return self.ours

    def advance(self):
        Waiting.open_now -= 1
        return self.ours.recv()


def begun_beside(jobs):
    seats = {job.variant: Waiting() for job in jobs}
    ended = list(prepared(jobs, "inference", lambda job: seats[job.variant], lambda job: None, 9))
    assert len(ended) == len(jobs)
    return [seats[job.variant].beside for job in jobs]


def test_rows_that_are_to_be_alone_are_prepared_alone_and_others_beside_one_another(monkeypatch):
    monkeypatch.setattr(preparation, "at_once", lambda: 2)
    row = next(row for row in all_rows() if row.name == "torch.eager")
    beside = ["anything", "nothing", "anything", "anything", "nothing"]
    jobs = [Job(row, str(i), 9, beside=one) for i, one in enumerate(beside)]
    assert begun_beside(jobs) == [1, 1, 2, 1, 1]


def test_of_rows_that_bear_none_of_their_kind_one_is_prepared_beside_others(monkeypatch):
    monkeypatch.setattr(preparation, "at_once", lambda: 3)
    row = next(row for row in all_rows() if row.name == "jax.jit")
    jobs = [Job(row, str(i), 9, beside=one) for i, one in enumerate(["others", "others", "anything", "anything"])]
    assert begun_beside(jobs) == [1, 1, 2, 3]
