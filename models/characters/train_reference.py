"""Learns to spell Python, in PyTorch. The twin in graph mode is `train.py`.

python -m graphmode.models.characters.train_reference [eager|compile|cudagraph]
"""

import sys

import numpy as np
import torch
import torch.nn.functional as F
from graphmode.compare.training.torch_steps import Kind, TorchStep, as_kind, as_kind_name
from torch import Tensor, nn

from .reference import CharacterModel
from .text import windows

BATCH, LENGTH, STEPS = 32, 64, 400


def make_step(model: nn.Module, kind: Kind = "eager") -> TorchStep:
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)

    def step(batch: tuple[Tensor, Tensor]) -> Tensor:
        symbols, following = batch
        optimizer.zero_grad()
        loss = F.cross_entropy(model(symbols).flatten(0, 1), following.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.detach()

    return as_kind(step, kind, model, optimizer)


def main(kind: Kind = "eager") -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    step = make_step(CharacterModel().to(device), kind)
    rng = np.random.default_rng(0)
    for number in range(STEPS):
        loss = step(tuple(torch.from_numpy(x).to(device) for x in windows(rng, BATCH, LENGTH)))
        if (number + 1) % 50 == 0:
            print(f"step {number + 1}: {loss / np.log(2):.2f} bits a character")


if __name__ == "__main__":
    main(as_kind_name(*sys.argv[1:]))
