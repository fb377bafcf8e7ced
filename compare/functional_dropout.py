"""Dropout that models call as a function, `F.dropout(x, p, self.training)`: off while both sides are compared, as the
modules are."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as theirs

import graphmode.nn.functional as ours

_DROPOUTS = ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout")
_ITSELF = "_graphmode_itself"  # of what stands in for a function, that
_is_inference = False
_rates: dict[Any, set[float]] = {theirs: set(), ours: set()}  # that functions have been called with in training


def note_mode(mode: str) -> None:
    """Says in which mode a side runs next: in inference nothing is switched off, so that a model that drops there is
    seen to."""
    global _is_inference
    _is_inference = mode == "inference"


@contextlib.contextmanager
def functional_dropout_off() -> Iterator[None]:
    """In training `torch.nn.functional.dropout` and its like give their input as it is, and so do those of
    `graphmode.nn.functional`; attention is computed with a `dropout_p` of 0. What was imported by name before is not
    reached."""
    before = [(holder, name, getattr(holder, name)) for holder in (theirs, ours) for name in _DROPOUTS]
    attention = theirs.scaled_dot_product_attention
    for rates in _rates.values():
        rates.clear()
    try:
        for holder, name, function in before:
            setattr(holder, name, _off(function, _rates[holder]))
        theirs.scaled_dot_product_attention = _without_rate(attention)
        yield
    finally:
        for holder, name, function in before:
            setattr(holder, name, function)
        theirs.scaled_dot_product_attention = attention


@contextlib.contextmanager
def functional_dropout_as_it_was() -> Iterator[None]:
    """Within `functional_dropout_off`, PyTorch's own functions: while a model is built, which may script them."""
    names = (*_DROPOUTS, "scaled_dot_product_attention")
    now = {name: getattr(theirs, name) for name in names}
    try:
        for name, function in now.items():
            setattr(theirs, name, getattr(function, _ITSELF, function))
        yield
    finally:
        for name, function in now.items():
            setattr(theirs, name, function)


def rates_of_functions() -> tuple[set[float], set[float]]:
    """The rates that the reference and the port have called functions with, since `functional_dropout_off` began."""
    return _rates[theirs], _rates[ours]


def _off(function: Callable[..., Any], rates: set[float]) -> Callable[..., Any]:
    signature = inspect.signature(function)
    trains = list(signature.parameters).index("training")

    @functools.wraps(function)
    def dropped(input: Any, *args: Any, **kwargs: Any) -> Any:
        is_training = kwargs.get("training", args[trains - 1] if len(args) >= trains else True)
        is_given = kwargs.get("mask") is not None  # what is dropped is an input, and the same on both sides
        if is_training and not _is_inference:
            rates.add(float(kwargs.get("p", args[0] if args else signature.parameters["p"].default)))
        return function(input, *args, **kwargs) if _is_inference or is_given or not is_training else input

    setattr(dropped, _ITSELF, function)
    return dropped


def _without_rate(attention: Any) -> Callable[..., torch.Tensor]:
    @functools.wraps(attention)
    def attended(
        query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, *args: Any, **kwargs: Any
    ) -> Any:
        rate = dropout_p if _is_inference else 0.0
        _rates[theirs].add(float(dropout_p))
        return attention(query, key, value, attn_mask, rate, *args, **kwargs)

    setattr(attended, _ITSELF, attention)
    return attended
