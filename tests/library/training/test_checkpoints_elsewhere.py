"""Checkpoints on other devices than they were saved from, and on a disk that is full."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("orbax.checkpoint")

HERE = Path(__file__).parent


def ended(command: list[str], **variables: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "PYTHONPATH": path} | variables
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def run(command: list[str], **variables: str) -> str:
    process = ended(command, **variables)
    assert process.returncode == 0, process.stderr
    return process.stdout


@pytest.mark.slow
def test_restored_on_another_mesh(tmp_path):
    told = run(
        [sys.executable, str(HERE / "checkpoint_on_meshes.py"), str(tmp_path)],
        XLA_FLAGS=f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8",
    )
    assert told == "restored 25\n"


def test_a_full_disk_is_told_and_the_others_stay(tmp_path):
    """A file system in memory of a given size, which an unprivileged user may mount in a namespace of its own."""
    mount = f"mount -t tmpfs -o size=1800k none {tmp_path}"
    alone = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    if not shutil.which("unshare") or subprocess.run([*alone, mount], capture_output=True, check=False).returncode:
        pytest.skip("this system lets nobody mount a file system of his own")
    script = f"{sys.executable} {HERE / 'checkpoint_on_full_disk.py'} {tmp_path}/run"
    assert run([*alone, f"{mount} && {script}"]) == "told\n"


def test_a_program_that_ends_without_closing_has_saved(tmp_path):
    """Orbax needs threads to the end of a save, and an interpreter that ends starts none: Python 3.12 leaves no moment
    before that, and then it is told what to do."""
    script = (
        "import sys, graphmode as gm; from checkpoint_cases import make; step = make()\n"
        "checkpoints = gm.training.Checkpoints(sys.argv[1])\n"
        "print(checkpoints.save(step.init(), force=True))"
    )
    if sys.version_info >= (3, 12):
        told = ended([sys.executable, "-c", script, str(tmp_path / "run")]).stderr
        assert "close the checkpoints before the program ends" in told
        return
    assert run([sys.executable, "-c", script, str(tmp_path / "run")]) == "True\n"
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["0"]
