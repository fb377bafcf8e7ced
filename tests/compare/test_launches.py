"""Kernels of one call: what the profilers tell, against PyTorch's own dispatch, and numbers known by construction."""

import os
import types
from collections import Counter

import jax
import jax.numpy as jnp
import pytest
import torch
from graphmode.compare.speed.jax_launches import in_profile, kind_of
from graphmode.compare.speed.launch_floors import _RELU
from graphmode.compare.speed.launches import MOST_KINDS, OTHER, count_launches, keep_command_buffers_in_profiles
from graphmode.compare.speed.torch_launches import kernel_kind
from torch.utils._python_dispatch import TorchDispatchMode

from graphmode.graph import graphed

NO_KERNEL = (
    *("view", "t", "transpose", "expand", "detach", "empty", "slice", "select", "unbind", "as_strided"),
    *("_unsafe_view", "unsafe_split"),
)


class Dispatched(TorchDispatchMode):
    """The independent count: operators that reach a backend."""

    def __init__(self):
        super().__init__()
        self.counts = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.counts[func._overloadpacket.__name__.lstrip("_")] += func._overloadpacket.__name__ not in NO_KERNEL
        return func(*args, **(kwargs or {}))


def network() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(
        *(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU(inplace=True), torch.nn.MaxPool2d(2)),
        *(torch.nn.Flatten(), torch.nn.Linear(4 * 9, 5), torch.nn.GELU(), torch.nn.Softmax(-1)),
    )


class First(torch.nn.Module):
    """The first output of a recurrent layer."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x)[0]


def inference(module, x):
    with torch.no_grad():
        return module(x)


def training(module, x):
    return torch.autograd.grad(module(x).square().sum(), list(module.parameters()))


@pytest.mark.parametrize(
    ("make", "shape", "run"),
    [
        (network, (2, 3, 8, 8), inference),
        (network, (2, 3, 8, 8), training),
        # autograd adds up gradients out of place under a dispatch mode, so no training where a weight is used twice
        (lambda: First(torch.nn.GRU(4, 6)), (7, 2, 4), inference),
        (lambda: First(torch.nn.LSTM(4, 6)), (7, 2, 4), inference),
        (lambda: First(torch.nn.LSTM(4, 6)), (7, 2, 4), training),
    ],
    ids=["network", "network training", "gru", "lstm", "lstm training"],
)
def test_pytorch_counts_the_operators_that_reach_a_backend(make, shape, run):
    module, x = make(), torch.randn(shape, generator=torch.Generator().manual_seed(0))
    with Dispatched() as dispatched:
        run(module, x)
    told = count_launches("torch.eager", lambda x: run(module, x), x, device="cpu")
    assert told.kernels == dispatched.counts.total()
    assert {kind: n for kind, n in told.by_kind.items() if kind != OTHER}.items() <= dispatched.counts.items()
    assert told.captured is None


def test_a_fused_graph_launches_fewer_kernels():
    def chain(x):
        return jnp.tanh(x * 2 + 1) * 3

    x = jnp.ones(8)
    chain(x)
    eager = count_launches("jax.eager", chain, x, device="cpu")
    assert eager.kernels == 4
    for row, step in (("jax.jit", jax.jit(chain)), ("jax.graphed", graphed(chain, x))):
        step(x)
        assert (told := count_launches(row, step, x, device="cpu")).kernels == 1, told
        assert told.by_kind == {"fusion": 1}


def test_the_body_of_a_loop_counts_as_often_as_it_runs():
    def loop(length):
        return jax.jit(lambda x: jax.lax.scan(lambda c, _: (jnp.tanh(c @ c), None), x, None, length=length)[0])

    x = jnp.full((16, 16), 0.1)
    counts = []
    for length in (10, 20, 40):
        step = loop(length)
        step(x)
        counts.append(count_launches("jax.jit", step, x, device="cpu").kernels)
    body = (counts[1] - counts[0]) / 10
    assert body >= 1  # the product, at least
    assert counts[2] - counts[1] == 20 * body


@pytest.mark.slow  # Inductor compiles C++
def test_functions_that_inductor_fused_count():
    compiled = torch.compile(lambda x: torch.tanh(x * 2 + 1).sum() / 3)
    x = torch.ones(64)
    compiled(x)
    eager = count_launches("torch.eager", lambda x: torch.tanh(x * 2 + 1).sum() / 3, x, device="cpu")
    told = count_launches("torch.compile", compiled, x, device="cpu")
    assert eager.kernels == 5
    assert told.by_kind == {"fusion": 1}
    assert compiled(x) == pytest.approx(64 * torch.tanh(torch.tensor(3.0)).item() / 3)


def test_onnx_runtime_counts_the_nodes_of_its_graph():
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(_RELU, providers=["CPUExecutionProvider"])
    wanted = ["x"]

    def step(batch):
        return session.run(None, {wanted[0]: batch.tensors[0].numpy()})

    batch = types.SimpleNamespace(tensors=[torch.zeros(1)])
    assert count_launches("onnxruntime", step, batch, device="cpu").by_kind == {"Relu": 1}


def test_few_kinds_and_the_rest_together():
    names = ("sin", "cos", "tan", "exp", "log1p", "sqrt", "neg", "abs", "floor", "ceil", "round", "sigmoid", "tanh")
    told = count_launches(
        "torch.eager", lambda x: [getattr(torch, n)(x) for n in ("erf", *names, "sin")], torch.ones(2), device="cpu"
    )
    assert told.kernels == len(names) + 2 == sum(told.by_kind.values())
    assert len(told.by_kind) == MOST_KINDS
    assert (told.by_kind["sin"], told.by_kind[OTHER]) == (2, told.kernels - 2 - (MOST_KINDS - 2))


@pytest.mark.parametrize("row", ["torch.eager", "jax.jit", "onnxruntime"])
def test_a_step_that_cannot_be_counted_says_why(row):
    def broken(batch):
        raise RuntimeError("no such step")

    told = count_launches(row, broken, None, device="cpu")
    assert told.kernels is None
    assert ("session" if row == "onnxruntime" else "no such step") in told.note


def test_after_a_failure_the_next_one_is_counted():
    count_launches("jax.jit", lambda x: 1 / 0, None, device="cpu")
    step = jax.jit(lambda x: x + 1)
    step(jnp.ones(3))
    assert count_launches("jax.jit", step, jnp.ones(3), device="cpu").kernels == 1


def test_what_is_not_told_is_not_counted():
    told = count_launches("torch.aoti", lambda x: x, None, device="cpu")
    assert (told.kernels, bool(told.note)) == (None, True)


GPU_PROFILE = """
planes {{
  name: "/device:GPU:0"
  lines {{
    name: "Stream #1"
    events {{ metadata_id: 1 duration_ps: 9 stats {{ metadata_id: 1 str_value: "regs:1" }}
             stats {{ metadata_id: 2 str_value: "loop_add_fusion.3" }} {graph} }}
    events {{ metadata_id: 1 duration_ps: 9 stats {{ metadata_id: 1 str_value: "regs:1" }} }}
    events {{ metadata_id: 2 duration_ps: 9 stats {{ metadata_id: 4 str_value: "size:4" }} }}
  }}
  event_metadata {{ key: 1 value {{ id: 1 name: "sm90_gemm" }} }}
  event_metadata {{ key: 2 value {{ id: 2 name: "MemcpyD2D" }} }}
  stat_metadata {{ key: 1 value {{ id: 1 name: "kernel_details" }} }}
  stat_metadata {{ key: 2 value {{ id: 2 name: "hlo_op" }} }}
  stat_metadata {{ key: 3 value {{ id: 3 name: "cuda_graph_id" }} }}
  stat_metadata {{ key: 4 value {{ id: 4 name: "memcpy_details" }} }}
}}
"""


@pytest.mark.parametrize(
    ("graph", "captured"), [("", 0.0), ("stats { metadata_id: 3 uint64_value: 7 }", 0.5)], ids=["no graph", "graph"]
)
def test_kernels_on_a_gpu_and_the_share_that_a_graph_replays(graph, captured):
    profile = jax.profiler.ProfileData.from_text_proto(GPU_PROFILE.format(graph=graph))
    assert in_profile(profile, "gpu") == ({"fusion": 1, "sm90_gemm": 1}, captured)


@pytest.mark.parametrize(
    ("instruction", "kind"),
    [
        ("broadcast_add_fusion", "fusion"),
        ("loop_add_fusion.12", "fusion"),
        ("fusion.3.clone.1", "fusion"),
        ("ynn_fusion.1", "ynn_fusion"),
        ("wrapped_tanh", "tanh"),
        ("copy.8", "copy"),
        ("reduce-window.2", "reduce-window"),
    ],
)
def test_kinds_of_instructions(instruction, kind):
    assert kind_of(instruction) == kind


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (
            "void at::native::vectorized_elementwise_kernel<4, at::native::Add<float>>(int)",
            "vectorized_elementwise_kernel",
        ),
        ("triton_poi_fused_add_mul_3", "triton_poi_fused"),
        ("sm90_xmma_gemm_f32f32", "sm90_xmma_gemm_f32f32"),
    ],
)
def test_kinds_of_cuda_kernels(name, kind):
    assert kernel_kind(name) == kind


@pytest.mark.parametrize(
    ("flags", "wanted"),
    [
        ("", "--xla_enable_command_buffers_during_profiling=true"),
        ("--a=1", "--a=1 --xla_enable_command_buffers_during_profiling=true"),
        *[(f"--xla_enable_command_buffers_during_profiling={choice}",) * 2 for choice in ("true", "false")],
    ],
)
def test_command_buffers_in_profiles(monkeypatch, flags, wanted):
    monkeypatch.setenv("XLA_FLAGS", flags)
    keep_command_buffers_in_profiles()
    assert os.environ["XLA_FLAGS"] == wanted


@pytest.mark.gpu
def test_a_cuda_graph_replays_all_that_eager_launches():
    x = torch.ones(64, device="cuda")

    def run(x):
        return torch.tanh(x * 2 + 1)

    run(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run(x)
    eager = count_launches("torch.eager", run, x, device="gpu")
    replayed = count_launches("torch.cudagraph", lambda _: graph.replay(), x, device="gpu")
    assert (eager.kernels, eager.captured) == (3, 0.0)
    assert (replayed.kernels, replayed.captured) == (3, 1.0)
