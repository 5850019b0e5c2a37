# The front door: `make` lists what there is. The first target that needs it sets everything up in
# .venv from the lock file; nothing is installed outside this folder.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

# Every NAME=value of make's command line becomes --name value; canary refuses those it does not know.
lower = $(shell echo '$(1)' | tr 'A-Z_' 'a-z-')
given = $(foreach v,$(.VARIABLES),$(if $(filter command,$(origin $v)),$(if $(filter-out PYTHON,$v),--$(call lower,$v) '$($v)')))

.DEFAULT_GOAL := help
.PHONY: help setup scenario compare analyze show net shell clean-net test lint bench bench-net p4 lock clean

help:
	@echo 'make scenario   run a scenario and compare all methods on it'
	@sed 's/^/                /' scenarios/options.txt
	@echo 'make compare K=8 SEEDS=1-50 METHODS=all   many runs, with confidence intervals and a plot'
	@echo '                  the settings of make scenario; OUT=DIR [runs/compare-<scenario>-<key>]'
	@echo 'make analyze RUN=DIR   diagnose a finished run again, without the network'
	@echo 'make show RUN=DIR      print the comparison of a finished run'
	@echo 'make net K=4 [BACKEND=bmv2]   the network under Mininet, with its prompt (root)'
	@echo 'make shell SWITCH=agg0_1      p4runtime-sh on a switch of the running network (root)'
	@echo 'make clean-net  remove what a crashed run left of its network (root)'
	@echo 'make test       the test suite; COVERAGE=1 says how much of the Python code it reaches'
	@echo 'make lint       ruff and the type checker'
	@echo 'make bench      speed of the soft switch, the network and the methods'
	@echo 'make bench-net  TCP through the soft switch and BMv2, side by side (root)'
	@echo 'make -C p4      compile the P4 program (needs p4c)'
	@echo 'make clean      remove .venv and caches; runs/ stays'

setup: $(READY)

$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	  || { echo 'canary needs Python 3.11 or newer: install python3, or say PYTHON=python3.12'; exit 2; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null \
	  || { echo 'canary needs the venv module: apt install python3-venv'; exit 2; }
	@echo 'setting up $(VENV) (once) ...'
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@$(BIN)/python -c 'from scenarios.warm_up import warm_up; warm_up()'
	@touch $@

scenario: $(READY)
	@$(BIN)/canary run $(given)

compare: $(READY)
	@$(BIN)/canary compare $(given)

analyze show: $(READY)
	@test -n '$(RUN)' || { echo 'say which run: make $@ RUN=runs/...'; exit 2; }
	@$(BIN)/canary $@ '$(RUN)'

net: $(READY)
	@$(BIN)/canary net $(given)

shell: $(READY)
	@test -n '$(SWITCH)' || { echo 'say which switch: make shell SWITCH=agg0_1'; exit 2; }
	@$(BIN)/canary shell '$(SWITCH)'

clean-net: $(READY)
	@$(BIN)/canary clean-net

# Tests of real packets run alone and in real time.
test: $(READY)
	@$(BIN)/pytest -q -m root
	@$(BIN)/pytest -q -n auto -m 'not root' $(if $(COVERAGE),--cov)

lint: $(READY)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/basedpyright

bench: $(READY)
	@$(BIN)/python -m tests.bench

bench-net: $(READY)
	@$(BIN)/python -m tests.bench.bench_net

p4:
	@$(MAKE) -C p4

lock:
	@$(PYTHON) -m venv $(VENV)-lock && $(VENV)-lock/bin/pip install --quiet pip-tools
	@$(VENV)-lock/bin/pip-compile --quiet --generate-hashes --allow-unsafe --extra dev --strip-extras \
	  --no-emit-index-url --no-emit-find-links --output-file requirements.lock pyproject.toml
	@rm -rf $(VENV)-lock

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
