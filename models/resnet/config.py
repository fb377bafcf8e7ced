"""The sizes of the ResNets, and which depth a file of weights is of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# depth: blocks in each stage, and whether they are bottlenecks
DEPTHS = {
    18: ((2, 2, 2, 2), False),
    34: ((3, 4, 6, 3), False),
    50: ((3, 4, 6, 3), True),
    101: ((3, 4, 23, 3), True),
}


@dataclass(frozen=True)
class ResNetConfig:
    """Sizes; the defaults are those of ResNet-18.

    Attributes:
      blocks: in each of the four stages.
      bottleneck: whether a block is three convolutions, the middle one narrow, or two.
      num_classes: of the classifier.
    """

    blocks: tuple[int, int, int, int] = (2, 2, 2, 2)
    bottleneck: bool = False
    num_classes: int = 1000

    @property
    def expansion(self) -> int:
        """Channels that a block gives for one of its own."""
        return 4 if self.bottleneck else 1

    @classmethod
    def of_depth(cls, depth: int, num_classes: int = 1000) -> ResNetConfig:
        """ResNet-18, 34, 50 or 101.

        Raises:
          ValueError: for another depth.

        Example:
          >>> ResNetConfig.of_depth(50).blocks
          (3, 4, 6, 3)
        """
        if depth not in DEPTHS:
            raise ValueError(f"depth is {depth!r}; choose from {', '.join(map(str, DEPTHS))}")
        return cls(*DEPTHS[depth], num_classes)

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> ResNetConfig:
        """The sizes of torchvision's tensors, by name, whatever the depth.

        Raises:
          ValueError: where the first convolution of a stage, or the classifier, is missing.
        """
        firsts = [f"layer{stage}.0.conv1.weight" for stage in range(1, 5)]
        missing = [name for name in (*firsts, "fc.weight") if name not in state]
        if missing:
            raise ValueError(f"the state_dict has no {', '.join(missing)}; give one by torchvision's names of a ResNet")
        counts = (
            len({name.split(".")[1] for name in state if name.startswith(f"layer{stage}.")}) for stage in range(1, 5)
        )
        return cls(tuple(counts), "layer1.0.conv3.weight" in state, state["fc.weight"].shape[0])  # type: ignore[arg-type]
