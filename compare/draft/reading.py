"""The code of a class or function."""

from __future__ import annotations

import ast
import inspect
import textwrap
from typing import Any


def tree_of(item: Any) -> ast.Module:
    """Its tree, wherever it stands; comments in it may stand further left.

    Raises:
      OSError: where there is no source.
      TypeError: where it is no class or function of Python's.
      SyntaxError: where what is found is no whole statement, as a lambda's lines are not.
    """
    source = inspect.getsource(item)
    try:
        return ast.parse(textwrap.dedent(source))
    except IndentationError:
        outer: Any = ast.parse(f"if True:\n{source}").body[0]
        return ast.increment_lineno(ast.Module(outer.body, []), -1)
