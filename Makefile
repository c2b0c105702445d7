# Two commands from a fresh clone: `make quickstart` and `make test`; Python >= 3.11 is all they need.
# A paper's experiments: `make reproduce PAPER=dc2`, dct, netsense, covap or acp_sgd; SCALE=paper needs the real data.
# The distribution's comes first: it is built with profile-guided optimization, which pyenv leaves out unless it is told to.
PYTHON = $(shell for p in /usr/bin/python3 python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV := .venv
RUN := $(VENV)/bin/python
TORCH := auto
SCALE := laptop
# Machines of tests, side by side. Whole runs wait at times: with three, two processors are busy for nine tenths of the time and more.
MACHINES := 3
SIDE_BY_SIDE := --dist loadfile --no-loadscope-reorder --tx '$(MACHINES)*popen//python=$(RUN) -m tests.machine'
SHORT := not launch and not network and not timed and not long and not faults

# What Python has compiled is kept, wherever tests are run: it is a quarter of what an import takes.
unexport PYTHONDONTWRITEBYTECODE

FAULTS := tests/test_bad_settings.py tests/test_refused.py tests/test_manifest.py tests/test_outputs.py \
	tests/analysis/test_untrusted.py tests/analysis/test_damages.py tests/emulation/test_rendezvous.py tests/emulation/test_outside.py \
	tests/parameter_server/test_fuzzed.py tests/pipeline/test_faults.py tests/profiles/test_bad_files.py \
	tests/training/test_crafted_checkpoints.py tests/training/test_state_dict_laws.py \
	tests/training/test_state_dict.py tests/test_slurm.py tests/test_first_hour.py $(foreach of,causes clock_step damage faults fooled kills limits locks \
	machine_lock signals storage tampered teardown,tests/runner/test_$(of).py)

.PHONY: setup quickstart reproduce test faults check docs lint bench clean

# The package and all extras. TORCH=cpu or cuda insists on a build of torch; auto looks for a driver of NVIDIA.
setup: $(VENV)/.dev-$(TORCH)

# One rule for both: what the quickstart needs, and that with all extras.
$(VENV)/.package-$(TORCH) $(VENV)/.dev-$(TORCH): $(VENV)/.%-$(TORCH): pyproject.toml constraints.txt requirements.lock \
		requirements-torch.lock scripts/install.py scripts/system-packages
	@sh scripts/system-packages $(filter package,$*)
	@test -x $(RUN) || $(MAKE) --no-print-directory $(RUN)
	@$(RUN) scripts/install.py $* $(TORCH)
	@touch $@

$(RUN):
	@test -n "$(PYTHON)" || { echo "need Python >= 3.11 with venv (Debian: apt-get install python3-venv)"; exit 1; }
	$(PYTHON) -m venv $(VENV)

# The answer in virtual time first, then the proof over packets; SEEDS=0,1,2 gives intervals.
SEEDS := 0
quickstart: $(VENV)/.package-$(TORCH)
	$(RUN) -m harness.quickstart seed=$(SEEDS)

reproduce: setup
	@test -n "$(PAPER)" || { echo "say which: make reproduce PAPER=dc2"; exit 1; }
	$(RUN) -m harness study reproduce $(PAPER) scale=$(SCALE)

test: setup
	sh scripts/system-packages test
	$(RUN) -m pytest $(SIDE_BY_SIDE)

# All that may hurt, in its long form: what is told, what is left, what the same command does next.
faults: setup
	sh scripts/system-packages test
	$(RUN) -m pytest $(SIDE_BY_SIDE) -m "faults or not faults" $(FAULTS)

# The budget of lines, functions and keys, and the short tests affected by your change: run it before every commit.
check: setup
	@$(RUN) -m tests.budget
	@touched=$$($(RUN) -m tests.touched $(BASE)) || exit 1; \
	test -n "$$touched" || { echo "no test is touched"; exit 0; }; \
	$(RUN) -m pytest -q $(SIDE_BY_SIDE) -m "$(SHORT)" $$touched

# The site: build/docs/index.html, which opens without a network. A warning is an error.
docs: setup
	$(RUN) -m sphinx -q -W --keep-going -b html -c docs -d build/doctrees . build/docs
	@echo build/docs/index.html

lint: setup
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy

bench: setup
	for name in network collectives ddp compression overlap; do \
		echo "== $$name"; $(RUN) benchmarks/$$name.py || exit 1; done

clean:
	rm -rf $(VENV) build docs/reference .pytest_cache .ruff_cache .mypy_cache *.egg-info
