"""What a run leaves behind: versioned JSON, and the pages, tables and plots that are made from it alone."""

from .certificates import Certificate
from .changes_page import changes_page
from .pages import CERTIFICATE, prepare_folder, write_changes, write_pages
from .records import CaseInfo, Cell, Environment, Parity, Tensor
from .results import Results, ResultsError

__all__ = [
    "CERTIFICATE",
    "CaseInfo",
    "Cell",
    "Certificate",
    "Environment",
    "Parity",
    "Results",
    "ResultsError",
    "Tensor",
    "changes_page",
    "prepare_folder",
    "write_changes",
    "write_pages",
]
