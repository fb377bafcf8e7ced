"""NNX modules and variables among operands: as plain arrays into a traced function, and changed ones back again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from flax.errors import TraceContextError
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun


def is_nnx(x: Any) -> bool:
    """Whether `x` is a module, a variable, or another object of NNX's graph."""
    return isinstance(x, nnx.Variable) or nnx.graph.is_graph_node(x)


@dataclass(frozen=True)
class Layout:
    """What a pytree is beside its arrays; two results fit together where their layouts are equal.

    Attributes:
      tree: with a leaf for each array, each NNX object and each static value.
      kinds: of each leaf: "array", "static", "new" for an NNX object that the function made, or the path of an operand.
      new: graphdef and tree of those made.
    """

    tree: Any
    kinds: tuple[Any, ...]
    new: Any


@dataclass(frozen=True)
class Operands:
    """A pytree that may hold NNX objects, with all its arrays in one flat list.

    Attributes:
      layout: the structure.
      statics: leaves that are no arrays, such as strings.
      nodes: the NNX objects, in order.
      graphdef: of all `nodes` at once, so that what they share is shared again inside.
      state: tree of the state of `nodes`.
      arrays: leaves that are arrays, then those of the state.
      names: of `arrays`, for messages.
    """

    layout: Layout
    statics: tuple[Any, ...]
    nodes: tuple[Any, ...]
    graphdef: Any
    state: Any
    arrays: tuple[jax.Array, ...]
    names: tuple[str, ...]

    @classmethod
    def of(cls, tree: Any, name: str) -> Operands:
        leaves, treedef = _flatten(tree)
        arrays, names, nodes, statics = [], [], [], []
        kinds: list[Any] = []
        for path, leaf in leaves:
            if is_nnx(leaf):
                nodes.append(leaf)
                kinds.append("node")
                continue
            try:
                arrays.append(_as_array(leaf))
            except (TypeError, ValueError):
                statics.append(leaf)
                kinds.append("static")
                continue
            names.append(name + jax.tree_util.keystr(path))
            kinds.append("array")
        graphdef, state = nnx.split(tuple(nodes), graph=True)
        for path, leaf in jax.tree_util.tree_leaves_with_path(state):
            names.append(f"{name}: variable {'.'.join(_key(part) for part in path[1:])} of module {_key(path[0])}")
            arrays.append(leaf)
        paths = iter(_paths(nodes)[id(node)] for node in nodes)
        kinds = [("operand", next(paths)) if kind == "node" else kind for kind in kinds]
        structure = jax.tree.structure(state)
        layout = Layout(treedef, tuple(kinds), None)
        return cls(layout, tuple(statics), tuple(nodes), graphdef, structure, tuple(arrays), tuple(names))

    def restored(self, arrays: Sequence[Any]) -> tuple[Any, tuple[Any, ...]]:
        """The tree, with `arrays` for its own and new NNX objects for its own, and these objects."""
        count = self.layout.kinds.count("array")
        nodes = nnx.merge(self.graphdef, jax.tree.unflatten(self.state, arrays[count:]))
        sources = {"array": iter(arrays[:count]), "static": iter(self.statics), "node": iter(nodes)}
        leaves = [next(sources["node" if isinstance(kind, tuple) else kind]) for kind in self.layout.kinds]
        return jax.tree.unflatten(self.layout.tree, leaves), nodes

    def update(self, arrays: Sequence[Any], changed: Sequence[bool]) -> None:
        """Writes the state among `arrays` into the own NNX objects, where it is marked as changed."""
        count = self.layout.kinds.count("array")
        if not any(changed[count:]):
            return
        state = nnx.to_flat_state(jax.tree.unflatten(self.state, arrays[count:]))
        marks = jax.tree.unflatten(self.state, changed[count:])
        touched = {path: any(jax.tree.leaves(mark)) for path, mark in nnx.to_flat_state(marks)}
        nnx.update(self.nodes, nnx.from_flat_state([(path, leaf) for path, leaf in state if touched[path]]))

    def node_at(self, path: Any) -> Any:
        return next(value for where, value in nnx.iter_graph(self.nodes, graph=True) if where == path)


@dataclass(frozen=True)
class Traced:
    """A function of operands as one of flat arrays, traced once.

    Attributes:
      label: the function's name, as the user knows it.
      closed: arrays of the operands, and more, to arrays of the result, then the state of the operands' NNX objects.
      layout: of the result.
      names: of the arrays of the result, for messages.
      results: how many arrays the result holds.
    """

    label: str
    closed: ClosedJaxpr
    layout: Layout
    names: tuple[str, ...]
    results: int

    @property
    def avals(self) -> tuple[Any, ...]:
        return tuple(self.closed.out_avals)

    @property
    def consts(self) -> list[Any]:
        """What the function closes over."""
        return list(self.closed.consts)

    def __call__(self, consts: Sequence[Any], *arrays: Any) -> list[Any]:
        outs = jaxpr_as_fun(ClosedJaxpr(self.closed.jaxpr, list(consts)))(*arrays)
        # A constant comes out as the Python number that it was.
        pairs = zip(outs, self.avals, strict=True)
        return [x if isinstance(x, jax.Array) else jnp.asarray(x, aval.dtype) for x, aval in pairs]

    def passes(self, out: int, into: int) -> bool:
        """Whether the output at `out` is the input at `into`, untouched."""
        return self.closed.jaxpr.outvars[out] is self.closed.jaxpr.invars[into]


def trace(fn: Callable[..., Any], operands: Operands, name: str, *more: Any) -> Traced:
    """`fn(*tree, *more)` for a tuple of operands, with mutation of their NNX objects turned into results.

    Args:
      fn: takes the operands, and `more`.
      operands: of a tuple.
      name: of `fn`, as the user knows it.
      more: pytrees of arrays, or of shapes and dtypes; flat arrays that follow those of the operands.

    Raises:
      TypeError: where the result holds what is no array, or `fn` changes more of a module than values.
    """
    seen: dict[str, Any] = {}
    more_leaves, more_tree = jax.tree.flatten(more)
    own = len(operands.arrays)

    def flat(*arrays: Any) -> list[Any]:
        tree, nodes = operands.restored(arrays[:own])
        known = _paths(nodes)
        try:
            out = fn(*tree, *jax.tree.unflatten(more_tree, arrays[own:]))
        except TraceContextError as error:
            error.add_note(f"{name} changes a module that it closes over; pass the module as an operand")
            raise
        leaves, treedef = _flatten(out)
        results, names, kinds, made = [], [], [], []
        for path, leaf in leaves:
            where = f"{name}(...){jax.tree_util.keystr(path)}"
            if is_nnx(leaf):
                kinds.append(("operand", known[id(leaf)]) if id(leaf) in known else "new")
                made += [] if id(leaf) in known else [leaf]
                continue
            try:
                results.append(_as_array(leaf))
            except (TypeError, ValueError):
                raise TypeError(f"{where} is {leaf!r}; only arrays and NNX modules can come out of a graph") from None
            names.append(where)
            kinds.append("array")
        new = None
        if made:
            shared = _paths(made).keys() & known.keys()
            if shared:
                raise TypeError(f"{name} returns a new module that holds parts of an operand; return the operand")
            graphdef, state = nnx.split(tuple(made), graph=True)
            new = (graphdef, jax.tree.structure(state))
            results += jax.tree.leaves(state)
            names += [f"{name}(...): {jax.tree_util.keystr(path)}" for path, _ in jax.tree.leaves_with_path(state)]
        graphdef, state = nnx.split(nodes, graph=True)
        if graphdef != operands.graphdef or jax.tree.structure(state) != operands.state:
            raise TypeError(
                f"{name} changes the structure of a module: a variable was added, removed or replaced by one of "
                f"another kind, or a Python attribute was set; make it before, in the constructor, and change values "
                f"alone"
            )
        seen.update(layout=Layout(treedef, tuple(kinds), new), names=tuple(names), results=len(results))
        return [*results, *(jnp.asarray(leaf) for leaf in jax.tree.leaves(state))]

    closed = jax.make_jaxpr(flat)(*operands.arrays, *more_leaves)
    return Traced(name, closed, **seen)


def rebuilt(layout: Layout, arrays: Sequence[Any], operands: Operands) -> Any:
    """The result of a traced function from its arrays; operands that it returned are the caller's own objects."""
    count = layout.kinds.count("array")
    plain, made = iter(arrays[:count]), iter(())
    if layout.new is not None:
        graphdef, structure = layout.new
        made = iter(nnx.merge(graphdef, jax.tree.unflatten(structure, arrays[count:])))
    leaves = []
    for kind in layout.kinds:
        if isinstance(kind, tuple):
            leaves.append(operands.node_at(kind[1]))
        else:
            leaves.append(next(made if kind == "new" else plain))
    return jax.tree.unflatten(layout.tree, leaves)


def described(aval: Any) -> str:
    """Shape and dtype, as in `float32[2,3]`."""
    return f"{aval.dtype}[{','.join(map(str, aval.shape))}]"


def _flatten(tree: Any) -> tuple[list[tuple[Any, Any]], Any]:
    # The state that nnx.split gives is plain data, though it is made of variables.
    def stops(x: Any) -> bool:
        return isinstance(x, nnx.State) or is_nnx(x)

    leaves, treedef = jax.tree_util.tree_flatten_with_path(tree, is_leaf=stops)
    if not any(isinstance(leaf, nnx.State) for _, leaf in leaves):
        return leaves, treedef
    inside = {id(part) for _, leaf in leaves if isinstance(leaf, nnx.State) for part in _variables(leaf)}
    return jax.tree_util.tree_flatten_with_path(tree, is_leaf=lambda x: is_nnx(x) and id(x) not in inside)


def _variables(state: nnx.State) -> list[Any]:
    return jax.tree.leaves(state, is_leaf=is_nnx)


def _paths(nodes: Sequence[Any]) -> dict[int, Any]:
    return {id(value): path for path, value in nnx.iter_graph(tuple(nodes), graph=True) if is_nnx(value)}


def _key(part: Any) -> str:
    return str(getattr(part, "key", getattr(part, "idx", getattr(part, "name", part))))


def _as_array(leaf: Any) -> jax.Array:
    if isinstance(leaf, str | bytes):
        raise TypeError(f"{leaf!r} is no array")
    return jnp.asarray(leaf)
