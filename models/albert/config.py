"""Sizes of an ALBERT. Importing it imports no framework."""

from __future__ import annotations

from dataclasses import dataclass

FIXED = {"hidden_act": "gelu", "num_hidden_groups": 1, "inner_group_num": 1}  # of what a config.json may ask


@dataclass(frozen=True)
class AlbertConfig:
    """Sizes by the names of `transformers.AlbertConfig`; the defaults are those of rxnmapper's model.

    Attributes:
      embedding_size: of what a token looks up, which a projection widens to `hidden_size`.
    """

    vocab_size: int = 591
    embedding_size: int = 128
    hidden_size: int = 256
    num_hidden_layers: int = 12
    num_attention_heads: int = 8
    intermediate_size: int = 512
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    pad_token_id: int = 0
    layer_norm_eps: float = 1e-12
    initializer_range: float = 0.02

    def __post_init__(self) -> None:
        if self.hidden_size % self.num_attention_heads:
            raise ValueError(
                f"hidden_size is {self.hidden_size}, which num_attention_heads = {self.num_attention_heads} does not "
                "divide; give a multiple"
            )

    @classmethod
    def tiny(cls) -> AlbertConfig:
        """For tests: no two axes have the same length."""
        return cls(
            vocab_size=97,
            embedding_size=20,
            hidden_size=32,
            num_hidden_layers=3,
            num_attention_heads=4,
            intermediate_size=48,
            max_position_embeddings=40,
            type_vocab_size=3,
        )
