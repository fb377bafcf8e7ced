"""`graphmode draft`: what it writes of eager models is equal to them, and what it cannot write is marked."""

import ast
import re
import shutil
from dataclasses import replace
from pathlib import Path

import jax.numpy as jnp
import pytest
from drafted import bare
from flax import nnx
from graphmode.compare import CaseError, check
from graphmode.compare.draft import draft, written_to
from graphmode.compare.locate import locate
from typer.testing import CliRunner

from graphmode.cli import app


def drafted(folder, name, *inputs, file="networks.py"):
    made = draft(f"{folder / file}:{name}", inputs)
    path = folder / f"{name.lower()}_port.py"
    path.write_text(made.text)
    return made, locate(f"{path}:CASE")


@pytest.mark.parametrize(
    ("name", "inputs"),
    [
        ("OldHabits", ("5,4", "5:3")),
        ("Smoothed", ("2,3,6,6",)),
        ("Normed", ("2,3,16",)),
        ("Lengths", ("4,7:50",)),
        ("Decaying", ("2,5,4",)),
    ],
)
def test_a_draft_of_older_code_is_equal_to_it(folder, name, inputs):
    made, case = drafted(folder, name, *inputs, file="old_habits.py")
    assert not made.notes, made.text
    report = check(replace(case, adversarial=("few values",)), draws=1)
    assert report.passed, f"{report}\n{made.text}"


def test_what_a_module_writes_into_its_input_is_read_where_the_original_reads_it(folder):
    made, case = drafted(folder, "Net", "2,3,8,8", file="in_place_layers.py")
    assert made.text.count("# TODO") == 1, made.text
    assert "# TODO M01: self.model writes into x, not in all of these modules alike" in made.text
    report = check(replace(case, adversarial=()), draws=1)
    assert report.passed, f"{report}\n{made.text}"


def test_a_function_of_weights_that_is_given_a_name_is_ours(folder):
    text = draft(f"{folder / 'old_habits.py'}:Normed", ("2,3,16",)).text
    assert "named=nn.utils.weight_norm" in text, text
    assert "norm = partial(nn.utils.spectral_norm, rngs=rngs) if spectral else nn.utils.weight_norm" in text, text


@pytest.mark.parametrize(
    ("name", "inputs"),
    [
        ("Spectrum", ("2,200",)),
        ("Functions", ("5,6", "5,6:6")),
        ("Gradients", ("5,4",)),
        ("Tying", ("2,5:30",)),
        ("Kept", ("3,4",)),
    ],
)
def test_a_draft_of_many_functions_is_equal_to_them(folder, name, inputs):
    made, case = drafted(folder, name, *inputs, file="many_functions.py")
    assert not made.notes, made.text
    report = check(replace(case, adversarial=("few values",)), draws=1)
    assert report.passed, f"{report}\n{made.text}"


@pytest.mark.parametrize(
    ("name", "inputs"),
    [
        ("SmallResNet", ("2,3,16,16",)),
        ("small_resnet", ("2,3,16,16",)),
        ("TinyGPT", ("2,10:50",)),
        ("UNet", ("2,3,8,8",)),
        ("Tagger", ("3,6:30",)),
        ("Written", ("5,6",)),
        ("InOneLine", ("3,4",)),
        ("DenseNet", ("2,3,8,8",)),
        ("MobileBlocks", ("2,3,16,16",)),
        ("Derived", ("2,3,8,8",)),
        ("Chosen", ("2,7:9",)),
        ("plain_layers", ("3,4",)),
        ("LinearAttention", ("3,5,8", "3:6")),
        ("zoo_network", ("2,3,9,9",)),
        ("zoo_dense", ("2,3,9,9",)),
    ],
)
def test_a_draft_is_equal_to_the_original(folder, name, inputs):
    made, case = drafted(folder, name, *inputs)
    assert not made.notes, made.text
    report = check(replace(case, adversarial=("zeros", "a large mean")), draws=1)
    assert report.passed, f"{report}\n{made.text}"


MARKED = {
    "Noisy": {"H06": "return x + torch.randn(1)", "requires_grad": "return not False"},
    "Penalised": {
        "G03: autograd.grad: jax.grad": "grads = torch.autograd.grad(",
        "H05: no value raises": "try:",
        "S01: x[mask]": "hardest = [jnp.sort(x[i][near[i]]",
        "nothing here is called torch": "return (grads,",
    },
    "zoo_opaque": {"what zoo.opaque() gives is made of opaque.<locals>.<lambda>": "return zoo.opaque()"},
    "Outside": {
        "M01: cleared writes into h: let it give": "cleared(h, 2)",
        "C07, C08: max_steps": "def goes_on(h): return jnp.abs(h).max() < 10",
        "gru_cell: its weights": "h = nn.functional.gru_cell(",
        "H04": "assert steps > 5 or (h > 0).all()",
        "C01": 'if not is_empty: raise ValueError("not all are above 0")\n if is_short:',
        "S02, S03": "h = h.at[h > 1].set(h.sum(axis=1))",
        "S05": "return (nn.functional.dropout",
        "H01": "return (nn.functional.dropout",
        "torch.mode has no counterpart": "return (nn.functional.dropout",
        "Tensor.index_reduce has no counterpart": "h = h.index_reduce(",
        "torch.add is called otherwise": "h = torch.add(",
        "Tensor.var is called otherwise": "h = h - h.var(",
    },
}


@pytest.mark.parametrize(
    ("name", "inputs"),
    [
        ("llama", "2,7:50"),
        ("mistral", "2,7:50"),
        ("llama_with_yarn", "2,7:50"),
        ("bert", "2,7:50"),
        ("gpt2", "2,7:50"),
        ("vit", "2,3,32,32"),
        ("resnet", "2,3,16,16"),
    ],
)
def test_a_draft_of_a_model_of_transformers_is_equal_to_it(folder, name, inputs):
    pytest.importorskip("transformers", reason="transformers is not installed: pip install graphmode[huggingface]")
    made, case = drafted(folder, name, inputs, file="hugging_face.py")
    assert not made.notes, made.text
    report = check(replace(case, adversarial=()), draws=1)
    assert report.passed, f"{report}\n{made.text}"


def test_what_a_base_class_ties_is_tied(folder):
    pytest.importorskip("transformers", reason="transformers is not installed: pip install graphmode[huggingface]")
    made, case = drafted(folder, "mbart", "2,7:50", file="hugging_face.py")
    assert "self.encoder.embed_tokens.weight = self.shared.weight\n" in made.text
    report = check(replace(case, adversarial=()), draws=1)
    assert report.passed, f"{report}\n{made.text}"


@pytest.mark.parametrize("name", MARKED)
def test_what_wants_a_hand_is_marked(folder, name):
    made = draft(f"{folder / 'networks.py'}:{name}", ("3,4",))
    assert "requires_grad_(" not in made.text
    lines = made.text.splitlines()
    for note, line in MARKED[name].items():
        at = next(i for i, each in enumerate(lines) if f"# TODO {note}" in each)
        following = "".join(each for each in lines[at:] if "# TODO" not in each)
        assert bare(following).startswith(bare(line)), made.text


def test_what_is_written_to_a_view_is_marked(folder):
    made, _ = drafted(folder, "Written", "3,4", file="old_habits.py")
    assert "# TODO M01: a part of a tensor among several" in made.text, made.text
    assert "y = gm.cond(x.mean() > 0, lambda: last, lambda: -last)" in made.text, made.text
    assert "x = x.at[:, 0].set(column)" in made.text, made.text
    assert made.text.count("# TODO M01: what is written to is a view") == 2, made.text
    ast.parse(made.text)


def test_what_is_drawn_comes_from_a_stream(folder):
    made, case = drafted(folder, "Branches", "3,4")
    assert "jax.random.normal(self.random_stream(), (1,))" in made.text
    assert made.draws
    made, case = drafted(folder, "zoo_network", "2,3,9,9")
    assert "nn.functional.dropout(y, self.p, (not self.use_running_average), rngs=self.random_stream)" in made.text
    assert "def drop_path(x, p: float, training: bool, *, random_stream: nnx.RngStream):" in made.text
    model = case.models["default"](nnx.Rngs(0))
    for block in model.blocks:
        block.p = 0.5
    x = jnp.ones((2, 3, 9, 9))
    assert not jnp.array_equal(model(x), model(x))


def test_what_others_built_is_built_of_the_same_arguments(folder):
    made, _ = drafted(folder, "zoo_network", "2,3,9,9")
    assert "return Network([Stage(6, kinds=[nn.ReLU]), Stage(6, kinds=[Leaky])], classes=3, rngs=rngs)" in made.text
    assert "load_state_dict" not in made.text
    made, _ = drafted(folder, "zoo_dense", "2,3,9,9")
    call = "made = Dense(Parts(Network([Stage(6, kinds=[nn.ReLU]), Stage(6, kinds=[Leaky])], rngs=rngs), "
    assert bare(call) in bare(made.text)


def test_comments_and_docstrings_stay(folder):
    made, _ = drafted(folder, "SmallResNet", "2,3,16,16")
    assert "# a comment that stays" in made.text
    assert '"""Two convolutions and a shortcut."""' in made.text
    assert "kaiming" not in made.text
    assert "torch" not in made.text.replace("PyTorch", "")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Attention", "cannot be built without arguments: TypeError"),
        ("halved", "cannot be built without arguments"),
        ("Missing", "has no attribute 'Missing'"),
        ("MADE", "is a model already, whose arguments are not known"),
        ("Identity", "the model is PyTorch's own Identity: write gm.nn.Identity"),
    ],
)
def test_what_is_no_model_is_told(folder, name, words):
    with pytest.raises(CaseError, match=words):
        draft(f"{folder / 'networks.py'}:{name}")


@pytest.mark.parametrize("given", ["3xfour", "", "-3,4", "0,4", "3,4:0"])
def test_a_shape_that_is_none_is_told(folder, given):
    with pytest.raises(CaseError, match=f"input is '{given}'; give a shape"):
        draft(f"{folder / 'networks.py'}:UNet", (given,))


def test_a_file_that_cannot_be_imported_by_its_name_is_told(folder):
    for name in ("my-networks.py", "types.py"):
        shutil.copy(folder / "networks.py", folder / name)
        with pytest.raises(CaseError, match="is no name for one of yours; rename the file"):
            draft(f"{folder / name}:UNet")


@pytest.mark.parametrize(
    ("out", "words"),
    [
        ("networks.py", "is the original"),
        ("../port.py", "is not beside"),
        ("nowhere/port.py", "is not beside"),
    ],
)
def test_a_draft_goes_beside_the_original(folder, out, words):
    with pytest.raises(CaseError, match=words):
        written_to(f"{folder / 'networks.py'}:UNet", folder / out)
    with pytest.raises(CaseError, match="there is no folder nowhere"):
        written_to("package.module:Net", Path("nowhere/port.py"))


def test_the_command(folder):
    location = f"{folder / 'networks.py'}:UNet"
    run = CliRunner().invoke(app, ["draft", location, "--input", "2,3,8,8"])
    assert run.exit_code == 0, run.output
    path = written_to(location, None)
    assert path == folder / "networks_port.py"
    output = run.output.replace("\n", "")
    assert "networks_port.py: UNet" in output
    assert "draws random numbers" not in output
    assert f"no line is marked TODO; check it: graphmode check {path}:CASE" in output
    again = CliRunner().invoke(app, ["draft", location])
    assert again.exit_code == 2
    assert "is there already" in " ".join(re.sub("[│╭╮╰╯─]", " ", again.output).split())
