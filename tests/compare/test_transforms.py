"""Modules that the port calls within a transform: `jax.vmap`, `jax.checkpoint`, `jax.grad`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx
from graphmode.compare import Case, Plan, check, run
from graphmode.compare.parity.inside.lanes import all_lanes, in_all_lanes
from rows_sample import WIDTH, Rows, RowsPort

from graphmode import nn


class Mapped(RowsPort):
    def __call__(self, x):
        return jax.vmap(jax.vmap(self.rows))(x)


class MappedOverAnotherAxis(RowsPort):
    def __call__(self, x):
        return jax.vmap(self.rows, in_axes=1, out_axes=1)(x)


class MappedByNNX(RowsPort):
    def __call__(self, x):
        return nnx.vmap(lambda self, x: self.rows(x), in_axes=(None, 0))(self, x)


class Rematerialised(RowsPort):
    def __call__(self, x):
        return jax.checkpoint(self.rows)(x)


class RematerialisedByNNX(RowsPort):
    def __call__(self, x):
        return nnx.remat(lambda self, x: self.rows(x))(self, x)


PORTS = [Mapped, MappedOverAnotherAxis, MappedByNNX, Rematerialised, RematerialisedByNNX]


class RematerialisedBlock(RowsPort):
    @nnx.remat
    def __call__(self, x):
        return self.rows(x)


class Outer(nnx.Module):
    def __init__(self, rngs: nnx.Rngs, eps):
        self.block, self.out = RematerialisedBlock(rngs, eps), nn.Linear(WIDTH, WIDTH, rngs=rngs)

    def __call__(self, x):
        return self.out(self.block(x))


class OuterReference(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.block, self.out = Rows(), torch.nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return self.out(self.block(x))


class Derived(RowsPort):
    def __call__(self, x):
        return jax.grad(lambda x: self.rows(x).sum())(x)


class DerivedReference(Rows):
    def forward(self, x):
        with torch.enable_grad():
            x = x if x.requires_grad else x.detach().requires_grad_()
            return torch.autograd.grad(super().forward(x).sum(), x, create_graph=True)[0]


class Block(RowsPort):
    def __call__(self, x):
        return self.rows(x)


class Stepped(nnx.Module):
    """One step of gradient descent, and what comes out then: the parameters are of `jax.grad`, the inputs are not."""

    def __init__(self, rngs: nnx.Rngs, eps=1e-5):
        self.block = Block(rngs, eps)

    def __call__(self, x):
        graph, params, others = nnx.split(self.block, nnx.Param, ...)

        def loss(params):
            return (nnx.merge(graph, params, others)(x) ** 2).mean()

        moved = jax.tree.map(lambda p, g: p - g, params, jax.grad(loss)(params))
        return nnx.merge(graph, moved, others)(x)


class SteppedReference(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.block = Rows()

    def forward(self, x):
        with torch.enable_grad():
            params = dict(self.block.named_parameters())
            gradients = torch.autograd.grad((self.block(x) ** 2).mean(), list(params.values()), create_graph=True)
            moved = {name: p - g for (name, p), g in zip(params.items(), gradients, strict=True)}
        return torch.func.functional_call(self.block, moved, (x,))


class Halved(nn.LayerNorm):
    """Right forward, with half of the gradient."""

    def __call__(self, x):
        y = super().__call__(x)
        return y / 2 + jax.lax.stop_gradient(y / 2)


def case(port, reference=Rows):
    def inputs(rng):
        return (rng.normal(size=(4, 2, WIDTH)).astype(np.float32),)

    return Case(name="c", summary="s", reference=reference, model=port, inputs=inputs, adversarial=())


@pytest.mark.parametrize("port", PORTS)
def test_a_right_port_introduces_nothing_in_any_module(port):
    results = run([case(port)], Plan(speed=False, modules=True))
    (parity,) = results.parity
    assert parity.passed
    by_path = {each.port: each for each in parity.modules}
    for path in ("first", "norm", "last"):
        assert by_path[path].introduced is not None
        assert by_path[path].introduced < 1e-14


@pytest.mark.parametrize("port", PORTS)
def test_the_module_that_is_wrong_is_accused_alone(port):
    report = check(case(lambda rngs: port(rngs, eps=1e-3)), hasty=True)
    assert [each.module for each in report.divergences] == ["norm"]
    assert [cause.id for cause in report.divergences[0].causes] == ["epsilon"]


@pytest.mark.parametrize("port", PORTS)
def test_the_module_whose_gradient_is_wrong_is_accused_alone(port):
    def built(rngs):
        model = port(rngs)
        model.norm = Halved(5, rngs=rngs)
        return model

    assert [each.module for each in check(case(built), hasty=True).divergences] == ["norm"]


@pytest.mark.parametrize(
    ("port", "reference", "module"), [(Outer, OuterReference, "block"), (Derived, DerivedReference, "")]
)
def test_what_a_transform_hides_is_a_part_of_what_is_around_it(port, reference, module):
    assert check(case(lambda rngs: port(rngs, eps=1e-5), reference)).passed
    report = check(case(lambda rngs: port(rngs, eps=1e-3), reference), hasty=True)
    assert [each.module for each in report.divergences] == [module]
    assert [cause.id for cause in report.divergences[0].causes] == ["epsilon"]
    assert any("called within a transform that hides its values" in note for note in report.parity[0].notes)


def test_a_model_that_trains_itself_is_looked_into():
    assert check(case(Stepped, SteppedReference)).passed
    report = check(case(lambda rngs: Stepped(rngs, eps=1e-3), SteppedReference), hasty=True)
    assert [each.module for each in report.divergences] == [""]
    assert [cause.id for cause in report.divergences[0].causes] == ["epsilon"]


def test_lanes_are_in_front_the_outermost_first():
    seen = []

    def look(arrays):
        seen.extend(x.shape for x in arrays)
        return [2 * x for x in arrays]

    def body(x, y):
        return tuple(in_all_lanes([x, y], look))

    doubled, shared = jax.vmap(jax.vmap(body, (0, None)), (1, None))(jnp.ones((3, 2, 5)), jnp.ones(4))
    assert seen == [(2, 3, 5), (2, 3, 4)]
    assert doubled.shape == (2, 3, 5)
    assert bool((shared == 2).all())
    assert [x.shape for x in all_lanes([jnp.ones(3)])] == [(3,)]
