"""`graphmode draft` of branches on values, of what is asserted of them, and of what a mask selects."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest
from flax import nnx
from graphmode.compare import check
from graphmode.compare.draft import draft
from graphmode.compare.locate import locate


def drafted(folder, name, *inputs):
    made = draft(f"{folder / 'branches.py'}:{name}", inputs)
    path = folder / f"{name.lower()}_port.py"
    path.write_text(made.text)
    return made, locate(f"{path}:CASE")


@pytest.mark.parametrize("name", ["Branching", "Masked", "Asserting", "Looping", "Placing"])
def test_a_draft_of_branches_on_values_is_equal(folder, name):
    made, case = drafted(folder, name, *(("3,5,4", "3,5,4", "3,5:6") if name == "Masked" else ("3,4",)))
    assert made.text.count("# TODO") == made.text.count("max_steps: the most turns"), made.text
    scaled = {f"times {each}": _scaled(case.inputs, each) for each in (-3, 0.1, 40)}
    report = check(replace(case, edge_inputs=scaled, adversarial=("zeros", "all negative")), draws=3)
    assert report.passed, f"{report}\n{made.text}"


def _scaled(inputs, factor):
    def scaled(rng):
        first, *rest = inputs(rng)
        return (first * factor, *rest)

    return scaled


def test_what_no_function_gives_stays_a_branch_that_is_marked(folder):
    made, _ = drafted(folder, "Left", "3,4")
    assert made.text.count("# TODO C01") == 4, made.text
    assert "= gm.cond(" not in made.text


def test_what_eager_code_raises_for_is_raised_by_the_graph(folder):
    _, case = drafted(folder, "Asserting", "3,4")
    model = case.models["default"](nnx.Rngs(0))
    with pytest.raises(Exception, match=r"7\.0 is above 5\.0"):
        jax.block_until_ready(jax.jit(model)(jnp.full((3, 4), 7.0)))
    with pytest.raises(Exception, match=r"too large|x\.abs\(\)\.max\(\) < 1000000000.0"):
        jax.block_until_ready(jax.jit(model)(jnp.full((3, 4), -2e9)))
    with pytest.raises(Exception, match=r"not \{a number\}"):
        jax.block_until_ready(jax.jit(model)(jnp.full((3, 4), jnp.nan)))
