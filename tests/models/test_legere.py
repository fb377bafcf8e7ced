"""The text-line reader against the package legere: logits, text, pre-processing; and a line in company as alone."""

from __future__ import annotations

import functools

import jax
import numpy as np
import pytest
import torch
from flax import nnx
from graphmode.compare import check
from graphmode.models import installed, legere
from graphmode.models.installed import installed_weights
from graphmode.models.legere.case import CASE, HELLO
from graphmode.models.legere.charset import CHARSET, labels_of, text_of
from graphmode.models.legere.lines import as_grey, as_line, read
from graphmode.models.legere.reference import Legere as Reference
from graphmode.models.legere.rendered import batch, rendered, some_lines
from planting import with_some_inputs

from graphmode.weights import load, to_state_dict

TEXTS = (HELLO, "a", "São Paulo, R$ 1.234,56 (50%)", "The quick brown fox jumps", "0123456789")


@pytest.fixture(scope="module")
def original():
    """The package, from whose pages these values are."""
    try:
        installed_weights("legere")
    except ImportError as error:
        pytest.skip(str(error))
    return pytest.importorskip("legere", reason="pip install legere==0.11.0")


@functools.cache
def port():
    return legere.load()


@functools.cache
def compiled():
    graphdef, state = nnx.split(port())
    run = jax.jit(lambda state, x, widths: nnx.merge(graphdef, state)(x, widths))
    return lambda images, widths: run(state, np.moveaxis(images, 1, -1), np.asarray(widths))


def in_company() -> tuple[np.ndarray, np.ndarray]:
    """All lines in one batch, wider than the widest."""
    return batch([as_line(rendered(text)) for text in TEXTS], 448)


def alone(original, crop: np.ndarray) -> torch.Tensor:
    """What the package's own network says of one line, from its own pre-processing."""
    with torch.inference_mode():
        return original.load_model()(original.lines.images_to_tensor([original.lines.normalize_line(crop)]))


def test_a_line_in_company_has_the_logits_that_the_original_gives_it_alone(original):
    logits, lengths = compiled()(*in_company())
    for text, ours, length in zip(TEXTS, logits, lengths, strict=True):
        theirs = alone(original, rendered(text)).numpy()
        assert theirs.shape == (1, length, 122)
        np.testing.assert_allclose(ours[:length], theirs[0], atol=3e-4)
        assert not np.any(ours[length:])


def test_hello_world_as_the_original_reads_it(original):
    crop = rendered(HELLO)
    logits = alone(original, crop)
    assert logits.shape == (1, 46, 122)
    assert read(port(), [crop], widths=(448,)) == original.model.ctc_greedy_decode(logits) == ["Hello VVorld 2026"]


def test_every_line_reads_as_in_the_original(original):
    """The original is given one line at a time: in a batch of its own, a line's neighbours change its logits."""
    crops = [rendered(text, size=size) for text in TEXTS for size in (20, 33)]
    theirs = [original.model.ctc_greedy_decode(alone(original, crop))[0] for crop in crops]
    assert read(port(), crops, widths=(160, 448)) == theirs
    assert TEXTS[2] in theirs


def test_what_stands_in_the_padding_reaches_nothing(original):
    images, widths = in_company()
    wanted, _ = compiled()(images, widths)
    for image, width in zip(images, widths, strict=True):
        image[..., width:] = np.nan
    np.testing.assert_array_equal(compiled()(images, widths)[0], wanted)


def test_training_on_lines_of_one_width_moves_the_original_alike(original):
    """Without padding, batch statistics over what is there are the original's."""
    images, widths = some_lines(np.random.default_rng(0), 3, 64)
    widths[:] = 64
    theirs = original.CompactCRNN().train()
    theirs.load_state_dict(CASE.pretrained())
    with torch.no_grad():
        wanted = theirs(torch.tensor(images)).numpy()
    ours = legere.load()
    ours.train()
    graphdef, state = nnx.split(ours)

    @jax.jit
    def run(state, x, widths):
        model = nnx.merge(graphdef, state)
        return model(x, widths)[0], nnx.state(model)

    logits, moved = run(state, np.moveaxis(images, 1, -1), widths)
    np.testing.assert_allclose(logits, wanted, rtol=1e-3, atol=2e-3)
    back = to_state_dict(nnx.merge(graphdef, moved))
    for name, value in theirs.state_dict().items():
        if "running" in name or "tracked" in name:
            np.testing.assert_allclose(back[name], value, rtol=1e-4, atol=1e-4, err_msg=name)


CROPS = {
    "grey": (40, 100),
    "colour": (17, 90, 3),
    "very wide": (8, 2000),
    "very narrow": (64, 3),
    "one row": (1, 10),
}


@pytest.mark.parametrize("name", CROPS)
def test_pre_processing_is_the_originals(original, name):
    import cv2

    crop = np.random.default_rng(0).integers(0, 256, CROPS[name], np.uint8)
    grey = crop if crop.ndim == 2 else cv2.cvtColor(np.ascontiguousarray(crop[..., ::-1]), cv2.COLOR_BGR2GRAY)
    np.testing.assert_array_equal(as_grey(crop), grey)
    wanted = original.lines.images_to_tensor([original.lines.normalize_line(grey)])[0, 0].numpy()
    np.testing.assert_array_equal(as_line(crop), wanted)


def test_the_characters_are_the_originals(original):
    from legere import charset

    assert CHARSET == charset.CHARSET
    text = "Olá, mundo! €"
    assert labels_of(text) == charset.encode_text(text)
    assert text_of([0, *labels_of(text)]) == charset.decode_indices([0, *labels_of(text)]) == "Olá, mundo! "


@pytest.mark.parametrize(
    ("image", "words"),
    [
        (np.ones((3, 4)), r"float64\[3, 4\]"),
        (np.ones((3, 4, 2), np.uint8), r"uint8\[3, 4, 2\]"),
        (np.ones((0, 4), np.uint8), r"uint8\[0, 4\]"),
    ],
)
def test_what_is_no_crop(image, words):
    with pytest.raises(ValueError, match=words):
        as_line(image)


def test_a_line_wider_than_every_bucket_is_told():
    model = nnx.eval_shape(lambda: legere.Legere(legere.LegereConfig.tiny(), rngs=nnx.Rngs(0)))
    with pytest.raises(ValueError, match="longest of lengths is 64"):
        read(model, [np.zeros((32, 65), np.uint8)], widths=(32, 64))


@pytest.mark.parametrize("as_checkpoint", [False, True])
def test_a_file_of_other_sizes_loads(tmp_path, as_checkpoint):
    torch.manual_seed(0)
    theirs = Reference(legere.LegereConfig.tiny()).eval()
    state = theirs.state_dict()
    torch.save({"model": state, "charset": "abc"} if as_checkpoint else state, tmp_path / "mine.pt")
    ours = legere.load(tmp_path / "mine.pt")
    x, widths = torch.randn(2, 1, 32, 21), np.array([21, 10])
    with torch.inference_mode():
        wanted, lengths = theirs(x, torch.tensor(widths))
    logits, counts = jax.jit(lambda model, *inputs: model(*inputs))(ours, np.moveaxis(x.numpy(), 1, -1), widths)
    np.testing.assert_allclose(logits, wanted.numpy(), atol=1e-5)
    assert counts.tolist() == lengths.tolist() == [6, 3]


def test_a_file_of_another_architecture_is_refused(tmp_path):
    torch.save({"stem.0.weight": torch.ones(3, 1, 3, 3)}, tmp_path / "other.pt")
    with pytest.raises(ValueError, match=r"0 blocks, and 6 were wanted; it lacks rnn\.weight_hh_l0"):
        legere.load(tmp_path / "other.pt")


def test_a_state_dict_goes_by_name_there_and_back():
    state = Reference().state_dict()
    model = nnx.eval_shape(lambda: legere.Legere(rngs=nnx.Rngs(0)))
    load(model, state)
    back = to_state_dict(model)
    assert len(state) == 88
    assert back.keys() == state.keys()
    assert all(torch.equal(back[name], state[name]) for name in state)


def test_missing_weights_say_what_to_install(monkeypatch):
    monkeypatch.setattr(installed, "find_spec", lambda name: None)
    for load_weights in (CASE.pretrained, legere.load):
        with pytest.raises(ImportError, match=r"pip install --no-deps legere==0\.11\.0"):
            load_weights()


@pytest.mark.slow
def test_the_whole_case_passes():
    report = check(with_some_inputs(CASE), draws=1)
    assert report.passed, str(report)
