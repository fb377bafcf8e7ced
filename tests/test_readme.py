"""The README shows the example as it is, and names targets and commands that exist."""

import importlib.util
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from flax import nnx
from graphmode.compare.report import Results
from graphmode.models.installed import installed_weights

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def test_the_example_is_shown_as_it_is():
    blocks = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert (ROOT / "examples" / "tiny_mlp.py").read_text() in blocks


def test_the_building_blocks_run_as_they_are_shown():
    (block,) = [b for b in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if "gm.while_loop" in b]
    names = {}
    exec(block, names)
    jnp = names["jnp"]
    halved, count, incomplete = names["halve_until_small"](jnp.array([3.0, -1.0, 4.0]))
    assert halved.tolist() == [0.375, 0.5, 0, 0]
    assert (int(count), bool(incomplete)) == (2, False)


def test_the_models_run_as_they_are_shown():
    for name in ("minilm", "mtcnn", "silero_vad"):
        try:
            installed_weights(name)
        except ImportError as error:
            pytest.skip(str(error))
    (block,) = [b for b in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if "mtcnn.load" in b]
    names = {}
    exec(block, names)
    assert float(names["vectors"][0] @ names["vectors"][1]) > 0.6
    assert names["found"].faces.values.boxes.shape == (1, 8, 4)
    assert (int(names["found"].faces.count[0]), names["speech"].to_list()) == (0, [])


def test_the_layers_run_as_they_are_shown():
    (block,) = [b for b in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if "class Block" in b]
    theirs = torch.nn.Module()
    theirs.conv, theirs.norm = torch.nn.Conv2d(16, 16, 3, padding=1), torch.nn.BatchNorm2d(16)
    names = {"torch_block": theirs}
    exec(block, names)
    port = names["Block"](16, rngs=nnx.Rngs(0))
    names["load"](port, theirs.state_dict())
    port.eval()
    x = torch.randn(2, 16, 5, 6)
    with torch.no_grad():
        expected = torch.nn.functional.gelu(theirs.norm.eval()(theirs.conv(x))).permute(0, 2, 3, 1)
    np.testing.assert_allclose(port(x.permute(0, 2, 3, 1).numpy()), expected, atol=1e-5)


def test_the_training_runs_as_it_is_shown(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (block,) = [b for b in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if "gm.train_step" in b]
    names = {}
    exec(block, names)
    run = names["run"]
    assert (int(run.state.step), run.stopped) == (200, "steps")
    assert run.history["loss"][-1] < 0.05 * run.history["loss"][0]
    assert (tmp_path / "run").is_dir()
    again = names["gm"].training.fit(
        names["step"], names["data"], steps=250, checkpoints=names["gm"].training.Checkpoints("run", every=50)
    )
    assert again.history["loss"].shape == (50,)


def test_every_make_target_exists():
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"\bmake ([a-z-]+)(?=`|  )", README))
    assert {"compare", "test"} <= targets
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets)


def test_every_command_exists():
    from graphmode.cli import app

    known = {command.name or command.callback.__name__ for command in app.registered_commands}
    assert set(re.findall(r"^\| `graphmode (\w+)", README, re.MULTILINE)) == known


def test_the_tables_are_those_of_the_committed_results():
    spec = importlib.util.spec_from_file_location("readme_table", ROOT / "benchmarks" / "readme_table.py")
    table = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(table)
    for name, path in table.RESULTS.items():
        assert table.filled(README, name, Results.load(path)) == README
