"""`load` and `to_state_dict`: the same bits there and back, one error for all problems, nothing written after one."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx
from hypothesis import given, settings
from hypothesis import strategies as st

import graphmode.nn
from graphmode.weights import (
    TRANSFORM,
    Counter,
    Drop,
    Rename,
    Rule,
    Tied,
    WeightsError,
    as_numpy,
    leaves,
    load,
    named_arrays,
    to_state_dict,
)


class Holder(nnx.Module):
    """Variables under the names given, holding zeros of these shapes and dtypes."""

    def __init__(self, **tensors):
        for name, tensor in tensors.items():
            array = as_numpy(tensor)
            setattr(self, name, nnx.Param(jnp.zeros(array.shape, jnp.dtype(array.dtype))))


class Block(nnx.Module):
    def __init__(self, width: int):
        self.first = nnx.Linear(width, width + 1, rngs=nnx.Rngs(0))
        self.second = nnx.Linear(width + 1, width, rngs=nnx.Rngs(0))


class Stack(nnx.Module):
    def __init__(self, depth: int, width: int = 2):
        self.layers = nnx.List([Block(width) for _ in range(depth)])
        self.head = nnx.Linear(width, 3, rngs=nnx.Rngs(0))


def stack(depth: int) -> Stack:
    return nnx.eval_shape(lambda: Stack(depth))


def arrays_for(module: nnx.Module, seed: int = 0) -> dict[str, np.ndarray]:
    """A state_dict that fits a module of `nnx.Linear`, by PyTorch's names."""
    generator = np.random.default_rng(seed)
    return {
        leaf.name: generator.standard_normal(leaf.variable.shape[::-1]).astype(np.float32) for leaf in leaves(module)
    }


def problems_of(module: nnx.Module, state_dict, rules=()) -> tuple[str, ...]:
    with pytest.raises(WeightsError) as raised:
        load(module, state_dict, rules)
    for line in raised.value.problems:
        assert line in str(raised.value)
    return raised.value.problems


NAN_BITS = np.array([0x7FC00001, 0xFFC12345, 0x7F800001, 0x80000000], np.uint32).view(np.float32)

TENSORS = {
    "float32": torch.randn(2, 3),
    "float16": torch.randn(2, 3).half(),
    "bfloat16": torch.randn(2, 3).bfloat16(),
    "bfloat16, no axis": torch.tensor(1.5, dtype=torch.bfloat16),
    "float8": torch.randn(4).to(torch.float8_e4m3fn),
    "complex64": torch.randn(2, dtype=torch.complex64),
    "complex64, conjugate view": torch.randn(2, dtype=torch.complex64).conj(),
    "int32": torch.tensor([[1, -2]], dtype=torch.int32),
    "uint8": torch.tensor([0, 255], dtype=torch.uint8),
    "bool": torch.tensor([True, False]),
    "no axis": torch.tensor(-0.0),
    "empty": torch.zeros(0, 3),
    "NaN payloads": torch.from_numpy(NAN_BITS.copy()),
    "transposed view": torch.randn(3, 2).T,
    "every other": torch.randn(6)[::2],
    "requires grad": torch.nn.Parameter(torch.randn(2)),
}


@pytest.mark.parametrize("tensor", TENSORS.values(), ids=TENSORS)
def test_the_same_bits_come_back(tensor):
    port = Holder(x=tensor)
    load(port, {"x": tensor})
    back = to_state_dict(port)["x"]
    assert back.dtype == tensor.dtype
    assert back.shape == tensor.shape
    wanted = tensor.detach().resolve_conj()
    assert as_numpy(back).tobytes() == as_numpy(wanted).tobytes()
    if "NaN" not in str(tensor) and tensor.dtype != torch.float8_e4m3fn and not torch.isnan(wanted).any():
        assert torch.equal(back, wanted)


def test_float64_under_x64():
    state = {"weight": torch.randn(5, 3, dtype=torch.float64), "bias": torch.randn(5, dtype=torch.float64)}
    port = nnx.Linear(3, 5, rngs=nnx.Rngs(0))
    with jax.enable_x64(True):
        load(port, state)
    assert port.kernel.dtype == jnp.float64
    for key, tensor in to_state_dict(port).items():
        assert torch.equal(tensor, state[key])


@pytest.mark.parametrize("dtype", [torch.float64, torch.uint64, torch.complex128], ids=str)
def test_what_jax_would_round_is_an_error_without_x64(dtype):
    tensor = torch.ones(2).to(dtype)
    narrow = {torch.float64: torch.float32, torch.uint64: torch.uint32, torch.complex128: torch.complex64}[dtype]
    (problem,) = problems_of(Holder(x=tensor.to(narrow)), {"x": tensor})
    assert "jax_enable_x64 is off" in problem


@pytest.mark.parametrize(
    ("tensor", "held"),
    [(torch.ones(2), torch.ones(2).int()), (torch.ones(2).int(), torch.ones(2)), (torch.ones(2).bool(), torch.ones(2))],
    ids=["float for int", "int for float", "bool for float"],
)
def test_a_tensor_of_another_kind_is_an_error(tensor, held):
    (problem,) = problems_of(Holder(x=held), {"x": tensor})
    assert "dtype" in problem


def test_a_counter_in_int64():
    port = nnx.Dict(count=nnx.BatchStat(jnp.zeros((), jnp.int32), **{TRANSFORM: Counter()}))
    load(port, {"count": torch.tensor(2**31 - 1)})
    assert port["count"].dtype == jnp.int32
    back = to_state_dict(port)["count"]
    assert back.dtype == torch.int64
    assert back.item() == 2**31 - 1
    for wrong in (torch.tensor(2**31), torch.tensor(-(2**31) - 1), torch.tensor(1.0)):
        assert "count" in problems_of(port, {"count": wrong})[0]


def test_loaded_values_do_not_follow_the_torch_module():
    reference = torch.nn.Linear(64, 64)
    port = nnx.eval_shape(lambda: nnx.Linear(64, 64, rngs=nnx.Rngs(0)))
    load(port, reference.state_dict())
    written = to_state_dict(port)
    with torch.no_grad():
        reference.weight.zero_()
        written["weight"].zero_()
    assert np.all(np.asarray(port.kernel[...]) != 0)


def test_all_problems_come_in_one_error_and_nothing_is_written():
    port = Stack(2)
    state = arrays_for(port)
    del state["layers.1.first.weight"]
    state["layers.1.frist.weight"] = np.zeros((3, 2), np.float32)
    state["head.weight"] = state["head.weight"].T
    state["head.bias"] = state["head.bias"].astype(np.float64)
    state["layers.0.first.bias"] = "no array"
    state["extra"] = np.zeros(7, np.float32)
    before = named_arrays(port)
    problems = problems_of(port, state, [Rename("nowhere", "tail"), Drop("none.*", "absent")])
    for part in (
        "layers.1.first.weight: missing, and layers.1.first.kernel needs it; the nearest unused key is layers.1.frist",
        "layers.1.frist.weight: unused, shape (3, 2)",
        "head.weight: shape (2, 3) gives (3, 2), and head.kernel has (2, 3)",
        "head.bias: dtype float64 would become float32",
        "layers.0.first.bias: str is no array of numbers",
        "extra: unused, shape (7,)",
        "Rename(key='nowhere', path='tail'): matches no variable",
        "Drop(key='none.*', why='absent'): matches no key",
    ):
        assert [part in problem for problem in problems].count(True) == 1, (part, problems)
    assert len(problems) == 8
    after = named_arrays(port)
    assert all(np.array_equal(before[key], after[key]) for key in before)


@settings(max_examples=25)
@given(st.data())
def test_exactly_the_missing_and_the_added_keys_are_named(data):
    port = stack(3)
    state = arrays_for(port)
    lost = data.draw(st.sets(st.sampled_from(sorted(state)), max_size=5))
    added = data.draw(st.sets(st.from_regex(r"\A[a-z]{1,5}(\.[0-9]{1,2})?\Z"), max_size=3)) - state.keys()
    given_state = {k: v for k, v in state.items() if k not in lost} | {k: np.zeros(1, np.float32) for k in added}
    if not lost and not added:
        load(port, given_state)
        return
    problems = problems_of(port, given_state)
    assert {p.split(": missing")[0] for p in problems if ": missing" in p} == lost
    assert {p.split(": unused")[0] for p in problems if ": unused" in p} == added
    assert len(problems) == len(lost) + len(added)


@pytest.mark.parametrize("container", [nnx.List, list, tuple])
def test_more_than_ten_blocks_keep_their_numbers(container):
    class Numbered(nnx.Module):
        def __init__(self):
            self.layers = nnx.data(container([Holder(x=np.zeros(1, np.float32)) for _ in range(12)]))

    port = Numbered()
    load(port, {f"layers.{i}.x": np.full(1, i, np.float32) for i in range(12)})
    assert [float(layer.x[0]) for layer in port.layers] == list(range(12))
    assert list(to_state_dict(port)) == [f"layers.{i}.x" for i in range(12)]


class Mixed(nnx.Module):
    """Every kind of container that can hold variables."""

    def __init__(self):
        def leaf():
            return Holder(x=np.zeros(1, np.float32))

        self.dict = nnx.Dict(b=leaf(), a=leaf())
        self.list = nnx.List([leaf()])
        self.plain = nnx.data({"k": [leaf(), (leaf(), nnx.Param(jnp.zeros(1)))]})
        self.rows = nnx.Sequential(leaf(), nnx.Sequential(leaf()))
        self.dropout = nnx.Dropout(0.5, rngs=nnx.Rngs(0))
        self.nothing = nnx.data(None)
        self.seen = nnx.Intermediate(jnp.zeros(1))
        self.cache = nnx.Cache(jnp.zeros(1))


def test_every_container_is_walked():
    names = {leaf.name for leaf in leaves(Mixed())}
    assert names == {"dict.a.x", "dict.b.x", "list.0.x", "plain.k.0.x", "plain.k.1.0.x", "plain.k.1.1"} | {
        "rows.0.x",
        "rows.1.0.x",
    }


def test_a_module_that_is_no_pytree_is_walked():
    class Opaque(nnx.Module, pytree=False):
        def __init__(self):
            self.blocks = [Holder(x=np.zeros(1, np.float32))]

    assert [leaf.path for leaf in leaves(Opaque())] == ["blocks.0.x"]


class TiedPort(nnx.Module):
    """One module under two names, and one variable in two modules."""

    def __init__(self):
        self.encoder = nnx.Linear(2, 2, rngs=nnx.Rngs(0))
        self.decoder = self.encoder
        self.embed = nnx.Embed(3, 2, rngs=nnx.Rngs(0))
        self.head = Holder()
        self.head.weight = self.embed.embedding


class TiedReference(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = torch.nn.Linear(2, 2)
        self.decoder = self.encoder
        self.embed = torch.nn.Embedding(3, 2)
        self.head = torch.nn.Linear(2, 3, bias=False)
        self.head.weight = self.embed.weight


def test_tied_in_the_port_and_in_the_reference():
    reference, port = TiedReference(), TiedPort()
    load(port, reference.state_dict())
    back = to_state_dict(port)
    assert back.keys() == reference.state_dict().keys()
    reference.load_state_dict(back, strict=True)
    assert torch.equal(back["head.weight"], reference.embed.weight)


def test_tied_in_the_port_under_one_key_in_the_reference():
    state = {k: v for k, v in TiedReference().state_dict().items() if not k.startswith(("decoder", "head"))}
    load(TiedPort(), state)


@pytest.mark.parametrize("key", ["decoder.weight", "head.weight"])
def test_tied_in_the_port_with_values_that_differ(key):
    state = TiedReference().state_dict()
    state[key] = state[key] + 1
    (problem,) = problems_of(TiedPort(), state)
    assert "is tied to" in problem
    assert key.partition(".")[0] in problem


def test_tied_values_that_differ_in_the_sign_of_zero_only_are_told_apart():
    state = TiedReference().state_dict()
    state["encoder.bias"] = torch.zeros(2)
    state["decoder.bias"] = -torch.zeros(2)
    assert len(problems_of(TiedPort(), state)) == 1


def test_tied_in_the_reference_only():
    reference = TiedReference()
    port = nnx.Dict(encoder=nnx.Linear(2, 2, rngs=nnx.Rngs(0)), embed=nnx.Embed(3, 2, rngs=nnx.Rngs(0)))
    rules = [
        Tied("decoder.weight", "encoder.weight"),
        Tied("decoder.bias", "encoder.bias"),
        Tied("head.weight", "embed.weight"),
    ]
    load(port, reference.state_dict(), rules)
    reference.load_state_dict(to_state_dict(port, rules), strict=True)
    state = reference.state_dict()
    state["head.weight"] = state["head.weight"] + 1
    (problem,) = problems_of(port, state, rules)
    assert problem == "head.weight: tied to embed.weight, and the two differ"


RULES_THAT_CANNOT_BE = {
    "rule that matches nothing": ([Rule("a", "none")], "matches no variable"),
    "rule behind one that took all": ([Rule("x", "x"), Rule("y", "{any}")], "matches no variable"),
    "rename that matches nothing": ([Rename("a", "none")], "matches no variable"),
    "drop of a used key": ([Drop("x", "why")], "matches no key"),
    "tie of a used key": ([Tied("x", "x")], "matches no key"),
    "tie to a key of no variable": ([Tied("y", "z")], "no variable has the key z"),
    "path that is not there": ([Rule("x", ("x", "z"), Counter())], "the module has no z"),
}


@pytest.mark.parametrize(("rules", "message"), RULES_THAT_CANNOT_BE.values(), ids=RULES_THAT_CANNOT_BE)
def test_rules_that_do_nothing_are_errors(rules, message):
    port = Holder(x=np.zeros(1, np.float32))
    assert any(message in problem for problem in problems_of(port, {"x": np.ones(1, np.float32)}, rules))


def test_a_path_as_nnx_spells_it_is_told_as_it_is_to_be_written():
    port = nnx.Sequential(nnx.Linear(2, 2, rngs=nnx.Rngs(0)), jnp.tanh)
    state = {f"mlp.0.{name}": np.zeros(shape, np.float32) for name, shape in (("weight", (2, 2)), ("bias", (2,)))}
    (problem,) = [
        each for each in problems_of(port, state, [Rename("mlp.{i}", "layers.{i}")]) if each.startswith("Rename(")
    ]
    assert "write its path as PyTorch would spell it: layers.0.bias is 0.bias there" in problem


def test_two_variables_of_one_key_are_an_error_both_ways():
    port = Holder(x=np.zeros(1, np.float32), y=np.zeros(1, np.float32))
    rules = [Rule("k", "x"), Rule("k", "y")]
    (problem,) = problems_of(port, {"k": np.ones(1, np.float32)}, rules)
    assert problem.startswith("k: stands for both x and y")
    with pytest.raises(WeightsError, match="stands for both"):
        to_state_dict(port, rules)


def test_a_variable_that_holds_no_array_is_an_error():
    port = nnx.Dict(x=nnx.Param({"a": jnp.zeros(1)}))
    (problem,) = problems_of(port, {})
    assert problem == "x: holds dict; only arrays are carried"


def test_random_state_is_left_alone():
    port = nnx.Dropout(0.5, rngs=nnx.Rngs(7))
    key = port.rngs.key[...]
    load(port, {})
    assert port.rngs.key[...] == key
    assert to_state_dict(port) == {}


def test_abstract_modules_are_filled():
    port = stack(1)
    load(port, arrays_for(port))
    assert all(isinstance(leaf.variable.get_value(), jax.Array) for leaf in leaves(port))


def test_an_abstract_module_has_nothing_to_give():
    with pytest.raises(WeightsError, match=r"head\.kernel: is abstract; load it first"):
        to_state_dict(stack(1))


def test_named_arrays_of_one_kind():
    port = nnx.BatchNorm(3, rngs=nnx.Rngs(0))
    assert named_arrays(port, of=nnx.Param).keys() == {"weight", "bias"}
    assert named_arrays(port, of=nnx.BatchStat).keys() == {"running_mean", "running_var"}


def test_frameworks():
    port = Holder(x=np.ones(2, np.float32))
    assert isinstance(to_state_dict(port, framework="numpy")["x"], np.ndarray)
    with pytest.raises(ValueError, match="framework is 'jax'; choose 'torch' or 'numpy'"):
        to_state_dict(port, framework="jax")


def test_what_is_loaded_does_not_follow_the_original():
    """JAX reads a numpy array, one that it is asked to copy too, some time after the call."""
    for _ in range(40):
        weight = np.ones((1500, 1500), np.float32)
        module = Holder(weight=np.zeros((1500, 1500), np.float32))
        load(module, {"weight": weight})
        weight *= 5  # as an optimizer of PyTorch would
        assert (np.asarray(module.weight[...]) == 1).all()


@dataclasses.dataclass(frozen=True)
class Gives:
    """A transform that gives what no transform should."""

    to: object
    back: object

    def to_model(self, *arrays):
        return self.to

    def to_reference(self, *arrays):
        return self.back

    gradient_to_reference = to_reference


@pytest.mark.parametrize(("gave", "told"), [(None, "NoneType"), ((), "0 arrays")])
def test_a_transform_that_gives_no_arrays_is_named(gave, told):
    module = nnx.Linear(2, 2, rngs=nnx.Rngs(0))
    rules = (Rule("w", "kernel", Gives(gave, gave)),)
    arrays = {"w": np.zeros((2, 2), np.float32), "bias": np.zeros(2, np.float32)}
    assert problems_of(module, arrays, rules) == (
        f"w: Gives.to_model gave {told}; give a tuple of 1, one for each path",
    )
    with pytest.raises(WeightsError, match=f"w: Gives.to_reference gave {told}; give a tuple of 1, one a key"):
        named_arrays(module, rules)


def test_a_lazy_layer_is_to_be_initialized_before():
    state = {"0.weight": np.ones((5, 3), np.float32), "0.bias": np.ones(5, np.float32), "more": np.ones(2, np.float32)}
    port = graphmode.nn.Sequential(graphmode.nn.LazyLinear(5, rngs=nnx.Rngs(0)))
    told = {problem.partition("; ")[2] for problem in problems_of(port, state)}
    assert told == {
        "the LazyLinear of 0 has no parameters yet: call its initialize(shape) before, or the model",
        "give it a variable, or Drop it with a reason",
    }
    port[0].initialize((1, 3))
    state.pop("more")
    load(port, state)
    lone = graphmode.nn.LazyLinear(5, rngs=nnx.Rngs(0))
    assert "the LazyLinear has no parameters yet" in problems_of(lone, {"weight": state["0.weight"]})[0]
