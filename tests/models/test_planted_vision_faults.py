"""Porting faults planted into convolutional networks: the check must catch each, and accuse no correct port."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from flax import nnx
from graphmode.compare import check
from graphmode.models.efficientnet_lite0 import model as lite0
from graphmode.models.efficientnet_lite0 import reference as lite0_reference
from graphmode.models.efficientnet_lite0.case import CASE as LITE0
from graphmode.models.resnet import model as resnet
from graphmode.models.resnet import reference as resnet_reference
from graphmode.models.resnet.case import CASE as RESNET18
from graphmode.models.resnet.config import ResNetConfig
from planting import planted, some

from graphmode import nn
from graphmode.weights import TRANSFORM, Permute

SMALL_SIZES = ResNetConfig((1, 1, 1, 1), num_classes=70)
STAGES = ((3, 1, 1, 16, 1), (3, 2, 2, 24, 2))


def images(rng: np.random.Generator) -> tuple[np.ndarray]:
    return (rng.standard_normal((2, 3, 48, 48)).astype(np.float32),)


def small_resnet(rngs: nnx.Rngs) -> resnet.ResNet:
    return resnet.ResNet(SMALL_SIZES, rngs=rngs)


def small_lite0_reference() -> lite0_reference.EfficientNetLite0:
    """Scaled so that activations reach 6, as those of the trained network do."""
    network = lite0_reference.EfficientNetLite0(70, STAGES)
    for name, parameter in network.named_parameters():
        if "_bn" in name and name.endswith("weight"):
            torch.nn.init.uniform_(parameter, 3, 6)
    return network


def small_lite0(rngs: nnx.Rngs) -> lite0.EfficientNetLite0:
    return lite0.EfficientNetLite0(70, STAGES, rngs=rngs)


SMALL_RESNET = dataclasses.replace(
    RESNET18,
    reference=lambda: resnet_reference.ResNet(SMALL_SIZES),
    model=small_resnet,
    inputs=images,
    check_inputs=None,
    edge_inputs={},
    adversarial=(),
)
SMALL_LITE0 = dataclasses.replace(
    LITE0,
    reference=small_lite0_reference,
    model=small_lite0,
    inputs=images,
    check_inputs=None,
    edge_inputs={},
    adversarial=(),
    interpret={},
    pretrained=None,
)


def every(model: nnx.Module, kind: type) -> list:
    return [module for _, module in nnx.iter_modules(model) if isinstance(module, kind)]


def wrong_epsilon(model):
    for norm in every(model, nn.BatchNorm2d):
        norm.eps *= 1.1


def wrong_momentum(model):
    for norm in every(model, nn.BatchNorm2d):
        norm.momentum = 1 - norm.momentum


class BiasedVariance(nn.BatchNorm2d):
    def __call__(self, input):
        kept = (1 - self.momentum) * self.running_var[...]
        output = super().__call__(input)
        if not self.use_running_average:
            count = input.size // self.num_features
            self.running_var.set_value(kept + (self.running_var[...] - kept) * (count - 1) / count)
        return output


class LostStatistics(nn.BatchNorm2d):
    def __call__(self, input):
        before = self.running_mean[...], self.running_var[...]
        output = super().__call__(input)
        self.running_mean.set_value(before[0])
        self.running_var.set_value(before[1])
        return output


def last_norm_is(kind: type):
    def plant(model):
        every(model, nn.BatchNorm2d)[-1].__class__ = kind

    return plant


def stride_on_the_second_convolution(model):
    block = model.layer2.layers[0]
    block.conv1.stride, block.conv2.stride = block.conv2.stride, block.conv1.stride


def missing_residual(model):
    class NoShortcut(resnet.BasicBlock):
        def __call__(self, x):
            return self.relu(self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x))))))

    model.layer1.layers[0].__class__ = NoShortcut


def swapped_channels(model):
    """A square kernel whose input and output channels change places: every shape fits."""
    model.layer1.layers[0].conv2.weight.set_metadata(TRANSFORM, Permute((2, 3, 0, 1)))


def transposed_kernels(model):
    """Height for width."""
    model._blocks[0]._depthwise_conv.weight.set_metadata(TRANSFORM, Permute((3, 2, 1, 0)))


def symmetric_padding(model):
    class Symmetric(lite0.SameConv2d):
        def paddings(self, size):
            return tuple((k // 2, k // 2) for k in self.kernel_size)

    for conv in every(model, lite0.SameConv2d):
        conv.__class__ = Symmetric


def relu_for_relu6(model):
    model._blocks[1]._relu6 = nn.ReLU()


def lost_shortcut(model):
    model._blocks[2].shortcut = False


RESNET_FAULTS = {
    "biased running variance": last_norm_is(BiasedVariance),
    "swapped channels": swapped_channels,
    "wrong epsilon": wrong_epsilon,
    "wrong momentum": wrong_momentum,
    "statistics never move": last_norm_is(LostStatistics),
    "missing residual": missing_residual,
    "stride on the wrong convolution": stride_on_the_second_convolution,
}
LITE0_FAULTS = {
    "symmetric padding": symmetric_padding,
    "ReLU for ReLU6": relu_for_relu6,
    "wrong epsilon": wrong_epsilon,
    "biased running variance": last_norm_is(BiasedVariance),
    "transposed kernels": transposed_kernels,
    "lost shortcut": lost_shortcut,
}


@pytest.mark.slow
@pytest.mark.parametrize(("case", "faults"), [(SMALL_RESNET, RESNET_FAULTS), (SMALL_LITE0, LITE0_FAULTS)])
def test_planted_faults_are_caught(case, faults):
    """One check, the faults and the correct port being variants: a training step, buffers included.

    For the correct port to pass, precision included, takes several draws: see `test_vision.test_a_whole_case_passes`.
    """
    ports = {"correct": case.model, **{name: planted(case, plant) for name, plant in some(faults).items()}}
    report = check(
        dataclasses.replace(case, model=ports, modes=("forward_backward",)), draws=1, locate=False, hasty=True
    )
    assert len(report.parity) == len(ports)
    assert [p.variant for p in report.parity if p.equal] == ["correct"], str(report)
    assert not report.passed
