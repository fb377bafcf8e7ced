"""The self-test: bugs planted into correct ports, and what the verdicts and the look inside make of each."""
