"""The LSTM at lengths that its blocks divide and that they do not, against both references."""

from dataclasses import replace

import jax
import numpy as np
import pytest
import torch
from flax import nnx
from graphmode.compare import check
from graphmode.models.lstm.case import CASE
from graphmode.models.lstm.model import LSTM
from graphmode.models.lstm.reference import FusedLSTM, HandwrittenLSTM

from graphmode.nn.recurrent.over_time import BLOCK
from graphmode.weights import load, to_state_dict

FEATURES, HIDDEN = 6, 9
LENGTHS = (1, 7, BLOCK, 2 * BLOCK + 5, 2 * BLOCK + 3)


def sequence(steps: int, batch: int):
    return lambda rng: (rng.standard_normal((steps, batch, FEATURES)),)


@pytest.mark.slow
def test_every_length_and_both_references():
    case = replace(
        CASE,
        reference={
            "fused": lambda: FusedLSTM(FEATURES, HIDDEN),
            "handwritten": lambda: HandwrittenLSTM(FEATURES, HIDDEN),
        },
        model=lambda rngs: LSTM(rngs, FEATURES, HIDDEN),
        inputs=sequence(2 * BLOCK, 5),
        check_inputs=None,
        edge_inputs={f"{steps} steps": sequence(steps, 1 + steps % 3) for steps in LENGTHS},
    )
    report = check(case, seed=0, draws=1)
    assert report.passed, str(report)
    assert {p.variant for p in report.parity} == {"handwritten", "default"}


def test_names_and_shapes_are_those_of_torch():
    references = [make(FEATURES, HIDDEN).state_dict() for make in (torch.nn.LSTM, FusedLSTM, HandwrittenLSTM)]
    for state_dict in references:
        assert {k: v.shape for k, v in state_dict.items()} == {k: v.shape for k, v in references[0].items()}
        port = LSTM(nnx.Rngs(0), FEATURES, HIDDEN)
        load(port, state_dict)
        assert port.weight_ih_l0.shape == (FEATURES, 4 * HIDDEN)
        back = to_state_dict(port)
        assert all(torch.equal(back[name], value) for name, value in state_dict.items())


@pytest.mark.parametrize("batch", [1, 3])
def test_vmap_over_sequences(batch):
    port = LSTM(nnx.Rngs(0), FEATURES, HIDDEN)
    x = np.random.default_rng(0).standard_normal((4, 5, batch, FEATURES)).astype(np.float32)
    together = jax.vmap(lambda x: port(x)[0])(x)
    np.testing.assert_allclose(together, np.stack([port(one)[0] for one in x]), rtol=1e-5, atol=1e-6)
