"""Bugs in models that people know, with their real weights where these are installed: the same kinds at true sizes."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp

from ..edits import attributes, methods, output, planted, variable
from ..plant import Plant
from .recurrent import gates
from .weights import DOUBLED, LOST, TRANSPOSED
from .windows import FLIPPED, before

RECURRENT = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
THREE_LAYERS = [f"{name}_l{layer}" for layer in range(3) for name in RECURRENT]
BOTH_DIRECTIONS = [f"{name}_l0{side}" for side in ("", "_reverse") for name in RECURRENT]
ONE_LAYER = [f"{name}_l0" for name in RECURRENT]

ABSENT = methods(call=lambda self, x: x)


def in_another_structure(*plants: Plant) -> list[Plant]:
    """Where the reference goes chunk by chunk or line by line, or is one module, it has no call that compares with the
    port's: the nearest module around that has one is as right an answer, and here that is the model itself."""
    return [dataclasses.replace(plant, modules=(*plant.modules, "")) for plant in plants]


PLANTS: list[Plant] = [
    *planted("layer-norm-eps", "minilm", "encoder.layer.2.output.LayerNorm", edit=attributes(eps=1e-5)),
    *planted("layer-norm-eps", "anarcii", "decoder.layers.1.ff_layer_norm", edit=attributes(eps=1e-3)),
    *planted(
        "gelu-form",
        "minilm",
        "encoder.layer.4.intermediate.intermediate_act_fn",
        edit=attributes(approximate="tanh"),
    ),
    *planted("weight-transposed", "minilm", "encoder.layer.3.attention.self.key", edit=TRANSPOSED),
    *planted("bias-dropped", "minilm", "encoder.layer.0.attention.self.value", edit=LOST),
    *planted("embedding-scaled", "anarcii", "decoder.tok_embedding", edit=output(lambda x: x * 128**0.5)),
    *in_another_structure(*planted("batch-norm-eps", "legere", "blocks.2.bn1", edit=attributes(eps=1e-3))),
    *in_another_structure(*planted("batch-norm-momentum", "legere", "blocks.4.bn2", edit=attributes(momentum=0.9))),
    *in_another_structure(*planted("kernel-flipped", "legere", "blocks.0.depthwise", edit=FLIPPED)),
    *in_another_structure(
        *planted("padding-asymmetric", "legere", "blocks.1.depthwise", edit=methods(paddings=before))
    ),
    *in_another_structure(*planted("gru-gate-order", "legere", "rnn", edit=gates(BOTH_DIRECTIONS, 3, (1, 0, 2)))),
    *in_another_structure(*planted("gru-gate-order", "g2p", "encoder.gru", edit=gates(ONE_LAYER, 3, (0, 2, 1)))),
    *in_another_structure(
        *planted(
            "bias-dropped", "g2p", "fc", edit=LOST, causes=("bias-missing", "parameter-missing", "summand-missing")
        )
    ),
    *planted("lstm-gate-order", "resemblyzer", "lstm", edit=gates(THREE_LAYERS, 4, (0, 2, 1, 3))),
    *planted("bias-doubled", "resemblyzer", "linear", edit=DOUBLED),
    *in_another_structure(*planted("activation-missing", "silero_vad", "encoder.2.activation", edit=ABSENT)),
    *in_another_structure(*planted("bias-dropped", "silero_vad", "decoder.decoder.2", edit=LOST)),
    *planted("ceil-mode", "mtcnn_networks", "onet.pool1", edit=attributes(ceil_mode=False)),
    *planted("bias-dropped", "mtcnn_networks", "onet.dense5", edit=LOST),
    *planted("leaky-slope", "mtcnn_networks", "rnet.prelu2", edit=variable("weight", lambda w: jnp.full_like(w, 0.25))),
    *planted("batch-norm-eps", "resnet18", "bn1", edit=attributes(eps=1e-3)),
]
