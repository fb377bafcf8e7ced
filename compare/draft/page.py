"""The file that a draft is: imports, functions, classes, and the case that binds both sides."""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
from pathlib import Path
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np
import torch

from ..case import CaseError
from ..errors import describe_with_line, what_came
from ..locate import locate
from . import written_distributions, written_helpers
from .constants import constants
from .layout import laid_out
from .left import DISTRIBUTIONS
from .lost import lost
from .model import Model, has_own_init, is_module, layer_of
from .observed import observe
from .part import Part
from .recording import Recording
from .shared import with_shares
from .source import parts_of
from .ties import Tie
from .translator import GONE, Translator
from .undefined import noted_where_undefined


class Draft(NamedTuple):
    """A port's file as it was drafted.

    Attributes:
      text: of the file.
      classes: names of the modules in it; of the function that makes one, where all are PyTorch's own.
      lines: the numbers of the lines that are marked for a hand.
      starts_otherwise: whether initial values that the original sets are not in it.
      draws: whether it draws random numbers besides those of dropout.
      unseen: why the original was not seen as it runs, by which writes through other names are found; empty where it
        was.
    """

    text: str
    classes: tuple[str, ...]
    lines: tuple[int, ...] = ()
    starts_otherwise: bool = False
    draws: bool = False
    unseen: str = ""

    @property
    def notes(self) -> int:
        """How many lines are marked for a hand."""
        return len(self.lines)


MASKS = {"create_causal_mask", "create_sliding_window_causal_mask", "create_bidirectional_sliding_window_mask"}
MASK = 0  # in place of a bound of integers


def draft(location: str, inputs: tuple[str, ...] = ()) -> Draft:
    """Drafts the port of an eager model, and a case for it.

    Args:
      location: `path/to/file.py:NAME` or `package.module:NAME` of a class of modules that takes no arguments, or of a
        function that gives a model.
      inputs: a shape for each positional argument, `"8,3,32,32"`; `"8,128:1000"` for integers below 1000,
        `"8,128:bool"` for a mask.

    Raises:
      CaseError: where there is no such thing, it gives no module, its source is not to be had, or a shape is none.
    """
    given = [_input(each) for each in inputs]
    build = _named(location)
    name = build.__name__
    recording = Recording()
    module = _built(build, location, recording)
    model, parts = parts_of(build, module, recording)
    if given:
        rng = np.random.default_rng(0)
        model.observed = observe(build, {part.spans.file for part in parts}, [_array(each, rng) for each in given])
    else:
        model.observed.trouble = "no --input is given"
    body, heads = _translated(model, parts)
    model.lost = lost(model.observed, parts, model.drafted, model.renamed, model.counted)
    if model.lost:
        body, heads = _translated(model, parts)
    before, behind = constants(model)
    body = _named_somewhere(body, parts, build, [*before, *behind], model)
    ties = [tie for tie in model.ties if tie.attribute in heads]
    original = build.__module__
    is_function = isinstance(build, FunctionType)
    takes_rngs = name in model.builders if is_function else has_own_init(build) or layer_of(build) is not None
    case = _case(name, original, [_drawn(*each) for each in given], "rngs=rngs" if takes_rngs else "", ties)
    if ties:
        model.imports.add("from graphmode.weights import Tied")
    if model.helpers & MASKS:
        model.helpers.add("added_mask")
    if "modules" in model.helpers:
        model.helpers.add("named_modules")
    if "named_modules" in model.helpers:
        model.helpers.add("named_children")
    if "taking" in model.helpers:
        model.imports |= {"import inspect", "from functools import partial", "from typing import Any"}
    if model.helpers & {"hann_window", "hamming_window", "blackman_window"}:
        model.helpers.add("cosine_window")
    if model.helpers & {"stft", "istft"}:
        model.helpers.add("window_of_frames")
        model.imports.add("from typing import Any")
    if model.helpers & {"cosine_window", "stft", "istft"}:
        model.imports.add("import numpy as np")
    if "searchsorted" in model.helpers:
        model.imports.add("from functools import partial")
    if model.helpers & {"in_pieces", "expanded"}:
        model.imports.add("from typing import Any")
    if "apply_function" in model.helpers:
        model.helpers.add("Context")
        model.imports |= {"import numpy as np", "from typing import Any"}
    body, behind = _where_read(body, behind)
    if model.helpers & {*DISTRIBUTIONS.values()}:
        model.imports.add("import math")
    found = {**vars(written_helpers), **vars(written_distributions)}
    helpers = [textwrap.dedent(inspect.getsource(found[name])) for name in sorted(model.helpers)]
    text = "\n\n\n".join([*map(str.rstrip, helpers), *before, *body, *behind, case]) + "\n"
    head = _head(text, _docstring(name, original, model), original, sorted(model.imports))
    text = f"{head}\n\n{text}" if not text.startswith(("class", "def", "@")) else f"{head}\n\n\n{text}"
    text = laid_out(noted_where_undefined(_noted_where_no_python(text)))
    classes = tuple(model.name_of(part.item, part.name) for part in parts if is_module(part.item))
    lines = tuple(i for i, line in enumerate(text.splitlines(), 1) if "# TODO" in line)
    draws = re.search(r"\bjax\.random\.\w+\(", text) is not None
    return Draft(text, classes or (name,), lines, model.starts_otherwise, draws, model.observed.trouble)


def _translated(model: Model, parts: list[Part]) -> tuple[list[str], set[str]]:
    """The parts as they are in the port, and the heads that share a weight."""
    body: list[str] = []
    heads: set[str] = set()
    for part in parts:
        owner = part.item if isinstance(part.item, type) else None
        translator = Translator(model, part.spans, part.scope, owner, part.kept)
        model.home = part.home
        text = _cleaned(translator.written(part.node))
        if (name := model.name_of(part.item, part.name)) != part.name:
            text = re.sub(rf"^(class|def) {part.name}\b", rf"\1 {name}", text, count=1, flags=re.MULTILINE)
        body.append(with_shares(text, [each for each in model.shares if each.holder is owner]))
        heads |= set(translator.heads)
    return body, heads


def _docstring(name: str, original: str, model: Model) -> str:
    first = f"A port of {name}, drafted from {original}; what is marked TODO wants a hand."
    if not model.starts_otherwise:
        return f'"""{first}"""'
    return (
        f'"""{first}\n\n'
        "The initial values that the original draws or sets are not in it: load its weights, or write what sets them\n"
        'before the port is trained from its beginning.\n"""'
    )


def _where_read(body: list[str], made: list[str]) -> tuple[list[str], list[str]]:
    """The texts with what the decorators of one take in front of it, and what is left."""
    left = []
    for text in made:
        name = re.findall(r"^(\w+) = ", text, re.MULTILINE)[0]
        at = next((i for i, each in enumerate(body) if re.search(rf"^@{name}\b", each, re.MULTILINE)), None)
        if at is None:
            left.append(text)
        else:
            body = [*body[:at], text, *body[at:]]
    return body, left


def _named_somewhere(body: list[str], parts: list[Part], build: Any, constants: list[str], model: Model) -> list[str]:
    """The texts without functions that no other names, nor a constant, as those that set initial values are."""
    while True:
        left = []
        for text, part in zip(body, parts, strict=True):
            others = [*(each for each in body if each is not text), *constants]
            is_named = any(re.search(rf"\b{model.name_of(part.item, part.name)}\b", each) for each in others)
            if part.item is build or not isinstance(part.item, FunctionType) or is_named:
                left.append((text, part))
        if len(left) == len(body):
            return body
        body, parts = [text for text, _ in left], [part for _, part in left]


def _noted_where_no_python(text: str) -> str:
    """The text with a note at the line from which on Python cannot read it, if there is one."""
    try:
        ast.parse(text)
    except SyntaxError as error:
        lines = text.splitlines(keepends=True)
        at = min(max((error.lineno or 1) - 1, 0), len(lines) - 1)
        lines.insert(at, f"# TODO Python cannot read this line: {error.msg}\n")
        return "".join(lines)
    return text


def _named(location: str) -> Any:
    build = locate(location, (type, FunctionType, torch.nn.Module), "model")
    if isinstance(build, torch.nn.Module):
        raise CaseError(
            f"{location} is a model already, whose arguments are not known; name its class, or a function without "
            "arguments that gives it"
        )
    stem = Path(location.rpartition(":")[0] or location).stem
    if location.rpartition(":")[0].endswith(".py") and (not stem.isidentifier() or stem in sys.stdlib_module_names):
        raise CaseError(
            f"the port imports {stem}.py as a module, and {stem} is no name for one of yours; rename the file"
        )
    return build


def _built(build: Any, location: str, recording: Recording) -> torch.nn.Module:
    try:
        with recording.running():
            module = build()
    except Exception as error:
        raise CaseError(
            f"{location} cannot be built without arguments: {describe_with_line(error)}; write a function without "
            "arguments that gives the model, and name that"
        ) from error
    if not isinstance(module, torch.nn.Module):
        raise CaseError(f"{location} gives {what_came(module)}, and a torch.nn.Module was wanted; name what gives one")
    return module


def _cleaned(text: str) -> str:
    text = re.sub(rf"{GONE}[ \t]*;[ \t]*|[ \t]*;[ \t]*{GONE}", "", text)
    text = re.sub(rf"^[ \t]*{GONE}[ \t]*(#.*)?\n?", "", text, flags=re.MULTILINE)
    text = text.replace(GONE, "pass")  # behind the colon of its block
    text = re.sub(r"\n[ \t]*\n([ \t]*\n)+", "\n\n", text)
    return re.sub(r"(:\n)\n+", r"\1", text).strip("\n")


def _head(text: str, docstring: str, original: str, imports: list[str]) -> str:
    used = lambda pattern: re.search(pattern, text) is not None  # noqa: E731
    standard = [line for line in imports if line.split()[1].split(".")[0] in sys.stdlib_module_names]
    own = [line for line in imports if line not in standard and line != "import numpy as np"]
    third = []
    if used(r"\bjax\."):
        third.append("import jax")
    if used(r"\bjnp\."):
        third.append("import jax.numpy as jnp")
    if used(r"\bnp\."):
        third.append("import numpy as np")
    third += [f"import {original} as original", "from flax import nnx"]
    if used(r"(?<![\w.])nn\."):
        third.append("from graphmode import nn")
    third.append("from graphmode.compare import Case")
    blocks = [standard, [*third, *own]]
    blocks.insert(0, ["from __future__ import annotations"])
    return "\n\n".join([docstring, *("\n".join(block) for block in blocks if block)])


def _case(name: str, original: str, inputs: list[str], arguments: str, ties: list[Tie]) -> str:
    lowered = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    made = f"({', '.join(inputs)},)" if inputs else "()"
    hint = "" if inputs else "  # TODO numpy arrays, such as rng.standard_normal((8, 16)), one for each argument"
    tied = ", ".join(f'Tied("{tie.key}", "{tie.same_as}")' for tie in ties)
    weights = f"    weights=[{tied}],\n" if tied else ""
    return (
        "CASE = Case(\n"
        f'    name="{lowered}",\n'
        f'    summary="{name}, as it was drafted",\n'
        f"    reference=original.{name},\n"
        f"    model=lambda rngs: {name}({arguments}),\n"
        f"    inputs=lambda rng: {made},{hint}\n"
        f"{weights}"
        ")"
    )


def _input(text: str) -> tuple[tuple[int, ...], int | None]:
    """A shape, and of integers the bound, which is 0 for a mask."""
    sizes, separator, most = text.partition(":")
    try:
        shape = tuple(int(size) for size in sizes.split(","))
        limit = int(most) if separator and most != "bool" else None
        if min(shape) < 1 or (limit is not None and limit < 1):
            raise ValueError
    except ValueError:
        raise CaseError(
            f"input is {text!r}; give a shape of lengths above 0, 8,3,32,32, for integers below 1000 8,128:1000, or "
            "for a mask 8,128:bool"
        ) from None
    return shape, MASK if most == "bool" else limit


def _drawn(shape: tuple[int, ...], limit: int | None) -> str:
    if limit == MASK:
        return f"rng.random({shape}) < 0.5"
    if limit is not None:
        return f"rng.integers(0, {limit}, {shape})"
    return f'rng.standard_normal({shape}).astype("float32")'


def _array(given: tuple[tuple[int, ...], int | None], rng: np.random.Generator) -> np.ndarray:
    shape, limit = given
    if limit == MASK:
        return rng.random(shape) < 0.5
    return rng.standard_normal(shape).astype("float32") if limit is None else rng.integers(0, limit, shape)


def written_to(location: str, out: Path | None) -> Path:
    """Where a draft goes: beside the original, which it imports.

    Raises:
      CaseError: where that is the original itself, in no folder that is there, or in another than the original's file.
    """
    place = location.rpartition(":")[0] or location
    if not place.endswith(".py"):
        path = out or Path(f"{place.rpartition('.')[2]}_port.py")
    else:
        original = Path(place)
        path = out or original.with_name(f"{original.stem}_port.py")
        if path.resolve() == original.resolve():
            raise CaseError(f"{path} is the original; give another file by --out")
        if path.resolve().parent != original.resolve().parent:
            raise CaseError(f"{path} is not beside {original}, which the port imports; give --out a file in its folder")
    if not path.parent.is_dir():
        raise CaseError(f"there is no folder {path.parent}; make it, or give another --out")
    return path
