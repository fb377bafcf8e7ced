"""Calls whose meaning depends on what they are given: sizes, dtypes, and what gives values with their indices."""

from __future__ import annotations

import ast
from collections.abc import Mapping

import torch

from .expressions import Expressions
from .names import UNKNOWN, torch_name
from .rules import as_operand, as_tuple

SHAPED = ("to", "expand", "split", "flatten", "squeeze", "max", "min")


class Shapes(Expressions):
    """Of tensors, by their arguments."""

    def _shaped(self, name: str, holder: ast.expr, args: list[ast.expr], keywords: list[ast.keyword]) -> str | None:
        named = {each.arg: each.value for each in keywords if each.arg is not None}
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
            sizes = first.elts if len(args) == 1 and isinstance(first, ast.Tuple | ast.List) else args
            return f"jnp.broadcast_to({self.written(holder)}, {as_tuple(self._kept(x, sizes))})"
        if name == "squeeze":
            dim = first or named.get("dim")
            return f"{x}.squeeze({'' if dim is None else self.written(dim)})"
        return self._flattened(holder, args, named) if name == "flatten" else self._split(holder, args, named)

    def _flattened(self, holder: ast.expr, args: list[ast.expr], named: Mapping[str, ast.expr]) -> str:
        first = args[0] if args else named.get("start_dim")
        last = args[1] if len(args) > 1 else named.get("end_dim")
        start = "0" if first is None else self.written(first)
        if last is not None and ast.unparse(last) != "-1":
            return f"jax.lax.collapse({self.written(holder)}, {start}, {as_operand(self.written(last))} + 1)"
        if start == "0":
            return f"{as_operand(self.written(holder))}.ravel()"
        return f"jax.lax.collapse({self.written(holder)}, {start})"

    def _split(self, holder: ast.expr, args: list[ast.expr], named: Mapping[str, ast.expr]) -> str | None:
        sizes = args[0] if args else next((each for name, each in named.items() if name.startswith("split_size")), None)
        if sizes is None or (isinstance(sizes, ast.Constant) and isinstance(sizes.value, str)):
            return None  # of a string
        axis = args[1] if len(args) > 1 else named.get("dim")
        dim = "0" if axis is None else self.written(axis)
        if isinstance(sizes, ast.List | ast.Tuple):
            self.model.imports.add("import numpy as np")
            return f"jnp.split({self.written(holder)}, np.cumsum({self.written(sizes)})[:-1], axis={dim})"
        size, x = self.written(sizes), as_operand(self.written(holder))
        self.model.imports.add("import numpy as np")
        return f"jnp.split({self.written(holder)}, np.arange({size}, {x}.shape[{dim}], {size}), axis={dim})"

    def _kept(self, x: str, sizes: list[ast.expr]) -> list[str]:
        """Sizes, of which -1 is the length that is there."""
        keeps = [ast.unparse(size) == "-1" for size in sizes]
        pairs = zip(sizes, keeps, strict=True)
        return [f"{x}.shape[{i - len(sizes)}]" if kept else self.written(size) for i, (size, kept) in enumerate(pairs)]

    def _is_dtype(self, node: ast.expr) -> bool:
        name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
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
        named = {each.arg: each.value for each in node.keywords if each.arg is not None}
        count = given[1] if len(given) > 1 else named.get("k")
        if name == "topk" and given and count is not None and self._is_last(given[2:], named):
            pair = f"jax.lax.top_k({self.written(given[0])}, {self.written(count)})"
            return f"{pair}[0]", f"{pair}[1]"
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


def _is_number(node: ast.expr) -> bool:
    inner = node.operand if isinstance(node, ast.UnaryOp) else node
    return isinstance(inner, ast.Constant) and isinstance(inner.value, int)
