"""Which cases and sizes the words of a command line mean."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from graphmode.compare import Case


def sizes_of(text: str) -> tuple[int, ...]:
    """`1,8,64` as numbers."""
    try:
        sizes = tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError:
        sizes = (0,)
    if any(size < 1 for size in sizes):
        raise typer.BadParameter(f"--sweep is {text!r}; give batch sizes from 1 on with commas between them, as 1,8,64")
    return tuple(dict.fromkeys(sizes))


def location(text: str) -> str:
    from graphmode.models import zoo

    return zoo.CASES.get(text, text)


def choose(
    names: list[str], tags: list[str], *, everything: bool = False, refused: dict[str, str] | None = None
) -> dict[str, Case]:
    """The cases by what names them (the zoo's names, files, modules) and tags, in order, once each.

    Where neither does, the zoo's main cases, or all. What a file or module cannot give is told in `refused`, where that
    is given and there are other cases.
    """
    if everything and names:
        raise typer.BadParameter(f"--all means the whole zoo, and {names[0]!r} was named; leave one of them out")
    from fnmatch import fnmatchcase

    from graphmode.compare.case import CaseError
    from graphmode.compare.locate import is_location, locate
    from graphmode.models import zoo

    chosen: dict[str, Case] = {}
    for text in names or (["*"] if everything or tags else zoo.MAIN):
        if any(char in text for char in "*?[") and (matching := [n for n in zoo.CASES if fnmatchcase(n, text)]):
            chosen.update({name: zoo.load(name) for name in matching})
        elif text not in zoo.CASES and is_location(text):
            try:
                chosen[text] = locate(text)
            except CaseError as error:
                if refused is None or len(names) == 1:
                    raise
                refused[text] = str(error)
        else:
            chosen[text] = zoo.load(text)
    if refused and not chosen:
        raise CaseError("; ".join(refused.values()))
    kept = {text: case for text, case in chosen.items() if not tags or set(tags) & set(case.tags)}
    if not kept:
        known = sorted({tag for case in chosen.values() for tag in case.tags})
        raise typer.BadParameter(f"no case has the tag {', '.join(tags)}; the tags are {', '.join(known) or 'none'}")
    return kept
