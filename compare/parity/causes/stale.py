"""Buffers that a call both reads and writes, in the other order: what they held before, where the reference reads what
it wrote, or what they will hold, where it reads what they held."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from graphmode.weights import as_numpy

from ...errors import is_of_a_library
from .ancestry import tensors_of
from .change import WRITES, Change, Site
from .replay import Replay
from .sites import is_floating
from .variants import Variant
from .wiring import unused

ROUNDING = 1e-12  # of a value, in which two runs agree


def written_too_late(replay: Replay, sites: Sequence[Site]) -> Iterator[tuple[Variant, Change]]:
    """What the module's tensors held before the model, which calls it, wrote them: all of them."""
    names = list(replay.before_the_step)
    if names:
        full = ", ".join(map(replay.full, names))
        says = f"computes with what {full} held before this step, which the reference writes anew before it calls it"
        change = Change(held=_before_the_step, sites=frozenset(site.number for site in sites))
        yield Variant("buffer-order", says, "write first, then call it", unused), change


def _before_the_step(replay: Replay) -> dict[int, torch.Tensor]:
    held = replay.held()
    return {id(held[name]): x for name, x in replay.before_the_step.items()}


def stale(replay: Replay, sites: Sequence[Site]) -> Iterator[tuple[Variant, Change]]:
    """Reads after the last write, then reads before the first one; of all buffers together, then of each.

    Those in other functions than the write come first, and those before it of which what is written is not made: in
    its own they may be a part of it. Not of a count, which may come round to the same place.
    """
    buffers = dict(replay.module.named_buffers())
    writes = {name: [s for s in sites if _writes(s, x)] for name, x in buffers.items()}
    if unwritten := [name for name, found in writes.items() if not found and buffers[name].is_floating_point()]:
        after = replay.run(Change(), forward_only=True)
        left = {name: after.get(("buffer", replay.full(name))) for name in unwritten}
        writes |= {name: _assigned(sites, buffers[name], value) for name, value in left.items()}
    written = [name for name, found in writes.items() if found]
    if not written:
        return
    for is_late in (True, False):
        known: set[frozenset[int]] = set()
        for names in [written, *([name] for name in written if len(written) > 1)]:
            for apart in (_is_elsewhere, *(() if is_late else (_is_no_part,)), _is_any):
                read = {n: _reads(sites, buffers[n], writes[n], is_late, apart) for n in names}
                numbers = frozenset(number for found in read.values() for number in found)
                if numbers and numbers not in known:
                    known.add(numbers)
                    yield _variant([n for n, found in read.items() if found], is_late, numbers)


def lost(replay: Replay, sites: Sequence[Site]) -> Iterator[tuple[Variant, Change]]:
    """Writes that never happen: of all buffers together, then of each. What reads them has what they held."""
    buffers = dict(replay.module.named_buffers())
    writes = {name: [s.number for s in sites if _writes(s, x)] for name, x in buffers.items()}
    written = [name for name, found in writes.items() if found]
    for names in [written, *([name] for name in written if len(written) > 1)] if written else []:
        full = ", ".join(map(replay.full, names))
        them = "it" if len(names) == 1 else "they"
        says = f"does not write what it computes for {full}, and goes on with what {them} held"
        fix = f"write it: self.{names[0].rpartition('.')[2]}[...] = ..., where the reference writes in place"
        numbers = frozenset(number for name in names for number in writes[name])
        yield Variant("buffer-not-written", says, fix, _not_written), Change(_not_written, numbers)


def _not_written(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return None if func.__name__ == "__setitem__" else args[0]


def _variant(names: Sequence[str], is_late: bool, numbers: frozenset[int]) -> tuple[Variant, Change]:
    them = "them" if len(names) > 1 else "it"
    if is_late:
        when, fix = f"held before this call, where the reference has written {them} anew", "write first, then read"
    else:
        when, fix = f"will hold after this call, where the reference has yet to write {them}", "read first, then write"
    says = f"computes with what {', '.join(names)} {when}"
    held = functools.partial(_before if is_late else _after, names)
    return Variant("buffer-order", says, fix, unused), Change(held=held, sites=numbers)


def _before(names: Sequence[str], replay: Replay) -> dict[int, torch.Tensor]:
    buffers = dict(replay.module.named_buffers())
    return {id(buffers[name]): buffers[name].detach().clone() for name in names}


def _after(names: Sequence[str], replay: Replay) -> dict[int, torch.Tensor]:
    buffers, found = dict(replay.module.named_buffers()), replay.run(Change(), forward_only=True)
    return {id(buffers[n]): torch.tensor(found["buffer", replay.full(n)]).to(buffers[n]) for n in names}


def _writes(site: Site, buffer: torch.Tensor) -> bool:
    return bool(site.args) and site.args[0] is buffer and WRITES.fullmatch(site.name) is not None


def _assigned(sites: Sequence[Site], buffer: torch.Tensor, after: np.ndarray | None) -> list[Site]:
    """The call that gives what stands in a buffer's place after the module's; none where it is as it was."""
    if after is None or after.shape != buffer.shape or np.array_equal(after, as_numpy(buffer.detach())):
        return []
    given = (site for site in reversed(sites) if isinstance(site.result, torch.Tensor))
    same = (site for site in given if site.result.shape == buffer.shape and _is(as_numpy(site.result.detach()), after))
    return list(itertools.islice(same, 1))


def _is(one: np.ndarray, other: np.ndarray) -> bool:
    return np.allclose(one, other, rtol=ROUNDING, atol=0)


def _reads(
    sites: Sequence[Site],
    buffer: torch.Tensor,
    writes: Sequence[Site],
    is_late: bool,
    apart: Callable[[Sequence[Site], Site, Site], bool],
) -> list[int]:
    """The numbers of the calls that take the buffer after its last write, or before its first, apart from that."""
    border = writes[-1] if is_late else writes[0]
    beyond = (s for s in sites if (s.number > border.number if is_late else s.number < border.number))
    taking = (s for s in beyond if any(x is buffer for x in pytree.tree_leaves((s.args, s.kwargs))))
    return [s.number for s in taking if apart(sites, s, border)]


def _is_any(sites: Sequence[Site], read: Site, write: Site) -> bool:
    return True


def _is_elsewhere(sites: Sequence[Site], read: Site, write: Site) -> bool:
    """Whether it is in another function than the write."""
    return _code(read) is not _code(write)


def _is_no_part(sites: Sequence[Site], read: Site, write: Site) -> bool:
    """Whether nothing of what it gives is written, and that is no count."""
    if not is_floating(write.result):
        return False
    made = set(map(id, tensors_of(read.result)))
    for site in sites:
        if read.number < site.number <= write.number and made & set(map(id, tensors_of((site.args, site.kwargs)))):
            if site.number == write.number:
                return False
            made |= set(map(id, tensors_of(site.result)))
    return read.number != write.number


def _code(site: Site) -> Any:
    """The function that a call is written in."""
    codes = (code for code, *_ in site.place)
    return next((code for code in codes if not is_of_a_library(code.co_filename)), None)
