"""`python -m graphmode`: the `graphmode` command."""

from .cli import main

main()
