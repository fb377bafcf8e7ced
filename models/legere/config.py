"""The sizes of the text-line reader, and which of them a file of weights tells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

STRIDES = ((2, 2), (1, 1), (2, 1), (1, 1), (2, 1), (2, 1))


@dataclass(frozen=True)
class LegereConfig:
    """Sizes; the defaults are those of the published model.

    Attributes:
      stem_channels: of the first convolution, which halves height and width.
      channels: that each block gives.
      strides: of each block, down and along. With the stem's 2 they make of the 32 rows one: their product is 16.
      hidden_size: of the recurrent layer, in each direction.
      num_classes: characters and the blank.
    """

    stem_channels: int = 24
    channels: tuple[int, ...] = (48, 64, 96, 128, 160, 192)
    strides: tuple[tuple[int, int], ...] = STRIDES
    hidden_size: int = 128
    num_classes: int = 122

    def __post_init__(self) -> None:
        if len(self.strides) != len(self.channels):
            raise ValueError(
                f"strides has {len(self.strides)} pairs, and channels {len(self.channels)}; give a pair a block"
            )

    @classmethod
    def tiny(cls) -> LegereConfig:
        """For tests: no two axes have the same length."""
        return cls(3, (4, 6, 5, 7, 8, 9), STRIDES, 10, 13)

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> LegereConfig:
        """The sizes of these tensors, by name. Strides are in none of them: they are taken to be the published ones.

        Raises:
          ValueError: where tensors are missing that tell a size, or there are not as many blocks as published strides.
        """
        blocks = sum(name.startswith("blocks.") and name.endswith(".pointwise.weight") for name in state)
        wanted = ["stem.0.weight", "rnn.weight_hh_l0", "head.weight"]
        wanted += [f"blocks.{i}.pointwise.weight" for i in range(len(STRIDES))]
        missing = [name for name in wanted if name not in state]
        if missing or blocks != len(STRIDES):
            raise ValueError(
                f"the state_dict has {blocks} blocks, and {len(STRIDES)} were wanted; it lacks "
                f"{', '.join(missing) or 'nothing else'}: give one of this architecture"
            )
        return cls(
            stem_channels=state["stem.0.weight"].shape[0],
            channels=tuple(state[f"blocks.{i}.pointwise.weight"].shape[0] for i in range(blocks)),
            hidden_size=state["rnn.weight_hh_l0"].shape[1],
            num_classes=state["head.weight"].shape[0],
        )
