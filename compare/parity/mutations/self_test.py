"""The self-test: all plants and all correct ports, in a few processes."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from fnmatch import fnmatchcase

from ...case import CaseError
from ...errors import describe_briefly
from ...quick_compile import QUICKLY, as_flags
from ...release import release
from . import judging
from .plant import Plant
from .plants import PLANTS, first_of_each_kind, missing
from .records import Alarm, Outcome, SelfTest
from .specimens import SPECIMENS

SEEDS, QUICK_SEEDS, ZOO_SEEDS = 5, 1, 1
WORKERS = 2
FLAGS = "XLA_FLAGS"
_starting = threading.Lock()

Job = tuple[str, int]  # a plant by name and number, or a correct port and its seed


def run_self_test(
    *,
    quick: bool = False,
    seed: int = 0,
    only: Sequence[str] = (),
    workers: int = WORKERS,
    on_result: Callable[[Outcome | Alarm, int, int], None] = lambda *_: None,
) -> SelfTest:
    """Plants every bug, one at a time, and checks every correct port.

    Ports run operation by operation, not compiled: compiling takes ten times as long as all else, and what is tested is
    the judging and the look inside. Of the operations XLA's optimisations are off unless `XLA_FLAGS` is set.

    Args:
      quick: one plant a kind, in small specimens alone, and for each correct port one seed, and no batch of one.
      seed: of weights and inputs; false alarms are looked for with this and the next ones, in the zoo's with this.
      only: kinds or specimens, with shell wildcards; all where none is named.
      workers: processes; all plants of a specimen go to one, which keeps what it has compiled.
      on_result: called with each result, how many there are, and how many there will be.

    Raises:
      CaseError: where `only` names nothing, or nothing that can be built here.
    """
    start = time.perf_counter()
    wanted = [p for p in (first_of_each_kind() if quick else PLANTS) if _is_wanted(only, p.kind, p.specimen)]
    left_out = {p.specimen: missing()[p.specimen] for p in wanted if p.specimen in missing()}
    chosen = [p for p in wanted if p.specimen not in left_out]
    if wanted and not chosen:
        raise CaseError("; ".join(f"{name} cannot be built here: {why}" for name, why in left_out.items()))
    if not chosen:
        raise CaseError(f"only is {list(only)}, and no kind or specimen is called so; there are {', '.join(kinds())}")
    groups = _groups(chosen, range(seed, seed + (QUICK_SEEDS if quick else SEEDS)), only)
    total, done = sum(map(len, groups)), 0
    test = SelfTest(quick=quick, seed=seed, left_out=left_out)
    lock = threading.Lock()

    def work() -> None:
        nonlocal done
        pool = _new_pool()
        try:
            while True:
                with lock:
                    if not groups:
                        return
                    group = groups.popleft()
                for item, number in group:
                    result: Outcome | Alarm
                    try:
                        result = pool.submit(_run, item, number, seed, quick).result()
                    except Exception as error:
                        result = _failed(item, number, error)
                        if isinstance(error, BrokenProcessPool):
                            pool = _new_pool()
                    with lock:
                        done += 1
                        (test.alarms if isinstance(result, Alarm) else test.outcomes).append(result)  # type: ignore[arg-type]
                        on_result(result, done, total)
                try:
                    pool.submit(_forget).result()
                except BrokenProcessPool:
                    pool = _new_pool()
        finally:
            pool.shutdown()

    with ThreadPoolExecutor(workers) as threads:
        for future in [threads.submit(work) for _ in range(workers)]:
            future.result()
    test.outcomes.sort(key=lambda each: (each.kind, each.specimen, each.site))
    test.alarms.sort(key=lambda each: (each.specimen, each.seed))
    test.duration_s = time.perf_counter() - start
    return test


def kinds() -> list[str]:
    """Of bugs, in order."""
    return list(dict.fromkeys(plant.kind for plant in PLANTS))


def _groups(chosen: Sequence[Plant], seeds: Sequence[int], only: Sequence[str]) -> deque[list[Job]]:
    """The jobs of each file of specimens, which share what they compile, the longest list first."""
    numbers = {id(plant): number for number, plant in enumerate(PLANTS)}
    touched = dict.fromkeys(plant.specimen for plant in chosen)
    jobs: dict[str, list[Job]] = {
        name: [] for name in (touched if only else [*SPECIMENS, *(touched.keys() - SPECIMENS.keys())])
    }
    for plant in chosen:
        jobs[plant.specimen].append((plant.name, numbers[id(plant)]))
    for name, of in jobs.items():
        of += [(name, seed) for seed in (seeds if name in SPECIMENS else seeds[:ZOO_SEEDS])]
    files: dict[str, list[Job]] = {}
    for name, of in jobs.items():
        files.setdefault(SPECIMENS.get(name, name).partition(":")[0], []).extend(of)
    return deque(sorted(files.values(), key=len, reverse=True))


def _run(item: str, number: int, seed: int, quick: bool) -> Outcome | Alarm:
    """In a worker."""
    if _is_port(item):
        return judging.alarm(item, seed=number, quick=quick)
    return judging.judge(PLANTS[number], seed=seed)


def _is_port(item: str) -> bool:
    """Whether it is the name of a correct port, and not of a plant."""
    return " at " not in item


def _forget() -> None:
    """What was compiled for one specimen is of no use to the next, and takes a gigabyte."""
    import jax

    jax.clear_caches()
    release()


def _failed(item: str, number: int, error: Exception) -> Outcome | Alarm:
    told = describe_briefly(error)
    if _is_port(item):
        return Alarm(specimen=item, seed=number, passed=False, told=told)
    plant = PLANTS[number]
    return Outcome(kind=plant.kind, specimen=plant.specimen, site=plant.site, error=told)


def _new_pool() -> ProcessPoolExecutor:
    """One worker, which compiles single operations without optimisation: XLA takes half of the time otherwise."""
    pool = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))
    with _starting:
        given = os.environ.get(FLAGS)
        os.environ[FLAGS] = as_flags(QUICKLY) if given is None else given
        try:
            pool.submit(int).result()
        finally:
            if given is None:
                del os.environ[FLAGS]
    return pool


def _is_wanted(only: Sequence[str], *names: str) -> bool:
    return not only or any(fnmatchcase(name, pattern) for name in names for pattern in only)
