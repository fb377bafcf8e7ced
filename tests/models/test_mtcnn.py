"""The face detector: published answers, the original's own code beside ours, capacities that were too small."""

from __future__ import annotations

import importlib.util
import sys
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx
from graphmode.compare import check
from graphmode.models import mtcnn
from graphmode.models.installed import installed_weights
from graphmode.models.mtcnn.boxes import cell_boxes, pyramid, scaled_size
from graphmode.models.mtcnn.case import CASE, CROWD, GROUP, NETWORKS, readings
from graphmode.models.mtcnn.photographs import group, photograph, varied
from graphmode.models.mtcnn.random_weights import made_to_find
from graphmode.models.mtcnn.reference import MTCNN as Reference
from graphmode.models.mtcnn.reference import generate_bounding_box, nms, pretrained_weights
from planting import with_some_inputs

from graphmode.weights import WeightsError, load, to_state_dict

PUBLISHED_BOX, PUBLISHED_PROBABILITY = [181.051, 62.156, 267.747, 172.05], 0.9999977  # of the astronaut
SMALL = mtcnn.Config(min_face_size=30, candidates=256, proposals=96, refined=64, faces=6)


@pytest.fixture(scope="module")
def folder():
    try:
        return installed_weights("mtcnn")
    except ImportError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def reference(folder):
    detector = Reference().eval()
    detector.load_state_dict(pretrained_weights())
    return detector


def compiled(detector):
    graphdef, state = nnx.split(detector)
    run = jax.jit(lambda state, images: nnx.merge(graphdef, state)(images))
    return lambda images: run(state, images)


@pytest.fixture(scope="module")
def small(folder):
    """The port for pictures of 160 x 160, compiled once for a batch of three."""
    return compiled(mtcnn.load(config=SMALL))


THREE = (GROUP, CROWD, ())  # four faces, nine, none


@pytest.fixture(scope="module")
def three(small):
    return small(np.stack([group(160, heads) for heads in THREE]))


def test_the_astronaut_has_the_published_face_in_eager_pytorch(reference):
    with torch.inference_mode():
        found = reference(torch.tensor(photograph("astronaut"))[None])
    assert found["counts"].tolist() == [[299, 153, 9, 1]]
    np.testing.assert_allclose(found["boxes"][0, 0], PUBLISHED_BOX, atol=1e-3)
    np.testing.assert_allclose(found["probabilities"][0, 0], PUBLISHED_PROBABILITY, atol=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["astronaut", "chelsea", "coffee", "rocket"])
def test_photographs_in_one_graph(reference, name):
    """Whole photographs, with the default capacities: the published face, or none, and every stage's count."""
    picture = photograph(name)[None]
    found = compiled(mtcnn.load())(picture)
    with torch.inference_mode():
        wanted = reference(torch.tensor(picture))
    np.testing.assert_array_equal(found.counts, wanted["counts"])
    assert not found.overflow.any()
    np.testing.assert_array_equal(found.faces.valid, wanted["valid"])
    np.testing.assert_allclose(found.faces.values.boxes, wanted["boxes"], atol=1e-2)
    np.testing.assert_allclose(found.faces.values.landmarks, wanted["landmarks"], atol=1e-2)
    assert int(found.faces.count[0]) == (name == "astronaut")
    if name == "astronaut":
        np.testing.assert_allclose(found.faces.values.boxes[0, 0], PUBLISHED_BOX, atol=0.5)
        np.testing.assert_allclose(found.faces.values.probabilities[0, 0], PUBLISHED_PROBABILITY, atol=1e-6)


def test_one_several_and_no_faces(three):
    assert three.faces.count.tolist() == [4, 9, 0]
    assert three.faces.valid.sum(1).tolist() == [4, 6, 0]
    several = jax.tree.map(lambda leaf: leaf[0], three.faces)
    widths = several.values.boxes[:, 2] - several.values.boxes[:, 0]
    assert np.all(np.diff(widths[:4]) < 0)
    holders = [
        i
        for x1, y1, x2, y2 in several.values.boxes[:4]
        for i, (top, left, side) in enumerate(GROUP)
        if left < x1 < x2 < left + side and top < y1 < y2 < top + side
    ]
    assert sorted(holders) == [0, 1, 2, 3]
    eyes, mouth = several.values.landmarks[:4, :2], several.values.landmarks[:4, 3:]
    assert np.all(eyes[:, 0, 0] < eyes[:, 1, 0])
    assert np.all(eyes[..., 1].max(1) < mouth[..., 1].min(1))


def test_more_faces_than_capacity_are_told(three):
    assert three.faces.overflow.tolist() == [False, True, False]
    assert three.overflow.tolist() == [[False] * 4, [False, False, False, True], [False] * 4]
    with pytest.raises(ValueError, match="6 of 9"):
        jax.tree.map(lambda leaf: leaf[1], three.faces).to_list()


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    "stage", ["proposals", pytest.param("candidates", marks=SLOW), pytest.param("refined", marks=SLOW)]
)
def test_a_stage_that_is_too_small_is_told_there_and_at_the_end(folder, stage):
    """One graph a stage, on a picture with more of each than there is room for."""
    config = mtcnn.Config(**{"min_face_size": 60, "candidates": 64, "proposals": 16, "refined": 8, stage: 2})
    found = compiled(mtcnn.load(config=config))(group(160, [(0, 0, 160)])[None])
    number = ["candidates", "proposals", "refined", "faces"].index(stage)
    assert found.overflow[0].tolist() == [at == number for at in range(4)]
    assert int(found.counts[0, number]) > 2
    assert found.faces.overflow.tolist() == [True]


def test_readings_of_the_first_picture(three):
    found = {name: np.asarray(leaf) for name, leaf in CASE.to_reference(three).items()}
    assert list(readings(found)) == ["face 1", "face 2", "face 3", "face 4"]


def original_modules(folder):
    """facenet-pytorch's own networks and pipeline, its import of torchvision answered with an NMS of its definition."""

    def batched_nms(boxes, scores, idxs, iou_threshold):
        keep = torch.zeros_like(scores, dtype=torch.bool)
        for one in torch.unique(idxs):
            members = torch.where(idxs == one)[0]
            keep[members[one_by_one(boxes[members].tolist(), scores[members], iou_threshold)]] = True
        kept = torch.where(keep)[0]
        return kept[scores[kept].sort(descending=True, stable=True)[1]]

    stubs = {name: types.ModuleType(name) for name in ("torchvision", "torchvision.transforms", "torchvision.ops")}
    stubs["torchvision.ops.boxes"] = types.ModuleType("torchvision.ops.boxes")
    stubs["torchvision.ops.boxes"].batched_nms = batched_nms
    stubs["torchvision.transforms"].functional = types.ModuleType("torchvision.transforms.functional")
    for package in ("original", "original.utils"):
        stubs[package] = types.ModuleType(package)
        stubs[package].__path__ = []
    with pytest.MonkeyPatch.context() as patch:
        for name, stub in stubs.items():
            patch.setitem(sys.modules, name, stub)
        modules = []
        for name, path in (
            ("original.utils.detect_face", "models/utils/detect_face.py"),
            ("original.mtcnn", "models/mtcnn.py"),
        ):
            spec = importlib.util.spec_from_file_location(name, folder.parent / path)
            module = importlib.util.module_from_spec(spec)
            patch.setitem(sys.modules, name, module)
            spec.loader.exec_module(module)
            modules.append(module)
    return modules


def one_by_one(boxes, scores, threshold):
    """Greedy suppression, a pair at a time, in Python's double precision."""
    kept = []
    for i in scores.sort(descending=True, stable=True)[1].tolist():
        if all(iou(boxes[i], boxes[j]) <= threshold for j in kept):
            kept.append(i)
    return kept


def iou(a, b):
    width, height = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    inter = max(width, 0) * max(height, 0)
    return inter / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - inter)


def test_reference_is_the_original(folder, reference):
    """`MTCNN.detect` of the package itself, on pictures with one, several and no faces."""
    _, package = original_modules(folder)
    networks = (package.PNet(pretrained=False), package.RNet(pretrained=False), package.ONet(pretrained=False))
    detector = package.MTCNN.__new__(package.MTCNN)
    torch.nn.Module.__init__(detector)
    detector.pnet, detector.rnet, detector.onet = networks
    detector.load_state_dict(pretrained_weights())
    detector.min_face_size, detector.thresholds, detector.factor = 20, [0.6, 0.7, 0.7], 0.709
    detector.select_largest, detector.device = True, torch.device("cpu")
    pictures = [
        varied(np.random.default_rng(0)),
        group(160, GROUP),
        group(160, ()),
        photograph("coffee")[100:260, :160],
    ]
    for picture in pictures:
        boxes, probabilities, landmarks = detector.detect(picture, landmarks=True)
        with torch.inference_mode():
            ours = reference(torch.tensor(picture)[None])
        count = 0 if boxes is None else len(boxes)
        assert ours["valid"].sum() == count
        if count:
            np.testing.assert_array_equal(ours["boxes"][0, :count], boxes.astype(np.float32))
            np.testing.assert_array_equal(ours["probabilities"][0, :count], probabilities.astype(np.float32))
            np.testing.assert_array_equal(ours["landmarks"][0, :count], landmarks.astype(np.float32))


def test_min_suppression_is_the_originals(folder):
    detect_face, _ = original_modules(folder)
    rng = np.random.default_rng(0)
    for _ in range(20):
        first = rng.uniform(0, 60, (30, 2))
        boxes = np.concatenate([first, first + rng.uniform(5, 40, (30, 2))], 1).astype(np.float32)
        scores = rng.permutation(30).astype(np.float32)
        ours = nms(torch.tensor(boxes), torch.tensor(scores), 0.7, over_min=True)
        assert ours.tolist() == detect_face.nms_numpy(boxes, scores, 0.7, "Min").tolist()


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("scale", [0.6, 0.6 * 0.709, 0.2, 12 / 35])
def test_cell_boxes_are_pytorchs(dtype, scale):
    """Rounded down to whole pixels after a division whose rounding decides."""
    rows, columns = 21, 150
    reg, probs = torch.zeros((1, 4, rows, columns), dtype=getattr(torch, dtype)), torch.ones((1, rows, columns))
    wanted, _ = generate_bounding_box(reg, probs.to(reg.dtype), scale, 0.5)
    ours = cell_boxes(rows, columns, scale, jnp.dtype(dtype)).reshape(-1, 4)
    np.testing.assert_array_equal(ours.astype(np.float64), wanted[:, :4].double().numpy())


@pytest.mark.parametrize(
    ("size", "least"),
    [((160, 160), 20), pytest.param((512, 512), 20, marks=pytest.mark.slow), ((35, 70), 35), ((21, 300), 20)],
)
def test_the_pyramid_is_the_originals(reference, size, least):
    """Sizes of the scaled pictures that PNet sees, recorded from the reference."""
    seen = []
    detector = made_to_find(Reference(min_face_size=least), group(160, GROUP))
    detector.pnet.register_forward_pre_hook(lambda _, args: seen.append(tuple(args[0].shape[2:])))
    with torch.inference_mode():
        detector(torch.zeros((1, *size, 3), dtype=torch.uint8))
    assert [scaled_size(*size, scale) for scale in pyramid(*size, least, 0.709)] == seen


def test_a_state_dict_goes_by_name_there_and_back(folder):
    original = pretrained_weights()
    assert len(original) == 50
    for case in (CASE, NETWORKS):
        port = nnx.eval_shape(lambda case=case: case.model(nnx.Rngs(0)))
        load(port, original)
        back = to_state_dict(port)
        assert back.keys() == original.keys()
        assert all(torch.equal(back[name], original[name]) for name in original)


def test_a_file_of_other_widths_loads(tmp_path):
    torch.manual_seed(0)
    theirs = Reference()
    theirs.pnet.conv1 = torch.nn.Conv2d(3, 6, 3)
    theirs.pnet.prelu1 = torch.nn.PReLU(6)
    theirs.pnet.conv2 = torch.nn.Conv2d(6, 16, 3)
    theirs.onet.dense5 = torch.nn.Linear(1152, 40)
    theirs.onet.prelu5 = torch.nn.PReLU(40)
    theirs.onet.dense6_1, theirs.onet.dense6_2, theirs.onet.dense6_3 = (torch.nn.Linear(40, n) for n in (2, 4, 10))
    torch.save(theirs.state_dict(), tmp_path / "mine.pt")
    port = mtcnn.load(tmp_path / "mine.pt")
    x = torch.randn(2, 3, 48, 48)
    with torch.inference_mode():
        wanted = *theirs.pnet(x), *theirs.onet(x)
    x = np.moveaxis(x.numpy(), 1, -1)
    for ours, out in zip((*port.pnet(x), *port.onet(x)), wanted, strict=True):
        ours = np.moveaxis(np.asarray(ours), -1, 1) if ours.ndim == 4 else ours
        np.testing.assert_allclose(ours, out.numpy(), atol=1e-5)


def test_a_file_of_another_model_is_refused(tmp_path):
    torch.save({"conv1.weight": torch.zeros(3)}, tmp_path / "other.pt")
    with pytest.raises(WeightsError, match=r"conv1\.weight"):
        mtcnn.load(tmp_path / "other.pt")


@pytest.mark.parametrize(
    ("images", "error", "words"),
    [
        (np.zeros((1, 40, 40, 3), np.float32), TypeError, ["images", "float32", "uint8"]),
        (np.zeros((40, 40, 3), np.uint8), ValueError, ["images", "(40, 40, 3)", "batch"]),
        (np.zeros((1, 19, 40, 3), np.uint8), ValueError, ["19 x 40", "min_face_size", "20"]),
    ],
)
def test_bad_pictures_are_named(images, error, words):
    detector = nnx.eval_shape(lambda: mtcnn.MTCNN(rngs=nnx.Rngs(0)))
    with pytest.raises(error) as raised:
        jax.eval_shape(lambda images: detector(images), images)
    assert all(word in str(raised.value) for word in words), str(raised.value)


def test_random_weights_find_something():
    for seed in range(3):
        torch.manual_seed(seed)
        detector = CASE.reference().eval()
        with torch.inference_mode():
            counts = detector(torch.tensor(CASE.edge_inputs["several and none"](np.random.default_rng(0))[0]))["counts"]
        assert counts[:, :3].amax(0).min() > 0


def test_missing_weights_say_what_to_install(monkeypatch):
    from graphmode.models import installed

    monkeypatch.setattr(installed, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match="pip install --no-deps facenet-pytorch=="):
        CASE.pretrained()
    with pytest.raises(ImportError, match="pip install --no-deps facenet-pytorch=="):
        mtcnn.load()


@pytest.mark.slow
@pytest.mark.parametrize("case", [CASE, NETWORKS], ids=["mtcnn", "mtcnn_networks"])
def test_a_whole_case_passes(case):
    report = check(with_some_inputs(case), draws=1)
    assert report.passed, str(report)
