"""A tensor that a module of the reference gives in several places, of which the port takes another one."""

import jax
import torch
from flax import nnx
from graphmode.compare import Case, check

import graphmode as gm


class Stack(torch.nn.Module):
    """Gives its last state twice: alone, and as the last of all."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)])

    def forward(self, x):
        states = [x]
        for layer in self.layers:
            x = torch.tanh(layer(x))
            states.append(x)
        return x, tuple(states)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.stack, self.head = torch.nn.Embedding(5, 4), Stack(), torch.nn.Linear(4, 2)

    def forward(self, ids):
        _, states = self.stack(self.embed(ids))
        return self.head(states[-1])


class PortOfStack(nnx.Module):
    def __init__(self, rngs, all_states):
        self.layers = nnx.List([gm.nn.Linear(4, 4, rngs=rngs), gm.nn.Linear(4, 4, rngs=rngs)])
        self.all_states = all_states

    def __call__(self, x):
        states = [x]
        for layer in self.layers:
            x = jax.numpy.tanh(layer(x))
            states.append(x)
        return (x, tuple(states)) if self.all_states else x


class PortOfNet(nnx.Module):
    def __init__(self, rngs, all_states, stops):
        self.embed, self.head = gm.nn.Embedding(5, 4, rngs=rngs), gm.nn.Linear(4, 2, rngs=rngs)
        self.stack, self.stops = PortOfStack(rngs, all_states), stops

    def __call__(self, ids):
        x = self.embed(ids)
        given = self.stack(jax.lax.stop_gradient(x) if self.stops else x)
        return self.head(given[0] if isinstance(given, tuple) else given)


def report_of(*, all_states, stops):
    case = Case(
        name="stack",
        summary="s",
        reference=Net,
        model=lambda rngs: PortOfNet(rngs, all_states, stops),
        inputs=lambda rng: (rng.integers(0, 5, (3, 6)),),
        adversarial=(),
    )
    return check(case, hasty=True)


def test_the_module_that_gives_it_is_not_accused_whichever_the_port_takes():
    for all_states in (False, True):
        assert report_of(all_states=all_states, stops=False).passed
        report = report_of(all_states=all_states, stops=True)
        assert [each.module for each in report.divergences] == [""], str(report)
        assert [cause.id for each in report.divergences for cause in each.causes] == ["stop-gradient"], str(report)
