"""A cause found in a loop that turns as often as the values say holds on inputs on which it turns otherwise."""

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx
from graphmode.compare import Case, check
from told_causes import causes

STEPS, SYMBOLS, BLANK, PAD = 10, 4, 0, -1


class Collapse(torch.nn.Module):
    """Scores `[T, V]` and the number of steps: the best symbols without repeats and blanks."""

    def forward(self, scores, length):
        used = torch.where(length > 0, length, torch.zeros_like(length))
        tokens = torch.full((len(scores),), PAD, dtype=torch.int64)
        previous, count = BLANK, 0
        for step in range(int(used)):
            best = int(scores[step].argmax())
            if best != BLANK and best != previous:
                tokens[count] = best
                count += 1
            previous = best
        return tokens, torch.tensor(count)


class PortOfCollapse(nnx.Module):
    """`wrong` is what is in place of the blank before the first symbol: the last one."""

    def __init__(self, rngs, *, wrong=False):
        del rngs
        self.wrong = wrong

    def __call__(self, scores, length):
        best = jnp.argmax(scores, axis=-1)
        previous = jnp.roll(best, 1) if self.wrong else jnp.concatenate([jnp.array([BLANK]), best[:-1]])
        keep = (best != BLANK) & (best != previous) & (jnp.arange(len(best)) < length)
        place = jnp.where(keep, jnp.cumsum(keep) - 1, len(best))
        return jnp.full(len(best), PAD).at[place].set(best, mode="drop"), keep.sum()


def drawn(rng, steps=STEPS):
    scores = rng.standard_normal((steps, SYMBOLS))
    scores[0] = scores[-1]  # the wrong port leaves the first symbol out
    scores[0, BLANK] = scores[-1, BLANK] = -9
    return scores, np.array(rng.integers(steps // 2, steps + 1))


def test_a_right_loop_over_values_is_equal():
    case = Case(name="collapse", summary="s", reference=Collapse, model=PortOfCollapse, inputs=drawn)
    assert check(case, compiled=False, hasty=True).passed


@pytest.mark.parametrize("steps", [2, STEPS])
def test_no_cause_is_told_that_fits_some_turns_of_one_input(steps):
    edge = {"short": lambda rng: drawn(rng, steps)}
    told = causes(Collapse, lambda rngs: PortOfCollapse(rngs, wrong=True), drawn, edge_inputs=edge)
    assert not told


class Halved(torch.nn.Module):
    """As often halved as the values ask."""

    def forward(self, x):
        turns = 0
        while x.abs().max() > 1:
            x = x / 2 - torch.sigmoid(x) / 8
            turns += 1
        return x, torch.tensor(turns)


class PortOfHalved(nnx.Module):
    def __init__(self, rngs):
        del rngs

    def __call__(self, x):
        def turn(carry):
            x, turns = carry
            return x / 2 - jnp.tanh(x) / 8, turns + 1

        return nnx.while_loop(lambda carry: jnp.abs(carry[0]).max() > 1, turn, (x, 0))


def test_a_cause_that_holds_for_another_number_of_turns_is_told():
    def inputs(rng):
        return (rng.uniform(2, 30) * rng.standard_normal((3, 4)),)

    told = causes(Halved, PortOfHalved, inputs, modes=("inference",))
    assert told == [("activation", "computes tanh for sigmoid")]
