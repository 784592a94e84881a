"""Loads from other libraries, and what is left when they fail."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import pithead

ROWS = [(1, "a"), (2, None), (3, "c")]
TABLE = pa.table({"k": [1, 2, 3], "s": ["a", None, "c"]})


def sources() -> dict[str, object]:
    frame = pd.DataFrame({"k": [1, 2, 3], "s": pd.array(["a", None, "c"], dtype="string")})
    return {
        "table": TABLE,
        "batch": TABLE.to_batches()[0],
        "reader": TABLE.to_reader(),
        "chunks": pa.concat_tables([TABLE.slice(0, 1), TABLE.slice(1)]),
        "dictionary": TABLE.set_column(1, "s", TABLE["s"].dictionary_encode()),
        "pandas": frame,
        "categories": frame.astype({"s": "category"}),
        "polars": pl.DataFrame({"k": [1, 2, 3], "s": ["a", None, "c"]}),
        "duckdb": duckdb.sql("SELECT * FROM (VALUES (1, 'a'), (2, NULL), (3, 'c')) AS t(k, s)"),
    }


@pytest.mark.parametrize("kind", list(sources()))
def test_every_library_gives_rows(conn: pithead.Connection, kind: str) -> None:
    report = conn.load("lab.t", sources()[kind], metadata={"from": kind})
    assert report.rows == 3 and report.stored_bytes > 0
    assert conn.sql("SELECT k, s FROM lab.t ORDER BY k").fetchall() == ROWS
    (info,) = conn.datasets("lab")
    assert (info.full_name, info.rows, info.metadata) == ("lab.t", 3, {"from": kind})


def test_results_load_as_well(conn: pithead.Connection) -> None:
    conn.load("t", TABLE)
    conn.load("u", conn.sql("SELECT k * 2 AS k FROM t"))
    assert conn.sql("SELECT sum(k) FROM u").fetchone() == (12,)


def test_files(conn: pithead.Connection, tmp_path: Path) -> None:
    for number in range(3):
        pq.write_table(TABLE, tmp_path / f"part-{number}.parquet")
    odd = tmp_path / "odd[1].parquet"
    pq.write_table(TABLE, odd)
    assert conn.load("a", str(tmp_path / "part-*.parquet"), partition_by="hash:k", sort_by="k desc").rows == 9
    assert conn.load("b", odd).rows == 3
    assert conn.load("c", [tmp_path / "part-0.parquet", str(tmp_path / "part-1.parquet")], slice_rows=1).slices == 6
    with pytest.raises(pithead.UserError, match="nothing.parquet"):
        conn.load("d", str(tmp_path / "nothing.parquet"))


def test_modes(conn: pithead.Connection) -> None:
    conn.load("t", TABLE)
    with pytest.raises(pithead.Error, match="t") as refused:
        conn.load("t", TABLE)
    assert isinstance(refused.value, (pithead.UserError, pithead.ConflictError))
    conn.load("t", TABLE, mode="append")
    assert conn.sql("SELECT count(*) FROM t").fetchone() == (6,)
    conn.load("t", TABLE.select(["k"]), mode="replace")
    assert conn.table("t").columns == ["k"] and conn.sql("SELECT count(*) FROM t").fetchone() == (3,)
    assert conn.drop("t") and not conn.drop("t", missing_ok=True)
    with pytest.raises(pithead.UserError):
        conn.drop("t")


def stored(conn: pithead.Connection) -> tuple[int, int]:
    drives = conn.drives().values()
    return sum(drive["slices"] for drive in drives), sum(drive["sessions"] for drive in drives)


def batches(fail_after: int) -> Iterator[pa.RecordBatch]:
    for number in range(fail_after):
        yield pa.record_batch({"k": pa.array(range(number * 100_000, (number + 1) * 100_000))})
    raise RuntimeError("the instrument was unplugged")


@pytest.mark.parametrize("fail_after", [0, 1, 20])
def test_a_source_that_fails_midway_leaves_nothing(conn: pithead.Connection, fail_after: int) -> None:
    conn.load("t", TABLE)
    before = stored(conn)
    reader = pa.RecordBatchReader.from_batches(pa.schema({"k": pa.int64()}), batches(fail_after))
    with pytest.raises(RuntimeError, match="the instrument was unplugged") as failed:
        conn.load("u", reader, slice_rows=10_000)
    # The exception is the one that was raised, with where it came from.
    assert any(entry.name == "batches" for entry in failed.traceback)
    assert any("nothing was loaded" in note for note in failed.value.__notes__)
    assert [info.name for info in conn.datasets()] == ["t"]
    assert stored(conn) == before
    conn.load("u", TABLE)


@pytest.mark.parametrize(
    ("source", "options", "told"),
    [
        (object(), {}, "type object"),
        ([], {}, "empty list"),
        (TABLE, {"mode": "upsert"}, "mode"),
        (TABLE, {"encoding": "csv"}, "encoding"),
        (TABLE, {"slice_rows": 0}, "slice_rows: expected 1 or more, got 0"),
        (TABLE, {"slice_rows": -5}, "slice_rows: expected 1 or more, got -5"),
        (TABLE, {"slice_rows": 1.5}, "slice_rows: expected a whole number"),
        (TABLE, {"partitions": -1}, "partitions: expected 1 or more"),
        (TABLE, {"copies": -1}, "copies: expected 1 or more"),
        (TABLE, {"mode": None}, "mode: expected a str"),
        (TABLE, {"encoding": 5}, "encoding: expected a str"),
        (TABLE, {"partition_by": [1]}, "partition_by: expected a str"),
        (TABLE, {"partition_by": b"k"}, "partition_by: expected a str"),
        (TABLE, {"sort_by": [b"k"]}, "sort_by: expected a str"),
        (b"file.parquet", {}, "type bytes"),
        (TABLE, {"partition_by": "range:k,s"}, "partition_by"),
        (TABLE, {"partition_by": "hash:nothing"}, "nothing"),
        (TABLE, {"sort_by": "nothing"}, "nothing"),
        (TABLE, {"metadata": {"n": 1}}, "metadata"),
        (pa.table({"k": [1]}).rename_columns([""]), {}, "no name"),
        (pa.table([[1], [2]], names=["k", "k"]), {}, "two columns"),
    ],
)
def test_what_cannot_be_loaded_is_refused(
    conn: pithead.Connection, source: object, options: dict[str, object], told: str
) -> None:
    with pytest.raises(pithead.UserError, match=told):
        conn.load("t", source, **options)
    assert conn.datasets() == []


def test_a_large_table_streams_in_pieces(conn: pithead.Connection) -> None:
    table = pa.table({"k": pa.array(range(1_000_000))})
    report = conn.load("t", table)
    assert report.rows == 1_000_000
    # One batch of the library, in pieces: the whole is not counted for each of them.
    assert 8_000_000 <= report.source_bytes < 9_000_000
    assert conn.sql("SELECT min(k), max(k), count(DISTINCT k) FROM t").fetchone() == (0, 999_999, 1_000_000)


class Failing(Exception):
    """An exception of the caller's own."""


@pytest.mark.parametrize(
    "error", [Failing("own"), KeyError("k"), pithead.DriveError("gone"), StopAsyncIteration(), OSError(5, "io")]
)
def test_a_reader_raises_what_it_raised(conn: pithead.Connection, error: Exception) -> None:
    cause = ValueError("why")
    error.__cause__ = cause

    def rows() -> Iterator[pa.RecordBatch]:
        yield TABLE.to_batches()[0]
        raise error

    with pytest.raises(type(error)) as failed:
        conn.load("u", pa.RecordBatchReader.from_batches(TABLE.schema, rows()))
    assert failed.value is error and error.__cause__ is cause
    assert conn.datasets() == []


def test_a_result_as_a_source_raises_its_own_error(conn: pithead.Connection) -> None:
    conn.load("t", pa.table({"s": ["1", "x"]}))
    with pytest.raises(pithead.UserError, match="'x'") as failed:
        conn.load("u", conn.sql("SELECT CAST(s AS BIGINT) AS n FROM t"))
    assert "the source of the rows failed" not in str(failed.value)
    with pithead.connect(drives=1) as other:
        source = other.table("t") if other.datasets() else other.sql("SELECT 1 AS k")
        other.close()
        with pytest.raises(pithead.UserError, match="closed"):
            conn.load("u", source)
    assert [info.name for info in conn.datasets()] == ["t"]


def test_sources_whose_text_is_all_there_is(conn: pithead.Connection) -> None:
    class Wrapped:
        def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
            return pa.RecordBatchReader.from_batches(pa.schema({"k": pa.int64()}), batches(1)).__arrow_c_stream__()

    class Broken:
        def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
            raise Failing("at once")

    with pytest.raises(pithead.UserError, match="the instrument was unplugged") as failed:
        conn.load("u", Wrapped())
    assert failed.value.hint
    with pytest.raises(Failing, match="at once"):
        conn.load("u", Broken())


def test_home_directories(conn: pithead.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    pq.write_table(TABLE, tmp_path / "t.parquet")
    assert conn.load("t", "~/t.parquet").rows == conn.load("u", Path("~/t.parquet")).rows == 3


def test_hints_speak_python(conn: pithead.Connection) -> None:
    conn.load("t", TABLE, partition_by="hash:k")
    for options, told in [
        ({}, 'mode="append"'),
        ({"mode": "append", "partition_by": "range:k"}, 'mode="replace"'),
    ]:
        with pytest.raises(pithead.Error) as refused:
            conn.load("t", TABLE, **options)
        assert refused.value.hint and told in refused.value.hint and "--" not in refused.value.hint
    with pytest.raises(pithead.UserError) as refused:
        conn.load("v", TABLE, mode="append")
    assert refused.value.hint == 'mode="create" makes it'
    with pytest.raises(pithead.UserError) as refused:
        conn.drop("v")
    assert refused.value.hint and "conn.datasets()" in refused.value.hint


def test_run_end_encoded_columns_are_read_as_their_values(conn: pithead.Connection) -> None:
    runs = pc.run_end_encode(pa.array([1, 1, 2, None, 2]))
    table = pa.table({"k": pa.chunked_array([runs, runs]), "s": pc.run_end_encode(pa.array(["a"] * 10)), "n": range(10)})
    for source in (table, table.to_reader(), table.to_batches()[0].slice(0, 5)):
        conn.load("t", source, mode="replace")
        rows = conn.sql("SELECT k, s FROM t ORDER BY n LIMIT 5").fetchall()
        assert rows == [(1, "a"), (1, "a"), (2, "a"), (None, "a"), (2, "a")]
    conn.register("g", table)
    assert conn.sql("SELECT sum(k), min(s) FROM g").fetchone() == (12, "a")
