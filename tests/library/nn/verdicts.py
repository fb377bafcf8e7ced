"""The verdict on one class or function over its samples: a few, or all of them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import torch

from .judging import Verdict, judge_equal, judge_precise
from .samples import FUNCTIONS, MODULES, Sample, function_samples, module_samples
from .sides import adapter_of

# Draws that the float32 errors are pooled over; more only where fewer seem to differ, since one draw with a large
# cancellation decides over a mean of few.
SEEDS = (4, 24, 96)


def judge_module(name: str, most: int | None = None) -> Verdict:
    """Samples of a class in `module_db`, in training and evaluation, by both verdicts: so many a mode, or all."""
    verdict = Verdict(name)
    for training in (True, False):
        exact = list(module_samples(name, training=training, dtype=torch.float64, seed=0))
        _judge(_spread(exact, most), _Draws(module_samples, name, training=training), verdict)
    return verdict


def judge_function(name: str, most: int | None = None) -> Verdict:
    """Samples of an entry of `op_db`, by both verdicts: so many, or all."""
    verdict = Verdict(name)
    exact = list(function_samples(name, dtype=torch.float64, seed=0))
    _judge(_spread(exact, most), _Draws(function_samples, name), verdict)
    return verdict


def glance_at_module(name: str, samples: int = 2) -> Verdict:
    """A few samples of a class in training, under `jax.jit` and in float64 alone."""
    return _glance(name, list(module_samples(name, training=True, dtype=torch.float64, seed=0)), samples)


def glance_at_function(name: str, samples: int = 2) -> Verdict:
    """A few samples of an entry of `op_db`, under `jax.jit` and in float64 alone."""
    return _glance(name, list(function_samples(name, dtype=torch.float64, seed=0)), samples)


def _glance(name: str, exact: list[Sample], most: int) -> Verdict:
    """At most so many samples, in one layout after the other."""
    verdict = Verdict(name)
    for position, sample in enumerate(_spread(exact, most)):
        layouts = adapter_of(sample).layouts
        judge_equal(sample, verdict, layouts=layouts[position % 2 :][:1])
    return verdict


def _spread(samples: list[Sample], most: int | None) -> list[Sample]:
    """At most so many of them, first and last among them."""
    count = min(most or len(samples), len(samples))
    return [samples[round(position * (len(samples) - 1) / max(count - 1, 1))] for position in range(count)]


class _Draws:
    """Samples in float32, drawn from one seed after another, each seed once."""

    def __init__(self, samples: Callable[..., Iterable[Sample]], name: str, **options: Any):
        self._of = functools.cache(lambda seed: list(samples(name, dtype=torch.float32, seed=seed, **options)))

    def of(self, index: int, seeds: int) -> list[Sample]:
        """Of so many seeds; none where these draw fewer samples."""
        return [drawn[index] for seed in range(seeds) if index < len(drawn := self._of(seed))]


def _judge(exact: list[Sample], draws: _Draws, verdict: Verdict) -> None:
    for position, sample in enumerate(exact):
        judge_equal(sample, verdict, compiled=position > 0)
        for seeds in SEEDS:
            found = Verdict(verdict.name)
            if drawn := draws.of(sample.index, seeds):
                judge_precise(drawn, found)
            if not found.failures:
                break
        verdict.ratio = max(verdict.ratio, found.ratio)
        verdict.failures += found.failures


__all__ = ["FUNCTIONS", "MODULES", "glance_at_function", "glance_at_module", "judge_function", "judge_module"]
