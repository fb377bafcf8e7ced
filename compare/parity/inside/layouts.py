"""How the port lays out a tensor of the reference: which of its axes come in which order."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from types import MappingProxyType

import numpy as np

from ..yardstick import EQUAL_TOLERANCE, difference
from .fixed_size import EndToEnd, FixedSizeLayout, fixed_size_layout, layout_of_lines
from .packed import PackedLayout, Packing, packed_layouts

Axes = tuple[int, ...]
LARGEST_RANK = 5
CLEARLY = 0.5  # of a correlation


@dataclass(frozen=True)
class Layout:
    """The reference's axes in the port's order, then this shape.

    Attributes:
      axes: as `numpy.transpose` takes them.
      shape: of the port's tensor.
      origin: of the reference's.
      flat: that of the reference's, where it has flattened what is of `origin`.
    """

    axes: Axes
    shape: tuple[int, ...]
    origin: tuple[int, ...]
    flat: tuple[int, ...] | None = None

    def to_port(self, array: np.ndarray) -> np.ndarray:
        return array.reshape(self.origin).transpose(self.axes).reshape(self.shape)

    def to_reference(self, array: np.ndarray) -> np.ndarray:
        moved = tuple(self.origin[axis] for axis in self.axes)
        turned = array.reshape(moved).transpose(np.argsort(self.axes))
        return turned if self.flat is None else turned.reshape(self.flat)

    def gradient_to_port(self, gradient: np.ndarray) -> np.ndarray:
        return self.to_port(gradient)


@dataclass
class Layouts:
    """Finds the layout of one tensor after another, and learns from those that were beyond doubt.

    Where shapes leave a choice, a layout counts as found if values agree in it, and it is one that other tensors of the
    rank have or the usual one of channels last: a port that transposes by mistake is not to be excused.

    Attributes:
      seen: how often each order of axes was found.
      flattened: images that the reference has flattened, as they were found.
      tolerance: up to which error, of the largest element, values agree.
    """

    seen: Counter[Axes] = field(default_factory=Counter)
    flattened: set[Layout] = field(default_factory=set)
    tolerance: float = EQUAL_TOLERANCE

    def fit(self, port: np.ndarray, reference: np.ndarray, like: Sequence[Pair] = ()) -> Layout | None:
        """The likeliest layout, or None where the shapes admit none.

        Of what is wrong in every layout, that of one like it: of the same shape, where the call received it, say; else
        that in which it goes with the reference's most clearly, as where it is some times as large.
        """
        found = list(_candidates(reference.shape, port.shape))
        if not found:
            return None
        same = tuple(reference.shape) == tuple(port.shape)
        likely = [one for one in found if not same or self._is_usual(one)]
        near = {each.layout for each in like}
        flats = list(_flattened(reference.shape, port.shape))
        as_received = [flat for flat in flats if any(_are_alike(flat, each) for each in near)]
        known = [flat for flat in flats if any(_are_alike(flat, each) for each in (*near, *self.flattened))]
        for flat in known:
            if self._agree(flat, port, reference):
                return flat  # before others that agree: of zeros each does
        for one in likely:
            if self._agree(one, port, reference):
                self.seen[one.axes] += 1
                return one
        for flat in flats:
            if flat in as_received or self._agree(flat, port, reference):
                self.flattened.add(flat)
                return flat
        ways = likely or found
        if len(ways) == 1:
            return ways[0]
        return max(ways, key=lambda one: (one in near, _likeness(one, port, reference), self.seen[one.axes]))

    def _agree(self, layout: Layout, port: np.ndarray, reference: np.ndarray) -> bool:
        return difference(layout.to_reference(port), reference).error <= self.tolerance

    def usual(self, reference: np.ndarray) -> Layout:
        """The one that tensors of this rank mostly have, where shapes cannot tell."""
        rank = reference.ndim
        axes = max((axes for axes in self.seen if len(axes) == rank), key=self.seen.__getitem__, default=None)
        axes = axes or tuple(range(rank))
        return Layout(axes, tuple(reference.shape[axis] for axis in axes), reference.shape)

    def _is_usual(self, layout: Layout) -> bool:
        rank = len(layout.axes)
        return layout.axes in (tuple(range(rank)), _channels_last(rank)) or self.seen[layout.axes] > 0


def _likeness(layout: Layout, port: np.ndarray, reference: np.ndarray) -> float:
    """The correlation of the two in this layout, to a tenth; 0 where there is no clear one."""
    if port.dtype.kind != "f" or not port.size:
        return 0.0
    a, b = (x - x.mean() for x in (layout.to_reference(port), reference))
    size = float(np.linalg.norm(a) * np.linalg.norm(b))
    found = float(np.vdot(a, b)) / size if 0 < size < np.inf else 0.0
    return round(found, 1) if found > CLEARLY else 0.0


def _candidates(reference: Sequence[int], port: Sequence[int]) -> Iterator[Layout]:
    """Likeliest first: as it is, channels last, other orders of the same axes, then merged or split axes."""
    if prod(reference) != prod(port):
        return
    rank, origin, shape = len(reference), tuple(reference), tuple(port)
    identity = tuple(range(rank))
    if rank > LARGEST_RANK:
        if origin == shape:
            yield Layout(identity, shape, origin)
        return
    orders = dict.fromkeys([identity, *([_channels_last(rank)] if rank > 2 else []), *itertools.permutations(identity)])
    # axes of one element may stand anywhere
    longer = tuple(length for length in shape if length != 1)
    whole = [axes for axes in orders if tuple(origin[a] for a in axes if origin[a] != 1) == longer]
    known: set[tuple[int, ...]] = set()
    for axes in whole or orders:
        real = tuple(a for a in axes if origin[a] != 1)
        if real not in known:
            known.add(real)
            yield Layout(axes, shape, origin)


def _flattened(reference: Sequence[int], port: Sequence[int]) -> Iterator[Layout]:
    """That of an image, channels last, which the reference has flattened, its channels first; and of rows whose first
    two axes the reference has made one, the port's second before its first, as of steps of a batch."""
    rank, shape, flat = len(port), tuple(port), tuple(reference)
    if not 2 < rank <= LARGEST_RANK or prod(reference) != prod(port):
        return
    if len(reference) == 2 and reference[0] == port[0]:
        yield Layout(_channels_last(rank), shape, (port[0], port[-1], *port[1:-1]), flat)
    if flat[1:] == shape[2:] and min(shape[:2]) > 1:
        yield Layout((1, 0, *range(2, rank)), shape, (shape[1], shape[0], *shape[2:]), flat)


def _are_alike(one: Layout, other: AnyLayout) -> bool:
    """Whether both are of what the reference has flattened in one way, of as many features or of others."""
    if not isinstance(other, Layout) or one.flat is None or other.flat is None:
        return False
    return one.axes == other.axes and one.shape[:-1] == other.shape[:-1]


def _channels_last(rank: int) -> Axes:
    return (0, *range(2, rank), 1) if rank > 2 else tuple(range(rank))


@dataclass(frozen=True)
class Complement:
    """Of a mask that is True where the reference's is False, as where it names what counts and not the padding.

    Attributes:
      layout: of its axes.
    """

    layout: Layout

    @property
    def shape(self) -> tuple[int, ...]:
        return self.layout.shape

    def to_port(self, array: np.ndarray) -> np.ndarray:
        return ~self.layout.to_port(array)

    def to_reference(self, array: np.ndarray) -> np.ndarray:
        return ~self.layout.to_reference(array)

    def gradient_to_port(self, gradient: np.ndarray) -> np.ndarray:
        return self.layout.gradient_to_port(gradient)


AnyLayout = Layout | PackedLayout | FixedSizeLayout | Complement


@dataclass(frozen=True)
class Pair:
    """A tensor of the reference by name, and which of the port's stands for it, in what layout."""

    name: str
    index: int
    layout: AnyLayout


NEARER = 0.1  # of the error in its place: so near lies what is there in another order


def pair(
    port: Sequence[np.ndarray],
    reference: dict[str, np.ndarray],
    layouts: Layouts,
    names: Sequence[str] = (),
    packings: Mapping[str, Packing] = MappingProxyType({}),
    received: Sequence[Pair] | None = None,
    around: Sequence[Pair] = (),
    lines: Mapping[str, EndToEnd] = MappingProxyType({}),
    in_place: bool = False,
) -> list[Pair]:
    """Which of the port's tensors stands for which of the reference's; `packings` are of those that are packed,
    `lines` of those that are lines laid end to end, and `received` is what the call received, of tensors that it
    gives; `around` is what the call around it received. With `in_place` it is the one in its place wherever that fits.

    That of the same name, where `names` has those of the port's, and the reference's are among them: what it gives as
    a number of Python's is none of its tensors.

    The nearest in value of those that fit: an order may be another one. Where all is wrong, and as many are there, the
    one in its place, unless another is nearer by far: of two wrong values neither tells which is which.
    """
    if len(names) == len(port) and set(reference) <= set(names):
        placed = [(name, names.index(name)) for name in reference]
        fits = [(name, i, layouts.fit(port[i], reference[name], received or ())) for name, i in placed]
        return [Pair(name, i, layout) for name, i, layout in fits if layout is not None]
    masks = [mask for mask in reference.values() if _is_added_mask(mask)]
    free = [i for i, ours in enumerate(port) if not any(is_added_to(ours, mask) for mask in masks)]
    pairs = []
    for place, (name, wanted) in enumerate(reference.items()):
        found: dict[int, tuple[float, AnyLayout]] = {}
        for index in free:
            layout = _layout(port[index], wanted, layouts, packings.get(name), received, around, lines.get(name))
            if layout is not None:
                found[index] = difference(layout.to_reference(port[index]), wanted).error, layout
        if not found:
            continue
        best = min(found, key=lambda index: found[index][0])
        there = found.get(place) if len(port) == len(reference) else None
        if there is not None and (in_place or not found[best][0] < NEARER * there[0]):
            best = place
        free.remove(best)
        pairs.append(Pair(name, best, found[best][1]))
    if len(pairs) < len(reference):
        # of several tensors that the port holds as one, such as a list of lines, one alone would be held against it
        return [each for each in pairs if not isinstance(each.layout, FixedSizeLayout)]
    return pairs


def are_exchanged(pairs: Sequence[Pair], reference: Collection[str]) -> bool:
    """Whether tensors of the port, as many as the reference's, stand for one another in another order."""
    places = {name: place for place, name in enumerate(reference)}
    by_place = {each.index: each for each in pairs}
    moved = [each for each in pairs if each.index != places[each.name]]
    return bool(moved) and any(
        (there := by_place.get(places[each.name])) is not None and there.layout.shape == each.layout.shape
        for each in moved
    )


def _layout(
    port: np.ndarray,
    reference: np.ndarray,
    layouts: Layouts,
    packing: Packing | None,
    received: Sequence[Pair] | None,
    around: Sequence[Pair],
    lines: EndToEnd | None,
) -> AnyLayout | None:
    if not _same_kind(port, reference):
        return None
    if packing is not None:
        ways = packed_layouts(reference, packing, port.shape)
        return min(ways, key=lambda way: difference(way.to_reference(port), reference).error, default=None)
    found = layouts.fit(port, reference, received or ())
    if found is not None:
        return found
    of_lines = None if lines is None else layout_of_lines(port, reference, lines, layouts.fit)
    if of_lines is not None and _is_right(of_lines, port, reference, layouts.tolerance):
        return of_lines
    given = received is not None
    known = [each.layout for each in (around if received is None else received)]
    found_so = fixed_size_layout(port, reference, layouts.fit, known, layouts.tolerance, given=given)
    if of_lines is None or found_so is None:
        return of_lines or found_so
    # lines of which a mask with holes keeps some lie elsewhere than at the start of each
    is_like = found_so in known or _is_right(found_so, port, reference, layouts.tolerance)
    return found_so if is_like else of_lines


def _is_right(layout: AnyLayout, port: np.ndarray, reference: np.ndarray, tolerance: float) -> bool:
    return difference(layout.to_reference(port), reference).error <= tolerance


MOSTLY = 0.75  # of a mask: the rest may be wrong


def complement_of(one: Pair, port: np.ndarray, reference: np.ndarray) -> Complement | None:
    """That of a mask most of whose elements are the opposite of the reference's; None of others."""
    if reference.dtype != bool or port.dtype != bool or not reference.size or not isinstance(one.layout, Layout):
        return None
    layout = Complement(one.layout)
    given = layout.to_reference(port)
    return layout if given.shape == reference.shape and (given == reference).mean() > MOSTLY else None


def says_the_same(port: np.ndarray, reference: np.ndarray) -> bool:
    """Whether two arguments of another shape, kind or scale are one another's form, and no error.

    That is: equal once broadcast; or masks, which have two values each and divide the same elements alike, of bools on
    one side, or of zeros and numbers far below on both. Infinity leaves out what a finite number leaves out, but not a
    whole row: its softmax has no value, where the finite number's is uniform.
    """
    try:
        a, b = np.broadcast_arrays(port, reference)
    except ValueError:
        return False
    if a.size == 0:
        return True
    if not _same_kind(a, b):
        few = len(np.unique(port)) <= 2 and len(np.unique(reference)) <= 2
        return few and bool(((a != a.flat[0]) == (b != b.flat[0])).all())
    if difference(a, b).error <= EQUAL_TOLERANCE:
        return True
    if not (_is_added_mask(port) and _is_added_mask(reference)) or ((a < 0) != (b < 0)).any():
        return False
    return bool(np.isfinite(port).all() == np.isfinite(reference).all()) or not (a < 0).all(axis=-1).any()


def are_among(port: np.ndarray, reference: np.ndarray) -> bool:
    """Whether the port's elements hold all of the reference's, in whatever layout: as where the one is dense under a
    mask, and the other a list."""
    if not reference.size or not port.size:
        return not reference.size
    ours, theirs = np.sort(port, axis=None), reference.ravel()
    places = np.searchsorted(ours, theirs)
    below, above = (ours[each.clip(0, len(ours) - 1)] for each in (places - 1, places))
    near = np.minimum(np.abs(below - theirs), np.abs(above - theirs))
    return bool((near <= EQUAL_TOLERANCE * np.abs(theirs).max()).all())


def is_added_to(port: np.ndarray, mask: np.ndarray) -> bool:
    """Whether this is such a mask of the reference's with more added to it, of a larger shape, as where a port adds a
    bias of positions to it once for all layers; what the reference adds to it within the module is no error."""
    if port.dtype.kind != "f" or port.size <= mask.size or not _is_added_mask(mask):
        return False
    try:
        hidden = np.broadcast_to(mask < 0, port.shape)
    except ValueError:
        return False
    return bool(((port <= FAR_BELOW) == hidden).all() and (port[~hidden] != 0).any())


FAR_BELOW = -1e3  # what is added to scores before a softmax to leave them out


def _is_added_mask(array: np.ndarray) -> bool:
    values = np.unique(array)
    return array.dtype.kind in "fV" and 1 <= len(values) <= 2 and values[-1] == 0 and values[0] <= FAR_BELOW


def _same_kind(a: np.ndarray, b: np.ndarray) -> bool:
    kinds = [{"u": "i", "V": "f"}.get(x.dtype.kind, x.dtype.kind) for x in (a, b)]
    return kinds[0] == kinds[1]
