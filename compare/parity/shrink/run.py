"""`shrink`: a failing case down to one module and the smallest input on which it still fails."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...case import Case, CaseError
from ...locate import absolute
from ...observation import Named
from ...quiet import quiet
from ..yardstick import Difference
from .find import Failure, find_failure
from .reduce import Reducer
from .script import ARRAYS, location_of, written


@dataclass(frozen=True)
class Shrunk:
    """A module that is wrong, and the smallest input on which it is.

    Attributes:
      failure: the pair of modules, and what of them differs.
      inputs: of the reference's module by name, in its layout.
      off: how far the port is off on them.
      before: shapes of the inputs at first, by name.
      tries: inputs that were run.
      location: of the case; empty where it is not known.
      duration_s: seconds.
    """

    failure: Failure
    inputs: Named
    off: Difference
    before: Mapping[str, tuple[int, ...]]
    tries: int
    location: str
    duration_s: float

    @property
    def module(self) -> str:
        """Path in the port; empty for the model itself."""
        return self.failure.pair.spec.port

    @property
    def reference(self) -> str:
        """Path of its counterpart."""
        return self.failure.pair.spec.reference

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Of every input."""
        return {name: array.shape for name, array in self.inputs.items()}

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the first input."""
        return next(iter(self.shapes.values()), ())

    @property
    def script(self) -> str:
        """A script that runs both modules on the inputs, and exits with 1 as long as they differ.

        Raises:
          CaseError: where no module that is loaded holds the case, so that a script could not import it.
        """
        return written(self, self._known_location(), self.name)[0]

    @property
    def name(self) -> str:
        """Of the script's file, without its ending."""
        words = f"{self.failure.pair.case.name} {self.module or 'model'}"
        return "shrunk_" + "".join(char if char.isalnum() else "_" for char in words)

    def save(self, folder: str | Path) -> list[Path]:
        """Writes the script, and the arrays that are too large to stand in it, into the folder; gives their paths.

        Raises:
          CaseError: as `script`; where the folder cannot be written.
        """
        text, arrays = written(self, self._known_location(), self.name)
        folder = Path(folder)
        paths = [folder / f"{self.name}.py"]
        try:
            folder.mkdir(parents=True, exist_ok=True)
            paths[0].write_text(text)
            if arrays:
                paths.append(folder / ARRAYS.format(name=self.name))
                np.savez_compressed(paths[1], **arrays)  # type: ignore[arg-type]
        except OSError as error:
            raise CaseError(
                f"folder is {str(folder)!r}, and cannot be written: {error.strerror}; give another"
            ) from error
        return paths

    def __str__(self) -> str:
        failure, off = self.failure, self.off
        kind, tensor = failure.key
        shapes = ", ".join(f"{name} {list(self.before[name])} to {list(shape)}" for name, shape in self.shapes.items())
        values = f": {off.port} for {off.reference}" if off.port else ""
        size = f"off by {off.error:.2g} of its scale" if np.isfinite(off.error) else "off"
        effort = f"{self.tries} smaller inputs were tried in {self.duration_s:.0f} s"
        lines = [
            f"{failure.pair.case.name}: {self.module or 'the model itself'} ({failure.kind}) fails by itself; {effort}",
            f"  inputs: {shapes}",
            f"  {kind.replace('_', ' ')} {tensor} at {list(off.index)} is {size}{values} {off.note}".rstrip(),
        ]
        return "\n".join(lines)

    def _known_location(self) -> str:
        if not self.location:
            raise CaseError(
                f"case {self.failure.pair.case.name!r}: no loaded module holds it, so that a script cannot import it; "
                "give shrink location='path/to/file.py:NAME'"
            )
        return self.location


def shrink(
    case: Case,
    *,
    seed: int = 0,
    budget_s: float = 60,
    variant: str | None = None,
    location: str | None = None,
    dtype: str = "float32",
) -> Shrunk:
    """Reduces a failing case to the module that is wrong and the smallest input on which it is.

    The first module that introduces error is taken out of both sides with its weights and run by itself on what it
    gets in the reference; where it does not fail so, the module around it. Then its inputs are cut along every axis,
    and their elements set to zeros, ones and whole numbers, as long as the same tensor is off by a like amount.

    Args:
      case: whose port is not equal.
      seed: of weights and inputs.
      budget_s: seconds for the reduction; the check before it comes on top.
      variant: of the port; the first where None.
      location: where a script finds the case, `path/to/file.py:NAME` or `package.module:NAME`; where None, the loaded
        module that holds it.
      dtype: that the port is meant for: what it casts to that by itself stays in float64 here.

    Raises:
      CaseError: where the port is equal, or no module differs by itself.
      DtypeError: where there is no such dtype.
      ValueError: for a variant that the case has not, or a budget that is not above 0.
    """
    name = next(iter(case.models)) if variant is None else variant
    if name not in case.models:
        raise ValueError(f"variant is {variant!r}; case {case.name!r} has {', '.join(case.models)}")
    if not budget_s > 0:
        raise ValueError(f"budget_s is {budget_s!r}; give seconds above 0")
    place = absolute(location) if location else location_of(case)
    with quiet():
        failure = find_failure(case, seed=seed, variant=name, dtype=dtype)
        start = time.perf_counter()
        reducer = Reducer(failure, budget_s=budget_s)
        reducer.run()
    if reducer.off is None:
        raise CaseError(
            f"case {case.name!r}: {failure.pair.spec.port or 'the model'} differs once, and not again on the same "
            "input: something in it is random"
        )
    before = {k: v.shape for k, v in failure.inputs.items()}
    duration = time.perf_counter() - start
    return Shrunk(failure, reducer.inputs, reducer.off, before, reducer.tries, place or "", duration)
