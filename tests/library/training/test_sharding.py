"""Data parallel and fully sharded training, on simulated devices and in two processes, beside a single device."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
import torch
from torch_loops import assert_same, batches, cross_entropy, in_torch, pair

import graphmode as gm
from graphmode.training import data_parallel, fully_sharded

SCRIPT = Path(__file__).parent / "sharded_run.py"


def start(devices: int, *arguments: str) -> subprocess.Popen:
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}"
    environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    return subprocess.Popen(
        [sys.executable, str(SCRIPT), *arguments],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finished(process: subprocess.Popen) -> dict:
    out, err = process.communicate(timeout=500)
    assert process.returncode == 0, err[-3000:]
    return json.loads(out.splitlines()[-1])


@pytest.fixture(scope="module")
def eight() -> dict:
    found = finished(start(8, "devices"))
    assert found["devices"] == 8
    return found


def assert_close(ours, wanted):
    assert len(wanted) == 100
    assert np.mean(wanted[-20:]) < 0.95 * np.mean(wanted[:20]), "nothing was learned"
    np.testing.assert_allclose(ours, wanted, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["plain", "dropout", "accumulate"])
@pytest.mark.parametrize("placement", ["data", "full"])
def test_a_hundred_losses_are_those_of_one_device(eight, placement, kind):
    assert_close(eight["losses"][f"{placement} {kind}"], eight["losses"][f"single {kind}"])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mesh of two axes plain", "least plain"])
def test_other_meshes_and_limits_change_no_number(eight, name):
    assert_close(eight["losses"][name], eight["losses"]["single plain"])


@pytest.mark.slow
def test_dropout_and_accumulation_are_something_else(eight):
    plain = np.array(eight["losses"]["single plain"])
    for kind in ("dropout", "accumulate"):
        assert np.abs(np.array(eight["losses"][f"single {kind}"]) - plain).max() > 1e-3


@pytest.mark.slow
def test_each_device_holds_its_part_of_the_state(eight):
    *whole, total = eight["bytes"]["single plain"]
    assert whole[0] == total
    *copies, _ = eight["bytes"]["data plain"]
    assert copies == [total] * 8
    *parts, _ = eight["bytes"]["full plain"]
    cut = 2 * 16 * 9 + 16 + 16 + 16 * 64 + 64 + 64 * 5  # weights and biases that eight divides
    kept = 5  # the biases of the head
    buffers = 16 + 16
    counters = total - 4 * (3 * (cut + kept) + buffers)  # with two moments for each weight
    assert 0 < counters < 100
    assert parts == [4 * (3 * cut + buffers) // 8 + 4 * 3 * kept + counters] * 8


@pytest.mark.slow
def test_large_arrays_alone_are_cut_where_small_ones_are_not_worth_it(eight):
    specs = eight["specs"]["least plain"]
    cut = [name for name, spec in specs.items() if "data" in spec]
    assert len(cut) == 3 * 3  # the weights of conv, hidden and head, and their moments
    assert len([name for name, spec in eight["specs"]["full plain"].items() if "data" in spec]) > len(cut)


@pytest.mark.slow
def test_what_lies_where_stays_so(eight):
    assert not any("data" in spec for spec in eight["specs"]["data plain"].values())
    batch, key = 16 * (4 * 4 * 2 + 1) * 4, 8
    for name, rows in {"single plain": batch, "data plain": batch // 8, "full plain": batch // 8}.items():
        assert eight["arguments"][name] == eight["bytes"][name][0] + rows + key
        assert eight[f"traces {name}"] == 1


@pytest.mark.slow
def test_batches_on_one_device_are_spread(eight):
    assert eight["holds"] == [False, True]
    assert eight["step"] == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("rows", "ValueError: the batch has 12 rows, which the 8 devices along 'data' of the mesh do not divide"),
        ("parts", "ValueError: the batch has 24 rows in 2 parts"),
        ("string", "TypeError: batch['image'] is a str, and an array was wanted"),
        ("scalar", "ValueError: batch['image'] has shape [], and a batch axis was wanted"),
        (
            "state",
            "ValueError: state lies on device 0, and the step's placement is on 8 devices, 0 to 7",
        ),
        ("axis", "ValueError: axis is 'data', and the mesh has 'rows', 'more'"),
    ],
)
def test_refusals(eight, name, message):
    assert eight["refusals"][name].startswith(message)


@pytest.mark.slow
def test_two_processes_give_their_own_rows(eight):
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = str(free.getsockname()[1])
    processes = [start(4, "process", str(i), "2", port) for i in range(2)]
    try:
        found = [finished(process) for process in processes]
    finally:
        for process in processes:
            process.kill()
    for seen in found:
        assert (seen["devices"], seen["local"]) == (8, 4)
        for placement in ("data", "full"):
            assert_close(seen["losses"][placement], eight["losses"]["single plain"])
            assert seen[f"step {placement}"] == 100
            sums, whole = seen[f"checksums {placement}"], seen[f"whole {placement}"]
            assert sums == found[0][f"checksums {placement}"]
            assert whole.items() <= sums.items()
            assert any(name.startswith("params.") for name in whole)
        assert seen["refusal"].startswith("ValueError: the batch has 12 rows, which the 8 devices")
        held = [n for n in seen["bytes full"][:-1] if n]
        assert max(held) < seen["bytes full"][-1] / 3


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("options", [{}, {"accumulate": 2}, {"steps_per_launch": 2}], ids=str)
@pytest.mark.parametrize("make", [data_parallel, fully_sharded])
def test_a_single_device_steps_as_without_a_placement(make, options):
    net, model = pair()
    given = batches(2)
    step = gm.train_step(model, cross_entropy, gm.optim.adamw(lr=0.01), placement=make(), **options)
    state = step.init()
    for batch in [jax.tree.map(lambda *x: np.stack(x), *given)] if "steps_per_launch" in options else given:
        state, _ = step(state, batch)
    parts = options.get("accumulate", 1)
    in_torch(net, torch.optim.AdamW(net.parameters(), lr=0.01), given, parts=parts)
    assert_same(step, state, net)
    assert step.traces == 1


def test_an_array_is_cut_along_its_largest_axis():
    placement = fully_sharded(least=10)
    for shape, spec in {
        (4, 8): (None, "data"),
        (9, 8, 2): ("data", None, None),
        (3, 3): (),
        (): (),
        (0, 20): (),
    }.items():
        assert placement.of_array(np.zeros(shape)).spec == jax.sharding.PartitionSpec(*spec), shape
    assert data_parallel().of_array(np.zeros((4, 8))).spec == jax.sharding.PartitionSpec()


def test_an_axis_that_the_mesh_lacks_is_named():
    mesh = jax.make_mesh((1, 1), ("rows", "columns"))
    assert data_parallel(mesh, axis="rows").devices == 1
    with pytest.raises(ValueError, match="axis is 'data', and the mesh has 'rows', 'columns'"):
        fully_sharded(mesh)


@pytest.mark.parametrize(
    ("mesh", "words"),
    [
        (4, r"mesh is 4; .*jax.make_mesh\(\(4,\), \('data',\)\)"),
        ("devices", "mesh is a list of 1; leave it out for all 1"),
    ],
)
@pytest.mark.parametrize("make", [data_parallel, fully_sharded])
def test_what_is_no_mesh_is_told(make, mesh, words):
    with pytest.raises(TypeError, match=words):
        make(jax.devices()[:1] if mesh == "devices" else mesh)


def test_tensors_and_words_are_no_batch():
    placement = data_parallel()
    with pytest.raises(TypeError, match=r"batch\['x'\] is a Tensor"):
        placement.put_batch({"x": torch.ones(3)})
    with pytest.raises(ValueError, match=r"has shape \[\], and a batch axis was wanted"):
        placement.put_batch({"x": np.float32(1)})
