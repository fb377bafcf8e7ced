"""What rounding does inside a PyTorch program, by moving what each operation gives: in its last digit, off kinks, or
to zero."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, TypeGuard

import torch
from torch.utils import _pytree as pytree

from .dispatch_mode import DispatchMode
from .dtypes import HALF_ULP, torch_dtype
from .errors import is_of_a_library

EXACT = re.compile(
    r"_?(abs|adaptive_max_pool\w+|alias|amax|amin|arange|argm\w+|as_strided\w*|bernoulli\w*|broadcast\w*|cat|ceil|clamp\w*"
    r"|clip|clone|col2im|complex|conj\w*|constant_pad_nd|copy\w*|cummax|cummin|detach|diag\w*|dropout\w*|embedding|empty\w*"
    r"|expand\w*|eye|fill\w*|flip|floor|full\w*|gather|hard(tanh|shrink)\w*|im2col|imag|index|index_(copy|fill|put|select)\w*"
    r"|kthvalue|lift\w*|linspace|local_scalar_dense|logspace|masked_(fill|scatter|select)\w*|max\w*|median|min\w*|mode|nan_to_num"
    r"|nanmedian|narrow\w*|native_dropout|neg|new_\w+|nonzero\w*|normal\w*|ones\w*|pack_padded_sequence|permute|pixel_\w+"
    r"|put|rand\w*|real|reflection_pad\w+|relu\w*|repeat\w*|replication_pad\w+|reshape\w*|resize\w*|roll|rot90|round"
    r"|scatter|select\w*|set|sgn|sign|slice\w*|sort|split\w*|squeeze\w*|stack|t|take\w*|threshold\w*"
    r"|to_copy|topk|transpose\w*|tri[lu]|trunc|unbind|unfold|uniform\w*|unique\w*|unsafe_view|unsqueeze|view\w*|where"
    r"|zero\w*)_?"
)
"""Names of operations that round nothing: they give numbers that they were given, or that nobody computed."""
EXACT_OF_WHOLE = re.compile(r"_?(add|sub|rsub|mul|square|sum|cumsum|prod|mm|bmm|mv|dot|addmm|index_add|scatter_add)_?")
"""Names of those that round nothing where all numbers are whole, as counts are."""
EXACT_AT_WHOLE = re.compile(
    r"_?(div|exp2?|cos|cosh|log(2|10|1p)?|expm1|pow|reciprocal|rsqrt|sigmoid|sqrt|sin|sinh|tan|tanh|acos|asin|atan|erf|erfc)_?"
)
"""Names of those, element by element, that round nothing where they make one whole number of another, as exp(0) is."""
INSIDE = re.compile(r"_?(linalg_|cholesky|lu_|slogdet|logdet|det$|inverse|triangular_solve|lstsq)\w*")
"""Names of those that round on their way more than in what they give: their arguments are moved, too."""
CHOSEN = re.compile(r"(amax|amin|aminmax|max|min|median|nanmedian|linalg_vector_norm)")
"""Names of those that look again, on their way back, for what they give among what they were given."""
STEPS = re.compile(r"(ceil|floor|round|trunc|sign|sgn)")
"""Names of those that give whole numbers, of which one that is a little less is another."""
CUT = re.compile(r"(relu|threshold)_?")
CLAMPS = re.compile(r"(clamp(_min|_max)?|hardtanh)_?")
"""Names of those that tell by what they give, on their way back or later, what they have cut off: that stays beyond."""
FILL = 1e30  # from which on a number stands in for infinity: what is added to one that masks a score is lost in it
MIXING = 0x1E3779B97F4A7C15  # an odd number without a pattern
CALLERS = tuple(str(Path(__file__).with_name(f"{name}.py")) for name in ("torch_side", "checkpoints"))  # of the model
COMPLEX = {"float64": torch.complex128, "float32": torch.complex64}


class _Moved(DispatchMode):
    """Changes what operations give, not what they hand on or only look at otherwise."""

    def __init__(self, seed: int):
        super().__init__()
        self.seed = seed
        self._generators: dict[torch.device, torch.Generator] = {}

    def _noise(self, like: torch.Tensor) -> torch.Tensor:
        """Uniform in [-1, 1), float64; none for what stands in for infinity."""
        device = like.device
        if device not in self._generators:
            self._generators[device] = torch.Generator(device).manual_seed(self.seed)
        noise = torch.rand(like.shape, generator=self._generators[device], dtype=torch.float64, device=device)
        noise[like.abs() > FILL] = 0.5
        return 2 * noise - 1


def _made(func: Any, given: Any, leaves: list[Any]) -> Iterator[torch.Tensor]:
    """Of what an operation gives, the dense tensors that are no views of those it was given."""
    held = {x.data_ptr() for x in leaves if _is_dense(x)}
    declared = [returned.alias_info for returned in func._schema.returns]
    for i, result in enumerate(given if isinstance(given, tuple | list) else (given,)):
        if _is_dense(result) and result.numel():
            alias = declared[i] if i < len(declared) else None
            if not (result.data_ptr() in held if alias is None else not alias.is_write):
                yield result


def _is_dense(x: Any) -> TypeGuard[torch.Tensor]:
    return isinstance(x, torch.Tensor) and x.layout == torch.strided


class MovedResults(_Moved):
    """Within it, each number of one dtype that an operation rounds is moved by up to twice half an ulp; zero stays.

    Modules' results alone would not do: what is constant but for a rounding may be divided by an epsilon inside one.

    Args:
      dtype: by name; complex numbers of its parts are moved, too.
      seed: of the noise, which takes nothing from PyTorch's own generators.
      alike: whether what is equal stays equal: the noise is the number's own.
    """

    def __init__(self, dtype: str, seed: int, *, alike: bool = False):
        super().__init__(seed)
        self.alike = alike
        self.amount = HALF_ULP[dtype]
        self.dtypes = torch_dtype(dtype), COMPLEX.get(dtype)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if INSIDE.match(name):
            args = pytree.tree_map_only(torch.Tensor, self._moved, args)
        given, leaves = func(*args, **(kwargs or {})), pytree.tree_leaves((args, kwargs))
        if EXACT.fullmatch(name) or (EXACT_OF_WHOLE.fullmatch(name) and all(map(_is_whole, leaves))):
            return given
        for result in _made(func, given, leaves):
            if result.dtype in self.dtypes:
                exact = _exact_elements(name, result, leaves)
                kept = result[exact]
                self._move(result)
                result[exact] = kept
        return given

    def _moved(self, argument: torch.Tensor) -> torch.Tensor:
        if argument.dtype not in self.dtypes or not argument.numel():
            return argument
        copy = argument.clone()
        self._move(copy)
        return copy

    def _move(self, result: torch.Tensor) -> None:
        noise = self._own_noise(result) if self.alike and not result.is_complex() else self._noise(result)
        result.mul_(1 + noise * 2 * self.amount)

    def _own_noise(self, result: torch.Tensor) -> torch.Tensor:
        """Likewise, told by the digits of each number alone."""
        digits = result.abs().to(torch.float64).view(torch.int64)
        mixed = (digits ^ (digits >> 29) ^ self.seed) * MIXING
        noise = ((mixed >> 11) & (2**52 - 1)).to(torch.float64) / 2**51 - 1
        noise[result.abs() > FILL] = 0.0
        return noise


class NoExactValues(_Moved):
    """Within it, each real number of float64 that an operation computes is moved by a little of the largest beside it,
    zeros and equal ones, too: no value lies at a kink, and no two are tied. Gradients are those of what is moved.

    Args:
      amount: of that largest one, or of one where all are zero.
      seed: as of `MovedResults`.
    """

    def __init__(self, amount: float, seed: int):
        super().__init__(seed)
        self.amount = amount

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given, leaves = func(*args, **(kwargs or {})), pytree.tree_leaves((args, kwargs))
        name = func.overloadpacket.__name__
        if CHOSEN.fullmatch(name) or STEPS.fullmatch(name) or _counts(name, leaves):
            return given
        for result in _made(func, given, leaves):
            if result.dtype == torch.float64:
                sizes = result.abs()
                usual = sizes[sizes <= FILL]
                scale = usual.max() if usual.numel() and usual.any() else 1.0
                noise = self._noise(result) * self.amount * scale
                low, high = _limits(name, args, kwargs or {})
                if low is not None:
                    noise = torch.where(result == low, -noise.abs(), noise)
                if high is not None:
                    noise = torch.where(result == high, noise.abs(), noise)
                result.add_(noise)
        return given


class NotFinite(NamedTuple):
    """How many elements of what an operation gives are not finite, its name, and the model's line that calls it, where
    one does."""

    elements: int
    name: str
    line: str


class FlushedResults(DispatchMode):
    """Within it, each subnormal number that an operation gives is zero, as XLA has it on a CPU, and PyTorch has not.

    Args:
      flushes: whether it is; otherwise what the operations give is only looked at.

    Attributes:
      count: of the tensors in which there was one.
      not_finite: by the number of an operation, where it makes some that are not finite.
    """

    def __init__(self, *, flushes: bool = True):
        super().__init__()
        self.flushes, self.count = flushes, 0
        self.not_finite: dict[int, NotFinite] = {}
        self._number = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given, leaves = func(*args, **(kwargs or {})), pytree.tree_leaves((args, kwargs))
        self._number += 1
        for result in _made(func, given, leaves):
            if not result.is_floating_point():
                continue
            small = (result.abs() < torch.finfo(result.dtype).tiny) & (result != 0)
            if self.flushes and small.any():
                result[small] = 0.0
                self.count += 1
            if count := int((~result.isfinite()).sum()):
                self.not_finite[self._number] = NotFinite(count, func.overloadpacket.__name__, _line())
        return given


def _line() -> str:
    """Of the model, from which an operation is called; empty on the way back, where none is."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        file = frame.f_code.co_filename
        if not is_of_a_library(file):
            return f"{Path(file).name}:{frame.f_lineno}"
        if file in CALLERS:
            return ""
        frame = frame.f_back
    return ""


def _exact_elements(name: str, result: torch.Tensor, leaves: list[Any]) -> torch.Tensor:
    """Where an operation rounds nothing: a result is whole, and all that it is made of."""
    if not EXACT_AT_WHOLE.fullmatch(name) or result.is_complex():
        return torch.zeros(result.shape, dtype=torch.bool, device=result.device)
    exact = result == result.trunc()
    for x in leaves:
        if _is_dense(x) and x.is_floating_point():
            exact = exact & (x == x.trunc())
    return exact


def _limits(name: str, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """The values at which an operation cuts off what is less, and what is more; None where it does not."""
    if CUT.fullmatch(name):
        return 0, None
    if not CLAMPS.fullmatch(name):
        return None, None
    usual = [-1.0, 1.0] if "hardtanh" in name else [None, None]  # a dispatched call leaves out what is as usual
    given = [*args[1:], *usual[len(args) - 1 :]]
    if "_max" in name:
        return None, kwargs.get("max", given[0])
    low = kwargs.get("min", kwargs.get("min_val", given[0]))
    return low, None if "_min" in name else kwargs.get("max", kwargs.get("max_val", given[1]))


def _counts(name: str, leaves: list[Any]) -> bool:
    """Whether an operation writes integers, or truth values, as real numbers."""
    of = [x for x in leaves if isinstance(x, torch.Tensor)]
    return name == "_to_copy" and not any(x.is_floating_point() or x.is_complex() for x in of)


def _is_whole(x: Any) -> bool:
    if isinstance(x, torch.Tensor):
        return _is_dense(x) and not x.is_complex() and (not x.is_floating_point() or bool((x == x.trunc()).all()))
    return not isinstance(x, float) or x.is_integer()
