# Everything runs from .venv; nothing is installed outside this folder.
PYTHON ?= python3
BIN := .venv/bin
# -qq: errors only; -q would still warn about every index that lacks a package
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check --no-compile -c requirements.lock
# With these from the lock no build environment is resolved afresh: docs/decisions/0029-*.md
BUILD := hatchling setuptools wheel

.DEFAULT_GOAL := help
.PHONY: help install demo check test docs bench lock clean

help:  ## list the targets
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-8s %s\n", $$1, $$2}'

install: .venv/.base  ## create .venv with what the package itself needs, at locked versions
	@:

.venv/.base: pyproject.toml requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit("Trimtab needs Python 3.11 or newer, but $(PYTHON) is " \
	    + sys.version.split()[0] + "; try: make install PYTHON=python3.11") if sys.version_info < (3, 11) else 0'
	@test -x $(BIN)/pip || { echo "creating .venv"; $(PYTHON) -m venv .venv; }
	@echo "installing trimtab into .venv (a minute or two the first time)"
	@$(PIP) $(BUILD)
	@$(PIP) --no-build-isolation -e .
	@touch $@

# One stamp an extra: .venv/.test has what tests need, .venv/.docs what the documentation does.
.venv/.%: .venv/.base
	@echo "installing what '$*' needs into .venv (minutes the first time)"
	@$(PIP) --no-build-isolation -e ".[$*]"
	@touch $@

demo: install  ## learned policies beside the strongest rules on a mixed cluster; writes report.html
	@$(BIN)/trimtab demo --report report.html

check: .venv/.test  ## the inner loop: style, types and the quick tests
	@echo "ruff" && $(BIN)/ruff check -q && $(BIN)/ruff format --check -q
	@echo "mypy" && $(BIN)/mypy --no-error-summary
	@echo "pytest" && $(BIN)/python -m pytest -n 2 -m "not slow and not learn and not live"

test: .venv/.test  ## check style and types, then run every test
	@echo "ruff" && $(BIN)/ruff check -q && $(BIN)/ruff format --check
	@echo "mypy" && $(BIN)/mypy --no-error-summary
	@echo "pytest" && $(BIN)/python -m pytest -n 2 --durations 15

docs: .venv/.docs  ## build the documentation in docs/_build
	@$(BIN)/sphinx-build -W -q -b html docs docs/_build
	@echo "docs/_build/index.html"

bench: install  ## measure the engine's speed on this machine
	@$(BIN)/trimtab bench

# Resolved afresh, as if nothing were installed. Run it with the oldest supported Python: its versions
# install on newer ones too. Local tags (+cpu) are dropped so that each machine takes the build it is offered.
lock:  ## write requirements.lock anew from pyproject.toml
	@test -x $(BIN)/pip || $(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install -qq --disable-pip-version-check $(BUILD)
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --dry-run --ignore-installed \
	    --no-build-isolation --report .venv/lock.json $(BUILD) -e ".[dev,bench,kubernetes]"
	@$(BIN)/python -c 'import json; \
	    found = [p["metadata"] for p in json.load(open(".venv/lock.json"))["install"]]; \
	    pins = sorted((p["name"].lower().replace("_", "-"), p["version"].split("+")[0]) for p in found); \
	    print("# Written by `make lock`; used as constraints: pip install -c requirements.lock trimtab"); \
	    print(*(f"{name}=={version}" for name, version in pins if name != "trimtab"), sep="\n")' \
	    > .venv/lock.txt
	@mv .venv/lock.txt requirements.lock
	@echo "requirements.lock is written; the next make installs it"

clean:  ## remove what was built, except .venv
	@rm -rf build dist docs/_build report.html .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@find . \( -name .git -o -name .venv \) -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +
