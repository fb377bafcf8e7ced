"""What a wrong recurrent layer makes of its inputs, states and outputs."""

from __future__ import annotations

from typing import Any

import torch


def time_reversed(func: Any, args: Any, axis: int) -> Any:
    out, *rest = func(args[0].flip(axis), *args[1:])
    return out.flip(axis), *rest


def halves_swapped(result: Any) -> Any:
    out, *rest = result
    a, b = out.chunk(2, -1)
    return torch.cat([b, a], -1), *rest


def first_changed(result: Any, change: Any) -> Any:
    out, *rest = result
    return change(out), *rest


def second_flipped(out: torch.Tensor, axis: int) -> torch.Tensor:
    there, back = out.chunk(2, -1)
    return torch.cat([there, back.flip(axis)], -1)


def both_forward(func: Any, args: Any, axis: int) -> Any:
    """Of one layer: run from the end, the second direction meets the steps in their own order."""
    out, *states = func(*args)
    other, *others = func(args[0].flip(axis), *args[1:])
    joined = torch.cat([out.chunk(2, -1)[0], other.chunk(2, -1)[1].flip(axis)], -1)
    return joined, *(torch.cat([one[:1], two[1:]]) for one, two in zip(states, others, strict=True))


def over_the_batch(func: Any, args: Any, kwargs: Any) -> Any:
    """Zero states are made anew for as many sequences as there were steps."""
    steps = args[0].shape[1 if args[-1] else 0]

    def anew(state: torch.Tensor) -> torch.Tensor:
        return state if state.any() else state.new_zeros(state.shape[0], steps, state.shape[2])

    states = [anew(s) for s in args[1]] if isinstance(args[1], list | tuple) else anew(args[1])
    out, *rest = func(args[0].transpose(0, 1), states, *args[2:], **kwargs)
    return out.transpose(0, 1), *rest


def states_reversed(state: Any) -> Any:
    return [s.flip(0) for s in state] if isinstance(state, list | tuple) else state.flip(0)


def last_states_reversed(result: Any) -> Any:
    out, *rest = result
    return out, *(state.flip(0) for state in rest)


def states_swapped(result: Any) -> Any:
    out, h, c = result
    return out, c, h


def zero_states(state: Any) -> Any:
    return [torch.zeros_like(s) for s in state] if isinstance(state, list | tuple) else torch.zeros_like(state)


def gate_raised(bias: torch.Tensor, gate: int, count: int) -> torch.Tensor:
    chunks = list(bias.chunk(count))
    chunks[gate] = chunks[gate] + 1
    return torch.cat(chunks)


def reset_before(place: int) -> Any:
    """A GRU in which the reset gate multiplies the state, layer by layer and step by step."""

    def apply(func: Any, args: Any, kwargs: Any) -> Any:
        x, first, weights = args[0], args[1], args[place]
        batch_first, directions = bool(args[-1]), 2 if args[-2] else 1
        x = x.transpose(0, 1) if batch_first else x
        per = 4 if args[3] else 2
        last = []
        for layer in range(first.shape[0] // directions):
            outputs = []
            for direction in range(directions):
                number = layer * directions + direction
                w, u, *biases = weights[number * per : (number + 1) * per]
                b, c = biases or (x.new_zeros(w.shape[0]), x.new_zeros(w.shape[0]))
                h, steps = first[number], []
                for step in x.flip(0) if direction else x:
                    wr, wz, wn = torch.nn.functional.linear(step, w, b).chunk(3, -1)
                    (ur, uz, un), (cr, cz, cn) = u.chunk(3), c.chunk(3)
                    r, z = torch.sigmoid(wr + h @ ur.T + cr), torch.sigmoid(wz + h @ uz.T + cz)
                    h = (1 - z) * torch.tanh(wn + (r * h) @ un.T + cn) + z * h
                    steps.append(h)
                last.append(h)
                outputs.append(torch.stack(steps[::-1] if direction else steps))
            x = torch.cat(outputs, -1)
        return x.transpose(0, 1) if batch_first else x, torch.stack(last)

    return apply
