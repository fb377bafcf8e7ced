"""The folder of a report: proved writable before anything runs, and filled with the pages afterwards."""

from __future__ import annotations

import tempfile
from pathlib import Path

from . import html, markdown
from .atomic import write_atomically
from .results import Results, ResultsError

MARKDOWN = "report.md"
HTML = "report.html"


def prepare_folder(path: str | Path) -> Path:
    """Creates the folder where it is missing, and proves that files can be written into it.

    Raises:
      ResultsError: where it cannot be made or written to: named, with what went wrong and what to do.
    """
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except FileExistsError as error:
        raise ResultsError(f"{folder} is a file, and a folder was wanted for the report: give another path") from error
    except OSError as error:
        raise ResultsError(
            f"cannot write the report into {folder}: {error.strerror}; give a folder that you may write to"
        ) from error
    return folder


def write_pages(results: Results, folder: str | Path) -> list[Path]:
    """Writes `report.md` and `report.html` into the folder, each as a whole, and gives their paths.

    Raises:
      ResultsError: where the folder cannot be written to.
      ImportError: where jinja2 or matplotlib is missing.
    """
    target = prepare_folder(folder)
    pages = {MARKDOWN: markdown.render(results), HTML: html.render(results)}
    for name, text in pages.items():
        try:
            write_atomically(target / name, text.encode())
        except OSError as error:
            raise ResultsError(
                f"cannot write {target / name}: {error.strerror}; free it or give another folder"
            ) from error
    return [target / name for name in pages]
