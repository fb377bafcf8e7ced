"""Calls of PyTorch's functions, methods and classes, and of the user's own modules."""

from __future__ import annotations

import ast
import contextlib
import functools
import inspect
from collections.abc import Iterator
from types import CodeType, FunctionType
from typing import Any

import jax
import torch
from torch.utils.checkpoint import checkpoint

from graphmode import nn

from .draws import STREAM
from .left import HELPERS, HINTS, IGNORED, LEGACY, REFUSED
from .model import (
    CHANNELS,
    has_own_init,
    is_function_of_gradients,
    is_module,
    is_of_others,
    is_self,
    is_super,
    layer_of,
)
from .names import UNKNOWN, torch_name
from .new_tensors import NewTensors
from .objects import NotWrittenError
from .rules import Rule, as_operand, as_tuple
from .settled import asks_how_it_runs
from .shapes import SHAPED, as_one
from .tables import DEFAULTS, FUNCTIONS, METHODS

# methods that lists, sets, dicts or strings have, too
OF_OTHERS = frozenset(
    ["sort", "index", "count", "copy", "add", "update", "pop", "remove", "scatter", "normal", "bernoulli"]
)
# what sets initial values, which the weights that are loaded replace
_INITIAL = frozenset(("uniform_", "normal_", "zero_", "fill_", "trunc_normal_", "xavier_uniform_", "copy_"))
# functions that take weights, which PyTorch has the other way round
_WEIGHED = frozenset(("gru_cell", "lstm_cell", "rnn_tanh_cell", "rnn_relu_cell", "bilinear"))

# what `torch.utils.checkpoint.checkpoint` takes for itself; what it saves of memory, XLA decides
_OF_CHECKPOINT = frozenset(
    ("use_reentrant", "preserve_rng_state", "context_fn", "determinism_check", "debug", "early_stop")
)

_LEFT = ("has no counterpart that is known here", "is called otherwise in JAX")
_KERNELS = {"conv1d": "2, 1, 0", "conv2d": "2, 3, 1, 0", "conv3d": "2, 3, 4, 1, 0"}


class Calls(NewTensors):
    """Each call by the rule that it has, or with a note."""

    def _call(self, node: ast.Call) -> str | None:
        function = node.func
        found = self.scope.find(function)
        if isinstance(found, type) and issubclass(found, torch.nn.Parameter):
            return f"nnx.Param({self.written(node.args[0])})" if node.args else None
        if is_module(found):
            return self._built(node, found)
        if is_function_of_gradients(getattr(found, "__self__", None)) and not node.keywords:
            self.model.helpers.add("apply_function")
            return f"apply_function({', '.join([self.model.classes[found.__self__], *map(self.written, node.args)])})"
        if asks_how_it_runs(found):
            return "False"
        if found is torch.autograd.Variable and node.args:
            return self.written(node.args[0])
        if found in (checkpoint, torch.jit.annotate):
            return self._handed_on(node, found)
        made = self._as_recorded(node, found)
        if made is not None:
            return made
        if found is torch.Tensor or found in LEGACY:
            return self._of_legacy_type(node, LEGACY.get(found, "jnp.float32")) or self._as_it_was(node)
        if found is isinstance:
            with self._in_types():
                return self._with(node)
        if isinstance(found, FunctionType) and found in self.model.drawers and self._stream() is not None:
            return self._with(node, f"{STREAM}={self._stream()}")
        name = torch_name(found)
        if name is not None:
            return self._of_torch(node, name)
        if isinstance(function, ast.Attribute):
            return self._method_call(node, function)
        if isinstance(function, ast.Name) and self._builds and (node.args or node.keywords):
            is_builder = function.id in self.model.builders or (found is UNKNOWN and self._is_parameter(function.id))
            return self._with(node, "rngs=rngs") if is_builder else None
        return None

    def _is_parameter(self, name: str) -> bool:
        return name in self.scope.local and name not in self._tensors | self._plain_functions

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

    def _built(self, node: ast.Call, found: type) -> str | None:
        """A module, with what its class takes here besides."""
        if found in self.model.classes and has_own_init(found):
            return self._with(node, "rngs=rngs", function=self.model.classes[found])
        name = self._class_to_call(found)
        drop = frozenset({"device", "dtype"} if _ours(found) is not None else ())
        return self._with(node, *self._further_of(found, node), function=name, drop=drop)

    def _handed_on(self, node: ast.Call, found: Any) -> str | None:
        """A call that only says how, or of which type: what is called there, or is given."""
        if found is torch.jit.annotate:
            return self.written(node.args[1]) if len(node.args) == 2 else None
        if not node.args:
            return None
        arguments = [self.written(each) for each in node.args[1:]]
        keywords = [each for each in node.keywords if each.arg not in _OF_CHECKPOINT]
        arguments += [f"{each.arg}={self.written(each.value)}" for each in keywords]
        return f"{as_operand(self.written(node.args[0]))}({', '.join(arguments)})"

    def _as_recorded(self, node: ast.Call, found: Any) -> str | None:
        """A call that gave a module while the original was built, by what gave it there."""
        if not self._builds:
            return None
        made = self.model.recording.at(self.spans.file, node)
        if not made:
            return None
        if found is UNKNOWN:
            return self._of_kinds(node, {self._takes_rngs_when_called(by) for by, _ in made})
        if is_of_others(found, self.model):
            return self._remade(node, [module for _, module in made])
        return None

    def _of_kinds(self, node: ast.Call, take_rngs: set[bool]) -> str | None:
        """A call of what is handed in, with `rngs` where all that was handed in takes it."""
        if take_rngs != {True, False}:
            return self._with(node, *["rngs=rngs"] * (True in take_rngs))
        self.model.helpers.add("taking")
        return self._with(node, function=f"taking({self.written(node.func)}, rngs)")

    def _takes_rngs_when_called(self, by: type | CodeType) -> bool:
        if isinstance(by, CodeType):
            return by.co_name in self.model.builders
        return "rngs=rngs" in self._further_of(by)

    def _remade(self, node: ast.Call, modules: list[torch.nn.Module]) -> str | None:
        """The modules that code of others gave here, made of what these had been made of."""
        try:
            texts = {self._object(module) for module in modules}
            text = texts.pop()
            if not texts:
                return text
            self._note(f"{ast.unparse(node)} gives one module after the other, each made of other arguments")
        except NotWrittenError as error:
            self._note(f"what {ast.unparse(node)} gives is made of {error}")
        return self._with(node)

    def _method_call(self, node: ast.Call, function: ast.Attribute) -> str | None:
        if is_super(function):
            return self._super_call(node, function)
        if is_self(function.value):
            if function.attr == "forward":
                return self._with(node, function="self")
            if function.attr == "register_buffer" and len(node.args) == 2:
                name, value = map(self.written, node.args)
                return f"setattr(self, {name}, nnx.BatchStat({value}))"
            return self._with(node, "rngs=rngs") if self._builds and function.attr in self.model.builders else None
        if self._builds and function.attr in self.model.builders and not self._is_tensor(function.value):
            return self._with(node, "rngs=rngs")
        if self._is_of_child_class(function):
            return None
        holder = self.scope.find(function.value)
        if holder is not UNKNOWN and not isinstance(holder, torch.Tensor):
            return None
        return self._method(function, node, function.attr)

    def _is_of_child_class(self, function: ast.Attribute) -> bool:
        """Whether it is a method that the user's class of a module inside has, whatever tensors have of that name."""
        holder = function.value
        if self._builds and isinstance(holder, ast.Name) and self._is_parameter(holder.id):
            return any(function.attr in vars(each) for each in self.model.classes)
        if not isinstance(holder, ast.Attribute) or not is_self(holder.value) or self.owner is None:
            return False
        kind = self.model.children.get(self.owner, {}).get(holder.attr)
        return kind is not None and any(
            function.attr in vars(each) for each in kind.__mro__ if each in self.model.classes
        )

    def _super_call(self, node: ast.Call, function: ast.Attribute) -> str | None:
        if function.attr == "forward":
            return self._with(node, function="super().__call__")
        if function.attr != "__init__" or self.owner is None or not is_module(self.owner):
            return None
        base = next(each for each in self.owner.__mro__[1:] if is_module(each))
        if base in self.model.classes and has_own_init(base):
            return self._with(node, "rngs=rngs", function="super().__init__")
        return self._with(node, *self._further_of(base, node), function="super().__init__")

    def _further_of(self, kind: type, call: ast.Call | None = None) -> list[str]:
        """The arguments that a class of modules takes here besides PyTorch's."""
        if kind in self.model.classes and has_own_init(kind):
            return ["rngs=rngs"] if is_module(kind) else []
        ours = _ours(kind)
        if ours is None:
            return []
        names = inspect.signature(ours.__init__).parameters  # type: ignore[misc]
        has_format = call is not None and any(each.arg == "data_format" for each in call.keywords)
        return [CHANNELS] * ("data_format" in names and not has_format) + ["rngs=rngs"] * ("rngs" in names)

    def _of_torch(self, node: ast.Call, name: str) -> str | None:
        short = name.rpartition(".")[2]
        functional = getattr(nn.functional, short, None)
        if name.startswith("nn.init."):
            return self.written(node.args[0]) if node.args else None
        drawn = self._drawn(name, node, node.args)
        if drawn is not None:
            return drawn
        if self._builds and name in ("rand", "randn"):  # what is loaded takes the place of what is drawn
            return self._created(node, "zeros")
        if name.startswith("nn.utils.") and (made := self._of_utils(node, name)) is not None:
            return made
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
        *holders, short = name.split(".")[2:]
        ours = getattr(functools.reduce(getattr, holders, nn.utils), short, None)
        if ours is None:
            return None
        takes_rngs = "rngs" in inspect.signature(ours).parameters
        return self._with(node, *["rngs=rngs"] * takes_rngs, function=name)

    def _by_arguments(self, node: ast.Call, name: str, short: str) -> str | None:
        """Functions whose meaning depends on what they are given."""
        pair = self._pair(node)
        if pair is not None:
            return as_one(pair)
        if name in ("zeros", "ones", "empty"):
            return self._created(node, name)
        if name.startswith("nn.functional.") and short in _KERNELS:
            return self._convolved(node, short)
        if name == "nn.functional.linear" and len(node.args) > 1 and self._is_of_layer(node.args[1]):
            with self._weights_as_laid():
                return self._with(node, function="nn.functional.linear")
        if name == "where" and len(node.args) == 1:
            self._note("S04: where with a condition alone: gm.nonzero with a capacity")
            return self._as_it_was(node)
        if name in ("split", "flatten", "squeeze", "max", "min") and node.args:
            return self._shaped(name, node.args[0], node.args[1:], node.keywords)
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
        if len(node.args) < 2:
            self._note(f"F.{name}: its weight is [*kernel, in, out] here")
            return None
        with self._weights_as_laid():
            weight = self.written(node.args[1])
        if not self._is_of_layer(node.args[1]):
            weight = f"{as_operand(weight)}.transpose({_KERNELS[name]})"
        rest = [self.written(each) for each in node.args[2:]]
        rest += [f"{each.arg}={self.written(each.value)}" for each in node.keywords]
        return f"nn.functional.{name}({', '.join([self.written(node.args[0]), weight, *rest, CHANNELS])})"

    @contextlib.contextmanager
    def _weights_as_laid(self) -> Iterator[None]:
        """Where a weight goes to a function that takes it as the layers here hold it."""
        self._as_laid = True
        try:
            yield
        finally:
            self._as_laid = False

    def _is_of_layer(self, node: ast.expr) -> bool:
        """Whether it is a weight that the class has from a layer, which lies as the layers here hold it."""
        return isinstance(node, ast.Attribute) and is_self(node.value) and layer_of(self.owner) is not None

    def _method(self, function: ast.Attribute, node: ast.Call, name: str) -> str | None:
        holder, is_tensor = function.value, self._is_tensor(function.value)
        drawn = self._drawn_by_method(name, holder, node)
        if drawn is not None:
            return drawn
        if name in ("named_children", "children") and not is_tensor and not node.args:
            self.model.helpers.add(name)
            return f"{name}({self.written(holder)})"
        pair = self._pair(node)
        if pair is not None:
            return as_one(pair)
        if self._builds and name in _INITIAL:
            return self.written(holder)
        if self._builds and name in ("item", "tolist") and not node.args:  # it is no graph that builds a model
            return None
        if name in REFUSED and (is_tensor or name not in OF_OTHERS):
            self._refused(name)
            return None
        if name in SHAPED:
            return self._shaped(name, holder, node.args, node.keywords)
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
        if made is None and is_tensor and (rule is not None or not hasattr(jax.Array, name)):
            self._note(f"Tensor.{name} {_LEFT[rule is not None]}")
        return made

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
            if keyword.arg in IGNORED:
                continue
            known = rule.name(keyword.arg) if keyword.arg is not None else None
            if known is None:
                return None
            given[known.lstrip("*")] = self._axes(keyword.value) if known == "dim" else self.written(keyword.value)
        if name in ("norm", "linalg.vector_norm") and "dim" not in given and "input" in given:
            given["input"] = f"{as_operand(given['input'])}.ravel()"  # of a matrix JAX would take another norm
        made = self._by_choice(rule, name, given)
        if made is not None:
            return made[0]
        text = rule.filled(given)
        self.model.helpers |= {name} & HELPERS if text is not None else set()
        return text

    @staticmethod
    def _by_choice(rule: Rule, name: str, given: dict[str, str]) -> tuple[str | None] | None:
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
            floor, trunc = f"jnp.floor_divide({x}, {y})", f"jnp.trunc({as_operand(x)} / {as_operand(y)})"
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


def _ours(kind: type) -> type | None:
    """The layer here that a class of modules is, or is derived from."""
    layer = layer_of(kind)
    return getattr(nn, layer.__name__, None) if layer is not None else None
