"""Dropout that is called as a function is off while both sides are compared, as that of modules is."""

import jax
import pytest
import torch
import torch.nn.functional as F
from flax import nnx
from graphmode.compare import Case, CaseError, check
from graphmode.compare.functional_dropout import functional_dropout_as_it_was, functional_dropout_off, note_mode

from graphmode import nn


class Reference(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(8, 16)
        self.attention = torch.nn.MultiheadAttention(16, 4, dropout=0.2, batch_first=True)
        self.lstm = torch.nn.LSTM(16, 8, num_layers=2, dropout=0.3, batch_first=True)

    def forward(self, x):
        h = F.dropout(torch.relu(self.first(x)), 0.5, self.training)
        h, _ = self.attention(h, h, h)
        h, _ = self.lstm(h)
        return F.scaled_dot_product_attention(h, h, h, dropout_p=0.1 if self.training else 0.0)


class Port(nnx.Module):
    def __init__(self, always: bool, *, rngs: nnx.Rngs):
        self.always = always
        self.first = nn.Linear(8, 16, rngs=rngs)
        self.attention = nn.MultiheadAttention(16, 4, dropout=0.2, batch_first=True, rngs=rngs)
        self.lstm = nn.LSTM(16, 8, num_layers=2, dropout=0.3, batch_first=True, rngs=rngs)
        self.stream = rngs.dropout.fork()
        self.use_running_average = False

    def __call__(self, x):
        trains = self.always or not self.use_running_average
        h = nn.functional.dropout(jax.nn.relu(self.first(x)), 0.5, trains, rngs=self.stream)
        h, _ = self.attention(h, h, h)
        h, _ = self.lstm(h)
        return nn.functional.scaled_dot_product_attention(h, h, h)


def case(always=False, reference=Reference):
    return Case(
        name="drops",
        summary="dropout by functions",
        reference=reference,
        model=lambda rngs: Port(always, rngs=rngs),
        inputs=lambda rng: (rng.standard_normal((4, 6, 8)).astype("float32"),),
    )


def test_dropout_by_functions_attention_and_recurrent_layers_is_off_in_training():
    report = check(case())
    assert report.passed, report


def test_a_port_that_drops_in_inference_is_told():
    report = check(case(always=True), locate=False)
    assert not report.passed
    assert any(t.mode == "inference" and not t.equal for t in report.parity[0].tensors)


def test_a_reference_that_drops_in_inference_is_refused():
    class Drops(Reference):
        def forward(self, x):
            return F.dropout(super().forward(x), 0.5)

    with pytest.raises(CaseError, match=r"(?s)not deterministic.*in\s+inference"):
        check(case(reference=Drops))


def test_masks_that_are_given_and_rates_in_inference_stay():
    x = jax.numpy.ones((4, 4))
    with functional_dropout_off():
        note_mode("forward_backward")
        assert (nn.functional.dropout(x, 0.5, mask=jax.numpy.zeros((4, 4), bool)) == 0).all()
        assert (nn.functional.dropout(x, 0.5, rngs=nnx.Rngs(0)) == 1).all()
        assert (F.dropout(torch.ones(4, 4), 0.5) == 1).all()
        note_mode("inference")
        assert not (F.dropout(torch.ones(40, 4), 0.5) == 1).all()
    assert not (F.dropout(torch.ones(40, 4), 0.5) == 1).all()


def test_what_a_model_scripts_as_it_is_built_is_pytorchs_own():
    with functional_dropout_off(), functional_dropout_as_it_was():
        net = torch.jit.script(torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Dropout(0.1)))
        assert net(torch.ones(2, 8)).shape == (2, 16)
