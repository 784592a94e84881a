# make demo    TPC-H on four drives, with push-down and without: what stays at the drives
# make test    all checks and tests
# make bench   TPC-H measured side by side with DuckDB
# make reference    writes what docs/reference takes from the code: commands, settings, the Python package
# make clean   removes what the others made

# TPC-H scale of the demo and of the benchmark.
SCALE ?= 1
TARGET := $(or $(CARGO_TARGET_DIR),target)
PITHEAD := $(TARGET)/release/pithead
PYTHON := .tools/bin/python

# Clippy runs within the build, as a wrapper of rustc for our own crates: see tools/lint-rustc.
LINTED := RUSTC_WORKSPACE_WRAPPER=$(CURDIR)/tools/lint-rustc cargo
# Always the whole workspace: a part of it would see other features, and compile DataFusion again.
WHOLE := --release --workspace

.PHONY: demo test bench reference clean setup

demo: setup
	cargo build $(WHOLE)
	$(PITHEAD) bench demo --scale $(SCALE)

test: setup
	cargo fmt --check
	$(LINTED) build $(WHOLE) --all-targets
	$(TARGET)/release/xtask tidy
	$(PYTHON) tests/judge.py check
	$(LINTED) test $(WHOLE)
	cp $(TARGET)/release/lib_pithead.so python/pithead/_pithead.abi3.so
	PYTHONPATH=python $(PYTHON) -m pytest -q

bench: setup
	cargo build $(WHOLE)
	$(PITHEAD) bench tpch --scale $(SCALE)

# After `make test`, which builds the program and the module.
reference:
	PYTHONPATH=python:tools $(PYTHON) -m reference $(PITHEAD)

setup:
	@tools/setup.sh

clean:
	cargo clean
	rm -rf demo-data
