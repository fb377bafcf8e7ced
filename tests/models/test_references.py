"""What the references claim of PyTorch's tracers on a CPU: which record them wrongly, which cannot, which can."""

import numpy as np
import pytest
import torch
from graphmode.models import zoo

OTHERS = {"vision", "huggingface", "pretrained"}  # whose inputs are large, or dicts
SMALL = [name for name in zoo.CASES if not OTHERS & set(zoo.load(name).tags) and name != "lstm"]


def tensors(make, seed=0):
    return tuple(torch.from_numpy(np.float32(x)) for x in make(np.random.default_rng(seed)))


def agree(got, wanted):
    got, wanted = (out if isinstance(out, tuple) else (out,) for out in (got, wanted))
    return all(torch.allclose(a, b, rtol=1e-4, atol=1e-5) for a, b in zip(got, wanted, strict=True))


@pytest.fixture(scope="module", params=SMALL)
def case(request):
    return zoo.load(request.param)


@pytest.mark.filterwarnings("ignore")
def test_scripts_are_right_or_said_to_be_impossible(case):
    for variant, make in case.references.items():
        torch.manual_seed(0)
        module = make().eval()
        if case.expectation("torch.script", variant):
            with pytest.raises(RuntimeError):
                torch.jit.script(module)
            continue
        script = torch.jit.script(module)
        for inputs in (case.inputs, *case.edge_inputs.values()):
            with torch.no_grad():
                assert agree(script(*tensors(inputs)), module(*tensors(inputs)))


@pytest.mark.filterwarnings("ignore")
def test_traces_are_right_or_said_to_be_wrong(case):
    for variant, make in case.references.items():
        torch.manual_seed(0)
        module = make().eval()
        trace = torch.jit.trace(module, tensors(case.inputs), check_trace=False)
        wrong = []
        for name, inputs in case.edge_inputs.items():
            with torch.no_grad():
                try:
                    right = agree(trace(*tensors(inputs)), module(*tensors(inputs)))
                except RuntimeError:
                    right = False
            wrong += [] if right else [name]
        assert bool(wrong) == bool(case.expectation("torch.trace", variant)), (variant, wrong)


@pytest.mark.filterwarnings("ignore")
def test_a_trace_keeps_one_branch():
    case = zoo.load("conditional_scale")
    module = case.reference()
    positive, negative = (tensors(case.edge_inputs[name]) for name in ("positive sum", "negative sum"))
    trace = torch.jit.trace(module, positive, check_trace=False)
    assert torch.equal(trace(*positive), module(*positive))
    assert torch.equal(trace(*negative), negative[0] * 2)
    assert torch.equal(module(*negative), negative[0] + 2)


def test_training_runs_under_no_grad_and_leaves_its_input_alone():
    case = zoo.load("double_sine_training")
    module = case.reference()
    (x0,) = tensors(case.inputs)
    before = x0.clone()
    free = module(x0)
    with torch.no_grad():
        bound = module(x0)
    assert agree(free, bound)
    assert torch.equal(x0, before)
    assert not any(out.requires_grad for out in free)
    assert free[1][-1] < free[1][0] / 10
