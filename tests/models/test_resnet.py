"""ResNets of four depths: torchvision's names and numbers of parameters, files of each, and one forward pass."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest
import torch
from flax import nnx
from graphmode.compare import check
from graphmode.models import resnet
from graphmode.models.resnet.case import CASE
from graphmode.models.resnet.config import DEPTHS, ResNetConfig
from graphmode.models.resnet.model import ResNet
from graphmode.models.resnet.reference import ResNet as Reference

from graphmode.weights import WeightsError, load, to_state_dict

PARAMETERS = {18: 11_689_512, 34: 21_797_672, 50: 25_557_032, 101: 44_549_160}  # torchvision's documentation
# layers with weights: the depth without its name's rounding, and what projections add
TENSORS = {18: 122, 34: 218, 50: 320, 101: 626}
NAMES = {
    34: {"layer3.5.bn2.running_var": (256,), "layer4.0.downsample.0.weight": (512, 256, 1, 1)},
    50: {"layer1.0.downsample.0.weight": (256, 64, 1, 1), "layer3.5.conv3.weight": (1024, 256, 1, 1)},
    101: {"layer3.22.conv2.weight": (256, 256, 3, 3), "fc.weight": (1000, 2048)},
}


def unfilled(config: ResNetConfig) -> nnx.Module:
    return nnx.eval_shape(lambda: ResNet(config, rngs=nnx.Rngs(0)))


@pytest.mark.parametrize("depth", DEPTHS)
def test_names_shapes_and_parameters_are_torchvisions(depth):
    config = ResNetConfig.of_depth(depth)
    with torch.device("meta"):
        reference = Reference(config)
    assert sum(parameter.numel() for parameter in reference.parameters()) == PARAMETERS[depth]
    port = unfilled(config)
    counts = [leaf.size for leaf in jax.tree.leaves(nnx.state(port, nnx.Param))]
    assert sum(counts) == PARAMETERS[depth]
    tensors = reference.state_dict()
    assert len(tensors) == TENSORS[depth]
    for name, shape in NAMES.get(depth, {}).items():
        assert tuple(tensors[name].shape) == shape
    assert ResNetConfig.of(tensors) == config


@pytest.mark.parametrize("depth", [34, 101])
def test_a_state_dict_goes_by_name_there_and_back(depth):
    """Narrow images of the network: the names of every block, in numbers that are quick to draw."""
    original = Reference(ResNetConfig.of_depth(depth, num_classes=3)).state_dict()
    port = unfilled(ResNetConfig.of_depth(depth, num_classes=3))
    load(port, original)
    back = to_state_dict(port)
    assert back.keys() == original.keys()
    assert all(torch.equal(back[name], original[name]) for name in original)


@pytest.mark.parametrize("bottleneck", [False, True])
def test_a_file_gives_its_own_sizes(tmp_path, bottleneck):
    torch.manual_seed(0)
    config = ResNetConfig((2, 1, 1, 2), bottleneck, num_classes=7)
    theirs = Reference(config).eval()
    torch.save(theirs.state_dict(), tmp_path / "mine.pth")
    port = resnet.load(tmp_path / "mine.pth")
    x = torch.randn(2, 3, 48, 32)
    with torch.inference_mode():
        wanted = theirs(x).numpy()
    graphdef, state = nnx.split(port)
    ours = jax.jit(lambda state, x: nnx.merge(graphdef, state)(x))(state, np.moveaxis(x.numpy(), 1, -1))
    np.testing.assert_allclose(ours, wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())
    with pytest.raises(ValueError, match=r"depth is 18, and .* leave depth out"):
        resnet.load(tmp_path / "mine.pth", 18)


def test_files_that_are_no_resnet(tmp_path):
    state = Reference(ResNetConfig((1, 1, 1, 1), num_classes=7)).state_dict()
    torch.save({name: value for name, value in state.items() if name != "fc.weight"}, tmp_path / "headless.pth")
    with pytest.raises(ValueError, match=r"no fc\.weight"):
        resnet.load(tmp_path / "headless.pth")
    torch.save({**state, "layer1.0.extra": torch.ones(1)}, tmp_path / "more.pth")
    with pytest.raises(WeightsError, match="extra"):
        resnet.load(tmp_path / "more.pth")
    with pytest.raises(ValueError, match="choose from 18, 34, 50, 101"):
        ResNetConfig.of_depth(19)


@pytest.mark.slow
@pytest.mark.parametrize("blocks", [(1, 2, 1, 1), (2, 1, 2, 1)])
def test_both_kinds_of_block_pass_every_check(blocks):
    config = ResNetConfig(blocks, bottleneck=blocks[0] == 1, num_classes=9)
    case = dataclasses.replace(
        CASE,
        reference=lambda: Reference(config),
        model=lambda rngs: ResNet(config, rngs=rngs),
        inputs=CASE.check_inputs,
        check_inputs=None,
        edge_inputs={},
        adversarial=(),
    )
    report = check(case, draws=1)
    assert report.passed, str(report)
