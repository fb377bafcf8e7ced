"""`graphmode draft`: what is written in place reaches all that stands for the same memory, or is marked."""

import re
from dataclasses import replace
from importlib import import_module

import pytest
from drafted import bare, equal
from graphmode.compare import check
from graphmode.compare.draft import draft
from graphmode.compare.locate import locate
from typer.testing import CliRunner

from graphmode.cli import app

EQUAL = {
    "second_names.py:Views": (
        ("4,6",),
        [
            "first *= 2.0\ny = y.at[:, :2].set(first)",
            "row -= row.mean()\ny = y.at[i].set(row)",
            "z += 1\ny = z\n",
            "z = z.at[:, -1].set(last)\ny = z\n",
            'state["h"] = h',
            "for r_at, r in enumerate(rows):",
            "rows[r_at] = r",
            "rows[i] = r",
            "y = y.at[1:].set(y[1:].at[0, 2].set(3.0))",
        ],
    ),
    "second_names.py:Parts": (
        ("4,6",),
        [
            "y = jnp.concatenate([a, b], axis=1)",
            "y = y.at[row_at].set(row)",
            "y = jnp.concatenate([c, _, d], axis=1)",
        ],
    ),
    "second_names.py:Averages": (
        ("4,4",),
        [
            "for buf, p in ((self.weight, self.a.weight[...].T), (self.bias, self.a.bias[...])):",
            "buf[...] = jax.lax.stop_gradient((buf[...] * 0.9) + 0.1 * p)",
            "self.means[...] = self.means[...].at[1].set(row)",
            "self.count[...] = jax.lax.stop_gradient(count)",
        ],
    ),
    "without_gradient.py:Scaled": (
        ("5,4",),
        [
            "lo, hi = jax.lax.stop_gradient((h.min(), h.max()))",
            "self.steps[...] += 1",
            "seen.append(jax.lax.stop_gradient(jnp.abs(h).mean()))",
            "self.keep(jax.lax.stop_gradient(h))",
            "g = with_value(g, jnp.clip(g, min=-0.5, max=0.5))",
            "self.table[...] = jax.lax.stop_gradient(x.T @ x)",
        ],
    ),
    "counted.py:Ring": (
        ("5,4",),
        [
            "keys = keys.at[slot].set(self.l(x).mean(axis=0))",
            "self.keys[...], self.where[...] = jax.lax.stop_gradient(keys), where",
            "self.count[...] = count = self.count[...] + 1",
            "self.low[...], self.high[...] = jax.lax.stop_gradient((x.min(), x.max()))",
        ],
    ),
    "handed_modules.py:Read": (
        ("5,4",),
        [
            "x @ other.l.weight[...].T.T + other.c.weight[...].transpose(2, 1, 0).sum(axis=(1, 2))",
            "other.count[...] = other.count[...] * 2",
            "y = y @ layer.weight[...].T.T + layer.bias[...]",
            "self.layers[i].weight[...].T[:, 0]",
            "head.weight[...].T[0] + self.norm.weight[...]",
        ],
    ),
}


@pytest.mark.parametrize("name", EQUAL)
def test_a_draft_that_writes_through_other_names_is_equal(folder, name):
    inputs, wanted = EQUAL[name]
    text = equal(folder, name, *inputs)
    for each in wanted:
        assert bare(each) in bare(text), f"{each}\n{text}"


def test_what_nothing_else_stands_for_is_written_to_alone(folder):
    text = draft(f"{folder / 'second_names.py'}:Unnamed", ("4,6",)).text
    assert re.findall("# TODO (.*)\n *(.*)", text) == [
        ("M02: in place, this writes into kept, too: a new array there, by .at[] where it is a part", "turned += 1")
    ], text
    unseen = draft(f"{folder / 'second_names.py'}:Unnamed").text
    assert unseen.count("# TODO M02: ") == 4, unseen


def test_rows_are_written_where_a_number_that_only_a_run_knows_says(folder):
    made, path = draft(f"{folder / 'counted.py'}:Queue", ("2,4",)), folder / "queue_port.py"
    for each in (
        "ptr = self.ptr[...].reshape(())",
        "at[:, ptr + jnp.arange(n)].set(jax.lax.stop_gradient(keys.T))",
        "at[at + jnp.arange(n), 1:].multiply(2)",
    ):
        assert each in made.text, made.text
    assert made.text.count("# TODO") == made.text.count("# TODO H01: item: keep the 0-d array") == 2, made.text
    path.write_text(made.text)
    report = check(replace(locate(f"{path}:CASE"), adversarial=()), draws=1)
    assert report.passed, f"{report}\n{made.text}"


def _marked(text):
    """The lines behind the notes, by what these say."""
    found = {}
    for notes, line in re.findall(r"((?:^ *# TODO .*\n)+)(.*)", text, re.MULTILINE):
        found[line.strip()] = re.findall(r"# TODO (.*)", notes)
    return found


LOST = {
    "for p, t in zip(": "parameters: nnx.state(module, nnx.Param) has them, by path",
    "t = with_value(": "M02: in place, this writes into self.target.bias, self.target.weight, too",
    "part = jnp.full_like(part, 1.0)": "M02: in place, this writes into y, too",
    "torch.sin(parts[1], out=parts[1])": "M02: in place, this writes into y, too",
    "jnp.negative(y.T[0])": "M01: what is written to is a view",
    "half = half * 2": "M02: in place, this writes into y, too",
    "z = y + 1": "M02: in place, this writes into y, too",
    "y = self.inner(x)": "M02: in place, this writes into x, too",
}


def test_what_is_not_written_back_is_marked(folder):
    made = draft(f"{folder / 'second_names.py'}:Lost", ("4,6",))
    marked = _marked(made.text)
    for line, note in LOST.items():
        notes = next((notes for each, notes in marked.items() if each.startswith(line)), [])
        assert any(each.startswith(note) for each in notes), f"{line}\n{made.text}"
    assert made.notes == len(LOST) + 1, made.text  # torch.sin is noted besides
    assert not made.unseen


def test_a_part_as_long_as_values_say_is_marked(folder):
    text = draft(f"{folder / 'counted.py'}:Ragged", ("4,4",)).text
    marked = _marked(text)
    note = "H01: a slice whose bounds are values: jax.lax.dynamic_slice, or a mask of positions"
    assert marked["y = x[:many]"] == [note], text
    assert note in marked[next(each for each in marked if each.startswith("z ="))], text


def test_an_original_that_cannot_run_is_told(folder):
    made = draft(f"{folder / 'second_names.py'}:Averages", ("4,5",))
    assert "RuntimeError" in made.unseen
    assert draft(f"{folder / 'second_names.py'}:Averages").unseen == "no --input is given"
    run = CliRunner().invoke(app, ["draft", f"{folder / 'second_names.py'}:Averages", "--input", "4,5"])
    assert run.exit_code == 0, run.output
    assert "what it writes in place through other names is not all marked: RuntimeError" in run.output.replace("\n", "")


def test_an_original_that_runs_on_is_left(folder, monkeypatch):
    monkeypatch.setattr(import_module("graphmode.compare.draft.observed"), "BUDGET_S", 0.2)
    made = draft(f"{folder / 'second_names.py'}:Endless", ("2,3",))
    assert made.unseen == "it runs for more than 0 s"
    assert "# TODO C07, C08" in made.text


def test_where_gradients_are_recorded_again_none_is_stopped(tmp_path):
    (tmp_path / "again.py").write_text(
        "import torch\n\n\nclass Again(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.fc = torch.nn.Linear(4, 4)\n\n    def forward(self, x):\n        with torch.enable_grad():\n"
        "            y = self.fc(x)\n        return y\n"
    )
    made = draft(f"{tmp_path / 'again.py'}:Again", ("3,4",))
    assert "# TODO G04: no jax.lax.stop_gradient of the values made here" in made.text
