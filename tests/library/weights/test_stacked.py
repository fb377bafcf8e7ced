"""Equal layers of a `state_dict` into the stacked variables of a port, and back."""

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx

from graphmode import nn
from graphmode.weights import Rename, Rule, Stack, Stacked, WeightsError, load, named_arrays, to_state_dict
from graphmode.weights.transforms import IDENTITY

LAYERS, WIDTH = 3, 4


class Layer(nnx.Module):
    def __init__(self, rngs):
        self.up, self.norm = nn.Linear(WIDTH, 2 * WIDTH, rngs=rngs), nnx.BatchNorm(2 * WIDTH, rngs=rngs)
        self.down = nnx.Linear(2 * WIDTH, WIDTH, rngs=rngs)

    def __call__(self, x):
        return x + self.down(jnp.tanh(self.norm(self.up(x))))


class Port(nnx.Module):
    def __init__(self, rngs):
        @nnx.split_rngs(splits=LAYERS)
        @nnx.vmap
        def layers(rngs):
            return Layer(rngs)

        self.layers, self.out = layers(rngs), nn.Linear(WIDTH, 2, rngs=rngs)

    def __call__(self, x):
        run = nnx.scan(lambda layer, x: layer(x), in_axes=(0, nnx.Carry), out_axes=nnx.Carry)
        return self.out(run(self.layers, x))


class TorchLayer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.norm = torch.nn.Linear(WIDTH, 2 * WIDTH), torch.nn.BatchNorm1d(2 * WIDTH)
        self.down = torch.nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.down(torch.tanh(self.norm(self.up(x))))


class Reference(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.ModuleList(TorchLayer() for _ in range(LAYERS))
        self.out = torch.nn.Linear(WIDTH, 2)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.out(x)


RULES = [Stacked("blocks.{i}", "layers")]


def built():
    torch.manual_seed(0)
    reference = Reference().eval()
    port = Port(nnx.Rngs(0))
    port.eval()
    return reference, port


def test_layers_are_stacked_and_compute_the_same():
    reference, port = built()
    load(port, reference.state_dict(), RULES)
    assert port.layers.up.weight.shape == (LAYERS, WIDTH, 2 * WIDTH)
    x = np.random.default_rng(0).normal(size=(5, WIDTH)).astype(np.float32)
    np.testing.assert_allclose(port(jnp.asarray(x)), reference(torch.from_numpy(x)).detach(), atol=1e-6)


def test_the_way_back_gives_the_same_bits():
    reference, port = built()
    load(port, reference.state_dict(), RULES)
    back = to_state_dict(port, RULES)
    kept = {key: value for key, value in reference.state_dict().items() if not key.endswith("num_batches_tracked")}
    assert back.keys() == kept.keys()  # which a plain nnx.BatchNorm has no place for
    assert all(torch.equal(back[key], kept[key]) for key in kept)
    assert named_arrays(port, RULES, of=nnx.Param, gradients=True)["blocks.2.up.weight"].shape == (2 * WIDTH, WIDTH)


def test_several_fields_are_several_axes_in_the_order_of_the_key():
    class Experts(nnx.Module):
        def __init__(self):
            self.experts = nnx.Dict(w=nnx.Param(jnp.zeros((2, 3, 5))))

    port = Experts()
    state = {f"layers.{i}.experts.{e}.w": np.full(5, 10 * i + e, np.float32) for i in range(2) for e in range(3)}
    load(port, state, [Stacked("layers.{i}.experts.{e}", "experts")])
    assert port.experts["w"][:, :, 0].tolist() == [[0, 1, 2], [10, 11, 12]]


def test_fields_of_the_path_are_the_same_in_the_key():
    class Stages(nnx.Module):
        def __init__(self):
            self.stages = nnx.List([nnx.Dict(w=nnx.Param(jnp.zeros((n, 2)))) for n in (2, 3)])

    port = Stages()
    state = {f"s.{s}.b.{i}.w": np.full(2, 10 * s + i, np.float32) for s, n in ((0, 2), (1, 3)) for i in range(n)}
    load(port, state, [Stacked("s.{s}.b.{i}", "stages.{s}")])
    assert [stage["w"][:, 0].tolist() for stage in port.stages] == [[0, 1], [10, 11, 12]]


def test_the_first_rule_that_matches_counts():
    _, port = built()
    rules = [Stacked("b.{i}.wide", "layers.up"), Stacked("b.{i}", "layers"), Rename("head", "out")]
    keys = named_arrays(port, rules)
    assert {"b.0.wide.weight", "b.2.down.bias", "head.weight"} <= keys.keys()
    assert "b.0.up.weight" not in keys


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda s: s.pop("blocks.1.up.weight"),
            r"blocks.1.up.weight: missing, and layers.up.weight needs it by Stacked",
        ),
        (lambda s: s.update({"blocks.3.up.bias": torch.ones(8)}), r"blocks.3.up.bias: unused"),
        (
            lambda s: s.update({"blocks.1.up.bias": torch.ones(7)}),
            r"layers are float32\[8\], float32\[7\], and one shape",
        ),
    ],
)
def test_what_does_not_fit_is_told(change, words):
    reference, port = built()
    state = dict(reference.state_dict())
    change(state)
    with pytest.raises(WeightsError, match=words):
        load(port, state, RULES)


def test_a_variable_without_the_axis_is_told():
    with pytest.raises(WeightsError, match=r"scale has shape \(\), and an axis for each of i was wanted"):
        load(nnx.Dict(a=nnx.Dict(scale=nnx.Param(jnp.zeros(())))), {}, [Stacked("a.{i}", "a")])


def test_rules_that_say_nothing_are_refused():
    with pytest.raises(ValueError, match="has no field in key that path lacks"):
        Stacked("blocks.{i}", "layers.{i}")
    with pytest.raises(ValueError, match="is no field"):
        Stacked("blocks.{0}", "layers")
    with pytest.raises(ValueError, match=r"write Stacked\('blocks.\{i\}', 'layers'\)"):
        Stacked("blocks.{i}.", "layers")
    with pytest.raises(WeightsError, match="matches no variable"):
        load(nnx.Dict(a=nnx.Param(jnp.zeros(2))), {"a": np.zeros(2, np.float32)}, RULES)


def test_a_rule_behind_a_wider_one_is_told_to_come_first():
    port = nnx.Dict(layers=nnx.Dict(up=nnx.Dict(kernel=nnx.Param(jnp.zeros((2, 3))))))
    rules = [Stacked("blocks.{i}", "layers"), Stacked("blocks.{i}.mlp.0", "layers.up")]
    with pytest.raises(WeightsError, match=r"is tried before it, and takes layers\.up\.kernel"):
        load(port, {f"blocks.{i}.mlp.0.kernel": np.zeros(3, np.float32) for i in range(2)}, rules)


def test_one_variable_may_be_stacked_by_a_rule_of_its_own():
    port = nnx.Dict(w=nnx.Param(jnp.zeros((2, 3))))
    rows = [np.arange(3, dtype=np.float32), np.ones(3, np.float32)]
    load(port, {"a": rows[0], "b": rows[1]}, [Rule(("a", "b"), "w", Stack((2,), IDENTITY))])
    assert port["w"][...].tolist() == [[0, 1, 2], [1, 1, 1]]
