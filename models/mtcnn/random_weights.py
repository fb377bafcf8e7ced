"""Random weights that find something: drawn as they are, the networks would take nothing for a face."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor, nn

from .reference import MTCNN, imresample

SHARES = (0.005, 0.3, 0.5)  # of the cells or crops of a picture that each network lets pass, about


@torch.no_grad()
def made_to_find(detector: MTCNN, picture: np.ndarray) -> MTCNN:
    """The detector, its three class heads scaled and shifted until a share of the picture passes each threshold.

    Args:
      detector: is changed.
      picture: `[H, W, 3]` uint8.
    """
    pixels = (torch.tensor(picture).permute(2, 0, 1)[None].float() - 127.5) * 0.0078125
    height, width = pixels.shape[2:]
    windows = [
        pixels[:, :, y : y + 40, x : x + 40] for y in range(0, height - 40, 15) for x in range(0, width - 40, 15)
    ]
    scaled = imresample(pixels, (height // 3, width // 3))
    crops = (scaled, *(torch.cat([imresample(window, (side, side)) for window in windows]) for side in (24, 48)))
    networks = (detector.pnet, detector.rnet, detector.onet)
    heads = (detector.pnet.conv4_1, detector.rnet.dense5_1, detector.onet.dense6_1)
    for network, head, crop, share, threshold in zip(networks, heads, crops, SHARES, detector.thresholds, strict=True):
        _shift(head, network(crop)[-1], share, threshold)
    return detector


def _shift(head: nn.Module, probabilities: Tensor, share: float, threshold: float) -> None:
    assert isinstance(head, nn.Conv2d | nn.Linear)
    assert head.bias is not None
    no, yes = probabilities.unbind(1)
    logits = yes.log() - no.log()
    scale = 2 / logits.std()
    head.weight *= scale
    head.bias *= scale
    head.bias[1] += math.log(threshold / (1 - threshold)) - torch.quantile(logits * scale, 1 - share)
