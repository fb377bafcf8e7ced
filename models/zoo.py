"""The zoo: which cases there are, and where. Importing it imports no case, no torch and no jax."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphmode.compare.case import Case
    from graphmode.compare.training import Training

CASES: dict[str, str] = {
    "conditional_scale": "graphmode.models.conditional_scale.case:CASE",
    "weighted_product": "graphmode.models.weighted_product.case:CASE",
    "scale_add": "graphmode.models.scale_add.case:CASE",
    "double_sine": "graphmode.models.double_sine.case:CASE",
    "double_sine_training": "graphmode.models.double_sine.case:TRAINING_CASE",
    "positives_first": "graphmode.models.positives_first.case:CASE",
    "fill_zeros": "graphmode.models.fill_zeros.case:CASE",
    "custom_hook": "graphmode.models.custom_hook.case:CASE",
    "stats_rnn": "graphmode.models.stats_rnn.case:CASE",
    "adaptive_computation": "graphmode.models.adaptive_computation.case:CASE",
    "lstm": "graphmode.models.lstm.case:CASE",
    "resnet18": "graphmode.models.resnet.case:CASE",
    "resnet50": "graphmode.models.resnet.case:RESNET50",
    "efficientnet_lite0": "graphmode.models.efficientnet_lite0.case:CASE",
    "legere": "graphmode.models.legere.case:CASE",
    "minilm": "graphmode.models.minilm.case:CASE",
    "albert": "graphmode.models.albert.case:CASE",
    "silero_vad": "graphmode.models.silero_vad.case:CASE",
    "speech_timestamps": "graphmode.models.silero_vad.case:TIMESTAMPS",
    "resemblyzer": "graphmode.models.resemblyzer.case:CASE",
    "mtcnn": "graphmode.models.mtcnn.case:CASE",
    "mtcnn_networks": "graphmode.models.mtcnn.case:NETWORKS",
    "bert": "graphmode.models.bert.case:CASE",
    "gpt2": "graphmode.models.gpt2.case:CASE",
    "mixtral": "graphmode.models.mixtral.case:CASE",
    "g2p": "graphmode.models.g2p.case:CASE",
    "g2p_decode": "graphmode.models.g2p.case:DECODE_CASE",
    "anarcii": "graphmode.models.anarcii.case:CASE",
    "anarcii_decode": "graphmode.models.anarcii.case:DECODE_CASE",
}

# What a run takes that names none: most techniques once, in minutes; what says least beside the others is last, since a
# slow machine leaves it out.
MAIN: dict[str, float] = {
    "conditional_scale": 53,
    "weighted_product": 41,
    "scale_add": 18,
    "double_sine": 20,
    "silero_vad": 75,  # one with real weights, before a slow machine has no time left for it
    "double_sine_training": 22,
    "positives_first": 47,
    "fill_zeros": 25,
    "custom_hook": 28,
    "stats_rnn": 75,
    "efficientnet_lite0": 200,
    "bert": 104,
    "gpt2": 104,
    "lstm": 152,
    "resnet18": 162,
}
"""Seconds that each of the main cases takes to be compared on two cores of a CPU: what is judged by whether there is
time for it."""

TRAININGS: dict[str, str] = {
    "double_sine": "graphmode.models.double_sine.case:TRAINING",
    "digits": "graphmode.models.digits.case:TRAINING",
    "characters": "graphmode.models.characters.case:TRAINING",
}


def load(name: str) -> Case:
    """The case of this name.

    Raises:
      CaseError: where there is none; the message has the nearest names.

    Example:
      >>> load("scale_add").name
      'scale_add'
    """
    return _load(name, CASES, "case")


def load_training(name: str) -> Training:
    """The training of this name, a script and its PyTorch twin.

    Raises:
      CaseError: where there is none; the message has the nearest names.
    """
    return _load(name, TRAININGS, "training")


def _load(name: str, known: dict[str, str], word: str) -> Any:
    if name not in known:
        from graphmode.compare.case import CaseError
        from graphmode.compare.nearest import nearest

        near = nearest(str(name), known, most=3, cutoff=0.4)
        hint = f"did you mean {' or '.join(near)}?" if near else f"choose from {', '.join(known)}"
        raise CaseError(f"name is {name!r}, and the zoo has no such {word}; {hint}")
    module, _, attribute = known[name].partition(":")
    return getattr(import_module(module), attribute)
