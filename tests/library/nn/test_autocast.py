"""Autocast gives every function the dtype that PyTorch's gives it, and is seen by JAX's caches."""

import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx
from torch.utils._pytree import tree_leaves, tree_map_only

import graphmode
from graphmode import nn
from graphmode.nn.autocast import RULES, autocast_dtype
from graphmode.weights import load

from .samples import FUNCTIONS, function_samples
from .sides import adapter_of, call
from .trees import tensors_of

CASTABLE = [
    name
    for name, info in FUNCTIONS.items()
    if name == info.name.removeprefix("nn.functional.")
    and torch.float32 in info.dtypes
    and hasattr(nn.functional, name)
]
RANDOM = ("dropout", "rrelu", "fractional_max_pool", "multi_head_attention_forward")


@pytest.mark.parametrize("name", CASTABLE)
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_results_have_the_dtype_of_pytorchs_on_a_cpu(name, dtype):
    """Its kernels for CUDA need a GPU; its rules for a CPU are the same mechanism with another table."""
    sample = next(function_samples(name, dtype=torch.float32, seed=0), None)
    adapter = adapter_of(sample)
    if name.startswith(RANDOM) or "dropout" in name or (adapter.skip and adapter.skip(sample.args, sample.kwargs)):
        pytest.skip("draws at random")
    given = getattr(torch, dtype)

    def halved(tree):
        if isinstance(tree, torch.Tensor):
            return tree.detach().to(given) if tree.is_floating_point() else tree
        if isinstance(tree, tuple | list):
            return type(tree)(halved(item) for item in tree)
        return {k: halved(v) for k, v in tree.items()} if isinstance(tree, dict) else tree

    args, kwargs = halved((sample.args, sample.kwargs))
    try:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            wanted = sample.function(*args, **kwargs)
    except (RuntimeError, NotImplementedError) as error:
        pytest.skip(f"PyTorch has no such kernel: {str(error)[:80]}")
    with nn.autocast(jnp.bfloat16, device_type="cpu"):
        layout = adapter.layouts[-1] if adapter.layouts else None
        found = jax.eval_shape(lambda: call(sample, layout, dtype))
    dtypes = [str(value.dtype).removeprefix("torch.") for value in tensors_of(wanted).values()]
    ours = [str(leaf.dtype) for leaf in jax.tree.leaves(found)]
    assert [d for d in ours if "float" in d] == [d for d in dtypes if "float" in d]


RECURRENT = ["RNN", "GRU", "LSTM", "LSTM projected", "RNNCell", "GRUCell", "LSTMCell"]


@pytest.mark.parametrize("name", RECURRENT)
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("state", [None, "bfloat16", "float32"])
def test_recurrent_states_have_the_dtype_of_pytorchs_on_a_cpu(name, dtype, state):
    name, _, projected = name.partition(" ")
    arguments = (4, 3), {"proj_size": 2} if projected else {}
    theirs, ours = (getattr(side.nn, name) for side in (torch, graphmode))
    theirs, ours = theirs(*arguments[0], **arguments[1]), ours(*arguments[0], **arguments[1], rngs=nnx.Rngs(0))
    load(ours, theirs.state_dict())
    is_cell = name.endswith("Cell")
    x = torch.randn((2, 4) if is_cell else (5, 2, 4), generator=torch.Generator().manual_seed(0))
    hx = None
    if state:
        hx = tuple(torch.ones((2, n) if is_cell else (1, 2, n)) for n in (2 if projected else 3, 3))

    def both(hx, x, asarray):
        hx = hx and tuple(asarray(h, state) for h in hx)
        return asarray(x, dtype), hx if not hx or "LSTM" in name else hx[0]

    with torch.autocast("cpu", dtype=torch.bfloat16), torch.no_grad():
        wanted = jax.tree.leaves(theirs(*both(hx, x, lambda array, dtype: array.to(getattr(torch, dtype)))))
    with nn.autocast(jnp.bfloat16, device_type="cpu"):
        found = jax.tree.leaves(ours(*both(hx, x, lambda array, dtype: jnp.asarray(array.numpy(), dtype))))
    assert [str(array.dtype) for array in found] == [str(array.dtype).removeprefix("torch.") for array in wanted]
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(np.asarray(one, np.float32), other.float().numpy(), atol=2**-6)


class OnCuda(torch.Tensor):
    """A tensor of the CPU that says it is on a GPU: PyTorch's autocast takes the rules for that."""

    @staticmethod
    def __new__(cls, tensor):
        made = torch.Tensor._make_wrapper_subclass(cls, tensor.shape, dtype=tensor.dtype, device="cuda")
        made.tensor = tensor
        return made

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        args, kwargs = tree_map_only(cls, lambda array: array.tensor, (args, kwargs or {}))
        args, kwargs = tree_map_only(torch.device, lambda _: torch.device("cpu"), (args, kwargs))
        return tree_map_only(torch.Tensor, cls, function(*args, **kwargs))


@pytest.fixture
def cuda_autocast():
    """`torch.autocast("cuda")` asks for a GPU."""
    torch.set_autocast_enabled("cuda", True)
    torch.set_autocast_dtype("cuda", torch.bfloat16)
    yield
    torch.set_autocast_enabled("cuda", False)
    torch.set_autocast_dtype("cuda", torch.float16)
    torch.clear_autocast_cache()


IMAGE, VOLUME, ROWS = (2, 3, 4, 4), (2, 3, 4, 4, 4), (3, 4)
ON_CUDA = [
    *(("interpolate", [IMAGE], {"size": (6, 6), "mode": mode}) for mode in ("nearest", "bilinear", "bicubic", "area")),
    ("interpolate", [IMAGE], {"size": (3, 3), "mode": "bilinear", "antialias": True}),
    ("interpolate", [VOLUME], {"size": 2, "mode": "trilinear"}),
    ("interpolate", [VOLUME], {"size": 2, "mode": "area"}),
    ("pairwise_distance", [ROWS, ROWS], {}),
    ("normalize", [ROWS], {}),
    ("pdist", [ROWS], {}),
    ("lp_pool1d", [(2, 3, 4)], {"norm_type": 2.0, "kernel_size": 2}),
    ("lp_pool2d", [IMAGE], {"norm_type": 3.0, "kernel_size": 2}),
    ("lp_pool2d", [IMAGE], {"norm_type": float("inf"), "kernel_size": 2}),
    ("local_response_norm", [(2, 3, 4)], {"size": 2}),
    ("triplet_margin_with_distance_loss", [ROWS, ROWS, ROWS], {}),
    ("multilabel_soft_margin_loss", [ROWS, ROWS], {}),
    ("multilabel_soft_margin_loss", [ROWS, ROWS], {"reduction": "none"}),
    ("softplus", [ROWS], {}),
    ("linear", [ROWS, (4, 4)], {}),
    ("gelu", [ROWS], {}),
]


@pytest.mark.usefixtures("cuda_autocast")
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize(("name", "shapes", "arguments"), ON_CUDA)
def test_results_have_the_dtype_of_pytorchs_on_a_gpu(name, shapes, arguments, dtype):
    given = [torch.ones(shape, dtype=getattr(torch, dtype)) for shape in shapes]
    wanted = getattr(torch.nn.functional, name)(*map(OnCuda, given), **arguments)
    has_channels = name in ("interpolate", "local_response_norm") or "pool" in name
    layout = {"data_format": "channels_first"} if has_channels else {}
    with nn.autocast(jnp.bfloat16):
        found = getattr(nn.functional, name)(*(jnp.ones(shape, dtype) for shape in shapes), **arguments, **layout)
    assert str(found.dtype) == str(wanted.dtype).removeprefix("torch.")


def test_what_pytorch_runs_in_float32_on_a_gpu_has_a_rule():
    header = Path(torch.__file__).parent / "include/ATen/autocast_mode.h"
    table = header.read_text().partition("#define AT_FORALL_FP32(_)")[2].partition("#define")[0]
    names = {name.replace("upsample_nearest1d", "interpolate") for name in re.findall(r"_\((\w+)", table)}
    public = {name for name in names if hasattr(nn.functional, name)}
    assert {"cdist", "interpolate", "mse_loss"} <= public
    assert {name for name in public if RULES["cuda"].get(name) != "float32"} == set()


@pytest.mark.parametrize("shape", [(2, 3, 4), IMAGE, VOLUME])
def test_volumes_and_edges_are_float32_on_a_cpu(shape):
    x = torch.ones(shape, dtype=torch.bfloat16)
    calls = [("local_response_norm", {"size": 2}), ("interpolate", {"size": 2, "mode": "area"})]
    if len(shape) == 5:
        calls.append(("lp_pool3d", {"norm_type": 2.0, "kernel_size": 2}))
    spatial = len(shape) - 2
    calls += [(f"max_pool{spatial}d", {"kernel_size": 2, "return_indices": indices}) for indices in (False, True)]
    modes = ("constant", "reflect", "replicate", "circular")
    calls += [("pad", {"pad": [1, 1] * spatial, "mode": mode}) for mode in modes]
    for name, arguments in calls:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            wanted = tree_leaves(getattr(torch.nn.functional, name)(x, **arguments))[0].dtype
        with nn.autocast(jnp.bfloat16, device_type="cpu"):
            function = getattr(nn.functional, name)
            found = function(jnp.ones(shape, jnp.bfloat16), **arguments, data_format="channels_first")
        found = jax.tree.leaves(found)[0]
        assert str(found.dtype) == str(wanted).removeprefix("torch."), name


POOLS = [
    (kind, {"return_indices": True} if indices else {})
    for kind in ("MaxPool", "AvgPool", "AdaptiveMaxPool", "AdaptiveAvgPool")
    for indices in ([False, True] if "Max" in kind else [False])
]


@pytest.mark.parametrize(("kind", "arguments"), POOLS)
def test_layers_of_volumes_are_as_their_functions(kind, arguments):
    x, sides = torch.ones(1, 2, 4, 4, 4, dtype=torch.bfloat16), (torch.nn, nn)
    theirs, ours = (getattr(side, f"{kind}3d")(2, **arguments) for side in sides)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        wanted = tree_leaves(theirs(x))[0].dtype
    with nn.autocast(jnp.bfloat16, device_type="cpu"):
        found = jax.tree.leaves(ours(jnp.ones((1, 4, 4, 4, 2), jnp.bfloat16)))[0].dtype
    assert str(found) == str(wanted).removeprefix("torch.")


EQUATIONS = [
    "i->", "ij->ji", "i,j->ij", "i,i->i", "i,i->", "ij,jk->ik", "ij,jk->ijk", "ij, ij", "...i,...i", "ij,jk,k->i",
]  # fmt: skip


@pytest.mark.usefixtures("cuda_autocast")
@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("equation", EQUATIONS)
def test_sums_of_products_are_lower_and_other_products_on_a_gpu_alone(equation, device):
    terms = equation.partition("->")[0].replace(" ", "").replace("...", "").split(",")
    arrays = [torch.ones((3,) * len(term)) for term in terms]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        wanted = torch.einsum(equation, *(map(OnCuda, arrays) if device == "cuda" else arrays))
    with nn.autocast(jnp.bfloat16, device_type=device):
        found = nn.functional.einsum(equation, *(jnp.asarray(array.numpy()) for array in arrays))
    assert str(found.dtype) == str(wanted.dtype).removeprefix("torch.")


@pytest.mark.parametrize("given", ["bfloat16", "float32"])
def test_a_loss_in_chunks_takes_a_weight_of_another_dtype(given):
    """Of an activation that is bfloat16 under autocast, and a parameter that is not."""
    torch.manual_seed(0)
    x, weight, target = torch.randn(4, 3), torch.randn(5, 3), torch.tensor([0, 4, 2, 1])
    wanted = torch.nn.functional.linear_cross_entropy(x, weight, target)
    options = nn.LinearCrossEntropyOptions(batch_chunk_size=2)
    with nn.autocast(jnp.bfloat16):
        arguments = jnp.asarray(x.numpy(), given), jnp.asarray(weight.numpy().T), jnp.asarray(target.numpy())
        function = lambda x, weight: nn.functional.linear_cross_entropy(x, weight, arguments[2], options=options)  # noqa: E731
        found, gradients = jax.value_and_grad(function, (0, 1))(*arguments[:2])
    assert [str(gradient.dtype) for gradient in gradients] == [given, "float32"]
    np.testing.assert_allclose(np.float32(found), wanted.numpy(), rtol=2e-2)


def test_every_rule_belongs_to_a_function():
    for rules in RULES.values():
        assert not {name for name in rules if not hasattr(nn.functional, name.split()[0])}


def test_a_jitted_function_is_traced_again_inside():
    linear = nn.Linear(3, 2, rngs=nnx.Rngs(0))
    graphdef, state = nnx.split(linear)
    traces = []

    @jax.jit
    def run(state, x):
        traces.append(autocast_dtype())
        return nnx.merge(graphdef, state)(x)

    x = jnp.ones((1, 3))
    assert run(state, x).dtype == jnp.float32
    with nn.autocast(jnp.float16):
        assert run(state, x).dtype == jnp.float16
        with nn.autocast(enabled=False):
            assert run(state, x).dtype == jnp.float32
        with nn.autocast(jnp.bfloat16):
            assert run(state, x).dtype == jnp.bfloat16
    assert run(state, x).dtype == jnp.float32
    assert traces == [None, jnp.float16, jnp.bfloat16]


def test_gradients_are_of_the_parameters_own_dtype():
    linear = nn.Linear(3, 2, rngs=nnx.Rngs(0))
    with nn.autocast(jnp.bfloat16):
        gradients = nnx.grad(lambda linear: linear(jnp.ones((1, 3))).sum())(linear)
    assert gradients.weight.dtype == jnp.float32


def test_float64_is_left_alone():
    with jax.enable_x64(True), nn.autocast(jnp.bfloat16):
        linear = nn.Linear(3, 2, param_dtype=jnp.float64, rngs=nnx.Rngs(0))
        assert linear(jnp.ones((1, 3), jnp.float64)).dtype == jnp.float64
        for name in ("softmax", "log_softmax", "softmin", "normalize"):
            assert getattr(nn.functional, name)(jnp.ones((2, 3), jnp.float64), dim=1).dtype == jnp.float64


def test_what_is_unsafe_is_refused_on_a_gpu_as_pytorch_does():
    probability = jnp.full(3, 0.5)
    with nn.autocast(jnp.float16), pytest.raises(TypeError, match="binary_cross_entropy_with_logits"):
        nn.functional.binary_cross_entropy(probability, probability)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [({"dtype": jnp.float32}, "dtype is float32; choose"), ({"device_type": "tpu"}, "device_type is 'tpu'; choose")],
)
def test_bad_arguments_are_named(arguments, told):
    with pytest.raises(ValueError, match=told):
        nn.autocast(**arguments)
