"""Sizes and special tokens of an ANARCII. Importing it imports no framework."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

PAD, SOS, EOS, SKIP = range(4)
FC_1 = "layers.0.positionwise_feedforward.fc_1.bias"


@dataclass(frozen=True)
class AnarciiConfig:
    """Sizes; the defaults are those of the antibody model in its mode "accuracy".

    Attributes:
      input_dim: residues and special tokens.
      output_dim: numbers, chain types and special tokens.
      hid_dim: D; `n_heads` divides it.
      n_layers: of the encoder, and of the decoder.
      pf_dim: width of the feed-forward networks.
      max_length: the most tokens of a sequence.
    """

    input_dim: int = 25
    output_dim: int = 136
    hid_dim: int = 128
    n_layers: int = 2
    n_heads: int = 4
    pf_dim: int = 512
    max_length: int = 210

    @classmethod
    def tiny(cls) -> AnarciiConfig:
        """For tests: no two axes have the same length."""
        return cls(input_dim=25, output_dim=19, hid_dim=8, n_layers=1, n_heads=2, pf_dim=12, max_length=16)

    @classmethod
    def of(cls, state: Mapping[str, np.ndarray], n_heads: int) -> AnarciiConfig:
        """The sizes of a `state_dict`, which tells all but the number of heads.

        Raises:
          ValueError: where it is of another architecture.
        """
        names = [f"encoder.{name}" for name in ("tok_embedding.weight", "pos_embedding.weight", FC_1)]
        if missing := [name for name in (*names, "decoder.fc_out.bias") if name not in state]:
            raise ValueError(f"state has no {', '.join(missing)}; give the state_dict of an ANARCII model")
        (input_dim, hid_dim), (max_length, _), (pf_dim,) = (state[name].shape for name in names)
        n_layers = sum(name.startswith("encoder.layers.") and name.endswith("fc_1.bias") for name in state)
        return cls(input_dim, len(state["decoder.fc_out.bias"]), hid_dim, n_layers, n_heads, pf_dim, max_length)


ACCURATE = AnarciiConfig()
