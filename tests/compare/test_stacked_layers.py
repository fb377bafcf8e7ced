"""Layers that `nnx.scan` runs over, beside the reference's list of them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx
from graphmode.compare import Case, Plan, check, run

from graphmode import nn
from graphmode.weights import Stacked

LAYERS, WIDTH = 3, 4


class Layer(nnx.Module):
    def __init__(self, rngs, eps=1e-5):
        self.norm = nn.LayerNorm(WIDTH, eps=eps, rngs=rngs)
        self.up, self.down = nn.Linear(WIDTH, 8, rngs=rngs), nn.Linear(8, WIDTH, rngs=rngs)

    def __call__(self, x):
        return x + self.down(self.activation(self.up(self.norm(x))))

    def activation(self, x):
        return jax.nn.gelu(x, approximate=False)


class TanhLayer(Layer):
    def activation(self, x):
        return jax.nn.gelu(x)


class StoppedLayer(Layer):
    def __call__(self, x):
        return x + self.down(self.activation(self.up(jax.lax.stop_gradient(self.norm(x)))))


class Port(nnx.Module):
    def __init__(self, rngs, layer=Layer, remat=False):
        make = nnx.split_rngs(splits=LAYERS)(nnx.vmap(layer))
        self.layers, self.out = make(rngs), nn.Linear(WIDTH, 2, rngs=rngs)
        self.remat = remat

    def __call__(self, x):
        def one(layer, x):
            return layer(x)

        body = nnx.remat(one) if self.remat else one
        run = nnx.scan(body, in_axes=(0, nnx.Carry), out_axes=nnx.Carry)
        return self.out(run(self.layers, x))


class Doubled(Port):
    def __call__(self, x):
        return super().__call__(2 * x)


class TorchLayer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(WIDTH)
        self.up, self.down = torch.nn.Linear(WIDTH, 8), torch.nn.Linear(8, WIDTH)

    def forward(self, x):
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


class Reference(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.ModuleList(TorchLayer() for _ in range(LAYERS))
        self.out = torch.nn.Linear(WIDTH, 2)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.out(x)


def case(model, **options):
    def inputs(rng):
        return (rng.normal(size=(5, WIDTH)).astype(np.float32),)

    return Case(
        name="c",
        summary="s",
        reference=Reference,
        model=model,
        inputs=inputs,
        adversarial=(),
        **{"weights": [Stacked("blocks.{i}", "layers")], **options},
    )


def test_a_right_port_introduces_nothing_in_any_layer():
    results = run([case(Port)], Plan(speed=False, modules=True))
    (parity,) = results.parity
    assert parity.passed
    by_path = {each.port: each for each in parity.modules}
    for path in ("layers", "layers.norm", "layers.up", "layers.down", "out"):
        assert by_path[path].introduced is not None
        assert by_path[path].introduced < 1e-14
    assert by_path["layers.up"].how == "layers"
    assert all(each.port is not None for each in parity.modules)  # none of the reference is left over


@pytest.mark.parametrize("remat", [False, True])
@pytest.mark.parametrize(
    ("layer", "module", "reference", "cause"),
    [
        (lambda rngs: Layer(rngs, eps=1e-3), "layers.norm", "blocks.0.norm", "epsilon"),
        (TanhLayer, "layers", "blocks.0", "gelu-form"),
        (StoppedLayer, "layers", "blocks.0", "stop-gradient"),
    ],
)
def test_what_is_wrong_in_the_layers_is_told_of_the_first(layer, module, reference, cause, remat):
    report = check(case(lambda rngs: Port(rngs, layer, remat)), hasty=True)
    (found,) = report.divergences
    assert (found.module, found.reference) == (module, reference)
    assert [each.id for each in found.causes] == [cause]


def test_a_rule_for_each_module_inside_tells_the_layers_as_well():
    rules = [Stacked(f"blocks.{{i}}.{name}", f"layers.{name}") for name in ("norm", "up", "down")]
    (found,) = check(case(lambda rngs: Port(rngs, TanhLayer), weights=rules), hasty=True).divergences
    assert (found.module, found.reference) == ("layers", "blocks.0")


def test_what_is_wrong_around_the_layers_is_no_fault_of_theirs():
    (found,) = check(case(Doubled), hasty=True).divergences
    assert found.module == ""


def test_one_wrong_layer_is_told_by_its_number():
    class OneShifted(Port):
        def __call__(self, x):
            shift = jnp.array([0.0, 0.0, 0.1])

            def one(layer, shift, x):
                layer.up.bias.set_value(layer.up.bias[...] + shift)
                return layer(x)

            run = nnx.scan(one, in_axes=(0, 0, nnx.Carry), out_axes=nnx.Carry)
            return self.out(run(self.layers, shift, x))

    (found,) = check(case(OneShifted), hasty=True).divergences
    assert found.call == 2
    assert found.reference in ("blocks.2", "blocks.2.up")
