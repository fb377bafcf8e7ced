"""Learns to read digits, in PyTorch. The twin in graph mode is `train.py`.

python -m graphmode.models.digits.train_reference [eager|compile|cudagraph]
"""

import sys

import numpy as np
import torch
import torch.nn.functional as F
from graphmode.compare.training.torch_steps import Kind, TorchStep, as_kind, as_kind_name
from torch import Tensor, nn

from .images import digits
from .reference import DigitNet

BATCH, EPOCHS = 64, 15


def make_step(model: nn.Module, kind: Kind = "eager") -> TorchStep:
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def step(batch: tuple[Tensor, Tensor]) -> Tensor:
        images, labels = batch
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return as_kind(step, kind, model, optimizer)


@torch.no_grad()
def accuracy(model: nn.Module, images: Tensor, labels: Tensor) -> float:
    return (model(images).argmax(-1) == labels).double().mean().item()


def main(kind: Kind = "eager") -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    train, test = ([torch.from_numpy(x).to(device) for x in half] for half in digits())
    model = DigitNet().to(device)
    step = make_step(model, kind)
    rng = np.random.default_rng(0)
    for epoch in range(EPOCHS):
        model.train()
        for rows in np.split(rng.permutation(len(train[0])), range(BATCH, len(train[0]), BATCH))[:-1]:
            loss = step((train[0][rows], train[1][rows]))
        print(f"epoch {epoch}: loss {loss:.4f}, test accuracy {accuracy(model.eval(), *test):.1%}")


if __name__ == "__main__":
    main(as_kind_name(*sys.argv[1:]))
