# Two commands set everything up on a fresh Debian or Ubuntu machine: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
FASHION := examples/fashion
DEMO := build/fashion

.PHONY: help demo test docs quick slow deep fuzz prove mutate check bench reproduce clean

help:
	@echo "make demo       plan, build, simulate, synthesize and report on a bundled network (under 5 minutes)"
	@echo "make test       all tests, with the real tools: make quick, then make slow"
	@echo "make quick      the tests that need no Verilator, Yosys or Chromium (under 3 minutes on 2 cores)"
	@echo "make slow       the tests that make quick leaves out"
	@echo "make deep       the long tests, which make test leaves out; goes on where it was stopped"
	@echo "make fuzz       the tests' laws on new random cases, then damaged files that reach new code of each reader, MINUTES=5"
	@echo "make prove      the engine families' Verilog proven equal to the integers, for every input; goes on where it was stopped"
	@echo "make mutate     400 seeded changes of the sources, each tried with the tests that execute it; goes on where it was stopped"
	@echo "make docs       the documentation as pages (dovetail docs --open), without network and with no dead link"
	@echo "make check      ruff, mypy --strict, import-linter"
	@echo "make bench      figures beside peers, as JSON in build/bench"
	@echo "make reproduce  the example's accuracy on all 10,000 test images"
	@echo "make clean      remove everything made here"

$(VENV)/.ready: pyproject.toml scripts/system-packages
	@scripts/system-packages build
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed, this is $$($(PYTHON) --version); set PYTHON=python3.11" >&2; exit 2; }
	@echo "setting up $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[fpga,serve]'
	@touch $@

# What developers need on top: test tools, linters, the ECP5 and Gowin routers, and PyTorch without a GPU for Triton's interpreter.
TORCH := torch==2.13.0
$(VENV)/.ready-dev: $(VENV)/.ready
	@scripts/system-packages test
	@$(BIN)/python -m pip install -q -q --disable-pip-version-check --retries 1 --timeout 20 \
	  --extra-index-url https://download.pytorch.org/whl/cpu $(TORCH)
	@$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[fpga,pnr,gpu,dev]'
	@touch $@

demo: $(VENV)/.ready
	$(BIN)/dovetail inspect $(FASHION)/fashion.onnx
	$(BIN)/dovetail compile $(FASHION)/fashion.onnx -p tx2-c10gx --calibration $(FASHION)/calibration.npz --fold none --thrift 0.05 -o $(DEMO)
	$(BIN)/dovetail synth $(DEMO)
	$(BIN)/python $(FASHION)/accuracy.py $(DEMO) --images $(FASHION)/test_images.npz
	@echo "open $(DEMO)/report.html in a browser, $(DEMO)/trace.json at ui.perfetto.dev"

# Long files first, in two processes; `make test RECORD=--record-durations` writes anew how long each takes.
RECORD ?=
PYTEST := $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -q $(RECORD)

test: $(VENV)/.ready-dev
	$(PYTEST) --tier quick
	$(PYTEST) --tier slow

quick slow: $(VENV)/.ready-dev
	$(PYTEST) --tier $@

# Long tests: what passed on this commit is not run again.
deep: $(VENV)/.ready-dev
	@$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[exporters]'
	$(PYTEST) --deep build/deep.json

MINUTES ?= 5
fuzz: $(VENV)/.ready-dev
	$(BIN)/python scripts/fuzz --minutes $(MINUTES)
	@$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[fuzz]'
	$(BIN)/python scripts/fuzz_readers --minutes $(MINUTES)

prove: $(VENV)/.ready-dev
	$(BIN)/python scripts/prove

mutate: $(VENV)/.ready-dev
	$(BIN)/python scripts/mutate

docs: $(VENV)/.ready-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

$(VENV)/.ready-docs: $(VENV)/.ready
	@$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[docs]'
	@touch $@

check: $(VENV)/.ready-dev
	$(BIN)/ruff check src tests bench examples
	$(BIN)/mypy
	$(BIN)/lint-imports

# Script, or script:part. Left out: those of a GPU and of training, mutated builds (half an hour), tables of constants and of work.
BENCHES := check_figures clocks dhm dhm:layers engines:area engines:network engines:firb engines:arrays fibha lq models numerics \
  numerics:builds numerics:imported numerics:pretrained numerics:unseen optimizer planning planning:branches runtime serve zoo
bench: $(VENV)/.ready
	@$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[fpga,pnr,bench,peers,serve]'
	@mkdir -p build/bench
	@set -e; for b in $(BENCHES); do \
	  command="bench/$$(echo $$b | sed -e 's/:/.py --part /;t' -e 's/$$/.py/') --json build/bench/$$(echo $$b | tr : -).json"; \
	  echo "$$command"; $(BIN)/python $$command; done

reproduce: $(VENV)/.ready $(DEMO)/manifest.json
	@scripts/system-packages data
	$(BIN)/python $(FASHION)/accuracy.py $(DEMO) --all

$(DEMO)/manifest.json: $(VENV)/.ready
	$(BIN)/dovetail compile $(FASHION)/fashion.onnx -p tx2-c10gx --calibration $(FASHION)/calibration.npz --fold none --thrift 0.05 -o $(DEMO)

clean:
	rm -rf $(VENV) build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache src/*.egg-info
