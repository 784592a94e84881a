"""Tables as they were: read, listed and restored from Python."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

import pithead
import pytest


@pytest.fixture
def conn(tmp_path: Path):
    with pithead.connect(tmp_path / "data", drives=2) as conn:
        conn.sql("CREATE TABLE t AS SELECT value AS a FROM range(10)")
        conn.sql("INSERT INTO t SELECT value + 10 FROM range(5)")
        conn.sql("DELETE FROM t WHERE a < 3")
        yield conn


def test_versions_are_read(conn: pithead.Connection) -> None:
    counts = [conn.sql(f"SELECT count(*) FROM t AS OF VERSION {version}").fetchone() for version in (1, 2, 3)]
    assert counts == [(10,), (15,), (12,)]
    assert len(conn.table("t", version=1).fetchall()) == 10
    changed = conn.sql("SELECT old.a FROM t AS OF VERSION 2 AS old LEFT JOIN t USING (a) WHERE t.a IS NULL ORDER BY 1")
    assert changed.fetchall() == [(0,), (1,), (2,)]


def test_the_log_says_what_changed(conn: pithead.Connection) -> None:
    log = conn.log()
    changes = [(entry.version, entry.name, entry.change, entry.rows, entry.rows_added, entry.rows_removed) for entry in log]
    assert changes == [(3, "t", "rewritten", 12, 0, 3), (2, "t", "appended", 15, 5, 0), (1, "t", "created", 10, 10, 0)]
    times = [entry.time for entry in log]
    assert all(time is not None and time.tzinfo is not None for time in times)
    assert len(conn.table("t", time=times[1]).fetchall()) == 15
    assert len(conn.table("t", time=datetime.now(timezone.utc)).fetchall()) == 12


def test_a_dropped_table_comes_back_after_a_restart(conn: pithead.Connection, tmp_path: Path) -> None:
    conn.drop("t")
    conn.close()
    with pithead.connect(tmp_path / "data") as again:
        again.restore("t", version=2)
        assert again.sql("SELECT count(*) FROM t").fetchone() == (15,)
        again.restore("main.t", time=again.log()[-1].time)
        assert again.sql("SELECT count(*) FROM t").fetchone() == (10,)
        again.sql("ALTER DOMAIN main FORGET HISTORY")
        with pytest.raises(pithead.UserError, match="not kept any more"):
            again.restore("t", version=2)


def test_what_cannot_be_meant_is_said(conn: pithead.Connection) -> None:
    with pytest.raises(pithead.UserError, match="version or time"):
        conn.table("t", version=1, time="2026-11-24")
    with pytest.raises(pithead.UserError, match="expected version"):
        conn.restore("t")
    with pytest.raises(pithead.UserError, match="no version 9; versions 1"):
        conn.table("t", version=9)
    with pytest.raises(pithead.UserError, match="changed as it is now"):
        conn.sql("INSERT INTO t AS OF VERSION 1 VALUES (1)")
    with pytest.raises(pithead.UnsupportedError, match="placeholder"):
        conn.sql("SELECT * FROM t AS OF VERSION $1", [1])
    frame = conn.sql("SELECT 1 AS a")  # noqa: F841
    with pytest.raises(pithead.Error):
        conn.sql("SELECT * FROM frame AS OF VERSION 1")
