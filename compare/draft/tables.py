"""PyTorch's functions and methods, and what each is in JAX: see `Rule` for how a row is written."""

from __future__ import annotations

from collections.abc import Mapping

from .rules import rules

_SAME = (
    "exp log sin cos tan tanh sqrt abs floor ceil sign square log1p expm1 log2 log10 sinh cosh isnan isinf "
    "isfinite logical_not reciprocal real imag conj angle deg2rad rad2deg trunc exp2 sinc i0 signbit positive negative "
    "isneginf isposinf isreal fliplr flipud diagflat atleast_1d atleast_2d atleast_3d arccosh arcsinh arctanh cov "
    "corrcoef"
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
    "asinh": "arcsinh",
    "acosh": "arccosh",
    "atanh": "arctanh",
    "bitwise_not": "bitwise_not",
    "conj_physical": "conj",
    "fix": "trunc",
    "sgn": "sign",
    "is_complex": "iscomplexobj",
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
    "spmm": "matmul",
    "sparse.mm": "matmul",
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
    "arctan2": "arctan2",
    "bitwise_and": "bitwise_and",
    "bitwise_or": "bitwise_or",
    "bitwise_xor": "bitwise_xor",
    "bitwise_left_shift": "left_shift",
    "bitwise_right_shift": "right_shift",
    "copysign": "copysign",
    "equal": "array_equal",
    "float_power": "float_power",
    "fmax": "fmax",
    "fmin": "fmin",
    "gcd": "gcd",
    "ger": "outer",
    "greater": "greater",
    "greater_equal": "greater_equal",
    "heaviside": "heaviside",
    "inner": "inner",
    "lcm": "lcm",
    "ldexp": "ldexp",
    "less": "less",
    "less_equal": "less_equal",
    "linalg.matmul": "matmul",
    "logaddexp": "logaddexp",
    "logaddexp2": "logaddexp2",
    "nextafter": "nextafter",
    "not_equal": "not_equal",
    "vdot": "vdot",
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

# by name below torch
FUNCTIONS = rules(
    {
        **{name: ("input", f"jnp.{name}({{input}})") for name in _SAME.split()},
        **{name: ("input", f"jnp.{other}({{input}})") for name, other in _RENAMED.items()},
        **{
            name: ("input|self other|mat2|vec2|tensor|exponent|vec|min", f"jnp.{theirs}({{input}}, {{other}})")
            for name, theirs in _BINARY.items()
        },
        **{
            name: (
                "input dim keepdim dtype",
                f"jnp.{theirs}({{input}}<, axis={{dim}}><, keepdims={{keepdim}}><, dtype={{dtype}}>)",
            )
            for name, theirs in _REDUCED.items()
        },
        "round": ("input decimals", "jnp.round({input}<, {decimals}>)"),
        "add": ("input other alpha", "({input} + <{alpha} * >{other})"),
        "sub subtract": ("input other alpha", "({input} - <{alpha} * >{other})"),
        "rsub": ("input other", "({other} - {input})"),
        "mul multiply": ("input other", "({input} * {other})"),
        "div divide": ("input other rounding_mode", "({input} / {other})"),
        "true_divide": ("input other", "({input} / {other})"),
        "addcmul": ("input tensor1 tensor2 value", "({input} + <{value} * >{tensor1} * {tensor2})"),
        "addcdiv": ("input tensor1 tensor2 value", "({input} + <{value} * >{tensor1} / {tensor2})"),
        "frac": ("input", "({input} - jnp.trunc({input}))"),
        "erfc special.erfc": ("input", "jax.lax.erfc({input})"),
        "erfinv special.erfinv": ("input", "jax.lax.erf_inv({input})"),
        "lgamma special.gammaln": ("input", "jax.lax.lgamma({input})"),
        "digamma special.digamma": ("input", "jax.lax.digamma({input})"),
        "mvlgamma": ("input p", "jax.scipy.special.multigammaln({input}, {p})"),
        "logit special.logit": ("input", "jax.scipy.special.logit({input})"),
        "xlogy special.xlogy": ("input|self other", "jax.scipy.special.xlogy({input}, {other})"),
        "special.expm1": ("input", "jnp.expm1({input})"),
        "special.log1p": ("input", "jnp.log1p({input})"),
        "special.i0": ("input", "jnp.i0({input})"),
        "nan_to_num": (
            "input nan posinf neginf",
            "jnp.nan_to_num({input}<, nan={nan}><, posinf={posinf}><, neginf={neginf}>)",
        ),
        "cat concat concatenate": ("tensors dim", "jnp.concatenate({tensors}, axis={dim})"),
        "stack": ("tensors dim", "jnp.stack({tensors}, axis={dim})"),
        "hstack": ("tensors", "jnp.hstack({tensors})"),
        "vstack row_stack": ("tensors", "jnp.vstack({tensors})"),
        "dstack": ("tensors", "jnp.dstack({tensors})"),
        "column_stack": ("tensors", "jnp.column_stack({tensors})"),
        "block_diag": ("*tensors", "jax.scipy.linalg.block_diag(*{tensors})"),
        "broadcast_tensors": ("*tensors", "jnp.broadcast_arrays(*{tensors})"),
        "einsum": ("equation *operands", "jnp.einsum({equation}, {operands})"),
        "tensordot": ("a b dims", "jnp.tensordot({a}, {b}<, axes={dims}>)"),
        "addmm baddbmm": (
            "input mat1|batch1 mat2|batch2 beta alpha",
            "(<{beta} * >{input} + <{alpha} * >({mat1} @ {mat2}))",
        ),
        "where": ("condition input|self other", "jnp.where({condition}, {input}, {other})"),
        "clamp clip": ("input min max", "jnp.clip({input}<, min={min}><, max={max}>)"),
        "clamp_min": ("input min", "jnp.maximum({input}, {min})"),
        "clamp_max": ("input max", "jnp.minimum({input}, {max})"),
        "rsqrt": ("input", "jax.lax.rsqrt({input})"),
        "sigmoid special.expit": ("input", "jax.nn.sigmoid({input})"),
        "erf special.erf": ("input", "jax.lax.erf({input})"),
        "lerp": ("input end weight", "({input} + {weight} * ({end} - {input}))"),
        "var": (
            "input dim unbiased keepdim correction",
            "jnp.var({input}<, axis={dim}>, ddof=1<, keepdims={keepdim}>)",
        ),
        "std": (
            "input dim unbiased keepdim correction",
            "jnp.std({input}<, axis={dim}>, ddof=1<, keepdims={keepdim}>)",
        ),
        **{
            f"{name}_mean": (
                "input dim unbiased keepdim correction",
                (
                    f"(jnp.{name}({{input}}<, axis={{dim}}>, ddof=1<, keepdims={{keepdim}}>), "
                    "jnp.mean({input}<, axis={dim}><, keepdims={keepdim}>))"
                ),
            )
            for name in ("var", "std")
        },
        "median": ("input", 'jnp.quantile({input}, 0.5, method="lower")'),
        "quantile": (
            "input q dim keepdim interpolation",
            "jnp.quantile({input}, {q}<, axis={dim}><, keepdims={keepdim}><, method={interpolation}>)",
        ),
        "logsumexp special.logsumexp": (
            "input dim keepdim",
            "jax.nn.logsumexp({input}, axis={dim}<, keepdims={keepdim}>)",
        ),
        "cumsum": ("input dim dtype", "jnp.cumsum({input}, axis={dim}<, dtype={dtype}>)"),
        "cumprod": ("input dim dtype", "jnp.cumprod({input}, axis={dim}<, dtype={dtype}>)"),
        "logcumsumexp": ("input dim", "jax.lax.cumlogsumexp({input}, axis={dim} % {input}.ndim)"),
        "diff": (
            "input n dim prepend append",
            "jnp.diff({input}<, n={n}><, axis={dim}><, prepend={prepend}><, append={append}>)",
        ),
        "trapezoid trapz": ("y x dx dim", "jnp.trapezoid({y}<, {x}><, dx={dx}><, axis={dim}>)"),
        "dist": ("input other p", "jnp.linalg.norm(({input} - {other}).ravel()<, ord={p}>)"),
        "cdist": ("x1 x2 p", "cdist({x1}, {x2}<, {p}>)"),
        "cross linalg.cross": ("input other dim", "jnp.cross({input}, {other}, axis={dim})"),
        "norm": (
            "input p dim keepdim",
            "jnp.linalg.vector_norm({input}<, ord={p}><, axis={dim}><, keepdims={keepdim}>)",
        ),
        "linalg.vector_norm": (
            "input|x ord dim keepdim",
            "jnp.linalg.vector_norm({input}<, ord={ord}><, axis={dim}><, keepdims={keepdim}>)",
        ),
        "linalg.norm": (
            "input|A ord dim keepdim",
            (
                "jnp.linalg.vector_norm({input}<, axis={dim}><, keepdims={keepdim}>) || "
                "jnp.linalg.norm({input}, ord={ord}<, axis={dim}><, keepdims={keepdim}>)"
            ),
        ),
        "linalg.inv inverse": ("input|A", "jnp.linalg.inv({input})"),
        "linalg.solve": ("A B", "jnp.linalg.solve({A}, {B})"),
        "linalg.det det": ("input|A", "jnp.linalg.det({input})"),
        "linalg.matrix_exp matrix_exp": ("input|A", "jax.scipy.linalg.expm({input})"),
        "linalg.matrix_power matrix_power": ("input|A n", "jnp.linalg.matrix_power({input}, {n})"),
        "linalg.matrix_norm": ("A ord keepdim", "jnp.linalg.matrix_norm({A}<, ord={ord}><, keepdims={keepdim}>)"),
        "linalg.multi_dot": ("tensors", "jnp.linalg.multi_dot({tensors})"),
        "chain_matmul": ("*matrices", "jnp.linalg.multi_dot({matrices})"),
        "linalg.vecdot": ("x y dim", "jnp.vecdot({x}, {y}<, axis={dim}>)"),
        "linalg.solve_triangular": (
            "A B upper left unitriangular",
            (
                "jax.lax.linalg.triangular_solve({A}, {B}, left_side=True, lower=not {upper}"
                "<, unit_diagonal={unitriangular}>) || "
                "jax.lax.linalg.triangular_solve({A}, {B}, left_side={left}, lower=not {upper}"
                "<, unit_diagonal={unitriangular}>)"
            ),
        ),
        "cholesky_solve": ("input L", "jax.scipy.linalg.cho_solve(({L}, True), {input})"),
        "linalg.cholesky cholesky": ("input|A", "jnp.linalg.cholesky({input})"),
        **{
            f"fft.{name}": (
                "input n dim norm",
                f"jnp.fft.{name}({{input}}<, n={{n}}><, axis={{dim}}><, norm={{norm}}>)",
            )
            for name in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")
        },
        **{
            f"fft.{name}": (
                "input s dim norm",
                f"jnp.fft.{name}({{input}}<, s={{s}}><, axes={{dim}}><, norm={{norm}}>)",
            )
            for name in ("fft2", "ifft2", "rfft2", "irfft2", "fftn", "ifftn", "rfftn", "irfftn")
        },
        "fft.fftfreq": ("n d", "jnp.fft.fftfreq({n}<, d={d}>)"),
        "fft.rfftfreq": ("n d", "jnp.fft.rfftfreq({n}<, d={d}>)"),
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
        "unflatten": ("input dim sizes", "unflatten({input}, {dim}, {sizes})"),
        "narrow": (
            "input dim start length",
            "jax.lax.dynamic_slice_in_dim({input}, {start}, {length}, axis={dim})",
        ),
        "select": ("input dim index", "jnp.take({input}, {index}, axis={dim})"),
        "take": ("input index", "{input}.ravel()[{index}]"),
        "rot90": ("input k dims", "jnp.rot90({input}<, k={k}><, axes={dims}>)"),
        "chunk unsafe_chunk": ("input chunks dim", "jnp.split({input}, {chunks}, axis={dim})"),
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
        "scatter_reduce": (
            "input dim index src reduce include_self",
            "scatter_reduce({input}, {dim}, {index}, {src}, {reduce}<, {include_self}>)",
        ),
        "index_fill": ("input dim index value", "index_fill({input}, {dim}, {index}, {value})"),
        "index_put": ("input indices values accumulate", "{input}.at[tuple({indices})].set({values})"),
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
        "diag_embed": (
            "input",
            "jnp.where(jnp.eye({input}.shape[-1], dtype=bool), jnp.expand_dims({input}, -1), 0)",
        ),
        "tril_indices": ("row col offset", "jnp.stack(jnp.tril_indices({row}<, {offset}><, m={col}>))"),
        "triu_indices": ("row col offset", "jnp.stack(jnp.triu_indices({row}<, {offset}><, m={col}>))"),
        "diagonal": ("input offset dim1 dim2", "jnp.diagonal({input}<, {offset}><, axis1={dim1}><, axis2={dim2}>)"),
        "trace": ("input", "jnp.trace({input})"),
        "argsort": (
            "input dim descending stable",
            "jnp.argsort({input}, axis={dim}<, descending={descending}><, stable={stable}>)",
        ),
        "searchsorted": (
            "sorted_sequence input right side",
            "searchsorted({sorted_sequence}, {input}<, side={side}>)",
        ),
        "bucketize": ("input boundaries right side", "jnp.searchsorted({boundaries}, {input}<, side={side}>)"),
        "isin": ("elements test_elements", "jnp.isin({elements}, {test_elements})"),
        "topk": ("input k", "jax.lax.top_k({input}, {k})"),
        "complex": ("real imag", "jax.lax.complex({real}, {imag})"),
        "polar": ("abs angle", "({abs} * jnp.exp(1j * {angle}))"),
        "view_as_real": ("input", "jnp.stack(({input}.real, {input}.imag), axis=-1)"),
        "view_as_complex": ("input", "jax.lax.complex({input}[..., 0], {input}[..., 1])"),
        "allclose": ("input other rtol atol", "jnp.allclose({input}, {other}<, rtol={rtol}><, atol={atol}>)"),
        **{
            f"linalg.{name}": ("A|input", f"jnp.linalg.{name}({{A}})")
            for name in ("qr", "eigh", "eigvalsh", "eigvals", "eig", "pinv")
        },
        "linalg.slogdet slogdet": ("A|input", "jnp.linalg.slogdet({A})"),
        "linalg.lu": ("A|input", "jax.scipy.linalg.lu({A})"),
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
        "arange": ("start end step dtype out", "{-out}jnp.arange({start}<, {end}><, {step}><, dtype={dtype}>)"),
        "meshgrid": ("*tensors indexing", "jnp.meshgrid(*{tensors}, indexing={indexing})"),
        **{
            name: ("window_length periodic", f"{name}({{window_length}}<, {{periodic}}>)")
            for name in ("hann_window", "hamming_window", "blackman_window")
        },
        "stft": (
            "input n_fft hop_length win_length window center pad_mode normalized onesided return_complex",
            (
                "stft({input}, {n_fft}<, hop_length={hop_length}><, win_length={win_length}><, window={window}>"
                "<, center={center}><, pad_mode={pad_mode}><, normalized={normalized}><, onesided={onesided}>"
                "<, return_complex={return_complex}>)"
            ),
        ),
        "istft": (
            "input n_fft hop_length win_length window center normalized onesided length",
            (
                "istft({input}, {n_fft}<, hop_length={hop_length}><, win_length={win_length}><, window={window}>"
                "<, center={center}><, normalized={normalized}><, onesided={onesided}><, length={length}>)"
            ),
        ),
        "clone": ("input", "{input}"),
        "scalar_tensor": ("s dtype", "jnp.asarray({s}<, dtype={dtype}>)"),
        "promote_types": ("type1 type2", "jnp.promote_types({type1}, {type2})"),
        "get_default_dtype": ("", "jnp.result_type(float)"),
        "is_floating_point": ("input", "jnp.issubdtype({input}.dtype, jnp.floating)"),
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
    "unsafe_chunk": {"dim": "0"},
    "linalg.cross": {"dim": "-1"},
    "meshgrid": {"indexing": '"ij"'},
    "squeeze": {"dim": ""},
}

# methods that no function has, or has otherwise; {input} is the tensor
METHODS = rules(
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
        "short": ("input", "{input}.astype(jnp.int16)"),
        "byte": ("input", "{input}.astype(jnp.uint8)"),
        "char": ("input", "{input}.astype(jnp.int8)"),
        "cfloat": ("input", "{input}.astype(jnp.complex64)"),
        "adjoint": ("input", "{input}.conj().mT"),
        "is_contiguous": ("input", "{-input}True"),
        "new": ("input *size", "jnp.zeros({size}, {input}.dtype)"),
        "zero": ("input", "jnp.zeros_like({input})"),
        "fill": ("input value", "jnp.full_like({input}, {value})"),
        "requires_grad": ("input requires_grad", "{-requires_grad}{input}"),
        "fill_diagonal": ("input fill_value", "jnp.fill_diagonal({input}, {fill_value}, inplace=False)"),
        "unflatten": ("input dim *sizes", "unflatten({input}, {dim}, {sizes})"),
        "long int": ("input", "{input}.astype(int)"),
        "bool": ("input", "{input}.astype(bool)"),
        "repeat tile": ("input *sizes", "jnp.tile({input}, {sizes})"),
        "expand_as": ("input other", "jnp.broadcast_to({input}, {other}.shape)"),
        "flip": ("input *dims", "jnp.flip({input}, {dims})"),
        "new_zeros new_empty": (
            "input *size dtype",
            "{-input}jnp.zeros({size}, {dtype}) || jnp.zeros({size}, {input}.dtype)",
        ),
        "new_ones": ("input *size dtype", "{-input}jnp.ones({size}, {dtype}) || jnp.ones({size}, {input}.dtype)"),
        "new_full": (
            "input size fill_value dtype",
            "{-input}jnp.full({size}, {fill_value}, {dtype}) || jnp.full({size}, {fill_value}, {input}.dtype)",
        ),
        "new_tensor": (
            "input data dtype",
            "{-input}jnp.asarray({data}, {dtype}) || jnp.asarray({data}, {input}.dtype)",
        ),
        "softmax": ("input dim", "nn.functional.softmax({input}, {dim})"),
        "log_softmax": ("input dim", "nn.functional.log_softmax({input}, {dim})"),
        **{
            name: (
                "input dim keepdim dtype",
                f"{{input}}.{theirs}(<axis={{dim}}><, keepdims={{keepdim}}><, dtype={{dtype}}>)",
            )
            for name, theirs in _REDUCED.items()
            if theirs in ("sum", "mean", "prod", "all", "any", "argmax", "argmin", "max", "min")
        },
        "add": ("input other alpha", "({input} + <{alpha} * >{other})"),
        "sub": ("input other alpha", "({input} - <{alpha} * >{other})"),
        "mul": ("input other", "({input} * {other})"),
        "div divide": ("input other rounding_mode", "({input} / {other})"),
    }
)
