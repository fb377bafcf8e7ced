"""What is compiled of a port's programs, each once, and with which options."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from typing import Any

import jax

from .case import Mode
from .port_program import PortBatch, PortProgram
from .quick_compile import QUICKLY, SOUNDLY

SOON_RUN_FLOPS = 2e7  # a convolution in float64 without optimisations makes some 1e8 a second
AGAIN = "called again"  # in place of the inputs' signature: of any


class PortGraphs:
    """Graphs by the mode, and by what they are given.

    Args:
      dtype: what the port computes in.
      device: where.
      compiled: whether there are any; False for operation by operation.
      quickly: whether small graphs in float64 are compiled `QUICKLY`.

    Attributes:
      was_quick: whether one was.
    """

    def __init__(self, dtype: str, device: jax.Device, *, compiled: bool, quickly: bool):
        self.dtype, self.device, self.compiled = dtype, device, compiled
        self._is_sound, self._is_tuned, self.was_quick = not quickly, False, False
        self._made: dict[tuple[Mode, str], Callable[..., Any]] = {}

    def anew(self, *, compiled: bool | None = None, is_sound: bool | None = None) -> PortGraphs:
        """None yet, of a port of the same dtype and device."""
        sound = self._is_sound if is_sound is None else is_sound
        whole = self.compiled if compiled is None else compiled
        other = PortGraphs(self.dtype, self.device, compiled=whole, quickly=not sound)
        other._is_tuned = self._is_tuned
        return other

    def take(self, other: PortGraphs, modes: Collection[Mode]) -> None:
        """Those of another port in these modes, in which all that is static is the same."""
        self._is_sound, self.was_quick = other._is_sound, other.was_quick
        self._made.update({key: graph for key, graph in other._made.items() if key[0] in modes})

    def tune(self) -> bool:
        """Begins anew with every algorithm tried, where that makes a difference: whether it does."""
        if self._options is None:
            return False
        self._made.clear()
        self._is_tuned = True
        return True

    def has(self, mode: Mode, given: str) -> bool:
        return (mode, given) in self._made

    def step(self, program: PortProgram, mode: Mode, given: str, batch: PortBatch) -> Callable[..., Any]:
        """The program of a mode.

        Args:
          program: of the mode.
          mode: which.
          given: the signature of the batch's inputs.
          batch: of which it is compiled, where it is not yet.
        """
        if (mode, given) not in self._made:
            self._made[mode, given] = self._graph(program, mode, batch) if self.compiled else getattr(program, mode)
        return self._made[mode, given]

    def call(self, program: PortProgram, mode: Mode) -> Callable[..., Any]:
        """`program.call`, which is compiled when it is called."""
        if (mode, AGAIN) not in self._made:
            whole = jax.jit(program.call, compiler_options=self._options)
            self._made[mode, AGAIN] = whole if self.compiled else program.call
        return self._made[mode, AGAIN]

    def _graph(self, program: PortProgram, mode: Mode, batch: PortBatch) -> Callable[..., Any]:
        given: Any = batch.call if mode == "inference" else (batch.diff, batch.rest, batch.cotangents)
        state = (program.start(),) if mode == "train_step" else (program.params, program.rest)
        lowered = jax.jit(getattr(program, mode)).lower(*state, *given)
        if not self._is_soon_run(lowered):
            return lowered.compile(self._options)
        self.was_quick |= not self._is_sound
        return lowered.compile(SOUNDLY if self._is_sound else QUICKLY)

    def _is_soon_run(self, lowered: jax.stages.Lowered) -> bool:
        """Whether compiling takes longer than running what is compiled without optimisations: float64 is there for
        the verdict alone, and nobody runs it."""
        if self.dtype != "float64" or self.device.platform != "cpu":
            return False
        cost: Any = lowered.cost_analysis() or {}
        return cost.get("flops", math.inf) <= SOON_RUN_FLOPS

    @property
    def _options(self) -> dict[str, str | bool] | None:
        """On a GPU XLA does not try out every algorithm of each product, for minutes: nothing is timed here, and what a
        row computes with those that it finds is judged by the row's own gate."""
        return {"xla_gpu_autotune_level": "0"} if self.device.platform == "gpu" and not self._is_tuned else None
