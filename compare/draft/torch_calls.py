"""Calls of PyTorch's functions and methods, by the rules that they have."""

from __future__ import annotations

import ast
import contextlib
import inspect
import re
from collections.abc import Iterator
from typing import Any

import jax
import torch

from graphmode import nn

from .kinds import Kind
from .known_objects import our_util, takes_rngs
from .left import HELPERS, HINTS, IGNORED, REFUSED
from .model import CHANNELS, is_self, layer_of
from .names import UNKNOWN
from .new_tensors import NewTensors, is_of_numpy
from .rules import Rule, as_operand, as_tuple, without_parentheses
from .shapes import SHAPED, as_one
from .tables import DEFAULTS, FUNCTIONS, METHODS

# methods that lists, sets, dicts or strings have, too
OF_OTHERS = frozenset(
    ["sort", "index", "count", "copy", "add", "update", "pop", "remove", "scatter", "normal", "bernoulli"]
)
# methods that give the modules inside of one
OF_MODULES = frozenset(["children", "named_children", "modules", "named_modules"])
# methods of dicts, which hold tensors and are none
_OF_MAPPINGS = frozenset(["get", "items", "keys", "values", "setdefault"])
# what sets initial values, which the weights that are loaded replace
_INITIAL = frozenset(("uniform_", "normal_", "zero_", "fill_", "trunc_normal_", "xavier_uniform_", "copy_"))
# functions that take weights, which PyTorch has the other way round
_WEIGHED = frozenset(("gru_cell", "lstm_cell", "rnn_tanh_cell", "rnn_relu_cell", "bilinear"))

# functions that an expression calls by their bare names
_CALLED = re.compile(r"(?<![\w.])\w+(?=\()")
_LEFT = ("has no counterpart that is known here", "is called otherwise in JAX")
_KERNELS = {
    f"{name}{dims}d": axes
    for name in ("conv", "conv_transpose")
    for dims, axes in enumerate(("2, 1, 0", "2, 3, 1, 0", "2, 3, 4, 1, 0"), 1)
}


class TorchCalls(NewTensors):
    """Each call by its rule, or with a note."""

    def _with(self, node: ast.Call, *further: str, function: str = "", drop: frozenset[str] = frozenset()) -> str:
        """The call with further arguments, and without some, laid out as it was where none goes."""
        name = function or self.written(node.func)
        if not any(each.arg in drop for each in node.keywords):
            text = self.spans.spliced(node, lambda part: name if part is node.func else self.written(part))
            body = text[:-1].rstrip()
            if not further or "#" not in body.rpartition("\n")[2]:
                comma = "" if body.endswith("(") or not further else " " if body.endswith(",") else ", "
                return f"{body}{comma}{', '.join(further)})" if further else text
        arguments = [self.written(each) for each in node.args]
        arguments += [
            f"**{self.written(each.value)}" if each.arg is None else f"{each.arg}={self.written(each.value)}"
            for each in node.keywords
            if each.arg not in drop
        ]
        return f"{name}({', '.join([*arguments, *further])})"

    def _of_torch(self, node: ast.Call, name: str) -> str | None:
        if not name.startswith("nn.init."):
            name = name.rstrip("_")  # the value is that of what does not write in place
        short = name.rpartition(".")[2]
        functional = getattr(nn.functional, short, None)
        if name.startswith("nn.init."):
            return self.written(node.args[0]) if node.args else None
        drawn = self._drawn(name, node, node.args)
        if drawn is not None:
            return drawn
        if self._builds and name in ("rand", "randn"):  # what is loaded takes the place of what is drawn
            self.model.starts_otherwise = True
            return self._created(node, "zeros")
        sizes = [*node.args[2:3], *(each.value for each in node.keywords if each.arg == "size")]
        if self._builds and name == "normal" and sizes:
            self.model.starts_otherwise = True
            return f"jnp.zeros({self.written(sizes[0])})"
        if name.startswith("nn.utils.") and (made := self._of_utils(node, name)) is not None:
            return made
        if short == "bincount" and any(each.arg == "minlength" for each in node.keywords):
            length = next(each.value for each in node.keywords if each.arg == "minlength")
            return f"jnp.bincount({self.written(node.args[0])}, length={self.written(length)})"
        if name in REFUSED:
            short = name
        if short in REFUSED and not (functional and name.startswith("nn.functional.")):
            self._refused(short)
            return self._as_it_was(node)
        made = self._by_arguments(node, name, short)
        if made is not None:
            return made
        rule = FUNCTIONS.get(name)
        made = self._filled(rule, name, node.args, node.keywords) if rule is not None else None
        if made is None and functional and (name.startswith("nn.functional.") or rule is None):
            return self._of_functional(node, short, functional)
        if made is None:
            self._note(f"{short}: {HINTS[name]}" if name in HINTS else f"torch.{name} {_LEFT[rule is not None]}")
            return self._as_it_was(node)
        return made

    def _of_utils(self, node: ast.Call, name: str) -> str | None:
        """A function that makes a parameter one that is computed; None where there is none of its name here."""
        ours = our_util(name)
        return None if ours is None else self._with(node, *["rngs=rngs"] * takes_rngs(ours), function=name)

    def _by_arguments(self, node: ast.Call, name: str, short: str) -> str | None:
        """Functions whose meaning depends on what they are given."""
        pair = self._pair(node)
        if pair is not None:
            return as_one(pair)
        if name in ("zeros", "ones", "empty"):
            return self._created(node, name)
        if name.startswith("nn.functional.") and short in _KERNELS:
            return self._convolved(node, short)
        if name == "nn.functional.linear" and len(node.args) > 1 and self._is_of_layer(node.args[1], torch.nn.Linear):
            with self._weights_as_laid():
                return self._with(node, function="nn.functional.linear")
        if name == "where" and len(node.args) == 1:
            self._note("S04: where with a condition alone: gm.nonzero with a capacity")
            return self._as_it_was(node)
        if name in ("unsqueeze", "split", "split_with_sizes", "flatten", "squeeze", "max", "min") and node.args:
            return self._shaped(name, node, node.args[0], node.args[1:])
        return None

    def _of_functional(self, node: ast.Call, short: str, functional: Any) -> str:
        further = _as_given(functional)
        if short in _WEIGHED:
            self._note(f"{short}: its weights are [in, out] here, as the layers hold them: w.T of what PyTorch has")
        stream = self._stream()
        if "dropout" in short and stream is not None:
            further.append(f"rngs={stream}")
        elif "dropout" in short:
            self._note(f"H06: {short} draws numbers: nn.Dropout(p, rngs=rngs) in __init__, and called here")
        return self._with(node, *further, function=f"nn.functional.{short}", drop=frozenset({"inplace"}))

    def _refused(self, short: str) -> None:
        row, instead = REFUSED[short]
        self._note(f"{row}: {short}: {instead}")

    def _as_it_was(self, node: ast.Call) -> str:
        return self._with(node, function=ast.unparse(node.func))

    def _convolved(self, node: ast.Call, name: str) -> str | None:
        given = dict(zip(("input", "weight"), node.args, strict=False))
        given |= {each.arg: each.value for each in node.keywords if each.arg in ("input", "weight")}
        if len(given) < 2 or any(isinstance(each, ast.Starred) for each in node.args[:2]):
            self._note(f"F.{name}: its weight is [*kernel, in, out] here")
            return None
        weight = self._as_kernel(given["weight"], _KERNELS[name])
        rest = [self.written(each) for each in node.args[2:]]
        rest += [f"{each.arg}={self.written(each.value)}" for each in node.keywords if each.arg not in given]
        return f"nn.functional.{name}({', '.join([self.written(given['input']), weight, *rest, CHANNELS])})"

    def _as_kernel(self, weight: ast.expr, axes: str) -> str:
        """A weight of convolutions, with the axes as they lie here."""
        if not self._is_laid(weight):
            return f"{as_operand(self.written(weight))}.transpose({axes})"
        with self._weights_as_laid():
            return without_parentheses(self.written(weight))

    def _is_laid(self, weight: ast.expr) -> bool:
        """Whether it is the weight of a layer's own, perhaps times a number."""
        if isinstance(weight, ast.BinOp):
            sides = (weight.left, weight.right)
            return any(map(self._is_laid, sides)) and any(self._kind(each) is Kind.NUMBER for each in sides)
        return self._is_of_layer(weight, torch.nn.modules.conv._ConvNd)

    @contextlib.contextmanager
    def _weights_as_laid(self) -> Iterator[None]:
        """Where a weight goes to a function that takes it as the layers here hold it."""
        self._as_laid = True
        try:
            yield
        finally:
            self._as_laid = False

    def _is_of_layer(self, node: ast.expr, kind: type) -> bool:
        """Whether it is the weight that the class has from such a layer, which lies as the layers here hold it."""
        is_own = isinstance(node, ast.Attribute) and is_self(node.value) and node.attr == "weight"
        return is_own and issubclass(layer_of(self.owner) or object, kind)

    def _method(self, function: ast.Attribute, node: ast.Call, name: str) -> str | None:
        holder, is_tensor = function.value, self._is_tensor(function.value)
        drawn = self._drawn_by_method(name, holder, node)
        if drawn is not None:
            return drawn
        if name in OF_MODULES and not is_tensor and not node.args:
            self.model.helpers.add(name)
            return f"{name}({self.written(holder)})"
        pair = self._pair(node)
        if pair is not None:
            return as_one(pair)
        if self._builds and name in _INITIAL:
            return self.written(holder)
        if self._builds and name in ("item", "tolist") and not node.args:  # it is no graph that builds a model
            return None
        if self._builds and self._is_of_numpy(holder):
            return None
        if name in REFUSED and (is_tensor or name not in OF_OTHERS):
            self._refused(name)
            if name == "item" and is_tensor and not node.args:
                return self._as_number(holder)
            return self.written(holder) if name == "numpy" and is_tensor else None
        if name in SHAPED:
            return self._shaped(name, node, holder, node.args)
        if name in OF_OTHERS and not is_tensor:
            return None
        if name.endswith("_") and not name.endswith("__"):  # the value is that of what does not write in place
            return self._method(function, node, name.rstrip("_"))
        rule = METHODS.get(name) or FUNCTIONS.get(name)
        functional = getattr(nn.functional, name, None)
        if rule is None and is_tensor and functional is not None:
            given = [*map(self.written, [holder, *node.args]), *_as_given(functional)]
            return f"nn.functional.{name}({', '.join(given)})"
        made = None if rule is None else self._filled(rule, name, [holder, *node.args], node.keywords)
        if (
            made is None
            and is_tensor
            and name not in _OF_MAPPINGS
            and hasattr(torch.Tensor, name)
            and (rule is not None or not hasattr(jax.Array, name))
        ):
            self._note(f"Tensor.{name} {_LEFT[rule is not None]}")
        return made

    def _is_of_numpy(self, node: ast.expr) -> bool:
        """Whether it is made by numpy, as a generator of random numbers is."""
        while isinstance(node, ast.Call | ast.Attribute | ast.Subscript):
            found = self.scope.find(node)
            if found is not UNKNOWN and is_of_numpy(found):
                return True
            node = node.func if isinstance(node, ast.Call) else node.value
        given = self.scope.given.get(node.id, ()) if isinstance(node, ast.Name) and node.id in self.scope.local else ()
        return bool(given) and all(isinstance(each, ast.Call) and self._is_of_numpy(each.func) for each in given)

    def _filled(self, rule: Rule, name: str, args: list[ast.expr], keywords: list[ast.keyword]) -> str | None:
        given: dict[str, str] = dict(DEFAULTS.get(name, {}))
        names = [each[0] for each in rule.parameters]
        for i, arg in enumerate(args):
            if i == rule.takes_all:
                given[names[i][1:]] = self._all(args[i:], rule)
                break
            if i >= len(names):
                return None
            if isinstance(arg, ast.Starred):
                return None
            given[names[i]] = self._axes(arg) if names[i] == "dim" else self.written(arg)
        for keyword in keywords:
            if keyword.arg in IGNORED or (keyword.arg is None and self._says_where(keyword.value)):
                continue
            known = rule.name(keyword.arg) if keyword.arg is not None else None
            if known is None:
                return None
            given[known.lstrip("*")] = self._axes(keyword.value) if known == "dim" else self.written(keyword.value)
        if name == "norm" and given.get("p", "").strip("'\"") == "fro":
            del given["p"]
        made = self._by_choice(rule, name, given)
        text = rule.filled(given) if made is None else made[0]
        self.model.helpers |= {name} & HELPERS & {*_CALLED.findall(text or "")}
        return text

    def _by_choice(self, rule: Rule, name: str, given: dict[str, str]) -> tuple[str | None] | None:
        """What an argument that chooses between functions makes of a call; None where there is none."""
        short = name.rpartition(".")[2]
        if short in ("var", "std", "var_mean", "std_mean"):
            biased = given.pop("unbiased", given.pop("correction", "1"))
            if biased not in ("True", "False") and not biased.isdigit():
                return (None,)
            text, less = rule.filled(given), {"True": "1", "False": "0"}.get(biased, biased)
            return (text and text.replace(", ddof=1", "" if less == "0" else f", ddof={less}"),)
        if short in ("div", "divide") and "rounding_mode" in given:
            mode = given.pop("rounding_mode").strip("'\"")
            x, y = given["input"], given["other"]
            floor, trunc = f"jnp.floor_divide({x}, {y})", f"truncated_divide({x}, {y})"
            self.model.helpers |= {"truncated_divide"} if mode == "trunc" else set()
            self.model.imports |= {"from typing import Any"} if mode == "trunc" else set()
            return ({"floor": floor, "trunc": trunc, "None": f"({as_operand(x)} / {as_operand(y)})"}.get(mode),)
        if short in ("searchsorted", "bucketize") and "right" in given:
            right = given.pop("right")
            if right not in ("True", "False"):
                return (None,)
            return (rule.filled({**given, **({"side": '"right"'} if right == "True" else {})}),)
        if short == "index_put" and "accumulate" in given:
            adds = given.pop("accumulate")
            text = rule.filled(given)
            if text is None or adds not in ("True", "False"):
                return (None,)
            return (text.replace("].set(", "].add(") if adds == "True" else text,)
        return None

    def _axes(self, node: ast.expr) -> str:
        """An axis, or several, of which JAX takes a tuple."""
        if not isinstance(node, ast.List):
            return self.written(node)
        return as_tuple([self.written(each) for each in node.elts])

    def _all(self, rest: list[ast.expr], rule: Rule) -> str:
        """What is left of the arguments: one after the other where the template has them so, or as one tuple."""
        one = rest[0] if len(rest) == 1 else None
        items = list(one.elts) if isinstance(one, ast.Tuple | ast.List) else rest
        written = [self.written(each) for each in items]
        if rule.spreads:
            return ", ".join(written)
        is_one = one is not None and items is rest and not isinstance(one, ast.Constant | ast.UnaryOp | ast.Starred)
        return written[0] if is_one else as_tuple(written)


def _as_given(functional: Any) -> list[str]:
    """The argument with which a function takes the axes as they stand."""
    of_format = inspect.signature(functional).parameters.get("data_format")
    return [CHANNELS] if of_format is not None and of_format.default is not None else []
