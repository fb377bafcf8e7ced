"""Parameters that are computed from others, beside PyTorch's: weight and spectral norm, and parametrizations."""

import copy
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx
from graphmode.compare import Case, check
from torch.nn import utils as theirs

from graphmode import nn
from graphmode.nn import utils as ours
from graphmode.weights import load, to_state_dict

pytestmark = pytest.mark.filterwarnings("ignore:.*weight_norm. is deprecated:FutureWarning")
INPUTS = {
    "Linear": (4, 3),
    "Conv1d": (2, 4, 9),
    "Conv2d": (2, 4, 8, 7),
    "ConvTranspose1d": (2, 4, 9),
    "ConvTranspose2d": (2, 4, 6, 5),
}
KINDS = ("weight_norm", "parametrizations.weight_norm", "spectral_norm", "parametrizations.spectral_norm")


def named(holder, name):
    for part in name.split("."):
        holder = getattr(holder, part)
    return holder


def build(name, kind, layer, rngs, **settings):
    if "spectral" in kind and rngs is not None:
        settings["rngs"] = rngs
    return named(ours if rngs is not None else theirs, kind)(layer, **settings)


def layers(name, rngs):
    sizes = (3, 5) if name == "Linear" else (4, 6, 3)
    if rngs is None:
        return getattr(torch.nn, name)(*sizes)
    further = {} if name == "Linear" else {"data_format": "channels_first"}
    return getattr(nn, name)(*sizes, **further, rngs=rngs)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", INPUTS)
def test_a_computed_weight_is_pytorchs(name, kind):
    """Outputs, gradients of all parts, and the vectors of the iteration, in training and evaluation."""
    case = Case(
        name=name,
        summary=kind,
        reference=lambda: build(name, kind, layers(name, None), None),
        model=lambda rngs: build(name, kind, layers(name, rngs), rngs),
        inputs=lambda rng: (rng.standard_normal(INPUTS[name]).astype("float32"),),
    )
    verdict = check(case)
    assert verdict.passed, verdict


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dim", [0, 1, None])
def test_any_axis_is_counted_as_pytorch_counts_it(kind, dim):
    if "spectral" in kind and dim is None:
        pytest.skip("None is no axis of spectral_norm, but the default")
    conv = build("Conv2d", kind, layers("Conv2d", None).double(), None, dim=dim)
    with jax.enable_x64(True):
        plain = nn.Conv2d(4, 6, 3, data_format="channels_first", param_dtype=jnp.float64, rngs=nnx.Rngs(0))
        port = build("Conv2d", kind, plain, nnx.Rngs(1), dim=dim)
        load(port, conv.state_dict())
        conv.eval(), port.eval()
        x = np.random.default_rng(0).standard_normal(INPUTS["Conv2d"])
        wanted = conv(torch.tensor(x)).detach().numpy()
        np.testing.assert_allclose(port(x), wanted, rtol=0, atol=1e-14 * np.abs(wanted).max())
        back = to_state_dict(port)
    assert {name: value.shape for name, value in back.items()} == {n: v.shape for n, v in conv.state_dict().items()}


def test_several_turns_of_the_iteration():
    for kind in KINDS[2:]:
        linear = build("Linear", kind, layers("Linear", None), None, n_power_iterations=3)
        port = build("Linear", kind, layers("Linear", nnx.Rngs(0)), nnx.Rngs(1), n_power_iterations=3)
        load(port, linear.state_dict())
        x = np.ones((2, 3), "float32")
        for _ in range(2):
            np.testing.assert_allclose(port(x), linear(torch.tensor(x)).detach(), atol=1e-6)
        for name, value in linear.state_dict().items():
            np.testing.assert_allclose(to_state_dict(port)[name], value, atol=1e-6, err_msg=name)


def test_a_recurrent_layers_weight():
    lstm = theirs.weight_norm(torch.nn.LSTM(3, 4), "weight_hh_l0")
    port = ours.weight_norm(nn.LSTM(3, 4, rngs=nnx.Rngs(0)), "weight_hh_l0")
    load(port, lstm.state_dict())
    x = np.random.default_rng(0).standard_normal((5, 2, 3)).astype("float32")
    np.testing.assert_allclose(port(x)[0], lstm(torch.tensor(x))[0].detach(), atol=1e-6)


def test_several_parameters_of_one_layer():
    lstm, port = torch.nn.LSTM(3, 4), nn.LSTM(3, 4, rngs=nnx.Rngs(0))
    for name in ("weight_ih_l0", "weight_hh_l0"):
        theirs.weight_norm(lstm, name), ours.weight_norm(port, name)
    load(port, lstm.state_dict())
    x = np.random.default_rng(0).standard_normal((5, 2, 3)).astype("float32")
    np.testing.assert_allclose(port(x)[0], lstm(torch.tensor(x))[0].detach(), atol=1e-6)
    ours.remove_weight_norm(port, "weight_ih_l0")
    np.testing.assert_allclose(port(x)[0], lstm(torch.tensor(x))[0].detach(), atol=1e-6)
    assert isinstance(port.weight_ih_l0, nnx.Param)
    assert not isinstance(port.weight_hh_l0, nnx.Param)


class Symmetric(nnx.Module):
    def __call__(self, x):
        return jnp.triu(x) + jnp.triu(x, 1).T

    def right_inverse(self, x):
        return jnp.triu(x)


class TheirSymmetric(torch.nn.Module):
    def forward(self, x):
        return x.triu() + x.triu(1).T

    def right_inverse(self, x):
        return x.triu()


class Doubled(nnx.Module):
    def __call__(self, x):
        return 2 * x


class TheirDoubled(torch.nn.Module):
    def forward(self, x):
        return 2 * x


class RankOne(nnx.Module):
    def __call__(self, x, y):
        return x[:, None] @ y[None]

    def right_inverse(self, z):
        u, s, v = jnp.linalg.svd(z, full_matrices=False)
        return u[:, 0] * jnp.sqrt(s[0]), v[0] * jnp.sqrt(s[0])


class TheirRankOne(torch.nn.Module):
    def forward(self, x, y):
        return x[:, None] @ y[None]

    def right_inverse(self, z):
        u, s, v = torch.linalg.svd(z, full_matrices=False)
        return u[:, 0] * s[0].sqrt(), v[0] * s[0].sqrt()


@pytest.mark.parametrize(
    "pair",
    [
        ([Symmetric], [TheirSymmetric]),
        ([RankOne], [TheirRankOne]),
        ([Symmetric, Doubled], [TheirSymmetric, TheirDoubled]),
    ],
    ids=["one tensor", "two tensors", "one after the other"],
)
def test_modules_that_compute_a_weight(pair):
    mine, original = pair
    linear, port = torch.nn.Linear(4, 4), nn.Linear(4, 4, rngs=nnx.Rngs(0))
    load(port, linear.state_dict())
    for one, other in zip(original, mine, strict=True):
        theirs.parametrize.register_parametrization(linear, "weight", one())
        ours.parametrize.register_parametrization(port, "weight", other())
    x = np.random.default_rng(0).standard_normal((2, 4)).astype("float32")
    wanted = linear(torch.tensor(x)).detach()
    np.testing.assert_allclose(port(x), wanted, atol=1e-5)  # each from its own right_inverse
    load(port, linear.state_dict())
    np.testing.assert_allclose(port(x), wanted, atol=1e-6)
    assert ours.parametrize.is_parametrized(port, "weight")
    assert not ours.parametrize.is_parametrized(port, "bias")
    ours.parametrize.remove_parametrizations(port, "weight")
    assert type(port) is nn.Linear
    assert isinstance(port.weight, nnx.Param)
    np.testing.assert_allclose(port(x), wanted, atol=1e-6)
    assert set(to_state_dict(port)) == {"weight", "bias"}


def test_removing_gives_the_plain_layer_again():
    x = np.random.default_rng(0).standard_normal((2, 3)).astype("float32")
    for kind, remove in (("weight_norm", ours.remove_weight_norm), ("spectral_norm", ours.remove_spectral_norm)):
        port = build("Linear", kind, layers("Linear", nnx.Rngs(0)), nnx.Rngs(1))
        port.eval()
        wanted = port(x)
        remove(port)
        assert type(port) is nn.Linear
        assert set(to_state_dict(port)) == {"weight", "bias"}
        np.testing.assert_allclose(port(x), wanted, atol=1e-6)


def test_one_compilation_for_layers_alike_and_copies():
    traces = []

    @nnx.jit
    def run(model, x):
        traces.append(1)
        return model(x)

    ports = [build("Linear", "spectral_norm", layers("Linear", nnx.Rngs(i)), nnx.Rngs(9)) for i in range(2)]
    for port in [*ports, copy.deepcopy(ports[0]), pickle.loads(pickle.dumps(ports[0]))]:
        run(port, jnp.ones((2, 3)))
    assert len(traces) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_pickled_layer_computes_its_weight(kind):
    port = build("Linear", kind, layers("Linear", nnx.Rngs(0)), nnx.Rngs(1))
    again = pickle.loads(pickle.dumps(nn.Sequential(port)))[0]
    assert type(again) is type(port)
    port.eval(), again.eval()
    np.testing.assert_array_equal(again(np.ones((2, 3), "float32")), port(np.ones((2, 3), "float32")))


def test_the_iteration_turns_once_a_call_and_only_in_training():
    port = build("Linear", "spectral_norm", layers("Linear", nnx.Rngs(0)), nnx.Rngs(1))
    before = port.weight_u[...]
    port.eval()
    port(np.ones((2, 3), "float32"))
    np.testing.assert_array_equal(port.weight_u[...], before)
    port.train()
    assert port.weight.shape == (3, 5)  # read, which is no call
    np.testing.assert_array_equal(port.weight_u[...], before)
    nnx.jit(lambda m, x: m(x))(port, jnp.ones((2, 3)))
    weight = np.asarray(port.weight_orig[...]).T
    across = weight.T @ before / np.linalg.norm(weight.T @ before)
    along = weight @ across / np.linalg.norm(weight @ across)
    np.testing.assert_allclose(port.weight_u[...], along, atol=1e-6)


def test_lower_precision_keeps_its_dtype():
    conv = theirs.weight_norm(torch.nn.Linear(3, 5).bfloat16())
    port = ours.weight_norm(nn.Linear(3, 5, param_dtype=jnp.bfloat16, rngs=nnx.Rngs(0)))
    load(port, conv.state_dict())
    x = np.linspace(-1, 1, 6, dtype="float32").reshape(2, 3)
    made = port(jnp.asarray(x, jnp.bfloat16))
    assert made.dtype == jnp.bfloat16
    np.testing.assert_allclose(made.astype(jnp.float32), conv(torch.tensor(x).bfloat16()).detach().float(), atol=0.02)


def test_what_cannot_be_computed_is_refused():
    linear = layers("Linear", nnx.Rngs(0))
    with pytest.raises(ValueError, match=r"name is 'kernel', and Linear has no such parameter; it has bias, weight"):
        ours.weight_norm(linear, "kernel")
    with pytest.raises(ValueError, match=r"dim is 2, and the tensor has 2 axes; give -2 to 1"):
        ours.weight_norm(linear, dim=2)
    with pytest.raises(TypeError, match=r"dim is '0'; give an integer from -2 to 1"):
        ours.weight_norm(linear, dim="0")
    with pytest.raises(TypeError, match=r"module is Flax's Linear; give graphmode.nn's layer"):
        ours.weight_norm(nnx.Linear(3, 5, rngs=nnx.Rngs(0)), "kernel")
    with pytest.raises(TypeError, match=r"module is custom_jvp; give a layer"):
        ours.spectral_norm(jax.nn.relu, rngs=nnx.Rngs(0))
    with pytest.raises(ValueError, match=r"n_power_iterations is 0"):
        ours.spectral_norm(linear, n_power_iterations=0, rngs=nnx.Rngs(0))
    with pytest.raises(ValueError, match=r"weight_norm was not called on that of Linear"):
        ours.remove_weight_norm(linear)
    with pytest.raises(ValueError, match=r"gives float32\[\] for weight"):
        ours.parametrize.register_parametrization(layers("Linear", nnx.Rngs(0)), "weight", Total())
    normed = ours.weight_norm(linear)
    with pytest.raises(ValueError, match=r"name is 'weight', which ParametrizedLinear computes already"):
        ours.weight_norm(normed)
    with pytest.raises(AttributeError, match=r"weight is computed from other tensors; assign those"):
        normed.weight = jnp.ones((3, 5))
    with pytest.raises(AttributeError, match=r"graphmode.nn.utils has no clip_grad_norm_: gm.optim.clip_grad_norm"):
        ours.clip_grad_norm_  # noqa: B018


class Total(nnx.Module):
    def __call__(self, x):
        return x.sum()


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("of_layer", [False, True])
def test_packed_sequences_are_pytorchs_padded_again(batch_first, of_layer):
    """Whatever lies first in the batch and in the layer, sorted or not."""
    lengths = [5, 2, 4]
    x = np.random.default_rng(0).standard_normal((3, 5, 3)).astype("float32")
    x = x if batch_first else x.swapaxes(0, 1)
    gru = torch.nn.GRU(3, 4, bidirectional=True, batch_first=of_layer)
    port = nn.GRU(3, 4, bidirectional=True, batch_first=of_layer, rngs=nnx.Rngs(0))
    load(port, gru.state_dict())
    wanted = {}
    for holder, one, layer in ((theirs.rnn, torch.tensor(x), gru), (ours.rnn, jnp.asarray(x), port)):
        packed = holder.pack_padded_sequence(one, lengths, batch_first, enforce_sorted=False)
        output, h = layer(packed)
        padded, back = holder.pad_packed_sequence(output, batch_first, padding_value=-1.0, total_length=6)
        wanted[holder] = [padded, h, back]
    for one, other in zip(*wanted.values(), strict=True):
        np.testing.assert_allclose(other, one.detach(), atol=1e-6)


@pytest.mark.parametrize("side", ["right", "left"])
def test_arrays_of_several_lengths_are_padded(side):
    arrays = [np.full((n, 2), n, "float32") for n in (3, 1, 2)]
    wanted = theirs.rnn.pad_sequence(list(map(torch.tensor, arrays)), True, -1.0, side)
    np.testing.assert_array_equal(ours.rnn.pad_sequence(arrays, True, -1.0, side), wanted)
    packed = ours.rnn.pack_sequence(arrays, enforce_sorted=False)
    np.testing.assert_array_equal(packed.lengths, [3, 1, 2])
    assert packed.padded.shape == (3, 3, 2)


def test_packed_sequences_go_through_jit():
    @jax.jit
    def run(x, lengths):
        return ours.rnn.pad_packed_sequence(ours.rnn.pack_padded_sequence(x, lengths))[0]

    np.testing.assert_array_equal(run(jnp.ones((3, 2)), jnp.array([1, 2]))[:, 0], [1, 0, 0])


def test_what_cannot_be_packed_is_refused():
    x = jnp.ones((3, 2, 1))
    pack = ours.rnn.pack_padded_sequence
    with pytest.raises(ValueError, match=r"lengths has shape \(3,\); give \(2,\)"):
        pack(x, [1, 2, 3])
    with pytest.raises(ValueError, match=r"lengths go from 1 to 4; give 0 to 3"):
        pack(x, [4, 1])
    with pytest.raises(ValueError, match=r"lengths rise, and enforce_sorted is True"):
        pack(x, [1, 2])
    with pytest.raises(TypeError, match=r"lengths has dtype float"):
        pack(x, jnp.ones(2))
    with pytest.raises(AttributeError, match=r"no data, whose shape depends on the lengths; its padded batch is .pad"):
        pack(x, [2, 1]).data  # noqa: B018
    with pytest.raises(ValueError, match=r"lengths were given, and input is a PackedSequence"):
        nn.GRU(1, 2, rngs=nnx.Rngs(0))(pack(x, [2, 1]), lengths=jnp.array([2, 1]))
    with pytest.raises(TypeError, match=r"sequence is ArrayImpl; give what pack_padded_sequence or a layer gives"):
        ours.rnn.pad_packed_sequence(x)
    with pytest.raises(ValueError, match=r"sequences is empty"):
        ours.rnn.pad_sequence([])
    with pytest.raises(ValueError, match=r"sequences have the further axes \[\(1,\), \(2,\)\]"):
        ours.rnn.pad_sequence([jnp.ones((1, 1)), jnp.ones((1, 2))])
