"""The kernels in a profile that `jax.profiler` took: XLA:CPU's thunks, or a GPU's kernels, by their kind."""

from __future__ import annotations

import itertools
import re
import warnings
from collections import Counter
from collections.abc import Iterator
from typing import Any

from jax.profiler import ProfileData

_LIBRARIES = ("ynn", "xnn", "onednn", "cudnn")
_NUMBER = re.compile(r"(\.(\d+|clone|remat\d*))+$")


def in_profile(profile: ProfileData, device: str) -> tuple[Counter[str], float]:
    """How many kernels of each kind ran, and the share of them that CUDA graphs replayed."""
    with warnings.catch_warnings():
        # jaxlib makes a type at the first event, of which Python 3.12 warns: as an error that would end the process
        warnings.simplefilter("ignore", DeprecationWarning)
        return _in_profile(profile, device)


def _in_profile(profile: ProfileData, device: str) -> tuple[Counter[str], float]:
    if device == "cpu":
        return Counter(kind_of(name) for name in _thunks(profile)), 0.0
    kernels = list(_gpu_kernels(profile))
    counts = Counter(kind_of(str(stats["hlo_op"])) if "hlo_op" in stats else name for name, stats in kernels)
    captured = sum("cuda_graph_id" in stats or "cuda_graph_node_id" in stats for _, stats in kernels)
    return counts, captured / len(kernels) if kernels else 0.0


def kind_of(instruction: str) -> str:
    """`add_tanh_fusion.3` is a `fusion`, `wrapped_tanh` a `tanh`, `ynn_fusion.1` a call of a library, `ynn_fusion`.

    Args:
      instruction: the name of an instruction of optimised HLO.
    """
    stem = _NUMBER.sub("", instruction)
    if stem.endswith("fusion"):
        library = stem.partition("_")[0]
        return f"{library}_fusion" if library in _LIBRARIES else "fusion"
    return stem.removeprefix("wrapped_")


def _thunks(profile: ProfileData) -> Iterator[str]:
    """Those that run no others: a loop or a branch is what it runs, which the profile holds too."""
    for plane in profile.planes:
        if plane.name.startswith("/host:CPU"):
            for line in plane.lines:
                ran = sorted((e.start_ns, -e.end_ns, e.name) for e in line.events if _is_thunk(e))
                for (_, end, name), following in itertools.zip_longest(ran, ran[1:]):
                    if following is None or following[0] >= -end:
                        yield name


def _is_thunk(event: Any) -> bool:
    return any(name == "hlo_op" for name, _ in event.stats)


def _gpu_kernels(profile: ProfileData) -> Iterator[tuple[str, dict[str, Any]]]:
    for plane in profile.planes:
        if plane.name.startswith("/device:GPU"):
            for line in plane.lines:
                for event in line.events:
                    stats = dict(event.stats)
                    if "kernel_details" in stats:
                        yield event.name, stats
