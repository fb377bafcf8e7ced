"""`import graphmode` is light: no torch, no plotting, no wing of the harness."""

import subprocess
import sys

# A finder that refuses torch as a machine without it would.
WITHOUT_TORCH = """
import sys

class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, NoTorch())
"""

ALLOWED = {"graphmode", "jax", "jaxlib", "flax", "optax", "chex", "numpy", "ml_dtypes", "jaxtyping"}


def run(code: str) -> str:
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    return process.stdout


def test_import_without_torch():
    run(WITHOUT_TORCH + "import graphmode, graphmode.weights")


def test_the_case_and_the_command_import_without_torch():
    run(WITHOUT_TORCH + "import graphmode.cli, graphmode.compare, graphmode.models")


def test_import_brings_in_nothing_heavy_of_its_own():
    # what jax, flax, optax and chex bring is theirs; ours is what comes on top
    added = run(
        "import sys, jax, flax.nnx, optax, chex, jaxtyping\n"
        "before = set(sys.modules)\n"
        "import graphmode\n"
        "print(*sorted({name.partition('.')[0] for name in set(sys.modules) - before}))"
    ).split()
    assert set(added) - set(sys.stdlib_module_names) <= ALLOWED


def test_import_leaves_the_harness_and_the_models_alone():
    loaded = run("import sys, graphmode; print(*sys.modules)").split()
    for name in ("torch", "matplotlib", "jinja2", "typer", "graphmode.cli", "graphmode.compare", "graphmode.models"):
        assert name not in loaded


def test_reading_torch_files_says_what_to_install(tmp_path):
    (tmp_path / "w.pt").touch()
    out = run(
        WITHOUT_TORCH + "import graphmode.weights as w\n"
        f"try: w.read({str(tmp_path / 'w.pt')!r})\n"
        "except ImportError as error: print(error)"
    )
    assert "pip install 'graphmode[compare]'" in out


def test_weights_go_both_ways_without_torch():
    run(
        WITHOUT_TORCH + "import numpy as np\n"
        "from flax import nnx\n"
        "from graphmode.weights import load, to_state_dict\n"
        "linear = nnx.Linear(2, 3, rngs=nnx.Rngs(0))\n"
        "state = {'weight': np.ones((3, 2), np.float32), 'bias': np.ones(3, np.float32)}\n"
        "load(linear, state)\n"
        "back = to_state_dict(linear, framework='numpy')\n"
        "assert all((back[k] == state[k]).all() for k in state)"
    )


def test_large_parts_come_when_they_are_named():
    told = run(
        "import sys, graphmode as gm\n"
        "print('graphmode.nn' in sys.modules, 'graphmode.training' in sys.modules)\n"
        "gm.nn.Linear, gm.optim.adam, gm.train_step, gm.training.fit\n"
        "print(hasattr(gm, 'nope'), {'nn', 'train_step'} <= set(dir(gm)))"
    )
    assert told.split() == ["False", "False", "False", "True"]
