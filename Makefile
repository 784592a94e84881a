# make demo    TPC-H on four drives, with push-down and without: what stays at the drives
# make test    all checks and tests
# make bench   TPC-H measured side by side with DuckDB
# make install puts the program into PREFIX/bin, by default ~/.local/bin, with its man pages and completions
# make reference    writes what docs/reference takes from the code: commands, settings, the Python package
# make clean   removes what the others made

# TPC-H scale of the demo and of the benchmark.
SCALE ?= 1
PREFIX ?= $(HOME)/.local
TARGET := $(or $(CARGO_TARGET_DIR),target)
PITHEAD := $(TARGET)/release/pithead
PYTHON := .tools/bin/python

# Always the whole workspace: a part of it would see other features, and compile DataFusion again.
WHOLE := --release --workspace

.PHONY: demo test bench reference install clean setup

demo: setup
	cargo build $(WHOLE)
	$(PITHEAD) bench demo --scale $(SCALE)

test: setup
	cargo fmt --check
	cargo build $(WHOLE) --all-targets
	tools/lint $(TARGET)
	$(TARGET)/release/xtask tidy
	$(PYTHON) crates/e2e/suites/judge.py check
	RUST_BACKTRACE=0 cargo test $(WHOLE)
	cp $(TARGET)/release/lib_pithead.so python/pithead/_pithead.abi3.so
	PYTHONPATH=python $(PYTHON) -m pytest -q -n 2 --dist worksteal

bench: setup
	cargo build $(WHOLE)
	$(PITHEAD) bench tpch --scale $(SCALE)

install:
	@tools/setup.sh build
	cargo build $(WHOLE)
	install -D -s $(PITHEAD) $(PREFIX)/bin/pithead
	$(PREFIX)/bin/pithead man $(PREFIX)/share/man/man1
	mkdir -p $(PREFIX)/share/bash-completion/completions $(PREFIX)/share/fish/vendor_completions.d $(PREFIX)/share/zsh/site-functions
	$(PREFIX)/bin/pithead completions bash >$(PREFIX)/share/bash-completion/completions/pithead
	$(PREFIX)/bin/pithead completions fish >$(PREFIX)/share/fish/vendor_completions.d/pithead.fish
	$(PREFIX)/bin/pithead completions zsh >$(PREFIX)/share/zsh/site-functions/_pithead

# After `make test`, which builds the program and the module.
reference:
	PYTHONPATH=python:tools $(PYTHON) -m reference $(PITHEAD)

setup:
	@tools/setup.sh

clean:
	cargo clean
	rm -rf demo-data
