"""Floors: what is measured, how it is taken in turn; and no number is asserted, for a machine is what it is."""

import math
import sys

import pytest
from graphmode.compare.report.records import Work
from graphmode.compare.speed import launch_floors
from graphmode.compare.speed.floors import FEWEST_REPEATS, REPEATS, Probe, interleave, measure_floors


@pytest.fixture(scope="module")
def floors():
    return measure_floors("cpu", ("float32", "bfloat16"))


def test_rates_and_launches_are_there(floors):
    values = [floors.bytes_per_s, floors.cache_bytes_per_s, floors.cache_bytes, *floors.flops_per_s.values()]
    assert all(math.isfinite(v) and v > 0 for v in (*values, *floors.launch_s.values()))
    assert floors.flops_per_s.keys() == {"float32", "bfloat16"}
    usual = {launch_floors.TORCH_OPERATION, launch_floors.JIT_CALL, launch_floors.GRAPHED_CALL}
    assert floors.launch_s.keys() >= usual | {launch_floors.SCAN_STEP, launch_floors.SCAN_STEP_OF_A_PRODUCT}


def test_a_call_takes_longer_than_a_step_inside_of_one(floors):
    assert floors.launch_s[launch_floors.SCAN_STEP] < floors.launch_s[launch_floors.JIT_CALL]


def test_the_floor_of_a_case(floors):
    work = {"case": "c", "mode": "inference", "dtype": "float32"}
    large = 10 * floors.cache_bytes
    assert floors.of(Work(**work, flops=0, bytes=large)) == large / floors.bytes_per_s
    assert floors.of(Work(**work, flops=1e12, bytes=1)) == 1e12 / floors.flops_per_s["float32"]


@pytest.mark.parametrize("dtype", ["int8", "tf32"])
def test_a_dtype_that_cannot_be_measured(dtype):
    with pytest.raises(ValueError, match=f"{dtype}.*'cpu'; choose from float32, bfloat16, float64$"):
        measure_floors("cpu", ("float32", dtype))


def test_probes_take_turns():
    turns = []
    probes = [Probe(lambda name=name: turns.append(name), 1, name) for name in "ab"]
    for probe in probes:
        probe.calls = 1
    interleave(probes, budget_s=60)
    assert {len(probe.samples) for probe in probes} == {REPEATS}
    last_b, first_b = max(i for i, t in enumerate(turns) if t == "a"), turns.index("b")
    assert first_b < last_b  # a went on after b had begun
    assert all(probe.calls > 1 for probe in probes)  # a sample of next to nothing holds many calls


def test_the_best_repeat_counts():
    """What else a machine does makes a repeat longer, and what the machine can do no less."""
    assert Probe(lambda: None, 1, samples=[3e-3, 1e-3, 2e-3]).seconds == 1e-3


def test_few_repeats_where_time_has_run_out():
    probe = Probe(lambda: None, 1)
    interleave([probe], budget_s=0)
    assert len(probe.samples) == FEWEST_REPEATS


def test_the_onnx_model_is_what_onnx_would_write():
    helper = pytest.importorskip("onnx").helper
    x, y = (helper.make_tensor_value_info(name, 1, [1]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 16)], ir_version=8)
    written = sys.modules["onnx"].load_from_string(launch_floors._RELU)
    assert written.graph == model.graph


@pytest.mark.gpu
def test_floors_of_a_gpu():
    floors = measure_floors("gpu", ("float32", "tf32", "bfloat16"))
    assert floors.flops_per_s.keys() == {"float32", "tf32", "bfloat16"}
    assert {launch_floors.CUDA_KERNEL, launch_floors.CUDA_GRAPH_NODE} <= floors.launch_s.keys()
    assert all(value > 0 for value in (floors.bytes_per_s, *floors.flops_per_s.values(), *floors.launch_s.values()))
