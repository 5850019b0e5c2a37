# SPDX-License-Identifier: Apache-2.0
# The front door: `make` lists what there is. The first target that needs it sets up .venv from a
# lock file (scenarios/command/install.py); nothing is installed outside this folder.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.users
READY_DEV := $(VENV)/.developers
READY_PLOT := $(VENV)/.plot
READY_CLUSTER := $(VENV)/.cluster
# The two distributions, canary and its soft switch.
OWN := pyproject.toml testbed/softswitch/pyproject.toml

# What make's own command line says, word for word: 'K=8' 'FAULTS=6links, none'. The environment sets
# nothing here; canary reads CANARY_K=8 and its like.
said := $(foreach v,$(.VARIABLES),$(if $(filter command,$(origin $v)),$v))
only = $(if $(filter command,$(origin $1)),$(value $1))
quoted = '$(subst ','\'',$1)'
words = $(foreach v,$(filter-out PYTHON,$(said)),$(call quoted,$v=$(value $v)))
rest = $(foreach v,$(filter-out PYTHON RUN TRUST,$(said)),$(call quoted,$v=$(value $v)))

# A value may be a stranger's: it is never expanded. Make would do so to put it into the environment,
# and would take each line of it for a command.
unexport $(said)
define line_end


endef
$(foreach v,$(said),$(if $(findstring $(line_end),$(value $v)),$(error make: $v= holds the end of a line, which make cannot pass on)))

targets := help help-options setup setup-dev setup-plot setup-cluster scenario compare reproduce analyze show ui export-lab net shell clean-net doctor calibrate \
	bundle test test-vm sanitize lint docs bench bench-net bench-peers bench-instructions wheels release p4 lock clean

# To make, a folder is a target that is done: without this, `make scenarios` does nothing and succeeds.
no_target := $(firstword $(filter-out $(targets) $(READY) $(READY_DEV) $(READY_PLOT) $(READY_CLUSTER),$(MAKECMDGOALS)))
# Words of Mininet, P4's tutorials and containerlab, and the nearest thing here.
elsewhere_run := make scenario makes a run, and make net brings the network up with Mininet's prompt
elsewhere_mn := make net brings the network up with Mininet's prompt
elsewhere_start := $(elsewhere_mn)
elsewhere_up := $(elsewhere_mn)
elsewhere_clab := make export-lab writes the network as a lab for containerlab
elsewhere_containerlab := $(elsewhere_clab)
elsewhere_deploy := $(elsewhere_clab)
elsewhere_stop := make clean-net removes what a crashed run left of its network
elsewhere_destroy := $(elsewhere_stop)
elsewhere_build := make setup sets up .venv, and make -C p4 compiles the P4 program
elsewhere_all := make scenario is the main job, and make alone lists the others
nearest = import difflib, sys; print(*difflib.get_close_matches(sys.argv[1], sys.argv[2:], 1))
ifneq (,$(no_target))
meant := $(shell $(PYTHON) -I -c $(call quoted,$(nearest)) $(call quoted,$(no_target)) $(targets))
$(error there is no target $(no_target): $(if $(elsewhere_$(no_target)),$(elsewhere_$(no_target)),$(if $(meant),did you mean make $(meant)?,make alone lists them)))
endif

# canary refuses the options that it does not know; the other targets take these.
takes_analyze := RUN TRUST METHODS PARAMETERS FAULT_RATE QUIET JSON VERBOSE FAIL_UNDER JUNIT SUMMARY
takes_show := RUN TRUST QUIET JSON VERBOSE FAIL_UNDER JUNIT SUMMARY
takes_shell := SWITCH FORCE
takes_test := COVERAGE
takes_p4 := P4C
takes_reproduce := FIG DRAWS OUT TRACE RESULTS CLUSTER QUIET JSON
goals := $(or $(MAKECMDGOALS),help)
ifeq (,$(filter scenario compare net export-lab,$(goals)))
takes := $(foreach g,$(goals),$(takes_$g))
unknown := $(filter-out PYTHON $(takes),$(said))
$(if $(unknown),$(error make $(goals): there is no option $(firstword $(unknown))=: $(if $(takes),choose of $(strip $(takes)),it takes none)))
endif

.DEFAULT_GOAL := help
.PHONY: $(targets)

help:
	@echo 'make scenario FAULTS=10pct K=4   break links, and see which method finds them'
	@echo 'make help-options                the settings of a run, and what targets take'
	@echo 'make compare SEEDS=1-20          many runs, with intervals and a plot; SWEEP=K=4'
	@echo 'make show RUN=DIR                the result of a run again; VERBOSE=1: all of it'
	@echo 'make ui                          all runs and comparisons in a browser'
	@echo 'make analyze RUN=DIR             diagnose a run again, without its network'
	@echo 'make reproduce                   figures and tables of the papers'
	@echo 'make net K=4                     the network with a prompt; SCRIPT=FILE'
	@echo 'make shell SWITCH=agg0_1         p4runtime-sh on a switch of that network'
	@echo 'make clean-net                   remove what a crashed run left of it'
	@echo 'make export-lab K=4              the network as a lab for containerlab'
	@echo 'make calibrate, make doctor      choose parameters; what this machine can run'
	@echo 'make test                        the tests; make lint: the checks; make docs'
	@echo 'make test-vm, make sanitize      netem in a virtual machine (root); sanitizers'
	@echo 'make bench, bench-net, bench-peers, bench-instructions   TCP; ns-3; valgrind'
	@echo 'make -C p4                       compile the P4 program; make wheels, release'
	@echo 'make setup, setup-plot, setup-cluster   what other targets do by themselves'
	@echo 'make clean, make bundle          remove .venv; one file for use without network'
	@echo
	@echo 'canary explain WORD              what a word on the screen means (.venv/bin)'

help-options:
	@echo 'make scenario, and make compare, net and export-lab, take:'
	@sed 's/^/  /' scenarios/command/options.txt
	@echo '  WATCH=1            shows it in a browser of this machine while it goes on'
	@echo '  SUDO=1             makes namespaces through sudo, where users may make none'
	@echo '  QUIET=1, JSON=1, VERBOSE=1   print the path alone, the figures as JSON, or everything'
	@echo '  FAIL_UNDER=canary=0.95       fails if F1 is less; JUNIT=FILE, SUMMARY=FILE  reports for CI'
	@echo 'make compare takes, too:'
	@echo '  SEEDS=1-50         a range, or a list; OUT=DIR [runs/compare-<scenario>-<key>]'
	@echo '  SWEEP=K=4,8,16     once for each value of a setting; values with commas: with ; between'
	@echo '  METHODS=flock:p_bad=0.01,007  some methods, with parameters (docs/reference/methods.md), or mine.py'
	@echo '  PARAMETERS=default|paper|FILE  of all methods; FAULT_RATE=0.001  what a fault is'
	@echo 'make show and analyze:   TRUST=1 reads a run that was changed on purpose, too'
	@echo 'make reproduce:   FIG=canary-8, quick or all; DRAWS=20; OUT=DIR; QUIET=1, JSON=1'
	@echo 'make export-lab:   MACHINES=192.0.2.1,192.0.2.2 for several machines; OUT=DIR [<scenario>-lab]'
	@echo 'make shell:   FORCE=1 takes the switch from its controller, to write to it'
	@echo 'make test:   COVERAGE=1 says how much of the Python code it reaches'

setup: $(READY)

setup-dev: $(READY_DEV)

setup-plot: $(READY_PLOT)

setup-cluster: $(READY_CLUSTER)

# What compares takes Matplotlib, and Dask if it is for a cluster.
shows := $(READY_PLOT) $(if $(call only,CLUSTER),$(READY_CLUSTER))

# What Python runs here, also pip and pytest, imports nothing from this folder but what it is told to.
$(READY) $(READY_DEV) $(READY_PLOT) $(READY_CLUSTER) test sanitize lint: export PYTHONSAFEPATH := 1

# Each kind of installation has a lock file.
NEEDS_UNIX = canary needs Linux or macOS: on Windows take WSL 2, or the virtual machine in vagrant/ (docs/project/systems.md)
INSTALL = $(PYTHON) -I -c 'import sys; sys.exit(sys.platform in ("win32", "cygwin"))' \
	|| { echo '$(NEEDS_UNIX)' >&2; exit 2; }; \
	$(PYTHON) -I -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	|| { echo 'canary needs Python 3.11 or newer: install python3, or say PYTHON=python3.12' >&2; exit 2; }; \
	$(PYTHON) -I scenarios/command/install.py

$(READY): requirements.lock $(OWN)
	@$(INSTALL) users

$(READY_DEV): requirements-dev.lock requirements.lock $(OWN)
	@$(INSTALL) developers

$(READY_PLOT) $(READY_CLUSTER): $(VENV)/.%: requirements-%.lock $(OWN) | $(READY)
	@$(INSTALL) $*

scenario: $(READY)
	@$(BIN)/canary run $(words)

compare: $(READY) $(shows)
	@$(BIN)/canary compare $(words)

reproduce: $(READY) $(if $(call only,FIG),$(shows))
	@$(BIN)/canary reproduce $(words)

analyze show: $(READY)
	@test -n $(call quoted,$(call only,RUN)) || { echo 'say which run: make $@ RUN=runs/...'; exit 2; }
	@$(BIN)/canary $@$(if $(call only,TRUST), --trust)$(if $(rest), $(rest)) -- $(call quoted,$(call only,RUN))

ui: $(READY)
	@$(BIN)/canary ui

calibrate: $(READY)
	@$(BIN)/canary calibrate --out scenarios/calibrated.yaml

export-lab: $(READY)
	@$(BIN)/canary export-lab $(words)

net: $(READY)
	@$(BIN)/canary net $(words)

shell: $(READY)
	@test -n $(call quoted,$(call only,SWITCH)) || { echo 'say which switch: make shell SWITCH=agg0_1'; exit 2; }
	@$(BIN)/canary shell $(if $(call only,FORCE),--force )-- $(call quoted,$(call only,SWITCH))

clean-net: $(READY)
	@$(BIN)/canary clean-net

# Matplotlib is packed, too, and a clone that has it can draw.
bundle: $(READY) $(READY_PLOT)
	@$(BIN)/canary bundle

doctor: $(READY)
	@$(BIN)/canary doctor

test: $(READY_DEV)
	@$(BIN)/python -P tests/stages.py $(if $(call only,COVERAGE),--cov)

test-vm: $(READY_DEV)
	@tests/vm/boot -t 3600 $(BIN)/python -P -m pytest -q -s -p no:cacheprovider \
		$(addprefix tests/testbed/network/mininet/,test_kernel_injectors.py test_conservation.py)

# The compiler's flags are part of what a compiled library is kept under. Python itself leaks.
SANITIZED = $(BIN)/pytest -q -s -p no:cacheprovider tests/testbed/network/test_threads.py \
	tests/testbed/network/test_virtual.py testbed/softswitch/tests/test_forward.py
sanitize: $(READY_DEV)
	@CC='gcc -g -fsanitize=thread' LD_PRELOAD="$$(gcc -print-file-name=libtsan.so)" \
		TSAN_OPTIONS="exitcode=66 ignore_noninstrumented_modules=1" $(SANITIZED)
	@CC='gcc -g -fsanitize=address,undefined -fno-sanitize-recover=undefined' \
		LD_PRELOAD="$$(gcc -print-file-name=libasan.so)" \
		ASAN_OPTIONS=detect_leaks=0 $(SANITIZED)

lint: $(READY_DEV)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/basedpyright

# A link to a page or a heading that does not exist is a warning, and so an error.
docs: $(READY_DEV)
	@$(BIN)/python -P -m sphinx --fresh-env --fail-on-warning --keep-going -q -b html docs docs/_build/html
	@echo 'docs/_build/html/index.html'

wheels: $(READY_DEV)
	@$(BIN)/python -m tests.distributions dist

release: $(READY_DEV)
	@$(BIN)/python -m tests.release dist

bench: $(READY_DEV)
	@$(BIN)/python -m tests.bench

bench-instructions: $(READY_DEV)
	@$(BIN)/python -m tests.bench.instructions

bench-peers: $(READY_DEV)
	@$(BIN)/python -m tests.bench.bench_peers $(if $(NS3),--ns3 '$(NS3)')

bench-net: $(READY_DEV)
	@$(BIN)/python -m tests.bench.bench_net

p4:
	@$(MAKE) -C p4

# The locks are for Python 3.11 and newer on every system. That of an extra holds what the users' lacks,
# and the developers' holds all of them but uv's. The soft switch is in this folder, and in no lock.
LOCK = UV_CUSTOM_COMPILE_COMMAND='make lock' $(VENV)-lock/bin/uv pip compile --quiet --universal \
	--python-version 3.11 --generate-hashes --no-strip-extras --no-emit-index-url --no-annotate \
	--no-emit-package canary-softswitch pyproject.toml
EXTRAS := plot cluster compiler
lock:
	@$(PYTHON) -I -m venv $(VENV)-lock && $(VENV)-lock/bin/pip install --quiet uv
	@$(LOCK) --extra build --extra real --output-file requirements.lock
	@for extra in $(EXTRAS) uv; do \
		$(LOCK) --extra $$extra --constraint requirements.lock --output-file requirements-$$extra.lock \
			$$(sed -n 's/^\([a-z0-9-]*\)==.*/--no-emit-package \1/p' requirements.lock) || exit; \
	done
	@$(LOCK) --extra build --extra real $(EXTRAS:%=--extra %) --extra dev --extra docs --constraint requirements.lock \
		$(EXTRAS:%=--constraint requirements-%.lock) --output-file requirements-dev.lock
	@rm -rf $(VENV)-lock

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis docs/_build docs/gallery docs/figures_made dist *.egg-info testbed/softswitch/*.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
