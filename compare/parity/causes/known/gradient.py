"""The same value with another gradient: stopped, scaled, or another one at a kink."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from ..change import Change, Site
from ..sites import constructs, is_floating, numbers
from ..variants import Called, Fit, Variant, after, of, signature

signature("clamp clip", "input min max")


DETACHES = ("detach", "detach_")
SUMS = ("add", "sub", "radd", "rsub")
SWITCH = "_set_grad_enabled"  # of torch.no_grad, at its begin and its end
WITHIN = "write jnp.where((x >= min) & (x <= max), x, jnp.clip(x, min, max))"
BY_CONDITION = "choose by jnp.where so that it is the same"
INSTEAD = {  # of what gm.nn.functional does not have
    "abs": "write x * jnp.sign(x)",
    **dict.fromkeys(("clamp", "clip", "clamp_min", "clamp_max"), WITHIN),
    **dict.fromkeys(("max", "min", "maximum", "minimum", "amax", "amin", "where"), BY_CONDITION),
    "norm": "use gm.safe_norm",
}


@of("*")
def stopped(call: Called) -> Iterator[Variant | Fit]:
    """For any call that gives a floating tensor."""
    result = call.site.result
    first = result[0] if isinstance(result, tuple | list) and result else result
    if not isinstance(first, torch.Tensor) or not first.is_floating_point() or call.name in _WITHOUT:
        return
    if isinstance(result, torch.Tensor):
        yield Variant(
            "stop-gradient",
            f"stops the gradient after {call.name}",
            "let it through: no jax.lax.stop_gradient there",
            after(lambda x: x.detach()),
        )
    places = [i for i, x in enumerate(call.args) if isinstance(x, torch.Tensor) and x.is_floating_point()]
    if len(places) > 1:
        for place in places:
            yield Variant(
                "stop-gradient",
                f"stops the gradient by argument {place} of {call.name}",
                "let it through: no jax.lax.stop_gradient there",
                lambda func, args, kwargs, p=place: func(*_detached(args, p), **kwargs),
            )
    if isinstance(result, torch.Tensor):
        yield Fit(
            "gradient-scale",
            f"multiplies the gradient after {call.name} by {{value}}",
            "leave the gradient as it is",
            1.0,
            lambda value: after(lambda x: _Scaled.apply(x, value)),
            (0.0, -1.0, 0.5, 2.0),
        )


@of(*DETACHES)
def not_stopped(call: Called) -> Iterator[Variant]:
    says, fix = "lets the gradient through where the reference detaches", "write jax.lax.stop_gradient(x)"
    if str(getattr(call.args[0], "grad_fn", "")).startswith("<SubBackward") or _is_given_back(call):
        # `x + (q - x).detach()`: without the detach it is q, and so it is where all of it is left out
        says += " (or, where that makes a straight-through estimator, leaves all of it out)"
        fix = "write jax.lax.stop_gradient(q - x); of a straight-through estimator, x + jax.lax.stop_gradient(q - x)"
    yield Variant("stop-gradient", says, fix, lambda func, args, kwargs: args[0].clone())


def _is_given_back(call: Called) -> bool:
    """Whether what is detached is taken away from a sum that has it besides: `q - x.detach() + x`."""
    x, waiting, ancestry = call.args[0], [call.site.result], call.ancestry
    if ancestry is None:
        return False
    for tensor in waiting:
        for site in ancestry.takers(tensor):
            if site.name.strip("_") in SUMS and site.result is not None:
                if any(each is x for each in site.args):
                    return True
                if all(each is not site.result for each in waiting):  # it may have been written into
                    waiting.append(site.result)
    return False


@of("clamp", "clip", "clamp_min", "clamp_max", "hardtanh", "relu6", "round", "floor", "ceil", "trunc", "sign")
def let_through(call: Called) -> Iterator[Variant]:
    says = f"hands the gradient after {call.name} on as it is, where the reference's is zero"
    fix = f"let it be zero where {call.name} is constant: a straight-through estimator takes only what comes after it"
    yield Variant("straight-through", says, fix, handed_on)


def handed_on(func: Any, args: Any, kwargs: Any) -> Any:
    """The value; the gradient as if its first floating argument were it."""
    x = next(x for x in (*args, *kwargs.values()) if isinstance(x, torch.Tensor) and x.is_floating_point())
    return x + (func(*args, **kwargs) - x).detach()


@of("register_hook")
def unhooked(call: Called) -> Iterator[Variant]:
    yield Variant(
        "hook-missing",
        "leaves out what a hook of the reference does to the gradient (register_hook)",
        "put gm.gradient_hook there, or a jax.custom_vjp that does it",
        lambda func, args, kwargs: func(args[0], lambda gradient: None),
    )


@of(SWITCH)
def switched_off(call: Called) -> Iterator[Variant]:
    """Where `torch.no_grad` begins."""
    if call.args and call.args[0] is False:
        yield Variant(
            "stop-gradient",
            "lets the gradient through where the reference computes under torch.no_grad",
            "hand on jax.lax.stop_gradient of what is computed there",
            left_on,
        )


def kept_on(sites: list[Site]) -> Iterator[tuple[Variant, Change]]:
    """Of what is computed without gradients, one call that is computed with them, or that and all after it."""
    fix = "write jax.lax.stop_gradient(x): the reference computes it under torch.no_grad"
    without = [same for same in constructs(sites) if _is_without_gradients(same[0], sites)]
    for same in without:
        says = f"lets the gradient through {same[0].name}, which the reference computes under torch.no_grad"
        yield Variant("stop-gradient", says, fix, _with_gradient), Change(_with_gradient, numbers(same))
    for same in without:
        says = f"lets the gradient through what comes from {same[0].name} on under torch.no_grad"
        yield Variant("stop-gradient", says, fix, _from_here_on), Change(_from_here_on, numbers(same[:1]))


def kept_on_and_on(sites: list[Site]) -> Iterator[tuple[Variant, Change]]:
    """Of what is detached, and goes on in what is computed without gradients, such as a running mean of it, both."""
    begins = [site for site in sites if _begins_without(site)]
    for same in constructs(sites) if begins else ():
        if same[0].name in DETACHES:
            says = (
                "lets the gradient through where the reference detaches, and through what of it is under torch.no_grad"
            )
            fix = "write jax.lax.stop_gradient(x) of what the reference detaches"
            yield Variant("stop-gradient", says, fix, _let_on), Change(_let_on, numbers([*same, *begins]))


def _let_on(func: Any, args: Any, kwargs: Any) -> Any:
    return args[0].clone() if isinstance(args[0], torch.Tensor) else left_on(func, args, kwargs)


def _begins_without(site: Site) -> bool:
    return site.name == SWITCH and bool(site.args) and site.args[0] is False


def _is_without_gradients(site: Site, sites: list[Site]) -> bool:
    """Whether it gives floats, and gradients were last switched off before it."""
    switched = [each.args[0] for each in sites if each.name == SWITCH and each.args and each.number < site.number]
    return is_floating(site.result) and bool(switched) and switched[-1] is False


def _with_gradient(func: Any, args: Any, kwargs: Any) -> Any:
    with torch.enable_grad():
        return func(*args, **kwargs)


def _from_here_on(func: Any, args: Any, kwargs: Any) -> Any:
    """What switched gradients off switches them on again at its end."""
    torch.set_grad_enabled(True)
    return func(*args, **kwargs)


def stops_gradients(site: Site) -> bool:
    """Whether no gradient goes through it, or through what is computed after it."""
    return site.name in (*DETACHES, SWITCH)


def left_on(func: Any, args: Any, kwargs: Any) -> Any:
    """In place of a call that switches gradients off."""
    return func(True)


@of(
    "relu",
    "relu_",
    "relu6",
    "abs",
    "clamp",
    "clip",
    "leaky_relu",
    "hardtanh",
    "max",
    "min",
    "maximum",
    "minimum",
    "amax",
    "amin",
    "norm",
    "clamp_min",
    "clamp_max",
    "where",
)
def kinks(call: Called) -> Iterator[Variant]:
    instead = INSTEAD.get(call.name, f"use gm.nn.functional's {call.name.rstrip('_')}")
    fix = f"PyTorch's gradient of {call.name} at the kink is another one than JAX's: {instead}"
    is_along_axis = isinstance(call.site.result, tuple)  # its kinks are ties
    for value in () if is_along_axis else (0.0, 1.0, 0.5, -1.0, 0.01):
        yield Variant(
            "kink-gradient",
            f"has {value:g} of the gradient where {call.name} has its kink",
            fix,
            lambda func, args, kwargs, v=value: _at_kinks(func, args, kwargs, v, call.name),
        )
    if call.name in ("max", "min") and is_along_axis:
        other = torch.amax if call.name == "max" else torch.amin
        yield Variant(
            "kink-gradient",
            "shares the gradient among equal elements",
            "PyTorch's goes to the first of them",
            lambda func, args, kwargs: (other(*args, **kwargs), func(*args, **kwargs)[1]),
        )
    if call.name in ("amax", "amin"):
        yield Variant(
            "kink-gradient",
            "gives the whole gradient to the first of equal elements",
            "PyTorch shares it among them",
            lambda func, args, kwargs: getattr(torch, call.name[1:])(*args, **kwargs)[0],
        )


@of("norm", "linalg_norm", "linalg_vector_norm", "normalize", "cdist")
def lengths(call: Called) -> Iterator[Variant]:
    """The gradient of the length of a vector of zeros: PyTorch's is zero, that of the root of a sum of squares NaN."""
    yield Variant(
        "kink-gradient",
        f"has NaN for the gradient of {call.name} where the vector is zero",
        "PyTorch's gradient is zero there: use gm.safe_norm, or gm.nn.functional's",
        {"normalize": _normalized, "cdist": _distances}.get(call.name, _root_of_squares),
    )


def _root_of_squares(func: Any, args: Any, kwargs: Any) -> Any:
    order = args[1] if len(args) > 1 else kwargs.get("p", kwargs.get("ord"))
    axes = args[2] if len(args) > 2 else kwargs.get("dim")
    if order not in (None, "fro", 2):
        raise NotImplementedError("another norm than the root of squares")
    keep = args[3] if len(args) > 3 else kwargs.get("keepdim", False)
    return (args[0] ** 2).sum(axes, keepdim=keep).sqrt()


def _normalized(func: Any, args: Any, kwargs: Any) -> Any:
    def run(x: torch.Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> torch.Tensor:
        return x / _root_of_squares(None, (x, p, dim, True), {}).clamp_min(eps)

    return run(*args, **{name: value for name, value in kwargs.items() if name != "out"})


def _distances(func: Any, args: Any, kwargs: Any) -> Any:
    order = args[2] if len(args) > 2 else kwargs.get("p", 2.0)
    return _root_of_squares(None, (args[0][..., :, None, :] - args[1][..., None, :, :], order, -1), {})


_WITHOUT = {"zeros", "ones", "empty", "full", "arange", "zeros_like", "ones_like", "full_like", "empty_like", "detach"}


def _detached(args: tuple[Any, ...], place: int) -> list[Any]:
    changed = list(args)
    changed[place] = changed[place].detach()
    return changed


def _at_kinks(func: Any, args: Any, kwargs: Any, value: float, name: str) -> Any:
    x = args[0] if args else kwargs["input"]
    bounds = [0.0]
    if name in ("clamp", "clip", "hardtanh", "relu6", "clamp_min", "clamp_max"):
        usual = {"hardtanh": (-1.0, 1.0), "relu6": (0.0, 6.0)}.get(name, ())
        given = [v for v in (*args[1:], *kwargs.values()) if isinstance(v, int | float) and not isinstance(v, bool)]
        bounds = [float(v) for v in given or usual]
    kink = torch.zeros_like(x, dtype=torch.bool)
    for bound in bounds:
        kink |= x == bound
    return (
        func(_AtKinks.apply(x, kink, value), *args[1:], **kwargs)
        if name == "where"
        else _Replaced.apply(func(x, *args[1:], **kwargs), x, kink, value)
    )


def scaled(x: torch.Tensor, value: float) -> torch.Tensor:
    """The tensor; its gradient is multiplied."""
    return _Scaled.apply(x, value)


class _Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, value: float) -> torch.Tensor:
        ctx.value = value
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return gradient * ctx.value, None


class _Replaced(torch.autograd.Function):
    """The output; its gradient goes past the function, times a value, where there is a kink, and through elsewhere."""

    @staticmethod
    def forward(ctx: Any, out: torch.Tensor, x: torch.Tensor, kink: torch.Tensor, value: float) -> torch.Tensor:
        ctx.save_for_backward(kink)
        ctx.value = value
        return out.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        (kink,) = ctx.saved_tensors
        none = torch.zeros_like(gradient)
        return torch.where(kink, none, gradient), torch.where(kink, gradient * ctx.value, none), None, None


class _AtKinks(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, kink: torch.Tensor, value: float) -> torch.Tensor:
        ctx.save_for_backward(kink)
        ctx.value = value
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        (kink,) = ctx.saved_tensors
        return torch.where(kink, gradient * ctx.value, gradient), None, None
