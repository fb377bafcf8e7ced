"""`graphmode draft`: modules, the functions and classes around them, and the page that holds them."""

import ast
import re
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from drafted import equal
from graphmode.compare.draft import draft, layout, written_helpers
from graphmode.compare.draft.layout import laid_out
from graphmode.compare.draft.names import UNKNOWN, Scope
from graphmode.compare.untraceable import port_failure
from typer.testing import CliRunner

from graphmode.cli import app


def test_what_a_function_writes_into_takes_what_it_gives(folder):
    text = equal(folder, "written_into.py:Averages", "3,4")
    for line in (
        "    return average\n",
        "    return jax.lax.stop_gradient((first, second))\n",
        "self.size[...] = averaged_(self.size[...], x.sum(axis=0), 0.9)",
        "self.first[...], self.second[...] = both_(self.first[...], self.second[...], y)",
        "y = self.scale(y, 2.0)",
        "y = shift(y)",
        "y = self.store.put(y, x * 3)",
        "self.kept[...] = self.put(self.kept[...], jax.lax.stop_gradient(x).sum(axis=0))",
        "def scale(self, target, by: float):",
    ):
        assert line in text, text


def test_what_is_written_besides_a_result_is_marked(folder):
    text = draft(f"{folder / 'written_into.py'}:Marked", ("3,4",)).text
    assert "# TODO M01: popped_ writes into self.size: let it give that too, and take it\n        total =" in text, text
    assert text.count("# TODO M01: popped_ writes into y") == 1, text
    assert "popped_ writes into x" not in text
    assert "# TODO M01: fill_ writes in place: a new array in its place" in text


def test_what_runs_pytorch_around_the_modules_is_drafted_too(folder):
    text = equal(folder, "around.py:Encoded", "3,4")
    assert "torch" not in text.replace("PyTorch", "")
    for line in (
        "class Encoding:",
        "FREQUENCIES = jnp.linspace(0.0, 2.0, 3)",
        'ACTIVATIONS = {"relu": nn.ReLU(), "shifted": Shifted(), "gated": [nn.GELU(), Shifted()]}',
        "NORM = partial(nn.LayerNorm, eps=1e-3)",
        "def logabs(x):\n    return jnp.log(jnp.abs(x) + 1)",
        "from around import Sizes\n",
    ):
        assert line in text, text


def test_functions_of_other_files_are_drafted_too(folder):
    text = equal(folder, "in_two_files.py:Conditioned", "2,4,3,3", "2")
    for line in (
        "normed(WIDTH, rngs=rngs),\n",
        "nn.functional.relu(halved(self.mix(x)) +",
        "def steps_of(t, dim):",
        "from pieces_of_it import WIDTH\n",
        "shift = squashed(shift, 0.75)[:, :, None, None]",
        "def _bounded(x, limit):\n    return jnp.clip(x, min=-limit, max=limit)",
    ):
        assert line in text, text


EINOPS = """
def rearrange(x, pattern, p=1, q=1):
    b, c, h, w = x.shape
    x = x.reshape(b, c, h // p, p, w // q, q)
    return getattr(x, "transpose" if hasattr(x, "at") else "permute")(0, 2, 4, 3, 5, 1).reshape(b, -1, p * q * c)

def reduce(x, pattern, how):
    return getattr(x, how)(1)
"""
EINOPS_LAYERS = """
import einops
from torch import nn

class Mixin:
    def __init__(self, *given, **axes_lengths):
        super().__init__()
        self.given, self.axes_lengths = given, axes_lengths

class Rearrange(Mixin, nn.Module):
    def forward(self, x):
        return einops.rearrange(x, *self.given, **self.axes_lengths)

class Reduce(Mixin, nn.Module):
    def forward(self, x):
        return einops.reduce(x, *self.given, **self.axes_lengths)
"""


def test_layers_of_einops_call_its_functions(folder, monkeypatch):
    layers = folder / "site-packages" / "einops" / "layers"
    layers.mkdir(parents=True)
    (layers.parent / "__init__.py").write_text(EINOPS)
    (layers / "torch.py").write_text(EINOPS_LAYERS)
    for name in [each for each in sys.modules if each.split(".")[0] == "einops"]:
        monkeypatch.delitem(sys.modules, name)
    text = equal(folder, "in_patches.py:Patches", "2,3,4,4")
    for line in (
        "import einops\n",
        "from einops import rearrange\n",
        'Rearrange("b c (h p) (w q) -> b (h w) (p q c)", p=size, q=size)',
        'self.pool = Reduce("b n d -> b d", "mean")',
        "return einops.rearrange(x, self.pattern, **dict(self.axes_lengths))",
    ):
        assert line in text, text
    assert "Mixin" not in text


def test_what_counts_freezes_and_moves_parameters_is_drafted(folder):
    text = equal(folder, "of_research.py:Counted", "2,3,4,4")
    for line in (
        "from typing import NamedTuple\n",
        'norm: type = partial(nn.BatchNorm2d, data_format="channels_first")',
        "return sum(p.size for p in jax.tree.leaves(nnx.state(model, nnx.Param)))",
        "sum(2 * jnp.power(p, 2).sum() for p in jax.tree.leaves(nnx.state(self.head, nnx.Param)))",
    ):
        assert line in text, text
    body = text[text.index("class Counted") : text.index("@property")]
    assert not any(word in body for word in (".to(", ".eval()", ".float()", "requires_grad", "for layer")), text


def test_decorators_of_pytorch_and_caches_go_and_methods_without_names_stay(folder):
    text = equal(folder, "decorated.py:Decorated", "3,4")
    for line in (
        "\n\ndef gated(a, b, n: int):\n",
        "\n\ndef places(height, width):\n",
        "    @property\n    def scale(self):",
        "    def __iter__(self):",
        "            return object.__getattribute__(self, name)\n",
    ):
        assert line in text, text


def test_layers_by_their_names_keep_channels_where_they_are(folder):
    text = equal(folder, "of_research.py:Parsed", "2,3,2,2")
    assert 'kind = layer_named(name[3:]) if "nn." in name else globals()[name]' in text, text
    assert "x[i] = self.m[i](x[i])" in text, text


def test_what_a_module_keeps_or_holds_in_evaluation_is_marked(folder):
    text = draft(f"{folder / 'of_research.py'}:Keeping", ("3,4",)).text
    marked = re.findall(r"# TODO (M\d+: \S+).*\n *(.*)", text)
    assert marked == [
        ("M05: its", "class Keeping(nnx.Module):"),
        ("M03: self.maps", 'self.maps["x"] = x'),
        ("M03: self.seen", "self.seen.append(x.mean())"),
    ], text


def test_numbers_beside_a_tensor_and_objects_are_no_tensors(folder):
    text = equal(folder, "of_research.py:Padded", "2,4")
    assert "def mask(self, size: tuple, dtype: jnp.dtype, device: jax.Device):" in text, text
    assert "past.get_seq_length() if past is not None else 1" in text, text


def test_a_dictionary_of_tensors_is_none(folder):
    text = equal(folder, "of_research.py:Cached", "2,4,4")
    for line in ('cache[f"k{layer}"], cache[f"v{layer}"] = k, v', "cache[layer] = v.sum()"):
        assert line in text, text
    assert draft(f"{folder / 'of_research.py'}:Cached").text.count("# TODO") == 1  # where it was not seen: inputs


def test_what_a_file_changes_further_down_is_marked(folder):
    text = draft(f"{folder / 'around.py'}:Kept", ("3,4",)).text
    assert "# TODO SCALES is changed further down in around\nSCALES = jnp.ones(4)" in text, text
    assert "from around import tell\n" in text, text


def test_methods_that_build_are_kept_and_hand_rngs_on(folder):
    text = equal(folder, "around.py:small", "2,3,8,8")
    for line in (
        'return Named.from_name("small", classes=5, rngs=rngs)',
        "def from_name(cls, name, *, rngs: nnx.Rngs, **changes):",
        "return cls.from_settings(settings, **changes, rngs=rngs)",
        "return cls(settings, classes, rngs=rngs)",
        "class Same(nn.Conv2d):",
        "height, width = self.kernel_size",
    ):
        assert line in text, text
    assert "unused" not in text


def test_pytorch_within_a_port_is_told():
    for run in (lambda x: x * torch.ones(3), lambda x: torch.cat([x], -1), lambda x: torch.relu(x)):
        with pytest.raises(TypeError) as caught:
            jax.jit(run)(jnp.ones(3))
        told = port_failure(caught.value, "on the input 'random 0'")
        assert "PyTorch is given an array of JAX" in told, told
        assert "test_draft_modules.py:" in told


def test_a_container_holds_its_own_buffers(folder):
    text = equal(folder, "around.py:Noises", "3,4")
    for line in (
        "self.noises = nnx.Module()",
        "self.noises.first = nnx.Cache(jnp.ones(4))",
        'setattr(self.noises, f"noise_{i}", nnx.BatchStat(jnp.zeros(4)))',
        'getattr(self.noises, f"noise_{i}")[...]',
        'getattr(self, f"own_{i}")[...]',
        "self.noises.scale[...]",
    ):
        assert line in text, text
    assert 'getattr(self, f"layer_{i}")[...]' not in text
    assert "use_running_average" not in text  # getattr asks nothing of the mode


def test_a_draft_is_laid_out(folder):
    made = draft(f"{folder / 'around.py'}:Outlay", ("3,4",))
    lines = made.text.splitlines()
    assert max(map(len, lines)) <= 120
    imports = [line for line in lines if line.startswith(("from", "import"))]
    assert imports == [
        "from __future__ import annotations",
        "from math import pi",
        "from typing import Any, Literal",
        "import around as original",
        "import jax",
        "import jax.numpy as jnp",
        "from flax import nnx",
        "from graphmode import nn",
        "from graphmode.compare import Case",
    ], made.text
    assert "# TODO" in lines[made.lines[0] - 1]
    assert "return y * jax.lax.stop_gradient(y.sum())" in lines[made.lines[0]]
    assert "        # a comment that stays\n" in made.text


def test_strings_keep_their_quotes():
    assert laid_out("a = 'b'\nc = \"d\"\n") == "a = 'b'\nc = \"d\"\n"


def test_what_cannot_be_laid_out_stays():
    assert laid_out("def f(:\n    pass\n") == "def f(:\n    pass\n"


def test_initial_values_that_are_left_out_are_told(folder):
    told = "The initial values that the original draws or sets are not in it"
    assert told in draft(f"{folder / 'around.py'}:Noises").text
    assert told not in draft(f"{folder / 'around.py'}:Encoded").text


def test_the_command_gives_the_lines_that_want_a_hand(folder):
    location = f"{folder / 'around.py'}:Outlay"
    run = CliRunner().invoke(app, ["draft", location, "--input", "3,4"])
    path = folder / "around_port.py"
    at = [i for i, line in enumerate(path.read_text().splitlines(), 1) if "# TODO" in line]
    assert f"marked TODO: {path}:{', '.join(map(str, at))}" in run.output.replace("\n", ""), run.output
    assert "no line is marked" not in run.output


def test_a_registry_is_one_of_the_port(folder):
    text = equal(folder, "around.py:Registered", "3,4")
    for line in (
        'LAYERS = Registry("layers")\n\n\n@LAYERS.register()\nclass Widened(nnx.Module):',
        "def build(self, settings, *, rngs: nnx.Rngs):",
        'return self.known[settings.pop("type")](**settings, rngs=rngs)',
        'LAYERS.build({"type": "Widened", "width": 5}, rngs=rngs)',
    ):
        assert line in text, text
    assert "NeverMade" not in text


def test_what_only_sets_initial_values_leaves_nothing_behind(folder):
    text = equal(folder, "around.py:Filled", "3,4")
    for gone in ("fill(", "for layer in self.layers:\n            pass", "use_running_average"):
        assert gone not in text, text
    assert "def clones(layer, count):" in text, text
    assert "self.layers = clones(nn.Linear(4, 4, rngs=rngs), 2)" in text, text
    assert "The initial values that the original draws or sets are not in it" in text


def test_a_walk_over_modules_stays_where_it_sets_more_than_values(folder):
    text = equal(folder, "walks.py:Paired", "2,3,6,7")
    for line in (
        "m.negative_slope = 0.3",
        "if t is nn.BatchNorm2d:",
        "m.eps = 1e-1",
        "m.momentum = 0.03",
        "m.eps = 2.0",
    ):
        assert line in text, text
    for gone in ("_init_weight(", "_initialize_biases", "inplace", "nn.init", "normal_", "is_slow"):
        assert gone not in text, text


def test_what_sets_more_than_values_of_all_modules_is_marked(folder):
    text = draft(f"{folder / 'walks.py'}:Applied", ("2,3",)).text
    assert "# TODO apply sets attributes of modules" in text, text
    assert text.count(".apply(") == 1, text


def test_a_class_of_layers_that_is_handed_on_takes_the_axes_as_they_stand(folder):
    text = equal(folder, "walks.py:Given", "2,3,4,5")
    assert 'partial(SynchronizedNorm, data_format="channels_first")' in text, text
    assert "OwnNorm)" in text, text


def test_a_draft_does_without_ruff(monkeypatch):
    text = "import os\nimport abc\nx = [1,\n 2]  # TODO this\n"
    assert laid_out(text) == "x = [1, 2]  # TODO this\n"
    monkeypatch.setattr(layout, "_STEPS", (["no-such-command"],))  # it fails, as where there is no ruff
    assert laid_out(text) == text


def test_classes_of_a_package_that_is_not_installed_are_unknown():
    """`torch.classes` has every name, and raises for what is asked of it."""
    code = ast.parse("torch.classes.absent.Kind", mode="eval").body
    assert Scope({"torch": torch}).find(code) is UNKNOWN
    assert Scope({"torch": torch}).find(code.value) is UNKNOWN


@pytest.mark.parametrize(
    "name", ["create_causal_mask", "create_sliding_window_causal_mask", "create_bidirectional_sliding_window_mask"]
)
def test_masks_are_those_of_transformers(name):
    masks = pytest.importorskip("transformers.masking_utils", reason="pip install graphmode[huggingface]")
    config = transformers_config()
    x, padding = np.zeros((2, 6, 8), np.float32), np.array([[1, 1, 1, 1, 0, 0], [1] * 6])
    given = {"past_key_values": None, "attention_mask": torch.tensor(padding)}
    wanted = getattr(masks, name)(config=config, inputs_embeds=torch.tensor(x), **given)
    found = getattr(written_helpers, name)(config, jnp.asarray(x), jnp.asarray(padding))
    np.testing.assert_array_equal(found, wanted)


def transformers_config():
    from transformers import MistralConfig

    config = MistralConfig(sliding_window=3, hidden_size=8, num_attention_heads=2, num_hidden_layers=1)
    config._attn_implementation = "eager"
    return config
