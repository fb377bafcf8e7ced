"""Calls of PyTorch's functions, methods and classes, and of the user's own modules."""

from __future__ import annotations

import ast
import inspect
import re
from functools import partial
from types import CodeType, FunctionType
from typing import Any

import torch
from flax import nnx
from torch.utils.checkpoint import checkpoint

from graphmode import nn

from .autocasts import autocast, is_autocast
from .draws import STREAM
from .huggingface import chosen_function, is_output
from .in_place import gives_what_it_sets
from .left import DISTRIBUTIONS, LEGACY
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
from .objects import NotWrittenError
from .picked_rows import mask_of
from .rules import as_operand, without_parentheses
from .settled import asks_how_it_runs, settled
from .tables import FUNCTIONS
from .torch_calls import OF_MODULES, TorchCalls

# what `torch.utils.checkpoint.checkpoint` takes for itself; what it saves of memory, XLA decides
_OF_CHECKPOINT = frozenset(
    ("use_reentrant", "preserve_rng_state", "context_fn", "determinism_check", "debug", "early_stop")
)
# methods of modules that say where and as what they run, and give them back
MOVES = ("to", "cuda", "cpu", "float", "double", "half", "bfloat16", "train", "eval", "requires_grad_")
# methods of modules that give what they hold, by PyTorch's names
_OF_VARIABLES = frozenset(("parameters", "named_parameters", "buffers", "named_buffers", "state_dict"))


class Calls(TorchCalls):
    """Each call: of a module, a function of the user's or PyTorch's, or a method."""

    def _call(self, node: ast.Call) -> str | None:
        function = node.func
        found = self.scope.find(function)
        if isinstance(function, ast.Name) and found is UNKNOWN:
            found = self._aliases.get(function.id, UNKNOWN)
        if (made := self._picking(node)) is not None:
            return made
        if isinstance(found, type) and issubclass(found, torch.nn.Parameter):
            return self._parameter(node)
        if is_module(found):
            return "nnx.Module()" if found is torch.nn.Module else self._built(node, found)
        if found is getattr and self._builds and node.args and self.scope.find(node.args[0]) is torch.nn:
            return self._layer_named(node)
        if found is getattr and len(node.args) == 2 and not self._builds:
            return f"{self._with(node)}[...]" if self._gets_variable(*node.args) else None
        if is_function_of_gradients(getattr(found, "__self__", None)) and not node.keywords:
            self.model.helpers.add("apply_function")
            return f"apply_function({', '.join([self.model.classes[found.__self__], *map(self.written, node.args)])})"
        if self._builds and isinstance(found, partial) and is_module(found.func):
            return self._with(node, *self._further_of(found.func))  # type: ignore[arg-type]
        if found is partial and node.args and (made := self._partial_call(node)) is not None:
            return made
        if is_autocast(found) and (made := autocast(node, found, self.written)) is not None:
            return made
        if found is torch.device:  # a graph's arrays are where it runs
            return "None"
        if found is hasattr and (always := settled(node, self.scope)) is not None:
            return str(always)
        if asks_how_it_runs(found):
            return "False"
        if found is torch.autograd.Variable and node.args:
            return self.written(node.args[0])
        if found is next and len(node.args) == 1 and ast.unparse(node.args[0]).endswith(".parameters()"):
            holder = node.args[0].func.value  # type: ignore[attr-defined]
            return f"jax.tree.leaves(nnx.state({self.written(holder)}, nnx.Param))[0]"
        if found is sum and len(node.args) == 1 and (made := self._summed_parameters(node.args[0])) is not None:
            return made
        if found in (checkpoint, torch.jit.annotate):
            return self._handed_on(node, found)
        if getattr(found, "__func__", None) is torch.nn.Embedding.from_pretrained.__func__ and node.args:  # type: ignore[attr-defined]
            return self._embedding_of(node)
        if self._builds and len(node.args) == 1 and gives_what_it_sets(found):
            return self.written(node.args[0])
        if isinstance(found, type) and found in DISTRIBUTIONS:
            return self._with(node, drop=frozenset({"validate_args"}))
        chosen = chosen_function(node, self.scope)
        if chosen is not None:
            return self.written(chosen)
        if is_output(found):
            self.model.helpers.add("Output")
            return self._with(node, function="Output")
        if isinstance(found, type) and issubclass(found, torch.nn.Buffer):
            return self._buffer(node)
        made = self._as_recorded(node, found)
        if made is not None:
            return made
        if found is torch.Tensor or found in LEGACY:
            return self._of_legacy_type(node, LEGACY.get(found, "jnp.float32")) or self._as_it_was(node)
        is_asked = found is bool and len(node.args) == 1 and not self._builds and self._is_value(node.args[0])
        if is_asked and (made := self._condition(node.args[0])) is not None:
            return made
        if found in (int, float) and len(node.args) == 1 and not self._builds and self._is_value(node.args[0]):
            if self._is_mask(node.args[0]) and (made := self._condition(node.args[0])) is not None:
                return f"jnp.where({without_parentheses(made)}, {found(1)}, {found(0)})"
            self._refused("item")
            return self._as_number(node.args[0])
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
        if isinstance(function, ast.Name) and self._builds and (node.args or node.keywords or function.id == "cls"):
            is_handed_in = found is UNKNOWN and self._is_parameter(function.id) and not self._gives_no_module()
            is_builder = function.id in self.model.builders or is_handed_in
            return self._with(node, "rngs=rngs") if is_builder else None
        return None

    def _partial_call(self, node: ast.Call) -> str | None:
        """`partial` of a function of PyTorch's that is called otherwise here: what is called, as a lambda."""
        name = torch_name(self.scope.find(node.args[0]))
        rule = FUNCTIONS.get(name.rstrip("_")) if name is not None else None
        given = [each.arg for each in node.keywords]
        if rule is None or any(isinstance(each, ast.Starred) for each in node.args) or None in given:
            return None
        bound = {rule.name(each) for each in given if each is not None}
        left = [each for each in rule.needed[len(node.args) - 1 :] if each not in bound]
        names = [each for each in ("x", "y", "z") if each not in self._variables][: len(left)]
        if len(names) < len(left):
            return None
        call = ast.Call(node.args[0], [*node.args[1:], *map(ast.Name, names)], node.keywords)
        return f"(lambda {', '.join(names)}: {without_parentheses(self._anew(ast.unparse(call)))})"

    def _picking(self, node: ast.Call) -> str | None:
        """What gives the rows that a loop takes and adds, at a fixed size; or all of its turns."""
        if id(node) in self._picked.rows:
            self.model.helpers.add("places_where")
            return f"places_where({without_parentheses(self.written(mask_of(node, self.scope)))})"  # type: ignore[arg-type]
        if id(node) in self._picked.turns:
            self.model.imports.add("import numpy as np")
            return f"np.argwhere(np.ones({as_operand(self.written(self._picked.turns[id(node)]))}.shape))"
        return None

    def _layer_named(self, node: ast.Call) -> str:
        """A layer of PyTorch's that is asked for by its name."""
        self.model.helpers.add("layer_named")
        self.model.imports |= {"import inspect", "from functools import partial", "from typing import Any"}
        return f"layer_named({', '.join(map(self.written, node.args[1:]))})"

    def _gets_variable(self, holder: ast.expr, name: ast.expr) -> bool:
        """Whether `getattr` gives a parameter or buffer, whichever of the names that fit the expression it is."""
        if self.owner is None or not (is_self(holder) or self._is_container(holder)):
            return False
        variables, others = self._held_by(holder)
        parts = name.values if isinstance(name, ast.JoinedStr) else [name]
        pattern = "".join(re.escape(str(each.value)) if isinstance(each, ast.Constant) else ".+" for each in parts)
        found = [each for each in (*variables, *others) if re.fullmatch(pattern, each)]
        return bool(found) and not {*found} & others

    def _held_by(self, holder: ast.expr) -> tuple[set[str], set[str]]:
        """The names of the parameters and buffers of the class, or of a container in it, and of the modules inside."""
        assert self.owner is not None
        if isinstance(holder, ast.Attribute):
            held = self.model.instances[self.owner, holder.attr]
            return {*held._parameters, *held._buffers}, {*held._modules}
        return self.model.variables.get(self.owner, set()), {*self.model.children.get(self.owner, ())}

    def _buffer(self, node: ast.Call) -> str | None:
        keywords = {each.arg: each.value for each in node.keywords}
        value = node.args[0] if node.args else keywords.get("data")
        persists = node.args[1] if len(node.args) > 1 else keywords.get("persistent")
        if value is None:
            return None
        kind = "Cache" if persists is not None and ast.unparse(persists) == "False" else "BatchStat"
        return f"nnx.{kind}({without_parentheses(self.written(value))})"

    def _parameter(self, node: ast.Call) -> str | None:
        given = {"requires_grad": node.args[1]} if len(node.args) > 1 else {}
        given |= {each.arg: each.value for each in node.keywords if each.arg is not None}
        value = node.args[0] if node.args else given.get("data")
        if value is None:
            return None
        is_frozen = ast.unparse(given["requires_grad"]) == "False" if "requires_grad" in given else False
        return f"nnx.{'Variable' if is_frozen else 'Param'}({without_parentheses(self.written(value))})"

    def _gives_no_module(self) -> bool:
        """Whether what gave no module as one of the class was built only gives a local name its value."""
        ran = self.owner is not None and self.owner in self.model.examples
        targets = self._now.targets if isinstance(self._now, ast.Assign) else []
        return ran and bool(targets) and all(isinstance(each, ast.Name) for each in targets)

    def _is_parameter(self, name: str) -> bool:
        return name in self.scope.local and name not in self._tensors | self._plain_functions

    def _built(self, node: ast.Call, found: type) -> str | None:
        """A module, with what its class takes here besides."""
        if found in self.model.classes and has_own_init(found):
            return self._with(node, "rngs=rngs", function=self.model.classes[found])
        name = self.class_to_call(found)
        drop = frozenset({"device", "dtype"} if _ours(found) is not None else ())
        return self._with(node, *self._further_of(found, node), function=name, drop=drop)

    def _embedding_of(self, node: ast.Call) -> str:
        """An embedding of a table's size, whose values are loaded."""
        self.model.starts_otherwise = True
        table, *rest = node.args
        names = list(inspect.signature(torch.nn.Embedding.from_pretrained).parameters)[1:]
        given = {**dict(zip(names, rest, strict=False)), **{each.arg: each.value for each in node.keywords if each.arg}}
        freeze = given.pop("freeze", ast.Constant(True))
        if not (isinstance(freeze, ast.Constant) and freeze.value is False):
            self._note("an embedding that is not trained: leave it out of what the optimizer is given")
        further = [f"{name}={self.written(value)}" for name, value in given.items()]
        return f"nn.Embedding({', '.join([f'*{as_operand(self.written(table))}.shape', *further, 'rngs=rngs'])})"

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
        if self._moves(node):
            return self.written(node.func.value)  # type: ignore[attr-defined]
        if found is UNKNOWN:
            return self._of_kinds(node, {self._takes_rngs_when_called(by) for by, _ in made})
        if is_of_others(found, self.model):
            return self._remade(node, [module for _, module in made])
        return None

    def _moves(self, node: ast.Call) -> bool:
        """Whether a call, as it ran, said of a module where or as what it runs, by a method of PyTorch's."""
        made = self.model.recording.at(self.spans.file, node)
        ways = [getattr(torch.nn.Module, each).__code__ for each in MOVES]
        return bool(made) and all(any(by is each for each in ways) for by, _ in made)

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
        is_module = is_self(function.value) or bool(self.modules_at(function.value))
        if function.attr == "forward" and not is_self(function.value):
            is_class = isinstance(self.scope.find(function.value), type)
            return self._with(node, function=f"{self.written(function.value)}{'.__call__' * is_class}")
        if function.attr in _OF_VARIABLES and is_module and self._is_pytorchs(function):
            kind = "nnx.BatchStat" if "buffers" in function.attr else "nnx.Param"
            self._note(f"{function.attr}: nnx.state(module, {kind}) has them, by path, as they lie here")
            return None
        if is_self(function.value):
            if function.attr in self.heads and node.args:
                weight = f"{self.heads[function.attr]}.weight[...].T"
                return f"({as_operand(self.written(node.args[0]))} @ {weight})"
            if function.attr == "forward":
                return self._with(node, function="self")
            if function.attr in OF_MODULES and getattr(torch.nn.Module, function.attr) is getattr(
                self.owner, function.attr
            ):
                return self._method(function, node, function.attr)
            if function.attr == "register_buffer" and len(node.args) == 2:
                name, value = map(self.written, node.args)
                return f"setattr(self, {name}, nnx.BatchStat({value}))"
            if not hasattr(nnx.Module, function.attr) and self._is_pytorchs(function) and not self._has_it(function):
                self._note(f"{ast.unparse(function)}: a module of PyTorch's has it, and one of Flax has not")
            return self._with(node, "rngs=rngs") if self._builds and function.attr in self.model.builders else None
        if self._builds and function.attr in self.model.builders and not self._is_tensor(function.value):
            return self._with(node, "rngs=rngs")
        if self._is_of_child_class(function):
            return None
        holder = self.scope.find(function.value)
        if holder is not UNKNOWN and not isinstance(holder, torch.Tensor):
            return None
        return self._method(function, node, function.attr)

    def _summed_parameters(self, node: ast.expr) -> str | None:
        """`sum(p.numel() for p in module.parameters())`, and sums of other numbers that no layout changes."""
        loop = node.generators[0] if isinstance(node, ast.GeneratorExp | ast.ListComp) else None
        over = loop.iter.func if loop is not None and isinstance(loop.iter, ast.Call) else None
        if loop is None or not isinstance(over, ast.Attribute) or over.attr != "parameters":
            return None
        name, conditions = ast.unparse(loop.target), [ast.unparse(each) for each in loop.ifs]
        is_trained = {f"{name}.requires_grad", f"{name}.requires_grad is True", f"{name}.requires_grad == True"}
        if len(node.generators) > 1 or not is_trained.issuperset(conditions) or not _is_of_all(node.elt, name):  # type: ignore[attr-defined]
            return None
        outer = self._tensors
        self._tensors = outer | {name}
        each = self.written(node.elt)  # type: ignore[attr-defined]
        self._tensors = outer
        return f"sum({each} for {name} in jax.tree.leaves(nnx.state({self.written(over.value)}, nnx.Param)))"

    def _has_it(self, function: ast.Attribute) -> bool:
        """Whether the module holds something of this name, or its layer here has a method of it."""
        held = function.attr in self.model.children.get(self.owner, {}) if self.owner is not None else False
        layer = layer_of(self.owner)
        return held or hasattr(_ours(layer) if layer is not None else None, function.attr)

    def _is_pytorchs(self, function: ast.Attribute) -> bool:
        """Whether a method of a module is PyTorch's, and not one that the user's class has under its name."""
        kind = self.owner if is_self(function.value) else torch.nn.Module
        return getattr(kind, function.attr, None) is getattr(torch.nn.Module, function.attr, kind)

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
        if function.attr == "__getattr__" and node.args:  # Flax has none; what is there is found first
            return f"object.__getattribute__(self, {self.written(node.args[0])})"
        if self._builds and function.attr in self.model.builders:
            return self._with(node, "rngs=rngs")
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


def _ours(kind: type) -> type | None:
    """The layer here that a class of modules is, or is derived from."""
    layer = layer_of(kind)
    return getattr(nn, layer.__name__, None) if layer is not None else None


def _is_of_all(node: ast.expr, name: str) -> bool:
    """Whether it is a number of all elements of a tensor alike: how many, their sum, their norm."""
    if isinstance(node, ast.BinOp):
        return all(_is_of_all(each, name) or isinstance(each, ast.Constant) for each in (node.left, node.right))
    if not isinstance(node, ast.Call):
        return False
    if ast.unparse(node.func) in ("np.prod", "numpy.prod", "math.prod") and len(node.args) == 1:
        return ast.unparse(node.args[0]) in (f"{name}.shape", f"{name}.size()")
    is_method = isinstance(node.func, ast.Attribute) and node.func.attr in ("numel", "nelement", "sum", "norm", "mean")
    return is_method and not any(map(_is_axis, node.args)) and not node.keywords


def _is_axis(node: ast.expr) -> bool:
    return not isinstance(node, ast.Constant) or node.value not in (1, 2)
