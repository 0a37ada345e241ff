# Two commands do everything: `make run` and `make test`. Both set up .venv the first time.
# `make help` lists the others.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# A file's tests stay together, because they share what they have trained or started; conftest.py
# decides in which order files begin.
PYTEST := $(BIN)/pytest -n auto --dist loadfile --no-loadscope-reorder --durations=20

# Whatever the environment says: tests start hundreds of processes, which need not compile again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help run test quick coverage exhaustive doctest lint layers types pages docs bench bench-peers clean
.DEFAULT_GOAL := run

help: ## what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "%-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: $(VENV)/run.stamp ## train the default job on embedded data
	$(BIN)/fedcanon run

test: ## everything that must hold before a change lands
	$(MAKE) --jobs lint types docs doctest
	$(PYTEST) -m "not exhaustive"

quick: ## the same without documentation, other systems and slow tests
	$(MAKE) --jobs lint types doctest SYSTEMS=linux
	$(PYTEST) -m "not (slow or exhaustive)"

# Tracing takes a third more time: what is counted is what the fast tests reach in their own process.
coverage: $(VENV)/dev.stamp ## how much of the code the fast tests reach
	$(PYTEST) -m "not (slow or exhaustive)" --cov=fedcanon --cov-report=
	$(BIN)/coverage report | tail -n 1 # the total

# Files without an example need not be imported.
doctest: $(VENV)/dev.stamp ## the examples in docstrings
	grep --recursive --files-with-matches --include='*.py' '>>>' src | \
		xargs $(BIN)/pytest -q --doctest-modules

exhaustive: $(VENV)/dev.stamp ## the tests that take minutes
	$(BIN)/pytest -m exhaustive

lint: layers ## style, format and layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

layers: $(VENV)/dev.stamp ## imports go down, never up or sideways
	$(BIN)/lint-imports --no-logo

SYSTEMS := linux darwin win32
types: $(VENV)/dev.stamp ## mypy --strict for every system
	printf '%s\n' $(SYSTEMS) | \
		xargs -P 3 -I '{}' $(BIN)/mypy --platform '{}' --cache-dir '.mypy_cache/{}'

pages: ## copy programs and results anew into the pages that show them
	$(PYTHON) docs/copies.py

# The two variables silence notices about a future MkDocs 2; they are not warnings of the build.
docs: $(VENV)/dev.stamp ## the documentation, into site/
	NO_MKDOCS_2_WARNING=1 DISABLE_MKDOCS_2_WARNING=true $(BIN)/mkdocs build --strict --quiet

bench: $(VENV)/dev.stamp ## how fast the prox and the batches are
	$(BIN)/python benchmarks/prox.py
	$(BIN)/python benchmarks/data.py

clean: ## remove all that was made
	rm -rf $(VENV) .bench .coverage* site .import_linter_cache .mypy_cache .pytest_cache .ruff_cache .hypothesis

# The stamps are newer than what they were installed from, so a second call installs nothing.
$(VENV)/run.stamp: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable .
	touch $@

$(VENV)/dev.stamp: $(VENV)/run.stamp
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[dev]"
	touch $@

# The peers that benchmarks/engine.py compares with: their pins conflict, so each has its own
# environment.
PEERS := $(patsubst benchmarks/peers/%.txt,.bench/%/stamp,$(wildcard benchmarks/peers/*.txt))

bench-peers: $(PEERS) ## the environments of the peers

.bench/%/stamp: benchmarks/peers/%.txt
	$(PYTHON) -m venv .bench/$*
	.bench/$*/bin/pip install --quiet --requirement $<
	touch $@
