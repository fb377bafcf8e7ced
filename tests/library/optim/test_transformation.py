"""What all optimizers share: absent gradients, groups, rates, and how they stand inside of optax and NNX."""

import copy
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch
from flax import nnx

import graphmode as gm

from .models import Reference, assert_same_weights, gradients, in_layout, pair, step_torch
from .optimizer_cases import REFUSED, configurations, in_double, of

OPTIMIZERS = [name for name in dict.fromkeys(c.optimizer for c in configurations()) if name not in REFUSED]
START = {"body.weight": np.linspace(-1.0, 1.0, 6).reshape(2, 3), "head.weight": np.linspace(0.5, 2.0, 6).reshape(3, 2)}
ABSENT = [{"head.weight"}, set(), {"body.weight"}, {"body.weight", "head.weight"}, {"head.weight"}, set()]


def given(step):
    rng = np.random.default_rng(step)
    return {name: rng.standard_normal(value.shape) for name, value in START.items()}


def in_torch(make, groups=None, absent=ABSENT, start=START):
    params = {name: torch.nn.Parameter(torch.tensor(value)) for name, value in start.items()}
    optimizer = make(list(params.values()) if groups is None else groups(params))
    for number, names in enumerate(absent):
        for name, p in params.items():
            p.grad = None if name in names else torch.tensor(given(number)[name])
        optimizer.step()
    return {name: p.detach().numpy() for name, p in params.items()}


def bits(tree):
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(tree)]


@pytest.mark.parametrize("how", ["None leaves", "left out", "names", "modules", "traced"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_an_absent_gradient_is_pytorchs_none(optimizer, how):
    if how != "traced" and optimizer not in ("Adam", "SGD", "Adafactor"):
        how = "None leaves"  # the ways to say it are the same for all
    configuration = of(optimizer)[-1]
    with in_double():
        tx = configuration.ours()
        params = {name: jnp.asarray(value) for name, value in START.items()}
        state = tx.init(params)
        update = jax.jit(tx.update) if how == "traced" else tx.update
        for number, names in enumerate(ABSENT):
            grads = {name: jnp.asarray(value) for name, value in given(number).items()}
            present = None
            if how == "None leaves":
                grads = {name: None if name in names else value for name, value in grads.items()}
            elif how == "left out":
                grads = {name: value for name, value in grads.items() if name not in names}
            elif how == "names":
                present = {name: name not in names for name in grads}
            elif how == "modules":
                present = {name.removesuffix(".weight"): name not in names for name in grads}
            else:
                present = {name: jnp.asarray(name not in names) for name in grads}
            updates, after = update(grads, state, params, present=present)
            for index, name in enumerate(START):
                if name in names:
                    assert after.step[index] == state.step[index]
                    for slot in state.slots:
                        assert bits(after.slots[slot].get(name)) == bits(state.slots[slot].get(name))
                    assert not np.any(updates.get(name, 0.0))
            state = after
            params = {name: p + updates[name] if name in updates else p for name, p in params.items()}
        theirs = in_torch(configuration.theirs)
    bar = 2e-2 if optimizer == "Muon" else 1e-10  # directions in bfloat16
    for name, value in theirs.items():
        np.testing.assert_allclose(params[name], value, rtol=bar, atol=bar)


def test_the_gradient_is_absent_where_a_traced_module_was_not_run():
    tx = gm.optim.adam(lr=0.1)
    params = {"branch": {"weight": jnp.ones(2)}, "trunk": {"weight": jnp.ones(2)}}
    step = jax.jit(lambda ran: tx.update(params, tx.init(params), params, present={"branch": ran})[0])
    assert not np.any(step(jnp.asarray(False))["branch"]["weight"])
    assert np.all(step(jnp.asarray(True))["branch"]["weight"])
    assert np.all(step(jnp.asarray(False))["trunk"]["weight"])


@pytest.mark.parametrize(
    ("present", "kind", "told"),
    [
        ({"nope": True}, ValueError, "present has 'nope', which is no parameter or module"),
        ({"weight": jnp.ones(2, bool)}, TypeError, r"present\['weight'\] is bool\[2\]"),
        ({"weight": 0.5}, TypeError, r"present\['weight'\] is 0.5; give a bool"),
        ({"weight": jnp.float32(1.0)}, TypeError, r"present\['weight'\] is float32\[\]"),
    ],
)
def test_a_wrong_present_is_refused(present, kind, told):
    params = {"weight": jnp.ones(2)}
    tx = gm.optim.sgd()
    with pytest.raises(kind, match=told):
        tx.update(params, tx.init(params), params, present=present)


@pytest.mark.parametrize(
    "where", [r"^head", lambda name, array: array.shape == (3, 2)], ids=["regular expression", "function"]
)
def test_groups_are_pytorchs_groups(where):
    with in_double():
        other = gm.optim.Group(r"weight$", lr=0.5)  # the first that takes a parameter counts
        tx = gm.optim.adamw(lr=0.01, groups=[gm.optim.Group(where, lr=0.1, weight_decay=0.3, betas=(0.5, 0.6)), other])
        params = {name: jnp.asarray(value) for name, value in START.items()}
        state = tx.init(params)
        for number in range(6):
            updates, state = tx.update(given(number), state, params)
            params = optax.apply_updates(params, updates)
        theirs = in_torch(
            lambda groups: torch.optim.AdamW(groups, lr=0.01),
            lambda p: [
                {"params": [p["body.weight"]], "lr": 0.5},
                {"params": [p["head.weight"]], "lr": 0.1, "weight_decay": 0.3, "betas": (0.5, 0.6)},
            ],
            absent=[set()] * 6,
        )
    for name, value in theirs.items():
        np.testing.assert_allclose(params[name], value, rtol=1e-10)


@pytest.mark.parametrize(
    ("make", "kind", "told"),
    [
        (lambda: gm.optim.sgd(groups=[gm.optim.Group("nope")]), ValueError, "holds no parameter; there are weight"),
        (lambda: gm.optim.sgd(groups=[gm.optim.Group("w", beta=1)]), ValueError, r"groups\[0\] has beta; SGD has lr"),
        (lambda: gm.optim.sgd(groups=[gm.optim.Group("w", lr=-1.0)]), ValueError, r"groups\[0\]: lr is -1.0"),
        (lambda: gm.optim.sgd(groups=["w"]), TypeError, r"groups\[0\] is a str"),
        (lambda: gm.optim.sgd(groups=gm.optim.Group("w")), TypeError, r"groups is Group\('w'\); give a list"),
        (lambda: gm.optim.sgd(groups=3), TypeError, "groups is 3; give a list"),
        (
            lambda: gm.optim.adagrad(groups=[gm.optim.Group("w", initial_accumulator_value=1.0)]),
            ValueError,
            r"groups\[0\] has initial_accumulator_value, which Adagrad takes for all groups alike",
        ),
        (lambda: gm.optim.Group("("), ValueError, "give a regular expression"),
        (lambda: gm.optim.radam(betas=(lambda t: 0.9, 0.9)), TypeError, "betas is a schedule; RAdam takes one for lr"),
    ],
)
def test_wrong_groups_are_refused(make, kind, told):
    with pytest.raises(kind, match=told):
        make().init({"weight": jnp.ones(2)})


@pytest.mark.parametrize(
    ("params", "told"),
    [
        ({"a": 1.0}, "params has 1.0 at 'a'; give an array"),
        ({"a": jnp.arange(3)}, "a is int32; SGD steps floating parameters"),
    ],
)
def test_what_is_no_floating_array_is_refused(params, told):
    with pytest.raises(TypeError, match=told):
        gm.optim.sgd().init(params)


def test_parameters_of_one_name_are_refused():
    with pytest.raises(ValueError, match=r"several of the name a\.b"):
        gm.optim.sgd().init({"a": {"b": jnp.ones(2)}, "a.b": jnp.ones(2)})


def test_the_state_of_other_parameters_is_refused():
    tx, params = gm.optim.adam(), {"a": jnp.ones(2)}
    with pytest.raises(ValueError, match="state is of b, which params has not"):
        tx.update(params, tx.init({"b": jnp.ones(2)}), params)
    with pytest.raises(ValueError, match="state is of 2 parameters, and params has 1"):
        tx.update(params, tx.init({"a": jnp.ones(2), "b": jnp.ones(2)}), params)
    with pytest.raises(ValueError, match=r"the gradient of a has shape \(3,\), and \(2,\) was wanted"):
        tx.update({"a": jnp.ones(3)}, tx.init(params), params)
    with pytest.raises(ValueError, match="gradients are given for c"):
        tx.update({"c": jnp.ones(3)}, tx.init(params), params)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_another_rate_between_steps_is_pytorchs_and_compiles_nothing(optimizer):
    """Before the first step too: ASGD and Rprop take their first sizes from the rate of the first gradient."""
    configuration = of(optimizer)[0]
    rates = [0.3, 0.3, 0.02, 0.02, 0.004]
    with in_double():
        tx = configuration.ours()
        params = {name: jnp.asarray(value) for name, value in START.items()}
        state, traces = tx.init(params), []

        @jax.jit
        def step(params, state, grads):
            traces.append(1)
            updates, state = tx.update(grads, state, params)
            return optax.apply_updates(params, updates), state

        theirs = {name: torch.nn.Parameter(torch.tensor(value)) for name, value in START.items()}
        other = configuration.theirs(list(theirs.values()))
        for number, lr in enumerate(rates):
            params, state = step(params, gm.optim.with_lr(state, lr), given(number))
            other.param_groups[0]["lr"] = lr
            for name, p in theirs.items():
                p.grad = torch.tensor(given(number)[name])
            other.step()
    assert len(traces) == 1
    bar = 2e-2 if optimizer == "Muon" else 1e-10
    for name, p in theirs.items():
        np.testing.assert_allclose(params[name], p.detach().numpy(), rtol=bar, atol=bar)


@pytest.mark.parametrize(
    ("make", "theirs", "keys"),
    [
        (lambda of: gm.optim.adam(lr=of(0.1), betas=(of(0.8), 0.99)), torch.optim.Adam, ("lr", "betas")),
        (lambda of: gm.optim.nadam(lr=of(0.1), betas=(of(0.8), 0.99)), torch.optim.NAdam, ("lr", "betas")),
        (lambda of: gm.optim.sgd(lr=of(0.1), momentum=of(0.8)), torch.optim.SGD, ("lr", "momentum")),
        (lambda of: gm.optim.rmsprop(lr=of(0.1), momentum=of(0.8)), torch.optim.RMSprop, ("lr", "momentum")),
    ],
)
def test_schedules_are_what_a_scheduler_writes_into_pytorchs_group(make, theirs, keys):
    def of(start):
        return gm.optim.lr_scheduler.ExponentialLR(start, gamma=0.9)

    with in_double():
        tx = make(of)
        params = {name: jnp.asarray(value) for name, value in START.items()}
        state, step = tx.init(params), jax.jit(tx.update)
        others = {name: torch.nn.Parameter(torch.tensor(value)) for name, value in START.items()}
        more = {"betas": (0.8, 0.99)} if "betas" in keys else {"momentum": 0.8}
        optimizer = theirs(list(others.values()), lr=0.1, **more)
        for number in range(6):
            updates, state = step(given(number), state, params)
            params = optax.apply_updates(params, updates)
            now = {"lr": 0.1 * 0.9**number, "betas": (0.8 * 0.9**number, 0.99), "momentum": 0.8 * 0.9**number}
            optimizer.param_groups[0].update({key: now[key] for key in keys})
            for name, p in others.items():
                p.grad = torch.tensor(given(number)[name])
            optimizer.step()
            assert float(state.lr[0]) == pytest.approx(now["lr"], rel=1e-12)
    for name, p in others.items():
        np.testing.assert_allclose(params[name], p.detach().numpy(), rtol=1e-10, atol=1e-10)


def test_with_lr_reaches_into_a_chain_and_counts_groups():
    params = {"weight": jnp.ones(2)}
    tx = optax.chain(optax.clip(1.0), gm.optim.sgd(groups=[gm.optim.Group("weight", lr=0.5)]))
    state = gm.optim.with_lr(tx.init(params), [0.1, 0.2])
    np.testing.assert_array_equal(state[1].lr, np.float32([0.1, 0.2]))
    np.testing.assert_array_equal(gm.optim.with_lr(state, jnp.float32(0.3))[1].lr, np.float32([0.3, 0.3]))
    with pytest.raises(ValueError, match="lr has 3 numbers, and the optimizer has 2 groups"):
        gm.optim.with_lr(state, [1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match="state holds 0 states"):
        gm.optim.with_lr(optax.sgd(0.1).init(params), 0.1)


@pytest.mark.parametrize("wrap", [lambda update: update, jax.jit], ids=["eager", "jit"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_injected_numbers_are_pytorchs_and_may_change(optimizer, wrap):
    make = getattr(torch.optim, optimizer)
    rates = [0.1, 0.1, 0.02, 0.02]
    more = {} if optimizer == "Rprop" else {"weight_decay": 0.05}
    if optimizer == "SGD":
        more["momentum"] = 0.0  # known to none of the updates, so that there is a buffer
    with in_double():
        theirs = {name: torch.nn.Parameter(torch.tensor(value)) for name, value in START.items()}
        theirs_tx = make(list(theirs.values()), lr=0.1, **more)
        tx = optax.inject_hyperparams(getattr(gm.optim, optimizer.lower()))(lr=0.1, **more)
        params = {name: jnp.asarray(value) for name, value in START.items()}
        state, update = tx.init(params), wrap(tx.update)
        for number, lr in enumerate(rates):
            state.hyperparams["lr"] = theirs_tx.param_groups[0]["lr"] = lr
            if number == 1 and "momentum" in more:
                state.hyperparams["momentum"] = theirs_tx.param_groups[0]["momentum"] = 0.9
            for name, p in theirs.items():
                p.grad = torch.tensor(given(number)[name])
            theirs_tx.step()
            updates, state = update({k: jnp.asarray(v) for k, v in given(number).items()}, state, params)
            params = optax.apply_updates(params, updates)
    for name, p in theirs.items():
        np.testing.assert_allclose(params[name], p.detach().numpy(), rtol=1e-10, atol=1e-10)


def test_injected_schedules_groups_and_rates():
    params = {"weight": jnp.ones(2), "bias": jnp.ones(2)}
    tx = optax.inject_hyperparams(gm.optim.sgd)(
        lr=optax.linear_schedule(0.5, 0.0, 2), momentum=0.9, nesterov=True, groups=[gm.optim.Group("bias", lr=0.25)]
    )
    state, update = tx.init(params), jax.jit(tx.update)
    for weight, bias in [(0.5, 0.25), (0.25, 0.25), (0.0, 0.25)]:
        _, state = update(params, state, params)
        np.testing.assert_array_equal(state.inner_state.lr, np.float32([weight, bias]))
    with pytest.raises(ValueError, match=r"set the hyperparams\['lr'\] that it holds"):
        gm.optim.with_lr((state,), 0.1)
    layer = gm.nn.Linear(2, 3, rngs=nnx.Rngs(0))
    with pytest.raises(ValueError, match=r"weight is laid out otherwise .*inject_hyperparams makes it anew"):
        optax.inject_hyperparams(gm.optim.adafactor)().init(nnx.state(layer, nnx.Param))


@pytest.mark.parametrize("optimizer", ["SGD", "Adafactor", "NAdam"])
def test_nnx_optimizer_steps_a_model_as_pytorch(optimizer):
    """Adafactor sees rows and columns, which the layers of `gm.nn` lay out otherwise."""
    configuration = of(optimizer)[-1]
    with in_double():
        reference, port = pair()
        theirs = configuration.theirs(list(reference.parameters()))
        ours = nnx.Optimizer(port, configuration.ours(), wrt=nnx.Param)
        for number in range(3):
            grads = in_layout(port, gradients(reference, number))
            step_torch(reference, theirs, gradients(reference, number))
            ours.update(port, grads)
        assert_same_weights(port, reference)
        ours.opt_state = nnx.data(gm.optim.with_lr(ours.opt_state, 0.25))
        theirs.param_groups[0]["lr"] = 0.25
        step_torch(reference, theirs, gradients(reference, 9))
        ours.update(port, in_layout(port, gradients(reference, 9)))
        assert_same_weights(port, reference)


def test_plain_layers_of_nnx_are_laid_out_by_for_model():
    with in_double():
        reference = torch.nn.Linear(4, 3)
        port = nnx.Linear(4, 3, rngs=nnx.Rngs(0), param_dtype=jnp.float64)
        gm.weights.load(port, reference.state_dict())
        theirs = torch.optim.Adafactor(reference.parameters())
        wrong, params = nnx.clone(port), jax.tree.map(jnp.copy, nnx.state(port, nnx.Param))
        grads = in_layout(port, gradients(reference, 0))
        step_torch(reference, theirs, gradients(reference, 0))
        for tx, model in [(gm.optim.adafactor().for_model(port), port), (gm.optim.adafactor(), wrong)]:
            updates, _ = tx.update(grads, tx.init(params), params)
            nnx.update(model, optax.apply_updates(params, updates))
        assert_same_weights(port, reference)
        # rows and columns are told apart in the variance's state alone, and by no first step of one sign
        shapes = [tx.init(params).slots["row_var"]["kernel"].shape for tx in (gm.optim.adafactor().for_model(port), tx)]
        assert shapes == [(3, 1), (4, 1)]


def test_muon_for_matrices_and_adamw_for_the_rest():
    with in_double():
        reference, port = pair()
        tx = optax.partition(
            {"matrices": gm.optim.muon(lr=0.01).for_model(port), "rest": gm.optim.adamw(lr=0.02)},
            lambda params: jax.tree.map(lambda p: "matrices" if p.ndim == 2 else "rest", params),
        )
        ours = nnx.Optimizer(port, optax.chain(optax.identity(), tx), wrt=nnx.Param)
        of_muon = [p for p in reference.parameters() if p.ndim == 2]
        muon = torch.optim.Muon(of_muon, lr=0.01)
        rest = torch.optim.AdamW([p for p in reference.parameters() if p.ndim != 2], lr=0.02)
        for number in range(3):
            step_torch(reference, muon, gradients(reference, number))
            rest.step()
            ours.update(port, in_layout(port, gradients(reference, number)))
        moved = gm.weights.named_arrays(port)
        np.testing.assert_allclose(moved["head.weight"], reference.head.weight.detach(), atol=1e-3)
        for name in ("conv.weight", "conv.bias"):
            np.testing.assert_allclose(moved[name], reference.get_parameter(name).detach(), rtol=1e-10)


def test_muon_refuses_what_is_no_matrix():
    with pytest.raises(ValueError, match=r"bias has shape \(3,\), and muon steps matrices"):
        gm.optim.muon().init({"bias": jnp.ones(3)})


def test_apply_if_finite_passes_over_a_step():
    params = {"weight": jnp.ones(2)}
    tx = optax.apply_if_finite(gm.optim.adam(lr=0.1), 3)
    state, step = tx.init(params), jax.jit(tx.update)
    updates, after = step({"weight": jnp.array([1.0, jnp.nan])}, state, params)
    assert not np.any(updates["weight"])
    assert bits(after.inner_state) == bits(state.inner_state)
    updates, after = step({"weight": jnp.ones(2)}, after, params)
    np.testing.assert_allclose(updates["weight"], -0.1, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_halves_stay_halves(optimizer, dtype):
    tx = of(optimizer)[-1].ours()
    params = {name: jnp.asarray(value, dtype) for name, value in START.items()}
    state = tx.init(params)
    updates, after = jax.jit(tx.update)(params, state, params)
    assert {u.dtype for u in jax.tree.leaves(updates)} == {jnp.dtype(dtype)}
    assert jax.tree.map(lambda leaf: leaf.aval, after) == jax.tree.map(lambda leaf: leaf.aval, state)
    kept = {leaf.dtype for leaf in jax.tree.leaves(state.slots) if leaf.shape}
    assert kept <= {jnp.dtype(dtype)}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_no_buffer_is_in_the_state_twice_so_that_it_may_be_donated(optimizer):
    for configuration in of(optimizer)[-1:]:
        tx = configuration.ours()
        params = {name: jnp.asarray(value, jnp.float32) for name, value in START.items()}
        for state in (tx.init(params), gm.optim.with_lr(tx.init(params), 0.5)):
            found = [leaf.unsafe_buffer_pointer() for leaf in jax.tree.leaves((params, state))]
            assert len(found) == len(set(found))
        step = jax.jit(lambda p, s, g, tx=tx: tx.update(g, s, p), donate_argnums=1)
        grads = jax.tree.map(jnp.copy, params)
        _, state = step(params, tx.init(params), grads)
        step(params, state, grads)


def test_shared_variables_empty_trees_copies_and_vmap():
    linear = gm.nn.Linear(2, 2, bias=False, rngs=nnx.Rngs(0))
    tied = nnx.Dict(first=linear, second=linear)
    tx = copy.deepcopy(gm.optim.adam(lr=0.1))
    assert tx.init(nnx.state(tied, nnx.Param)).step.shape == (1,)
    empty = tx.init({})
    assert tx.update({}, empty, {})[1].count == 1
    params = {"weight": jnp.arange(6.0).reshape(3, 2), "none": jnp.zeros((3, 0))}
    every = jax.vmap(lambda p: tx.update(p, tx.init(p), p)[0])(params)
    for index in range(3):
        one = jax.tree.map(lambda leaf, index=index: leaf[index], params)
        alone, _ = tx.update(one, tx.init(one), one)
        np.testing.assert_array_equal(every["weight"][index], alone["weight"])


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_pickled_one_steps_as_before(optimizer):
    rate, groups = gm.optim.lr_scheduler.StepLR(0.1, step_size=1), [gm.optim.Group("bias", lr=0.5)]
    layer = gm.nn.Linear(2, 3, bias=optimizer != "Muon", rngs=nnx.Rngs(0))
    tx = getattr(gm.optim, optimizer.lower())(lr=rate, groups=[] if optimizer == "Muon" else groups).for_model(layer)
    again = pickle.loads(pickle.dumps(tx))
    assert (repr(again), again.rule, again.layouts.keys()) == (repr(tx), tx.rule, tx.layouts.keys())
    params = nnx.as_pure(nnx.state(layer, nnx.Param))
    steps = [one.update(params, one.init(params), params) for one in (tx, again)]
    assert bits(steps[0]) == bits(steps[1])


def test_the_precision_of_a_step_does_not_hang_on_the_kind_of_number():
    params = {"weight": jnp.ones(3)}
    plain, numpys = (gm.optim.adam(betas=b) for b in [(0.9, 0.5), [np.float64(0.9), np.asarray(0.5)]])
    assert numpys.arguments["betas"] == (0.9, 0.5)
    (a, _), (b, _) = (tx.update(params, tx.init(params), params) for tx in (plain, numpys))
    np.testing.assert_array_equal(a["weight"], b["weight"])


def test_the_reference_of_these_tests_has_parameters_of_all_kinds():
    assert {p.ndim for p in Reference().parameters()} == {1, 2, 4}


CYCLES = {
    "OneCycleLR": lambda s, o, **options: s.OneCycleLR(o, 0.2, 8, **options),
    "CyclicLR": lambda s, o, **options: s.CyclicLR(o, 0.01, 0.1, 3, **options),
}


@pytest.mark.parametrize("name", CYCLES)
@pytest.mark.parametrize("optimizer", ["SGD", "Adam"])
def test_a_momentum_that_cycles_with_the_rate(name, optimizer):
    make, schedulers = CYCLES[name], gm.optim.lr_scheduler
    torchs = {"SGD": {"momentum": 0.5, "nesterov": True}, "Adam": {"betas": (0.5, 0.99)}}[optimizer]
    params = {name: torch.nn.Parameter(torch.tensor(value)) for name, value in START.items()}
    theirs = getattr(torch.optim, optimizer)(params.values(), lr=0.1, **torchs)
    scheduler = make(torch.optim.lr_scheduler, theirs)
    schedule = make(schedulers, 0.1)
    ours = {"momentum": schedule.momentum, "nesterov": True} if optimizer == "SGD" else {}
    ours = ours or {"betas": (schedule.momentum, 0.99)}
    with in_double():
        tx = getattr(gm.optim, optimizer.lower())(schedule, **ours)
        held = {name: jnp.asarray(value) for name, value in START.items()}
        state = tx.init(held)
        for number in range(6):
            for key, p in params.items():
                p.grad = torch.tensor(given(number)[key])
            theirs.step()
            scheduler.step()
            updates, state = tx.update(given(number), state, held)
            held = optax.apply_updates(held, updates)
        for key, p in params.items():
            np.testing.assert_allclose(held[key], p.detach(), rtol=1e-10)


@pytest.mark.parametrize("name", CYCLES)
def test_a_momentum_that_would_not_cycle_is_refused(name):
    schedulers, schedule = gm.optim.lr_scheduler, CYCLES[name](gm.optim.lr_scheduler, 0.1)
    for make, told in (
        (lambda: gm.optim.sgd(schedule, momentum=0.9), "momentum is 0.9; give momentum=schedule.momentum, or"),
        (lambda: gm.optim.adam(schedule), r"betas is \(0.9, 0.999\); give betas=\(schedule.momentum, beta2\), or"),
        (lambda: gm.optim.adagrad(schedule), "Adagrad has none; give the schedule cycle_momentum=False"),
        (lambda: gm.optim.sgd(0.1, groups=[gm.optim.Group("a", lr=schedule)]), "momentum is 0.0"),
        (
            lambda: gm.optim.sgd(schedulers.SequentialLR(0.1, [schedulers.StepLR(0.1, 3), schedule], [3])),
            f"lr is a {name} that cycles",
        ),
    ):
        with pytest.raises(ValueError, match=told):
            make()
    gm.optim.adagrad(CYCLES[name](schedulers, 0.1, cycle_momentum=False))
