"""What this machine can do at best: bandwidth of memory, peak of a matrix product, and what an empty launch takes.

A step cannot be faster than its least work over these. Each is the best that either framework reaches in any of several
interleaved repeats, every repeat waited for, all processors of the run in use.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
import torch

from ..report.records import Floors
from .environment import set_up_threads
from .launch_floors import launches
from .machine import available_bytes, cache_bytes
from .waiting import wait_for

PRODUCT_DTYPES = {"float32": "float32", "bfloat16": "bfloat16", "float64": "float64", "tf32": "float32"}
CACHES = 4  # how many times its size leaves a cache no use
LEAST_ARRAY = 32 * 2**20
MOST_OF_MEMORY = 1 / 16  # for one array
PRODUCT_SIZES = {"cpu": (512, 1024, 2048, 4096), "gpu": (2048, 4096, 8192)}
RANDOM_ROWS = 256  # again and again: to draw all of a large matrix takes seconds
LONGEST_PRODUCT_S = 0.12
SHORTEST_SAMPLE_S = 1e-3
REPEATS, FEWEST_REPEATS = 9, 3
BUDGET_S = {"memory": 0.7, "cache": 0.1, "product": 0.5, "launch": 0.3}  # after the first three repeats


@dataclass
class Probe:
    """One thing to time: `call()` does `amount` (bytes, operations, launches) and waits for its end."""

    call: Callable[[], object]
    amount: float
    name: str = ""
    calls: int = 1
    samples: list[float] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """Of a call, in the shortest sample: whatever else the machine does only adds to it."""
        return min(self.samples)


def measure_floors(device: str, dtypes: Sequence[str] = ("float32",)) -> Floors:
    """Measures in this process, which should do nothing else; within 4 seconds on two processors.

    Args:
      device: `"cpu"` or `"gpu"`.
      dtypes: of the products: `"float32"`, `"bfloat16"`, `"float64"`; on a GPU also `"tf32"`, float32 arrays whose
        products may be TF32, where `"float32"` is strict.

    Returns:
      `bytes_per_s` for what no cache holds, and `cache_bytes_per_s` for what fits into the last one, whose size is
      `cache_bytes`: bytes read plus bytes written. `launch_s` by name.

    Raises:
      ValueError: for a dtype that is none of these.
    """
    for dtype in dtypes:
        if dtype not in PRODUCT_DTYPES or (dtype == "tf32" and device == "cpu"):
            wanted = [name for name in PRODUCT_DTYPES if device == "gpu" or name != "tf32"]
            raise ValueError(f"dtypes names {dtype!r} for device {device!r}; choose from {', '.join(wanted)}")
    set_up_threads()
    cache = cache_bytes(device)
    most = int(available_bytes(device) * MOST_OF_MEMORY)
    with jax.default_device(jax.devices(device)[0]):
        return Floors(
            bytes_per_s=_rate(_copies(device, min(most, max(LEAST_ARRAY, CACHES * cache))), BUDGET_S["memory"]),
            cache_bytes=float(cache),
            cache_bytes_per_s=_rate(
                [p for share in (8, 4) for p in _copies(device, cache // share)], BUDGET_S["cache"]
            ),
            flops_per_s={dtype: _rate(_products(device, dtype), BUDGET_S["product"]) for dtype in dtypes},
            launch_s=_launch_seconds(device),
        )


def _rate(probes: Iterable[Probe], budget_s: float) -> float:
    probes = list(probes)
    interleave(probes, budget_s)
    return max(probe.amount / probe.seconds for probe in probes)


def _launch_seconds(device: str) -> dict[str, float]:
    with contextlib.ExitStack() as stack:
        probes = [Probe(call, amount, name) for name, call, amount in launches(device, stack)]
        interleave(probes, BUDGET_S["launch"])
    return {probe.name: probe.seconds / probe.amount for probe in probes}


def interleave(probes: Sequence[Probe], budget_s: float) -> None:
    """Warms up, then fills `samples` in turn, for `budget_s` or `REPEATS`, and at least `FEWEST_REPEATS`."""
    for probe in probes:
        probe.call()
        fastest = _sample(probe)
        if fastest < SHORTEST_SAMPLE_S:
            fastest = min(fastest, _sample(probe))
        probe.calls = max(1, math.ceil(SHORTEST_SAMPLE_S / max(fastest, 1e-9)))
    start = time.perf_counter()
    for repeat in range(REPEATS):
        if repeat >= FEWEST_REPEATS and time.perf_counter() - start > budget_s:
            return
        for probe in probes:
            probe.samples.append(_sample(probe))


def _sample(probe: Probe) -> float:
    start = time.perf_counter()
    for _ in range(probe.calls):
        probe.call()
    return (time.perf_counter() - start) / probe.calls


def _copies(device: str, size: int) -> Iterator[Probe]:
    """From one array of `size` bytes to another, and each element of one rewritten in place.

    Where a processor first reads the line that it is about to write, as most do, only the latter moves no more bytes
    than are counted.
    """
    count = size // 4
    source = torch.ones(count, device=_torch_device(device))
    target = torch.zeros_like(source)
    array = [jnp.ones(count, jnp.float32)]
    add = jax.jit(lambda x: x + 1, donate_argnums=0)

    def in_jax() -> None:
        array[0] = add(array[0])
        ready(array[0])

    wait, ready = wait_for("torch", device), wait_for("jax", device)
    yield Probe(lambda: wait(target.copy_(source)), 2 * size, "torch copy")
    yield Probe(lambda: wait(target.add_(1)), 2 * size, "torch in place")
    yield Probe(in_jax, 2 * size, "jax in place")


def _products(device: str, dtype: str) -> Iterator[Probe]:
    """Square matrices, larger and larger until one product takes too long for what is left to learn."""
    rng = np.random.default_rng(0)
    wait, ready = wait_for("torch", device), wait_for("jax", device)
    precision = "tensorfloat32" if dtype == "tf32" else "highest"
    product = jax.jit(lambda x: jnp.matmul(x, x, precision=precision))
    too_long: set[str] = set()
    for size in PRODUCT_SIZES[device]:
        if len(too_long) == 2:
            return
        values = np.tile(rng.standard_normal((RANDOM_ROWS, size), np.float32), (size // RANDOM_ROWS, 1))
        with jax.enable_x64(dtype == "float64"):
            array = jnp.asarray(values, PRODUCT_DTYPES[dtype])
        matrix = torch.from_numpy(values).to(_torch_device(device), getattr(torch, PRODUCT_DTYPES[dtype]))
        target = torch.empty_like(matrix)

        def in_torch(matrix: torch.Tensor = matrix, target: torch.Tensor = target) -> None:
            with _tf32(dtype == "tf32"):
                wait(torch.mm(matrix, matrix, out=target))

        def in_jax(array: jax.Array = array) -> None:
            with jax.enable_x64(dtype == "float64"):
                ready(product(array))

        for name, call in (("torch", in_torch), ("jax", in_jax)):
            if name in too_long:
                continue
            call()
            start = time.perf_counter()
            call()
            if 8 * (time.perf_counter() - start) > LONGEST_PRODUCT_S:  # the next one, twice the size
                too_long.add(name)
            yield Probe(call, 2 * size**3, f"{name} {size}")


@contextlib.contextmanager
def _tf32(allowed: bool) -> Iterator[None]:
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = allowed
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def _torch_device(device: str) -> str:
    return "cuda" if device == "gpu" else "cpu"
