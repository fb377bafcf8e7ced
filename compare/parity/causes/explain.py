"""Why a module goes wrong: known differences are tried on the reference until one gives what the port gives."""

from __future__ import annotations

import contextlib
import functools
import time
from types import CodeType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ...report.records import Cause, Divergence
from ..inside.calls import CallId
from ..judge import is_large
from . import known  # noqa: F401  (registers the variants)
from .limit import Limit
from .loss import LossAgain, loss_call
from .search import Search, is_off_forward
from .tied import other_uses_missing
from .trial import Trial
from .ways import Ways, ways
from .wrong_call import NOWHERE, Again, Elsewhere, WrongCall, another_call

if TYPE_CHECKING:
    from ..inside.localise import Look

SUSPECT_S = 25.0  # for one suspect
WAYS_S = 20.0  # for all that the two sides have


class Explanation(NamedTuple):
    """The causes that were found, and whether time was over before all had been tried, after how many seconds; or that
    none could be tried, as where the reference's module does not give again what was recorded of it."""

    causes: list[Cause]
    cut_short: bool = False
    tried_s: float = 0.0
    untried: bool = False


def explain(
    look: Look,
    divergence: Divergence,
    *,
    deadline: float = np.inf,
    elsewhere: Elsewhere = NOWHERE,
    only: frozenset[str] = frozenset(),
    within: frozenset[CodeType] = frozenset(),
) -> Explanation:
    """The known differences that make the reference's module give exactly what the port's gives.

    Each is tried by itself, on the reference, in float64: it explains a divergence only where all that is off becomes
    right, outputs, gradients and buffers, on a second input, too, where the module goes wrong there. Where none does,
    there are none.

    Args:
      look: in which the divergence was found.
      divergence: of a module that has a counterpart, or of the case's loss.
      deadline: of `time.monotonic`; 25 s are given at most, as `Limit` counts them.
      elsewhere: gives looks at other inputs; they are asked for where a cause was found, and not before.
      only: ids of the causes that are tried; all where empty.
      within: code of the reference whose calls are tried; all where empty.
    """
    port = CallId(divergence.module, divergence.call)
    if not divergence.outside and (look.matching.to_reference(port.path) is None or port not in look.matches):
        return Explanation([])
    limit = Limit(SUSPECT_S, deadline)
    if limit.is_over:
        return Explanation([], cut_short=True)
    wrong = None if divergence.outside else WrongCall(look, port)
    call, began = wrong or loss_call(look), time.thread_time()
    if call is None or not call.settle():
        return Explanation([], untried=True)
    run_s = time.thread_time() - began
    if (cause := other_uses_missing(look, call)) is not None:
        return Explanation([cause])
    other = None if wrong is None else another_call(look, divergence, wrong)
    again = (LossAgain if divergence.outside else Again)(call, divergence.module, elsewhere)
    trial = Trial(call, limit, other, again, only)
    both = functools.partial(_ways, look, wrong, port, deadline)
    causes = Search(trial, look, run_s, both, within).causes()
    if causes and wrong is not None:
        look.changed[port] = trial.changed.get(causes[0].says, [])
        look.made_of[port] = trial.made_of.get(causes[0].says, list)
    is_cut_short = not causes and trial.is_over
    return Explanation(causes, is_cut_short, limit.taken if is_cut_short else 0.0)


def _ways(look: Look, call: WrongCall | None, at: CallId, deadline: float) -> Ways | None:
    """Those of the port and of the reference through the call; None where nothing is off forward, or where they cannot
    be told in time."""
    if is_large(look.judge.module) or not is_off_forward(call) or at not in look.run.forced:
        return None
    with contextlib.suppress(Exception):
        return ways(look, at, Limit(WAYS_S, deadline))
    return None
