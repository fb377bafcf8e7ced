"""What the rows of a case need of its examination, in a file that other processes map instead of copying it."""

from __future__ import annotations

import mmap
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .parity.judge import Truth
    from .report.records import Parity

ALIGNMENT = 64  # bytes


@dataclass(frozen=True)
class Findings:
    """The judge's answers, and the verdicts on every port."""

    truths: list[Truth]
    verdicts: list[Parity]

    def write(self, path: Path) -> None:
        """Arrays as they lie in memory, and beside them, in `path.head`, what refers to them."""
        buffers: list[pickle.PickleBuffer] = []
        head = pickle.dumps(self, protocol=5, buffer_callback=buffers.append)
        with path.open("wb") as file:
            extents = []
            for buffer in buffers:
                file.write(b"\0" * (-file.tell() % ALIGNMENT))
                extents.append((file.tell(), file.write(buffer.raw())))
        path.with_suffix(".head").write_bytes(pickle.dumps((head, extents)))

    @classmethod
    def read(cls, path: Path) -> Findings:
        """Read-only arrays that lie in the file: it may be removed, and is gone when they are."""
        head, extents = pickle.loads(path.with_suffix(".head").read_bytes())
        if not path.stat().st_size:
            return pickle.loads(head, buffers=[b""] * len(extents))
        with path.open("rb") as file:
            memory = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        return pickle.loads(head, buffers=[memory[start : start + size] for start, size in extents])


def remove(path: Path) -> None:
    """Both files that `Findings.write` made."""
    for file in (path, path.with_suffix(".head")):
        file.unlink(missing_ok=True)
