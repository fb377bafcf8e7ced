"""What is restored is what was saved, bit by bit; and what cannot be, is refused by name."""

import errno
import json
import logging
import resource
import shutil
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from checkpoint_cases import CASES, Model, bits, make, run
from flax import nnx

import graphmode as gm

pytest.importorskip("orbax.checkpoint")
Checkpoints = gm.training.Checkpoints


@pytest.fixture(scope="module")
def once(tmp_path_factory):
    step, folder = make(), tmp_path_factory.mktemp("checkpoints") / "run"
    with Checkpoints(folder, every=1) as checkpoints:
        state = step.init()
        for number in range(4):
            state, _ = run(step, state, range(number, number + 1))
            checkpoints.save(state, data={"batch": number + 1}, metrics={"loss": jnp.asarray(0.5)})
    return folder, step


@pytest.fixture
def saved(once, tmp_path):
    """A folder with the checkpoints of steps 2, 3 and 4, and the step that they are of."""
    folder, step = once
    return shutil.copytree(folder, tmp_path / "run"), step


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_resumed_is_uninterrupted(name, tmp_path):
    step = CASES[name]()
    whole, losses = run(step, step.init(), range(6))
    with Checkpoints(tmp_path, every=3) as checkpoints:
        state, before = run(step, step.init(), range(3))
        assert checkpoints.save(state, data={"batch": 3, "order": [2, 0, 1], "best": float("inf")})
    second = CASES[name]()  # knows nothing of the first
    state, data = Checkpoints(tmp_path).restore(second)
    assert data == {"batch": 3, "order": [2, 0, 1], "best": float("inf")}
    assert jax.tree.structure(state) == jax.tree.structure(second.init())
    state, after = run(second, state, range(3, 6))
    assert before + after == losses
    assert bits(state) == bits(whole)


def test_what_is_saved_is_the_state_before_it_is_donated(tmp_path):
    """The steps that follow write over its memory while it is still being written to the disk."""
    step = make(Model(nnx.Rngs(0), hidden=50_000))
    state, _ = run(step, step.init(), range(1))
    expected = bits(state)
    with Checkpoints(tmp_path, every=1) as checkpoints:
        checkpoints.save(state)
        state, _ = run(step, state, range(1, 20))
        checkpoints.wait()
        restored, _ = checkpoints.restore(step)
    assert bits(restored) == expected != bits(state)


def test_arrays_without_elements_are_restored(tmp_path):
    class Empty(nnx.Module):
        def __init__(self):
            self.weight = nnx.Param(jnp.ones(3))
            self.none = nnx.BatchStat(jnp.ones((0, 4), jnp.bfloat16))

    step = gm.train_step(Empty(), lambda model, batch: jnp.sum(model.weight**2), gm.optim.sgd())
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(step.init(), force=True)
        assert bits(checkpoints.restore(step)[0]) == bits(step.init())


def test_every_keep_and_force(once, tmp_path):
    step = once[1]
    state = step.init()
    with Checkpoints(tmp_path, every=3, keep=2, asynchronous=False) as checkpoints:
        did = []
        for number in range(10):
            state, _ = run(step, state, range(number, number + 1))
            did.append(checkpoints.save(state, step=number + 1))
            assert did[-1] == checkpoints.is_due(number + 1)
        assert [number + 1 for number, done in enumerate(did) if done] == [3, 6, 9]
        assert checkpoints.steps == [6, 9]
        assert checkpoints.save(state, force=True)
        assert not checkpoints.save(state, force=True)
        assert checkpoints.steps == [9, 10]
        assert checkpoints.restore(step, at=9)[0].step == 9


def test_launches_of_several_steps_do_not_miss_a_time(once, tmp_path):
    step = once[1]
    state = step.init()
    with Checkpoints(tmp_path, every=5, keep=None) as checkpoints:
        for start in range(0, 12, 3):
            state, _ = run(step, state, range(start, start + 3))
            assert checkpoints.save(state) == checkpoints.is_due(start + 3, 3)
    assert checkpoints.steps == [6, 12]


def test_nothing_to_restore(once, tmp_path):
    assert Checkpoints(tmp_path / "not there").restore(once[1]) is None
    assert not (tmp_path / "not there").exists()
    (tmp_path / "2.orbax-checkpoint-tmp").mkdir()
    (tmp_path / "notes").mkdir()
    assert Checkpoints(tmp_path).restore(once[1]) is None


def test_what_a_kill_left_is_neither_listed_nor_kept(saved):
    folder, step = saved
    for name in ("5.orbax-checkpoint-tmp", "1.removed"):
        shutil.copytree(folder / "4", folder / name)
    with Checkpoints(folder, every=1) as checkpoints:
        assert checkpoints.steps == [2, 3, 4]
        state, _ = run(step, checkpoints.restore(step)[0], range(4, 5))
        assert checkpoints.save(state)
    assert sorted(path.name for path in folder.iterdir()) == ["3", "4", "5"]


def test_a_removal_that_is_cut_short_leaves_nothing_that_is_listed(saved, monkeypatch):
    folder, step = saved
    monkeypatch.setattr(shutil, "rmtree", lambda *_, **__: None)
    with Checkpoints(folder, every=1) as checkpoints:
        state, _ = run(step, checkpoints.restore(step)[0], range(4, 5))
        checkpoints.save(state)
    assert checkpoints.steps == [3, 4, 5]
    assert Checkpoints(folder).restore(step)[0].step == 5


def test_manifest(saved):
    folder, step = saved
    manifest = json.loads((folder / "4" / "manifest" / "data.json").read_text())
    assert manifest == Checkpoints(folder).manifest(4)
    assert (manifest["format"], manifest["graphmode"], manifest["step"]) == (1, gm.__version__, 4)
    assert (manifest["data"], manifest["metrics"]) == ({"batch": 4}, {"loss": 0.5})
    arrays = manifest["arrays"]
    assert arrays["params.first.weight"] == {"shape": [8, 16], "dtype": "float32"}
    assert arrays["rest.dropout.rngs.key"] == {"shape": [], "dtype": "key<fry>"}
    assert arrays["optimizer.slots.exp_avg.first.weight"] == {"shape": [8, 16], "dtype": "float32"}
    assert len(arrays) == len(jax.tree.leaves(step.init()))
    assert manifest["checksums"].keys() == arrays.keys()


OTHERS = {
    "missing": (
        lambda: make(averaging=CASES["averages"]()._options["averaging"]),
        ["missing from it:", "average.0.first.weight float32[8, 16]"],
    ),
    "left over": (
        lambda: make(Model(nnx.Rngs(0), bias=False)),
        ["3 in it and not wanted:", "params.first.bias float32[16]", "optimizer.slots.exp_avg.first.bias"],
    ),
    "another shape": (
        lambda: make(Model(nnx.Rngs(0), hidden=17)),
        ["of another shape or dtype:", "params.first.weight is float32[8, 16], and float32[8, 17] was wanted"],
    ),
    "another optimizer": (
        lambda: make(tx=gm.optim.sgd(lr=0.1, momentum=0.9)),
        ["optimizer.slots.momentum_buffer.first.weight", "optimizer.slots.exp_avg_sq.first.weight"],
    ),
    "another random generator": (
        lambda: make(Model(nnx.Rngs(jax.random.key(0, impl="rbg")))),
        ["rest.dropout.rngs.key is key<fry>[], and key<rbg>[] was wanted"],
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_another_model_is_refused_by_the_names_of_its_arrays(name, saved):
    other, told = OTHERS[name]
    with pytest.raises(ValueError, match="is of another model, optimizer or step") as raised:
        Checkpoints(saved[0]).restore(other())
    assert all(part in str(raised.value) for part in [str(saved[0] / "4"), *told]), raised.value


def test_a_newer_format_is_refused(saved):
    folder, step = saved
    path = folder / "4" / "manifest" / "data.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 3, "graphmode": "9.9"}))
    with pytest.raises(ValueError, match=r"newer graphmode \(9\.9\): format 3, and this one reads up to 1"):
        Checkpoints(folder).restore(step)


def test_damaged_arrays_are_told_and_the_older_checkpoint_is_there(saved):
    folder, step = saved
    for path in (folder / "4" / "state").rglob("d/*"):
        path.write_bytes(b"\0" * 50)
    with pytest.raises(ValueError, match=r"4 is damaged: .*Others .*\[2, 3\], .*at=3\).* discard_after\(3\)") as raised:
        Checkpoints(folder).restore(step)
    assert len(str(raised.value)) < 800
    assert "registry" not in str(raised.value)
    assert Checkpoints(folder).restore(step, at=3)[0].step == 3


def test_a_changed_byte_is_told_by_the_name_of_its_array(tmp_path):
    """Arrays that are small lie in Orbax's tree of names, which has checksums of its own; others do not."""
    step = make(Model(nnx.Rngs(0), hidden=512))
    state, _ = run(step, step.init(), range(2))
    with Checkpoints(tmp_path, every=1) as checkpoints:
        checkpoints.save(state)
    good, told = bits(state), []
    for path in (tmp_path / "2" / "state").rglob("d/*"):
        content = path.read_bytes()
        for at in range(40, len(content), len(content) // 4):
            path.write_bytes(content[:at] + bytes([content[at] ^ 0x10]) + content[at + 1 :])
            try:
                assert bits(checkpoints.restore(step)[0]) == good  # a byte that nothing reads
            except ValueError as error:
                told.append(str(error))
        path.write_bytes(content)
    assert all("2 is damaged: " in one for one in told)
    assert any("first.weight is not what was saved at step 2, by the checksum" in one for one in told), told


def test_checksums_are_compared_by_name_and_may_be_missing(saved):
    folder, step = saved
    good = bits(Checkpoints(folder).restore(step)[0])
    manifest = folder / "4" / "manifest" / "data.json"
    content = json.loads(manifest.read_text())
    content["checksums"]["params.first.weight"] += 1
    manifest.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"4 is damaged: params\.first\.weight is not what was saved at step 4, by"):
        Checkpoints(folder).restore(step)
    del content["checksums"]  # as checkpoints were written before
    manifest.write_text(json.dumps(content))
    assert bits(Checkpoints(folder).restore(step)[0]) == good
    del content["arrays"]  # which all have
    manifest.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"4 is damaged: its manifest/data\.json has no arrays"):
        Checkpoints(folder).restore(step)


def test_a_damaged_checkpoint_prints_nothing_beside_the_error(saved, capfd):
    folder, step = saved
    before = sys.unraisablehook
    for path in (folder / "4" / "state" / "d").iterdir():
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    try:
        with pytest.raises(ValueError, match="4 is damaged: "):
            Checkpoints(folder).restore(step)
        time.sleep(0.3)  # for threads that report to a loop which is closed
    finally:
        sys.unraisablehook = before
    assert "Event loop is closed" not in capfd.readouterr().err
    assert Checkpoints(folder).restore(step, at=3)[0].step == 3
    assert sys.unraisablehook is before


@pytest.mark.parametrize("content", [None, "", "[]", '{"format": "x"}'])
def test_a_numbered_folder_that_is_no_checkpoint_is_refused(content, once, tmp_path):
    (tmp_path / "7" / "manifest").mkdir(parents=True)
    if content is not None:
        (tmp_path / "7" / "manifest" / "data.json").write_text(content)
    for at in (None, 7):
        with pytest.raises(ValueError, match=r"7 is no checkpoint of graphmode"):
            Checkpoints(tmp_path).restore(once[1], at=at)


def test_one_that_is_incomplete_is_passed_over_and_gives_up_its_name(saved, caplog):
    folder, step = saved
    (folder / "4" / "manifest" / "data.json").write_text("")
    with Checkpoints(folder, every=1) as checkpoints:
        state, _ = checkpoints.restore(step)
        assert int(state.step) == 3
        assert "4 is passed over, since it is not complete" in caplog.text
        state, _ = run(step, state, range(3, 4))
        assert checkpoints.save(state)
    assert checkpoints.steps == [2, 3, 4]
    assert f"{folder / '4'} is not complete, and is now {folder / '4.incomplete'}" in caplog.text


@pytest.mark.parametrize("lost", ["manifest.ocdbt", "_METADATA"])
def test_what_is_damaged_is_told_in_a_line(lost, saved):
    folder, step = saved
    (folder / "4" / "state" / lost).unlink()
    with pytest.raises(ValueError, match="4 is damaged: ") as raised:
        Checkpoints(folder).restore(step)
    assert "registry" not in str(raised.value)
    assert "tensorstore_spec" not in str(raised.value)
    assert len(str(raised.value)) < 800


def test_wrong_arguments(saved, tmp_path):
    folder, step = saved
    (tmp_path / "file").write_text("")
    for bad, told in {
        folder / "4": r"one checkpoint; give .*run, and restore\(step, at=4\)",
        tmp_path / "file": "which is a file",
        "gs://bucket/run": "give a folder of a file system",
    }.items():
        with pytest.raises(ValueError, match=told):
            Checkpoints(bad)
    with pytest.raises(ValueError, match="every is 0"):
        Checkpoints(folder, every=0)
    checkpoints = Checkpoints(folder, every=1)
    with pytest.raises(ValueError, match=r"at is 9, and .*run has 2, 3, 4"):
        checkpoints.restore(step, at=9)
    with pytest.raises(TypeError, match="at is '3'; give an integer"):
        checkpoints.restore(step, at="3")
    with pytest.raises(TypeError, match="state is a dict"):
        checkpoints.save({})
    consumed, _ = checkpoints.restore(step)
    with pytest.raises(TypeError, match="step is a TrainState; give the TrainStep that goes on"):
        checkpoints.restore(consumed)
    state, _ = run(step, consumed, range(1))
    with pytest.raises(ValueError, match="state was consumed by an earlier step"):
        checkpoints.save(consumed)
    with pytest.raises(ValueError, match="step is 7, and the state's is 5"):
        checkpoints.save(state, step=7)
    for data in ({"x": np.int64(1)}, {"x": (1, 2)}, {1: 2}, 3):
        with pytest.raises(TypeError, match=r"data is .*JSON"):
            checkpoints.save(state, data=data)
    with pytest.raises(TypeError, match=r"metrics is .*scalars"):
        checkpoints.save(state, metrics={"loss": jnp.ones(2)})
    assert checkpoints.save(state)
    checkpoints.close()
    state, _ = run(step, state, range(1))
    for saves in (lambda: checkpoints.save(state), lambda: gm.training.fit(step, iter(()), checkpoints=checkpoints)):
        with pytest.raises(RuntimeError, match=r"Checkpoints\(.*\) is closed; save before close"):
            saves()
    assert checkpoints.steps[-1] == 5


def test_another_run_does_not_write_into_the_folder(saved):
    folder, step = saved
    with Checkpoints(folder, every=1) as checkpoints:
        state, _ = run(step, step.init(), range(1))
        with pytest.raises(ValueError, match=r"has step 4 already, .* of step 1: .*discard_after\(0\)"):
            checkpoints.save(state, force=True)
        state, data = checkpoints.restore(step, at=2)
        checkpoints.discard_after(2)
        assert checkpoints.steps == [2]
        state, _ = run(step, state, range(data["batch"], 3))
        assert checkpoints.save(state)
    assert checkpoints.steps == [2, 3]


def test_a_failed_save_is_told_once_and_the_others_stay(saved):
    """The system lets no file grow beyond 1000 bytes."""
    folder, step = saved
    with Checkpoints(folder, every=1) as checkpoints:
        state, _ = run(step, checkpoints.restore(step)[0], range(4, 5))
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
        try:
            assert checkpoints.save(state)
            with pytest.raises(OSError, match=r"step 5 could not be written to .*run \(.* of step 4\)") as raised:
                checkpoints.wait()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert raised.value.errno == errno.EFBIG
        checkpoints.wait()
        assert checkpoints.steps == [2, 3, 4]
        assert checkpoints.restore(step)[0].step == 4
        assert checkpoints.save(state)
    # only now is the folder looked at as a whole: a thread of Orbax may have gone on writing after the failure
    assert sorted(path.name for path in folder.iterdir()) == ["3", "4", "5"]


def test_the_log_is_the_users(saved, caplog):
    folder, step = saved
    handlers = list(logging.getLogger().handlers)
    caplog.set_level(logging.INFO)
    with Checkpoints(folder, every=1) as checkpoints:
        state, _ = run(step, checkpoints.restore(step)[0], range(1))
        checkpoints.save(state)
    assert [record for record in caplog.records if "orbax" in record.pathname] == []
    assert logging.getLogger().handlers == handlers
    assert logging.getLogger("absl").filters == []


def test_without_orbax_it_says_what_to_install(monkeypatch, tmp_path):
    for name in [name for name in sys.modules if name.startswith("orbax")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "orbax.checkpoint", None)
    with pytest.raises(ImportError, match=r"pip install 'graphmode\[train\]'"):
        Checkpoints(tmp_path)
