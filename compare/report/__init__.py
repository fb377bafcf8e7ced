"""What a run leaves behind: versioned JSON, and the pages, tables and plots that are made from it alone."""

from .pages import prepare_folder, write_pages
from .results import CaseInfo, Cell, Environment, Parity, Results, ResultsError, Tensor

__all__ = [
    "CaseInfo",
    "Cell",
    "Environment",
    "Parity",
    "Results",
    "ResultsError",
    "Tensor",
    "prepare_folder",
    "write_pages",
]
