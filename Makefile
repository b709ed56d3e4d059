# Two commands set everything up: `make run` and `make check`. `make help` lists the rest.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
ONCE ?=
GPU_VENV ?= .venv-gpu
# Pinned: each release belongs to one generation of torch and CUDA, and this one was measured.
GPU_RUNTIME ?= sglang==0.5.17
MINUTES ?= 10
T ?= tests/unit
# Tests that keep to themselves, so that two processes can share them; the others load the whole machine.
ALONE := tests/unit tests/contract

export PIP_DISABLE_PIP_VERSION_CHECK = 1

.PHONY: help run check quick fix test eval fuzz models gpu lock clean
.DEFAULT_GOAL := help

help:  ## List the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: $(VENV)/.runtime models  ## Set up, start everything on the sample documents, answer the sample questions, serve
	$(BIN)/kb demo $(if $(ONCE),--once)

check: $(VENV)/.dev models  ## Format, lint, types, layers, all tests with coverage: what CI runs
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/coverage erase
	$(BIN)/pytest $(ALONE) --numprocesses 2 --dist loadfile --cov --cov-report= --cov-fail-under=0
	$(BIN)/pytest $(addprefix --ignore ,$(ALONE)) --cov --cov-append --cov-report= --cov-fail-under=0
	$(BIN)/coverage report

quick: $(VENV)/.dev  ## Lint, types and unit tests: the inner loop
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/python -m pytest tests/unit -q

fix: $(VENV)/.dev  ## Format and fix what can be fixed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

test: $(VENV)/.dev  ## Run some tests: make test T=tests/unit/kb
	$(BIN)/python -m pytest $(T)

eval: $(VENV)/.dev models  ## Retrieval, refusal and citations on the sample questions, against the committed baseline
	$(BIN)/python -m pytest tests/eval -q -s

fuzz: $(VENV)/.dev  ## Feed damaged files to the parsers for MINUTES (10): not part of check
	$(BIN)/python -m tests.fuzz --minutes $(MINUTES)

models: $(VENV)/.runtime  ## Fetch the starter models (checked by SHA-256, resumed when broken off)
	$(BIN)/kb models pull --if-missing

# The virtual environment is made again when its lock file changes.
$(VENV)/bin/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "kb needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) -V). Set PYTHON=python3.12, say." >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || \
	  { rm -rf $(VENV); echo "The virtual environment could not be made. On Debian or Ubuntu: apt-get install python3-venv" >&2; exit 1; }

$(VENV)/.runtime: $(VENV)/bin/pip requirements.lock pyproject.toml
	@echo "Installing the packages of requirements.lock (about 1.8 GB on disk, 3 to 10 minutes)"
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1' 'setuptools>=77'
	$(BIN)/python -m pip install --progress-bar on -r requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.runtime requirements-dev.lock
	@echo "Installing the development tools of requirements-dev.lock"
	$(BIN)/python -m pip install --progress-bar on -r requirements-dev.lock
	@touch $@

gpu:  ## Set up the runtime for an NVIDIA card in .venv-gpu (several GB); see docs/gpu.md
	$(PYTHON) -m venv $(GPU_VENV)
	$(GPU_VENV)/bin/pip install --quiet --upgrade 'pip>=25.1'
	$(GPU_VENV)/bin/pip install --progress-bar on '$(GPU_RUNTIME)'
	$(GPU_VENV)/bin/python -c 'import sglang; print("sglang", sglang.__version__)'

lock:  ## Write both lock files again from pyproject.toml
	rm -rf .venv-lock && $(PYTHON) -m venv .venv-lock
	.venv-lock/bin/pip install --quiet --upgrade 'pip>=25.1' 'setuptools>=77'
	.venv-lock/bin/pip install --quiet 'torch==2.13.0' .
	.venv-lock/bin/pip freeze --exclude kb --exclude pip | sed 's/+cpu$$//' | grep -v '^nvidia-\|^triton' > requirements.lock
	.venv-lock/bin/pip install --quiet '.[dev]'
	.venv-lock/bin/pip freeze --exclude kb --exclude pip | sed 's/+cpu$$//' | grep -vxFf requirements.lock > requirements-dev.lock
	rm -rf .venv-lock build kb.egg-info

clean:  ## Remove the virtual environment and caches; data/ stays
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage .coverage.* *.egg-info
