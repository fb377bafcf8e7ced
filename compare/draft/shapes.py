"""Calls whose meaning depends on what they are given: sizes, dtypes, and what gives values with their indices."""

from __future__ import annotations

import ast
from collections.abc import Mapping

import torch

from .expressions import Expressions
from .kinds import Kind
from .names import UNKNOWN, torch_name
from .rules import as_operand, as_tuple, named_in, without_parentheses

_UNSQUEEZE = ("unsqueeze", "unsqueeze_")
SHAPED = ("unsqueeze", "to", "expand", "split", "split_with_sizes", "flatten", "squeeze", "max", "min")


class Shapes(Expressions):
    """Of tensors, by their arguments."""

    def _shaped(self, name: str, node: ast.Call, holder: ast.expr, args: list[ast.expr]) -> str | None:
        named = named_in(node)
        first = args[0] if args else None
        x = as_operand(self.written(holder))
        if name == "to":
            dtype = next((each for each in [*args, *named.values()] if self._is_dtype(each)), None)
            like = next((each for each in [*args[:1], named.get("other")] if each and self._is_tensor(each)), None)
            if dtype is None and like is not None:
                return f"{x}.astype({as_operand(self.written(like))}.dtype)"
            return x if dtype is None else f"{x}.astype({self.written(dtype)})"
        if name in ("max", "min"):
            other = first or named.get("other")
            both = "" if other is None else f"jnp.{name}imum({self.written(holder)}, {self.written(other)})"
            return both or f"{x}.{name}()"
        if name == "expand":
            return self._expanded(holder, args or [each for key, each in named.items() if key == "size"])
        if name == "squeeze":
            dim = first or named.get("dim")
            return f"{x}.squeeze({'' if dim is None else self.written(dim)})"
        if name == "unsqueeze":
            return self._unsqueezed(node)
        if name == "flatten":
            return self._flattened(holder, args, named)
        return self._split(holder, args, named, self._unpacked.get(id(node)))

    def _flattened(self, holder: ast.expr, args: list[ast.expr], named: Mapping[str, ast.expr]) -> str:
        first = args[0] if args else named.get("start_dim")
        last = args[1] if len(args) > 1 else named.get("end_dim")
        start = "0" if first is None else self.written(first)
        if last is not None and ast.unparse(last) != "-1":
            end = number_in(last)
            stop = f"{as_operand(self.written(last))} + 1" if end is None else str(end + 1)
            return f"jax.lax.collapse({self.written(holder)}, {start}, {stop})"
        if start == "0":
            return f"{as_operand(self.written(holder))}.ravel()"
        return f"jax.lax.collapse({self.written(holder)}, {start})"

    def _unsqueezed(self, node: ast.Call) -> str | None:
        """New axes, those of several calls at once where they are numbers whose order is known."""
        found = self._new_axis(node)
        if found is None:
            return None
        holder, axes = found[0], [found[1]]
        while (number_in(axes[0])) is not None and (found := self._new_axis(holder)) is not None:
            if together([number_in(each) for each in (found[1], *axes)]) is None:
                break
            holder, axes = found[0], [found[1], *axes]
        places = together([number_in(each) for each in axes])
        axis = self.written(axes[0]) if places is None or len(axes) == 1 else as_tuple([str(each) for each in places])
        return f"jnp.expand_dims({without_parentheses(self.written(holder))}, {axis})"

    def _new_axis(self, node: ast.expr) -> tuple[ast.expr, ast.expr] | None:
        """What an axis is added to, and where, if a call does that."""
        if not isinstance(node, ast.Call):
            return None
        of_torch = torch_name(self.scope.find(node.func))
        is_method = isinstance(node.func, ast.Attribute) and node.func.attr in _UNSQUEEZE and of_torch is None
        given = [node.func.value, *node.args] if is_method else list(node.args)  # type: ignore[attr-defined]
        given += [value for name, value in named_in(node).items() if name in ("input", "dim")]
        return (given[0], given[1]) if (is_method or of_torch == "unsqueeze") and len(given) == 2 else None

    def _split(
        self, holder: ast.expr, args: list[ast.expr], named: Mapping[str, ast.expr], count: int | None
    ) -> str | None:
        sizes = args[0] if args else next((each for name, each in named.items() if name.startswith("split_size")), None)
        if sizes is None or Kind.TEXT in (self._kind(sizes), self._kind(holder)):
            return None
        axis = args[1] if len(args) > 1 else named.get("dim")
        dim = "0" if axis is None else self.written(axis)
        size, x = without_parentheses(self.written(sizes)), self.written(holder)
        kind = self._kind(sizes)
        if kind is Kind.SEQUENCE:
            return f"jnp.split({x}, np.cumsum({size})[:-1], axis={dim})"
        if kind is Kind.NUMBER and (count is not None or size == "1"):
            return f"jnp.split({x}, {count or f'{as_operand(x)}.shape[{dim}]'}, axis={dim})"
        if kind is Kind.NUMBER and is_short(holder):
            return f"jnp.split({x}, np.arange({size}, {_of_shape(x)}.shape[{dim}], {size}), axis={dim})"
        self.model.helpers.add("in_pieces")
        return f"in_pieces({x}, {size}{'' if dim == '0' else f', {dim}'})"

    def _expanded(self, holder: ast.expr, args: list[ast.expr]) -> str:
        x, one = self.written(holder), args[0] if len(args) == 1 else None
        sizes = one.elts if isinstance(one, ast.Tuple | ast.List) else args
        if one is not None and sizes is args and not isinstance(one, ast.Starred) and not self._is_size(one):
            return self._broadcast(x, without_parentheses(self.written(one)), self._has_only_lengths(one))
        unknown = [each for each in sizes if isinstance(each, ast.Starred) and not self._has_only_lengths(each.value)]
        keeps = [ast.unparse(size) == "-1" for size in sizes]
        if unknown or (any(keeps) and (not is_short(holder) or any(isinstance(each, ast.Starred) for each in sizes))):
            return self._broadcast(x, as_tuple([self.written(size) for size in sizes]), False)
        pairs = enumerate(zip(sizes, keeps, strict=True))
        kept = [f"{_of_shape(x)}.shape[{i - len(sizes)}]" if kept else self.written(size) for i, (size, kept) in pairs]
        return self._broadcast(x, as_tuple(kept), True)

    def _is_size(self, node: ast.expr) -> bool:
        """Whether it is one size, and no sequence of them."""
        return self._kind(node) is Kind.NUMBER

    def _broadcast(self, x: str, sizes: str, has_only_lengths: bool) -> str:
        if has_only_lengths:
            return f"jnp.broadcast_to({x}, {sizes})"
        self.model.helpers.add("expanded")
        return f"expanded({x}, {sizes})"

    def _is_dtype(self, node: ast.expr) -> bool:
        name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
        if isinstance(node, ast.Call) and torch_name(self.scope.find(node.func)) == "get_default_dtype":
            return True
        is_named_so = "dtype" in name and self.scope.find(node) is UNKNOWN
        return is_named_so or isinstance(self.scope.find(node), torch.dtype)

    def _pair(self, node: ast.Call) -> tuple[str, str] | None:
        """Values and indices, of what gives both."""
        of_torch = torch_name(self.scope.find(node.func))
        if of_torch is not None:
            name, given = of_torch, node.args
        elif isinstance(node.func, ast.Attribute) and self.scope.find(node.func.value) is UNKNOWN:
            name, given = node.func.attr, [node.func.value, *node.args]
        else:
            return None
        named = named_in(node)
        count = given[1] if len(given) > 1 else named.get("k")
        if name == "topk" and given and count is not None and self._is_last(given[2:], named):
            pair = f"jax.lax.top_k({self.written(given[0])}, {self.written(count)})"
            return f"{pair}[0]", f"{pair}[1]"
        if name in ("topk", "kthvalue", "median") and given and (of_torch is not None or self._is_tensor(given[0])):
            return self._ordered(name, given, named)
        if name not in ("max", "min", "sort") or not given:
            return None
        dim = named.get("dim", given[1] if len(given) > 1 and _is_number(given[1]) else None)
        further = named.get("descending" if name == "sort" else "keepdim", given[2] if len(given) > 2 else None)
        if name == "sort":
            if of_torch is None and not self._is_tensor(given[0]):
                return None
            axis, which = "-1" if dim is None else self.written(dim), "descending"
        elif dim is None:
            return None
        else:
            axis, which = self.written(dim), "keepdims"
        rest = f"axis={axis}" + ("" if further is None else f", {which}={self.written(further)}")
        x = self.written(given[0])
        return f"jnp.{name}({x}, {rest})", f"jnp.arg{name}({x}, {rest})"

    def _ordered(self, name: str, given: list[ast.expr], named: Mapping[str, ast.expr]) -> tuple[str, str] | None:
        """The k largest along an axis, the k-th smallest or the median, and where; None of the median of all."""
        if any(isinstance(each, ast.Starred) for each in given) or (
            name == "median" and len(given) < 2 and "dim" not in named
        ):
            return None
        self.model.helpers |= {"kthvalue", name} if name == "median" else {name}
        self.model.imports.add("from typing import Any")
        arguments = [self.written(each) for each in given]
        arguments += [
            f"{key}={self.written(each)}" for key, each in named.items() if key in ("k", "dim", "keepdim", "largest")
        ]
        made = f"{name}({', '.join(arguments)})"
        return f"{made}[0]", f"{made}[1]"

    @staticmethod
    def _is_last(rest: list[ast.expr], named: Mapping[str, ast.expr]) -> bool:
        """Whether the largest along the last axis are asked for."""
        axis = rest[0] if rest else named.get("dim")
        largest = rest[1] if len(rest) > 1 else named.get("largest")
        return (axis is None or ast.unparse(axis) == "-1") and (largest is None or ast.unparse(largest) == "True")


def as_one(pair: tuple[str, str]) -> str:
    """Values and indices together."""
    both = pair[0].removesuffix("[0]")
    return both if pair == (f"{both}[0]", f"{both}[1]") else f"({pair[0]}, {pair[1]})"


def is_short(node: ast.expr) -> bool:
    """Whether it is a name, or one with dots, that may be written twice."""
    return isinstance(node, ast.Name) or (isinstance(node, ast.Attribute) and is_short(node.value))


def _of_shape(x: str) -> str:
    """What an array's shape is asked of: a variable's own, as it has one."""
    return as_operand(x.removesuffix("[...]"))


def number_in(node: ast.expr) -> int | None:
    """A whole number that is written as one."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        number = number_in(node.operand)
        return None if number is None else -number
    is_whole = isinstance(node, ast.Constant) and type(node.value) is int
    return node.value if is_whole else None  # type: ignore[attr-defined]


def together(axes: list[int | None]) -> list[int] | None:
    """Where axes that are added one after the other lie in the end; None where that is not known."""
    placed: list[int] = []
    for axis in axes:
        if axis is None:
            return None
        from_end = [each < 0 for each in placed]
        if axis == -1:
            placed = [each - 1 if each < 0 else each for each in placed]
        elif axis == 0:
            placed = [each + 1 if each >= 0 else each for each in placed]
        elif any(from_end) or (placed and axis <= max(placed)):
            return None
        placed.append(axis)
    return sorted(placed, key=lambda each: (each < 0, each))


def _is_number(node: ast.expr) -> bool:
    inner = node.operand if isinstance(node, ast.UnaryOp) else node
    return isinstance(inner, ast.Constant) and isinstance(inner.value, int)
