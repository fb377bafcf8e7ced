"""Errors as a reader of a message or a report meets them."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from .report.wording import plain

LONGEST = 600  # characters of one line of a report


def describe(error: BaseException) -> str:
    """Its type and its text, files named from where Python finds them: `models/lstm/model.py`."""
    return f"{type(error).__name__}: {_portable(str(error))}"


def describe_briefly(error: BaseException) -> str:
    """The same in one readable line, with how much of it was left out."""
    text = " ".join(plain(describe(error)).split())
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} ... [{len(text) - LONGEST} more characters]"


def _portable(text: str) -> str:
    """Without the folders of this machine: a report is read on another."""
    here = Path(__file__).parent.parent  # where graphmode.compare lies
    folders = {os.path.join(path, "") for path in (*sys.path, os.getcwd(), str(here)) if os.path.isabs(path)}
    for folder in sorted(folders - {os.sep}, key=len, reverse=True):
        text = text.replace(folder, "")
    return text
