"""Drafts, for tests of them."""

import re
from dataclasses import replace

from graphmode.compare import check
from graphmode.compare.draft import draft
from graphmode.compare.locate import locate


def bare(text):
    """Code without what its layout adds."""
    return re.sub(r"[\s,]", "", text)


def equal(folder, location, *inputs):
    """Drafts, checks, and gives the text."""
    made = draft(f"{folder / location}", inputs)
    path = folder / f"{location.rpartition(':')[2].lower()}_port.py"
    path.write_text(made.text)
    assert not made.notes, made.text
    report = check(replace(locate(f"{path}:CASE"), adversarial=()), draws=1)
    assert report.passed, f"{report}\n{made.text}"
    return made.text
