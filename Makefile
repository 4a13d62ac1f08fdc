# Everything a newcomer types. Needs Python 3.11 or newer and make; the rest is set up in .venv on first use.
#   make test PYTHON=python3.13     another interpreter (the environment is made anew)
#   make test ARGS="-k pause -x"    arguments for the tool behind the target

PYTHON ?= python3
ARGS ?=

UV_VERSION := 0.13.9
VERSION := $(shell "$(PYTHON)" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)
VENV := .venv
RUN := $(VENV)/bin/python

# Stamps: the environment is made anew for another interpreter, brought up to date when the lock changes, else left alone.
MADE := $(VENV)/.made-$(VERSION)-uv-$(UV_VERSION)
READY_TO_RUN := $(VENV)/.ready-to-run-$(VERSION)
READY_TO_DEVELOP := $(VENV)/.ready-to-develop-$(VERSION)

.DEFAULT_GOAL := help
.PHONY: help demo test check format prove bench lifecycle clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile

demo: $(READY_TO_RUN) ## see a run survive a kill, a pause and a cancel, in under a minute
	@$(RUN) -m runtrue demo $(ARGS)

test: $(READY_TO_DEVELOP) ## all tests, small and seeded (a few minutes)
	@$(RUN) -m pytest $(ARGS)

check: $(READY_TO_DEVELOP) ## format, lint, types, import rules, generated pages
	@$(RUN) -m ruff format --check .
	@$(RUN) -m ruff check .
	@$(RUN) -m pyright
	@$(RUN) -c 'from importlinter.cli import lint_imports_command; lint_imports_command(["--no-cache"])'
	@$(RUN) scripts/lifecycle_diagram.py --check

format: $(READY_TO_DEVELOP) ## rewrite the sources in the project's format
	@$(RUN) -m ruff format .
	@$(RUN) -m ruff check --fix .

prove: $(READY_TO_DEVELOP) ## the full counts: thousands of kills, orders and seeds, each guard taken away (long)
	@$(RUN) -m pytest -m prove --timeout 3600 -o faulthandler_timeout=3500 $(ARGS)
	@$(RUN) scripts/mutations.py

bench: $(READY_TO_DEVELOP) ## measure; figures go to benchmarks/results
	@$(RUN) -m benchmarks $(ARGS)

lifecycle: $(READY_TO_RUN) ## rewrite docs/lifecycle.md from the table in the code
	@$(RUN) scripts/lifecycle_diagram.py

clean: ## remove the environment, the demo's databases and what tools left behind
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis build dist
	rm -f runtrue-demo.db runtrue-demo.db-* runtrue-demo.db.turn runtrue-demo-warehouse.db runtrue-demo-warehouse.db-*
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# ---------------------------------------------------------------- the environment

$(MADE):
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "runtrue needs Python 3.11 or newer; $(PYTHON) is $(or $(VERSION),not to be found)." >&2; \
	  echo "Name another one:  make $(or $(MAKECMDGOALS),test) PYTHON=python3.13" >&2; exit 1; }
	@"$(PYTHON)" -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "$(PYTHON) cannot make virtual environments (Debian and Ubuntu ship that apart). Type:" >&2; \
	  echo "  sudo apt-get install python$(VERSION)-venv" >&2; exit 1; }
	@echo "Setting up $(VENV) with Python $(VERSION) ..." >&2
	@rm -rf $(VENV)
	@"$(PYTHON)" -m venv $(VENV)
	@$(RUN) -m pip install --quiet --disable-pip-version-check "uv==$(UV_VERSION)"
	@touch $@

# --inexact: what the tools for development brought stays until they are synced themselves.
$(READY_TO_RUN): pyproject.toml uv.lock $(MADE)
	@$(RUN) -m uv sync --quiet --frozen --no-default-groups --inexact --python $(RUN)
	@touch $@

$(READY_TO_DEVELOP): $(READY_TO_RUN)
	@$(RUN) -m uv sync --quiet --frozen --python $(RUN)
	@touch $@
