"""What a name, an attribute or a buffer is given."""

from __future__ import annotations

import ast
from types import FunctionType

import torch

from .huggingface import chosen_function, gives_activation
from .in_place import written_to
from .kinds import Kind
from .model import is_module, is_self, layer_of
from .names import torch_name
from .objects import NotWrittenError
from .placed import Placed
from .reading import tree_of
from .rules import without_parentheses
from .shapes import as_one
from .weight_layout import turn_of

# what takes a module as an argument and asks nothing of how it runs
_WITHOUT_MODE = frozenset(["super", "getattr", "setattr", "hasattr", "isinstance", "type", "id", "len", "vars"])
CONTAINERS = (torch.nn.Sequential, torch.nn.ModuleDict, torch.nn.ModuleList)


class Assignments(Placed):
    """To local names, to attributes of a module, and to parts of tensors."""

    def _is_plain_function(self, value: ast.expr) -> bool:
        found = self.scope.find(value)
        if isinstance(value, ast.IfExp):
            return self._is_plain_function(value.body) and self._is_plain_function(value.orelse)
        if self._is_own(value):
            method = getattr(self.owner, value.attr, None)
            return isinstance(method, FunctionType) and value.attr not in self.model.builders
        if isinstance(value, ast.Subscript):
            held = self.scope.find(value.value)
            functions = list(held.values()) if isinstance(held, dict) else []
            return bool(functions) and all(
                isinstance(each, FunctionType) and self.model.functions.get(each) not in self.model.builders
                for each in functions
            )
        if torch_name(found) is not None:
            return True
        if isinstance(found, FunctionType):
            return self.model.functions.get(found, found.__name__) not in self.model.builders
        return isinstance(value, ast.Lambda) and not self._makes_modules(value)

    def _makes_modules(self, value: ast.Lambda) -> bool:
        calls = [node for node in ast.walk(value.body) if isinstance(node, ast.Call)]
        kinds = [self.scope.find(call.func) for call in calls]
        own = [call.func.attr for call in calls if isinstance(call.func, ast.Attribute) and is_self(call.func.value)]
        unknown = [call for call in calls if isinstance(call.func, ast.Name) and call.func.id in self.scope.local]
        return bool(unknown) or any(map(is_module, kinds)) or bool(self.model.builders & {*own})

    def _registered(self, call: ast.Call) -> str | None:
        """A buffer or a parameter, as the attribute that it becomes."""
        given = [*call.args, *(each.value for each in call.keywords if each.arg in ("tensor", "param"))]
        if len(given) < 2:
            self._note("a buffer: nnx.BatchStat")
            return None
        literal = str(given[0].value) if isinstance(given[0], ast.Constant) else ""
        value = self.written(given[1])
        if value == "None":
            value = "nnx.data(None)"
        elif not value.startswith("nnx."):
            kept = self._is_kept(call, literal)
            is_buffer = isinstance(call.func, ast.Attribute) and call.func.attr == "register_buffer"
            made = f"{('nnx.BatchStat' if kept else 'nnx.Cache') if is_buffer else 'nnx.Param'}({value})"
            is_absent = self.owner is not None and literal in self.model.absent.get(self.owner, ())
            value = f"nnx.data(None) if {value} is None else {made}" if is_absent else made
        holder = self.written(call.func.value) if isinstance(call.func, ast.Attribute) else "self"
        return f"{holder}.{literal} = {value}" if literal else f"setattr({holder}, {self.written(given[0])}, {value})"

    def _is_kept(self, call: ast.Call, name: str) -> bool:
        """Whether the `state_dict` has a buffer."""
        persists = [*call.args[2:3], *(each.value for each in call.keywords if each.arg == "persistent")]
        is_own = isinstance(call.func, ast.Attribute) and is_self(call.func.value) and self.owner is not None
        is_transient = is_own and name in self.model.transient.get(self.owner, ())  # type: ignore[arg-type]
        return not is_transient and "False" not in map(ast.unparse, persists)

    def _learn(self, target: ast.expr, value: ast.expr) -> None:
        """Which local names are tensors, and which are functions that make no modules."""
        self._learn_views(target, value)
        if isinstance(target, ast.Name):
            (self._lists.add if self._kind(value) is Kind.SEQUENCE else self._lists.discard)(target.id)
            self._stopped_names.discard(target.id)
            (self._counted.add if self._is_counted(value) else self._counted.discard)(target.id)
            self._masks -= {target.id}
            is_question = isinstance(value, ast.BoolOp | ast.UnaryOp) and self._asks_for_values(value)
            is_array = is_question and self._has_condition(value)
            (self._asked.add if is_question and not is_array else self._asked.discard)(target.id)
            if is_array or self._is_mask(value):
                self._masks.add(target.id)
        if isinstance(target, ast.Name) and self._is_plain_function(value):
            self._plain_functions.add(target.id)
        if isinstance(target, ast.Name):
            self._aliases.pop(target.id, None)
            found = self.scope.find(chosen_function(value, self.scope) or value)
            if isinstance(found, FunctionType):
                self._aliases[target.id] = found
        called = torch_name(self.scope.find(value.func)) if isinstance(value, ast.Call) else None
        if isinstance(target, ast.Name) and called is not None and called.startswith("nn.utils.rnn.pack"):
            self._packed.add(target.id)
        names = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
        if isinstance(value, ast.Call) and self._takes_all([target, *names], value):
            self._taken.add(id(value))
        given = value.elts if isinstance(value, ast.Tuple | ast.List) and target is not names[0] else [value]
        given = given if len(given) == len(names) else [value] * len(names)
        pairs = zip(names, given, strict=True)
        self._tensors |= {name.id for name, each in pairs if isinstance(name, ast.Name) and self._is_tensor(each)}

    def _learn_count(self, target: ast.expr, value: ast.expr) -> None:
        """How many values are taken from one."""
        if isinstance(target, ast.Tuple | ast.List) and not any(isinstance(x, ast.Starred) for x in target.elts):
            self._unpacked[id(value)] = len(target.elts)

    def _takes_all(self, targets: list[ast.expr], call: ast.Call) -> bool:
        """Whether all that a function writes into is among what takes its result."""
        found = self._writer_of(call)
        held = {ast.unparse(written_to(each)) for each in found.holders(call)} if found is not None else set()
        return found is not None and found.gives is not False and held <= {*map(ast.unparse, targets)}

    def _assigned(self, target: ast.expr, value: ast.expr) -> str | None:
        if (part := self._part_of_data(target)) is not None:
            with self._recording_no_gradient():
                return self._put_values(part, value)
        if not self._is_part_of_call(target) and self._is_part_of_tensor(target):
            if isinstance(target.value, ast.Name) and target.value.id in self._views:
                self._write_back(target.value.id)
            return self._put_values(target, value)
        made = self._selected_name(target, value) or self._places_named(target, value)
        if made is not None:
            return made
        if isinstance(target, ast.Subscript):
            self._note_keeping(target.value)
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Call):
            made = self._one_of_pair(target, value)
            if made is not None:
                return made
        if self._ties(target, value):
            if self._are_alike(target, value):
                return f"{ast.unparse(target)} = {ast.unparse(value)}"
            self._note(
                f"tied: in place of {ast.unparse(target).rpartition('.')[0]} compute x @ "
                f"{ast.unparse(value)}[...].T, and say weights=[Tied(...)] in the case"
            )
            return None
        if isinstance(target, ast.Attribute) and target.attr == "data" and not self._builds:
            return self._replaced(
                target.value, self.written(target.value), self._with_value(target, self.written(value))
            )
        if isinstance(target, ast.Attribute) and not self._builds and not self._is_parameter_made(value):
            held = self._variable_at(target)
            if held is not None:
                return self._replaced(target, held, without_parentheses(self.written(value)))
        if isinstance(target, ast.Attribute) and is_self(target.value) and self.owner is not None:
            if self._builds and issubclass(self.owner, CONTAINERS) and self._is_module_elsewhere(target.attr):
                return f'self.add_module("{target.attr}", {self.written(value)})'
            if self._builds and isinstance(value, ast.List | ast.ListComp) and self._holds_modules(value):
                return f"self.{target.attr} = nnx.List({self.written(value)})"
            if self._builds and isinstance(value, ast.List | ast.ListComp | ast.Tuple) and self._holds_arrays(value):
                return f"self.{target.attr} = nnx.data({self.written(value)})"
            if self._builds and target.attr in self.model.arrays.get(self.owner, ()):
                return f"self.{target.attr} = nnx.data({without_parentheses(self.written(value))})"
            if self._builds and self._kind(target) is Kind.MODULES and not isinstance(value, ast.Tuple):
                return f"self.{target.attr} = nnx.List({without_parentheses(self.written(value))})"
            if (
                self._builds
                and gives_activation(value, self.scope)
                and (self.owner, target.attr) in self.model.instances
            ):
                return f"self.{target.attr} = {self._as_built(self.owner, target.attr) or self.written(value)}"
            if self._builds and target.attr == "weight" and turn_of(layer_of(self.owner)):
                return self._weight_made(value)
            is_variable = target.attr in self.model.variables.get(self.owner, ())
            if is_variable and not self._builds and not self._is_parameter_made(value):
                text = self.written(value)
                if self._is_kept_without(target, value):
                    text = f"jax.lax.stop_gradient({without_parentheses(text)})"
                return f"self.{target.attr}[...] = {text}"
            if isinstance(value, ast.Constant) and value.value is None and target.attr in attributes_of(self.owner):
                is_data = is_variable or self._is_module_elsewhere(target.attr) or self._is_array_elsewhere(target)
                return f"self.{target.attr} = nnx.data(None)" if is_data else None
        return None

    def _note_keeping(self, holder: ast.expr) -> None:
        """Notes that something is put into a list or dictionary that the class holds, as it runs."""
        is_kept = self._is_own(holder) and not self._builds and self._kind(holder) in (Kind.SEQUENCE, Kind.MAPPING)
        if is_kept and self.owner is not None and is_module(self.owner) and self._code is not None:
            self._note(f"M03: {ast.unparse(holder)} keeps this after the call: an nnx.Variable, or a local one")

    def _one_of_pair(self, target: ast.Tuple, value: ast.Call) -> str | None:
        """Values or indices alone, where the other goes to a name for what is not used."""
        is_unused = [isinstance(each, ast.Name) and each.id == "_" for each in target.elts]
        if (
            sorted(is_unused) != [False, True]
            or (pair := self._pair(value)) is None
            or not as_one(pair).startswith("(")
        ):
            return None
        kept = is_unused.index(False)
        return f"{self.spans.spliced(target.elts[kept], self.written)} = {pair[kept]}"

    def _weight_made(self, value: ast.expr) -> str:
        """A weight in place of that of the layer which the class is derived from, laid as it is."""
        if not any(ast.unparse(each) == "self.weight" for each in ast.walk(value)):
            self._note("self.weight is [*kernel, in, out] here, as the layer has it")
        with self._weights_as_laid():
            return f"self.weight = {self.written(value)}"

    def _holds_modules(self, value: ast.List | ast.ListComp) -> bool:
        elements = value.elts if isinstance(value, ast.List) else [value.elt]
        return any(isinstance(each, ast.Call) and is_module(self.scope.find(each.func)) for each in elements)

    def _as_built(self, owner: type, name: str) -> str | None:
        """A module like the one that the original was built with here."""
        try:
            return self._object(self.model.instances[owner, name])
        except NotWrittenError as error:
            self._note(f"self.{name} is made of {error}")
            return None

    def _holds_arrays(self, value: ast.List | ast.ListComp | ast.Tuple) -> bool:
        elements = [value.elt] if isinstance(value, ast.ListComp) else value.elts
        return any(map(self._is_tensor, elements))

    def _ties(self, target: ast.expr, value: ast.expr) -> bool:
        """Whether one layer is given another's weight."""
        both = [target, value]
        return self._builds and all(isinstance(x, ast.Attribute) and x.attr == "weight" for x in both)

    def _are_alike(self, *weights: ast.expr) -> bool:
        """Whether the weights are those of layers of one class, which lie alike."""
        held = self.model.children.get(self.owner, {}) if self.owner is not None else {}
        layers = [each.value for each in weights if isinstance(each, ast.Attribute)]
        kinds = {held.get(each.attr) for each in layers if self._is_own(each)}
        return len(kinds) == 1 and None not in kinds and all(map(self._is_own, layers))

    def _is_parameter_made(self, value: ast.expr) -> bool:
        """Whether it makes a parameter or a buffer."""
        found = self.scope.find(value.func) if isinstance(value, ast.Call) else None
        return isinstance(found, type) and issubclass(found, torch.nn.Parameter | torch.nn.Buffer)

    def _is_array_elsewhere(self, target: ast.Attribute) -> bool:
        """Whether an attribute that is None is an array in the original, or is given one by other code of the class."""
        if self._kind(target) is Kind.ARRAY:
            return True
        tree = tree_of(self.owner)
        given = [
            node.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign)
            and any(self._is_own(each) and each.attr == target.attr for each in node.targets)
        ]
        calls = (each.func for value in given for each in ast.walk(value) if isinstance(each, ast.Call))
        return any(_gives_array(each) or torch_name(self.scope.find(each)) is not None for each in calls)

    def _is_module_elsewhere(self, name: str) -> bool:
        assert self.owner is not None
        return name in self.model.children.get(self.owner, ())


def among_several(targets: list[ast.expr]) -> list[ast.expr]:
    """What is given a value beside others, in one statement."""
    several = [each.elts if isinstance(each, ast.Tuple | ast.List) else [each] for each in targets]
    parts = [part for each in several for part in each]
    return parts if len(parts) > 1 or parts != targets else []


def _gives_array(function: ast.expr) -> bool:
    return isinstance(function, ast.Attribute) and function.attr in ("to", "detach", "clone", "contiguous")


def attributes_of(owner: type) -> set[str]:
    """The names that a class's own code reads of itself."""
    tree = tree_of(owner)
    return {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and is_self(node.value)}


def has_mode(owner: type) -> bool:
    """Whether a class asks if it trains, or hands itself to functions that may."""
    if "training" in attributes_of(owner):
        return True
    nodes = ast.walk(tree_of(owner))
    calls = [node for node in nodes if isinstance(node, ast.Call) and ast.unparse(node.func) not in _WITHOUT_MODE]
    return any(is_self(each) for call in calls for each in call.args)
