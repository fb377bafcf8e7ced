"""What a function or method of PyTorch is in JAX: a table of templates.

Each row has the parameters, in PyTorch's order, and what is written: `{dim}` is what was given for it, and a part in
`<>` is left out unless all in it were given. `a|b` are two names of one parameter, `*size` takes all that is left.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

# of memory, devices and gradients that a graph has no use for
IGNORED = frozenset(
    ("device", "layout", "pin_memory", "requires_grad", "memory_format", "non_blocking", "copy", "inplace")
)


@dataclass(frozen=True)
class Rule:
    """One function of PyTorch.

    Attributes:
      parameters: names in order; the alternatives of one are a tuple.
      template: what is written.
    """

    parameters: tuple[tuple[str, ...], ...]
    template: str

    @property
    def takes_all(self) -> int | None:
        """The number of the parameter that takes all that is left."""
        return next((i for i, (name, *_) in enumerate(self.parameters) if name.startswith("*")), None)

    @property
    def spreads(self) -> bool:
        """Whether that is written as arguments, one after the other."""
        return any(f"{part})" in self.template for part in ("reshape({shape}", "transpose({dims}", ", {operands}"))

    def name(self, keyword: str) -> str | None:
        return next((names[0] for names in self.parameters if keyword in names), None)

    def filled(self, given: Mapping[str, str]) -> str | None:
        """The text; None where a part that cannot be left out was not given, or one was that has no place here."""
        if any(f"{{{name}}}" not in self.template for name in given):
            return None

        def optional(found: re.Match[str]) -> str:
            return found[1] if all(name in given for name in re.findall(r"{(\w+)}", found[1])) else ""

        text = re.sub(r"<([^<>]*)>", optional, self.template)
        if not text or not all(name in given for name in re.findall(r"{(\w+)}", text)):
            return None

        def put(found: re.Match[str]) -> str:
            stands_alone = text[: found.start()].endswith(("(", ", ", "=", "[")) and text[found.end()] in "),]"
            return without_parentheses(given[found[1]]) if stands_alone else as_operand(given[found[1]])

        return re.sub(r"{(\w+)}", put, text).replace("(, ", "(")


def without_parentheses(text: str) -> str:
    """An expression that stands by itself, without those around the whole of it."""
    if not (text.startswith("(") and text.endswith(")")):
        return text
    try:
        inner = ast.parse(text[1:-1].strip(), mode="eval").body
    except SyntaxError:
        return text
    return text if isinstance(inner, ast.Tuple | ast.Starred) else text[1:-1]


def as_tuple(items: Sequence[str]) -> str:
    return f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})"


def as_operand(text: str) -> str:
    """An expression in parentheses, where an operator or a dot beside it would take it apart."""
    try:
        tree = ast.parse(text, mode="eval").body
    except SyntaxError:
        return f"({text})"
    whole = ast.Name | ast.Attribute | ast.Call | ast.Subscript | ast.Constant | ast.List | ast.Dict | ast.ListComp
    return text if isinstance(tree, whole) or (text.startswith("(") and isinstance(tree, ast.Tuple)) else f"({text})"


def _rules(table: Mapping[str, tuple[str, str]]) -> dict[str, Rule]:
    return {
        name: Rule(tuple(tuple(each.split("|")) for each in parameters.split()), template)
        for names, (parameters, template) in table.items()
        for name in names.split()
    }


_SAME = (
    "exp log sin cos tan tanh sqrt abs floor ceil sign square log1p expm1 log2 log10 sinh cosh isnan isinf "
    "isfinite logical_not reciprocal real imag conj angle deg2rad rad2deg trunc"
)
_RENAMED = {
    "absolute": "abs",
    "asin": "arcsin",
    "acos": "arccos",
    "atan": "arctan",
    "arcsin": "arcsin",
    "arccos": "arccos",
    "arctan": "arctan",
    "neg": "negative",
    "round": "round",
    "asinh": "arcsinh",
    "acosh": "arccosh",
    "atanh": "arctanh",
    "bitwise_not": "bitwise_not",
}
_BINARY = {
    "maximum": "maximum",
    "minimum": "minimum",
    "logical_and": "logical_and",
    "logical_or": "logical_or",
    "logical_xor": "logical_xor",
    "outer": "outer",
    "atan2": "arctan2",
    "fmod": "fmod",
    "remainder": "remainder",
    "kron": "kron",
    "pow": "power",
    "matmul": "matmul",
    "bmm": "matmul",
    "mm": "matmul",
    "mv": "matmul",
    "dot": "dot",
    "eq": "equal",
    "ne": "not_equal",
    "lt": "less",
    "le": "less_equal",
    "gt": "greater",
    "ge": "greater_equal",
    "floor_divide": "floor_divide",
    "hypot": "hypot",
    "isclose": "isclose",
}
_REDUCED = {
    "sum": "sum",
    "mean": "mean",
    "prod": "prod",
    "amax": "max",
    "amin": "min",
    "all": "all",
    "any": "any",
    "argmax": "argmax",
    "argmin": "argmin",
    "nansum": "nansum",
    "nanmean": "nanmean",
    "count_nonzero": "count_nonzero",
}

# functions of `written_helpers.py`, with the arguments that PyTorch's have
HELPERS = frozenset(["scatter", "scatter_add", "index_add", "index_copy", "unfold"])

LEGACY: Mapping[Any, str] = {
    torch.FloatTensor: "jnp.float32",
    torch.DoubleTensor: "jnp.float64",
    torch.HalfTensor: "jnp.float16",
    torch.LongTensor: "int",
    torch.IntTensor: "jnp.int32",
    torch.ByteTensor: "jnp.uint8",
    torch.BoolTensor: "bool",
}

# by name below torch
FUNCTIONS = _rules(
    {
        **{name: ("input", f"jnp.{name}({{input}})") for name in _SAME.split()},
        **{name: ("input", f"jnp.{other}({{input}})") for name, other in _RENAMED.items()},
        **{
            name: ("input|self other|mat2|vec2|tensor|exponent|vec|min", f"jnp.{theirs}({{input}}, {{other}})")
            for name, theirs in _BINARY.items()
        },
        **{
            name: (
                "input dim|axis keepdim|keepdims dtype",
                f"jnp.{theirs}({{input}}<, axis={{dim}}><, keepdims={{keepdim}}><, dtype={{dtype}}>)",
            )
            for name, theirs in _REDUCED.items()
        },
        "add": ("input other alpha", "({input} + <{alpha} * >{other})"),
        "sub subtract": ("input other alpha", "({input} - <{alpha} * >{other})"),
        "mul multiply": ("input other", "({input} * {other})"),
        "div divide true_divide": ("input other", "({input} / {other})"),
        "cat concat concatenate": ("tensors dim|axis", "jnp.concatenate({tensors}, axis={dim})"),
        "stack": ("tensors dim", "jnp.stack({tensors}, axis={dim})"),
        "hstack": ("tensors", "jnp.hstack({tensors})"),
        "vstack": ("tensors", "jnp.vstack({tensors})"),
        "einsum": ("equation *operands", "jnp.einsum({equation}, {operands})"),
        "tensordot": ("a b dims", "jnp.tensordot({a}, {b}<, axes={dims}>)"),
        "addmm baddbmm": ("input mat1|batch1 mat2|batch2", "({input} + {mat1} @ {mat2})"),
        "where": ("condition input|self other", "jnp.where({condition}, {input}, {other})"),
        "clamp clip": ("input min max", "jnp.clip({input}<, min={min}><, max={max}>)"),
        "clamp_min": ("input min", "jnp.maximum({input}, {min})"),
        "clamp_max": ("input max", "jnp.minimum({input}, {max})"),
        "rsqrt": ("input", "jax.lax.rsqrt({input})"),
        "sigmoid special.expit": ("input", "jax.nn.sigmoid({input})"),
        "erf special.erf": ("input", "jax.lax.erf({input})"),
        "lerp": ("input end weight", "({input} + {weight} * ({end} - {input}))"),
        "var": (
            "input dim|axis unbiased keepdim correction",
            "jnp.var({input}<, axis={dim}>, ddof=1<, keepdims={keepdim}>)",
        ),
        "std": (
            "input dim|axis unbiased keepdim correction",
            "jnp.std({input}<, axis={dim}>, ddof=1<, keepdims={keepdim}>)",
        ),
        "logsumexp": ("input dim keepdim", "jax.nn.logsumexp({input}, axis={dim}<, keepdims={keepdim}>)"),
        "cumsum": ("input dim dtype", "jnp.cumsum({input}, axis={dim}<, dtype={dtype}>)"),
        "cumprod": ("input dim dtype", "jnp.cumprod({input}, axis={dim}<, dtype={dtype}>)"),
        "norm": ("input p dim keepdim", "jnp.linalg.norm({input}<, ord={p}><, axis={dim}><, keepdims={keepdim}>)"),
        "linalg.norm linalg.vector_norm": (
            "input|x|A ord dim keepdim",
            "jnp.linalg.norm({input}<, ord={ord}><, axis={dim}><, keepdims={keepdim}>)",
        ),
        "linalg.inv inverse": ("input|A", "jnp.linalg.inv({input})"),
        "linalg.solve": ("A B", "jnp.linalg.solve({A}, {B})"),
        "linalg.det det": ("input|A", "jnp.linalg.det({input})"),
        "linalg.cholesky cholesky": ("input|A", "jnp.linalg.cholesky({input})"),
        **{
            f"fft.{name}": (
                "input n dim norm",
                f"jnp.fft.{name}({{input}}<, n={{n}}><, axis={{dim}}><, norm={{norm}}>)",
            )
            for name in ("fft", "ifft", "rfft", "irfft")
        },
        **{
            f"fft.{name}": (
                "input s dim norm",
                f"jnp.fft.{name}({{input}}<, s={{s}}><, axes={{dim}}><, norm={{norm}}>)",
            )
            for name in ("fft2", "ifft2", "rfft2", "irfft2", "fftn", "ifftn", "rfftn", "irfftn")
        },
        "fft.fftshift": ("input dim", "jnp.fft.fftshift({input}<, axes={dim}>)"),
        "fft.ifftshift": ("input dim", "jnp.fft.ifftshift({input}<, axes={dim}>)"),
        "reshape": ("input shape", "{input}.reshape({shape})"),
        "transpose swapaxes swapdims": ("input dim0 dim1", "{input}.swapaxes({dim0}, {dim1})"),
        "permute": ("input dims", "jnp.transpose({input}, {dims})"),
        "movedim moveaxis": ("input source destination", "jnp.moveaxis({input}, {source}, {destination})"),
        "unsqueeze": ("input dim", "jnp.expand_dims({input}, {dim})"),
        "squeeze": ("input dim", "{input}.squeeze({dim})"),
        "ravel": ("input", "{input}.ravel()"),
        "t": ("input", "{input}.T"),
        "chunk": ("input chunks dim", "jnp.split({input}, {chunks}, axis={dim})"),
        "tensor_split": (
            "input indices_or_sections|indices|sections|tensor_indices_or_sections dim",
            "jnp.array_split({input}, {indices_or_sections}, axis={dim})",
        ),
        "unbind": ("input dim", "jnp.unstack({input}, axis={dim})"),
        "tile": ("input dims", "jnp.tile({input}, {dims})"),
        "broadcast_to": ("input size", "jnp.broadcast_to({input}, {size})"),
        "repeat_interleave": ("input repeats dim", "jnp.repeat({input}, {repeats}<, axis={dim}>)"),
        "flip": ("input dims", "jnp.flip({input}, {dims})"),
        "roll": ("input shifts dims", "jnp.roll({input}, {shifts}<, {dims}>)"),
        "gather": ("input dim index", "jnp.take_along_axis({input}, {index}, axis={dim})"),
        **{
            name: ("input dim index src|value", f"{name}({{input}}, {{dim}}, {{index}}, {{src}})")
            for name in ("scatter", "scatter_add")
        },
        **{
            name: ("input dim index source|tensor", f"{name}({{input}}, {{dim}}, {{index}}, {{source}})")
            for name in ("index_add", "index_copy")
        },
        "take_along_dim": ("input indices dim", "jnp.take_along_axis({input}, {indices}, axis={dim})"),
        "index_select": ("input dim index", "jnp.take({input}, {index}, axis={dim})"),
        "masked_fill": ("input mask value", "jnp.where({mask}, {value}, {input})"),
        "tril": ("input diagonal", "jnp.tril({input}<, {diagonal}>)"),
        "triu": ("input diagonal", "jnp.triu({input}<, {diagonal}>)"),
        "diag": ("input diagonal", "jnp.diag({input}<, {diagonal}>)"),
        "diagonal": ("input offset dim1 dim2", "jnp.diagonal({input}<, {offset}><, axis1={dim1}><, axis2={dim2}>)"),
        "trace": ("input", "jnp.trace({input})"),
        "argsort": (
            "input dim descending stable",
            "jnp.argsort({input}, axis={dim}<, descending={descending}><, stable={stable}>)",
        ),
        "searchsorted": ("sorted_sequence input", "jnp.searchsorted({sorted_sequence}, {input})"),
        "topk": ("input k", "jax.lax.top_k({input}, {k})"),
        "complex": ("real imag", "jax.lax.complex({real}, {imag})"),
        "polar": ("abs angle", "({abs} * jnp.exp(1j * {angle}))"),
        "view_as_real": ("input", "jnp.stack(({input}.real, {input}.imag), axis=-1)"),
        "view_as_complex": ("input", "jax.lax.complex({input}[..., 0], {input}[..., 1])"),
        "allclose": ("input other rtol atol", "jnp.allclose({input}, {other}<, rtol={rtol}><, atol={atol}>)"),
        **{
            f"linalg.{name}": ("A|input", f"jnp.linalg.{name}({{A}})")
            for name in ("qr", "eigh", "eigvalsh", "eigvals", "eig", "pinv", "slogdet")
        },
        "linalg.svd svd": ("A full_matrices", "jnp.linalg.svd({A}<, full_matrices={full_matrices}>)"),
        "zeros ones empty": ("*size dtype", ""),  # written by what `creation` says
        "zeros_like empty_like": ("input dtype", "jnp.zeros_like({input}<, dtype={dtype}>)"),
        "ones_like": ("input dtype", "jnp.ones_like({input}<, dtype={dtype}>)"),
        "full_like": ("input fill_value dtype", "jnp.full_like({input}, {fill_value}<, dtype={dtype}>)"),
        "full": ("size fill_value dtype", "jnp.full({size}, {fill_value}<, dtype={dtype}>)"),
        "tensor as_tensor from_numpy": ("data|ndarray dtype", "jnp.asarray({data}<, dtype={dtype}>)"),
        "eye": ("n m dtype", "jnp.eye({n}<, {m}><, dtype={dtype}>)"),
        "linspace": ("start end steps dtype", "jnp.linspace({start}, {end}, {steps}<, dtype={dtype}>)"),
        "logspace": (
            "start end steps base dtype",
            "jnp.logspace({start}, {end}, {steps}<, base={base}><, dtype={dtype}>)",
        ),
        "arange": ("start end step dtype", "jnp.arange({start}<, {end}><, {step}><, dtype={dtype}>)"),
        "meshgrid": ("*tensors indexing", "jnp.meshgrid(*{tensors}, indexing={indexing})"),
        "is_tensor": ("obj", "isinstance({obj}, jax.Array)"),
        "numel": ("input", "{input}.size"),
        "relu": ("input", "nn.functional.relu({input})"),
        "nn.functional.linear": ("input weight bias", "({input} @ {weight}.T< + {bias}>)"),
        "nn.functional.embedding": ("input weight", "jnp.take({weight}, {input}, axis=0)"),
        "nn.functional.sigmoid": ("input", "jax.nn.sigmoid({input})"),
        "nn.functional.tanh": ("input", "jnp.tanh({input})"),
    }
)

# what PyTorch takes where nothing is given, and jnp does not
DEFAULTS: Mapping[str, Mapping[str, str]] = {
    **{name: {"dim": "0"} for name in ("cat", "concat", "concatenate", "stack", "chunk", "tensor_split", "unbind")},
    "argsort": {"dim": "-1"},
    "meshgrid": {"indexing": '"ij"'},
    "squeeze": {"dim": ""},
}

# methods that no function has, or has otherwise; {input} is the tensor
METHODS = _rules(
    {
        "view reshape": ("input *shape", "{input}.reshape({shape})"),
        "view_as reshape_as": ("input other", "{input}.reshape({other}.shape)"),
        "permute": ("input *dims", "{input}.transpose({dims})"),
        "size": ("input dim", "{input}.shape<[{dim}]>"),
        "dim ndimension": ("input", "{input}.ndim"),
        "numel nelement": ("input", "{input}.size"),
        "contiguous clone cpu cuda requires_grad_ coalesce": ("input", "{input}"),
        "detach": ("input", "jax.lax.stop_gradient({input})"),
        "unfold": ("input dimension|dim size step", "unfold({input}, {dimension}, {size}, {step})"),
        "type": ("input dtype", "{input}.astype({dtype})"),
        "type_as": ("input other", "{input}.astype({other}.dtype)"),
        "float": ("input", "{input}.astype(jnp.float32)"),
        "double": ("input", "{input}.astype(jnp.float64)"),
        "half": ("input", "{input}.astype(jnp.float16)"),
        "bfloat16": ("input", "{input}.astype(jnp.bfloat16)"),
        "long int": ("input", "{input}.astype(int)"),
        "bool": ("input", "{input}.astype(bool)"),
        "repeat tile": ("input *sizes", "jnp.tile({input}, {sizes})"),
        "expand_as": ("input other", "jnp.broadcast_to({input}, {other}.shape)"),
        "flip": ("input *dims", "jnp.flip({input}, {dims})"),
        "new_zeros": ("input *size", "jnp.zeros({size}, {input}.dtype)"),
        "new_ones": ("input *size", "jnp.ones({size}, {input}.dtype)"),
        "new_full": ("input size fill_value", "jnp.full({size}, {fill_value}, {input}.dtype)"),
        "new_tensor": ("input data", "jnp.asarray({data}, {input}.dtype)"),
        "softmax": ("input dim", "nn.functional.softmax({input}, {dim})"),
        "log_softmax": ("input dim", "nn.functional.log_softmax({input}, {dim})"),
        **{
            name: (
                "input dim|axis keepdim|keepdims dtype",
                f"{{input}}.{theirs}(<axis={{dim}}><, keepdims={{keepdim}}><, dtype={{dtype}}>)",
            )
            for name, theirs in _REDUCED.items()
            if theirs in ("sum", "mean", "prod", "all", "any", "argmax", "argmin", "max", "min")
        },
        "add": ("input other alpha", "({input} + <{alpha} * >{other})"),
        "sub": ("input other alpha", "({input} - <{alpha} * >{other})"),
        "mul": ("input other", "({input} * {other})"),
        "div": ("input other", "({input} / {other})"),
    }
)

# what asks for values or shapes that a graph has not: the row of docs/graphable.md, and what to write
REFUSED: Mapping[str, tuple[str, str]] = {
    "item": ("H01", "keep the 0-d array"),
    "tolist": ("H01", "keep the array"),
    "numpy": ("H02", "gm.opaque, or jnp"),
    "nonzero": ("S04", "gm.nonzero with a capacity"),
    "argwhere": ("S04", "gm.argwhere with a capacity"),
    "masked_select": ("S01", "gm.compact with a capacity"),
    "unique": ("S05", "gm.unique with a capacity"),
    "unique_consecutive": ("S05", "gm.unique_consecutive with a capacity"),
    "bincount": ("S08", "gm.bincount with a length"),
    "multinomial": ("S17", "jax.random.categorical with a key"),
    "randperm": ("S18", "gm.random_permutation"),
    "scatter_reduce": ("S09", "gm.segment_sum and its like"),
    "register_hook": ("G02", "gm.gradient_hook"),
    "register_forward_hook": ("G02", "gm.value_hook"),
    "backward": ("G03", "jax.value_and_grad"),
    **dict.fromkeys(
        [
            "rand",
            "randn",
            "randint",
            "rand_like",
            "randn_like",
            "randint_like",
            "normal",
            "bernoulli",
            "normal_",
            "uniform_",
        ],
        ("H06", "draw with jax.random and a key of nnx.Rngs, or take the numbers as an argument"),
    ),
}
# what stands in for what no rule writes
HINTS: Mapping[str, str] = {
    "stft": "jax.scipy.signal.stft, or frames times a window through jnp.fft.rfft",
    "istft": "jax.scipy.signal.istft",
    "hann_window": "0.5 - 0.5 * jnp.cos(2 * jnp.pi * jnp.arange(n) / n)",
    "utils.checkpoint.checkpoint_sequential": "call the layers one after the other, in nnx.remat where memory is short",
}
DTYPES: Mapping[str, str] = {
    "float32": "jnp.float32",
    "float64": "jnp.float64",
    "float16": "jnp.float16",
    "bfloat16": "jnp.bfloat16",
    "int64": "int",
    "int32": "jnp.int32",
    "int16": "jnp.int16",
    "int8": "jnp.int8",
    "uint8": "jnp.uint8",
    "bool": "bool",
    "complex64": "jnp.complex64",
    "complex128": "jnp.complex128",
}
