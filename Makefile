# Everything runs in a virtual environment in this folder, made on first use.
PYTHON ?= python3
BIN := .venv/bin
PYTEST := $(BIN)/pytest -q -n logical --dist worksteal
# The commit that `make bench` compares with; the parent of HEAD if it is empty.
BASE ?=
demo_step = @echo '$$ agentv $(1)'; cd .demo && ../$(BIN)/agentv $(1)

.PHONY: demo test test-slow test-all lint types unit coverage docs bench bench-peers schemas reference picture clean

demo: .venv/demo.stamp
	@rm -rf .demo && cp -R examples/first .demo
	@echo "Twelve questions to a small agent, which knows one capital and can add."
	$(call demo_step,eval capitals.yaml sums.jsonl --out old.jsonl)
	@echo; echo "The same questions to its next version, which can multiply too."
	$(call demo_step,eval capitals.yaml sums.jsonl --target better --out new.jsonl)
	@echo; echo "Is the new version better?"
	$(call demo_step,compare old.jsonl new.jsonl --format table)
	@echo; echo "Yes. The same as a page, with every question and answer:"
	$(call demo_step,report old.jsonl new.jsonl --out report.html)
	@echo; echo "Open .demo/report.html in a browser. Agents, cases and results are in .demo/"

# Type checks fill the time in which tests wait for child processes and servers.
test: lint
	$(MAKE) --no-print-directory -j2 types unit

test-slow: .venv/dev.stamp .venv/browser.stamp
	$(PYTEST) -m "slow or prop"

test-all: test test-slow

lint: .venv/dev.stamp .venv/node.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python scripts/words.py
	$(BIN)/python scripts/node.py check
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.github-actions action.yml
	$(BIN)/zizmor --quiet --offline --no-progress .github action.yml

types: .venv/dev.stamp
	$(BIN)/mypy

unit: .venv/dev.stamp .venv/browser.stamp
	$(PYTEST) -m "not slow"

# Lines and branches, subprocesses included; `make coverage TESTS=` measures both tiers. The pages are in htmlcov/.
TESTS = not slow
coverage: .venv/dev.stamp .venv/browser.stamp
	$(BIN)/coverage erase
	-$(BIN)/coverage run -m pytest -q -n logical --dist worksteal -m "$(TESTS)"
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report
	$(BIN)/coverage html --quiet

# The site is in site/; a link that leads nowhere is an error. Nothing is downloaded.
docs: .venv/dev.stamp
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build
	@echo "Open site/index.html in a browser. The search needs a server: $(BIN)/mkdocs serve"

bench: .venv/dev.stamp .venv/browser.stamp
	AGENTV_BENCH_BASE=$(or $(BASE),$(AGENTV_BENCH_BASE)) $(BIN)/python -m benchmarks

bench-peers: .venv/demo.stamp
	$(BIN)/python -m benchmarks.peers

schemas: .venv/dev.stamp
	for kind in eval sidecar case targets config result label; do $(BIN)/agentv schema $$kind >schemas/$$kind.schema.json; done
	$(BIN)/python scripts/page_contract.py
	$(BIN)/python scripts/reference.py

# The pages in docs/reference/, from the commands and schemas; `make schemas` writes them too.
reference: .venv/dev.stamp
	$(BIN)/python scripts/reference.py

picture: .venv/dev.stamp .venv/browser.stamp
	$(BIN)/python scripts/picture.py

clean:
	rm -rf .venv .venv-peers .coverage .coverage.* htmlcov site .demo .pytest_cache .mypy_cache .ruff_cache .hypothesis dist build

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "agentv needs Python 3.11 or newer; name one with: make PYTHON=python3.12"; exit 1; }
	@echo "Creating the virtual environment .venv ..."
	@$(PYTHON) -m venv .venv

.venv/demo.stamp: pyproject.toml | .venv/bin/python
	@echo "Installing agentv into .venv, once (about half a minute) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

# Tests of pages need a browser; without one they are skipped, or fail where CI is set.
.venv/browser.stamp: | .venv/dev.stamp
	$(BIN)/python scripts/browser.py
	@touch $@

# Prettier and TypeScript, for the pages. The script writes the stamp if npm could install them.
.venv/node.stamp: package.json package-lock.json | .venv/dev.stamp
	$(BIN)/python scripts/node.py install

.venv/dev.stamp: pyproject.toml | .venv/bin/python
	@echo "Installing agentv and the tools for its development into .venv, once (one to two minutes) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade --no-deps --target .venv/pytest-8 'pytest==8.2.*'
	@touch $@ .venv/demo.stamp
