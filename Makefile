# SPDX-License-Identifier: Apache-2.0
# Every verb works on a fresh machine with Python >= 3.11: it makes .venv and installs what it needs.
PYTHON ?= python3
BIN := .venv/bin
WORKERS ?= 2
PIP := $(BIN)/python -m pip install --disable-pip-version-check --constraint constraints.txt

.PHONY: demo test test-slow test-variant test-environments coverage lint types layers bench campaign soak sbom audit docs wheel figures-check clean

demo: .venv/demo.stamp  ## From a robot's log to a policy that works on it, with a page to show: demo/report.html.
	$(BIN)/neurodyn demo

test: .venv/dev.stamp  ## Run the tests but the slow ones, in as many processes as WORKERS says.
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile -m "not slow"

test-slow: .venv/dev.stamp  ## Run the slow tests: whole adaptations and trainings, examples, notebooks.
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile -m slow

test-variant: .venv/dev.stamp  ## Run the tests that train as on another machine: other rounding, two threads, random order.
	ATEN_CPU_CAPABILITY=default MKL_CBWR=COMPATIBLE OMP_NUM_THREADS=2 NEURODYN_TEST_THREADS=2 \
	    $(BIN)/python -m pytest -m trains --random-order

test-environments: .venv/dev.stamp  ## Install beside mjlab, beside Gymnasium and stable-baselines3, and with logs alone; work a little in each.
	$(BIN)/python scripts/check_environments.py

coverage: .venv/dev.stamp  ## Run the tests and report the branches that none takes; htmlcov/index.html shows them.
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --cov --cov-report=term --cov-report=html

lint: .venv/dev.stamp  ## Check style and formatting.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/dev.stamp  ## Check types.
	$(BIN)/pyright

layers: .venv/dev.stamp  ## Check that imports run one way.
	$(BIN)/lint-imports

# Benchmarks of robots, logs or policies that other commands make take a folder or files; others run for hours.
BENCHMARKS := $(filter-out $(addprefix benchmarks/, gpu.py campaign.py soak.py conditions.py export_replay.py next_motion.py \
    onboard.py promises.py refits.py sabotage.py sensed_policies.py stand_ins.py walkers.py zoo.py),$(wildcard benchmarks/[a-z]*.py))

bench: .venv/dev.stamp  ## Run the benchmarks that need no arguments on one thread, but the campaign, the soak and that of a GPU; figures go to benchmarks/results/.
	set -e; for script in $(BENCHMARKS); do \
	    echo "== $$script"; \
	    OMP_NUM_THREADS=1 $(BIN)/python $$script --json benchmarks/results/$$(basename $$script .py).json; \
	done

campaign: .venv/dev.stamp  ## Broken inputs, kills, disk faults, pairs of writers, low memory, poisoned worlds.
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/campaign.py

soak: .venv/dev.stamp  ## Two hours of generate, train and evaluate under faults in one process; is memory flat?
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/soak.py --minutes 120

audit: .venv/dev.stamp  ## Look the pinned packages up among known vulnerabilities; needs their index on the network.
	$(BIN)/python -m pip install --quiet pip-audit
	$(BIN)/pip-audit --requirement constraints.txt --no-deps --disable-pip

sbom: .venv/dev.stamp  ## List the installed packages with versions and licences in build/sbom.json (CycloneDX).
	mkdir -p build
	$(BIN)/python -m pip install --quiet cyclonedx-bom
	$(BIN)/python -m cyclonedx_py environment --output-file build/sbom.json $(BIN)/python

wheel: .venv/dev.stamp  ## Build dist/*.whl twice, compare the bytes, install it into a new environment and try it there.
	$(BIN)/python scripts/check_wheel.py --venv --out dist

docs: .venv/docs.stamp  ## Build the pages and the API reference as a site in site/.
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

figures-check: .venv/dev.stamp  ## Measure the cheap figures of docs/benchmarks.md again (NEURODYN_DATA: folder with logs).
	OMP_NUM_THREADS=1 $(BIN)/python scripts/check_figures.py

clean:  ## Remove what the other verbs made.
	rm -rf .venv demo build dist site htmlcov .coverage .pytest_cache .ruff_cache .hypothesis .import_linter_cache

.venv/bin/python:
	$(PYTHON) -c 'import sys; sys.exit("neurodyn needs Python >= 3.11, this is " + sys.version.split()[0]) if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv .venv

comma := ,

define say
@echo "$(1) into .venv ..."
endef

# torch goes first: once it is there, no other package can pull in another build of it.
.venv/demo.stamp: .venv/bin/python pyproject.toml constraints.txt
	@echo "pip installs what the demo needs: some three minutes, once"
	$(call say,1/2  installing torch)
	$(PIP) torch
	$(call say,2/2  installing neurodyn with MuJoCo$(comma) Newton and rsl_rl)
	$(PIP) --editable '.[sim,policy]'
	touch $@

.venv/dev.stamp: .venv/bin/python pyproject.toml constraints.txt
	$(call say,1/2  installing torch)
	$(PIP) torch
	$(call say,2/2  installing neurodyn with all extras and tools)
	$(PIP) --editable '.[sim,robots,usd,view,live,policy,control,cluster,export,logs,notebook,wandb,dev]'
	touch $@

.venv/docs.stamp: .venv/bin/python pyproject.toml constraints.txt
	$(call say,1/2  installing torch)
	$(PIP) torch
	$(call say,2/2  installing neurodyn with the tools of its site)
	$(PIP) --editable '.[docs]'
	touch $@
