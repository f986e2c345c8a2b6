# Two commands do everything on a fresh machine with Python, pip and make: `make bench` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: bench test lint types arrows unit overhead conformance nightly quiet compressors links figures agreement systems \
  relaxed workloads precision power gpu-check clean

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "parbench needs Python 3.11 or newer: make PYTHON=python3.12")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[run,dev]'
	touch $(READY)

bench: $(READY) ## run the default suite and print where the results are
	$(BIN)/parbench run

test: $(READY) lint types arrows unit ## everything that must hold before a commit (2 ranks, small cases)

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(READY)
	$(BIN)/mypy

arrows: $(READY) ## imports point down only
	$(BIN)/lint-imports

unit: $(READY)
	$(BIN)/python -m pytest -q -m 'not nightly and not quiet and not gpu'

overhead: $(READY) ## parbench's ddp beside the same loop written by hand, interleaved
	$(BIN)/python -m pytest -q -s tests/benchmarks --benchmark-enable --benchmark-only

WORLD_SIZES ?= 2 3 4
conformance: $(READY) ## everything through every law at every world size, and the tests that take minutes
	$(BIN)/parbench conform all $(WORLD_SIZES:%=-n %)
	$(BIN)/python -m pytest -q -m 'nightly and not quiet and not gpu'

SUITE ?= nightly.toml
nightly: $(READY) ## every cell of a suite as a benchmark of pytest, kept and comparable (docs/nightly.md)
	$(BIN)/python -m pytest --parbench-suite $(SUITE) --benchmark-enable --benchmark-only --benchmark-autosave

quiet: $(READY) ## what shaped links and the bench reach, on a machine on which nothing else runs
	$(BIN)/python -m pytest -q -s -m quiet

compressors: $(READY) ## docs/compression.md: what every compressor takes, saves and loses (half an hour, on an idle machine)
	$(BIN)/python tests/compressor_document.py

links: $(READY) ## docs/network.md: what shaped links and collectives over them reach (minutes, on an idle machine)
	$(BIN)/python tests/network_document.py

figures: $(READY) ## the figures of the README, from the records in results/reference
	$(BIN)/parbench report results/reference --figure step-time --format svg -o docs/figures

agreement: $(READY) ## docs/agreement.md: every strategy, workload, number of ranks and precision (half an hour)
	-$(BIN)/parbench run docs/agreement.toml
	{ sed '/^|/,$$d' docs/agreement.md; $(BIN)/parbench show results/agreement --agreement; } > docs/agreement.new
	mv docs/agreement.new docs/agreement.md

systems: $(READY) ## docs/systems.md: papers' systems, what they send and how closely they train (some minutes)
	-$(BIN)/parbench run docs/systems.toml
	{ sed '/^|/,$$d' docs/systems.md; $(BIN)/parbench show results/systems --systems; } > docs/systems.new
	mv docs/systems.new docs/systems.md

relaxed: $(READY) ## docs/relaxed.md: what relaxed synchrony costs in accuracy, over ten seeds (minutes)
	{ sed '/^|/,$$d' docs/relaxed.md; $(BIN)/python tests/relaxed_training.py; } > docs/relaxed.new
	mv docs/relaxed.new docs/relaxed.md

power: $(READY) ## docs/power.md: how often changes are found, by simulation (some minutes)
	$(BIN)/python tests/compare/power.py > docs/power.new
	mv docs/power.new docs/power.md

workloads: $(READY) ## docs/workloads.md: parameters, FLOPs and sources of every workload and size (a minute)
	$(BIN)/python tests/workload_document.py > docs/workloads.new
	mv docs/workloads.new docs/workloads.md

precision: $(READY) ## the first table of docs/precision.md: digit rows in every precision with ten seeds (some minutes)
	$(BIN)/python tests/precision_quality.py

# Not .venv: a borrowed GPU machine has a torch of its own and no network. What it lacks can lie in .gpu, put there by
# `pip install --target .gpu PACKAGE` on a machine like it.
gpu-check: ## every strategy on one GPU, as one script of a few minutes
	PYTHONPATH=.gpu:bench:strategies $(PYTHON) tests/gpu_check.py -o results/gpu

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .benchmarks
