"""Equal layers as one `lax.scan` or one after another: what compiles faster, and what then runs faster.

python benchmarks/scanned_layers.py                 two minutes on two cores
python benchmarks/scanned_layers.py --seconds 20    of timed calls for each pair, where the machine is noisy

ALBERT's twelve layers share one weight set, which its scan closes over. MiniLM's six have their own, stacked once by
`gm.stack_layers`, outside the graph. Both forms compute the same, which is asserted, and are timed interleaved.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from beside import Measured, time_forms, told
from flax import nnx
from graphmode.compare.report.bootstrap import interval
from graphmode.models.albert.config import AlbertConfig
from graphmode.models.albert.model import Albert
from graphmode.models.bert.model import BertConfig, BertModel
from rich.console import Console
from rich.table import Table

import graphmode as gm

SIZES = ((2, 16), (8, 128))  # sequences, tokens
SCAN, UNROLLED = "scan", "unrolled"
MINILM = BertConfig(hidden_size=384, num_hidden_layers=6, intermediate_size=1536)
AGREEMENT = 1e-3  # of the largest element: both forms round differently

Forms = dict[str, nnx.Module]


class Scanned(nnx.Module):
    """BERT's encoder over its layers' stacked weights."""

    def __init__(self, layers: Any):
        self.layers = gm.stack_layers(list(layers))

    def __call__(self, hidden_states: jax.Array, attention_mask: jax.Array) -> jax.Array:
        run = nnx.scan(
            lambda layer, x: layer(x, attention_mask), in_axes=(0, nnx.Carry), out_axes=nnx.Carry, graph=True
        )
        return run(self.layers, hidden_states)


def albert() -> Forms:
    return {form: Albert(AlbertConfig(), scan=form == SCAN, rngs=nnx.Rngs(0)) for form in (SCAN, UNROLLED)}


def minilm() -> Forms:
    forms = {form: BertModel(MINILM, rngs=nnx.Rngs(0)) for form in (SCAN, UNROLLED)}
    forms[SCAN].encoder = Scanned(forms[SCAN].encoder.layer)
    return dict(forms)


def forward(graphdef: Any, state: Any, ids: jax.Array, mask: jax.Array) -> jax.Array:
    """The hidden states: what each model gives first."""
    return jax.tree.leaves(nnx.merge(graphdef, state)(ids, mask))[0]


def loss(graphdef: Any, state: Any, ids: jax.Array, mask: jax.Array) -> jax.Array:
    return jnp.square(forward(graphdef, state, ids, mask)).mean()


MODES = {"inference": forward, "forward and backward": jax.value_and_grad(loss, argnums=1)}


def compiled(model: nnx.Module, function: Callable[..., Any], ids: jax.Array) -> tuple[Callable[[], Any], float]:
    """The call that is timed, and the seconds that it took to trace, lower and compile."""
    graphdef, state = nnx.split(model, graph=True)
    arguments = state, ids, jnp.ones_like(ids)
    start = time.perf_counter()
    graph = jax.jit(partial(function, graphdef)).lower(*arguments).compile()
    return partial(graph, *arguments), time.perf_counter() - start


def compared(forms: Forms, function: Callable[..., Any], ids: jax.Array, seconds: float) -> list[str]:
    """A row: the compile time of each form, its median, and scan over unrolled with its 95 % interval."""
    calls, compile_s = {}, {}
    for form, model in forms.items():
        calls[form], compile_s[form] = compiled(model, function, ids)
    a, b = (np.asarray(jax.tree.leaves(calls[form]())[0]) for form in (SCAN, UNROLLED))
    np.testing.assert_allclose(a, b, rtol=0, atol=AGREEMENT * np.abs(b).max())
    measured = Measured(name="", size="")
    time_forms({form: partial(_finished, call) for form, call in calls.items()}, measured, budget_s=seconds)
    samples = {form: tuple(measured.samples_s[form]) for form in calls}
    low, high = interval(samples[SCAN], samples[UNROLLED]) or (float("nan"), float("nan"))
    medians = {form: float(np.median(samples[form])) for form in samples}
    return [
        *(f"{compile_s[form]:.2f} s" for form in (SCAN, UNROLLED)),
        *(f"{1e3 * medians[form]:.2f} ms" for form in (SCAN, UNROLLED)),
        told((medians[SCAN] / medians[UNROLLED], low, high)),
    ]


def _finished(call: Callable[[], Any], _: int) -> None:
    jax.block_until_ready(call())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=8.0, help="of timed calls for each pair")
    options = parser.parse_args()
    table = Table(
        "model",
        "mode",
        "batch",
        *(f"{what}, {form}" for what in ("compile", "call") for form in (SCAN, UNROLLED)),
        "scan / unrolled",
    )
    rng = np.random.default_rng(0)
    for name, forms in {"ALBERT, 12 layers of one weight set": albert(), "MiniLM, 6 layers": minilm()}.items():
        for mode, function in MODES.items():
            for batch, length in SIZES:
                ids = jnp.asarray(rng.integers(1, AlbertConfig().vocab_size, (batch, length)))
                table.add_row(name, mode, f"{batch} x {length}", *compared(forms, function, ids, options.seconds))
    Console(width=160).print(table)


if __name__ == "__main__":
    main()
