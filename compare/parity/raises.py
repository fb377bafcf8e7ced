"""A port that fails operation by operation, and as a compiled graph gives values: where it does so, and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..errors import describe, is_of_ours, line_of
from ..report.records import Astray, Cause, Divergence, Finding, Tensor

if TYPE_CHECKING:
    from flax import nnx

    from ..jax_side import PortSide
    from .inside.calls import CallId
    from .judge import Question

NAMES = (AttributeError, NameError)  # what a library does wrong by itself, and does not say of what it is given
FIX = (
    "mend what is handed on there: a compiled graph has no values to look at, and makes NaN of an index out of range, "
    "or takes the nearest row, in silence"
)


def raises(port: PortSide, question: Question, tensors: Sequence[Tensor]) -> Divergence | None:
    """The module in whose code that is, the innermost that is of no library; None where the port does not fail.

    Args:
      port: in float64, which answered the question as a compiled graph.
      question: that no look inside was had at.
      tensors: all that is off.
    """
    from .inside.localise import source_of
    from .inside.port_calls import PortRun

    running: list[tuple[CallId, nnx.Module]] = []

    def note(call: CallId, module: nnx.Module, run: Any, args: Any, kwargs: Any) -> Any:
        running.append((call, module))
        result = run(module, *args, **kwargs)
        running.pop()
        return result

    try:
        PortRun(port, question).watch(note)
    except Exception as error:
        if isinstance(error, NAMES) and is_of_ours(error):
            return None
        own = [(call, module) for call, module in running if source_of(module)]
        if not own:
            return None
        call, module = own[-1]
        wrong = [t for t in tensors if not t.equal and (t.mode, t.input) == (question.mode, question.label)]
        line = line_of(error).strip(" ()")
        says = f"raises {describe(error)}, operation by operation; as a compiled graph it goes on"
        return Divergence(
            mode=question.mode,
            input=question.label,
            module=call.path,
            kind=type(module).__name__,
            call=call.number,
            source=source_of(module),
            findings=list(map(Finding.of, wrong)),
            causes=[Cause(id="raises", says=says, fix=FIX, residual=0.0)],
            astray=Astray(port=[line]) if line else None,
        )
    return None
