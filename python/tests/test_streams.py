"""Streams: bounded memory, cancelled by letting go, by Ctrl-C and by the end of the process."""

from __future__ import annotations

import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import pithead

# Far above what a machine of tests needs; nothing is measured by it.
PATIENCE = 60.0


def eventually(is_so: Callable[[], bool]) -> bool:
    end = time.monotonic() + PATIENCE
    while not is_so():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def sessions(conn: pithead.Connection) -> int:
    return sum(drive["sessions"] for drive in conn.drives().values())


def peak() -> int:
    """Bytes of memory that this process has had at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def test_more_rows_than_memory() -> None:
    with pithead.connect(drives=1, threads=1, memory="64MiB") as conn:
        conn.load("t", pa.table({"s": [f"{k:0>40}" for k in range(100_000)]}))
        conn.load("n", pa.table({"n": range(1200)}))
        # 120 million rows with a text of 40 bytes are 5 GB.
        relation = conn.sql("SELECT t.s, n.n FROM t, n")
        before, rows = peak(), 0
        for batch in relation:
            rows += batch.num_rows
            if rows > 10_000_000:
                break
        assert peak() - before < 400 << 20


def test_letting_go_cancels_at_the_drives(start_drives: Callable) -> None:
    drives = start_drives(2)
    with pithead.connect(drives.target) as conn:
        conn.load("t", pa.table({"k": pa.array(range(2_000_000)), "s": ["text"] * 2_000_000}), slice_rows=10_000)
        relation = conn.sql("SELECT k, s FROM t")
        reader = relation.reader()
        assert reader.read_next_batch().num_rows > 0
        assert sessions(conn) > 0
        del reader
        assert eventually(lambda: sessions(conn) == 0)
        assert 0 < relation.profile()["rows_from_drives"] < 2_000_000
        assert len(relation.head(3)) == 3
        assert eventually(lambda: sessions(conn) == 0)
        assert relation.fetchone() is not None
        del relation
        assert eventually(lambda: sessions(conn) == 0)


SCRIPT = """
import sys
import pithead
conn = pithead.connect(sys.argv[1])
relation = conn.sql("SELECT count(*) FROM t a, t b WHERE a.k + b.k > 1")
print("running", flush=True)
try:
    relation.{take}()
except KeyboardInterrupt:
    print("interrupted", sum(drive["sessions"] for drive in conn.drives().values()) >= 0, flush=True)
    print(conn.sql("SELECT 41 + 1").fetchall(), flush=True)
"""


@pytest.mark.parametrize("take", ["fetchall", "arrow", "pl"])
def test_ctrl_c_cancels_at_the_drives(start_drives: Callable, take: str) -> None:
    drives = start_drives(1)
    with pithead.connect(drives.target) as conn:
        # Billions of pairs: it does not end by itself.
        conn.load("t", pa.table({"k": pa.array(range(300_000))}))
        command = [sys.executable, "-c", SCRIPT.format(take=take), drives.target]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert child.stdout and child.stdout.readline() == "running\n"
        assert eventually(lambda: sessions(conn) > 0)
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=PATIENCE)
        assert out == "interrupted True\n[(42,)]\n", err
        assert eventually(lambda: sessions(conn) == 0)


LOADING = """
import itertools
import sys
import pyarrow as pa
import pithead
def rows():
    for number in itertools.count():
        if number == 30:
            print("running", flush=True)
        yield pa.record_batch({"k": pa.array(range(50_000))})
conn = pithead.connect(sys.argv[1])
try:
    conn.load("endless", pa.RecordBatchReader.from_batches(pa.schema({"k": pa.int64()}), rows()), slice_rows=10_000)
except KeyboardInterrupt:
    print("interrupted", [info.name for info in conn.datasets()], flush=True)
conn.close()
"""


def test_ctrl_c_gives_up_a_load(start_drives: Callable) -> None:
    drives = start_drives(1)
    kept = ("slices", "stored_bytes", "sessions", "memory_reserved")
    with pithead.connect(drives.target) as conn:

        def held() -> list[list[int]]:
            return [[drive[what] for what in kept] for drive in conn.drives().values()]

        # A drive has notes of its own, too.
        before = held()
        child = subprocess.Popen([sys.executable, "-c", LOADING, drives.target], stdout=subprocess.PIPE, text=True)
        assert child.stdout and child.stdout.readline() == "running\n"
        child.send_signal(signal.SIGINT)
        out, _ = child.communicate(timeout=PATIENCE)
        assert out == "interrupted []\n"
        assert eventually(lambda: held() == before)


def test_remote_drives_hold_what_is_loaded(start_drives: Callable) -> None:
    drives = start_drives(2)
    with pithead.connect(drives.addresses) as conn:
        conn.load("t", pa.table({"k": pa.array(range(100_000))}), partition_by=["k"])
        relation = conn.sql("SELECT sum(k) AS s FROM t WHERE k < 10")
        assert relation.fetchall() == [(45,)]
        assert 0 < relation.profile()["link_bytes"] < 100_000
    with pithead.connect(drives.target) as conn:
        assert conn.sql("SELECT count(*) FROM t").fetchone() == (100_000,)
        drives.processes[0].kill()
        with pytest.raises(pithead.DriveError):
            conn.sql("SELECT count(*) FROM t WHERE k > 7").fetchall()


def in_order(batches: list[pa.RecordBatch]) -> np.ndarray[Any, Any]:
    return np.sort(np.concatenate([batch.column("k").to_numpy() for batch in batches]))


@pytest.mark.parametrize("where", ["here", "there"])
def test_results_that_nobody_pulls_make_room(start_drives: Callable, where: str) -> None:
    target = {"target": start_drives(1).target} if where == "there" else {"drives": 1, "memory": "512MiB"}
    rows = 100_000
    with pithead.connect(**target) as conn:
        # A slice is a round and a batch: most of a result waits at the drive.
        conn.load("t", pa.table({"k": range(rows), "s": [f"{k:0>40}" for k in range(rows)]}), slice_rows=1_000)
        results = [iter(conn.sql("SELECT k, s FROM t")) for _ in range(40)]
        begun = [[next(result)] for result in results]
        start = time.monotonic()
        assert conn.sql("SELECT count(*), sum(k) FROM t").fetchall() == [(rows, rows * (rows - 1) // 2)]
        # It was refused for half a minute, and then for good.
        assert time.monotonic() - start < 20
        for batches, result in zip(begun, results, strict=True):
            batches += result
            assert np.array_equal(in_order(batches), np.arange(rows))
        assert eventually(lambda: sessions(conn) == 0)
        assert all(drive["memory_reserved"] == 0 for drive in conn.drives().values())


def test_a_result_that_nobody_pulls_leaves_the_drive_to_others(start_drives: Callable) -> None:
    rows = 100_000
    with pithead.connect(start_drives(1).target) as conn:
        conn.load("t", pa.table({"k": range(rows), "s": [f"{k:0>40}" for k in range(rows)]}), slice_rows=1_000)
        result = iter(conn.sql("SELECT k, s FROM t"))
        batches = [next(result)]
        assert sessions(conn) == 1
        assert eventually(lambda: sessions(conn) == 0)
        batches += result
        assert np.array_equal(in_order(batches), np.arange(rows))
