"""The code of an eager model as that of its port: a first draft, with a note at each line that wants a hand."""

from __future__ import annotations

import ast
import contextlib
import copy
import functools
import re
import typing
from collections.abc import Callable
from types import FunctionType

import torch

from .arguments import all_arguments, is_only_compared, listed_in, sized_in
from .assignments import CONTAINERS, among_several, has_mode
from .augmented import GONE
from .autocasts import OFF, autocast, is_autocast, multiplies
from .draws import STREAM
from .huggingface import is_decorator, stands_for
from .in_place import is_written_as_tensor, writer
from .in_place_modules import read_after
from .initial import is_no_grad, sets_more
from .left import HELPERS, LEGACY
from .loops import Loops
from .model import is_module, is_result, is_self
from .names import is_of_torch, torch_name
from .picked_rows import picked_in
from .recognition import is_test
from .rules import without_parentheses
from .settled import settled
from .tables import METHODS
from .ties import heads_in
from .torch_calls import OF_OTHERS

_MAKERS = frozenset(["zeros", "ones", "empty", "full", "eye", "arange", "linspace", "rand", "randn", "randperm"])
# in a statement that sets initial values
_INITIAL = r"(?<!__)init|\.apply\(|reset_parameters|(?<!requires_gra)[a-z]_\(|\.data\b"
_OF_NAMES = ("AttributeError", "KeyError", "NameError", "ImportError", "ModuleNotFoundError", "StopIteration")
_OF_TENSORS = frozenset(METHODS) - OF_OTHERS | {"shape", "dtype", "device"}


class Translator(Loops):
    """Of one class or function, statement by statement."""

    def written(self, node: ast.AST) -> str:
        return self._statement(node) if isinstance(node, ast.stmt) else super().written(node)

    def _statement(self, node: ast.stmt) -> str:
        self._notes.append([])
        self._after.append([])
        outer, self._now = self._now, node
        if not isinstance(node, ast.ClassDef):
            blocks = [getattr(node, name, []) for name in ("body", "orelse", "finalbody")]
            gone = [block[0] for block in blocks if block and all(map(self._vanishes, block))]
            self._as_pass |= {id(each) for each in gone if not self.spans.is_elif(each)}
        vanishes = self._vanishes(node)
        if vanishes and re.search(_INITIAL, ast.unparse(node)):
            self.model.starts_otherwise = True
        before = [] if vanishes else self._written_before(node)
        made = (GONE if vanishes else None) or self._made(node)
        if made == GONE and id(node) in self._as_pass:
            made = "pass"
        text = self.spans.spliced(node, self._part_of(node)) if made is None else made
        at = self.spans.file, node.lineno, node.col_offset
        self._now = outer
        after = self._after.pop()
        notes = list(dict.fromkeys([*self._notes.pop(), *self.model.lost.get(at, ())]))
        if isinstance(node, ast.With) and len(notes) > 1:  # what it is says more than whose
            notes = [note for note in notes if not note.endswith("is PyTorch's")]
        indent = self.spans.indent(node)
        if text == GONE or indent is None:
            self._notes[-1] += notes
            self.model.drafted[at] = text
            return text
        text = "".join(f"{line}\n{indent}" for line in [*(f"# TODO {note}" for note in notes), *before]) + text
        text += "".join(f"\n{indent}{line}" for line in dict.fromkeys(after))
        self.model.drafted[at] = f"{indent}{text}"
        return text

    def _written_before(self, node: ast.stmt) -> list[str]:
        """What modules of a statement write into what they are given, as lines before it, where that is read after."""
        is_simple = isinstance(node, ast.Assign | ast.AugAssign | ast.Expr | ast.Return)
        if self._builds or self._code is None or not is_simple:
            return []
        lines: list[str] = []
        for call in (each for each in ast.walk(node) if isinstance(each, ast.Call) and self._is_own(each.func)):
            written = self.model.writing.get((self.owner, call.func.attr), {""})  # type: ignore[arg-type, attr-defined]
            given = call.args[0] if call.args else None
            if written == {""} or not isinstance(given, ast.Name):
                continue
            if loads := read_after(self._code, node, call, given.id):
                told = ast.unparse(call.func)
                if len(written) > 1 or self.spans.indent(node) is None:
                    self._note(f"M01: {told} writes into {given.id}, not in all of these modules alike")
                name = f"{given.id}_of_{call.func.attr.strip('_')}"  # type: ignore[attr-defined]
                value = max(written).format(self.written(given))
                lines.append(f"{name} = {value}  # {told} writes it into {given.id}")
                self._renamed.update((id(each), name) for each in loads)
                self.model.renamed |= set(map(id, loads))
        return lines

    def _part_of(self, node: ast.stmt) -> Callable[[ast.AST], str]:
        """What writes the parts of a statement: its value or test without parentheses around the whole."""
        has_value = isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Return)
        value = getattr(node, "value" if has_value else "test", None)

        def written(part: ast.AST) -> str:
            text = self.written(part)
            return without_parentheses(text) if part is value and "\n" not in text else text

        return written

    def _made(self, node: ast.stmt) -> str | None:
        if isinstance(node, ast.ClassDef):
            return self._class(node)
        if isinstance(node, ast.FunctionDef):
            return self._function(node)
        if isinstance(node, ast.Expr):
            return self._alone(node.value)
        if isinstance(node, ast.Assign) and any(map(self._is_part_of_several, node.targets)):
            self._note("M01: a part of a tensor among several targets: give it a name, and write that by .at[]")
        if isinstance(node, ast.Assign) and not self._builds:
            self._taking |= {id(each) for each in among_several(node.targets) if self._is_state(each)}
        if isinstance(node, ast.Assign) and id(node.value) in self._picked.turns:  # which are no arrays
            return f"{self.written(node.targets[0])} = {self.written(node.value)}"
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            self._learn_count(node.targets[0], node.value)
            self._learn(node.targets[0], node.value)
            made = self._assigned(node.targets[0], node.value)
            if made is not None or not self._in_no_grad:
                return made
        if isinstance(node, ast.AnnAssign) and node.value is not None:
            self._learn(node.target, node.value)
            if isinstance(node.target, ast.Attribute):
                return self._assigned(node.target, node.value)
        if isinstance(node, ast.Return) and node.value is None and self._given_back:
            return self._returned_back()
        if isinstance(node, ast.Return) and node.value is not None and self._no_grad:
            text = self.written(node.value)
            is_bare = isinstance(node.value, ast.Tuple) and not text.startswith("(")
            return f"return jax.lax.stop_gradient({f'({text})' if is_bare else without_parentheses(text)})"
        if isinstance(node, ast.AugAssign) and (made := self._augmented(node)) is not None:
            return made
        if isinstance(node, ast.For) and (header := self._loop_header(node)) is not None:
            head = {id(node.target), id(node.iter)}
            text = self.spans.spliced(node, lambda part: "" if id(part) in head else self.written(part))
            return f"{header}{text[text.index(':') + 1 :]}"
        if isinstance(node, ast.If):
            always = settled(node.test, self.scope)
            if always is not None:
                return self._branch(node.body if always else node.orelse)
        if isinstance(node, ast.If) and self._picked.asks_of_turns(node.test) and not self._asks_for_values(node.test):
            self.model.counted.add((self.spans.file, node.lineno, node.col_offset))
        if isinstance(node, ast.If) and self._asks_for_values(node.test):
            made = self._raised(node) or self._branched(node)
            if made is not None:
                return made
        is_open = isinstance(node, ast.For | ast.While) and self._may_be_left_by_values(node)
        if is_open and (made := self._looped(node)) is not None:  # type: ignore[arg-type]
            return made
        if isinstance(node, ast.If | ast.While) and self._asks_for_values(node.test):
            loop = "C07, C08: a loop as long as values say: gm.while_loop"
            self._note("C01: a branch on values: gm.cond, or jnp.where" if isinstance(node, ast.If) else loop)
        if isinstance(node, ast.Assert) and self._asks_for_values(node.test):
            return self._checked_or_noted(node.test, node.msg)
        is_try = isinstance(node, ast.Try) and not self._builds and self._code is not None
        if is_try and not all(map(_is_of_names, node.handlers)) and self._may_compute(node.body):  # type: ignore[attr-defined]
            self._note("H05: no value raises in a graph: gm.attempt")
        if isinstance(node, ast.With):
            if self._records_no_gradient(node):
                return self._without_gradients(node)
            if self._builds and is_no_grad(node):  # what is made there has no gradient in a port anyhow
                return self._branch(node.body)
            self._note_context(node)
        if self._in_no_grad and isinstance(node, ast.Assign | ast.AugAssign):
            return self._stopped(node)
        return None

    def _class(self, node: ast.ClassDef) -> str | None:
        assert self.owner is not None
        if is_module(self.owner) and {"train", "eval"} & {*vars(self.owner)}:
            self._note("M05: its own train() or eval() is left out: call what it holds with use_running_average=True")
        self.heads = heads_in(node, self.owner, self.model.ties)
        gone = {id(each) for each in node.body if self._is_left_out(each)}
        gone |= {id(each) for each in node.decorator_list if self._is_of_framework(each)}
        bases = {id(each) for each in node.bases}

        def written(part: ast.AST) -> str:
            if id(part) in gone:
                return GONE
            if id(part) in bases and (made := stands_for(self.scope.find(part))) is not None:
                self.model.helpers |= {made} & HELPERS
                return made
            with self._in_types() if id(part) in bases else contextlib.nullcontext():
                return self.written(part)

        text = re.sub(rf"@{GONE}\n[ \t]*", "", self.spans.spliced(node, written))
        text = re.sub(r"^(class \w+\([^)]*?)(?:, object)+\)", r"\1)", text)
        registered = "@jax.tree_util.register_dataclass\n" if is_result(self.owner) else ""
        return registered + re.sub(r"^class (\w+)\(object\):", r"class \1:", text)

    def _is_left_out(self, node: ast.stmt) -> bool:
        return isinstance(node, ast.FunctionDef) and node.name not in self.kept

    def _function(self, node: ast.FunctionDef) -> str:
        outer = self._builds, self._tensors, self._no_grad, self._views, self._keeps_no_grad, self._stopped_names
        variables, self._variables = self._variables, set()
        of_outer = self._inner, self._given_back, self._last_read, self._code, self._picked
        self._code = node
        names = [getattr(self._called(each), "__name__", "") for each in node.decorator_list]
        self._no_grad = any(name in ("no_grad", "inference_mode") for name in names) and not self._takes_rngs(node.name)
        self._keeps_no_grad = self._no_grad or self.model.observed.records.get(self._key(node)) is False
        self._views, self._asked, self._stopped_names = {}, set(), set()
        self._selected, self._mask_names = {}, {}
        if self.owner is None and len(self._scopes) == 1:
            self._draws = any(node.name in (self.model.functions.get(e), e.__name__) for e in self.model.drawers)
        self._builds = self._takes_rngs(node.name) or (is_module(self.owner) and sets_more(node))
        is_forward = node.name == "forward" and is_module(self.owner)
        self._tensors = set() if self._builds else self._perhaps_tensors(node)
        self._lists, self._sized = set(listed_in(node)), sized_in(node)
        if is_forward and self.owner is not None:
            self._lists |= self.model.lists.get(self.owner, set())
        self._given_back = self._to_give_back(node)
        loads = [each for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load)]
        self._last_read = {each.id: each.lineno for each in sorted(loads, key=lambda each: each.lineno)}
        self._inner = {each.name: each for each in node.body if isinstance(each, ast.FunctionDef)}
        arguments = self._arguments(node)
        self._scopes.append(self.scope.within(node))
        self._picked = picked_in(node, self.scope)
        gives_back = self._given_back
        try:
            body = self._body(node)
        finally:
            self._scopes.pop()
            self._builds, self._tensors, self._no_grad, self._views, self._keeps_no_grad, self._stopped_names = outer
            self._inner, self._given_back, self._last_read, self._code, self._picked = of_outer
            self._variables = variables
        decorators = [each for each in node.decorator_list if not self._is_of_framework(each)]
        indent = self.spans.indent(node) or ""
        head = "".join(f"@{self._decorator(each)}\n{indent}" for each in decorators)
        with self._in_types():
            returns = f" -> {self._in_one_line(node.returns)}" if node.returns is not None else ""
        returns = "" if gives_back else returns
        name = "__call__" if is_forward else node.name
        return f"{head}def {name}({arguments}){returns}:{body}"

    def _in_one_line(self, annotation: ast.expr) -> str:
        """An annotation without the parentheses that may stand around its lines, and their comments."""
        return ast.unparse(ast.parse(f"({self.written(annotation)})", mode="eval"))

    def _to_give_back(self, node: ast.FunctionDef) -> tuple[str, ...]:
        """What a function that gives nothing writes into, which it gives in a port, for its caller to take."""
        if self._builds or node.name in ("forward", "backward") or node.name.startswith("__"):
            return ()
        kinds = [self._called(each) for each in node.decorator_list]
        bound = self.owner is not None and len(self._scopes) == 1 and staticmethod not in kinds
        found = self.scope.find(ast.Name(node.name)) if self.owner is None and len(self._scopes) == 1 else None
        made = writer(found if isinstance(found, FunctionType) else node, bound=bound)
        return made.names if made is not None and made.gives is False else ()

    def _returned_back(self) -> str:
        names = ", ".join(self._given_back)
        if not self._no_grad:
            return f"return {names}"
        return f"return jax.lax.stop_gradient({names if len(self._given_back) == 1 else f'({names})'})"

    def _perhaps_tensors(self, function: ast.FunctionDef) -> set[str]:
        """The arguments that are tensors: of `forward` all that are not said to be others, else what is used as one."""
        given, found = function.args.args, set()
        plain = [None] * (len(given) - len(function.args.defaults))
        for each, default in zip(given, [*plain, *function.args.defaults], strict=True):
            is_setting = isinstance(default, ast.Constant) and default.value is not None
            is_other = each.annotation is not None and self._is_said_other(each.annotation)
            is_choice = isinstance(default, ast.Constant) and is_only_compared(each.arg, function)
            if each.arg in ("self", "ctx") or is_setting or is_other or is_choice:
                continue
            is_seen = self.model.observed.kinds.get(self._key(function), {}).get(each.arg) == "Tensor"
            if function.name in ("forward", "backward") or is_seen or self._is_used_as_tensor(each.arg, function):
                found.add(each.arg)
        return found

    def _is_said_other(self, annotation: ast.expr) -> bool:
        """Whether an annotation names kinds, of which none is that of tensors or may hold them."""
        names = [each for each in ast.walk(annotation) if isinstance(each, ast.Name | ast.Attribute)]
        inner = {id(each.value) for each in names if isinstance(each, ast.Attribute)}
        kinds = [self.scope.find(each) for each in names if id(each) not in inner]
        plain = [kind for kind in kinds if kind not in (typing.Optional, typing.Union)]
        holders = (list, tuple, dict, object)
        return bool(plain) and all(
            isinstance(kind, type) and not issubclass(kind, torch.Tensor) and kind not in holders and kind not in LEGACY
            for kind in plain
        )

    def _is_used_as_tensor(self, name: str, function: ast.FunctionDef) -> bool:
        def is_it(node: ast.AST) -> bool:
            return isinstance(node, ast.Name) and node.id == name

        if is_written_as_tensor(name, function, self.scope.outer):
            return True
        inside = list(ast.walk(function))
        attributes = {node.attr for node in inside if isinstance(node, ast.Attribute) and is_it(node.value)}
        if attributes & _OF_TENSORS:
            return True
        calls = [(torch_name(self.scope.find(node.func)), node) for node in inside if isinstance(node, ast.Call)]
        takers = [call for name, call in calls if name is not None and name not in _MAKERS]
        return any(is_it(each) for call in takers for each in call.args[:1])

    def _is_of_framework(self, decorator: ast.expr) -> bool:
        found = self._called(decorator)
        keeps_results = found in (functools.lru_cache, functools.cache)  # of one graph in the next, if they are arrays
        return is_of_torch(found) or is_decorator(found) or keeps_results

    def _decorator(self, node: ast.expr) -> str:
        return "property" if self.scope.find(node) is functools.cached_property else self.written(node)

    def _takes_rngs(self, name: str) -> bool:
        return name in self.model.builders or (is_module(self.owner) and name == "__init__")

    def _arguments(self, node: ast.FunctionDef) -> str:
        arguments = copy.deepcopy(node.args)
        originals = [*all_arguments(node.args)]
        for made, was in zip(all_arguments(arguments), originals, strict=True):
            if was.annotation is not None:
                with self._in_types():
                    made.annotation = ast.Name(self.written(was.annotation))
        arguments.defaults = [ast.Name(self.written(each)) for each in node.args.defaults]
        arguments.kw_defaults = [each and ast.Name(self.written(each)) for each in node.args.kw_defaults]
        if self._draws and len(self._scopes) == 1:
            arguments.kwonlyargs.append(ast.arg(STREAM, ast.Name("nnx.RngStream")))
            arguments.kw_defaults.append(None)
        if self._takes_rngs(node.name):
            arguments.kwonlyargs.append(ast.arg("rngs", ast.Name("nnx.Rngs")))
            arguments.kw_defaults.append(None)
        return re.sub(r"(\w: [^=()]+?)=(?!=)", r"\1 = ", ast.unparse(arguments))

    def _body(self, node: ast.FunctionDef) -> str:
        """From the colon on."""
        first = self.spans.of(node.body[0])[0]
        head = self.spans.text(self._end_of_arguments(node), first)
        text = head[head.index(":") + 1 :] + self._block(node.body)
        indent = self.spans.indent(node.body[0])
        another = "; " if indent is None else f"\n{indent}"  # of a body in the line of its function
        if self._given_back and not isinstance(node.body[-1], ast.Return):
            text += f"{another}{self._returned_back()}"
        if self.owner is not None and node.name == "__init__" and self._has_stream(self.owner):
            text += f"{another}self.{STREAM} = rngs.dropout.fork()"
        is_init = self.owner is not None and is_module(self.owner) and node.name == "__init__"
        if is_init and has_mode(self.owner):  # type: ignore[arg-type]
            text += f"{another}self.use_running_average = False  # as train() and eval() set it"
        return text

    def _end_of_arguments(self, node: ast.FunctionDef) -> int:
        if node.returns is not None:
            return self.spans.of(node.returns)[1]
        parts = [*all_arguments(node.args), *node.args.defaults, *(each for each in node.args.kw_defaults if each)]
        begin = max((self.spans.of(part)[1] for part in parts), default=self.spans.start_of_def(node))
        return self.spans.find(")", begin)

    def _alone(self, value: ast.expr) -> str | None:
        """A statement that is an expression, mostly a call for what it does."""
        if not isinstance(value, ast.Call):
            return None
        function = value.func
        if self.scope.find(function) is torch._assert and len(value.args) == 2:
            if self._asks_for_values(value.args[0]):
                return self._checked_or_noted(*value.args)
            return f"assert {', '.join(map(self.written, value.args))}"
        if self.scope.find(function) is print and (made := self._printed(value)) is not None:
            return made
        name = function.attr if isinstance(function, ast.Attribute) else ""
        if name in ("register_buffer", "register_parameter"):
            return self._registered(value)
        if name in ("add_module", "register_module") and self._adds_to_itself(function) and len(value.args) == 2:
            return f"setattr(self, {', '.join(map(self.written, value.args))})"
        if (torch_name(self.scope.find(function)) or "").endswith("_"):
            return self._in_place_of_torch(value)
        if name.endswith("_") and not name.endswith("__") and isinstance(function, ast.Attribute):
            return self._in_place(function, value, name[:-1])
        if name in ("append", "extend", "update") and isinstance(function, ast.Attribute):
            self._note_keeping(function.value)
        made = self._written_into(value)
        if made is None and self._in_no_grad and (self._is_own(function) or name in ("append", "extend", "insert")):
            return self._with_stopped(value)
        return made

    def _adds_to_itself(self, function: ast.expr) -> bool:
        """Whether a module is given to one of Flax, which has no `add_module`, as the containers have."""
        is_own = isinstance(function, ast.Attribute) and is_self(function.value)
        return is_own and self.owner is not None and not issubclass(self.owner, CONTAINERS)

    def _asks_for_values(self, test: ast.expr) -> bool:
        """Whether a condition is one of tensors, rather than of shapes and settings."""
        if isinstance(test, ast.BoolOp):
            return any(map(self._asks_for_values, test.values))
        if isinstance(test, ast.UnaryOp):
            return self._asks_for_values(test.operand)
        if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Is | ast.IsNot):
            return False
        if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.In | ast.NotIn):
            return not self._is_mapping(test.comparators[0], test.left) and self._is_tensor(test)
        if isinstance(test, ast.BinOp) and is_test(test):
            return False
        if (isinstance(test, ast.Name) and test.id in self._asked | self._masks) or self._is_state(test):
            return True
        return not isinstance(test, ast.Name | ast.Attribute) and self._is_tensor(test)

    def _may_compute(self, block: list[ast.stmt]) -> bool:
        """Whether statements call something, or take tensors."""
        inside = [node for each in block for node in ast.walk(each)]
        return any(
            isinstance(node, ast.Call) or (isinstance(node, ast.expr) and self._is_tensor(node)) for node in inside
        )

    def _context(self, context: ast.expr) -> str | None:
        """A context that a port has, too."""
        found = self._called(context)
        is_known = isinstance(context, ast.Call) and is_autocast(found)
        return autocast(context, found, self.written) if is_known else None  # type: ignore[arg-type]

    def _note_context(self, node: ast.With) -> None:
        for item in node.items:
            name = torch_name(self._called(item.context_expr)) or ""
            held = self._called(item.context_expr)
            if getattr(held, "__name__", "") == "enable_grad":
                self._note("G04: no jax.lax.stop_gradient of the values made here, also within torch.no_grad")
            elif "grad" in name or "grad" in getattr(held, "__name__", ""):
                self._note("G04: jax.lax.stop_gradient of the values made here")
            elif (made := self._context(item.context_expr)) is not None:
                if made != OFF and any(map(multiplies, node.body)):
                    self._note("nn.functional.matmul and einsum follow autocast, as layers do; @ and jnp's do not")
            elif is_of_torch(held):
                self._note(f"{ast.unparse(item.context_expr)} has no counterpart in a graph")


def _is_of_names(handler: ast.ExceptHandler) -> bool:
    """Whether all that it catches is what code raises that names what is not there, whatever the values are."""
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return all(kind is not None and ast.unparse(kind) in _OF_NAMES for kind in kinds)
