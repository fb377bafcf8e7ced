"""The optimizers of `torch.optim` that have no counterpart here, and what to use."""

from __future__ import annotations

from typing import Any, NoReturn


def sparse_adam(*arguments: Any, **named: Any) -> NoReturn:
    """Refused: gradients are dense in a graph.

    Raises:
      NotImplementedError: always.
    """
    raise NotImplementedError(
        "SparseAdam steps only the rows that a sparse gradient holds, and gradients are dense in a graph. Use "
        "gm.optim.adam; where rows that were not looked up must keep their moments, give each its own parameter and "
        "say present= to update"
    )


def lbfgs(*arguments: Any, **named: Any) -> NoReturn:
    """Refused: it calls the loss as often as its line search wants.

    Raises:
      NotImplementedError: always.
    """
    raise NotImplementedError(
        "LBFGS calls a closure as often as its line search wants. Use optax.lbfgs, which does so inside a graph: "
        "https://optax.readthedocs.io/en/stable/api/optimizers.html#optax.lbfgs"
    )
