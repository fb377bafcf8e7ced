"""`torch.nn.utils`: parameters that are computed from others, and, in `rnn`, sequences of several lengths."""

from . import parametrizations, parametrize, rnn
from .spectral_norm import remove_spectral_norm, spectral_norm
from .weight_norm import remove_weight_norm, weight_norm

__all__ = [
    "parametrizations",
    "parametrize",
    "remove_spectral_norm",
    "remove_weight_norm",
    "rnn",
    "spectral_norm",
    "weight_norm",
]
_INSTEAD = {
    "clip_grad_norm_": "gm.optim.clip_grad_norm",
    "clip_grad_value_": "gm.optim.clip_grad_value",
    "prune": "multiply by a mask that is a buffer, or load weights after torch.nn.utils.prune.remove",
    "fuse_conv_bn_eval": "XLA fuses the two within the graph",
    "parameters_to_vector": "jax.flatten_util.ravel_pytree(nnx.state(model, nnx.Param))",
    "vector_to_parameters": "nnx.update with the function that jax.flatten_util.ravel_pytree gives",
}


def __getattr__(name: str):
    instead = f": {_INSTEAD[name]}" if name in _INSTEAD else ""
    raise AttributeError(f"graphmode.nn.utils has no {name}{instead}")
