"""Which causes explain which kind of bug: a kind that is not here has no known cause, and counts as unexplained."""

from __future__ import annotations

EXPLAINED_BY: dict[str, tuple[str, ...]] = {}
