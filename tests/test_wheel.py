"""The wheel: what is inside, and that it works from another folder with nothing of the repository in reach."""

import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
WINGS = {"graphmode": "graphmode", "compare": "graphmode.compare", "models": "graphmode.models"}


def on_disk() -> dict[str, Path]:
    """Every package by its import name."""
    return {
        ".".join([WINGS[wing], *init.parent.relative_to(ROOT / wing).parts]): init.parent
        for wing in WINGS
        for init in (ROOT / wing).rglob("__init__.py")
    }


def test_every_package_is_listed():
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    assert sorted(listed) == sorted(on_disk())


def pip(*arguments: str | Path) -> None:
    subprocess.run([sys.executable, "-m", "pip", "--quiet", *map(str, arguments)], check=True)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """Built from a copy: a build leaves files beside its sources, and old ones would get into the wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    for name in WINGS:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", folder / "dist", folder)
    (built,) = (folder / "dist").glob("*.whl")
    return built


@pytest.mark.slow
def test_contents(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    top = {name.partition("/")[0] for name in names}
    assert {name for name in top if not name.endswith(".dist-info")} == {"graphmode"}
    assert "graphmode/py.typed" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    for package, folder in on_disk().items():
        place = package.replace(".", "/")
        wanted = {
            f"{place}/{path.name}" for pattern in ("*.py", "*.j2", "*.css", "*.js") for path in folder.glob(pattern)
        }
        assert wanted <= names


IMPORTS = """
import sys
import graphmode
assert graphmode.__file__.startswith(sys.argv[1]), graphmode.__file__
assert not {"torch", "matplotlib"} & set(sys.modules)
import graphmode.weights
import graphmode.compare
import graphmode.models.zoo
from importlib.metadata import entry_points
(command,) = entry_points(group="console_scripts", name="graphmode")
command.load()
assert "matplotlib" not in sys.modules
for name in ("models", "compare"):
    try:
        __import__(name)
    except ModuleNotFoundError:
        continue
    raise AssertionError(f"a top-level {name} was installed")
"""


@pytest.mark.slow
def test_imports_from_elsewhere(wheel, tmp_path):
    target = tmp_path / "installed"
    pip("install", "--no-deps", "--target", target, wheel)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    process = subprocess.run(
        [sys.executable, "-c", IMPORTS, str(target)],
        cwd=elsewhere,
        env=os.environ | {"PYTHONPATH": str(target)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
