"""Results larger than memory: a MemoryError, and nothing else ends."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

# Each of the results would be several gigabytes.
SCRIPT = """
import resource
import pyarrow as pa
import pithead

with pithead.connect(drives=1, threads=2, memory="128MiB") as conn:
    conn.load("t", pa.table({{"k": range(20_000), "s": [f"{{k:0>40}}" for k in range(20_000)]}}))
    conn.load("n", pa.table({{"n": range(1_000)}}))
    relation = conn.sql("SELECT {columns} FROM t, n")
    assert len(relation.head(10_000)) == 10_000
    with open("/proc/self/statm") as sizes:
        pages = int(sizes.read().split()[0])
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (500 << 20), hard))
    try:
        relation.{take}()
    except MemoryError:
        print("MemoryError", flush=True)
    # What had piled up is gone, and the connection goes on.
    print(len(conn.sql("SELECT k, s FROM t").fetchall()), conn.sql("SELECT 41 + 1").fetchall(), flush=True)
print("closed", flush=True)
"""


@pytest.mark.parametrize(
    ("take", "columns"),
    [
        ("fetchall", "t.k, t.s, n.n"),
        ("fetchall", "t.k + 0.5 AS f, [t.s, t.s] AS l, t.k::DECIMAL(20, 2) AS d, {'a': t.s, 'b': n.n} AS r"),
        ("arrow", "t.k, t.s, n.n"),
    ],
)
def test_memory_that_runs_out_is_an_exception(take: str, columns: str) -> None:
    # Otherwise the engine's allocator takes a gigabyte at first, which would have to be filled.
    environment = {**os.environ, "MIMALLOC_ARENA_RESERVE": "65536"}
    script = SCRIPT.format(take=take, columns=columns)
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300, env=environment)
    assert ended.stdout == "MemoryError\n20000 [(42,)]\nclosed\n", ended.stderr
    assert ended.returncode == 0
    assert "panicked" not in ended.stderr and "memory allocation" not in ended.stderr, ended.stderr
