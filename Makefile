# Everything runs in a virtual environment in this folder, made on first use.
PYTHON ?= python3
BIN := .venv/bin
# The commit that `make bench` compares with; the parent of HEAD if it is empty.
BASE ?=

.PHONY: demo test lint types unit bench bench-peers schemas picture clean

demo: .venv/demo.stamp
	$(BIN)/agentv eval examples/first

test: lint types unit

lint: .venv/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/dev.stamp
	$(BIN)/mypy

unit: .venv/dev.stamp
	$(BIN)/pytest -q -n 4 --dist worksteal

bench: .venv/demo.stamp
	AGENTV_BENCH_BASE=$(or $(BASE),$(AGENTV_BENCH_BASE)) $(BIN)/python -m benchmarks

bench-peers: .venv/demo.stamp
	$(BIN)/python -m benchmarks.peers

schemas: .venv/demo.stamp
	for kind in eval sidecar case targets config result; do $(BIN)/agentv schema $$kind >schemas/$$kind.schema.json; done

picture: .venv/demo.stamp
	$(BIN)/python scripts/picture.py

clean:
	rm -rf .venv .venv-peers .pytest_cache .mypy_cache .ruff_cache .hypothesis dist build

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "agentv needs Python 3.11 or newer; name one with: make PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv .venv

.venv/demo.stamp: pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

.venv/dev.stamp: pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@ .venv/demo.stamp
