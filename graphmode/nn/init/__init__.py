"""`torch.nn.init`: sets a parameter in place, its fans taken in PyTorch's layout through the transform that it carries.

Each function takes an `nnx.Variable`, writes its value and gives it back. What draws takes `rngs` in place of PyTorch's
`generator`. A parameter that carries no transform (`graphmode.weights.carries`), such as that of a plain `nnx.Linear`,
is taken to be laid out as PyTorch's.
"""

from .drawn import (
    kaiming_normal_,
    kaiming_uniform_,
    normal_,
    orthogonal_,
    sparse_,
    trunc_normal_,
    uniform_,
    xavier_normal_,
    xavier_uniform_,
)
from .fixed import calculate_gain, constant_, dirac_, eye_, ones_, zeros_

__all__: list[str] = [
    "calculate_gain",
    "constant_",
    "dirac_",
    "eye_",
    "kaiming_normal_",
    "kaiming_uniform_",
    "normal_",
    "ones_",
    "orthogonal_",
    "sparse_",
    "trunc_normal_",
    "uniform_",
    "xavier_normal_",
    "xavier_uniform_",
    "zeros_",
]
