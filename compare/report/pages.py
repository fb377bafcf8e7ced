"""The folder of a report: proved writable before anything runs, and filled with the pages afterwards."""

from __future__ import annotations

import tempfile
from pathlib import Path

from . import html, markdown
from .atomic import write_atomically
from .contents import contents
from .page import Page
from .results import Results, ResultsError

MARKDOWN = "report.md"
HTML = "report.html"
CHANGES = "changes.md"
CERTIFICATE = "certificate.json"


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


def write_changes(page: Page, folder: str | Path) -> Path:
    """Writes `changes.md` into the folder, and gives its path.

    Raises:
      ResultsError: where the folder cannot be written to.
    """
    return _write(prepare_folder(folder) / CHANGES, markdown.render_page(page))


def write_page(page: Page, folder: str | Path) -> list[Path]:
    """Writes a page as `report.md` and `report.html` into the folder, each as a whole, and gives their paths.

    Raises:
      ResultsError: where the folder cannot be written to.
      ImportError: where jinja2 is missing.
    """
    target = prepare_folder(folder)
    pages = {MARKDOWN: markdown.render_page(page), HTML: html.render_page(page)}
    return [_write(target / name, text) for name, text in pages.items()]


def _write(path: Path, text: str) -> Path:
    try:
        write_atomically(path, text.encode())
    except OSError as error:
        raise ResultsError(f"cannot write {path}: {error.strerror}; free it or give another folder") from error
    return path


def write_pages(results: Results, folder: str | Path) -> list[Path]:
    """The pages of a run: see `write_page`."""
    return write_page(contents(results), folder)
