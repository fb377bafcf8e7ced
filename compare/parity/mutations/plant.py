"""`Plant`: one bug at one place of a correct port, and what a good diagnosis says of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from ...case import Case

Place = Literal["module", "outside", "optimizer"]


@dataclass(frozen=True, kw_only=True)
class Plant:
    """A bug, not yet planted.

    Attributes:
      kind: of bug, the same for all its sites.
      specimen: the correct port that it goes into.
      site: where in it, for people.
      change: takes the correct case, gives one with the bug in its port.
      modules: paths of the port, any of which is the right one to accuse; for a functional call the module around it.
      also: further paths that may be accused beside it, since the bug reaches them too.
      place: where the bug is: in a module, outside of all (in the case's `loss`, say), or in the optimizer.
      causes: ids that explain it, any of them; empty where no cause is known.
    """

    kind: str
    specimen: str
    site: str
    change: Callable[[Case], Case]
    modules: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    place: Place = "module"
    causes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.kind} at {self.specimen}.{self.site}"
