"""Small correct ports that bugs are planted into, by name; a case is built when it is asked for."""

from __future__ import annotations

from importlib import import_module

from graphmode.models import zoo

from ....case import Case

SPECIMENS: dict[str, str] = {
    "conv_net": "conv_net:CASE",
    "encoder": "encoder:CASE",
    "decoder": "decoder:CASE",
    "tagger": "tagger:CASE",
    "upsampler": "upsampler:CASE",
    "losses": "losses:CASE",
    "kinks": "kinks:CASE",
    "router": "router:CASE",
    "trained_sgd": "trained:SGD",
    "trained_nesterov": "trained:NESTEROV",
    "trained_adam": "trained:ADAM",
    "trained_adamw": "trained:ADAMW",
    "trained_rmsprop": "trained:RMSPROP",
}


def specimen(name: str) -> Case:
    """The case of this name: of `SPECIMENS`, or of the zoo.

    Raises:
      CaseError: where there is none.
    """
    if name not in SPECIMENS:
        return zoo.load(name)
    module, _, attribute = SPECIMENS[name].partition(":")
    return getattr(import_module(f".{module}", __name__), attribute)
