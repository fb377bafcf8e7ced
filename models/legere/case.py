"""The text-line reader on rendered text: variable width as one padded batch, trained by CTC."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from graphmode.compare import Case, channels_last

import graphmode as gm
from graphmode.nn.functional import ctc_loss

from ..huggingface import ADAMW
from .charset import labels_of, text_of
from .model import Legere
from .rendered import as_line, batch, rendered, some_lines

HELLO = "Hello World 2026"
LABELS = np.array(labels_of(HELLO))
LINE_BY_LINE = "cuts each line to its width, a Python number that is read back to the host"


def _inputs(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    return some_lines(rng, 4)


def _hello(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    line = as_line(rendered(HELLO))
    return batch([line], line.shape[1])


def _widths(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """From one column to all, every remainder by 4 among them, and no white in the padding."""
    images = rng.standard_normal((5, 1, 32, 43)).astype(np.float32)
    return images, np.array([1, 43, 6, 15, 24])


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
    targets = torch.tensor(LABELS, device=logits.device).expand(len(logits), -1)
    counts = torch.clamp(lengths // 2, max=len(LABELS))  # room for a blank after each
    return torch.nn.functional.ctc_loss(logits.log_softmax(-1).transpose(0, 1), targets, lengths, counts)


def _loss(outputs):
    logits, lengths = outputs
    targets = jnp.broadcast_to(jnp.asarray(LABELS), (len(logits), len(LABELS)))
    counts = jnp.minimum(lengths // 2, len(LABELS))
    return ctc_loss(jnp.swapaxes(jax.nn.log_softmax(logits), 0, 1), targets, lengths, counts)


def _read(outputs) -> dict[str, str]:
    logits, lengths = outputs
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
    optimizer=ADAMW,
    modes=("inference", "forward_backward"),
    expected={
        "torch.trace": "records the widths of the example",
        "torch.cudagraph": LINE_BY_LINE,
        "torch.graphed_callables": LINE_BY_LINE,
    },
    interpret={"hello": _read},
    sweep=some_lines,
    tags=("vision", "recurrent", "pretrained", "training"),
)
