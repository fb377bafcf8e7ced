"""`dispatch_inline`: a call returns what is computed already, where it is called before JAX computes."""

import subprocess
import sys

import pytest

PROGRAM = """
import sys

import jax
import jax.numpy as jnp

from graphmode.dispatch import dispatch_inline, dispatches_inline

if sys.argv[1] == "late":
    jnp.ones(3).block_until_ready()
if sys.argv[1] != "never":
    dispatch_inline()
print(dispatches_inline())
"""


@pytest.mark.parametrize(("when", "inline"), [("first", "True"), ("late", "False"), ("never", "False")])
def test_calls_compute_in_the_calling_thread(when, inline):
    found = subprocess.run([sys.executable, "-c", PROGRAM, when], capture_output=True, text=True, check=True)
    assert found.stdout.split() == [inline]
