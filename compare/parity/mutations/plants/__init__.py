"""All plants, by theme; each module has a list of its own."""

from __future__ import annotations

import dataclasses

from ..explanations import EXPLAINED_BY
from ..plant import Plant
from . import activations, attention, gradients, norms, recurrent, training, weights, windows

_ALL = (
    *norms.PLANTS,
    *windows.PLANTS,
    *weights.PLANTS,
    *attention.PLANTS,
    *activations.PLANTS,
    *recurrent.PLANTS,
    *gradients.PLANTS,
    *training.PLANTS,
)

PLANTS: list[Plant] = [
    dataclasses.replace(plant, causes=plant.causes or EXPLAINED_BY.get(plant.kind, ())) for plant in _ALL
]


def first_of_each_kind() -> list[Plant]:
    """One plant a kind, for a quick run."""
    return list({plant.kind: plant for plant in reversed(PLANTS)}.values())[::-1]
