"""A realistic run, made up: every status, both verdicts, wins and losses.

`python tests/compare/sample_results.py FOLDER` writes its pages.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from graphmode.compare.report.records import CaseInfo, Cell, Environment, Parity, Tensor
from graphmode.compare.report.results import Results

DTYPE = "float32"
TRACE = "torch.jit.trace records the branch of one input"
ROWS = {
    "torch.eager": 1.0,
    "torch.channels_last": 0.93,
    "torch.trace": 0.82,
    "torch.script": 0.85,
    "torch.compile": 0.61,
    "onnxruntime": 0.78,
    "jax.eager": 4.2,
    "jax.nnx_jit": 0.9,
    "jax.jit": 0.7,
    "jax.graphed": 0.66,
}
# Eager PyTorch's seconds a call, and the factor that JAX's rows take on top.
CASES = {
    "conditional_scale": (24e-6, 0.4, "a branch on the input becomes a select", 1_200),
    "positives_first": (61e-6, 0.55, "boolean indexing becomes a stable partition with a mask", 0),
    "lstm": (9.3e-3, 1.9, "a recurrence becomes one scan", 4_210_000),
    "resnet18": (31e-3, 1.02, "buffers updated in place become state that is returned", 11_689_512),
    "efficientnet_lite0": (22e-3, 0.8, "pretrained weights, photographs of known classes", 4_652_008),
}
NOT_RUN = {
    "torch.compile.reduce_overhead": ("unavailable", "needs a CUDA device; this run is on the cpu"),
    "torch.cudagraph": ("unavailable", "needs a CUDA device; this run is on the cpu"),
    "torch.aoti": ("timeout", "AOTInductor did not finish within 120 s"),
}


def environment() -> Environment:
    return Environment(
        device="cpu",
        device_name="AMD EPYC 7R13, 2 cores",
        cpu="AMD EPYC 7R13",
        threads=2,
        python="3.11.9",
        platform="Linux-6.1-x86_64",
        versions={"torch": "2.11.0", "jax": "0.10.2", "jaxlib": "0.10.2", "flax": "0.12.8", "onnxruntime": "1.24"},
        flags={"torch.set_num_threads": "2", "XLA_FLAGS": ""},
        revision="72b2b07",
    )


def timed(case: str, row: str, median: float, rng: np.random.Generator, drift: np.ndarray, **more) -> Cell:
    """An ok cell whose repeats scatter by 3% around `median`, on top of a drift that all rows of the repeat share."""
    samples = median * drift * rng.lognormal(sigma=0.03, size=len(drift))
    low, middle, high, latest = np.percentile(samples, (25, 50, 75, 95))
    fields = {
        "variant": "default",
        "mode": "inference",
        "device": "cpu",
        "dtype": DTYPE,
        "status": "ok",
        "calls_per_sample": max(1, round(0.02 / median)),
        "compile_s": 0.004 if row == "torch.eager" else 0.6 + 4 * rng.random(),
        "error_ratio": None if row == "torch.eager" else 0.8 + 0.4 * rng.random(),
        "equal": None if row == "torch.eager" else True,
    }
    return Cell(
        case=case,
        row=row,
        median_s=float(middle),
        iqr_s=float(high - low),
        p95_s=float(latest),
        samples_s=[float(s) for s in samples],
        **(fields | more),
    )


def cells(case: str, rng: np.random.Generator, repeats: int = 30) -> list[Cell]:
    eager, factor, _, _ = CASES[case]
    made = []
    for mode, times in (("inference", 1.0), ("forward_backward", 2.8)):
        drift = 1 + 0.05 * rng.random(repeats)
        for row, share in ROWS.items():
            jax = row.startswith("jax.")
            if row == "torch.trace" and case == "conditional_scale":
                seen = "output 0 differs by 0.83 of its scale for the input `negative`"
                made.append(_plain(case, row, mode, "wrong", seen, expected=TRACE))
                continue
            if row == "onnxruntime" and mode != "inference":
                made.append(_plain(case, row, mode, "unsupported", "ONNX Runtime here runs inference only"))
                continue
            if row == "torch.script" and case == "resnet18":
                made.append(_plain(case, row, mode, "failed", LONG_REASON, expected="takes **kwargs"))
                continue
            median = eager * times * share * (factor * (0.8 if mode == "forward_backward" else 1) if jax else 1)
            variants = ("where", "cond") if jax and case == "conditional_scale" else ("default",)
            for n, variant in enumerate(variants):
                noisy = case == "lstm" and row == "jax.jit"
                made.append(timed(case, row, median * (1 + n / 4), rng, drift, mode=mode, variant=variant, noisy=noisy))
        made += [_plain(case, row, mode, status, reason) for row, (status, reason) in NOT_RUN.items()]
    return made


LONG_REASON = (
    "\x1b[31mRuntimeError\x1b[0m: Compiled functions can't take variable number of arguments | or use keyword-only "
    'arguments with defaults:\n  File "model.py", line 41\n    def forward(self, x, **kwargs):\n'
    "                          ~~~~~~~ <--- HERE\n" + "  aten::_convolution_mode is the operator that follows\n" * 5
)


def _plain(case: str, row: str, mode: str, status: str, reason: str, **more) -> Cell:
    fields = {"variant": "default", "device": "cpu", "dtype": DTYPE} | more
    return Cell(case=case, row=row, mode=mode, status=status, reason=reason, **fields)


def tensor(name: str = "output[0]", **more) -> Tensor:
    fields = {
        "kind": "output",
        "mode": "inference",
        "equal": True,
        "precise": True,
        "error": 2.1e-16,
        "ratio": 0.97,
        "input": "inputs",
        "index": (0, 17),
        "port_value": "0.4375218",
        "reference_value": "0.4375219",
    } | more
    return Tensor(name=name, **fields)


def parity(case: str, variant: str = "default", **more) -> Parity:
    fields = {
        "side": "jax",
        "equal": True,
        "precise": True,
        "inputs": ["inputs", "batch of one", "zeros"],
        "tensors": [
            tensor(),
            tensor(
                "layer1.0.conv1.weight", kind="parameter_gradient", mode="forward_backward", error=4.4e-16, ratio=1.1
            ),
            tensor(
                "bn1.running_var",
                kind="buffer",
                mode="forward_backward",
                error=1e-16,
                ratio=None,
                note="not in float32",
            ),
        ],
        "duration_s": 6.4,
    } | more
    return Parity(case=case, variant=variant, **fields)


def sample_results(*, complete: bool = True, failing: bool = False) -> Results:
    """Five cases that pass, or with `failing` one port that does not and two cells that go wrong."""
    rng = np.random.default_rng(7)
    verdicts = [
        parity("conditional_scale", "where"),
        parity("conditional_scale", "cond"),
        parity("positives_first"),
        parity("positives_first", "argsort", side="torch"),
        parity("lstm", notes=["torch's two biases a gate are one here; their gradients are compared as a sum"]),
        parity("resnet18"),
        parity(
            "efficientnet_lite0",
            readings={"cat.jpg": "class 281, tabby, 0.61", "rocket.jpg": "class 657, missile, 0.88"},
            duration_s=81.0,
        ),
    ]
    everything = [cell for case in CASES for cell in cells(case, rng)]
    if failing:
        bad = tensor(equal=False, precise=False, error=0.031, ratio=None, port_value="nan", note="ratio is not finite")
        verdicts[5] = parity("resnet18", equal=False, precise=False, tensors=[bad, *verdicts[5].tensors])
        everything = [
            _plain(c.case, c.row, c.mode, "wrong", "output[0] differs by 0.031 of its scale", equal=False)
            if c.case == "resnet18" and c.framework == "jax"
            else c
            for c in everything
        ]
    return Results(
        created="2025-06-30T12:00:00Z",
        seed=0,
        quick=False,
        environment=environment(),
        complete=complete,
        duration_s=754.0,
        cases=[
            CaseInfo(name=name, summary=summary, inputs=f"float32 [8, {8 + len(name)}]", parameters=parameters)
            for name, (_, _, summary, parameters) in CASES.items()
        ],
        parity=verdicts,
        cells=everything,
    )


if __name__ == "__main__":
    from graphmode.compare.report import write_pages

    folder = Path(sys.argv[1])
    for name, results in {"passed": sample_results(), "failed": sample_results(complete=False, failing=True)}.items():
        for path in write_pages(results, folder / name):
            print(path)
