"""The known names that are nearest to one that is not known."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(name: str, known: Iterable[str], *, most: int = 1, cutoff: float = 0.6) -> list[str]:
    """Up to `most` of the known names, the nearest first; upper and lower case are the same.

    Example:
      >>> nearest("GPT2", ["bert", "gpt2"]), nearest("x", ["bert"])
      (['gpt2'], [])
    """
    folded: dict[str, str] = {}
    for one in known:
        folded.setdefault(one.lower(), one)
    return [folded[match] for match in difflib.get_close_matches(name.lower(), folded, n=most, cutoff=cutoff)]
