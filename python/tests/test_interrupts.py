"""Ctrl-C, timeouts and the interpreter's end while something runs: each in a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pyarrow as pa
import pytest

import pithead

# A query over a dataset three times joined with itself went on for minutes after Ctrl-C, at full CPU.
HEAVY = "SELECT a.id FROM t a, t b, t c WHERE a.id + b.id + c.id = -1"
LOADED = """
import pyarrow as pa, pithead
conn = pithead.connect(drives=2)
conn.load("t", pa.table({"id": list(range(100_000)), "k": [i % 3 for i in range(100_000)]}))
print("ready", flush=True)
"""
# Longest that an end may take, on a busy machine.
END_S = 20


def interrupted(script: str, folder: Path, after_s: float = 2.0) -> tuple[int, str, float]:
    """Runs a script, and sends it SIGINT a while after it has said that it is ready: exit code, stderr, and how long it took."""
    environment = {**os.environ, "TMPDIR": str(folder)}
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == "ready"
        time.sleep(after_s)
        start = time.monotonic()
        process.send_signal(signal.SIGINT)
        try:
            _, stderr = process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        return process.returncode, stderr, time.monotonic() - start


@pytest.mark.parametrize(
    "take",
    [
        f'for batch in conn.sql("{HEAVY}"): pass',
        f'conn.sql("{HEAVY}").fetchall()',
        f'conn.sql("{HEAVY}").arrow()',
        'conn.sql("SELECT count(*) FROM t a JOIN t b ON a.k = b.k AND a.id + b.id = -1").fetchall()',
    ],
)
def test_ctrl_c_ends_a_heavy_query(take: str, tmp_path: Path) -> None:
    code, stderr, seconds = interrupted(LOADED + take, tmp_path)
    assert "KeyboardInterrupt" in stderr.strip().splitlines()[-1], stderr
    assert "ArrowInvalid" not in stderr.strip().splitlines()[-1], stderr
    assert code == -signal.SIGINT, stderr
    assert seconds < END_S
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("pause", ["time.sleep(0.05)", "time.sleep(1)", "sum(range(20_000))"])
def test_an_interrupted_load_from_a_generator_ends_cleanly(pause: str, tmp_path: Path) -> None:
    script = f"""
import time, pyarrow as pa, pithead
conn = pithead.connect(drives=2)
schema = pa.schema([("id", pa.int64())])
def batches():
    yield pa.record_batch({{"id": [1]}}, schema)
    print("ready", flush=True)
    while True:
        {pause}
        yield pa.record_batch({{"id": list(range(100))}}, schema)
conn.load("t", pa.RecordBatchReader.from_batches(schema, batches()))
"""
    code, stderr, seconds = interrupted(script, tmp_path, after_s=1.0)
    assert code == -signal.SIGINT, stderr
    assert "Fatal" not in stderr, stderr
    assert seconds < END_S
    assert list(tmp_path.iterdir()) == []


def test_a_statement_ends_at_its_timeout() -> None:
    with pithead.connect(drives=2) as conn:
        conn.load("t", pa.table({"id": list(range(100_000))}))
        conn.sql("SET statement_timeout = '1s'")
        start = time.monotonic()
        with pytest.raises(pithead.LimitError, match="statement_timeout"):
            conn.sql(HEAVY).fetchall()
        with pytest.raises(pithead.LimitError, match="statement_timeout"):
            for _ in conn.sql(HEAVY):
                pass
        assert time.monotonic() - start < END_S
        conn.sql("SET statement_timeout = 0")
        assert conn.sql("SELECT count(*) FROM t").fetchall() == [(100_000,)]
        with pytest.raises(pithead.UserError, match="statement_timeout"):
            conn.sql("SET statement_timeout = 'soon'")


def test_small_queries_are_answered_beside_a_heavy_one() -> None:
    with pithead.connect(drives=1) as conn:
        conn.load("t", pa.table({"id": list(range(100_000))}))
        ended = threading.Event()

        def heavy() -> None:
            with pytest.raises(pithead.Cancelled):
                conn.sql(HEAVY).fetchall()
            ended.set()

        thread = threading.Thread(target=heavy)
        thread.start()
        time.sleep(2)
        start = time.monotonic()
        assert conn.sql("SELECT count(*) FROM t WHERE id % 2 = 0").fetchall() == [(50_000,)]
        assert time.monotonic() - start < END_S and not ended.is_set()
        conn.close()
        thread.join(END_S)
        assert ended.is_set()
