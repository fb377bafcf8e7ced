"""Losses where PyTorch's own samples do not look: kinks, NaN, masks, deprecated arguments, bad input."""

import inspect
import math
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx
from torch.testing._internal.common_modules import ModuleErrorEnum

import graphmode.nn as ours
from graphmode.nn import functional as F
from graphmode.weights import load, to_state_dict

from .adapters import FUNCTION_ADAPTERS, PLAIN
from .adapters.base import FIRST
from .samples import FUNCTIONS, MODULES
from .trees import to_jax

INF, NAN = math.inf, math.nan
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")


def array(values):
    return np.array(values, np.float64)


def ints(values):
    return np.array(values, np.int64)


def theirs(name, args, kwargs):
    """Output and gradients of the floating arguments, of a random weighting of the output."""
    leaves = [torch.tensor(a).requires_grad_(a.dtype.kind == "f") for a in args]
    kwargs = {k: torch.tensor(v) if isinstance(v, np.ndarray) else v for k, v in kwargs.items()}
    wanted = [leaf for leaf in leaves if leaf.requires_grad and leaf.is_leaf]
    try:
        output = getattr(torch.nn.functional, name)(*leaves, **kwargs)
        gradients = torch.autograd.grad(output.sum(), wanted, allow_unused=True)
    except (RuntimeError, NotImplementedError):  # targets without a derivative
        leaves = [leaf.detach().requires_grad_(i == 0) for i, leaf in enumerate(leaves)]
        output = getattr(torch.nn.functional, name)(*leaves, **kwargs)
        gradients = torch.autograd.grad(output.sum(), leaves[:1])
    return output.detach().numpy(), [None if g is None else g.numpy() for g in gradients]


def mine(name, args, kwargs, compiled=False):
    floating = [i for i, a in enumerate(args) if a.dtype.kind == "f"]
    kwargs = {k: jnp.asarray(v) if isinstance(v, np.ndarray) else v for k, v in kwargs.items()}

    def run(*moved):
        full = [jnp.asarray(a) for a in args]
        for i, a in zip(floating, moved, strict=True):
            full[i] = a
        return getattr(F, name)(*full, **kwargs)

    moved = [jnp.asarray(args[i]) for i in floating]

    def both(*moved):
        output, pull = jax.vjp(run, *moved)
        return output, pull(jnp.ones_like(output))

    output, gradients = (jax.jit(both) if compiled else both)(*moved)
    return np.asarray(output), [np.asarray(g) for g in gradients]


def assert_same(got, wanted, told=""):
    np.testing.assert_allclose(got[0], wanted[0], rtol=1e-12, atol=1e-14, err_msg=f"{told} value")
    for i, (g, w) in enumerate(zip(got[1], wanted[1], strict=False)):
        if w is not None:
            np.testing.assert_allclose(g, w, rtol=1e-11, atol=1e-13, err_msg=f"{told} gradient {i}")


EDGES = array([NAN, 0.0, INF, -INF, 1.0, -1.0, 0.5])
ZEROS = np.zeros(7)
ROW = array([[1.0, 0.0, 2.0, 0.5]])
LOGITS = array([[-INF, 0.0, 1.0], [1.0, 1.0, -2.0], [3.0, 2.0, 0.0]])

# Kinks exactly at the kink, infinities and NaN, and what nothing is left of.
CORNERS = [
    ("l1_loss", (EDGES, ZEROS), {}),
    ("mse_loss", (EDGES, ZEROS), {}),
    ("smooth_l1_loss", (EDGES, ZEROS), {}),
    ("smooth_l1_loss", (EDGES, ZEROS), {"beta": 0.5}),
    ("smooth_l1_loss", (EDGES, ZEROS), {"beta": 0.0}),
    ("huber_loss", (EDGES, ZEROS), {}),
    ("huber_loss", (EDGES, ZEROS), {"delta": 0.5}),
    ("binary_cross_entropy", (array([0, 1, 0, 1, 0.5, 1e-50]), array([0, 0, 1, 1, 0.3, 1])), {}),
    ("binary_cross_entropy_with_logits", (EDGES[2:], array([1, 1, 1, 0, 0.5])), {}),
    (
        "binary_cross_entropy_with_logits",
        (array([0, 800, -800]), array([1, 0, 0.5])),
        {"pos_weight": array([2, 3, 0])},
    ),
    ("soft_margin_loss", (array([-1000, -100, 0, 1000]), array([1, 1, -1, 1])), {}),
    ("hinge_embedding_loss", (array([1, 1, 1, NAN, 2]), ints([-1, 1, 0, -1, -1])), {}),
    ("margin_ranking_loss", (array([1, 1, 0]), array([0.5, 1, 0]), array([1, 1, -1])), {"margin": 0.5}),
    ("kl_div", (array([-INF, -1, -2, -INF]), array([0, 0, -1, 1])), {}),
    ("kl_div", (array([-INF, -1, -2, -INF]), array([-INF, -INF, -1, 1])), {"log_target": True}),
    ("kl_div", (array([[-1.0, -2], [-3, 0]]), array([[0.2, 0.3], [0.5, 0]])), {"reduction": "batchmean"}),
    ("poisson_nll_loss", (array([0, 1, 2]), array([0, 1, 2])), {"full": True}),
    ("poisson_nll_loss", (array([0, 1, 2]), array([0, 1, 2])), {"log_input": False}),
    ("gaussian_nll_loss", (array([0, 1, 2]), array([0, 2, 2]), array([0, 1e-6, 3])), {}),
    ("gaussian_nll_loss", (array([[0, 1], [2, 3]]), array([[0, 2], [2, 2]]), array([0.3, 3])), {"full": True}),
    ("multi_margin_loss", (ROW, ints([0])), {}),
    ("multi_margin_loss", (ROW, ints([0])), {"p": 2, "margin": 0.5}),
    ("multi_margin_loss", (array([1, 0, 2, NAN]), ints([0])), {}),
    ("multi_margin_loss", (array([1, 0, 2]), ints(1)), {}),
    ("multilabel_margin_loss", (ROW, ints([[0, -1, 1, 1]])), {}),
    ("multilabel_margin_loss", (ROW, ints([[0, 0, 2, -1]])), {}),
    ("multilabel_margin_loss", (ROW[0], ints([-1, 0, 2, -1])), {}),
    ("multilabel_soft_margin_loss", (array([[0.0, 800], [-800, 3]]), array([[1.0, 0], [0, 1]])), {}),
    ("cosine_embedding_loss", (array([[1, 0], [0, 0], [1, 2]]), array([[0, 1], [0, 0], [1, 2]]), ints([-1, 1, 0])), {}),
    ("cosine_embedding_loss", (array([1, 2]), array([2, 1]), ints(-1)), {"margin": 0.8}),
    *(
        ("triplet_margin_loss", (array([[1, 1, 0]]), array([[1, 0, 0]]), array([[1, 1, 0]])), {"p": p, "eps": 0.0})
        for p in (0.5, 1, 1.5, 2, 3, INF)
    ),
    ("triplet_margin_loss", (array([[0, 0]]), array([[0, 1]]), array([[2, 0]])), {"eps": 0.0}),
    ("triplet_margin_loss", (array([0, 1]), array([0, -1]), array([2, 0])), {"margin": 9.0, "swap": True, "eps": 0.0}),
    ("nll_loss", (LOGITS, ints([-100, -100, -100])), {}),
    ("nll_loss", (LOGITS, ints([0, -100, 2])), {"weight": array([0, 1, 2])}),
    ("cross_entropy", (LOGITS[1:], ints([-100, -100])), {}),
    ("cross_entropy", (LOGITS[1:], ints([-100, -100])), {"label_smoothing": 0.1}),
    ("nll_loss", (LOGITS[1:], ints([0, 1])), {"weight": array([INF, 1, 2]), "ignore_index": 0}),
    ("cross_entropy", (LOGITS[1:], ints([0, 1])), {"weight": array([INF, 1, 2]), "ignore_index": 0}),
    ("cross_entropy", (np.zeros((2, 0)), ints([-100, -100])), {"weight": array([])}),
    ("cross_entropy", (np.zeros((2, 0)), ints([-100, -100])), {"label_smoothing": 0.1}),
    ("cross_entropy", (np.zeros((2, 0)), np.zeros((2, 0))), {"label_smoothing": 0.1, "reduction": "none"}),
    ("cross_entropy", (LOGITS, ints([0, 1, 2])), {}),
    ("cross_entropy", (LOGITS, ints([0, 1, 2])), {"weight": array([0, 1, 2])}),
    ("cross_entropy", (LOGITS, ints([1, 1, -100])), {"label_smoothing": 0.1}),
    ("cross_entropy", (LOGITS[1:], ints([0, 1])), {"label_smoothing": 0.1, "weight": array([0, 0, 1])}),
    ("cross_entropy", (LOGITS[1:], ints([0, 1])), {"label_smoothing": 1.0}),
    ("cross_entropy", (LOGITS, array([[0, 1, 0], [0.2, 0.3, 0.5], [1, 0, 0]])), {}),
    ("cross_entropy", (LOGITS[1:], array([[0.2, 0.3, 0.5], [1, 0, 0]])), {"label_smoothing": 0.2}),
    ("cross_entropy", (array([[-INF, -INF], [INF, 0], [NAN, 0]]), ints([0, 1, 1])), {}),
    ("cross_entropy", (LOGITS[1], ints(-100)), {}),
    ("cross_entropy", (array([[1e4, 0], [-1e4, 0]]), ints([1, 0])), {}),
    ("cross_entropy", (np.zeros((0, 3)), ints([])), {}),
    ("cross_entropy", (np.zeros((0, 3)), np.zeros((0, 3))), {}),
    ("cross_entropy", (np.zeros((0, 3)), ints([])), {"label_smoothing": 0.1}),
    ("mse_loss", (np.zeros(0), np.zeros(0)), {}),
    ("l1_loss", (array([1, 2, 3]), array([1, 1, 5])), {"weight": array([0, 2, 3])}),
    ("mse_loss", (array([1, 2, 3]), array([1, 1, 5])), {"weight": array([0, 2, 3])}),
    ("huber_loss", (array([1, 2, 3]), array([1, 1, 5])), {"weight": array([0, 2, 3])}),
    ("mse_loss", (array([[1, 2], [3, 4]]), array([1, 5])), {}),
]  # fmt: skip


@pytest.mark.parametrize("case", CORNERS, ids=lambda case: case[0])
def test_corners_are_pytorchs(case):
    name, args, kwargs = case
    for reduction in (kwargs.get("reduction"),) if "reduction" in kwargs else ("none", "mean"):
        told = {**kwargs, "reduction": reduction}
        with jax.enable_x64(True):
            got = mine(name, args, told, compiled=True)
        assert_same(got, theirs(name, args, told), f"{name} {told}")


def test_a_target_of_one_element_keeps_its_axis_where_pytorch_does():
    for name in ("nll_loss", "cross_entropy", "multi_margin_loss"):
        got = getattr(F, name)(jnp.arange(3.0), jnp.array([1]), reduction="none").shape
        wanted = getattr(torch.nn.functional, name)(torch.arange(3.0), torch.tensor([1]), reduction="none").shape
        assert got == tuple(wanted), name


@pytest.mark.parametrize("dtype", ["uint8", "bool", "int8"])
def test_a_soft_margin_takes_targets_of_a_dtype_without_a_sign(dtype):
    x, target = jnp.array([0.5, -2.0, 3.0]), jnp.array([1, 0, 1])
    wanted = jax.value_and_grad(F.soft_margin_loss)(x, target.astype(jnp.float32))
    for one, other in zip(jax.value_and_grad(F.soft_margin_loss)(x, target.astype(dtype)), wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


@pytest.mark.parametrize("size_average", [None, True, False])
@pytest.mark.parametrize("reduce", [None, True, False])
def test_deprecated_arguments_go_before_reduction(size_average, reduce):
    args = (array([1, 2]), array([3, 5]))
    given = {"size_average": size_average, "reduce": reduce, "reduction": "sum"}
    with jax.enable_x64(True):
        for name in ("l1_loss", "kl_div", "soft_margin_loss"):
            assert_same(mine(name, args, given), theirs(name, args, given), f"{name} {given}")
    assert (
        ours.MSELoss(size_average, reduce, "sum").reduction == torch.nn.MSELoss(size_average, reduce, "sum").reduction
    )
    if size_average is not None or reduce is not None:
        with pytest.warns(UserWarning, match="deprecated"):
            ours.TripletMarginLoss(size_average=size_average, reduce=reduce)


def test_shapes_that_are_broadcast_are_warned_of():
    for name in ("l1_loss", "mse_loss", "smooth_l1_loss", "huber_loss"):
        with pytest.warns(UserWarning, match="broadcast"):
            getattr(F, name)(jnp.ones((2, 3)), jnp.ones(3))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        F.mse_loss(jnp.ones(3), jnp.ones(3))


ELEMENTWISE = {
    "l1_loss": {},
    "mse_loss": {},
    "smooth_l1_loss": {"beta": 0.3},
    "huber_loss": {},
    "binary_cross_entropy": {},
    "binary_cross_entropy_with_logits": {},
    "soft_margin_loss": {},
    "kl_div": {},
    "poisson_nll_loss": {"full": True},
    "gaussian_nll_loss": {},
    "hinge_embedding_loss": {},
    "margin_ranking_loss": {},
}
SIGNS = {"soft_margin_loss", "hinge_embedding_loss", "margin_ranking_loss"}


WEIGHTED = [name for name in ELEMENTWISE if "weight" in inspect.signature(getattr(F, name)).parameters]


@pytest.mark.parametrize("reduction", ["mean", "none"])
@pytest.mark.parametrize(
    ("name", "weighted"), [*((name, False) for name in ELEMENTWISE), *((name, True) for name in WEIGHTED)]
)
def test_masked_elements_are_as_if_they_were_not_there(name, reduction, weighted):
    kwargs = dict(ELEMENTWISE[name], reduction=reduction)
    rng = np.random.default_rng(0)
    shape = (3, 4)
    mask = rng.random(shape) < 0.6
    args = [
        rng.uniform(0.1, 0.9, shape) for _ in range(3 if name in ("gaussian_nll_loss", "margin_ranking_loss") else 2)
    ]
    if name in SIGNS:
        args[-1] = rng.choice([-1.0, 1.0], shape)
    weight = rng.uniform(0.5, 2, shape) if weighted else None
    compact = [a[mask] for a in args]
    wanted = theirs(name, compact, {**kwargs, **({"weight": weight[mask]} if weighted else {})})
    poisoned = [np.where(mask, a, NAN) for a in args]
    with jax.enable_x64(True):
        given = {**kwargs, "mask": mask, **({"weight": np.where(mask, weight, NAN)} if weighted else {})}
        value, gradients = mine(name, poisoned, given, compiled=True)
    assert_same((value[mask] if reduction == "none" else value, [g[mask] for g in gradients]), wanted, name)
    for gradient in gradients:
        assert not gradient[~mask].any()
    if reduction == "none":
        assert not value[~mask].any()


def test_a_batchmean_counts_the_rows_where_something_counts():
    input, target = np.log([[0.5, 0.5], [0.9, 0.1], [0.2, 0.8]]), array([[0.3, 0.7], [NAN, 0.5], [NAN, NAN]])
    mask = np.array([[True, True], [False, True], [False, False]])
    with jax.enable_x64(True):
        value, _ = mine("kl_div", (input, target), {"reduction": "batchmean", "mask": mask})
        total, _ = mine("kl_div", (input, target), {"reduction": "sum", "mask": mask})
    np.testing.assert_allclose(value, total / 2, rtol=1e-12)
    wanted, _ = theirs("kl_div", (input[:1], target[:1]), {"reduction": "batchmean"})
    with jax.enable_x64(True):
        value, _ = mine("kl_div", (input, target), {"reduction": "batchmean", "mask": array([[1], [0], [0]]) > 0})
    np.testing.assert_allclose(value, wanted, rtol=1e-12)


ROWS = [
    ("nll_loss", "indices", {}),
    ("nll_loss", "indices", {"weight": array([0.5, 1, 2])}),
    ("cross_entropy", "indices", {}),
    ("cross_entropy", "indices", {"weight": array([0.5, 1, 2]), "label_smoothing": 0.1}),
    ("cross_entropy", "indices", {"ignore_index": 1}),
    ("cross_entropy", "probabilities", {"weight": array([0.5, 1, 2])}),
    ("multi_margin_loss", "indices", {"weight": array([0.5, 1, 2])}),
    ("multilabel_margin_loss", "labels", {}),
    ("multilabel_soft_margin_loss", "probabilities", {"weight": array([0.5, 1, 2])}),
    ("cosine_embedding_loss", "pair", {}),
    ("triplet_margin_loss", "triplet", {}),
    ("triplet_margin_with_distance_loss", "triplet", {"swap": True}),
]


@pytest.mark.parametrize("reduction", ["mean", "none"])
@pytest.mark.parametrize("case", ROWS, ids=lambda case: f"{case[0]}-{case[1]}")
def test_masked_rows_are_as_if_they_were_not_there(case, reduction):
    name, kind, kwargs = case
    rng = np.random.default_rng(1)
    input, other = rng.standard_normal((6, 3)), rng.standard_normal((6, 3))
    mask = np.array([True, False, True, True, False, True])
    indices = ints([0, 7, 2, 1, -9, 0])  # out of range where they are masked
    rest = {
        "indices": [indices],
        "probabilities": [rng.dirichlet(np.ones(3), 6)],
        "labels": [np.stack([indices, ints([2, 0, -1, 2, 1, -1]), np.full(6, -1)], 1)],
        "pair": [other, rng.choice([-1, 1], 6)],
        "triplet": [other, rng.standard_normal((6, 3))],
    }[kind]
    args = [input, *rest]
    kwargs = {**kwargs, "reduction": reduction}
    wanted = theirs(name, [a[mask] for a in args], kwargs)
    hidden = [np.where(mask.reshape(-1, *[1] * (a.ndim - 1)), a, NAN) if a.dtype.kind == "f" else a for a in args]
    with jax.enable_x64(True):
        value, gradients = mine(name, hidden, {**kwargs, "mask": mask}, compiled=True)
        getattr(F, name)(*map(jnp.asarray, hidden), **kwargs, mask=jnp.asarray(mask))  # nothing is out of range
    assert_same((value[mask] if reduction == "none" else value, [g[mask] for g in gradients]), wanted, name)
    for gradient in gradients:
        assert not gradient[~mask].any()


def test_a_mask_of_pixels_fits_both_layouts():
    rng = np.random.default_rng(2)
    logits, target = rng.standard_normal((2, 4, 5, 3)), rng.integers(0, 3, (2, 4, 5))
    mask = rng.random((2, 4, 5)) < 0.5
    wanted, _ = theirs("cross_entropy", (logits[mask], target[mask]), {})
    with jax.enable_x64(True):
        last = F.cross_entropy(jnp.asarray(logits), target, mask=jnp.asarray(mask))
        first = F.cross_entropy(jnp.moveaxis(logits, -1, 1), target, mask=jnp.asarray(mask), data_format="NCHW")
    np.testing.assert_allclose([last, first], [wanted, wanted], rtol=1e-12)


def test_bad_masks_are_refused():
    with pytest.raises(TypeError, match="mask is int32"):
        F.mse_loss(jnp.ones(3), jnp.ones(3), mask=jnp.ones(3, jnp.int32))
    with pytest.raises(ValueError, match="mask has shape"):
        F.mse_loss(jnp.ones(3), jnp.ones(3), mask=jnp.ones((2, 3), bool))
    with pytest.raises(ValueError, match="mask has shape"):
        ours.CrossEntropyLoss()(jnp.ones((2, 3)), jnp.array([0, 1]), mask=jnp.ones((2, 3), bool))


OUT_OF_RANGE = [
    ("nll_loss", [[0.0, 1.0]], [2]),
    ("cross_entropy", [[0.0, 1.0]], [-1]),
    ("multi_margin_loss", [[0.0, 1.0]], [5]),
    ("multilabel_margin_loss", [[0.0, 1.0]], [[0, 3]]),
    ("binary_cross_entropy", [0.5, 1.5], [1.0, 1.0]),
    ("gaussian_nll_loss", [0.5], [1.0], [-1.0]),
]


@pytest.mark.parametrize("case", OUT_OF_RANGE, ids=lambda case: case[0])
def test_values_out_of_range_raise_outside_a_graph_and_give_nan_inside(case):
    name, *args = case
    args = [jnp.asarray(a) for a in args]
    with pytest.raises(ValueError, match="holds"):
        getattr(F, name)(*args)
    value, gradient = jax.jit(jax.value_and_grad(getattr(F, name)))(*args)
    assert np.isnan(value)
    assert np.isnan(gradient).any()


LOSS_FUNCTIONS = [
    n for n, info in FUNCTIONS.items() if info.error_inputs_func and info.name.split(".")[-1] in F._loss.__all__
]
LOSS_CLASSES = [n for n, info in MODULES.items() if info.module_error_inputs_func and n in ours._loss.__all__]


@pytest.mark.parametrize("name", LOSS_FUNCTIONS)
def test_what_pytorchs_functions_refuse_is_refused(name):
    info = FUNCTIONS[name]
    subject = info.name.removeprefix("nn.functional.")
    adapter = FUNCTION_ADAPTERS.get(subject, PLAIN)
    layout = FIRST if adapter.layouts else None

    def call(one):
        args, kwargs = to_jax(((one.input, *one.args), dict(one.kwargs)), "float32")
        called, keywords = adapter.inputs(args, kwargs, layout)
        getattr(F, subject)(*called, **keywords, **({"data_format": layout} if layout else {}))

    for case in info.error_inputs_func(info, "cpu"):
        with pytest.raises((ValueError, TypeError)):
            call(case.sample_input)


@pytest.mark.parametrize("name", LOSS_CLASSES)
def test_what_pytorchs_layers_refuse_is_refused(name):
    info = MODULES[name]

    def build(one):
        args, kwargs = to_jax((one.args, one.kwargs), "float32")
        kwargs = {k: v for k, v in kwargs.items() if k not in ("device", "dtype")}
        if "rngs" in inspect.signature(getattr(ours, name)).parameters:
            kwargs["rngs"] = nnx.Rngs(0)
        return getattr(ours, name)(*args, **kwargs)

    def run(one):
        args, kwargs = to_jax((one.forward_input.args, one.forward_input.kwargs), "float32")
        build(one.constructor_input)(*args, **kwargs)

    for case in info.module_error_inputs_func(
        info, device="cpu", dtype=torch.float32, requires_grad=False, training=False
    ):
        one = case.module_error_input
        with pytest.raises((ValueError, TypeError)):
            build(one.constructor_input) if case.error_on == ModuleErrorEnum.CONSTRUCTION_ERROR else run(one)


BAD = [
    (lambda: ours.L1Loss(reduction="avg"), "reduction is 'avg'"),
    (lambda: ours.MSELoss(reduction="batchmean"), "reduction is 'batchmean'"),
    (lambda: ours.SmoothL1Loss(beta=-1.0), "beta is -1.0"),
    (lambda: ours.HuberLoss(delta=0.0), "delta is 0.0"),
    (lambda: ours.HuberLoss(delta="1"), "delta is '1'"),
    (lambda: ours.CrossEntropyLoss(label_smoothing=2.0), "label_smoothing is 2.0"),
    (lambda: ours.CrossEntropyLoss(data_format="NWHC"), "data_format is 'NWHC'"),
    (lambda: ours.MultiMarginLoss(p=3), "p is 3"),
    (lambda: ours.TripletMarginLoss(margin=0.0), "margin is 0.0"),
    (lambda: ours.TripletMarginWithDistanceLoss(margin=-1.0), "margin is -1.0"),
    (lambda: ours.CTCLoss(blank=-1), "blank is -1"),
    (lambda: ours.CrossEntropyLoss()(jnp.ones((2, 3)), jnp.ones(2)), "class indices"),
    (lambda: ours.CrossEntropyLoss()(jnp.ones((2, 3, 4)), jnp.ones((2, 4), int)), "set data_format"),
    (lambda: ours.BCELoss()(jnp.ones(2), jnp.ones(2, int)), "cast them to one dtype"),
    (lambda: ours.BCEWithLogitsLoss()(jnp.ones(2), jnp.ones(3)), "give them one shape"),
    (lambda: F.kl_div(jnp.ones(2), jnp.ones(2, int)), "target is int32"),
    (lambda: F.mse_loss(jnp.ones(2), jnp.ones(2), weight=jnp.ones(3)), "weight has shape"),
    (lambda: F.nll_loss(jnp.ones((2, 3)), jnp.ones(2, int), jnp.ones(3, jnp.bfloat16)), "weight is bfloat16"),
    (lambda: ours.LinearCrossEntropyOptions(chunking_method="rows"), "chunking_method"),
    (lambda: ours.LinearCrossEntropyOptions(acc_policy="best"), "acc_policy"),
    (lambda: ours.LinearCrossEntropyOptions(batch_chunk_size=0), "batch_chunk_size"),
    (lambda: ours.LinearCrossEntropyOptions(acc_dtype=jnp.int32), "acc_dtype"),
    (lambda: ours.AdaptiveLogSoftmaxWithLoss(4, 10, [], rngs=nnx.Rngs(0)), "cutoffs"),
    (lambda: ours.AdaptiveLogSoftmaxWithLoss(4, 10, [5, 3], rngs=nnx.Rngs(0)), "cutoffs"),
    (lambda: ours.AdaptiveLogSoftmaxWithLoss(4, 10, [10], rngs=nnx.Rngs(0)), "cutoffs"),
]


@pytest.mark.parametrize("case", BAD, ids=lambda case: case[1])
def test_bad_arguments_are_told(case):
    with pytest.raises((ValueError, TypeError), match=case[1]):
        case[0]()


HALVES = [
    ("l1_loss", 2), ("mse_loss", 2), ("huber_loss", 2), ("smooth_l1_loss", 2), ("binary_cross_entropy_with_logits", 2),
    ("kl_div", 2), ("poisson_nll_loss", 2), ("gaussian_nll_loss", 3), ("cosine_embedding_loss", 3),
    ("triplet_margin_loss", 3), ("cross_entropy", 2),
]  # fmt: skip


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("case", HALVES, ids=lambda case: case[0])
def test_halves_are_summed_in_float32_and_keep_their_dtype(case, dtype):
    name, count = case
    rng = np.random.default_rng(3)
    args = [rng.uniform(0.1, 0.9, (64, 33)) for _ in range(count)]
    if name == "cosine_embedding_loss":
        args[-1] = np.ones(64)
    given = [torch.tensor(a).to(getattr(torch, dtype)) for a in args]
    exact = getattr(torch.nn.functional, name)(*(a.double() for a in given))
    usual = getattr(torch.nn.functional, name)(*given)
    port = getattr(F, name)(*(jnp.asarray(a.float().numpy(), dtype) for a in given))
    assert port.dtype == dtype
    half_ulp = float(jnp.finfo(dtype).eps) / 2 * abs(exact)
    assert abs(float(port) - exact) <= 1.01 * max(abs(usual.double() - exact), half_ulp), (port, usual, exact)


def test_a_target_gives_binary_cross_entropy_with_logits_its_dtype():
    for target in ("float32", "bfloat16", "float16"):
        got = F.binary_cross_entropy_with_logits(jnp.ones(2, jnp.bfloat16), jnp.ones(2, target))
        wanted = torch.nn.functional.binary_cross_entropy_with_logits(
            torch.ones(2, dtype=torch.bfloat16), torch.ones(2, dtype=getattr(torch, target))
        )
        assert str(got.dtype) == str(wanted.dtype).removeprefix("torch.")


def test_losses_are_in_float32_under_autocast():
    logits = jnp.ones((2, 3), jnp.bfloat16)
    with ours.autocast(jnp.bfloat16):
        assert F.nll_loss(logits, jnp.array([0, 1])).dtype == jnp.float32
        assert F.cross_entropy(logits, jnp.array([0, 1])).dtype == jnp.float32
        assert F.mse_loss(logits, logits).dtype == jnp.float32
        with pytest.raises(TypeError, match="not safe"):
            F.binary_cross_entropy(logits, logits)
        weight = jnp.ones((3, 5))
        product = jax.make_jaxpr(lambda x: F.linear_cross_entropy(x, weight, jnp.array([0, 1])))(jnp.ones((2, 3)))
    assert "bf16[2,5] = dot_general" in str(product)


def test_losses_are_mapped_and_compiled():
    rng = np.random.default_rng(4)
    logits, target = jnp.asarray(rng.standard_normal((5, 4, 3)), jnp.float32), jnp.asarray(rng.integers(0, 3, (5, 4)))
    loss = ours.CrossEntropyLoss(jnp.array([1.0, 2.0, 3.0]), label_smoothing=0.1)
    mapped = jax.jit(jax.vmap(lambda x, t: loss(x, t)))(logits, target)
    np.testing.assert_allclose(mapped, [loss(x, t) for x, t in zip(logits, target, strict=True)], rtol=1e-6)
    _, tangent = jax.jvp(lambda x: loss(x, target[0]), (logits[0],), (jnp.ones_like(logits[0]),))
    np.testing.assert_allclose(tangent, 0, atol=1e-6)  # softmax knows no common shift


def test_weights_are_buffers():
    loss = ours.BCEWithLogitsLoss(jnp.ones(3), pos_weight=jnp.full(3, 2.0))
    reference = torch.nn.BCEWithLogitsLoss(torch.arange(3.0), pos_weight=torch.ones(3))
    assert not jax.tree.leaves(nnx.state(loss, nnx.Param))
    load(loss, reference.state_dict())
    assert list(loss.weight[...]) == [0, 1, 2]
    assert {k: v.tolist() for k, v in to_state_dict(loss).items()} == {
        k: v.tolist() for k, v in reference.state_dict().items()
    }
    assert not to_state_dict(ours.CrossEntropyLoss(), framework="numpy")


def test_nll_loss_2d_is_nll_loss_with_a_warning():
    with pytest.warns(FutureWarning, match="NLLLoss2d is deprecated"):
        loss = ours.NLLLoss2d(reduction="sum", data_format="NCHW")
    log_probs = -jnp.arange(24.0).reshape(2, 3, 2, 2)
    target = jnp.array([[[0, 1], [2, 0]], [[1, 1], [0, 2]]])
    wanted = torch.nn.NLLLoss(reduction="sum")(torch.tensor(np.array(log_probs)), torch.tensor(np.array(target)).long())
    assert float(loss(log_probs, target)) == float(wanted)


def test_triplets_take_any_distance():
    class Distance(nnx.Module):
        def __init__(self):
            self.scale = nnx.Param(jnp.array(2.0))

        def __call__(self, a, b):
            return self.scale[...] * jnp.abs(a - b).sum(-1)

    loss = ours.TripletMarginWithDistanceLoss(distance_function=Distance(), margin=0.5, swap=True)
    rng = np.random.default_rng(5)
    args = [rng.standard_normal((4, 3)).astype(np.float32) for _ in range(3)]
    reference = torch.nn.TripletMarginWithDistanceLoss(
        distance_function=lambda a, b: 2 * (a - b).abs().sum(-1), margin=0.5, swap=True
    )
    np.testing.assert_allclose(loss(*map(jnp.asarray, args)), reference(*map(torch.tensor, args)).numpy(), rtol=1e-6)
    assert len(jax.tree.leaves(nnx.state(loss, nnx.Param))) == 1
    default = ours.TripletMarginWithDistanceLoss()(*map(jnp.asarray, args))
    wanted = torch.nn.TripletMarginWithDistanceLoss()(*map(torch.tensor, args))
    np.testing.assert_allclose(default, wanted.numpy(), rtol=1e-6)


@pytest.mark.parametrize("head_bias", [False, True])
def test_adaptive_softmax_is_pytorchs(head_bias):
    torch.manual_seed(0)
    reference = torch.nn.AdaptiveLogSoftmaxWithLoss(8, 12, [3, 7, 9], div_value=2.0, head_bias=head_bias).double()
    with jax.enable_x64(True):
        port = ours.AdaptiveLogSoftmaxWithLoss(
            8, 12, [3, 7, 9], 2.0, head_bias, param_dtype=jnp.float64, rngs=nnx.Rngs(0)
        )
        load(port, reference.state_dict())
        assert set(to_state_dict(port)) == set(reference.state_dict())
        input, target = (
            torch.randn(9, 8, dtype=torch.float64, requires_grad=True),
            torch.tensor([0, 2, 3, 6, 7, 8, 9, 11, 1]),
        )
        graphdef, state = nnx.split(port)

        def run(state, x, t):
            output, loss = nnx.merge(graphdef, state)(x, t)
            return loss + jnp.sin(output).sum(), (output, loss)

        x, t = jnp.asarray(input.detach().numpy()), jnp.asarray(target.numpy())
        (by_state, by_input), (output, loss) = jax.jit(jax.grad(run, (0, 1), has_aux=True))(state, x, t)
        wanted, mean = reference(input, target)
        (mean + wanted.sin().sum()).backward()
        np.testing.assert_allclose(output, wanted.detach(), rtol=1e-12)
        np.testing.assert_allclose(loss, mean.detach(), rtol=1e-12)
        np.testing.assert_allclose(by_input, input.grad, rtol=1e-10, atol=1e-14)
        gradients = to_state_dict(nnx.merge(graphdef, by_state))
        for name, parameter in reference.named_parameters():
            np.testing.assert_allclose(gradients[name], parameter.grad, rtol=1e-10, atol=1e-14, err_msg=name)
        np.testing.assert_allclose(port.log_prob(x), reference.log_prob(input).detach(), rtol=1e-12)
        assert list(port.predict(x)) == reference.predict(input).tolist()
        single, single_loss = port(x[0], t[0])
        assert single.shape == ()
        assert float(single_loss) == pytest.approx(-float(output[0]), abs=1e-12)
        with pytest.raises(ValueError, match="target holds 12"):
            port(x, t + 1)
        assert np.isnan(jax.jit(port)(x, t + 1).loss)
        for bad in ((x, t[:3]), (x[0], t), (x, t[:, None])):
            with pytest.raises(ValueError, match="input has shape"):
                port(*bad)
        with pytest.raises(TypeError, match="class indices"):
            port(x, t.astype(float))


@pytest.mark.parametrize("reduction", ["mean", "none"])
@pytest.mark.parametrize("target_of", ["indices", "probabilities"])
def test_chunks_of_logits_give_the_same(reduction, target_of):
    rng = np.random.default_rng(6)
    with jax.enable_x64(True):
        x, w, b = (jnp.asarray(rng.standard_normal(s)) for s in ((13, 4), (4, 2, 9), (2, 9)))
        weight, mask = jnp.asarray(rng.random(9)), jnp.asarray(rng.random((13, 2)) < 0.7)
        t = jnp.asarray(rng.integers(0, 9, (13, 2)) if target_of == "indices" else rng.random((13, 2, 9)))
        cotangent = jnp.asarray(rng.standard_normal((13, 2) if reduction == "none" else ()))

        def run(options):
            def loss(x, w, b):
                return F.linear_cross_entropy(
                    x, w, t, linear_bias=b, weight=weight, reduction=reduction, options=options,
                    label_smoothing=0.1, mask=mask,
                )  # fmt: skip

            value, pull = jax.vjp(loss, x, w, b)
            return value, *pull(cotangent)

        whole = run(None)
        for options in ({"batch_chunk_size": 4}, {"chunking_method": "aspect_ratio"}, {}):
            for got, wanted in zip(run(ours.LinearCrossEntropyOptions(**options)), whole, strict=True):
                np.testing.assert_allclose(got, wanted, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("options", [None, ours.LinearCrossEntropyOptions(batch_chunk_size=2)])
def test_a_linear_layer_without_features_gives_every_class_the_same(options):
    found = F.linear_cross_entropy(jnp.zeros((3, 0)), jnp.zeros((0, 5)), jnp.arange(3), options=options)
    wanted = torch.nn.functional.linear_cross_entropy(torch.zeros(3, 0), torch.zeros(5, 0), torch.arange(3))
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_chunks_keep_the_logits_from_being_there_at_once():
    options = ours.LinearCrossEntropyOptions(batch_chunk_size=4)
    x, w, t = jnp.ones((16, 3)), jnp.ones((3, 70)), jnp.zeros(16, int)

    def traced(options):
        return str(
            jax.make_jaxpr(jax.grad(lambda x, w: F.linear_cross_entropy(x, w, t, options=options), (0, 1)))(x, w)
        )

    assert "16,70]" in traced(None)
    assert "16,70]" not in traced(options)
    assert "4,4,70]" not in traced(options)


def test_chunks_are_cut_as_pytorch_cuts_them():
    for sizes in ((64, 8, 100), (7, 16, 4), (100, 4, 1000), (1, 3, 3)):
        for given in (
            {"chunking_method": "aspect_ratio"},
            {"chunking_method": "aspect_ratio:4"},
            {"batch_chunk_size": 5},
            {},
        ):
            reference = torch.nn.LinearCrossEntropyOptions(**given)._adjust(*sizes, torch.float32)
            assert ours.LinearCrossEntropyOptions(**given).rows(*sizes) == reference.batch_chunk_size, (sizes, given)
    with pytest.raises(ValueError, match="give one of the two"):
        ours.LinearCrossEntropyOptions(batch_chunk_size=3, chunking_method="aspect_ratio").rows(64, 8, 100)


def test_a_halves_chunk_sums_gradients_in_float32():
    rng = np.random.default_rng(7)
    x, w = rng.standard_normal((256, 8)), rng.standard_normal((8, 16))
    t = jnp.asarray(rng.integers(0, 16, 256))
    options = ours.LinearCrossEntropyOptions(batch_chunk_size=1)
    x, w = jnp.asarray(x, jnp.bfloat16), jnp.asarray(w, jnp.bfloat16)

    def gradient(x, w, options):
        return jax.grad(lambda w: F.linear_cross_entropy(x, w, t, reduction="sum", options=options))(w)

    exact = np.asarray(gradient(x.astype(jnp.float32), w.astype(jnp.float32), None))
    whole, cut = (np.asarray(gradient(x, w, o), np.float32) for o in (None, options))
    assert np.abs(cut - exact).mean() <= 2 * np.abs(whole - exact).mean()


def test_planted_faults_are_seen():
    """The corners tell `jnp.abs`, a bound that halves its gradient and a smoothing without its weight apart."""

    def sees(fault, name, args, kwargs):
        with jax.enable_x64(True):
            leaves = [jnp.asarray(a) for a in args if a.dtype.kind == "f"]
            output, pull = jax.vjp(fault, *leaves)
            got = np.asarray(output), [np.asarray(g) for g in pull(jnp.ones_like(output))]
        with pytest.raises(AssertionError):
            assert_same(got, theirs(name, args, kwargs))

    def ranking(a, b, t):
        return jnp.maximum(-t * (a - b) + 0.5, 0)

    none = {"reduction": "none"}
    sees(lambda a, b: jnp.abs(a - b), "l1_loss", (array([0, 1]), array([0, 2])), none)
    args = (array([1, 1]), array([0.5, 1]), array([1, 1]))
    sees(ranking, "margin_ranking_loss", args, {"margin": 0.5, **none})
    target, weight = ints([1, 2]), array([1, 2, 3])
    sees(
        lambda x: F.cross_entropy(x, target, jnp.asarray(weight)),
        "cross_entropy", (LOGITS[1:], target), {"weight": weight, "label_smoothing": 1e-6},
    )  # fmt: skip


@pytest.mark.parametrize("name", ["smooth_l1_loss", "huber_loss"])
def test_second_derivatives_where_a_parabola_ends(name):
    values, bound = [-2.5, -2.0, -0.5, 0.0, 1.0, 2.0, 3.0], {"smooth_l1_loss": "beta", "huber_loss": "delta"}[name]
    x = torch.tensor(values, dtype=torch.float64, requires_grad=True)
    kwargs = {bound: 2.0, "reduction": "sum"}
    loss = getattr(torch.nn.functional, name)(x, torch.zeros_like(x), **kwargs)
    (first,) = torch.autograd.grad(loss, x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    with jax.enable_x64(True):
        mine = jax.vmap(jax.grad(jax.grad(lambda x: getattr(F, name)(x, jnp.zeros_like(x), **kwargs))))(
            jnp.array(values)
        )
    np.testing.assert_allclose(mine, second.numpy(), rtol=1e-12, atol=0)
