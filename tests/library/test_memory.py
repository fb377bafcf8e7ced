"""Freed memory stays: a program that frees and allocates the same again has its pages already."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from graphmode.memory import SETTINGS

ASKED = Path("/sys/kernel/mm/transparent_hugepage/enabled")
PROGRAM = """
import resource
import sys

from graphmode.memory import keep_freed_memory

print(keep_freed_memory() if sys.argv[1] == "keep" else "as it is")
for _ in range(3):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    bytearray(b"x") * 80_000_000
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(what, **environment):
    clean = {name: value for name, value in os.environ.items() if name not in SETTINGS}
    finished = subprocess.run(
        [sys.executable, "-c", PROGRAM, what], capture_output=True, text=True, env={**clean, **environment}, check=True
    )
    said, *counts = finished.stdout.split("\n")[:-1]
    return said, [int(count) for count in counts]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="glibc's settings")
def test_pages_are_handed_out_once():
    said, counts = faults("keep")
    if said == "False":
        pytest.skip("the C library is not glibc")
    assert max(counts[1:]) < min(faults("not")[1][1:]) / 2


FLAGS = """
import ctypes

from graphmode.memory import keep_freed_memory

keep_freed_memory()
block = ctypes.create_string_buffer(80_000_000)
at = ctypes.addressof(block) + 40_000_000
holds = False
for line in open("/proc/self/smaps"):
    first, _, rest = line.partition(" ")
    if "-" in first:
        start, end = (int(part, 16) for part in first.split("-"))
        holds = start <= at < end
    elif first == "VmFlags:" and holds:
        print(rest)
"""


@pytest.mark.skipif(
    not ASKED.exists() or "[never]" in ASKED.read_text(), reason="this system has no large pages for who asks"
)
def test_large_pages_are_asked_for():
    clean = {name: value for name, value in os.environ.items() if name not in SETTINGS}
    finished = subprocess.run([sys.executable, "-c", FLAGS], capture_output=True, text=True, env=clean, check=True)
    assert "hg" in finished.stdout.split()


def test_settings_of_the_user_stay():
    assert faults("keep", MALLOC_TRIM_THRESHOLD_="131072")[0] == "False"
