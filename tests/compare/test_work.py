"""Least work against numbers computed by hand."""

import dataclasses

import numpy as np
import pytest
import torch
from graphmode.compare import Case
from graphmode.compare.report.records import Floors, Work
from graphmode.compare.speed.work import least_work
from graphmode.compare.torch_side import TorchSide
from graphmode.models import zoo
from torch import nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

FLOAT = 4


def work_of(module, inputs, mode="inference", *, loss=None, dtype="float32", **options) -> Work:
    case = Case(name="case", summary="", reference=lambda: module, model=lambda rngs: None, inputs=lambda rng: inputs)
    case = dataclasses.replace(case, loss=(loss, loss) if loss else None)
    side = TorchSide(module.float(), case, dtype=dtype, device="cpu")
    cotangents = None
    if mode != "inference" and loss is None:
        cotangents = {name: np.ones_like(value) for name, value in side.run(inputs, "inference").outputs.items()}
    return least_work(side, mode, side.place(inputs, mode, cotangents), **options)


def normal(*shape) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape, np.float32)


class Function(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


def test_a_linear_layer():
    work = work_of(nn.Linear(24, 40), (normal(8, 24),))
    assert work.flops == 2 * 8 * 24 * 40
    assert work.bytes == FLOAT * (24 * 40 + 40 + 8 * 24 + 8 * 40)
    assert (work.mode, work.dtype, work.batch) == ("inference", "float32", None)


def test_a_linear_layer_in_training():
    work = work_of(nn.Linear(24, 40), (normal(8, 24),), "forward_backward")
    assert work.flops == 3 * 2 * 8 * 24 * 40
    gradients = 24 * 40 + 40 + 8 * 24
    assert work.bytes == FLOAT * (24 * 40 + 40 + 8 * 24 + 8 * 40 + gradients)  # it keeps its input and weight alone


def test_a_training_step_keeps_its_gradients_to_itself():
    parameters, data = 24 * 40 + 40, 8 * 24
    work = work_of(nn.Linear(24, 40), (normal(8, 24),), "train_step", optimizer_bytes=100)
    assert work.bytes == FLOAT * (parameters + data + 8 * 40 + parameters) + 2 * 100


def test_activations_that_the_backward_pass_keeps():
    elements = 1000
    plain = work_of(Function(lambda x: x * 2), (normal(elements),), "forward_backward")
    kept = work_of(Function(lambda x: (x * 2).sin() * 2), (normal(elements),), "forward_backward")
    assert plain.bytes == FLOAT * 3 * elements  # input, output, gradient
    assert kept.bytes - plain.bytes == FLOAT * elements  # sin's input


def test_the_dtype_of_the_run():
    assert work_of(nn.Linear(4, 4), (normal(2, 4),), dtype="bfloat16").bytes == 2 * (16 + 4 + 8 + 8)


@pytest.mark.parametrize("mode", ["inference", "forward_backward"])
def test_resnet18(mode):
    case = zoo.load("resnet18")
    side = TorchSide(next(iter(case.references.values()))().float(), case, dtype="float32", device="cpu")
    inputs = (normal(1, 3, 224, 224),)
    before = {name: buffer.clone() for name, buffer in side.module.named_buffers()}
    cotangents = {"output": normal(1, 1000)}
    work = least_work(side, mode, side.place(inputs, mode, None if mode == "inference" else cotangents))
    forward = 2 * 1.814e9  # torchvision's documentation, in multiplications
    assert work.flops == pytest.approx(forward if mode == "inference" else 3 * forward, rel=1e-3)
    parameters = 11_689_512 * FLOAT
    assert work.bytes > parameters if mode == "inference" else work.bytes > 2 * parameters
    assert all(torch.equal(buffer, before[name]) for name, buffer in side.module.named_buffers())


@pytest.mark.parametrize(("layer", "gates"), [(nn.LSTM, 4), (nn.GRU, 3), (nn.RNN, 1)])
@pytest.mark.parametrize(("mode", "passes"), [("inference", 1), ("forward_backward", 3)])
def test_recurrent_layers(layer, gates, mode, passes):
    steps, batch, features, hidden = 7, 3, 8, 16

    class First(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = layer(features, hidden, num_layers=2)

        def forward(self, x):
            return self.layer(x)[0]

    work = work_of(First(), (normal(steps, batch, features),), mode)
    whole = 2 * steps * batch * gates * hidden * (features + hidden + 2 * hidden)
    # the first step starts from zeros, which are no parameter: nothing of the state's gradient has to be found there
    missing = 2 * batch * gates * hidden * hidden * 2
    assert whole * passes - missing <= work.flops <= whole * passes


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("mode", "passes"), [("inference", 1), ("forward_backward", 3)])
def test_attention(mode, passes, causal):
    shape = batch, heads, length, size = 2, 3, 16, 8
    module = Function(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=causal))
    work = work_of(module, tuple(normal(*shape) for _ in range(3)), mode)
    pairs = length * (length + 1) / 2 if causal else length * length
    assert work.flops == passes * 2 * 2 * batch * heads * pairs * size


def test_a_transformer_layer_counts_as_its_products_do():
    length, width, wide = 5, 16, 32
    module = nn.TransformerEncoderLayer(width, 4, wide, batch_first=True, dropout=0.0)
    work = work_of(module, (normal(2, length, width),))
    assert work.flops == 2 * 2 * (length * (4 * width * width + 2 * width * wide) + 2 * length * length * width)
    assert torch.backends.mha.get_fastpath_enabled()


def test_products_with_vectors():
    module = Function(lambda a, x: torch.mv(a, x).dot(x))
    assert work_of(module, (normal(6, 6), normal(6))).flops == 2 * 6 * 6 + 2 * 6


@pytest.mark.parametrize(
    "module", [nn.Conv2d(3, 5, 3, stride=2), nn.ConvTranspose2d(3, 5, 3), nn.Conv2d(3, 6, 3, groups=3)]
)
def test_convolutions_as_pytorch_counts_them(module):
    x = normal(2, 3, 9, 9)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        module(torch.from_numpy(x))
    assert work_of(module, (x,)).flops == counter.get_total_flops() > 0


@pytest.mark.parametrize(("mode", "passes"), [("inference", 1), ("forward_backward", 3)])
@pytest.mark.parametrize(
    ("module", "multiplications"),
    [
        (nn.Conv2d(6, 8, 3, padding=1), 10 * 12 * 8 * 6 * 9),
        (nn.Conv2d(6, 8, 3, padding=1, groups=2), 10 * 12 * 8 * 3 * 9),
        (nn.Conv2d(6, 6, 3, padding=1, groups=6), 10 * 12 * 6 * 9),
        (nn.Conv2d(6, 12, 3, stride=2, padding=1, groups=6), 5 * 6 * 12 * 9),
        (nn.ConvTranspose2d(6, 8, 3), 10 * 12 * 6 * 8 * 9),
        (nn.ConvTranspose2d(6, 8, 3, groups=2), 10 * 12 * 6 * 4 * 9),
    ],
    ids=str,
)
def test_convolutions_by_hand(module, multiplications, mode, passes):
    """Forward one product, backward two: the gradients of the input and of the weight."""
    assert work_of(module, (normal(2, 6, 10, 12),), mode).flops == passes * 2 * 2 * multiplications


def test_a_table_is_read_where_it_is_looked_up():
    rows, width = 1000, 8
    work = work_of(nn.Embedding(rows, width), (np.array([[1, 5], [5, 7]]),))
    assert work.bytes == 8 * 4 + FLOAT * width * (3 + 4)


def test_a_table_that_is_multiplied_by_too_is_read_whole():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(100, 8)

        def forward(self, ids):
            return self.table(ids) @ self.table.weight.T

    work = work_of(Tied(), (np.array([1, 5]),))
    assert work.bytes == 8 * 2 + FLOAT * (100 * 8 + 2 * 100)


def test_what_is_not_read_does_not_count():
    class Half(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight, self.unused = nn.Parameter(torch.ones(100)), nn.Parameter(torch.ones(100))

        def forward(self, x):
            return x + self.weight[:50]

    assert work_of(Half(), (normal(50),)).bytes == FLOAT * (50 + 50 + 50)


def test_an_output_that_is_an_input_is_not_written():
    assert work_of(Function(lambda x: (x, x[:2], x + 1)), (normal(10),)).bytes == FLOAT * (10 + 10)


def test_statistics_that_change_are_written():
    features, batch = 6, 4
    work = work_of(nn.BatchNorm1d(features, affine=False), (normal(batch, features),), "forward_backward")
    statistics = 2 * features * FLOAT + 8  # num_batches_tracked
    data = batch * features * FLOAT
    kept = 2 * features * FLOAT  # mean and inverse deviation of the batch
    assert work.bytes == 2 * statistics + 3 * data + kept


def test_the_floor_takes_the_slower_of_bytes_and_operations():
    floors = Floors(bytes_per_s=10, flops_per_s={"float32": 100}, launch_s={}, cache_bytes=50, cache_bytes_per_s=40)
    work = {"case": "c", "mode": "inference", "dtype": "float32"}
    assert floors.of(Work(**work, flops=100, bytes=100)) == 10  # from memory
    assert floors.of(Work(**work, flops=100, bytes=40)) == 1  # from the cache
    assert floors.of(Work(**work, flops=1000, bytes=100)) == 10
    assert floors.of(Work(**work | {"dtype": "bfloat16"}, flops=1, bytes=1)) is None
