"""One CUDA graph of a step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from ..torch_side import TorchBatch
from .rows import Step

WARM_UP = 3  # calls before the capture, on a stream beside


@contextmanager
def recording(graph: torch.cuda.CUDAGraph) -> Iterator[None]:
    """`torch.cuda.graph`, but that what fails within is told: ending a capture that failed raises another error."""
    try:
        with torch.cuda.graph(graph):
            yield
    except Exception as error:
        raise error.__context__ or error from None


def captured(run: Step, sample: TorchBatch, before_capture: Callable[[], object] = lambda: None) -> Step:
    """Captures `run(sample)` once; a replay pays for copying its inputs into the captured ones, and gives what the
    capture gave, written anew.

    Source: https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-graphs
    """
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(WARM_UP):
            run(sample)
    torch.cuda.current_stream().wait_stream(stream)
    before_capture()
    graph = torch.cuda.CUDAGraph()
    with recording(graph):
        result = run(sample)
    static = sample.tensors

    def replay(batch: TorchBatch) -> Any:
        with torch.no_grad():
            for target, source in zip(static, batch.tensors, strict=True):
                target.copy_(source)
        graph.replay()
        return result

    return replay
