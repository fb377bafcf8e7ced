"""The masks that the reference's dropout modules draw, and the port's dropout modules run on them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from flax import nnx

from graphmode.nn.dropout.layers import _Dropout
from graphmode.nn.dropout.masks import dropout_masks
from graphmode.training.intercept import Hook
from graphmode.weights import as_numpy

from ...case import Case, CaseError
from ..inside.calls import CallId, counts
from ..inside.layouts import Layout, Layouts


@dataclass(frozen=True)
class Mask:
    """What one call of a dropout module drew.

    Attributes:
      kept: bool, of the input's shape.
      input: what it was drawn for.
    """

    kept: np.ndarray
    input: np.ndarray


Masks = dict[CallId, Mask]


@contextmanager
def drawn(module: torch.nn.Module, *, wanted: bool) -> Iterator[Masks]:
    """Within it, what each call of a dropout module draws is added to the masks that it yields.

    Raises:
      CaseError: where something else draws random numbers, too.
    """
    masks: Masks = {}
    if not wanted:
        yield masks
        return
    numbers: Counter[str] = Counter()
    handles, before = [], {}
    at = torch.get_rng_state()

    def check(when: str) -> None:
        if not torch.equal(at, torch.get_rng_state()):
            raise CaseError(
                f"dropout=True: the reference draws random numbers outside of its dropout modules, {when}, as "
                "torch.nn.functional.dropout or the dropout of an attention does; the port cannot be given those: "
                "write them as modules (torch.nn.Dropout)"
            )

    def begin(path: str) -> Any:
        def hook(child: torch.nn.Module, args: Any) -> None:
            check(f"before {path}")
            before[path] = torch.get_rng_state(), as_numpy(args[0].detach()).copy()

        return hook

    def end(path: str) -> Any:
        def hook(child: torch.nn.Module, args: Any, output: torch.Tensor) -> None:
            nonlocal at
            at = torch.get_rng_state()
            if not child.training:
                return
            start, given = before.pop(path)
            # what is dropped is the same, whatever came in
            answers = []
            with torch.no_grad():
                for fill in (0.0, 1.0):
                    torch.set_rng_state(start)
                    answers.append(type(child).forward(child, torch.full_like(args[0], fill)))
            torch.set_rng_state(at)
            masks[CallId(path, numbers[path])] = Mask(as_numpy(answers[0] != answers[1]), given)
            numbers[path] += 1

        return hook

    for path, child in module.named_modules():
        if isinstance(child, torch.nn.modules.dropout._DropoutNd):
            handles += [child.register_forward_pre_hook(begin(path)), child.register_forward_hook(end(path))]
    try:
        yield masks
        check("after the last of them")
    finally:
        for handle in handles:
            handle.remove()


class PortMasks:
    """Which dropout module of the port takes the masks of which of the reference's.

    Matched by the case's `modules`, by name, and, what is left, by order; both must be called as often.

    Args:
      case: for its name and `modules`.
    """

    def __init__(self, case: Case):
        self._case = case
        self._masks: Masks = {}
        self._numbers: Counter[str] = Counter()
        self._called: Counter[str] = Counter()
        self._layouts: dict[tuple[CallId, tuple[int, ...]], Layout] = {}
        self._to_reference: dict[str, str] = {}

    def take(self, masks: Masks) -> None:
        """The masks of the next step."""
        self._masks = masks

    def ready(self) -> bool:
        """Whether each mask of this step has a module of the port, and a layout there."""
        known = {(self._of(call), shape) for call, shape in self._layouts}
        return bool(self._called) and all((call, mask.kept.shape) in known for call, mask in self._masks.items())

    def count(self) -> Hook:
        """A hook for a run in which nothing is dropped: it finds which dropouts are called, and matches them."""
        self._called.clear()
        self._to_reference.clear()

        def hook(path: str, module: nnx.Module, run: Any, args: Any, kwargs: Any) -> Any:
            if not _drops(module):
                return run(module, *args, **kwargs)
            self._called[path] += 1
            return args[0]

        return hook

    def fit(self) -> Hook:
        """A hook for a run with masks, outside of any transform: it finds how each lies in the port."""
        self._match()
        layouts = Layouts()

        def find(call: CallId, mask: Mask, x: jax.Array) -> None:
            found = layouts.fit(np.asarray(x), mask.input)
            if found is None:
                raise CaseError(
                    f"case {self._case.name!r}: dropout=True: {call} of the port takes {x.shape}, and "
                    f"{self._of(call)} of the reference {mask.input.shape}: no order of axes makes them one"
                )
            self._layouts[call, mask.kept.shape] = found

        return self._hook(find)

    def give(self) -> Hook:
        """A hook that makes every dropout of the port use its mask."""
        return self._hook(None)

    def _hook(self, find: Any) -> Hook:
        self._numbers.clear()

        def hook(path: str, module: nnx.Module, run: Any, args: Any, kwargs: Any) -> Any:
            if not _drops(module):
                return run(module, *args, **kwargs)
            call = CallId(path, self._numbers[path])
            self._numbers[path] += 1
            mask = self._masks[self._of(call)]
            if find is not None:
                find(call, mask, args[0])
            kept = self._layouts[call, mask.kept.shape].to_port(mask.kept)
            return _dropped(str(call), module, run, args[0], kept)

        return hook

    def _of(self, call: CallId) -> CallId:
        return CallId(self._to_reference[call.path], call.number)

    def _match(self) -> None:
        ours, theirs = dict(self._called), counts(iter(self._masks))
        table = self._case.modules
        found = {p: r for p, r in table.items() if p in ours and r in theirs}
        for path in ours:
            if path not in found and path not in table and path in theirs and path not in found.values():
                found[path] = path
        left = [p for p in ours if p not in found], [r for r in theirs if r not in found.values()]
        if len(left[0]) == len(left[1]):
            found |= dict(zip(*left, strict=True))
        if (
            set(found) != set(ours)
            or set(found.values()) != set(theirs)
            or any(ours[p] != theirs[r] for p, r in found.items())
        ):
            told = [
                ", ".join(f"{p} ({n} calls)" if n > 1 else p for p, n in side.items()) or "none"
                for side in (ours, theirs)
            ]
            raise CaseError(
                f"case {self._case.name!r}: dropout=True: the dropout modules of both sides do not match: the port "
                f"calls {told[0]}, and the reference {told[1]}; give both the same (graphmode.nn's or nnx.Dropout in "
                "the port), or say in the case's modules which stands for which"
            )
        self._to_reference = found


def _drops(module: nnx.Module) -> bool:
    return isinstance(module, _Dropout | nnx.Dropout)


def _dropped(call: str, module: nnx.Module, run: Any, x: jax.Array, kept: np.ndarray) -> jax.Array:
    """The port's dropout on a mask: by its own code where that takes one."""
    if isinstance(module, nnx.Dropout):  # which takes none
        if module.rate == 0:
            return x
        return jnp.where(kept, x / (1 - module.rate), jnp.zeros_like(x)) if module.rate < 1 else jnp.zeros_like(x)

    def of(shape: tuple[int, ...], p: float) -> jax.Array:
        mask = kept
        for axis, length in enumerate(shape):
            if length == 1 and mask.shape[axis] != 1:
                first = mask.take([0], axis)
                if not (mask == first).all():
                    raise CaseError(
                        f"dropout=True: {call} of the port drops whole features, and the reference single elements"
                    )
                mask = first
        return jnp.asarray(mask)

    with dropout_masks(of):
        return run(module, x, deterministic=False)
