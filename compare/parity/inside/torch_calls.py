"""Every call of every module of the reference, with its gradients, as one eager run makes them."""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch
from torch.utils import _pytree as pytree

from graphmode.weights import as_numpy

from ...checkpoints import no_checkpoints
from ...trees import named_leaves
from .calls import Call, CallId, Calls
from .numbers import numbers_of
from .written_inputs import WrittenInputs


@contextmanager
def recorded(module: torch.nn.Module) -> Iterator[Calls]:
    """Within it, each call of `module` and of what is inside is added to the calls that it yields, parents first.

    Every floating input and output that has a gradient is copied. So the gradient of an input is what this call gives
    it, whoever else uses the tensor. It is copied twice, and its gradient is that of the first copy: whoever takes the
    second may hang a hook on it, which changes what goes back. What a module writes into its input is written back.
    Outputs are copied ahead of the module's own hooks, so that what these keep of them for later is used by others, as
    the reference's outputs are.
    """
    calls = Calls()
    running: list[tuple[Call, list[_Copy]]] = []
    numbers: Counter[str] = Counter()
    handles = []
    written = WrittenInputs()
    versions = {id(x): x._version for x in _held(module).values()}

    owners = module.named_modules()
    places = [(f"{path}.{key}".lstrip("."), m._buffers, key) for path, m in owners for key in m._buffers]

    @functools.cache
    def below(path: str) -> list[tuple[str, dict[str, torch.Tensor | None], str]]:
        return [each for each in places if not path or each[0].startswith(f"{path}.")]

    seen_so = {name: _state(held[key]) for name, held, key in places}

    def note_written(writer: str, within: str) -> None:
        """What was written within a module since this was asked last is written by the module of the first path."""
        for name, held, key in below(within):
            if seen_so[name] != (now := _state(held.get(key))):
                seen_so[name] = now
                calls.writers.setdefault(name, set()).add(writer)

    began: dict[int, dict[str, torch.Tensor]] = {}  # by identity of a module, what it holds as a call of it begins

    def hold(path: str) -> Any:
        """Ahead of the module's own hooks, which may write it, as those of a spectral norm do."""

        def hook(child: torch.nn.Module, args: Any) -> None:
            if running:
                note_written(running[-1][0].id.path, path)
            held = ((name, x) for name, x in _held(child).items() if versions.get(id(x)) != x._version)
            began[id(child)] = {name: x.detach().clone() for name, x in held}

        return hook

    def before(path: str) -> Any:
        def hook(child: torch.nn.Module, args: Any, kwargs: Any) -> Any:
            note_written(path, path)  # by its hooks
            call = Call(CallId(path, numbers[path]), type(child).__name__, running[-1][0].id if running else None)
            call.in_no_grad = not torch.is_grad_enabled()
            call.frozen = frozenset(name for name, p in child.named_parameters() if not p.requires_grad)
            call.numbers = numbers_of(child.forward, args, kwargs)
            call.held = began.pop(id(child), {})
            numbers[path] += 1
            calls[call.id] = call
            copies: list[_Copy] = []
            running.append((call, copies))
            written.read((args, kwargs))
            args, kept_args = _watched(args, call.inputs, call.input_gradients, copies)
            kwargs, kept_kwargs = _watched(kwargs, call.inputs, call.input_gradients, copies)
            call.arguments = kept_args, kept_kwargs
            return args, kwargs

        return hook

    outer: dict[int, _Copy] = {}  # of outputs, by identity
    again: dict[int, dict[int, int]] = {}  # by identity of the call, places of outputs given before: of the first

    def copied(child: torch.nn.Module, args: Any, kwargs: Any, outputs: Any) -> Any:
        leaves, structure = _flat(outputs)
        first = {id(leaf): i for i, leaf in reversed(list(enumerate(leaves)))}
        again[id(running[-1][0])] = {i: first[id(leaf)] for i, leaf in enumerate(leaves) if first[id(leaf)] != i}
        for i, leaf in enumerate(leaves):
            if _is_plain(leaf) and leaf.requires_grad and torch.is_grad_enabled():
                made = _copy_of(leaf)
                leaves[i], outer[id(made.copy)] = made.copy, made
        return pytree.tree_unflatten(leaves, structure)

    def after(child: torch.nn.Module, args: Any, kwargs: Any, outputs: Any) -> Any:
        call, copies = running.pop()
        note_written(call.id.path, call.id.path)
        for copy in copies:
            if copy.copy._version != copy.version:
                written.paused = True
                copy.original.copy_(copy.copy)
                written.paused = False
                written.write(call, copy.original, copy.copy)
        named: dict[int, str] = {}
        outputs, call.result = _watched(outputs, call.outputs, call.cotangents, [], outer, named)
        places = again.pop(id(call), {}).items()
        call.repeated = {named[place]: named[first] for place, first in places if place in named and first in named}
        return outputs

    seen: set[int] = set()
    for path, child in module.named_modules():
        if id(child) not in seen:
            seen.add(id(child))
            handles.append(child.register_forward_pre_hook(hold(path), prepend=True))
            handles.append(child.register_forward_pre_hook(before(path), with_kwargs=True))
            handles.append(child.register_forward_hook(copied, with_kwargs=True, prepend=True))
            handles.append(child.register_forward_hook(after, with_kwargs=True))
    try:
        with no_checkpoints(), written:
            yield calls
    finally:
        for handle in handles:
            handle.remove()


def _state(buffer: torch.Tensor | None) -> tuple[int, int]:
    """Which is another one as soon as it is written."""
    return (0, 0) if buffer is None else (id(buffer), buffer._version)


def _held(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Its parameters and buffers, which are strided, by name."""
    named = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    return {name: tensor for name, tensor in named.items() if _is_plain(tensor)}


@dataclass(frozen=True)
class _Copy:
    original: torch.Tensor
    first: torch.Tensor
    copy: torch.Tensor
    version: int


def _copy_of(leaf: torch.Tensor) -> _Copy:
    first = leaf.clone()
    copy = first.clone()
    return _Copy(leaf, first, copy, copy._version)


def _watched(
    tree: Any,
    values: dict[str, Any],
    gradients: dict[str, Any],
    copies: list[_Copy],
    copied: Mapping[int, _Copy] = MappingProxyType({}),
    named: dict[int, str] | None = None,
) -> tuple[Any, Any]:
    """The tree with a copy in place of each tensor, but of those that are `copied`, by identity, whose values now and
    gradients later are noted by name; and the values as a tree of detached tensors. The names are noted, too, by the
    place among the leaves."""
    leaves, structure = _flat(tree)
    kept = list(leaves)
    names = {id(leaf): name for name, leaf in named_leaves(tree).items()}
    for i, leaf in enumerate(leaves):
        if not _is_plain(leaf):
            continue
        name = names.get(id(leaf), str(i))
        while name in values:
            name += "'"  # the same tensor again, or the same name among keyword arguments
        if named is not None:
            named[i] = name
        kept[i] = leaf.detach().clone()
        values[name] = as_numpy(kept[i])
        if leaf.requires_grad and torch.is_grad_enabled():
            made = copied.get(id(leaf)) or _copy_of(leaf)
            leaves[i] = made.copy
            copies.append(made)
            gradients[name] = None
            made.first.register_hook(functools.partial(_note, gradients, name))
    return pytree.tree_unflatten(leaves, structure), pytree.tree_unflatten(kept, structure)


def _is_plain(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.layout is torch.strided and not leaf.is_nested


def _flat(tree: Any) -> tuple[list[Any], pytree.TreeSpec]:
    """Leaves and structure; dataclasses are made nodes of PyTorch's trees, for to it an unknown one is a leaf."""
    leaves, structure = pytree.tree_flatten(tree)
    unknown = {type(leaf) for leaf in leaves if dataclasses.is_dataclass(leaf) and not isinstance(leaf, type)}
    made = [kind for kind in unknown if all(field.init for field in dataclasses.fields(kind))]
    if not made:
        return leaves, structure
    for kind in made:
        pytree.register_dataclass(kind)
    return _flat(tree)


def _note(gradients: dict[str, Any], name: str, gradient: torch.Tensor) -> None:
    gradients[name] = as_numpy(gradient.detach().clone())
