"""The dtypes that a comparison can run in, the same on both sides: what each means to PyTorch and to JAX.

`"tf32"` is float32 whose products of matrices may be rounded to TensorFloat-32; `"float32"` forbids that on both sides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax.numpy as jnp

if TYPE_CHECKING:
    import torch

JAX_DTYPES = {
    "float32": jnp.float32,
    "tf32": jnp.float32,
    "float64": jnp.float64,
    "bfloat16": jnp.bfloat16,
}
RUN_DTYPES = ("float32", "tf32", "bfloat16")  # that people run, and a comparison is made in
HALF_ULP = {"float32": 2.0**-24, "tf32": 2.0**-11, "bfloat16": 2.0**-8, "float64": 2.0**-53}


def torch_dtype(name: str) -> torch.dtype:
    import torch

    return getattr(torch, "float32" if name == "tf32" else name)


def cast_module(module: torch.nn.Module, name: str, device: str) -> torch.nn.Module:
    """`module.to` this dtype and device, in place, where complex numbers stay complex: PyTorch drops what is imaginary.

    There is no complex bfloat16, so there they have float32's digits.
    """
    import torch

    real, imaginary = torch_dtype(name), torch.complex128 if name == "float64" else torch.complex64

    def cast(tensor: torch.Tensor) -> torch.Tensor:
        dtype = real if tensor.is_floating_point() else imaginary if tensor.is_complex() else tensor.dtype
        return tensor.to(device=device, dtype=dtype)

    return module._apply(cast)  # as `module.to` does


def cast_array(array: Any, name: str) -> Any:
    """An array of numpy or JAX in this dtype, likewise; integers and booleans as they are."""
    if jnp.issubdtype(array.dtype, jnp.complexfloating):
        return array.astype(jnp.complex128 if name == "float64" else jnp.complex64)
    return array.astype(JAX_DTYPES[name]) if jnp.issubdtype(array.dtype, jnp.floating) else array


def matmul_precision(name: str) -> str:
    """As `jax.default_matmul_precision` takes it."""
    return "tensorfloat32" if name == "tf32" else "highest"


def allow_tf32(name: str) -> None:
    """Sets PyTorch's switches, which are the process's: call it before a run in this dtype."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = name == "tf32"
    # Not by assignment, which fails once anything has imported PyTorch's test suite (`torch.testing._internal`).
    torch.backends.cudnn.set_flags(_allow_tf32=name == "tf32", _fp32_precision=None)


class DtypeError(ValueError):
    """A dtype that a comparison cannot be made in; the message says why, and which it can."""


def check_dtype(name: str, device: str) -> None:
    """Whether a comparison can be made in it.

    Raises:
      DtypeError: where there is no such dtype, or the device has it not.
    """
    if name not in RUN_DTYPES:
        raise DtypeError(f"dtype is {name!r}; choose from {', '.join(RUN_DTYPES)}")
    if name == "tf32" and device != "gpu":
        raise DtypeError("dtype tf32 needs a GPU: a CPU has no TensorFloat-32 units; choose float32 or bfloat16")
