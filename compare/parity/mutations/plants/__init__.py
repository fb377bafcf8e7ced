"""All plants, by theme; each module has a list of its own."""

from __future__ import annotations

import dataclasses

from ..explanations import EXPLAINED_BY
from ..plant import Plant
from ..specimens import SPECIMENS
from . import activations, attention, gradients, huggingface, norms, recurrent, training, weights, windows, zoo

_ALL = (
    *norms.PLANTS,
    *windows.PLANTS,
    *weights.PLANTS,
    *attention.PLANTS,
    *activations.PLANTS,
    *recurrent.PLANTS,
    *gradients.PLANTS,
    *training.PLANTS,
    *zoo.PLANTS,
    *huggingface.PLANTS,
)

PLANTS: list[Plant] = [
    dataclasses.replace(plant, causes=plant.causes or EXPLAINED_BY.get(plant.kind, ())) for plant in _ALL
]


def missing() -> dict[str, str]:
    """The specimens that cannot be built here, each with the reason."""
    if huggingface.IS_THERE:
        return {}
    why = "its original is a class of transformers: pip install 'graphmode[huggingface]'"
    return dict.fromkeys((huggingface.BERT, huggingface.GPT2), why)


def first_of_each_kind() -> list[Plant]:
    """One plant a kind, in a small specimen, for a quick run."""
    small = [plant for plant in PLANTS if plant.specimen in SPECIMENS]
    return list({plant.kind: plant for plant in reversed(small)}.values())[::-1]
