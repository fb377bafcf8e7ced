"""The port's backward pass, call by call: each receives the reference's cotangents, and what it gives is noted."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from flax import nnx

from ...port_program import combine, starts
from .borders import Backward, Matches, Seen, What
from .calls import Call, CallId, Calls, is_inside
from .fixed_size import FixedSizeLayout
from .hooking import BORDER, SCOPE, kept_in_memory, numbered, taken_apart, with_theirs
from .lanes import in_all_lanes
from .layouts import Pair

if TYPE_CHECKING:
    from .port_calls import PortRun


class BackwardPass:
    """One of a port whose forward pass has been forced.

    Args:
      port: on its question; its `forced_forward` came first.
      matches, calls: of it.
      free: calls that receive what the port's own backward pass makes of the right gradients around them.
      giving: calls that hand on the gradients that they give.
      alone: the one module whose calls receive gradients, those of all others being zero; all of them, where None.
      stopping: whether nothing is handed on of gradients by inputs by which the reference takes none.
    """

    def __init__(
        self,
        port: PortRun,
        matches: Matches,
        calls: Calls,
        free: Collection[CallId] = (),
        giving: Collection[CallId] = (),
        alone: str | None = None,
        *,
        stopping: bool = False,
    ):
        self.port, self.matches, self.calls = port, matches, calls
        self.free, self.giving, self.alone = free, giving, alone
        self.stopping = stopping or alone is not None
        self.seen: list[Seen] = []
        self.passed: list[tuple[CallId, str]] = []
        self._judged = set(port.forced)
        self._reached: list[jax.Array] | None = None  # the tensors at borders, if they enter a sum

    def run(self, *, reaching: bool) -> Backward:
        """Runs it.

        Args:
          reaching: whether each tensor at a border also enters a sum whose own gradient is zero: where a module cuts
            the gradient, what comes before is then seen to get zeros.
        """
        program, batch, side = self.port.program, self.port.batch, self.port.side
        self._reached = [] if reaching else None

        def forward(params: Any, diff: Any) -> tuple[list[jax.Array], list[jax.Array]]:
            call = combine(diff, batch.rest)
            if self._reached is not None:
                self._reached.clear()
            heads = program.forward(params, program.rest, *call, through=numbered(self.through))[0]
            return heads, [jnp.sum(x) for x in self._reached or ()]

        with side.context(), jax.disable_jit(), kept_in_memory():
            (heads, sums), pull = jax.vjp(forward, program.params, batch.diff)
            first = starts(heads, batch.cotangents) if self.alone is None else jtu.tree_map(jnp.zeros_like, heads)
            by_parameters, by_inputs = pull((first, jtu.tree_map(jnp.zeros_like, sums)))
            jax.effects_barrier()
            by_name = side.named_gradients(self.port.question.mode, by_parameters)
            return Backward(self.seen, by_name, side.input_gradients(batch, by_inputs), self.passed)

    def through(self, at: CallId, module: nnx.Module, run: Any, args: Any, kwargs: Any) -> Any:
        """What a call gives, its borders switched: a hook of `numbered`."""
        if at not in self._judged:
            return run(module, *args, **kwargs)
        borders = self.port.borders(at)
        received, put_in = taken_apart((args, kwargs))
        args, kwargs = put_in(self._border(at, "input_gradient", borders.inputs, received))
        args, kwargs = self.port.numbers.given(self.calls[self.matches[at]], module, at, args, kwargs)
        outputs = run(module, *args, **kwargs)
        if at in self.free:
            return outputs
        given, put_out = taken_apart(outputs)
        return put_out(self._border(at, "received_cotangent", borders.outputs, given))

    def _border(self, at: CallId, what: What, pairs: list[Pair], lanes: list[Any]) -> list[Any]:
        with jax.named_scope(f"{SCOPE}{BORDER}"):
            return in_all_lanes(lanes, lambda ours: self._switched(at, what, pairs, ours))

    def _switched(self, at: CallId, what: What, pairs: list[Pair], ours: list[Any]) -> list[Any]:
        call = self.calls[self.matches[at]]
        gives = what == "input_gradient"
        values, gradients = (call.inputs, call.input_gradients) if gives else (call.outputs, call.cotangents)
        replaced = with_theirs(ours, values, pairs)
        through = [] if gives else [name for name in call.without_gradient if name not in gradients]
        places = {each.name: each.index for each in pairs}
        merged = call.merged if gives else call.merged_outputs
        for each in pairs:
            if each.name in merged:
                replaced[each.index] = replaced[places[merged[each.name]]]
                continue
            is_traced = isinstance(ours[each.index], jax.core.Tracer)
            if gives and is_traced and not self.stopping and _has_no_gradient(call, each.name):
                replaced[each.index] = self._passing(at, each.name, replaced[each.index])(ours[each.index])
                continue
            let_through = each.name in through and is_traced
            if each.name in gradients or let_through:
                wanted = gradients.get(each.name)
                if wanted is None or self._is_left_out(at.path, gives=gives):
                    wanted = np.zeros_like(values[each.name])
                switch = self._switch(at, what, each, replaced[each.index], wanted)
                replaced[each.index] = switch(ours[each.index])
                if self._reached is not None:
                    self._reached.append(replaced[each.index])
        return replaced

    def _is_left_out(self, path: str, *, gives: bool) -> bool:
        """Of the part that one module's calls make: what goes out of it, and all that is not within."""
        if self.alone is None:
            return False
        return not is_inside(path, self.alone) or (gives and path == self.alone)

    def _switch(
        self, at: CallId, what: What, pair: Pair, right: jax.Array, gradient: np.ndarray
    ) -> Callable[[jax.Array], jax.Array]:
        """Gives the right value forward and the right gradient backward, or the port's own where the call is `giving`,
        and notes that one."""
        around = self.port.around(at)
        gives_its_own = what == "input_gradient" and at in self.giving

        def note(reached: Any) -> None:
            layout, array = pair.layout, np.conj(np.asarray(reached))  # JAX gives the conjugate of PyTorch's
            self.seen.append(Seen(at, around, what, pair.name, layout.to_reference(array), gradient))
            if what == "received_cotangent" and isinstance(layout, FixedSizeLayout):
                beyond = layout.beyond(array)
                name = f"{pair.name} beyond what counts"
                self.seen.append(Seen(at, around, what, name, beyond, np.zeros_like(beyond), is_beyond=True))

        def handed_on(reached: jax.Array) -> Any:
            if isinstance(reached, jax.core.Tracer):
                jax.debug.callback(note, reached)
            else:
                note(reached)
            return reached if gives_its_own else jnp.conj(pair.layout.gradient_to_port(gradient))

        return _in_place_of(right, handed_on)

    def _passing(self, at: CallId, name: str, right: jax.Array) -> Callable[[jax.Array], jax.Array]:
        """Gives the right value forward, and backward what reaches it: what is around has to stop that."""

        def handed_on(reached: jax.Array) -> jax.Array:
            self.passed.append((at, name))
            return reached

        return _in_place_of(right, handed_on)


def _has_no_gradient(call: Call, name: str) -> bool:
    """Whether a floating input of a call is one by which the reference takes no gradient, as of what is detached."""
    return name not in call.input_gradients and call.inputs[name].dtype.kind == "f"


def _in_place_of(right: jax.Array, handed_on: Callable[[jax.Array], Any]) -> Callable[[jax.Array], jax.Array]:
    """Gives one array for another forward, and backward what is made of the gradient that reaches it; zeros where that
    has another shape."""

    @jax.custom_vjp
    def switch(x: jax.Array, right: jax.Array) -> jax.Array:
        return right

    def fwd(x: jax.Array, right: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
        return right, (jnp.zeros_like(x), jnp.zeros_like(right))

    def bwd(like: tuple[jax.Array, jax.Array], reached: jax.Array) -> tuple[jax.Array, jax.Array]:
        none, of_right = like
        gradient = handed_on(reached)
        return (jnp.asarray(gradient, none.dtype) if gradient.shape == none.shape else none), of_right

    switch.defvjp(fwd, bwd)
    return lambda x: switch(x, right)  # which may be traced, and is no constant then
