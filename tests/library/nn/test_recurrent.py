"""Recurrent layers where PyTorch's own samples do not look: lengths, blocks, dropout, kinks, second derivatives."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.testing._internal.common_modules import module_db, module_inputs_torch_nn_RNN_GRU

import graphmode.nn as ours
from graphmode.nn.recurrent import over_time, steps
from graphmode.weights import load, to_state_dict

from .judging import Verdict, judge_equal
from .samples import Sample

KINDS = ("RNN", "LSTM", "GRU")
CLASSES = (*KINDS, *(f"{name}Cell" for name in KINDS))
ERRORS = {info.module_cls.__name__: info.module_error_inputs_func for info in module_db}
I, H = 3, 4  # noqa: E741


def sample(name, *args, given=(), **constructor):
    """A layer of PyTorch in float64 on these arguments."""

    def build():
        torch.manual_seed(0)
        return getattr(torch.nn, name)(I, H, **constructor).double()

    return Sample(name, 0, True, build, ((I, H), constructor), None, args, dict(given))


def agree(one):
    verdict = Verdict(one.subject)
    judge_equal(one, verdict)
    assert verdict.agreed == verdict.tried == 1, "\n".join(verdict.failures)


def normal(*shape, seed=0, grad=True):
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(*shape, generator=generator, dtype=torch.float64).requires_grad_(grad)


def packed(lengths, width=I):
    """Sequences of these lengths, in this order."""
    padded = normal(max(lengths), len(lengths), width, grad=False)
    one = pack_padded_sequence(padded, torch.tensor(lengths), enforce_sorted=False)
    one.data.requires_grad_(True)
    return one


def pair(name, dtype=torch.float64, **constructor):
    """A layer of PyTorch and ours with its weights."""
    torch.manual_seed(0)
    theirs = getattr(torch.nn, name)(I, H, **constructor).to(dtype)
    ported = getattr(ours, name)(I, H, **constructor, param_dtype=str(dtype)[6:], rngs=nnx.Rngs(0))
    load(ported, theirs.state_dict())
    return theirs, ported


def array(tensor):
    return jnp.asarray(tensor.detach().numpy())


@pytest.fixture
def x64():
    with jax.enable_x64(True):
        yield


STATES = {"RNN": normal(4, 4, H), "GRU": normal(4, 4, H), "LSTM": (normal(4, 4, 2), normal(4, 4, H, seed=1))}


@pytest.mark.parametrize(
    "one",
    [
        *(sample(name, packed([3, 7, 1, 7]), STATES[name], num_layers=2, bidirectional=True, **more)
          for name, more in (("RNN", {"nonlinearity": "relu"}), ("LSTM", {"proj_size": 2}), ("GRU", {}))),
        sample("LSTM", packed([5, 23]), (normal(1, 2, H), normal(1, 2, H, seed=1)), bias=False),
        sample("RNN", normal(23, 2, I), bidirectional=True),
        sample("GRU", normal(2, 22, I), batch_first=True, bidirectional=True),
        sample("GRU", normal(5, 0, I)),
        sample("LSTM", 30 * normal(6, 2, I).detach().requires_grad_()),
    ],
    ids=lambda one: one.label,
)  # fmt: skip
def test_agrees_with_torch(one):
    agree(one)


@pytest.mark.parametrize("name", ["RNN", "GRU"])
def test_torch_s_own_packed_samples_agree(name):
    drawn = module_inputs_torch_nn_RNN_GRU(
        None, "cpu", torch.float64, True, True, with_packed_sequence=True, is_rnn=name == "RNN"
    )
    found = [one for one in drawn if isinstance(one.forward_input.args[0], torch.nn.utils.rnn.PackedSequence)]
    one = next(one for one in found if one.constructor_input.kwargs["bidirectional"])
    kwargs = one.constructor_input.kwargs
    build = lambda: getattr(torch.nn, name)(**kwargs).double()  # noqa: E731
    agree(Sample(name, 0, True, build, ((), kwargs), None, one.forward_input.args, {}))


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("GRU", "the reset gate before the hidden product's bias"),
        ("LSTM", "the cell's gradient through the output gate dropped"),
        ("LSTM", "the reverse direction starts from the padding"),
    ],
)
def test_planted_faults_are_seen(name, fault, monkeypatch, retraced):
    if fault.startswith("the reset"):
        push = steps.GatedUnit.push

        def early(self, gates, b, h, c):
            return push(
                self, [a + 0.1 * part for a, part in zip(gates, jnp.split(b, 3, -1), strict=True)], 0.9 * b, h, c
            )

        monkeypatch.setattr(steps.GatedUnit, "push", early)
    elif fault.startswith("the cell"):
        pull = steps.LongShort.pull
        monkeypatch.setattr(
            steps.LongShort, "pull", lambda self, h, c, *rest: pull(self, h, c, *rest)._replace(cell=0 * c)
        )
    else:
        monkeypatch.setattr(over_time, "_where", lambda valid, new, old: new)
    verdict = Verdict(name)
    judge_equal(sample(name, packed([3, 1]), bidirectional="reverse" in fault), verdict)
    assert verdict.failures


def test_lengths_of_a_batch_that_comes_first(x64):
    theirs, ported = pair("LSTM", batch_first=True)
    x = normal(3, 6, I)
    lengths = torch.tensor([2, 6, 4])
    output, (h, c) = theirs(pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False))
    output, _ = pad_packed_sequence(output, batch_first=True)
    padding = np.arange(6) >= lengths.numpy()[:, None]
    nan = jnp.where(padding[..., None], jnp.nan, array(x))

    @jax.jit
    def call(x, lengths):
        return ported(x, lengths=lengths)

    ours_, (h_, c_) = call(nan, array(lengths))
    for mine, wanted in ((ours_, output), (h_, h), (c_, c)):
        np.testing.assert_allclose(mine, wanted.detach(), atol=1e-12)
    (wanted,) = torch.autograd.grad(output.square().sum() + h.sum() + 2 * c.sum(), x)

    def loss(x):
        output, (h, c) = call(x, array(lengths))
        return jnp.sum(output**2) + jnp.sum(h) + 2 * jnp.sum(c)

    mine = jax.grad(loss)(nan)
    np.testing.assert_allclose(mine, wanted, atol=1e-12)
    assert not np.any(mine[padding])
    together = jax.vmap(lambda one, length: ported(one[None], lengths=length[None])[0][0])(nan, array(lengths))
    np.testing.assert_allclose(together, output.detach(), atol=1e-12)


def test_a_length_of_zero_leaves_the_state():
    _, ported = pair("GRU", torch.float32, bidirectional=True)
    state = jnp.ones((2, 2, H))
    output, last = ported(jnp.ones((5, 2, I)), state, lengths=jnp.array([0, 5]))
    assert not np.any(output[:, 0])
    np.testing.assert_array_equal(last[:, 0], state[:, 0])
    assert np.all(last[:, 1] != 1)


@pytest.mark.parametrize("name", KINDS)
def test_second_derivatives(name, x64):
    theirs, ported = pair(name)
    x = normal(3, 2, I)

    def squared(gradient):
        return (gradient**2).sum()

    (first,) = torch.autograd.grad(theirs(x)[0].square().sum(), x, create_graph=True)
    (wanted,) = torch.autograd.grad(squared(first), x)
    lengths = jnp.array([3, 3])
    gradient = jax.grad(lambda x: jnp.sum(ported(x, lengths=lengths)[0] ** 2))
    point = array(x)
    np.testing.assert_allclose(jax.jit(jax.grad(lambda x: squared(gradient(x))))(point), wanted, atol=1e-12)
    _, pushed = jax.jit(lambda x: jax.jvp(gradient, (x,), (gradient(x),)))(point)
    np.testing.assert_allclose(2 * pushed, wanted, atol=1e-12)


def test_forward_mode_is_refused():
    _, ported = pair("GRU", torch.float32)
    x = jnp.ones((2, 1, I))
    with pytest.raises(TypeError, match="forward-mode"):
        jax.jvp(lambda x: ported(x)[0], (x,), (x,))


@pytest.mark.parametrize("lengths", [None, [3, 2]])
def test_the_relu_s_kink_and_nan(lengths, x64):
    theirs, ported = pair("RNN", nonlinearity="relu")
    cell, ported_cell = (
        torch.nn.RNNCell(I, H, nonlinearity="relu").double(),
        ours.RNNCell(I, H, nonlinearity="relu", param_dtype="float64", rngs=nnx.Rngs(0)),
    )
    for parameter in theirs.parameters():
        torch.nn.init.zeros_(parameter)
    torch.nn.init.ones_(theirs.weight_ih_l0)
    cell.load_state_dict({name.removesuffix("_l0"): value for name, value in theirs.state_dict().items()})
    load(ported, theirs.state_dict())
    load(ported_cell, cell.state_dict())
    x = torch.tensor([[0.0, 0, 0], [1, -1, 0], [2, 0, 0]], dtype=torch.float64)[:, None].repeat(1, 2, 1)
    x.requires_grad_(True)
    (wanted,) = torch.autograd.grad(theirs(x)[0].sum(), x)
    given = None if lengths is None else jnp.array([3, 3])
    mine = jax.grad(lambda x: jnp.sum(ported(x, lengths=given)[0]))(array(x))
    np.testing.assert_array_equal(mine, wanted)
    point = torch.tensor([[0.0, 0, 0], [np.nan, 1, 1], [1, 1, 1]], dtype=torch.float64, requires_grad=True)
    (wanted,) = torch.autograd.grad(cell(point).sum(), point)
    np.testing.assert_array_equal(jax.grad(lambda x: jnp.sum(ported_cell(x)))(array(point)), wanted)


def test_dropout_between_layers(x64):
    theirs, ported = pair("LSTM", num_layers=3, dropout=0.25, batch_first=True)
    x = normal(2, 5, I)
    masks = np.random.default_rng(0).random((2, 2, 5, H)) < 0.75
    y = x
    for layer in range(3):
        one = torch.nn.LSTM(I if layer == 0 else H, H, batch_first=True).double()
        state = theirs.state_dict()
        one.load_state_dict({name: state[name.replace("l0", f"l{layer}")] for name in one.state_dict()})
        y = one(y)[0]
        y = y if layer == 2 else y * torch.tensor(masks[layer]) / 0.75
    (wanted,) = torch.autograd.grad(y.sin().sum(), x)
    call = jax.jit(lambda x: ported(x, masks=list(masks))[0])
    np.testing.assert_allclose(call(array(x)), y.detach(), atol=1e-12)
    mine = jax.grad(lambda x: jnp.sum(jnp.sin(call(x))))(array(x))
    np.testing.assert_allclose(mine, wanted, atol=1e-12)
    with ours.dropout_masks(np.swapaxes(masks, 1, 2)):
        np.testing.assert_allclose(ported(array(x))[0], y.detach(), atol=1e-12)


def test_dropout_is_drawn_in_training_only():
    torch_gru, ported = pair("GRU", torch.float32, num_layers=2, dropout=0.5)
    x = jnp.ones((3, 2, I))
    with ours.autocast(jnp.bfloat16):
        ported(x[:1, :1])
    assert ported.rngs.count[...] == 1
    call = jax.jit(lambda x, key: ported(x, rngs=key)[0])
    first, second = call(x, jax.random.key(1)), call(x, jax.random.key(2))
    assert np.any(first != second)
    still = torch_gru.eval()(torch.ones(3, 2, I))[0].detach()
    np.testing.assert_allclose(jax.jit(lambda x: nnx.view(ported, deterministic=True)(x)[0])(x), still, atol=1e-6)
    ported.eval()
    np.testing.assert_allclose(jax.jit(lambda x: ported(x)[0])(x), still, atol=1e-6)
    with pytest.warns(UserWarning, match="num_layers is 1"):
        ours.GRU(I, H, dropout=0.5, rngs=nnx.Rngs(0))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", [*KINDS, "LSTMCell"])
def test_half_precisions(name, dtype):
    theirs, ported = pair(name, dtype)
    x = normal(4, I, grad=False).to(dtype)
    wanted = jax.tree.leaves(theirs(x))
    mine = jax.tree.leaves(jax.jit(lambda x: ported(x))(jnp.asarray(x.float().numpy(), str(dtype)[6:])))
    assert [str(one.dtype) for one in mine] == [str(dtype)[6:]] * len(wanted)
    for one, other in zip(mine, wanted, strict=True):
        bound = 0.03 if dtype is torch.bfloat16 else 0.004
        np.testing.assert_allclose(np.asarray(one, np.float32), other.detach().float(), atol=bound)


@pytest.mark.parametrize("name", CLASSES)
def test_autocast_gives_torch_s_dtypes(name):
    theirs, ported = pair(name, torch.float32)
    x = normal(4, I, grad=False).float()
    with torch.autocast("cpu", torch.bfloat16):
        try:
            wanted = [str(leaf.dtype)[6:] for leaf in jax.tree.leaves(theirs(x))]
        except RuntimeError as error:
            if "primitive descriptor" not in str(error):
                raise
            pytest.skip(f"PyTorch has no such {name} for this processor: {error}")

    def dtypes(**rules):
        with ours.autocast(jnp.bfloat16, **rules):
            return [str(leaf.dtype) for leaf in jax.tree.leaves(jax.eval_shape(ported, array(x)))]

    assert dtypes(device_type="cpu") == wanted
    assert set(dtypes()) == {"bfloat16"}


def test_gradients_under_autocast_have_the_parameters_dtype():
    _, ported = pair("LSTM", torch.float32)
    x = jnp.asarray(normal(4, I, grad=False).numpy(), jnp.float32)

    def loss(ported):
        with ours.autocast(jnp.bfloat16):
            return jnp.sum(ported(x)[0].astype(jnp.float32) ** 2)

    found, usual = jax.jit(jax.grad(loss))(ported), jax.grad(lambda m: jnp.sum(m(x)[0] ** 2))(ported)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(usual), strict=True):
        assert one.dtype == jnp.float32
        np.testing.assert_allclose(one, other, atol=0.1)


@pytest.mark.parametrize("name", CLASSES)
def test_torch_s_bad_arguments_are_refused(name):
    for error in ERRORS[name](None, "cpu", torch.float32, False, True):
        built, called = error.module_error_input.constructor_input, error.module_error_input.forward_input
        kwargs = {key: value for key, value in built.kwargs.items() if key not in ("dtype", "device")}

        def run(kwargs=kwargs, built=built, called=called):
            layer = getattr(ours, name)(*built.args, **kwargs, rngs=nnx.Rngs(0))
            layer(*jax.tree.map(array, called.args))

        with jax.enable_x64(True), pytest.raises((ValueError, TypeError)):
            run()


LSTM = partial(ours.LSTM, I, H)


@pytest.mark.parametrize(
    ("make", "call", "message"),
    [
        (partial(LSTM, proj_size=H), None, "proj_size is 4"),
        (partial(LSTM, proj_size=-1), None, "proj_size is -1"),
        (partial(LSTM, dropout=1.5), None, "dropout is 1.5"),
        (partial(LSTM, dropout=True), None, "dropout is True"),
        (partial(ours.RNN, I, H, nonlinearity="gelu"), None, "'tanh' or 'relu'"),
        (partial(ours.RNNCell, I, H, nonlinearity="gelu"), None, "'tanh' or 'relu'"),
        (partial(ours.GRU, I, H, proj_size=2), None, "proj_size"),
        (partial(ours.GRUCell, I, -1), None, "hidden_size is -1"),
        (LSTM, lambda m: m(jnp.ones((0, 2, I))), "no step"),
        (LSTM, lambda m: m(jnp.ones((5, 2, I + 1))), r"\[T, B, 3\]"),
        (LSTM, lambda m: m(jnp.ones(I)), r"\[T, B, 3\]"),
        (LSTM, lambda m: m(jnp.ones((5, 2, I)), jnp.ones((1, 2, H))), "pair"),
        (LSTM, lambda m: m(jnp.ones((5, 2, I)), (jnp.ones((1, 2, H)), jnp.ones((1, H)))), r"hx\[1\] has shape"),
        (LSTM, lambda m: m(jnp.ones((5, I)), (jnp.ones((1, 1, H)),) * 2), r"hx\[0\] has shape"),
        (LSTM, lambda m: m(jnp.ones((5, 2, I)), (jnp.ones((1, 2, H), jnp.bfloat16),) * 2), "bfloat16"),
        (LSTM, lambda m: m(jnp.ones((5, 2, I), int)), "int32"),
        (LSTM, lambda m: m(jnp.ones((5, 2, I)), lengths=jnp.array([6, 1])), "length is 5"),
        (LSTM, lambda m: m(jnp.ones((5, 2, I)), lengths=jnp.array([5])), "lengths has shape"),
        (LSTM, lambda m: m(jnp.ones((5, I)), lengths=jnp.array([5])), "lengths has shape"),
        (LSTM, lambda m: m(jnp.ones((5, 2, I)), lengths=jnp.array([5.0, 1.0])), "integers"),
        (partial(LSTM, 2), lambda m: m(jnp.ones((5, 2, I)), masks=[]), "masks has shapes"),
        (partial(ours.LSTMCell, I, H), lambda m: m(jnp.ones((2, I)), jnp.ones((2, H))), "pair"),
        (partial(ours.RNNCell, I, H), lambda m: m(jnp.ones(I), jnp.ones((1, H))), "hx has shape"),
        (partial(ours.GRUCell, I, H), lambda m: m(jnp.ones((2, I)), jnp.ones((2, H), jnp.float16)), "float16"),
    ],
)
def test_bad_arguments(make, call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        _ = make(rngs=nnx.Rngs(0)) if call is None else call(make(rngs=nnx.Rngs(0)))


def test_bad_params_of_the_functions():
    x = jnp.ones((5, 2, I))
    good = (jnp.ones((I, 4 * H)), jnp.ones((H, 4 * H)))
    output, _, _ = ours.functional.lstm(x, None, good, has_biases=False)
    assert output.shape == (5, 2, H)
    for bad in (good[:1], (good[0], good[1][:-1]), (*good, good[0][0])):
        with pytest.raises(ValueError, match="params"):
            ours.functional.lstm(x, None, bad, has_biases=False)
    with pytest.raises(ValueError, match="give both or neither"):
        ours.functional.gru_cell(x[0], None, jnp.ones((I, 3 * H)), jnp.ones((H, 3 * H)), jnp.ones(3 * H))


@pytest.mark.parametrize("name", CLASSES)
def test_names_shapes_and_the_first_parameters(name):
    more = {} if name.endswith("Cell") else {"num_layers": 2, "bidirectional": True}
    more |= {"proj_size": 2} if name == "LSTM" else {}
    theirs = getattr(torch.nn, name)(I, 64, **more)
    fresh = getattr(ours, name)(I, 64, **more, rngs=nnx.Rngs(0))
    back = to_state_dict(fresh)
    assert {key: value.shape for key, value in back.items()} == {k: v.shape for k, v in theirs.state_dict().items()}
    drawn = np.concatenate([value.numpy().ravel() for value in back.values()])
    assert 0.124 < np.max(np.abs(drawn)) <= 0.125
    assert abs(np.mean(drawn**2) - 0.125**2 / 3) < 3e-4
    assert len(set(drawn.tolist())) > 0.95 * drawn.size
