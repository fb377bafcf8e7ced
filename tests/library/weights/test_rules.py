"""Patterns of rules: fields, prefixes, precedence."""

import numpy as np
import pytest
from flax import nnx
from hypothesis import given
from hypothesis import strategies as st

from graphmode.weights import Drop, Permute, Rename, Rule, SplitGates, load, to_state_dict

COMPONENT = st.from_regex(r"\A[a-zA-Z_0-9\-+*()\[\]|?^$]{1,6}\Z")

RENAMES = {
    "prefix": (Rename("bert.encoder", "encoder"), "encoder.0.weight", "bert.encoder.0.weight"),
    "whole name": (Rename("scale", "gain"), "gain", "scale"),
    "only whole components": (Rename("a", "layer"), "layers.0", None),
    "field": (Rename("bert.layer.{i}.attn", "layers.{i}.attention"), "layers.11.attention.q", "bert.layer.11.attn.q"),
    "fields swapped": (Rename("{b}.{a}", "{a}.{b}"), "x.y.z", "y.x.z"),
    "the same field twice": (Rename("x.{i}", "{i}.{i}"), "3.3.w", "x.3.w"),
    "the same field, two values": (Rename("x.{i}", "{i}.{i}"), "3.4.w", None),
    "from the root": (Rename("model", ""), "head.weight", "model.head.weight"),
    "to the root": (Rename("", "model"), "model.head.weight", "head.weight"),
    "dots are no wildcards": (Rename("x", "a.b"), "aXb.c", None),
}


@pytest.mark.parametrize(("rule", "name", "key"), RENAMES.values(), ids=RENAMES)
def test_rename(rule, name, key):
    assert rule.apply(name) == key


@given(COMPONENT, COMPONENT, st.lists(COMPONENT, max_size=3))
def test_rename_takes_any_component_as_it_is(key, path, rest):
    assert Rename(key, path).apply(".".join([path, *rest])) == ".".join([key, *rest])


@given(COMPONENT, st.lists(COMPONENT, min_size=1, max_size=3))
def test_there_and_back(field, rest):
    name = ".".join(["layers", field, *rest])
    key = Rename("encoder.{i}.block", "layers.{i}").apply(name)
    assert key is not None
    assert Rename("layers.{i}", "encoder.{i}.block").apply(key) == name


@pytest.mark.parametrize(("pattern", "key", "holds"), [("*.ids", "a.b.ids", True), ("ids", "a.ids", False)])
def test_drop_has_shell_wildcards(pattern, key, holds):
    assert Drop(pattern, "computed").matches(key) is holds


BAD_RULES = {
    "fields of keys": (lambda: Rule("a.{i}", "b.{j}"), r"has the fields \['i'\]"),
    "fields of a later path": (lambda: Rule("a", ("b", "c.{j}"), Permute((0,))), r"has the fields \['j'\]"),
    "fields of a prefix": (lambda: Rename("a.{i}", "b"), r"has the fields \['i'\]"),
    "several paths without a transform": (lambda: Rule("a", ("b", "c")), "say how they combine"),
    "several keys without a transform": (lambda: Rule(("a", "b"), "c"), "say how they combine"),
}


@pytest.mark.parametrize(("make", "message"), BAD_RULES.values(), ids=BAD_RULES)
def test_rules_that_mean_nothing_are_refused_when_made(make, message):
    with pytest.raises(ValueError, match=message):
        make()


class Attention(nnx.Module):
    def __init__(self):
        self.q = nnx.Linear(2, 3, rngs=nnx.Rngs(0))
        self.k = nnx.Linear(2, 3, rngs=nnx.Rngs(0))


class Encoder(nnx.Module):
    def __init__(self, depth):
        self.layers = nnx.List([Attention() for _ in range(depth)])
        self.norm = nnx.LayerNorm(2, rngs=nnx.Rngs(0))


def test_rules_with_fields_over_many_blocks():
    depth = 11
    port = nnx.eval_shape(lambda: Encoder(depth))
    rules = [
        Rule("h.{i}.qk.weight", ("layers.{i}.q.kernel", "layers.{i}.k.kernel"), SplitGates(2, Permute((1, 0)))),
        Rule("h.{i}.qk.bias", ("layers.{i}.q.bias", "layers.{i}.k.bias"), SplitGates(2, Permute((0,)))),
        Rename("ln_f", "norm"),
        Drop("h.*.mask", "computed"),
    ]
    generator = np.random.default_rng(0)
    state = {"ln_f.weight": np.ones(2, np.float32), "ln_f.bias": np.zeros(2, np.float32)}
    for i in range(depth):
        state[f"h.{i}.qk.weight"] = generator.standard_normal((6, 2)).astype(np.float32)
        state[f"h.{i}.qk.bias"] = generator.standard_normal(6).astype(np.float32)
    load(port, state | {f"h.{i}.mask": np.ones(1, bool) for i in range(depth)}, rules)
    for i, block in enumerate(port.layers):
        np.testing.assert_array_equal(block.k.kernel[...], state[f"h.{i}.qk.weight"][3:].T)
        np.testing.assert_array_equal(block.q.bias[...], state[f"h.{i}.qk.bias"][:3])
    back = to_state_dict(port, rules, framework="numpy")
    assert back.keys() == state.keys()
    assert all(np.array_equal(back[key], state[key]) for key in state)


def test_the_first_rule_that_matches_counts():
    port = nnx.Dict(a=Attention(), b=Attention())
    keys = to_state_dict(port, [Rename("special", "b.k"), Rename("net", "")], framework="numpy").keys()
    renamed = {f"net.{name}.{leaf}" for name in ("a.q", "a.k", "b.q") for leaf in ("weight", "bias")}
    assert keys == renamed | {"special.weight", "special.bias"}


def test_a_transform_without_its_methods_is_refused_at_once():
    class Halved:
        def to_model(self, *arrays):
            return arrays

    with pytest.raises(TypeError, match="no method to_reference, gradient_to_reference"):
        Rule("weight", "kernel", Halved())
    with pytest.raises(TypeError, match=r"transform is .*lambda"):
        Rule("weight", "kernel", lambda x: x.T)
