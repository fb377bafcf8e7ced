"""The zoo as a table: what each case shows, how large it is, and whether its weights are here."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from graphmode.compare import Case

HEADINGS = ("case", "what it shows", "parameters", "weights", "variants", "tags")
STEPS = ("", "k", "M", "G")


def table(cases: Mapping[str, Case]) -> Table:
    """Of cases of the zoo by their names."""
    found = Table(box=None, pad_edge=False)
    for heading in HEADINGS:
        narrow = heading in ("case", "parameters")
        found.add_column(
            heading,
            no_wrap=narrow,
            min_width=11 if heading in ("weights", "tags") else None,  # of the longest word, as --tag takes it
            max_width=15 if heading in ("variants", "tags") else None,
            justify="right" if heading == "parameters" else "left",
            overflow="fold",
        )
    for name, case in cases.items():
        variants = ", ".join(case.models) if len(case.models) > 1 else ""
        learned = parameters(case)
        found.add_row(
            name, case.summary, short(learned), weights(name) if learned else "", variants, ", ".join(case.tags)
        )
    return found


def parameters(case: Case) -> int:
    """How many numbers the first variant of the port learns; nothing is computed for it."""
    from flax import nnx

    model = nnx.eval_shape(lambda: next(iter(case.models.values()))(nnx.Rngs(0)))
    return sum(math.prod(leaf.shape) for _, leaf in nnx.to_flat_state(nnx.state(model, nnx.Param)))


def weights(name: str) -> str:
    """`random`, `installed`, or the command that installs them."""
    from graphmode.models import zoo
    from graphmode.models.installed import WEIGHTS, how_to_install

    folder = zoo.CASES[name].split(".")[2]
    return (how_to_install(folder) or "installed") if folder in WEIGHTS else "random"


def short(count: int) -> str:
    """With three digits, as `4.65 M`.

    Example:
      >>> short(4_652_008), short(12), short(0)
      ('4.65 M', '12', '0')
    """
    step = min(int(math.log10(count)) // 3, len(STEPS) - 1) if count else 0
    number = count / 1000**step
    return f"{number:.3g} {STEPS[step]}" if step else str(count)
