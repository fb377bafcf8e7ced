"""`use_wide_vectors`: XLA compiles for 512 bits, where it is called before JAX computes and the user chose nothing."""

import os
import subprocess
import sys

import pytest

from graphmode import vectors

PROGRAM = """
import sys

import jax
import jax.numpy as jnp

from graphmode.vectors import use_wide_vectors, vector_width

if sys.argv[1] == "late":
    jnp.ones(3).block_until_ready()
print(use_wide_vectors() if sys.argv[1] != "never" else "-")
jax.jit(jnp.tanh)(jnp.ones(8)).block_until_ready()
print(vector_width())
"""


def said(when, flags=""):
    environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu", "JAX_ENABLE_COMPILATION_CACHE": "0"}
    command = [sys.executable, "-c", PROGRAM, when]
    return subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout.split()


@pytest.mark.skipif(not vectors._has_avx512(), reason="the processors are not known to have AVX-512")
@pytest.mark.parametrize(("when", "width"), [("first", "512"), ("late", "256"), ("never", "256")])
def test_it_counts_from_before_jax_computes(when, width):
    assert said(when)[-1] == width


def test_a_width_of_the_user_stays():
    assert said("first", "--xla_cpu_prefer_vector_width=128") == ["False", "128"]


def test_compiled_code_is_for_them(tmp_path):
    said("first", f"--xla_dump_to={tmp_path}")
    code = "".join(path.read_text() for path in tmp_path.glob("*.ll"))
    if not code:
        pytest.skip("this jaxlib writes no LLVM code")
    wanted = 512 if vectors._has_avx512() else 256
    assert f'"prefer-vector-width"="{wanted}"' in code


@pytest.mark.parametrize(
    ("told", "wide"),
    [("flags\t\t: fpu avx2 avx512f avx512dq\n", True), ("flags\t\t: fpu avx2\n", False), ("Features: asimd\n", False)],
)
def test_only_where_processors_have_them(told, wide, tmp_path, monkeypatch):
    monkeypatch.setattr(vectors, "PROCESSORS", tmp_path / "cpuinfo")
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=false")
    vectors.PROCESSORS.write_text(told)
    assert vectors.use_wide_vectors() is wide
    assert os.environ["XLA_FLAGS"].split() == [
        "--xla_cpu_enable_fast_math=false",
        *(["--xla_cpu_prefer_vector_width=512"] if wide else []),
    ]


def test_where_nothing_tells_of_processors_it_stays(tmp_path, monkeypatch):
    monkeypatch.setattr(vectors, "PROCESSORS", tmp_path / "nothing")
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    assert not vectors.use_wide_vectors()
    assert "XLA_FLAGS" not in os.environ
