"""Certificates made from an examination, and held against a second one."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import jax.tree_util as jtu
import numpy as np

from ..case import Case, CaseError
from ..draw import input_name
from ..dtypes import matmul_precision
from ..report.certificates import CaseCertificate, Certificate, Verdict
from ..report.records import Parity

if TYPE_CHECKING:
    from .examination import Examination

NAMES = ("name", "summary", "tags", "reference", "model", "inputs", "edge_inputs", "sweep", "interpret", "patience")
MOVING = ("XLA_FLAGS", "NVIDIA_TF32_OVERRIDE", "CUBLAS_WORKSPACE_CONFIG", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass(frozen=True)
class Deviation:
    """One thing that a second run found other than the certificate says.

    Attributes:
      what: `weights fc.weight`, `input random 0`, `version jax`, `flag XLA_FLAGS`, `verdict port default` ...
      certified, found: both values, empty where one side has none.
    """

    what: str
    certified: str
    found: str

    @property
    def is_of_environment(self) -> bool:
        """Whether it is a version or a flag, with which all else may still hold."""
        return self.what.startswith(("version ", "flag ", "device"))

    def __str__(self) -> str:
        certified, found = (_short(text) or "nothing" for text in (self.certified, self.found))
        return f"{self.what}: {certified} in the certificate, {found} here"


def certify(exam: Examination, verdicts: Sequence[Parity]) -> CaseCertificate:
    """What was found of one case in one dtype."""
    return CaseCertificate(
        case=exam.case.name,
        dtype=exam.dtype,
        seed=exam.seed,
        draws=sum(t.question.is_random and not t.question.is_timed for t in exam.truths) // len(exam.case.modes),
        weights={name: digest_of(array) for name, array in exam.judge.state_dict.items()},
        inputs=_inputs(exam),
        verdicts=[
            Verdict(
                side=p.side,
                variant=p.variant,
                equal=p.equal,
                precise=p.precise,
                tensors=len(p.tensors),
                failed=sum(not (t.equal and t.precise) for t in p.tensors),
                warnings=len(p.warnings),
                error=p.error,
            )
            for p in verdicts
        ],
        overrides=dict(_overrides(exam.case)),
    )


def certificate(cases: Iterable[CaseCertificate], device: str) -> Certificate:
    """With the versions and flags of this process."""
    return Certificate(
        device=device,
        device_name=_device_name(device),
        versions=_versions(),
        flags=_flags(device),
        cases=list(cases),
    )


def verify(certified: Certificate, case: Case) -> list[Deviation]:
    """Checks the case again as the certificate says it was, and gives what differs; nothing, where it holds.

    Raises:
      CaseError: where the certificate does not speak of the case, or the case cannot be compared.
    """
    from .check import check

    before = certified.of(case.name)
    if not before:
        known = ", ".join(dict.fromkeys(each.case for each in certified.cases)) or "none"
        raise CaseError(f"the certificate does not speak of the case {case.name!r}; its cases are {known}")
    found: list[Deviation] = []
    for old in before:
        report = check(
            case.training([m for m in ("train_step",) if m in old.overrides.get("modes", "")]),
            seed=old.seed,
            draws=old.draws,
            dtype=old.dtype,
            device=certified.device,
            locate=False,
        )
        found += deviations(certified, old, report.certificate())
    return list(dict.fromkeys(found))


def deviations(certified: Certificate, old: CaseCertificate, now: Certificate) -> Iterable[Deviation]:
    """What differs between what a certificate says of a case and what one of a second run says."""
    (new,) = now.of(old.case)
    pairs: tuple[tuple[str, Mapping[str, str], Mapping[str, str]], ...] = (
        ("verdict", _verdicts(old), _verdicts(new)),
        ("weights", old.weights, new.weights),
        ("input", old.inputs, new.inputs),
        ("override", old.overrides, new.overrides),
        ("device", {"name": certified.device_name}, {"name": now.device_name}),
        ("version", certified.versions, now.versions),
        ("flag", certified.flags, now.flags),
    )
    for what, before, after in pairs:
        for name in dict.fromkeys([*before, *after]):
            if before.get(name) != after.get(name):
                yield Deviation(f"{what} {name}", before.get(name, ""), after.get(name, ""))
    if list(old.weights) != list(new.weights) and old.weights.keys() == new.weights.keys():
        yield Deviation("weights' order", ", ".join(old.weights), ", ".join(new.weights))


def digest_of(tree: Any) -> str:
    """SHA-256 of a tree of arrays: of each its place, dtype, shape and bytes in C order."""
    total = hashlib.sha256()
    for path, leaf in jtu.tree_leaves_with_path(tree):
        array = np.asarray(leaf)
        total.update(f"{input_name(path)} {array.dtype.name} {array.shape} ".encode())
        total.update(np.ascontiguousarray(array).tobytes())
    return total.hexdigest()


def _inputs(exam: Examination) -> dict[str, str]:
    found: dict[str, str] = {}
    for truth in exam.truths:
        question = truth.question
        if question.label not in found:
            found[question.label] = digest_of(question.inputs)
    return found


def _verdicts(case: CaseCertificate) -> dict[str, str]:
    return {f"{'port' if v.side == 'jax' else 'reference'} {v.variant}": v.told for v in case.verdicts}


def _overrides(case: Case) -> Iterable[tuple[str, str]]:
    """The fields that decide what is compared, and how, where a case sets them."""
    for each in dataclasses.fields(case):
        if each.name in NAMES:
            continue
        make = each.default_factory
        default = each.default if make is dataclasses.MISSING else make()
        value = getattr(case, each.name)
        if value is not default and value != default:
            yield each.name, _words(value)


def _words(value: Any) -> str:
    """A value without addresses, which differ from run to run."""
    if isinstance(value, Mapping):
        return ", ".join(f"{k}: {_words(v)}" for k, v in value.items())
    if isinstance(value, tuple | list):
        return ", ".join(map(_words, value))
    if callable(value):
        module, name = getattr(value, "__module__", ""), getattr(value, "__qualname__", type(value).__name__)
        return f"{module}.{name}" if module else name
    text = repr(value)
    return type(value).__name__ if " at 0x" in text else text


@functools.cache
def _versions() -> dict[str, str]:
    import platform

    from ..speed.environment import PACKAGES, revision, version

    found = {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}}
    return {name: number for name, number in {**found, "revision": revision()}.items() if number}


def _flags(device: str) -> dict[str, str]:
    """Settings that move numbers: what the check sets for itself, and what it finds."""
    import torch

    from ..speed.settings import torch_flags, variables, xla_options

    return {
        "jax_enable_x64": f"True in float64; otherwise False, and {jax.config.read('jax_enable_x64')} outside of it",
        "jax_default_matmul_precision": f"{matmul_precision('float32')}; tensorfloat32 in tf32",
        "torch.backends.cuda.matmul.allow_tf32": str(torch.backends.cuda.matmul.allow_tf32),
        "torch.backends.cudnn.allow_tf32": str(torch.backends.cudnn.allow_tf32),
        "torch.num_threads": str(torch.get_num_threads()),
        **{name: value for name, value in variables().items() if name in MOVING},
        **torch_flags(device),
        **xla_options(device),
    }


@functools.cache
def _device_name(device: str) -> str:
    import torch

    from ..speed.machine import cpu_name

    return torch.cuda.get_device_name() if device == "gpu" else cpu_name()


def _short(text: str) -> str:
    is_digest = len(text) == 64 and set(text) <= set("0123456789abcdef")
    return f"{text[:12]}..." if is_digest else text if len(text) <= 80 else f"{text[:80]}..."
