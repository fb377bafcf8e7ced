"""Weight files: what is read, and what is refused."""

import argparse
import json
import pickle
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch

from graphmode.weights import as_numpy, read

STATE = {
    "layer.weight": torch.randn(3, 2),
    "layer.half": torch.randn(4).bfloat16(),
    "count": torch.tensor(3),
    "mask": torch.tensor([True, False]),
}


def assert_is_state(arrays):
    assert arrays.keys() == STATE.keys()
    for key, tensor in STATE.items():
        assert arrays[key].tobytes() == as_numpy(tensor).tobytes()
        assert arrays[key].shape == tuple(tensor.shape)


def test_safetensors(tmp_path):
    safetensors.torch.save_file(STATE, tmp_path / "w.safetensors")
    assert_is_state(read(tmp_path / "w.safetensors"))
    with pytest.raises(ValueError, match="entry is 'model'"):
        read(tmp_path / "w.safetensors", entry="model")


FLOAT8 = [name for name in dir(torch) if name.startswith("float8_")]


@pytest.mark.parametrize("name", FLOAT8)
def test_float8_in_safetensors(tmp_path, name):
    bits = torch.arange(256, dtype=torch.uint8).reshape(2, 128)
    state = {"w": bits.view(getattr(torch, name)), "scale": torch.ones(1), "empty": torch.zeros(0, 3).bfloat16()}
    safetensors.torch.save_file(state, tmp_path / "w.safetensors")
    arrays = read(tmp_path / "w.safetensors")
    assert arrays.keys() == state.keys()
    for key, tensor in state.items():
        wanted = as_numpy(tensor)
        assert (arrays[key].dtype, arrays[key].shape) == (wanted.dtype, wanted.shape)
        assert arrays[key].tobytes() == wanted.tobytes()


def test_safetensors_that_numpy_cannot_hold(tmp_path):
    packed = torch.zeros(2, 4, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)
    safetensors.torch.save_file({"w": packed, "b": torch.ones(1)}, tmp_path / "w.safetensors")
    with pytest.raises(ValueError, match=r"whose w \(F4\) numpy cannot hold; dequantize"):
        read(tmp_path / "w.safetensors")


def save_shards(folder: Path, *, of_first: int = 2) -> dict[str, str]:
    """Two shards and their index; gives the map of keys to files."""
    keys = list(STATE)
    parts = {"model-00001-of-00002.safetensors": keys[:of_first], "model-00002-of-00002.safetensors": keys[of_first:]}
    for name, held in parts.items():
        safetensors.torch.save_file({key: STATE[key] for key in held}, folder / name)
    return {key: name for name, held in parts.items() for key in held}


def save_index(folder: Path, weight_map) -> Path:
    path = folder / "model.safetensors.index.json"
    path.write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": weight_map}))
    return path


def test_shards_are_read_by_their_index_and_by_their_folder(tmp_path):
    index = save_index(tmp_path, save_shards(tmp_path))
    assert_is_state(read(index))
    assert_is_state(read(tmp_path))
    with pytest.raises(ValueError, match="entry is 'model', and shards hold nothing but tensors"):
        read(tmp_path, entry="model")


def test_shards_of_pytorch(tmp_path):
    for number, key in enumerate(STATE):
        torch.save({key: STATE[key]}, tmp_path / f"{number}.bin")
    weight_map = {key: f"{number}.bin" for number, key in enumerate(STATE)}
    (tmp_path / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": weight_map}))
    assert_is_state(read(tmp_path))


def test_what_shards_lack_is_named(tmp_path):
    weight_map = save_shards(tmp_path)
    index = save_index(tmp_path, {**weight_map, "lost.a": "model-00001-of-00002.safetensors"})
    with pytest.raises(ValueError, match=r"its shards lack lost\.a in model-00001-of-00002\.safetensors"):
        read(index)
    (tmp_path / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(ValueError, match=r"of its 2 shards model-00002-of-00002\.safetensors are not beside it"):
        read(index)


@pytest.mark.parametrize("content", ["{}", "[]", "no JSON", '{"weight_map": {"a": 1}}', '{"weight_map": 3}'])
def test_an_index_that_is_none(tmp_path, content):
    path = tmp_path / "model.safetensors.index.json"
    path.write_text(content)
    with pytest.raises(ValueError, match="no index of shards"):
        read(path)


def test_an_index_leads_nowhere_else(tmp_path):
    (tmp_path / "inner").mkdir()
    safetensors.torch.save_file(STATE, tmp_path / "w.safetensors")
    index = save_index(tmp_path / "inner", dict.fromkeys(STATE, "../w.safetensors"))
    with pytest.raises(ValueError, match=r"names '\.\./w\.safetensors'; shards lie beside their index"):
        read(index)
    index.write_text(json.dumps({"weight_map": {"a": index.name}}))
    with pytest.raises(ValueError, match=r"names 'model\.safetensors\.index\.json', an index too"):
        read(index)


def test_a_folder_with_one_file_or_none_or_several(tmp_path):
    with pytest.raises(ValueError, match="a folder without"):
        read(tmp_path)
    torch.save(STATE, tmp_path / "pytorch_model.bin")
    assert_is_state(read(tmp_path))
    save_shards(tmp_path)
    with pytest.raises(ValueError, match=r"a folder with 2 files \*\.safetensors \(model-00001"):
        read(tmp_path)


@pytest.mark.parametrize("suffix", [".pt", ".pth", ".bin", ".ckpt"])
def test_torch_files(tmp_path, suffix):
    torch.save(STATE, tmp_path / f"w{suffix}")
    assert_is_state(read(str(tmp_path / f"w{suffix}")))


def test_a_checkpoint_with_more_than_the_weights(tmp_path):
    torch.save({"epoch": 3, "model_state": STATE}, tmp_path / "c.pt")
    assert_is_state(read(tmp_path / "c.pt", entry="model_state"))
    with pytest.raises(ValueError, match=r"a mapping of 2 \(epoch: int, model_state: dict\).*entry="):
        read(tmp_path / "c.pt")
    with pytest.raises(ValueError, match="entry is 'weights'"):
        read(tmp_path / "c.pt", entry="weights")
    with pytest.raises(ValueError, match="holds int"):
        read(tmp_path / "c.pt", entry="epoch")


def test_a_checkpoint_of_lightning_is_told_where_its_weights_are(tmp_path):
    content = {"epoch": 1, "pytorch-lightning_version": "2.0", "state_dict": STATE, "optimizer_states": []}
    torch.save(content, tmp_path / "last.ckpt")
    with pytest.raises(ValueError, match="read them with entry='state_dict'"):
        read(tmp_path / "last.ckpt")
    assert_is_state(read(tmp_path / "last.ckpt", entry="state_dict"))


def test_arrays_of_numpy(tmp_path):
    state = {"layer.weight": np.arange(6, dtype=np.float32).reshape(3, 2), "count": np.int64(3), "empty": np.zeros(0)}
    np.savez(tmp_path / "w.npz", **state)
    arrays = read(tmp_path / "w.npz")
    assert arrays.keys() == state.keys()
    for name, array in state.items():
        assert (arrays[name].dtype, arrays[name].shape) == (array.dtype, array.shape)
        np.testing.assert_array_equal(arrays[name], array)
    with pytest.raises(ValueError, match="entry is 'model'"):
        read(tmp_path / "w.npz", entry="model")


class Runs:
    """Would make a file if it were unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (Path(self.path),)


def save_pickle(content, path):
    path.write_bytes(pickle.dumps(content, protocol=2))


@pytest.mark.parametrize("save", [torch.save, save_pickle])
def test_nothing_is_unpickled(tmp_path, save):
    save({"weight": Runs(tmp_path / "ran")}, tmp_path / "w.pt")
    with pytest.raises(ValueError, match="refuses"):
        read(tmp_path / "w.pt")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("spoil", ["objects", "text", "no archive"])
def test_npz_files_that_are_refused(tmp_path, spoil):
    path = tmp_path / "w.npz"
    contents = {"objects": np.array([Runs(tmp_path / "ran")], object), "text": np.array("text")}
    np.savez(path, weight=contents.get(spoil, np.zeros(2)), allow_pickle=True)
    if spoil == "no archive":
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(ValueError, match="allow_pickle=False"):
        read(path)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (torch.nn.Linear(2, 2), "torch.nn.modules.linear.Linear"),
        ({"state_dict": STATE, "hyper_parameters": argparse.Namespace(lr=1)}, "argparse.Namespace"),
    ],
    ids=["module", "hyperparameters"],
)
def test_what_would_have_to_be_unpickled_is_named(tmp_path, content, name):
    torch.save(content, tmp_path / "w.pt")
    with pytest.raises(ValueError, match=r"save its state_dict\(\)") as raised:
        read(tmp_path / "w.pt")
    assert f"(it holds {name}, and reading that would run code of the file)" in str(raised.value)
    assert "\x1b" not in str(raised.value)


STARTS = {"empty": "empty", "<!DOCTYPE html>": "a web page", "version https://git-lfs.github": "a pointer of Git LFS"}


@pytest.mark.parametrize("suffix", [".pt", ".ckpt", ".safetensors", ".npz", ".jit"])
@pytest.mark.parametrize(("start", "told"), STARTS.items())
def test_files_that_are_something_else(tmp_path, suffix, start, told):
    path = tmp_path / f"w{suffix}"
    path.write_text("" if start == "empty" else start + " and more" * 10)
    with pytest.raises(ValueError, match=f"which is {told} and holds no weights") as raised:
        read(path)
    assert str(path) in str(raised.value)


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
@pytest.mark.parametrize("part", [0.3, 0.9])
def test_a_file_that_was_cut_is_named(tmp_path, suffix, part):
    path = tmp_path / f"w{suffix}"
    (torch.save if suffix == ".pt" else safetensors.torch.save_file)(STATE, path)
    path.write_bytes(path.read_bytes()[: int(part * path.stat().st_size)])
    with pytest.raises(ValueError, match=r"refuses .*download or save it again") as raised:
        read(path)
    assert str(path) in str(raised.value)


@pytest.mark.parametrize("name", ["w.npy", "w.pkl", "w", "w.safetensors.zip"])
def test_other_files_are_refused_by_name(tmp_path, name):
    with pytest.raises(ValueError, match=r"\.safetensors, \.npz, \.pt, \.pth, \.bin, \.ckpt or \.jit was wanted"):
        read(tmp_path / name)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError):
        read(tmp_path / "w.pt")


@pytest.mark.parametrize(
    "value", ["text", None, object(), torch.randn(2, 2).to_sparse()], ids=lambda v: type(v).__name__
)
def test_what_is_no_array(value):
    with pytest.raises(TypeError):
        as_numpy(value)


def test_numpy_arrays_go_through():
    array = np.arange(3)
    assert as_numpy(array) is array
    turned = as_numpy(array.astype(array.dtype.newbyteorder()))
    assert turned.dtype == array.dtype
    assert np.array_equal(turned, array)
