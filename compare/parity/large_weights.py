"""What overflows in a port with weights that are large, and not in the reference: an exponential, mostly, that the
reference keeps from it. Inputs do not show it where norms come between, and the first weights give small scores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.utils._pytree as pytree

from ..dispatch_mode import DispatchMode
from ..observation import Observation
from ..trees import is_floating
from .call_limit import CountedCalls
from .causes.graph import Graph, Operation, Run

if TYPE_CHECKING:
    from ..jax_side import PortSide
    from .examination import Examination
    from .judge import Question

TIMES = 1e4  # as large: scores in the hundreds, whose exponentials float64 does not hold
STABLE = "write jax.nn.log_sigmoid, log_softmax, softplus or jnp.logaddexp, or take the largest off before"
REASONS = {
    "exp": f"the exponential of a large score overflows, in float32 from about 90 on; {STABLE}",
    "log": f"an exponential leaves nothing to take a logarithm of, in float32 from scores of about 90 on; {STABLE}",
    "div": "a divisor has become zero, or both sides of it infinite",
}
REASONS |= {"exp2": REASONS["exp"], "log1p": REASONS["log"], "rsqrt": REASONS["div"]}


def overflows(exam: Examination, variant: str, port: PortSide, question: Question) -> str:
    """What to say of a port that is not finite where the reference is, in float64, its matrices `TIMES` as large;
    mostly nothing.

    Args:
      exam: whose judge answered.
      variant: of the port.
      port: in float64.
      question: in inference.
    """
    try:
        side = exam.judge.side("float64")
        large = {name: p for name, p in side.parameters.items() if p.dim() > 1 and name in exam.judge.state_dict}
        loops = any(operation.eqn.primitive.name == "while" for operation in Graph(port, question).operations())
        if not large or loops:
            return ""  # a loop of the port's may never end, and nothing stops it
        with torch.no_grad():
            for parameter in {id(p): p for p in large.values()}.values():
                parameter.mul_(TIMES)
        state_dict = {**exam.judge.state_dict, **{name: exam.judge.state_dict[name] * TIMES for name in large}}
        with CountedCalls() as usual:
            exam.judge.exact.run(question.inputs, question.mode)
        with usual.limit, _Overflows() as overflowing:
            theirs = side.run(question.inputs, question.mode)
        other = exam.port_with(variant, "float64", state_dict)
        other.take_graphs(port)
        ours = other.run(question.inputs, question.mode).renamed(theirs)
        lost = [name for name, wanted in theirs.outputs.items() if _is_lost(ours.outputs.get(name), wanted)]
        line, name = _first(other, question) if lost else ("", "")
    except Exception:  # such weights are no weights of the model's
        return ""
    if not lost or (name in overflowing.names and _is_partly_lost(theirs)):
        return ""  # the reference keeps it from nothing: only zeros of masks, say, hide what it gives
    at = f" at {line}" if line else ""
    reason = REASONS.get(name, f"{name} is the first that makes of finite numbers what is not" if name else "")
    says = (
        f"with weights {TIMES:g} times as large the reference is finite in {', '.join(lost)}, and the port is not{at}"
    )
    return f"{says}: {reason}" if reason else says


class _Overflows(DispatchMode):
    """Notes the names of operations that make of finite numbers what is not."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = func(*args, **(kwargs or {}))
        if not _all_finite(given) and _all_finite((args, kwargs)):
            self.names.add(func.overloadpacket.__name__.rstrip("_"))
        return given


def _all_finite(tree: Any) -> bool:
    leaves = (x for x in pytree.tree_leaves(tree) if isinstance(x, torch.Tensor) and x.is_floating_point())
    return all(bool(x.isfinite().all()) for x in leaves)


def _is_partly_lost(theirs: Observation) -> bool:
    return not all(np.isfinite(x).all() for x in theirs.outputs.values() if is_floating(x))


def _is_lost(ours: np.ndarray | None, theirs: np.ndarray) -> bool:
    if ours is None or not is_floating(theirs) or ours.shape != theirs.shape:
        return False
    return bool((np.isfinite(theirs) & ~np.isfinite(ours)).any())


def _first(port: PortSide, question: Question) -> tuple[str, str]:
    """The line and the name of the first operation that makes of finite numbers what is not; two empty ones of none."""
    found: list[tuple[str, str]] = []

    def note(operation: Operation, given: list[Any], run: Run) -> list[Any]:
        results = run(given)
        if not found and _are_finite(given) and not _are_finite(results):
            found.append((operation.source, operation.eqn.primitive.name))
        return results

    Graph(port, question).evaluate(note)
    return found[0] if found else ("", "")


def _are_finite(values: list[Any]) -> bool:
    return all(bool(np.isfinite(np.asarray(x)).all()) for x in values if is_floating(x))
