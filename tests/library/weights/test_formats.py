"""Weight files: what is read, and what is refused."""

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


@pytest.mark.parametrize("suffix", [".pt", ".pth", ".bin"])
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


def test_a_whole_module_is_refused(tmp_path):
    torch.save(torch.nn.Linear(2, 2), tmp_path / "w.pt")
    with pytest.raises(ValueError, match=r"save its state_dict\(\)"):
        read(tmp_path / "w.pt")


@pytest.mark.parametrize("name", ["w.npy", "w.pkl", "w", "w.safetensors.zip"])
def test_other_files_are_refused_by_name(tmp_path, name):
    with pytest.raises(ValueError, match=r"\.safetensors, \.npz, \.pt, \.pth, \.bin or \.jit was wanted"):
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
