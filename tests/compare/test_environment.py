"""Where the numbers come from: what is told, what of it is compared, and that nothing is needed to tell it."""

import dataclasses
import os
import subprocess
import sys
import types
from dataclasses import replace

import pytest
from graphmode.compare.report.contents import contents
from graphmode.compare.report.records import Environment
from graphmode.compare.report.results import Results, ResultsError
from graphmode.compare.speed import machine, settings
from graphmode.compare.speed.environment import describe

TELLS = "from graphmode.compare.speed.settings import xla_options; print(xla_options('{}'))"


@pytest.fixture(scope="module")
def environment() -> Environment:
    return describe("cpu")


def results(environment: Environment) -> Results:
    return Results(created="2026-01-01", seed=0, quick=True, environment=environment)


def test_what_is_told(environment):
    facts = environment.facts
    assert f"{environment.threads} threads" in facts["cpu cores"]
    assert int(facts["flag torch.num_interop_threads"]) >= 1
    assert facts["flag xla_cpu_enable_fast_math"] == "false"
    assert "flag XLA_FLAGS" in facts  # its absence matters
    assert all(isinstance(value, str) for value in facts.values())


def test_it_is_the_same_when_asked_again(environment):
    assert describe("cpu").facts == environment.facts


def test_the_moment_is_kept_and_not_compared(environment):
    other = replace(environment, moment={"load average": "99 99 99"})
    assert not other.moment.keys() & other.facts.keys()
    assert Results.merged([results(environment), results(other)]).environment.moment == environment.moment
    slower = replace(environment, machine={**environment.machine, "cpu governor": "powersave"})
    assert "99 99 99" in str(contents(results(other)))
    with pytest.raises(ResultsError, match="powersave"):
        Results.merged([results(slower), results(environment)])


@pytest.mark.skipif(not hasattr(os, "getloadavg"), reason="this system has no load average")
def test_the_load_is_of_the_moment(environment):
    assert len(environment.moment["load average"].split()) == 3


def test_xla_flags_are_in_the_effective_options():
    told = [
        subprocess.run(
            [sys.executable, "-c", TELLS.format("cpu")],
            env={**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for flags in ("", "--xla_cpu_enable_fast_math=true")
    ]
    assert ["'xla_cpu_enable_fast_math': 'true'" in text for text in told] == [False, True]


def test_command_buffers_are_told_as_one_list():
    options = settings.xla_options("gpu")
    assert {"FUSION", "CUBLAS"} <= set(options["xla_gpu_enable_command_buffer"].split(","))
    assert options["xla_gpu_graph_min_graph_size"].isdigit()


def test_options_of_another_jaxlib(monkeypatch):
    import jax.extend.backend

    def gone(*args):
        raise AttributeError("no such thing")

    monkeypatch.setattr(jax.extend.backend, "get_compile_options", gone)
    assert settings.xla_options("cpu") == {}


def test_variables_that_are_set(monkeypatch):
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    monkeypatch.setenv("TORCHINDUCTOR_FREEZING", "1")
    told = settings.variables()
    assert (told["XLA_FLAGS"], told["TORCHINDUCTOR_FREEZING"]) == ("", "1")


def test_a_cache_that_processors_share_counts_once(monkeypatch, tmp_path):
    for cpu, shared in ((0, "0-1"), (1, "0-1"), (2, "2")):
        for index, level, size in ((0, 1, "32K"), (3, 3, "1024K")):
            folder = tmp_path / f"cpu{cpu}/cache/index{index}"
            folder.mkdir(parents=True)
            for name, value in (("level", level), ("size", size), ("shared_cpu_list", shared)):
                (folder / name).write_text(f"{value}\n")
    monkeypatch.setattr(machine, "CPUS", tmp_path)
    monkeypatch.setattr(machine, "processors", lambda: [0, 1, 2])
    assert machine.cache_bytes("cpu") == 2 * 1024 * 1024


def test_a_system_that_tells_nothing(monkeypatch, tmp_path):
    monkeypatch.setattr(machine, "CPUS", tmp_path)
    monkeypatch.setattr(machine, "_read", lambda path: "")
    assert machine.cache_bytes("cpu") == machine.USUAL_CACHE
    assert machine.available_bytes("cpu") == machine.USUAL_MEMORY
    assert machine.cpu_facts().keys() == {"cpu cores"}


@dataclasses.dataclass
class Smi:
    """A driver that knows of some fields, and refuses a query that names another."""

    knows: dict[str, str]
    queries: int = 0

    def __call__(self, command, **options):
        self.queries += 1
        fields = next(part for part in command if part.startswith("--query-gpu=")).partition("=")[2].split(",")
        known = all(field in self.knows for field in fields)
        line = ", ".join(self.knows[field] for field in fields) if known else "Field is not a valid field to query."
        return types.SimpleNamespace(stdout=line + "\n", returncode=0 if known else 2)


@pytest.mark.parametrize("knows_all", [True, False])
def test_what_the_driver_tells(monkeypatch, knows_all):
    fields = {"driver_version": "NVIDIA driver", "power.limit": "power limit", "mig.mode.current": "MIG"}
    smi = Smi(
        {"driver_version": "580.1", "power.limit": "700.00 W", **({"mig.mode.current": "[N/A]"} if knows_all else {})}
    )
    monkeypatch.setattr(machine.subprocess, "run", smi)
    assert machine.nvidia_smi(fields) == {"NVIDIA driver": "580.1", "power limit": "700.00 W"}
    assert smi.queries == (1 if knows_all else 4)


def test_no_driver_command(monkeypatch):
    def missing(*args, **options):
        raise FileNotFoundError("nvidia-smi")

    monkeypatch.setattr(machine.subprocess, "run", missing)
    assert machine.nvidia_smi(machine.NVIDIA_SMI) == {}


@pytest.mark.gpu
def test_what_is_told_of_a_gpu():
    facts = describe("gpu").facts
    assert {"GPU memory", "NVIDIA driver", "flag torch.cuda", "flag xla_gpu_enable_command_buffer"} <= facts.keys()
