"""A plain NNX module loaded by name computes what the torch module computes, in float64, and gives its bits back."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx

from graphmode.weights import (
    Drop,
    LinearGeneral,
    Rename,
    Rule,
    SplitGates,
    WeightsError,
    load,
    lstm_cell,
    named_arrays,
    to_state_dict,
)

TOLERANCE = 1e-12


def randomised(module: torch.nn.Module, seed: int = 0) -> torch.nn.Module:
    """The module in float64 and evaluation mode, nothing in it at a value that an initialiser would give."""
    generator = torch.Generator().manual_seed(seed)
    module = module.double().eval()
    with torch.no_grad():
        for name, tensor in module.state_dict().items():
            if tensor.is_floating_point():
                tensor.normal_(generator=generator)
                if name.endswith("running_var"):
                    tensor.abs_().add_(0.5)
    return module


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).standard_normal(shape)


def call(module, *inputs):
    return module(*inputs)


def call_channels_last(module, x):
    return jnp.moveaxis(module(jnp.moveaxis(x, 1, -1)), -1, 1)


def assert_same_tensors(got: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor]) -> None:
    assert got.keys() == wanted.keys()
    for key, tensor in wanted.items():
        assert got[key].dtype == tensor.dtype, key
        assert torch.equal(got[key], tensor), key


# name: torch module, port, input in PyTorch's layout
CONVOLUTIONS = {
    "Conv1d": (lambda: torch.nn.Conv1d(3, 5, 4), lambda r: nnx.Conv(3, 5, 4, padding="VALID", rngs=r), (2, 3, 9)),
    "Conv2d strided, padded": (
        lambda: torch.nn.Conv2d(3, 5, (2, 4), stride=(2, 1), padding=(1, 2)),
        lambda r: nnx.Conv(3, 5, (2, 4), strides=(2, 1), padding=((1, 1), (2, 2)), rngs=r),
        (2, 3, 8, 9),
    ),
    "Conv2d without bias": (
        lambda: torch.nn.Conv2d(3, 5, (1, 3), bias=False),
        lambda r: nnx.Conv(3, 5, (1, 3), padding="VALID", use_bias=False, rngs=r),
        (2, 3, 6, 7),
    ),
    "Conv2d grouped": (
        lambda: torch.nn.Conv2d(6, 9, (2, 3), groups=3),
        lambda r: nnx.Conv(6, 9, (2, 3), feature_group_count=3, padding="VALID", rngs=r),
        (2, 6, 5, 7),
    ),
    "Conv2d depthwise": (
        lambda: torch.nn.Conv2d(4, 8, (3, 2), groups=4),
        lambda r: nnx.Conv(4, 8, (3, 2), feature_group_count=4, padding="VALID", rngs=r),
        (2, 4, 5, 7),
    ),
    "Conv2d dilated": (
        lambda: torch.nn.Conv2d(2, 3, (2, 3), dilation=(3, 2)),
        lambda r: nnx.Conv(2, 3, (2, 3), kernel_dilation=(3, 2), padding="VALID", rngs=r),
        (2, 2, 8, 9),
    ),
    "Conv3d": (
        lambda: torch.nn.Conv3d(2, 3, (1, 2, 3)),
        lambda r: nnx.Conv(2, 3, (1, 2, 3), padding="VALID", rngs=r),
        (2, 2, 3, 4, 5),
    ),
}


def transposed(window, stride, padding, extra, dilation):
    """A case for `ConvTranspose`, with either layout of its kernel; 3 channels to 5."""
    rank = len(window)
    reach = [d * (k - 1) - p for d, k, p in zip(dilation, window, padding, strict=True)]
    torch_class = (torch.nn.ConvTranspose1d, torch.nn.ConvTranspose2d, torch.nn.ConvTranspose3d)[rank - 1]

    def port(transpose_kernel):
        return lambda rngs: nnx.ConvTranspose(
            3,
            5,
            window,
            strides=stride,
            kernel_dilation=dilation,
            padding=[(r, r + e) for r, e in zip(reach, extra, strict=True)],
            transpose_kernel=transpose_kernel,
            rngs=rngs,
        )

    def reference():
        return torch_class(3, 5, window, stride=stride, padding=padding, output_padding=extra, dilation=dilation)

    shape = (2, 3, 4, 5, 6)[: rank + 2]
    name = f"ConvTranspose{rank}d k{window} s{stride} p{padding}+{extra} d{dilation}"
    return {f"{name} transpose_kernel={flag}": (reference, port(flag), shape) for flag in (True, False)}


CONVOLUTIONS |= transposed((4,), (1,), (0,), (0,), (1,))
CONVOLUTIONS |= transposed((2, 3), (1, 1), (0, 0), (0, 0), (1, 1))
CONVOLUTIONS |= transposed((3, 4), (2, 3), (1, 0), (1, 2), (1, 1))
CONVOLUTIONS |= transposed((2, 3), (2, 1), (0, 2), (0, 0), (2, 3))
CONVOLUTIONS |= transposed((1, 2, 3), (1, 2, 1), (0, 1, 1), (0, 0, 0), (1, 1, 1))

NORMS = {
    "GroupNorm": (
        lambda: torch.nn.GroupNorm(3, 6),
        lambda r: nnx.GroupNorm(6, num_groups=3, epsilon=1e-5, use_fast_variance=False, rngs=r),
        (2, 6, 4, 5),
    ),
    "BatchNorm1d": (
        lambda: torch.nn.BatchNorm1d(3),
        lambda r: nnx.BatchNorm(3, use_running_average=True, epsilon=1e-5, rngs=r),
        (4, 3),
    ),
    "BatchNorm2d": (
        lambda: torch.nn.BatchNorm2d(3),
        lambda r: nnx.BatchNorm(3, use_running_average=True, epsilon=1e-5, rngs=r),
        (2, 3, 4, 5),
    ),
    "BatchNorm2d without affine": (
        lambda: torch.nn.BatchNorm2d(3, affine=False),
        lambda r: nnx.BatchNorm(3, use_running_average=True, epsilon=1e-5, use_bias=False, use_scale=False, rngs=r),
        (2, 3, 4, 5),
    ),
    "InstanceNorm2d affine": (
        lambda: torch.nn.InstanceNorm2d(3, affine=True),
        lambda r: nnx.InstanceNorm(3, epsilon=1e-5, use_fast_variance=False, rngs=r),
        (2, 3, 4, 5),
    ),
}

PLAIN = {
    "Linear": (lambda: torch.nn.Linear(3, 5), lambda r: nnx.Linear(3, 5, rngs=r), (2, 3)),
    "Linear without bias": (
        lambda: torch.nn.Linear(3, 5, bias=False),
        lambda r: nnx.Linear(3, 5, use_bias=False, rngs=r),
        (2, 4, 3),
    ),
    "LayerNorm": (
        lambda: torch.nn.LayerNorm(5),
        lambda r: nnx.LayerNorm(5, epsilon=1e-5, use_fast_variance=False, rngs=r),
        (2, 3, 5),
    ),
    "LayerNorm without bias": (
        lambda: torch.nn.LayerNorm(5, bias=False),
        lambda r: nnx.LayerNorm(5, epsilon=1e-5, use_bias=False, use_fast_variance=False, rngs=r),
        (2, 5),
    ),
    "RMSNorm": (lambda: torch.nn.RMSNorm(5, eps=1e-6), lambda r: nnx.RMSNorm(5, rngs=r), (2, 3, 5)),
    "PReLU": (lambda: torch.nn.PReLU(), lambda r: nnx.PReLU(), (2, 3)),
    "Sequential": (
        lambda: torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.Tanh(), torch.nn.Linear(5, 2)),
        lambda r: nnx.Sequential(nnx.Linear(3, 5, rngs=r), jnp.tanh, nnx.Linear(5, 2, rngs=r)),
        (2, 3),
    ),
    "Sequential of 12": (
        lambda: torch.nn.Sequential(*(torch.nn.Linear(3, 3) for _ in range(12))),
        lambda r: nnx.Sequential(*(nnx.Linear(3, 3, rngs=r) for _ in range(12))),
        (2, 3),
    ),
}

CASES = [
    *(pytest.param(*case, call_channels_last, id=name) for name, case in (CONVOLUTIONS | NORMS).items()),
    *(pytest.param(*case, call, id=name) for name, case in PLAIN.items()),
]


def check(reference, make_port, inputs, *, run_port=call, run_reference=call, rules=(), lossy=()):
    """Loads, compares outputs in float64, and carries the weights back into the reference; `lossy` keys may change."""
    reference = randomised(reference)
    with torch.no_grad():
        wanted = run_reference(reference, *map(torch.from_numpy, inputs))
    with jax.enable_x64(True):
        port = nnx.eval_shape(lambda: make_port(nnx.Rngs(0)))
        load(port, reference.state_dict(), rules)
        got = jax.jit(lambda *x: run_port(port, *x))(*inputs)
    for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(np.asarray(one), other.numpy(), rtol=TOLERANCE, atol=TOLERANCE)
    back = to_state_dict(port, rules)
    kept = {k: v for k, v in reference.state_dict().items() if not k.endswith(("num_batches_tracked", *lossy))}
    assert_same_tensors({k: v for k, v in back.items() if k not in lossy}, kept)
    reference.load_state_dict(back, strict=True)
    with torch.no_grad():
        again = run_reference(reference, *map(torch.from_numpy, inputs))
    for one, other in zip(jax.tree.leaves(again), jax.tree.leaves(wanted), strict=True):
        assert torch.allclose(one, other, rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.parametrize(("reference", "port", "shape", "run"), CASES)
def test_by_type(reference, port, shape, run):
    check(reference(), port, (normal(*shape),), run_port=run)


def test_embed():
    indices = np.array([[0, 6, 3], [2, 2, 5]])
    # nnx.Embed settles its dtype when it is built
    check(torch.nn.Embedding(7, 3), lambda r: nnx.Embed(7, 3, dtype=jnp.float64, rngs=r), (indices,))


@pytest.mark.parametrize(
    ("inputs", "outputs"), [((4,), (2, 3)), ((2, 3), (5,)), ((2, 3), (3, 4)), ((4,), (5,))], ids=str
)
def test_linear_general(inputs, outputs):
    flat = torch.nn.Linear(int(np.prod(inputs)), int(np.prod(outputs)))
    axis = tuple(range(-len(inputs), 0))
    check(
        flat,
        lambda r: nnx.LinearGeneral(inputs, outputs, axis=axis, rngs=r),
        (normal(6, int(np.prod(inputs))),),
        run_port=lambda m, x: m(x.reshape(6, *inputs)).reshape(6, -1),
    )


@pytest.mark.parametrize(
    "wrong", [{"weight": (4, 6)}, {"weight": (24, 1)}, {"bias": (2, 3)}, {"bias": (6, 1)}], ids=str
)
def test_linear_general_refuses_a_shape_that_has_only_the_right_size(wrong):
    port = nnx.eval_shape(lambda: nnx.LinearGeneral(4, (2, 3), rngs=nnx.Rngs(0)))
    shapes = {"weight": (6, 4), "bias": (6,)} | wrong
    with pytest.raises(WeightsError, match=r"shape .* was wanted"):
        load(port, {key: np.zeros(shape, np.float32) for key, shape in shapes.items()})


def attend(query, key, value, **_):
    """jax.nn.dot_product_attention takes its softmax in float32 whatever its inputs are."""
    scores = jnp.einsum("bqhd,bkhd->bhqk", query, key) / math.sqrt(query.shape[-1])
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), value)


PROJECTIONS = ("query", "key", "value")


def test_multi_head_attention_with_a_packed_projection():
    heads, width = 3, 12
    weight = LinearGeneral((width,), (heads, width // heads))
    bias = LinearGeneral((), (heads, width // heads))
    check(
        torch.nn.MultiheadAttention(width, heads, batch_first=True),
        lambda r: nnx.MultiHeadAttention(num_heads=heads, in_features=width, attention_fn=attend, decode=False, rngs=r),
        (normal(2, 4, width), normal(2, 5, width), normal(2, 5, width) + 1),
        run_reference=lambda m, *x: m(*x)[0],
        rules=(
            Rule("in_proj_weight", tuple(f"{p}.kernel" for p in PROJECTIONS), SplitGates(3, weight)),
            Rule("in_proj_bias", tuple(f"{p}.bias" for p in PROJECTIONS), SplitGates(3, bias)),
            Rename("out_proj", "out"),
        ),
    )


def test_multi_head_attention_with_keys_of_another_width():
    heads, width, other = 3, 12, 7
    bias = LinearGeneral((), (heads, width // heads))
    check(
        torch.nn.MultiheadAttention(width, heads, kdim=other, vdim=other, batch_first=True),
        lambda r: nnx.MultiHeadAttention(
            num_heads=heads, in_features=width, in_kv_features=other, attention_fn=attend, decode=False, rngs=r
        ),
        (normal(2, 4, width), normal(2, 5, other), normal(2, 5, other) + 1),
        run_reference=lambda m, *x: m(*x)[0],
        rules=(
            *(Rule(f"{p[0]}_proj_weight", f"{p}.kernel") for p in PROJECTIONS),
            Rule("in_proj_bias", tuple(f"{p}.bias" for p in PROJECTIONS), SplitGates(3, bias)),
            Rename("out_proj", "out"),
        ),
    )


def lstm_step(cell, x, h, c):
    (c, h), _ = cell((c, h), x)
    return h, c


@pytest.mark.parametrize("port", [nnx.LSTMCell, nnx.OptimizedLSTMCell])
def test_lstm_cell(port):
    check(
        torch.nn.LSTMCell(3, 5),
        lambda r: port(3, 5, rngs=r),
        (normal(2, 3), normal(2, 5), normal(2, 5) / 2),
        run_port=lstm_step,
        run_reference=lambda m, x, h, c: m(x, (h, c)),
        lossy=("bias_ih", "bias_hh"),
    )


def unrolled(layer, x):
    carry = (jnp.zeros((2, 5)), jnp.zeros((2, 5)))
    outputs = []
    for step in range(x.shape[1]):
        carry, output = layer["cell"](carry, x[:, step])
        outputs.append(output)
    return jnp.stack(outputs, 1)


@pytest.mark.parametrize("port", [nnx.LSTMCell, nnx.OptimizedLSTMCell])
def test_lstm_layer_by_rules(port):
    check(
        torch.nn.LSTM(3, 5, batch_first=True),
        lambda r: nnx.Dict(cell=port(3, 5, rngs=r)),
        (normal(2, 7, 3),),
        run_port=unrolled,
        run_reference=lambda m, x: m(x)[0],
        rules=lstm_cell("", "cell", split=port is nnx.LSTMCell),
        lossy=("bias_ih_l0", "bias_hh_l0"),
    )


@pytest.mark.parametrize("port", [nnx.LSTMCell, nnx.OptimizedLSTMCell])
def test_lstm_gradients_have_both_biases(port):
    reference = randomised(torch.nn.LSTMCell(3, 5))
    x, h, c = normal(2, 3), normal(2, 5), normal(2, 5)
    sum(
        out.square().sum() for out in reference(*map(torch.from_numpy, (x,)), tuple(map(torch.from_numpy, (h, c))))
    ).backward()
    with jax.enable_x64(True):
        cell = nnx.eval_shape(lambda: port(3, 5, rngs=nnx.Rngs(0)))
        load(cell, reference.state_dict())
        graphdef, params = nnx.split(cell)

        def loss(params):
            return sum(jnp.sum(out**2) for out in lstm_step(nnx.merge(graphdef, params), x, h, c))

        gradients = named_arrays(nnx.merge(graphdef, jax.jit(jax.grad(loss))(params)), gradients=True)
    for name, parameter in reference.named_parameters():
        np.testing.assert_allclose(gradients[name], parameter.grad.numpy(), rtol=1e-10, atol=1e-12, err_msg=name)


def gru_reference() -> torch.nn.GRUCell:
    return randomised(torch.nn.GRUCell(3, 5))


def test_gru_cell_cannot_hold_the_hidden_bias_of_the_new_gate():
    port = nnx.GRUCell(3, 5, rngs=nnx.Rngs(0))
    before = named_arrays(port)
    with jax.enable_x64(True), pytest.raises(WeightsError, match="hidden bias of the new gate") as raised:
        load(port, gru_reference().state_dict())
    assert len(raised.value.problems) == 1
    assert all(np.array_equal(before[key], after) for key, after in named_arrays(port).items())


def test_gru_cell_without_that_bias():
    reference = gru_reference()
    with torch.no_grad():
        reference.bias_hh[10:] = 0
    x, h = normal(2, 3), normal(2, 5)
    with jax.enable_x64(True):
        port = nnx.eval_shape(lambda: nnx.GRUCell(3, 5, rngs=nnx.Rngs(0)))
        load(port, reference.state_dict())
        got, _ = jax.jit(lambda h, x: port(h, x))(h, x)
    wanted = reference(torch.from_numpy(x), torch.from_numpy(h)).detach().numpy()
    np.testing.assert_allclose(got, wanted, rtol=TOLERANCE, atol=TOLERANCE)
    reference.load_state_dict(to_state_dict(port), strict=True)


def test_a_batch_norm_counter_may_be_dropped_by_name_too():
    reference = torch.nn.BatchNorm2d(3)
    port = nnx.BatchNorm(3, rngs=nnx.Rngs(0))
    load(port, reference.state_dict(), [Drop("num_batches_tracked", "not used")])
    reference.load_state_dict(to_state_dict(port), strict=True)
