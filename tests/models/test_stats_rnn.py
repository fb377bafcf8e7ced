"""What the recurrent network prints, on both sides: the same steps, the same numbers, and no others."""

import re
from functools import partial

import jax
import numpy as np
import pytest
import torch
from flax import nnx
from graphmode.models.stats_rnn import model as port_module
from graphmode.models.stats_rnn.model import StatsRNN as Port
from graphmode.models.stats_rnn.reference import StatsRNN

from graphmode.weights import load

LINE = re.compile(r"step (\d+) mean (\S+) variance (\S+)")


def inputs(steps: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((steps, 4, 12)).astype(np.float32)


@pytest.fixture
def sides():
    torch.manual_seed(0)
    reference = StatsRNN()
    port = nnx.eval_shape(lambda: Port(nnx.Rngs(0)))
    load(port, reference.state_dict())
    return reference, port


@pytest.fixture
def printed(capfd):
    """Runs something and gives the lines it printed, as `{step: (mean, variance)}`; each step at most once."""

    def run(function, *args) -> dict[int, tuple[float, float]]:
        capfd.readouterr()
        jax.block_until_ready(function(*args))
        jax.effects_barrier()
        found = LINE.findall(capfd.readouterr().out)
        lines = {int(step): (float(mean), float(variance)) for step, mean, variance in found}
        assert len(lines) == len(found), f"a step was printed twice: {found}"
        return lines

    return run


def scripted(reference):
    return torch.jit.script(reference)


@pytest.mark.parametrize("steps", [1, 9, 10, 30, 35])
@pytest.mark.parametrize("run_as", [lambda reference: reference, scripted], ids=["eager", "script"])
def test_both_sides_print_the_same_numbers(sides, printed, steps, run_as):
    reference, port = sides
    x = inputs(steps)
    with torch.no_grad():
        wanted = printed(run_as(reference), torch.from_numpy(x))
    got = printed(jax.jit(lambda x: port(x)), x)
    assert list(got) == list(wanted) == list(range(10, steps + 1, 10))
    for step in wanted:
        np.testing.assert_allclose(got[step], wanted[step], rtol=1e-4, atol=1e-6)


def test_the_gradient_prints_each_line_once(sides, printed):
    _, port = sides
    assert list(printed(jax.jit(jax.grad(lambda x: port(x)[0].sum())), inputs(20))) == [10, 20]


@pytest.mark.parametrize(
    "report",
    [
        lambda t, h: jax.debug.print("step {} mean {} variance {}", t + 1, h.mean(), h.var()),
        lambda t, h: jax.debug.print("step {} mean {} variance {}", t + 1, h.mean(), h.std(ddof=1)),
        lambda t, h: jax.debug.print("step {} mean {} variance {}", t, h.mean(), h.var(ddof=1)),
        lambda t, h: jax.debug.print("step {} mean {} variance {}", t + 1, h[0].mean(), h.var(ddof=1)),
    ],
    ids=["biased variance", "standard deviation", "steps from zero", "one row"],
)
def test_a_wrong_report_is_seen(sides, printed, monkeypatch, report):
    reference, port = sides
    monkeypatch.setattr(port_module, "report", report)
    x = inputs(10)
    with torch.no_grad():
        wanted = printed(reference, torch.from_numpy(x))
    got = printed(jax.jit(partial(Port.__call__, port)), x)
    same_steps = list(got) == list(wanted)
    assert not (same_steps and np.allclose(list(got.values()), list(wanted.values()), rtol=1e-4, atol=1e-6))
