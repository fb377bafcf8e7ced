"""The layout of a draft: lines of 120 characters, imports in order, none that is not used."""

from __future__ import annotations

import ast
import subprocess
import sys

_LENGTH = ["--isolated", "--line-length", "120", "--config", "src = []"]
_STEPS = (
    ["check", "--quiet", "--fix", "--exit-zero", "--select", "I,F401", *_LENGTH, "-"],
    ["format", "--quiet", *_LENGTH, "--config", 'format.quote-style = "preserve"', "-"],
)


def laid_out(text: str) -> str:
    """The text as ruff lays it out; as it is where there is no ruff, or it cannot read it."""
    for step in _STEPS:
        done = subprocess.run([sys.executable, "-m", "ruff", *step], input=text, capture_output=True, encoding="utf-8")
        text = done.stdout if done.returncode == 0 and _says_the_same(done.stdout, text) else text
    return text


def _says_the_same(made: str, text: str) -> bool:
    try:
        ast.parse(made)
    except SyntaxError:
        return False
    return bool(made.strip()) and made.count("# TODO") == text.count("# TODO")
