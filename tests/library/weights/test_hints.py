"""Keys that do not match, and what is said of them: prefixes, parametrizations, checkpoints, other arguments."""

import re
import warnings

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx
from torch.nn.utils import parametrizations, prune

import graphmode as gm
from graphmode.weights import LINEAR, Drop, Rename, Rule, Tied, WeightsError, carries, load, read, to_state_dict


class Reference(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(3, 4)
        self.out = torch.nn.Linear(4, 2)


class Port(nnx.Module):
    def __init__(self):
        self.fc = gm.nn.Linear(3, 4, rngs=nnx.Rngs(0))
        self.out = gm.nn.Linear(4, 2, rngs=nnx.Rngs(0))


class Wrapped(nnx.Module):
    def __init__(self):
        self.model = Port()


STATE = Reference().state_dict()


def prefixed(prefix: str) -> dict[str, torch.Tensor]:
    return {prefix + key: value for key, value in STATE.items()}


def problems_of(module, state_dict, rules=()) -> tuple[str, ...]:
    with pytest.raises(WeightsError) as raised:
        load(module, state_dict, rules)
    return raised.value.problems


@pytest.mark.parametrize("prefix", ["module", "_orig_mod", "model", "module._orig_mod"])
def test_a_prefix_of_all_keys_is_one_line(prefix):
    (problem,) = problems_of(Port(), prefixed(f"{prefix}."))
    advice = Rename(prefix, "")
    assert problem.startswith(f"all keys that the module needs begin with '{prefix}.' in the state_dict")
    assert problem.endswith(f"add Rename({prefix!r}, '') to the rules")
    port = Port()
    load(port, prefixed(f"{prefix}."), [advice])
    assert to_state_dict(port, [advice]).keys() == prefixed(f"{prefix}.").keys()


def test_a_prefix_that_all_keys_lack_is_one_line():
    (problem,) = problems_of(Wrapped(), STATE)
    assert problem.startswith("all keys that the module needs begin with 'model.', and in the state_dict without it")
    assert problem.endswith("add Rename('', 'model') to the rules")
    load(Wrapped(), STATE, [Rename("", "model")])


def test_what_is_wrong_beside_the_prefix_is_still_told():
    state = prefixed("module.") | {"module.extra": torch.ones(7), "module.fc.bias": torch.ones(5)}
    first, *others = problems_of(Port(), state)
    assert "add Rename('module', '')" in first
    assert len(others) == 2
    assert "module.fc.bias: shape (5,) gives (5,), and fc.bias has (4,)" in others[0]
    assert "module.extra: unused, shape (7,)" in others[1]


@pytest.mark.parametrize("lost", STATE)
def test_a_prefix_of_most_keys_is_told_beside_those_that_are_not_there(lost):
    state = {key: value for key, value in prefixed("module.").items() if key != f"module.{lost}"}
    first, other = problems_of(Port(), state)
    assert first.startswith("most keys that the module needs begin with 'module.' in the state_dict: add Rename(")
    assert other.startswith(f"module.{lost}: missing")


@pytest.mark.parametrize(
    ("module", "state", "rules", "advice"),
    [
        (
            Port,
            prefixed("module."),
            [Rule("fc.weight", "fc.weight")],
            "{key.removeprefix('module.'): value for key, value in state_dict.items()}",
        ),
        (
            Wrapped,
            STATE,
            [Rename("model.fc", "model.fc")],
            "{'model.' + key: value for key, value in state_dict.items()}",
        ),
    ],
    ids=["taken off", "put on"],
)
def test_a_prefix_that_the_rules_do_not_know(module, state, rules, advice):
    (problem,) = problems_of(module(), state, rules)
    assert problem.endswith(f"give {advice}, for which the rules are made")
    load(module(), eval(advice, {"state_dict": state}), rules)


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key, self.value = (torch.nn.Linear(4, 4) for _ in range(3))
        self.mlp = torch.nn.ModuleList([torch.nn.Linear(4, 6), torch.nn.Linear(6, 4)])
        self.scale = torch.nn.Parameter(torch.ones(4))


class Transformer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = torch.nn.ModuleDict({"layer": torch.nn.ModuleList(Block() for _ in range(3))})
        self.embeddings = torch.nn.Embedding(9, 4)
        self.norm = torch.nn.BatchNorm1d(4)


class BlockPort(nnx.Module):
    def __init__(self, rngs):
        self.q, self.k, self.v = (gm.nn.Linear(4, 4, rngs=rngs) for _ in range(3))
        self.up, self.down = gm.nn.Linear(4, 6, rngs=rngs), gm.nn.Linear(6, 4, rngs=rngs)
        self.gamma = nnx.Param(jnp.ones(4))


class TransformerPort(nnx.Module):
    def __init__(self):
        rngs = nnx.Rngs(0)
        self.blocks = nnx.List(BlockPort(rngs) for _ in range(3))
        self.embed = gm.nn.Embedding(9, 4, rngs=rngs)
        self.norm = nnx.BatchNorm(4, rngs=rngs)


def test_other_names_are_told_as_rules_that_can_be_given():
    state = Transformer().state_dict()
    (problem,) = problems_of(TransformerPort(), state)
    assert problem.startswith("34 keys that the module needs are there under other names")
    rules = eval(f"[{problem.split('(`weights` of a case) ')[1]}]")
    assert set(rules) == {
        Rename("encoder.layer.{i}.query", "blocks.{i}.q"),
        Rename("encoder.layer.{i}.key", "blocks.{i}.k"),
        Rename("encoder.layer.{i}.value", "blocks.{i}.v"),
        Rename("encoder.layer.{i}.mlp.0", "blocks.{i}.up"),
        Rename("encoder.layer.{i}.mlp.1", "blocks.{i}.down"),
        Rename("encoder.layer.{i}.scale", "blocks.{i}.gamma"),
        Rename("embeddings", "embed"),
    }
    port = TransformerPort()
    load(port, state, rules)
    np.testing.assert_array_equal(port.blocks[2].v.weight[...].T, state["encoder.layer.2.value.weight"])


class Named(Reference):
    """Its layers have a second name in a sequence; a norm has no counterpart."""

    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(self.fc, torch.nn.ReLU(), self.out)
        self.norm = torch.nn.LayerNorm(4)


def test_a_layer_under_two_names_is_told_with_the_rule_for_it():
    state = Named().state_dict()
    *twins, weight, bias = problems_of(Port(), state)
    assert all(
        each.endswith("unused, shape (4,); give it a variable, or Drop it with a reason") for each in (weight, bias)
    )
    rules = [Drop("norm.*", "of no use"), *(eval(re.search(r"Tied\(.*?\)", each).group()) for each in twins)]
    assert rules[1:] == [
        Tied(f"net.{i}.{n}", f"{of}.{n}") for i, of in ((0, "fc"), (2, "out")) for n in ("weight", "bias")
    ]
    load(Port(), state, rules)


def test_what_is_left_over_beside_other_names_is_still_told():
    first, *others = problems_of(TransformerPort(), {**Transformer().state_dict(), "head.weight": torch.ones(2, 2)})
    assert "under other names" in first
    assert others == ["head.weight: unused, shape (2, 2); give it a variable, or Drop it with a reason"]


def test_keys_that_no_shape_fits_are_told_one_by_one():
    state = {key: value for key, value in Transformer().state_dict().items() if "mlp.1" not in key}
    problems = problems_of(TransformerPort(), state)
    assert not any("under other names" in problem for problem in problems)
    assert any(problem.startswith("blocks.0.down.weight: missing") for problem in problems)


def test_a_variable_that_its_transform_does_not_take_is_told_as_missing():
    class Odd(nnx.Module):
        def __init__(self):
            self.scale = nnx.Param(jnp.ones(3), **carries(LINEAR))

    problems = problems_of(Odd(), {"gain": torch.ones(3)})
    assert any(problem.startswith("scale: missing, and scale needs it") for problem in problems)


def test_a_prefix_of_some_keys_is_none_of_all():
    state = {**STATE, "module.fc.bias": STATE["fc.bias"]}
    del state["fc.bias"]
    problems = problems_of(Port(), state)
    assert len(problems) == 2
    assert problems[0].startswith("fc.bias: missing")


@pytest.mark.parametrize(
    ("sides", "wanted"),
    [
        (("module.", ""), "Rename('module', '')"),
        (("", "model."), "Rename('', 'model')"),
        (("a..b", ".c"), "Rename('a.b', 'c')"),
    ],
)
def test_a_rename_with_a_dot_too_many_is_refused(sides, wanted):
    with pytest.raises(ValueError, match="has a dot with no name beside it") as raised:
        Rename(*sides)
    assert str(raised.value).endswith(f"write {wanted}")


@pytest.mark.parametrize(
    ("build", "odd"),
    [
        (lambda: Rename("layers.{*a}", "blocks.{*a}"), "{*a}"),
        (lambda: Rename("layers.{}", "blocks.{i}"), "{}"),
        (lambda: Rule("layers.{i.w", "blocks.{i}.w"), "{i.w"),
        (lambda: Rule("layers.i}.w", "blocks.i.w"), "}"),
        (lambda: Rule("layers.{0}.w", "blocks.{0}.w"), "{0}"),
    ],
)
def test_braces_that_are_no_field_are_refused(build, odd):
    with pytest.raises(ValueError, match="which is no field") as raised:
        build()
    assert f"has {odd!r}, which" in str(raised.value)


def weight_norm_of_old(module):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.nn.utils.weight_norm(module)


PARAMETRIZED = {
    "weight_norm": (parametrizations.weight_norm, "torch.nn.utils.parametrize.remove_parametrizations", '"weight"'),
    "spectral_norm": (parametrizations.spectral_norm, "torch.nn.utils.parametrize.remove_parametrizations", '"weight"'),
    "orthogonal": (parametrizations.orthogonal, "torch.nn.utils.parametrize.remove_parametrizations", '"weight"'),
    "old weight_norm": (weight_norm_of_old, "torch.nn.utils.remove_weight_norm", ""),
    "old spectral_norm": (torch.nn.utils.spectral_norm, "torch.nn.utils.remove_spectral_norm", '"weight"'),
    "pruned": (lambda m: prune.l1_unstructured(m, "weight", 2), "torch.nn.utils.prune.remove", '"weight"'),
}


@pytest.mark.filterwarnings("ignore:.*spectral_norm.*:FutureWarning")
@pytest.mark.parametrize(("change", "call", "name"), PARAMETRIZED.values(), ids=PARAMETRIZED)
def test_a_computed_parameter_is_told_with_the_call_that_makes_it_one(change, call, name):
    reference = Reference()
    change(reference.fc)
    (problem,) = problems_of(Port(), reference.state_dict())
    assert problem.startswith("fc.weight: missing, and fc.weight needs it; it is computed from fc.")
    call = f"{call}(reference.fc{', ' if name else ''}{name})"
    assert problem.endswith(f"call {call} before state_dict()")
    ours = re.search(r"build the layer here with (graphmode[\w.]+), or", problem)
    assert (ours is None) == (call.startswith("torch.nn.utils.prune"))
    assert ours is None or callable(eval(ours[1], {"graphmode": gm}))
    eval(call, {"torch": torch, "reference": reference})
    load(Port(), reference.state_dict())


@pytest.mark.parametrize(("kind", "said"), [(nnx.Variable, True), (nnx.Param, False), (nnx.BatchStat, False)])
def test_state_that_pytorch_keeps_nowhere_is_told_how_to_hold(kind, said):
    port = Port()
    port.hidden = kind(jnp.zeros(2))
    (problem,) = problems_of(port, Reference().state_dict())
    assert problem.startswith("hidden: missing, and hidden needs it")
    assert ("persistent=False, is an nnx.Cache here" in problem) == said
    port.hidden = nnx.Cache(jnp.zeros(2))
    load(port, Reference().state_dict())


def test_a_port_that_holds_the_parts_needs_no_hint():
    reference = torch.nn.Linear(3, 4)
    parametrizations.weight_norm(reference)
    shapes = {key: tuple(value.shape) for key, value in reference.state_dict().items()}
    rules = [Rule(key, key.rpartition(".")[2]) for key in shapes]
    module = nnx.Dict({rule.paths[0]: nnx.Param(jnp.zeros(shapes[rule.keys[0]])) for rule in rules})
    load(module, reference.state_dict(), rules)


@pytest.mark.filterwarnings("ignore:.*quantize:UserWarning", "ignore:TypedStorage:UserWarning")
def test_tensors_without_numbers_of_their_own_are_named(tmp_path):
    quantized = torch.quantize_per_tensor(STATE["fc.weight"], 0.1, 0, torch.qint8)
    (problem,) = problems_of(Port(), STATE | {"fc.weight": quantized})
    assert problem == "fc.weight: is quantized, torch.qint8; give its dequantize()"
    load(Port(), STATE | {"fc.weight": quantized.dequantize()})
    torch.save(STATE | {"fc.weight": quantized}, tmp_path / "q.pt")
    with pytest.raises(ValueError, match=r"q\.pt holds what numpy cannot hold\n  - fc\.weight: is quantized"):
        read(tmp_path / "q.pt")
    problems = problems_of(Port(), {key: value.to("meta") for key, value in STATE.items()})
    assert [line.split(": ")[0] for line in problems] == list(STATE)
    assert all("load real weights" in line for line in problems)


@pytest.mark.parametrize(
    ("content", "advice"),
    [
        ({"epoch": 1, "state_dict": STATE, "optimizer_states": []}, "state_dict['state_dict']"),
        ({"model": STATE, "ema": STATE, "optimizer": {"state": {}}}, "state_dict['model'] or state_dict['ema']"),
    ],
)
def test_a_checkpoint_is_told_where_its_weights_are(content, advice):
    (problem,) = problems_of(Port(), content)
    assert problem == f"state_dict: is a checkpoint that holds weights and more; give {advice}"


OTHER_ARGUMENTS = {
    "PyTorch's module": ((Port(), Reference()), {}, r"state_dict is Reference; give its state_dict\(\)"),
    "a path": ((Port(), "w.safetensors"), {}, r"state_dict is 'w.safetensors', a path; give graphmode.weights.read"),
    "numbers": ((Port(), {**STATE, 3: STATE["fc.bias"]}), {}, "state_dict has the key 3; give a mapping of names"),
    "no port": ((None, STATE), {}, "module is None; give the port"),
    "a list": ((Port(), list(STATE.items())), {}, "state_dict is list; give a mapping of names to tensors"),
    "a class": ((Port, STATE), {}, r"module is the class Port; give an instance: Port\(...\)"),
    "the reference": ((Reference(), STATE), {}, "module is Reference, a module of PyTorch; give the port"),
    "a rule": ((Port(), STATE, Rename("a", "b")), {}, r"rules is Rename\(.*\) by itself; give a list: \[Rename"),
    "a name": ((Port(), STATE, "module"), {}, "rules is 'module'; give a list of Rule, Rename, Stacked, Drop and Tied"),
    "a mapping of rules": ((Port(), STATE, {"a": "b"}), {}, "rules is {'a': 'b'}; give a list"),
    "names": ((Port(), STATE, ["module"]), {}, "rules has 'module'; give a list"),
}


@pytest.mark.parametrize(("given", "options", "message"), OTHER_ARGUMENTS.values(), ids=OTHER_ARGUMENTS)
def test_arguments_of_another_kind_are_refused(given, options, message):
    with pytest.raises(TypeError, match=message):
        load(*given, **options)


@pytest.mark.parametrize("module", [Port, Reference()], ids=["a class", "the reference"])
def test_there_is_no_state_dict_of_another_kind_of_module(module):
    with pytest.raises(TypeError, match="module is "):
        to_state_dict(module)


class Tiable(nnx.Module):
    def __init__(self):
        self.embed = gm.nn.Embedding(5, 4, rngs=nnx.Rngs(0))


@pytest.mark.parametrize("kept", ["embed.weight", "head.weight"])
def test_a_tied_key_may_be_left_out(kept):
    weight = np.arange(20, dtype=np.float32).reshape(5, 4)
    port, rules = Tiable(), [Tied("head.weight", "embed.weight")]
    load(port, {kept: weight}, rules)
    np.testing.assert_array_equal(port.embed.weight[...], weight)
    assert to_state_dict(port, rules).keys() == {"embed.weight", "head.weight"}


def test_a_tied_key_without_the_other_is_an_error():
    problems = problems_of(Tiable(), {}, [Tied("head.weight", "embed.weight"), Drop("none", "absent")])
    assert any(line.startswith("Tied(key='head.weight'") for line in problems)


def test_a_key_whose_variable_no_state_dict_holds_says_of_which_type_it_has_to_be():
    port, keys = Port(), {**Reference().state_dict(), "past": np.zeros((2, 3), np.float32)}
    port.past = nnx.Cache(jnp.zeros((2, 3)))
    (problem,) = problems_of(port, keys)
    assert problem.startswith("past: unused, shape (2, 3); it is an nnx.Cache here")
    assert problem.endswith("make it an nnx.BatchStat")
    port.past = nnx.BatchStat(jnp.zeros((2, 3)))
    load(port, keys)
