"""Tensors that code makes: of a shape, of values, or drawn at random."""

from __future__ import annotations

import ast
from typing import Any

import numpy as np

from .arguments import any_element
from .draws import DRAWN, STREAM
from .kinds import Kind
from .objects import Objects
from .rules import Rule, as_operand, as_tuple


class NewTensors(Objects):
    """Of what they are made, and from which stream."""

    def _stream(self) -> str | None:
        """What random numbers are drawn from here; None where there is no such thing."""
        if self._builds:
            return None
        if self.owner is None:
            return STREAM if self._draws else None
        return f"self.{STREAM}" if any(map(self._has_stream, self.owner.__mro__)) else None

    def _has_stream(self, cls: type) -> bool:
        """Whether its `__init__` gives a module a stream of random numbers."""
        draws = any(each in self.model.drawers for each in cls.__mro__)
        return cls in self.model.classes and "__init__" in vars(cls) and draws

    def _drawn(self, name: str, node: ast.Call, given: list[ast.expr]) -> str | None:
        """Random numbers, from the stream that there is."""
        template, stream = DRAWN.get(name), self._stream()
        if template is None or stream is None:
            return None
        dtype = [self.written(each.value) for each in node.keywords if each.arg == "dtype"]
        values = {"key": f"{stream}()"} | ({"dtype": dtype[0]} if dtype else {})
        if "{like}" in template:
            values["like"] = self.written(given[0])
        else:
            sizes = given or [each.value for each in node.keywords if each.arg == "size"]
            shape = self._sizes(sizes)
            values["shape"] = as_tuple([shape]) if isinstance(sizes[0], ast.Constant) and len(sizes) == 1 else shape
        return Rule((), template).filled(values)

    def _drawn_by_method(self, name: str, holder: ast.expr, node: ast.Call) -> str | None:
        stream = self._stream()
        if name in ("rsample", "sample", "sample_n") and self.is_distribution(holder) and not self._builds:
            if name == "rsample" and stream is not None and not node.keywords:
                shape = "".join(f", {self.written(each)}" for each in node.args)
                return f"{as_operand(self.written(holder))}.rsample({stream}(){shape})"
            self._note(f"H06: {name}: draw with jax.random and a key of nnx.Rngs, or take the numbers as an argument")
            return None
        if name not in ("bernoulli", "bernoulli_") or stream is None:
            return None
        x = as_operand(self.written(holder))
        if name == "bernoulli" and not node.args:
            return f"jax.random.bernoulli({stream}(), {x}).astype({x}.dtype)"
        odds = self.written(node.args[0]) if node.args else "0.5"
        return f"jax.random.bernoulli({stream}(), {odds}, {x}.shape).astype({x}.dtype)"

    def _created(self, node: ast.Call, name: str) -> str:
        keywords = {each.arg: each.value for each in node.keywords}
        sizes = node.args or [each for key, each in keywords.items() if key == "size"]
        shape = self._sizes(sizes)
        dtype = f", dtype={self.written(keywords['dtype'])}" if "dtype" in keywords else ""
        return f"jnp.{'zeros' if name == 'empty' else name}({shape}{dtype})"

    def _sizes(self, sizes: list[ast.expr]) -> str:
        if len(sizes) == 1 and not isinstance(sizes[0], ast.Starred):
            return self.written(sizes[0])
        return as_tuple([self.written(each) for each in sizes])

    def _of_legacy_type(self, node: ast.Call, dtype: str) -> str | None:
        """`torch.FloatTensor(...)`: of values, or of a shape, as what it is given says; None where that does not."""
        given = node.args[0] if len(node.args) == 1 else None
        literal = ast.List | ast.Tuple | ast.ListComp | ast.GeneratorExp
        of_numpy = isinstance(given, ast.Call) and is_of_numpy(self.scope.find(given.func))
        if given is not None and (isinstance(given, literal) or self._holds_values(given) or of_numpy):
            return f"jnp.asarray({self.written(given)}, dtype={dtype})"
        if self._builds or len(node.args) > 1 or (isinstance(given, ast.Constant) and isinstance(given.value, int)):
            made = self._created(node, "zeros")
            return made if dtype == "jnp.float32" else f"{made[:-1]}, dtype={dtype})"
        self._note(f"{ast.unparse(node.func)}(...): jnp.asarray of values, or jnp.zeros of a shape")
        return None

    def _holds_values(self, node: ast.expr) -> bool:
        """Whether it is known to be no size."""
        if self._builds and isinstance(node, ast.Name) and self._was_given_numbers(node.id):
            return False
        is_local = isinstance(node, ast.Name) and node.id in self.scope.local
        is_sequence = is_local and self._kind(node) is Kind.SEQUENCE
        return is_sequence or self._is_list(node) or any_element(node) in self._sized

    def _was_given_numbers(self, name: str) -> bool:
        """Whether this argument of a constructor was a whole number, whatever its annotation says."""
        made = (given for module, given in self.model.recording.arguments.values() if type(module) is self.owner)
        values = [given[name] for given in made if name in given]
        return bool(values) and all(isinstance(each, int) for each in values)

    def _is_list(self, node: ast.expr) -> bool:
        """Whether it is an argument that is said to be a list, or a name that stood for one as the original ran."""
        return isinstance(node, ast.Name) and (node.id in self._lists or self._seen(node) == "list")


def is_of_numpy(found: Any) -> bool:
    """Whether it is a function of numpy's."""
    return isinstance(found, np.ufunc) or str(getattr(found, "__module__", "")).split(".")[0] == "numpy"
