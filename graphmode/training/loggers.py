"""Where metrics go: lines of JSON, TensorBoard."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol


class Logger(Protocol):
    """Takes metrics; what `fit` calls."""

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Metrics after `step` steps."""

    def close(self) -> None:
        """Nothing comes any more."""


class JsonLines:
    """One line of JSON for each call, written through at once: `{"step": 50, "loss": 0.7, ...}`.

    A run that goes on appends to what it finds. What is not finite is written as a string, since JSON has no word for
    it: `"nan"`, `"inf"`, `"-inf"`.

    Args:
      path: of the file; folders above it are made.
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self.path.open("a", encoding="utf-8")

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        row = {name: value if math.isfinite(value) else str(value) for name, value in metrics.items()}
        self._file.write(json.dumps({"step": step, **row}) + "\n")
        self._file.flush()

    def close(self) -> None:
        self._file.close()


class TensorBoard:
    """Scalars for TensorBoard.

    Args:
      folder: of the run.

    Raises:
      ImportError: where tensorboardX is not installed.
    """

    def __init__(self, folder: str | Path):
        try:
            from tensorboardX import SummaryWriter
        except ImportError:
            raise ImportError("TensorBoard needs tensorboardX: pip install 'graphmode[train]'") from None
        self._writer = SummaryWriter(str(folder))

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()
