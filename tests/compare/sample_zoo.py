"""A run as large as a whole zoo's on a GPU, made up by a small model of launches and bandwidth; every field is filled.

`python tests/compare/sample_zoo.py FOLDER` writes its results and pages.
"""

from __future__ import annotations

import runpy
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
from graphmode.compare.report.records import CaseInfo, Cell, Cold, Floors, Launches, Memory, Work
from graphmode.compare.report.results import Results

SAMPLE = runpy.run_path(str(Path(__file__).with_name("sample_results.py")))
CASES = tuple(
    f"{kind}{size}"
    for kind in ("conv_net_", "transformer_", "recurrent_", "detector_", "router_", "decoder_")
    for size in ("tiny", "small", "base", "large")
)
MODES = {"inference": 1.0, "forward_backward": 3.0, "train_step": 3.4}
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128)
SWEPT = CASES[3::6]
FLOORS = Floors(
    bytes_per_s=4.3e12,
    flops_per_s={"float32": 5.2e13, "tf32": 3.9e14, "bfloat16": 7.9e14},
    cache_bytes=5e7,
    cache_bytes_per_s=9.1e12,
    launch_s={"empty kernel": 4.9e-6, "graph of 100 nodes": 6.1e-5, "empty jit": 1.6e-5, "empty scan step": 7.8e-6},
)
# Share of eager's kernels, share of them captured, seconds a launch, efficiency on the device, seconds to compile.
ROWS = {
    "torch.eager": (1.0, 0.0, 6e-6, 0.35, 0.05),
    "torch.channels_last": (1.0, 0.0, 6e-6, 0.4, 0.05),
    "torch.trace": (0.9, 0.0, 5e-6, 0.36, 0.4),
    "torch.script": (0.9, 0.0, 5e-6, 0.36, 0.8),
    "torch.compile": (0.35, 0.0, 7e-6, 0.6, 18.0),
    "torch.compile.reduce_overhead": (0.35, 0.97, 7e-6, 0.6, 21.0),
    "torch.cudagraph": (1.0, 1.0, 6e-6, 0.35, 0.6),
    "torch.graphed_callables": (1.0, 0.95, 6e-6, 0.35, 0.9),
    "torch.compile.cudagraph": (0.35, 1.0, 7e-6, 0.6, 20.0),
    "torch.aoti": (0.34, 0.0, 4e-6, 0.6, 42.0),
    "onnxruntime": (0.6, 0.0, 5e-6, 0.5, 3.0),
    "jax.eager": (1.4, 0.0, 4e-5, 0.3, 2.0),
    "jax.nnx_jit": (0.3, 0.9, 9e-5, 0.6, 7.0),
    "jax.jit": (0.3, 0.9, 9e-6, 0.6, 6.5),
    "jax.graphed": (0.3, 0.9, 5e-6, 0.6, 6.6),
    "jax.graphed.no_command_buffers": (0.3, 0.0, 5e-6, 0.6, 6.6),
    "jax.scan": (0.3, 0.9, 5e-6, 0.6, 7.1),
}


def zoo_results(seed: int = 11, *, every_dtype: bool = False) -> Results:
    rng = np.random.default_rng(seed)
    sample, cells, work, cases = SAMPLE["sample_results"](), [], [], []
    for index, case in enumerate(CASES):
        kernels, flops = int(rng.integers(20, 900)), 10 ** rng.uniform(7.5, 11.5)
        taste = {"jax": rng.lognormal(sigma=0.3), "torch": rng.lognormal(sigma=0.15)}
        dtypes = ("float32", "tf32", "bfloat16") if index % 6 == 0 or every_dtype else ("float32",)
        for dtype in dtypes:
            for mode, factor in MODES.items():
                job = _work(case, mode, dtype, flops * factor, None)
                work.append(job)
                cells += _group(job, int(kernels * factor), taste, rng)
        if case in SWEPT:
            for batch in BATCHES:
                job = _work(case, "inference", "float32", flops / 4 * batch, batch)
                work.append(job)
                cells += [c for c in _group(job, kernels, taste, rng) if c.row not in ("torch.script", "jax.eager")]
        cases.append(
            CaseInfo(name=case, summary=f"made up, {case}", inputs="float32 [8, 128]", parameters=kernels * 977)
        )
    device = {"device": "gpu", "device_name": "a made-up GPU", "cpu": "a made-up CPU", "threads": 16}
    return replace(
        sample,
        environment=replace(sample.environment, **device),
        cases=cases,
        parity=[SAMPLE["parity"](case) for case in CASES],
        cells=cells,
        floors=FLOORS,
        work=work,
    )


def _work(case: str, mode: str, dtype: str, flops: float, batch: int | None) -> Work:
    intensity = 3 + sum(map(ord, case)) % 60 * (batch or 8) / 8
    return Work(case=case, mode=mode, dtype=dtype, batch=batch, flops=flops, bytes=flops / intensity)


def _group(job: Work, kernels: int, taste: dict[str, float], rng: np.random.Generator) -> list[Cell]:
    drift = 1 + 0.02 * rng.random(40)
    return [_cell(job, row, kernels, taste, drift, rng) for row in ROWS]


def _cell(
    job: Work, row: str, kernels: int, taste: dict[str, float], drift: np.ndarray, rng: np.random.Generator
) -> Cell:
    share, captured, launch, efficiency, compile_s = ROWS[row]
    scope = {"variant": "default", "mode": job.mode, "device": "gpu", "dtype": job.dtype, "batch": job.batch}
    if row == "onnxruntime" and job.mode != "inference":
        reason = "ONNX Runtime here runs inference only"
        return Cell(case=job.case, row=row, status="unsupported", reason=reason, **scope)
    count = max(1, int(kernels * share))
    side = "jax" if row.startswith("jax.") else "torch"
    host = launch * count * (1 - captured) + 5e-6
    device = FLOORS.of(job) / efficiency * taste[side] + 1.5e-6 * count
    steps = 8 if row == "jax.scan" else 1
    median = max(host / steps, device)
    parts = rng.dirichlet((1, 4, 1, 12, 2)) * compile_s if side == "jax" else rng.dirichlet((8, 1, 1, 4, 2)) * compile_s
    cold = dict(zip(("build_s", "trace_s", "lower_s", "compile_s", "first_run_s"), map(float, parts), strict=True))
    if side == "jax":
        cold["build_s"] = None
    peak = int(job.bytes * rng.uniform(1.5, 4))
    return SAMPLE["timed"](
        job.case,
        row,
        median,
        rng,
        drift,
        **scope,
        compile_s=compile_s,
        steps_per_call=steps,
        enqueue_s=min(host / steps, median),
        steady_s=median * 0.97,
        cold=Cold(**cold, warm_start_s=compile_s / 4),
        memory=Memory(
            peak_bytes=peak,
            arguments_bytes=peak // 3 if side == "jax" else None,
            outputs_bytes=peak // 20 if side == "jax" else None,
            temporaries_bytes=peak // 2 if side == "jax" else None,
        ),
        launches=Launches(
            kernels=count,
            captured=captured,
            by_kind={"fusion": count // 2, "matrix product": count - count // 2} if share < 0.5 else {},
        ),
    )


if __name__ == "__main__":
    from graphmode.compare.report import write_pages

    folder = Path(sys.argv[1])
    made = zoo_results()
    for path in write_pages(made, folder):
        print(path)
    made.save(folder / "results.json")
