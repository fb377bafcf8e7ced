"""The text-line reader on rendered text: variable width as one padded batch, trained by CTC."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from graphmode.compare import Case, channels_last

import graphmode as gm
from graphmode.nn.functional import ctc_loss

from ..optimizers import adamw
from .charset import labels_of, text_of
from .model import Legere
from .rendered import as_line, batch, rendered, some_lines

HELLO = "Hello World 2026"
LABELS = np.array(labels_of(HELLO))
LINE_BY_LINE = "cuts each line to its width, a Python number that is read back to the host"


WIDTH = 184  # of HELLO; all are as wide, and so one graph serves them


def _inputs(rng: np.random.Generator, count: int = 3) -> tuple[np.ndarray, np.ndarray]:
    return some_lines(rng, count, WIDTH)


def _hello(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    images, widths = _inputs(rng)
    (images[0],), widths[:1] = batch([as_line(rendered(HELLO))], WIDTH)
    return images, widths


def _widths(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """One column, and numbers that 4 does not divide; noise all over, in the padding too."""
    images, _ = _inputs(rng)
    return rng.standard_normal(images.shape).astype(np.float32), np.array([1, 38, 183])


def _reference():
    from .reference import Legere as Reference

    return Reference()


def _weights():
    from .reference import pretrained_weights

    return pretrained_weights()


def _model(rngs: nnx.Rngs) -> Legere:
    return Legere(rngs=rngs)


def _torch_loss(outputs):
    import torch

    logits, lengths = outputs
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))  # PyTorch has no CTC loss of half precision
    targets = torch.tensor(LABELS, device=logits.device).expand(len(logits), -1)
    counts = torch.clamp(lengths // 2, max=len(LABELS))  # room for a blank after each
    return torch.nn.functional.ctc_loss(logits.log_softmax(-1).transpose(0, 1), targets, lengths, counts)


def _loss(outputs):
    logits, lengths = outputs
    logits = logits.astype(jnp.promote_types(logits.dtype, jnp.float32))
    targets = jnp.broadcast_to(jnp.asarray(LABELS), (len(logits), len(LABELS)))
    counts = jnp.minimum(lengths // 2, len(LABELS))
    return ctc_loss(jnp.swapaxes(jax.nn.log_softmax(logits), 0, 1), targets, lengths, counts)


def _read(outputs) -> dict[str, str]:
    logits, lengths = outputs.values()
    found = gm.ctc_greedy(logits, lengths)
    return {HELLO: text_of(np.asarray(found.tokens[0, : int(found.lengths[0])]).tolist())}


CASE = Case(
    name="legere",
    summary="text lines of many widths are one padded batch, and no padding reaches what is read; CTC",
    reference=_reference,
    pretrained=_weights,
    model=_model,
    inputs=_inputs,
    edge_inputs={"hello": _hello, "widths": _widths},
    to_model=channels_last,
    loss=(_torch_loss, _loss),
    optimizer=adamw(1e-3),
    modes=("inference", "forward_backward"),
    expected={
        "torch.trace": "records the widths of the example",
        "torch.cudagraph": LINE_BY_LINE,
        "torch.graphed_callables": LINE_BY_LINE,
    },
    patience={"forward_backward/jax.*": 90.0, "forward_backward/jax.eager": 15.0},
    # Lines are read each by itself: a batch of one would be another graph to compile, and say no more.
    adversarial=("zeros", "ties", "a large mean", "all positive", "all negative"),
    interpret={"hello": _read},
    sweep=_inputs,
    tags=("vision", "recurrent", "pretrained", "training"),
)
