"""Connections: settings, errors by kind, threads, ends."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

import pithead
from pithead import _cpu


def test_statements_without_rows_run_at_once(conn: pithead.Connection) -> None:
    conn.load("t", pa.table({"k": [1]}))
    done = conn.sql("SET pithead.pushdown = off")
    (shown,) = conn.sql("SHOW pithead.pushdown").fetchall()
    assert shown == ("pithead.pushdown", "false")
    dropped = conn.execute("DROP TABLE t")
    assert conn.datasets() == []
    conn.load("t", pa.table({"k": [1]}))
    conn.sql("SET pithead.pushdown = on")
    for relation in (done, dropped):
        # Its rows are taken as often as one likes, and the statement does not run again.
        for _ in range(2):
            assert relation.fetchall() == relation.fetchmany(3) == relation.head() == list(relation) == []
            assert relation.fetchone() is None and relation.columns == [] and len(relation.schema) == 0
            assert relation.arrow().num_rows == len(relation.df()) == len(relation.pl()) == 0
            assert relation.fetchnumpy() == {} and relation.reader().read_all().num_columns == 0
            assert relation.profile()["sessions"] == 0
        assert "(no rows)" in repr(relation) and "no rows" in relation._repr_html_()
        with pytest.raises(pithead.UserError, match="no plan"):
            relation.explain()
    assert conn.sql("SHOW pithead.pushdown").fetchall() == [("pithead.pushdown", "true")]
    assert len(conn.datasets()) == 1


@pytest.mark.parametrize(
    ("query", "kind", "told"),
    [
        ("SELEC 1", pithead.UserError, "SELEC"),
        ("SELECT nothing FROM t", pithead.UserError, "nothing"),
        ("SELECT * FROM ttt", pithead.UserError, "ttt"),
        ("SELECT 1; SELECT 2", pithead.UserError, "exactly one"),
        ("CREATE INDEX i ON t (k)", pithead.UnsupportedError, "CREATE"),
        ("INSERT INTO t VALUES (1, 2)", pithead.UserError, "expected 1"),
        ("SET pithead.pushdown = perhaps", pithead.UserError, "perhaps"),
        ("SELECT " + "+".join("k" * 5000) + " FROM t", pithead.LimitError, "operators"),
    ],
)
def test_mistakes_are_raised_at_once(conn: pithead.Connection, query: str, kind: type[pithead.Error], told: str) -> None:
    conn.load("t", pa.table({"k": [1]}))
    with pytest.raises(kind, match=told) as raised:
        conn.sql(query)
    assert isinstance(raised.value, pithead.Error)


def test_errors_of_rows_keep_their_kind(conn: pithead.Connection) -> None:
    conn.load("t", pa.table({"k": ["1", "x"]}))
    relation = conn.sql("SELECT CAST(k AS BIGINT) AS n FROM t")
    for take in [relation.fetchall, relation.arrow, relation.df, relation.pl, relation.fetchone, relation.fetchnumpy]:
        with pytest.raises(pithead.UserError, match="'x'"):
            take()
    with pytest.raises(Exception, match="'x'"):
        pa.RecordBatchReader.from_stream(relation).read_all()


def test_hints_are_said(conn: pithead.Connection) -> None:
    conn.load("lineitem", pa.table({"k": [1]}))
    with pytest.raises(pithead.UserError) as raised:
        conn.sql("SELECT $1")
    assert raised.value.hint and str(raised.value).endswith(f"hint: {raised.value.hint}")
    with pytest.raises(pithead.UserError, match="lineitem"):
        conn.sql("SELECT * FROM lineitm")


def test_threads_share_a_connection(conn: pithead.Connection) -> None:
    conn.load("t", pa.table({"k": range(100_000)}))
    conn.sql("SET pithead.pushdown = off")

    def work(number: int) -> tuple[object, ...]:
        level = conn.sql("SHOW pithead.pushdown").fetchone()
        return (level, conn.sql("SELECT count(*) FROM t WHERE k % 16 = $1", [number]).fetchone())

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(work, range(16)))
    assert answers == [(("pithead.pushdown", "false"), (6250,))] * 16


def test_waiting_leaves_other_threads_running(conn: pithead.Connection) -> None:
    conn.load("t", pa.table({"k": range(3000)}))
    ticks, done = 0, threading.Event()

    def query() -> None:
        conn.sql("SELECT count(*) FROM t a, t b WHERE a.k + b.k > 3").fetchall()
        done.set()

    thread = threading.Thread(target=query)
    thread.start()
    while not done.wait(0.001):
        ticks += 1
    thread.join()
    assert ticks > 3


def test_closing_ends_what_runs(conn: pithead.Connection) -> None:
    conn.load("t", pa.table({"k": range(200_000)}))
    reader = conn.sql("SELECT a.k FROM t a, t b").reader()
    assert reader.read_next_batch().num_rows > 0
    conn.close()
    conn.close()
    assert "closed" in repr(conn)
    with pytest.raises(Exception, match="closed"):
        while reader.read_next_batch():
            pass
    with pytest.raises(pithead.UserError, match="closed"):
        conn.sql("SELECT 1")


def test_data_stays_in_a_directory_and_goes_from_a_temporary_one(tmp_path: Path) -> None:
    with pithead.connect(tmp_path / "data", drives=3) as conn:
        conn.load("t", pa.table({"k": [1, 2]}))
        assert len(conn.drives()) == 3
        with pytest.raises(pithead.Error):
            pithead.connect(tmp_path / "data")
    with pithead.connect(str(tmp_path / "data"), memory="512MiB", threads=1) as conn:
        assert conn.sql("SELECT sum(k) FROM t").fetchone() == (3,)
    script = "import pithead; c = pithead.connect(); print(c._finalizer.peek()[2][1]); c.sql('SELECT 1').fetchall()"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert not Path(done.stdout.strip()).exists() and not done.stderr


def test_a_connection_that_is_forgotten_lets_go(tmp_path: Path) -> None:
    pithead.connect(tmp_path / "data", drives=1)
    gc.collect()
    pithead.connect(tmp_path / "data").close()


@pytest.mark.parametrize(
    ("target", "options", "told"),
    [
        ("pithead://", {}, "at least one address"),
        ("data", {"threads": 0}, "threads"),
        ("data", {"memory": "much"}, "size"),
        ("data", {"drives": 1000}, "1 to 64 drives"),
        ("data", {"drives": -1}, "drives: expected 1 or more, got -1"),
        ("data", {"drives": "2"}, "drives: expected a whole number, got '2' of type str"),
        ("data", {"drives": True}, "drives: expected a whole number"),
        ("data", {"threads": -3}, "threads: expected 1 or more, got -3"),
        ("data", {"threads": 10**30}, "threads"),
        ("data", {"memory": 0}, "memory: expected at least 1 MiB, got 0 bytes"),
        ("data", {"memory": "0"}, "memory: expected at least 1 MiB, got 0 bytes"),
        ("data", {"memory": -1}, "memory: expected 0 or more, got -1"),
        ("data", {"memory": b"1GiB"}, "memory: expected a whole number, got b'1GiB' of type bytes"),
        ("pithead://127.0.0.1:1", {"token": b"0" * 40}, "token: expected a str"),
        ("pithead://127.0.0.1:1", {"ca": b"ca.pem"}, "ca: expected a path"),
        ("pithead://127.0.0.1:1", {"token": "short"}, "token"),
        ("pithead://127.0.0.1:1", {"cert": "c"}, "both"),
        ("pithead://127.0.0.1:1", {"cert": "c", "key": "k"}, "TLS"),
    ],
)
def test_what_cannot_be_connected_to_is_refused(tmp_path: Path, target: str, options: dict[str, object], told: str) -> None:
    target = target if "://" in target else str(tmp_path / target)
    with pytest.raises(pithead.UserError, match=told):
        pithead.connect(target, **options)


def test_drives_that_do_not_answer() -> None:
    with pytest.raises(pithead.DriveError, match="127.0.0.1:1"):
        pithead.connect("pithead://127.0.0.1:1")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_forked_process_is_told(conn: pithead.Connection) -> None:
    assert conn.sql("SELECT 1").fetchall() == [(1,)]
    out, into = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            conn.sql("SELECT 1")
            told = "no error"
        except pithead.UserError as error:
            told = str(error)
        except BaseException as error:
            told = repr(error)
        conn.close()
        os.write(into, told.encode())
        os._exit(0)
    os.close(into)
    with os.fdopen(out) as told:
        assert "forked" in (text := told.read()) and "spawn" in text
    assert os.waitpid(child, 0)[1] == 0
    assert conn.sql("SELECT 2").fetchall() == [(2,)]


def test_a_cpu_that_lacks_something_is_named() -> None:
    assert _cpu.missing() is None
    assert _cpu.missing("fpu avx bmi1 bmi2 f16c fma abm movbe") == "avx2"
    assert _cpu.missing("") is None


def test_a_statement_runs_once_for_each_set_of_parameters(conn: pithead.Connection) -> None:
    conn.execute("CREATE TABLE t (k INT, name TEXT)")
    assert conn.executemany("INSERT INTO t VALUES (?, ?)", ((k, str(k)) for k in range(3))).fetchall() == []
    assert conn.sql("SELECT k, name FROM t ORDER BY k").fetchall() == [(0, "0"), (1, "1"), (2, "2")]
    assert conn.executemany("SELECT ? + 1", [[1], [2]]).fetchall() == [(3,)]
    assert conn.executemany("SELECT $k", [{"k": 1}, {"k": 2}]).fetchall() == [(2,)]
    for wrong, told in [
        ([], "at least one"),
        (None, "list of sets"),
        ("ab", "list of sets"),
        ({"k": 1}, "list of sets"),
        ([None], "got None"),
        ([[7, "x"], 8], "as a list or a dict"),
    ]:
        with pytest.raises(pithead.UserError, match=told):
            conn.executemany("INSERT INTO t VALUES (?, ?)", wrong)
    # All sets are looked at before the first one is taken.
    assert conn.sql("SELECT count(*) FROM t").fetchone() == (3,)


def test_a_directory_has_one_connection_at_a_time(tmp_path: Path) -> None:
    one = pithead.connect(tmp_path / "data", drives=1)
    with pytest.raises(pithead.UserError, match="another connection of this process") as raised:
        pithead.connect(tmp_path / "data" / ".." / "data")
    assert "close()" in str(raised.value)
    one.close()
    with pithead.connect(tmp_path / "data") as again:
        assert again.datasets() == []


def test_a_statement_that_returns_rows_runs_once(conn: pithead.Connection) -> None:
    conn.sql("CREATE TABLE returned (a INT, b TEXT)")
    added = conn.sql("INSERT INTO returned VALUES ($1, 'x'), (2, NULL) RETURNING a, b || '!' AS told", [1])
    assert added.columns == ["a", "told"]
    for _ in range(2):
        assert sorted(added.fetchall()) == [(1, "x!"), (2, None)]
        added = conn.sql("SELECT * FROM added")
    assert conn.sql("SELECT count(*) FROM returned").fetchone() == (2,)
    assert conn.execute("DELETE FROM returned WHERE a = 7 RETURNING a").fetchall() == []
    with pytest.raises(pithead.UserError, match="two columns of one name"):
        conn.sql("DELETE FROM returned RETURNING a, a")
    with pytest.raises(pithead.Error, match="RETURNING"):
        conn.sql("UPDATE returned SET a = a + 1 RETURNING sum(a)")
    assert conn.executemany("INSERT INTO returned VALUES (?, 'y') RETURNING a", [[5], [6]]).fetchall() == [(6,)]
    assert conn.sql("SELECT sum(a) FROM returned").fetchone() == (14,)
