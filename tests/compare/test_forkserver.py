"""What a process for a row finds imported, and what of the server's environment it does not see."""

import importlib

import pytest
from graphmode.compare.speed import forkserver
from graphmode.compare.speed.forkserver import NVML, ForkServer

ERRAND = f"""
import os, sys, torch

class Report:
    def serve(self, connection):
        there = [name for name in {forkserver.COMPILERS} if name in sys.modules]
        connection.send((there, os.environ.get({NVML!r}), torch.cuda._is_in_bad_fork()))
"""


@pytest.mark.parametrize(("lost", "there"), [(False, list(forkserver.COMPILERS)), (True, [])])
def test_a_row_for_a_gpu_finds_the_compilers_unless_their_import_took_the_gpu(lost, there, tmp_path, monkeypatch):
    (tmp_path / "errand_of_a_row.py").write_text(ERRAND)
    monkeypatch.syspath_prepend(tmp_path)
    errand = importlib.import_module("errand_of_a_row").Report()
    begin = f"from {forkserver.__name__} import main"
    patched = f"import {forkserver.__name__} as f; f._cuda_is_lost = lambda: {lost}; {begin}"
    started = forkserver.subprocess.Popen

    def popen(command, **options):
        return started([part.replace(begin, patched) for part in command], **options)

    monkeypatch.delenv(NVML, raising=False)
    monkeypatch.setattr(forkserver.subprocess, "Popen", popen)
    server = ForkServer("gpu")
    try:
        child = server.start(errand)
        assert child.pid
        assert child.connection.recv() == (there, None, False)
        child.end()
    finally:
        server.close()
