"""What processes for rows are started for: to run one, and before any to set up a compiler."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import pickle
import sys
import warnings
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TextIO

import jax

from ..case import Case
from ..errors import describe_briefly
from ..findings import Findings
from ..locate import locate
from ..sweep import resized


@dataclass(frozen=True)
class Source:
    """Where another process finds a case: a location, or the pickled case itself, with the folders that modules are
    imported from; and at which batch size, if not its own."""

    path: list[str]
    location: str = ""
    pickled: bytes = b""
    size: int | None = None

    def case(self) -> Case:
        sys.path[:] = self.path
        case = locate(self.location) if self.location else pickle.loads(self.pickled)
        return case if self.size is None else resized(case, self.size)


@dataclass(frozen=True)
class Order:
    """One row of one variant: builds a `Runner` and does with it what it is asked.

    Attributes:
      source: of the case.
      findings: the file with the judge's answers.
      row, variant: which way of running what.
      seed, device, dtype: of the run.
      threads: that PyTorch may use.
      cache: a folder for what compilers leave on disk.
      log: a file for what the row prints.
    """

    source: Source
    findings: Path
    row: str
    variant: str
    seed: int
    device: str
    dtype: str
    threads: int
    cache: Path
    log: Path

    def serve(self, connection: Connection) -> None:
        """Takes calls of the `Runner`'s methods, by name and arguments.

        Each answer is `(value, "")`, or `(None, what went wrong)`; the first tells whether there is a runner.
        """
        try:
            runner = _runner(self)
        except Exception as error:
            connection.send((None, describe_briefly(error)))
            return
        connection.send((None, ""))
        while True:
            method, arguments = connection.recv()
            try:
                answer = getattr(runner, method)(*arguments), ""
            except Exception as error:
                answer = None, describe_briefly(error)
            connection.send(answer)


@dataclass(frozen=True)
class Survey:
    """What the machine can do at best; answers with `Floors`, or with what went wrong."""

    device: str
    dtypes: tuple[str, ...]

    def serve(self, connection: Connection) -> None:
        from .floors import measure_floors

        _quietly(Path(os.devnull))
        try:
            connection.send(measure_floors(self.device, self.dtypes))
        except Exception as error:
            connection.send(describe_briefly(error))


@dataclass(frozen=True)
class Toolchain:
    """What a compiler does once on a machine, and leaves in its cache for every model: `torch.compile` finds out what
    the processor can do and precompiles headers."""

    cache: Path
    threads: int

    def serve(self, connection: Connection) -> None:
        import torch

        _quietly(Path(os.devnull))
        _use_cache(self.cache, "cpu")
        torch.set_num_threads(self.threads)
        with contextlib.suppress(Exception):  # a row will meet it, and tell it
            torch.compile(torch.sin)(torch.ones(64))


def _quietly(log: Path) -> TextIO:
    """All that is printed here goes to this file."""
    file = log.open("w")
    for number in (1, 2):
        os.dup2(file.fileno(), number)
    sys.stdout = sys.stderr = file
    return file


def _use_cache(folder: Path, device: str) -> None:
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder / "inductor")
    # on a CPU none, as most users have it: what calls oneDNN cannot be kept in one
    jax.config.update("jax_compilation_cache_dir", str(folder / "xla") if device == "gpu" else None)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)


def _runner(order: Order) -> Any:
    import torch

    from ..parity.examination import Examination
    from .launches import keep_command_buffers_in_profiles
    from .rows import all_rows
    from .runner import Runner

    faulthandler.enable(_quietly(order.log))
    warnings.simplefilter("ignore")
    _use_cache(order.cache, order.device)
    torch.set_num_threads(order.threads)
    (row,) = (row for row in all_rows() if row.name == order.row)
    if order.device == "gpu" and row.framework == "jax":
        keep_command_buffers_in_profiles()
    truths = Findings.read(order.findings).truths
    exam = Examination(order.source.case(), seed=order.seed, device=order.device, dtype=order.dtype, truths=truths)
    return Runner(exam, row, order.variant, is_alone=True)
