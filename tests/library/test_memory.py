"""Freed memory stays: a program that frees and allocates the same again has its pages already."""

import os
import subprocess
import sys

import pytest

from graphmode.memory import SETTINGS

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


def test_settings_of_the_user_stay():
    assert faults("keep", MALLOC_TRIM_THRESHOLD_="131072")[0] == "False"
