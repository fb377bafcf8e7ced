"""The machine that a run is on: processors, caches, memory, clocks, and the GPU as its driver tells of it."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Iterator
from pathlib import Path

from ..report.records.machine import LOAD

USUAL_CACHE = 32 * 2**20
USUAL_MEMORY = 4 * 2**30
CPUS = Path("/sys/devices/system/cpu")
NVIDIA_SMI = {
    "driver_version": "NVIDIA driver",
    "compute_cap": "compute capability",
    "power.limit": "power limit",
    "persistence_mode": "persistence mode",
    "clocks.max.sm": "SM clock at most",
    "clocks.max.memory": "memory clock at most",
    "clocks.applications.graphics": "application clock",
    "mig.mode.current": "MIG",
    "ecc.mode.current": "ECC",
}
NVIDIA_SMI_NOW = {"clocks.sm": "SM clock", "clocks.mem": "memory clock", "temperature.gpu": "GPU temperature"}


def processors() -> list[int]:
    """Those that this process may use."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))


def cpu_name() -> str:
    return _first_value("model name") or platform.processor() or platform.machine()


def cache_bytes(device: str) -> int:
    """All of the last cache before memory that the processors of this process, or the GPU, have."""
    if device == "gpu":
        import torch

        return torch.cuda.get_device_properties(0).L2_cache_size or USUAL_CACHE
    sizes: dict[str, int] = {}
    for number in processors():
        last = max((CPUS / f"cpu{number}/cache").glob("index*"), key=_level, default=None)
        if last is not None and (size := _read(last / "size")).endswith("K"):
            sizes[_read(last / "shared_cpu_list") or str(number)] = int(size[:-1]) * 1024
    return sum(sizes.values()) or USUAL_CACHE


def available_bytes(device: str) -> int:
    """Memory that is free now."""
    if device == "gpu":
        import torch

        return torch.cuda.mem_get_info()[0]
    return _memory("MemAvailable") or USUAL_MEMORY


def cpu_facts() -> dict[str, str]:
    """What stays as it is from run to run."""
    facts = {"cpu cores": _cores()}
    if total := _memory("MemTotal"):
        facts["memory"] = f"{total / 2**30:.1f} GiB"
    if any((CPUS / "cpu0/cache").glob("index*")):
        facts["last cache"] = f"{cache_bytes('cpu') / 2**20:g} MiB"
    frequency = CPUS / "cpu0/cpufreq"
    if highest := _read(frequency / "cpuinfo_max_freq"):
        facts["cpu clock at most"] = f"{int(highest) / 1000:.0f} MHz"
    if governor := _read(frequency / "scaling_governor"):
        facts["cpu governor"] = governor
    return {name: value for name, value in facts.items() if value}


def cpu_moment() -> dict[str, str]:
    """What differs from moment to moment."""
    moment = {}
    if hasattr(os, "getloadavg"):
        moment[LOAD] = " ".join(f"{load:.2f}" for load in os.getloadavg())
    if clocks := [float(value) for value in _values("cpu MHz")]:
        moment["cpu clock"] = f"{min(clocks):.0f} to {max(clocks):.0f} MHz"
    if free := _memory("MemAvailable"):
        moment["memory available"] = f"{free / 2**30:.1f} GiB"
    return moment


def gpu_facts() -> dict[str, str]:
    import torch

    properties = torch.cuda.get_device_properties(0)
    return {
        "GPU memory": f"{properties.total_memory / 2**30:.1f} GiB",
        "GPU multiprocessors": str(properties.multi_processor_count),
        **nvidia_smi(NVIDIA_SMI, _gpu_in_use()),
    }


def gpu_moment() -> dict[str, str]:
    return nvidia_smi(NVIDIA_SMI_NOW, _gpu_in_use())


def _gpu_in_use() -> str:
    """As the driver names PyTorch's first, which need not be the driver's first."""
    import torch

    uuid = getattr(torch.cuda.get_device_properties(0), "uuid", None)
    return f"GPU-{uuid}" if uuid else "0"


def nvidia_smi(fields: dict[str, str], gpu: str = "0") -> dict[str, str]:
    """What the driver says of a GPU, by our names, of the `fields` that it knows; empty where it is not there."""
    found = {}
    for field, value in _answers(gpu, list(fields)):
        if value and not value.startswith("["):  # "[N/A]", "[Not Supported]"
            found[fields[field]] = value
    return found


def _answers(index: str, fields: list[str]) -> Iterator[tuple[str, str]]:
    """All at once, or one by one where an older driver does not know one of them."""
    line = _query(index, ",".join(fields))
    if line is not None:
        yield from zip(fields, [value.strip() for value in line.split(",")], strict=False)
    elif len(fields) > 1:
        for field in fields:
            yield from _answers(index, [field])


def _query(index: str, fields: str) -> str | None:
    command = ["nvidia-smi", f"--id={index}", f"--query-gpu={fields}", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else None


def _cores() -> str:
    """Physical cores, and the threads of this process on them."""
    siblings = {_read(CPUS / f"cpu{n}/topology/core_cpus_list") or str(n) for n in processors()}
    return f"{len(siblings)} physical, {len(processors())} threads"


def _level(index: Path) -> int:
    return int(_read(index / "level") or 0)


def _memory(name: str) -> int:
    """Bytes, 0 where the system does not tell."""
    for line in _read(Path("/proc/meminfo")).splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    return 0


def _first_value(name: str) -> str:
    return next(_values(name), "")


def _values(name: str) -> Iterator[str]:
    for line in _read(Path("/proc/cpuinfo")).splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            yield value.strip()


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
