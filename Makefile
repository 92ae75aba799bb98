# Everything happens in .venv, which is made on first use. Needs Python >= 3.11, pip, make.
# On Windows, run it in the shell that comes with Git, which has rm, touch and the like.

VENV := .venv
ifeq ($(OS),Windows_NT)
    PYTHON ?= python
    SCRIPTS := Scripts
else
    PYTHON ?= python3
    SCRIPTS := bin
endif
BIN := $(VENV)/$(SCRIPTS)
# Processes that run the test suite; each of them uses one thread.
WORKERS ?= 2
PYTEST_ARGS ?=
# How long "make fuzz" looks for a seed that fails.
FUZZ_MINUTES ?= 10
BENCH_ARGS ?=
# Which tables of which paper: make papers PAPERS_ARGS="ye2007 --table 1 --quick"
PAPERS_ARGS ?= --help
# The tests and the benchmarks run torch on the processor; a newer one may bring gigabytes
# of GPU libraries. "make test TORCH=" goes without it, and skips its tests.
TORCH ?= torch==2.13.0
# What the benchmarks compare with beyond the group "bench".
MKLPY ?= MKLpy==0.6

PIP := $(BIN)/python -m pip --disable-pip-version-check
MINIMUM_PIP := $(VENV)-minimum/$(SCRIPTS)/python -m pip --disable-pip-version-check
NEWEST_PIP := $(VENV)-newest/$(SCRIPTS)/python -m pip --disable-pip-version-check
ONE_THREAD := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1

# Two installations into one environment must not overlap, also under "make -j".
.NOTPARALLEL:
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

.PHONY: help demo check test test-browser test-minimum test-newest test-rounding fuzz \
    audit lint format papers bench bench-scale docs clean distclean

help: ## list these targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | \
	    awk -F ':.*## ' '{ printf "make %-13s %s\n", $$1, $$2 }'

demo: $(VENV)/.demo ## set up and run the demonstration on bundled data
	$(BIN)/kernelweave demo

check: lint test ## set up, lint, then run the whole test suite

# Plain asserts save each worker seconds of rewriting before its first test; run the test
# that failed with "pytest" itself, or all with PYTEST_ARGS=--assert=rewrite, to see the
# values that were compared. The workers and the programs they start share their bytecode.
test: $(VENV)/.dev ## set up, then run the whole test suite
	$(ONE_THREAD) PYTHONDONTWRITEBYTECODE= \
	    $(BIN)/python -m pytest -n $(WORKERS) --assert=plain \
	    -p no:cacheprovider --ignore=tests/browser $(PYTEST_ARGS)

test-browser: $(VENV)/.browser ## look at reports in Chromium, which must be installed
	$(ONE_THREAD) $(BIN)/python -m pytest tests/browser $(PYTEST_ARGS)

# Old versions of libraries warn of what newer ones of their own dependencies deprecate.
test-minimum: $(VENV)-minimum/.ready ## run it with the lowest versions that are allowed
	$(ONE_THREAD) $(VENV)-minimum/$(SCRIPTS)/python -m pytest -n $(WORKERS) \
	    --assert=plain -p no:cacheprovider --ignore=tests/browser \
	    -W default::DeprecationWarning -W default::PendingDeprecationWarning \
	    $(PYTEST_ARGS)

test-newest: $(VENV)-newest/.python ## run it with the newest versions, after an upgrade
	$(NEWEST_PIP) install --quiet --upgrade --upgrade-strategy eager pip $(TORCH) \
	    $$("$(PYTHON)" tests/lower_bounds.py --newest torch)
	$(NEWEST_PIP) install --quiet --no-deps -e .
	$(ONE_THREAD) $(VENV)-newest/$(SCRIPTS)/python -m pytest -n $(WORKERS) \
	    --assert=plain -p no:cacheprovider --ignore=tests/browser $(PYTEST_ARGS)

test-rounding: $(VENV)/.dev ## run it as on other processors, whose rounding differs
	$(ONE_THREAD) $(BIN)/python tests/rounding.py -n $(WORKERS) $(PYTEST_ARGS)

fuzz: $(VENV)/.dev ## run tests with new seeds and random problems, for ten minutes
	$(ONE_THREAD) $(BIN)/python tests/fuzz.py --minutes $(FUZZ_MINUTES) \
	    -n $(WORKERS) $(PYTEST_ARGS)

# Without what did not come from a package index, such as torch for the processor alone;
# --strict fails rather than passing over what the service does not know.
audit: $(VENV)/.dev $(VENV)-audit/.python ## look up known vulnerabilities of dependencies
	$(VENV)-audit/$(SCRIPTS)/python -m pip install --quiet pip-audit
	$(PIP) freeze --exclude-editable | grep -v -e ' @ ' -e '+' > $(VENV)-audit/all.txt
	$(VENV)-audit/$(SCRIPTS)/python -m pip_audit --strict --no-deps --disable-pip \
	    -r $(VENV)-audit/all.txt

lint: $(VENV)/.dev ## style, types, direction of imports, spelling
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/codespell

format: $(VENV)/.dev ## rewrite the code in the house style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

papers: $(VENV)/.papers ## repeat the experiments of the papers, and compare
	$(ONE_THREAD) $(BIN)/python -m reproduce $(PAPERS_ARGS)

bench: $(VENV)/.bench ## measure speed and memory against other software
	$(ONE_THREAD) $(BIN)/python benchmarks/run.py $(BENCH_ARGS)

bench-scale: $(VENV)/.bench ## measure fits on a million rows
	$(BIN)/python benchmarks/scale.py $(BENCH_ARGS)

docs: $(VENV)/.docs ## build docs/_build/html/index.html
	$(ONE_THREAD) $(BIN)/sphinx-build -W --keep-going -b html \
	    -d docs/_build/doctrees docs docs/_build/html

clean: ## remove what the other targets made, except .venv
	rm -rf build dist kernelweave-demo
	rm -rf docs/_build docs/auto_examples docs/generated docs/sg_execution_times.rst
	rm -rf .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find src reproduce tests -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean ## remove .venv as well
	rm -rf $(VENV) $(VENV)-audit $(VENV)-minimum $(VENV)-newest

%/.python:
	@command -v "$(PYTHON)" >/dev/null || { \
	    echo "No $(PYTHON) found. Install Python 3.11 or newer," \
	         "or name it: make PYTHON=python3.11" >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	    echo "kernelweave needs Python 3.11 or newer, but $(PYTHON) is" \
	         "$$("$(PYTHON)" --version 2>&1)." \
	         "Name another one: make PYTHON=python3.11" >&2; exit 1; }
	@echo "Making the environment $*"
	@"$(PYTHON)" -m venv $* || { \
	    echo "$(PYTHON) cannot make an environment; on Debian and Ubuntu" \
	         "the package python3-venv is needed." >&2; exit 1; }
	@touch $@

$(VENV)/.demo: pyproject.toml | $(VENV)/.python
	@echo "Installing kernelweave (first time: about a minute)"
	$(PIP) install --quiet -e ".[plot,report,progress]"
	@touch $@

# Dependency groups need a newer pip than some versions of Python bring.
$(VENV)/.pip: | $(VENV)/.python
	$(PIP) install --quiet --upgrade "pip>=25.1"
	@touch $@

$(VENV)/.dev: pyproject.toml | $(VENV)/.pip
	@echo "Installing kernelweave with its development tools (a few minutes at most)"
	$(PIP) install --quiet -e ".[all]" --group dev $(TORCH)
	@touch $@

# Without torch, whose lowest version comes with gigabytes of GPU libraries, and without
# skore, which needs a newer rich than the package does.
$(VENV)-minimum/.ready: pyproject.toml tests/lower_bounds.py | $(VENV)-minimum/.python
	@echo "Installing the lowest versions of everything (a few minutes)"
	$(MINIMUM_PIP) install --quiet --upgrade "pip>=25.1"
	$(MINIMUM_PIP) install --quiet $$("$(PYTHON)" tests/lower_bounds.py torch skore)
	$(MINIMUM_PIP) install --quiet --no-deps -e .
	@touch $@

$(VENV)/.browser: $(VENV)/.dev
	$(PIP) install --quiet --group browser
	@touch $@

$(VENV)/.docs: pyproject.toml | $(VENV)/.pip
	@echo "Installing kernelweave with the documentation tools"
	$(PIP) install --quiet -e ".[all]" --group docs
	@touch $@

$(VENV)/.papers: pyproject.toml | $(VENV)/.python
	@echo "Installing kernelweave with what the papers' tables need"
	$(PIP) install --quiet -e ".[plot,sdp,progress,dask]"
	@touch $@

# MKLpy is under the GPL, so that it stays a tool of the benchmarks and out of the metadata
# of the package. It comes without dependencies; of these, only torch is not there yet.
$(VENV)/.bench: pyproject.toml | $(VENV)/.pip
	@echo "Installing kernelweave with the software it is compared to"
	$(PIP) install --quiet -e ".[plot,sdp,dask]" --group bench $(TORCH)
	$(PIP) install --quiet --no-deps "$(MKLPY)"
	@touch $@
