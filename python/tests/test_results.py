"""Results: what is taken of them is exact, whole and each row once, whoever takes it and however."""

from __future__ import annotations

import gc
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pithead
from pithead._names import unique

ODD = 2**53 + 1


def test_whole_numbers_with_null_keep_their_digits(conn: pithead.Connection) -> None:
    kinds = {"i8": pa.int8(), "i16": pa.int16(), "i32": pa.int32(), "i64": pa.int64()}
    kinds |= {f"u{name[1:]}": getattr(pa, f"uint{name[1:]}")() for name in kinds}
    largest = {name: min(2 ** (int(name[1:]) - (name[0] == "i")) - 1, 2**63 - 1) for name in kinds}
    table = pa.table({name: pa.array([largest[name], None], kind) for name, kind in kinds.items()})
    table = table.append_column("b", pa.array([True, None])).append_column("n", pa.array([0, 1]))
    conn.load("t", table)
    relation = conn.sql("SELECT * FROM t ORDER BY n")
    expected = duckdb.from_arrow(table).order("n").df()
    pd.testing.assert_frame_equal(relation.df(), expected)
    frame = relation.df()
    for name in kinds:
        assert frame[name].tolist() == [largest[name], pd.NA] or frame[name].isna().tolist() == [False, True]
        assert int(frame[name][0]) == largest[name], name
    # Without NULL they are NumPy's own types.
    whole = conn.sql("SELECT * FROM t WHERE n = 0").df()
    assert {str(kind) for kind in whole.dtypes} == {
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "bool",
    }


def test_nested_numbers_with_null_keep_their_digits(conn: pithead.Connection) -> None:
    table = pa.table(
        {
            "l": pa.array([[ODD, None], [ODD], None, []]),
            "ll": pa.array([[[ODD, None], None], [], None, [[1]]]),
            "s": pa.array([{"a": ODD}, {"a": None}, None, {"a": 1}]),
            "sl": pa.array([{"a": [ODD, None]}, {"a": None}, None, {"a": []}]),
            "row": [0, 1, 2, 3],
        }
    )
    conn.load("t", table)
    relation = conn.sql("SELECT * FROM t ORDER BY row")
    frame, arrays = relation.df(), relation.fetchnumpy()
    for taken in (frame, arrays):
        first = taken["l"][0]
        assert isinstance(first, np.ma.MaskedArray) and first.tolist() == [ODD, None] and first.dtype == np.int64
        assert not isinstance(taken["l"][1], np.ma.MaskedArray) and taken["l"][1].tolist() == [ODD]
        assert taken["l"][3].tolist() == [] and taken["ll"][0][0].tolist() == [ODD, None] and taken["ll"][0][1] is None
        assert taken["s"][0] == {"a": ODD} and taken["s"][1] == {"a": None} and taken["sl"][0] == {"a": [ODD, None]}
    assert frame["l"][2] is None and arrays["l"].mask.tolist() == [False, False, True, False]


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("SELECT 1 a, 2 a", ["a", "a"]),
        ("SELECT 1 AS a, 2 AS a, 3 AS a_1, 4 AS a", ["a", "a", "a_1", "a"]),
        ("SELECT k, k FROM t ORDER BY k", ["k", "k"]),
        ("SELECT *, k FROM t ORDER BY k", ["k", "s", "k"]),
        ("SELECT s, * FROM t ORDER BY k", ["s", "k", "s"]),
        ("SELECT *, * FROM t ORDER BY 1", ["k", "s", "k", "s"]),
        ("SELECT t.*, t.k AS k FROM t ORDER BY t.k", ["k", "s", "k"]),
        ("SELECT x.k, y.k FROM t x JOIN t y ON x.k = y.k ORDER BY x.k", ["k", "k"]),
        ("SELECT x.k, y.k, x.k FROM t x JOIN t y ON x.k = y.k ORDER BY 1", ["k", "k", "k"]),
        ("SELECT count(*) k, sum(k) k, min(s) k FROM t", ["k", "k", "k"]),
        ("SELECT k % 2 AS g, count(*) g FROM t GROUP BY 1 ORDER BY 1", ["g", "g"]),
        ("SELECT s, count(*) AS s FROM t GROUP BY s ORDER BY 1", ["s", "s"]),
        ("SELECT s, count(*) AS s FROM t GROUP BY s HAVING count(*) > 1 ORDER BY 2 DESC, 1 LIMIT 2", ["s", "s"]),
        ("SELECT DISTINCT s, s FROM t ORDER BY 1", ["s", "s"]),
        ("SELECT 1 a, 2 a UNION ALL SELECT 3, 3 ORDER BY 1", ["a", "a"]),
        ("(SELECT 1 a, 2 a) UNION SELECT 3 b, 4 b ORDER BY 1", ["a", "a"]),
        ("WITH w AS (SELECT k + 1 AS k FROM t) SELECT k, k AS k FROM w ORDER BY 1", ["k", "k"]),
        ('SELECT k AS "x y", s AS "x y" FROM t ORDER BY k', ["x y", "x y"]),
        ("SELECT row_number() OVER (ORDER BY k) AS k, k FROM t ORDER BY 1", ["k", "k"]),
        ("SELECT k, (SELECT max(k) FROM t) AS k FROM t ORDER BY 1", ["k", "k"]),
        ("SELECT k, CAST(k AS VARCHAR) AS k FROM t ORDER BY 1", ["k", "k"]),
    ],
)
def test_columns_of_one_name(conn: pithead.Connection, query: str, names: list[str]) -> None:
    table = pa.table({"k": [3, 1, 2], "s": ["a", "b", "a"]})
    conn.load("t", table)
    relation = conn.sql(query)
    with duckdb.connect() as duck:
        duck.register("t", table)
        judged = duck.sql(query)
        assert relation.columns == judged.columns == names
        assert relation.fetchall() == judged.fetchall()
        assert relation.df().columns.tolist() == judged.df().columns.tolist() == unique(names)
        assert relation.pl().columns == judged.pl().columns
        assert list(relation.fetchnumpy()) == list(judged.fetchnumpy())
        assert relation.pl().rows() == relation.fetchall() == list(relation.df().itertuples(index=False, name=None))
    assert relation.arrow().column_names == names and len(repr(relation).splitlines()) > 2
    assert relation.explain(analyze=True).nodes() and relation.schema.names == names


def test_a_column_stands_beside_its_cast(conn: pithead.Connection) -> None:
    conn.load("t", pa.table({"k": [2, 1]}))
    for query, rows in [
        ("SELECT k, k::VARCHAR FROM t ORDER BY 1", [(1, "1"), (2, "2")]),
        ("SELECT k::VARCHAR, k::DOUBLE, k FROM t ORDER BY 2", [("1", 1.0, 1), ("2", 2.0, 2)]),
        ("SELECT *, k::VARCHAR FROM t ORDER BY 1", [(1, "1"), (2, "2")]),
    ]:
        relation = conn.sql(query)
        assert relation.fetchall() == rows and len(relation.df().columns) == len(relation.pl().columns) == len(rows[0])


def test_what_is_ambiguous_stays_a_mistake(conn: pithead.Connection) -> None:
    conn.load("t", pa.table({"k": [1]}))
    for query in ["SELECT k FROM t x, t y", "SELECT nothing, k, k FROM t"]:
        with pytest.raises(pithead.UserError):
            conn.sql(query)
    for query in ["SELECT k, k FROM t WHERE nothing = 1", "SELECT k, k FROM t ORDER BY nothing"]:
        with pytest.raises(pithead.UserError, match="nothing"):
            conn.sql(query)


@pytest.mark.parametrize("size", [-1, -(2**70), 2**70, 1.5, "2", None, b"1", True])
def test_no_number_of_rows(conn: pithead.Connection, size: object) -> None:
    conn.load("t", pa.table({"k": range(5)}))
    relation = conn.sql("SELECT k FROM t ORDER BY k")
    assert relation.fetchone() == (0,)
    for take in (relation.fetchmany, relation.head):
        with pytest.raises(pithead.UserError, match="size|rows: expected"):
            take(size)
    assert relation.fetchmany(0) == [] and relation.fetchmany(np.int64(2)) == [(1,), (2,)]
    assert relation.fetchall() == [(3,), (4,)]


def test_threads_share_the_rows_of_one_result(conn: pithead.Connection) -> None:
    conn.load("t", pa.table({"k": range(20_000)}), slice_rows=500)
    relation = conn.sql("SELECT k FROM t")
    ready = threading.Barrier(8)

    def take(number: int) -> list[tuple[object, ...]]:
        taken: list[tuple[object, ...]] = []
        ready.wait()
        while rows := relation.fetchmany(7) if number % 2 else [row for row in [relation.fetchone()] if row]:
            taken += rows
        return taken

    with ThreadPoolExecutor(8) as pool:
        rows = [row for taken in pool.map(take, range(8)) for row in taken]
    assert sorted(rows) == [(k,) for k in range(20_000)]


def test_rows_that_failed_do_not_seem_to_have_ended(conn: pithead.Connection) -> None:
    conn.load(
        "t", pa.table({"k": range(50_000), "s": [str(k) if k != 45_000 else "x" for k in range(50_000)]}), slice_rows=1000
    )
    relation = conn.sql("SELECT CAST(s AS BIGINT) AS n FROM t")
    with pytest.raises(pithead.UserError, match="'x'"):
        while relation.fetchmany(100):
            pass
    for take in (relation.fetchone, relation.fetchmany):
        with pytest.raises(pithead.UserError, match="'x'"):
            take()
    with pytest.raises(pithead.UserError, match="'x'"):
        relation.fetchall()


def test_a_reader_keeps_its_connection(tmp_path: Path) -> None:
    def reader() -> pa.RecordBatchReader:
        conn = pithead.connect(tmp_path / "data", drives=2)
        conn.load("t", pa.table({"k": range(300_000)}), slice_rows=1000)
        return conn.sql("SELECT k FROM t").reader()

    rows = reader()
    gc.collect()
    assert sum(batch.num_rows for batch in rows) == 300_000
    # Once it is let go, so is the directory.
    del rows
    gc.collect()
    with pithead.connect(tmp_path / "data") as conn:
        batches = iter(conn.sql("SELECT k FROM t LIMIT 5"))
        assert next(batches).num_rows > 0
        reader = conn.sql("SELECT k FROM t").reader()
        reader.read_next_batch()
    # Closing it by name ends it for readers, too.
    with pytest.raises(Exception, match="closed"):
        reader.read_all()


def test_a_result_says_what_changed(conn: pithead.Connection) -> None:
    conn.load("t", pa.table({"k": [1], "s": ["a"]}))
    every, some, count = conn.sql("SELECT * FROM t"), conn.sql("SELECT s FROM t"), conn.sql("SELECT count(*) AS n FROM t")
    conn.load("t", pa.table({"k": [1, 2], "s": ["b", "c"]}), mode="replace")
    assert len(every.fetchall()) == len(some.arrow()) == 2
    conn.load("t", pa.table({"k": ["x"]}), mode="replace")
    takers = [every.fetchall, every.arrow, every.df, every.pl, every.fetchone, every.head, every.reader, every.fetchnumpy]
    for take in takers:
        with pytest.raises(pithead.UserError) as changed:
            take()
        told = str(changed.value)
        assert (
            "has changed since this result was made" in told
            and "k int64, s string" in told
            and "now they are k string" in told
        )
    with pytest.raises(pithead.UserError, match="has changed since this result was made: .*"):
        some.fetchall()
    assert count.fetchall() == [(1,)]
    conn.drop("t")
    with pytest.raises(pithead.UserError, match="has changed since this result was made: .*t"):
        count.fetchall()


def test_statements_are_texts(conn: pithead.Connection) -> None:
    for query in (b"SELECT 1", None, 5, "SELECT '\ud800'"):
        with pytest.raises(pithead.UserError, match="query: "):
            conn.sql(query)


def test_every_library_takes_nothing(conn: pithead.Connection) -> None:
    relation = conn.sql("SET pithead.pushdown = on")
    assert pl.DataFrame(relation).shape == (0, 0) and pa.table(relation).num_columns == 0


def test_copy_writes_and_reads_files_beside_the_client(tmp_path: Path) -> None:
    """COPY is of the client's own files, at once, and tells errors as other statements do."""
    conn = pithead.connect(drives=2)
    conn.load("trips", pa.table({"id": [1, 2, 3], "city": ["Oslo", None, "Bergen"]}))
    path = tmp_path / "trips.parquet"
    conn.sql(f"COPY (SELECT * FROM trips WHERE id > $1) TO '{path}'", [1])
    assert sorted(pq.read_table(path).to_pylist(), key=lambda row: row["id"]) == [
        {"id": 2, "city": None},
        {"id": 3, "city": "Bergen"},
    ]
    conn.sql(f"COPY trips FROM '{path}'")
    assert conn.sql("SELECT count(*), sum(id) FROM trips").fetchall() == [(5, 11)]
    with pytest.raises(pithead.UserError, match="no option sorted"):
        conn.sql(f"COPY trips TO '{path}' (SORTED true)")


def test_variables_that_hold_tables_are_tables(conn: pithead.Connection) -> None:
    """Each statement reads the caller's variable as it is then; datasets come first, and results keep what they were made of."""
    conn.load("orders", pa.table({"id": range(1000), "city": [f"c{n % 4}" for n in range(1000)]}))
    cities = pd.DataFrame({"city": ["c1", "c2", None], "n": [1, 2, 3]})
    query = "SELECT n, count(*) FROM orders JOIN cities USING (city) GROUP BY n ORDER BY n"
    first = conn.sql(query)
    assert first.fetchall() == [(1, 250), (2, 250)]
    cities = pl.DataFrame({"city": ["c3", "c3"], "n": [7, 8]})
    assert conn.sql(query).fetchall() == [(7, 250), (8, 250)]
    assert first.fetchall() == [(1, 250), (2, 250)]
    for setting in ("off", "on"):
        conn.sql(f"SET pithead.pushdown = {setting}")
        assert conn.sql("SELECT count(*) FROM orders WHERE city IN (SELECT city FROM cities)").fetchall() == [(250,)]
        twice = "SELECT count(*) FROM cities a, cities b WHERE a.n < b.n"
        assert conn.sql(twice).fetchall() == [(1,)]
    assert any("orders" in node.text for node in first.explain().nodes())
    # Written to, and of no use as a name: a path, a class, an array.
    conn.sql("CREATE TABLE kept AS SELECT * FROM cities")
    assert conn.sql("SELECT sum(n) FROM kept").fetchall() == [(15,)]
    numbers, orders = pa.array([1]), pa.table({"id": [5]})
    with pytest.raises(pithead.UserError, match="no dataset main.numbers"):
        conn.sql("SELECT * FROM numbers")
    assert conn.sql("SELECT count(*) FROM orders").fetchall() == [(1000,)]
    assert len(numbers) == len(orders) == 1

    def inner() -> int:
        (count,) = conn.sql("SELECT count(*) FROM Cities").fetchall()[0]
        return count

    assert inner() == 2


def test_registered_tables_come_before_datasets(conn: pithead.Connection) -> None:
    conn.load("t", pa.table({"a": [1, 2, 3]}))
    conn.register("t", pa.table({"a": [10]}))
    kept = conn.sql("SELECT sum(a) FROM t")
    assert kept.fetchall() == [(10,)]
    assert conn.sql("SELECT sum(a) FROM main.t").fetchall() == [(10,)]
    conn.register("t", pa.table({"a": pa.array([], pa.int64())}))
    assert conn.sql("SELECT count(*), sum(a) FROM t").fetchall() == [(0, None)]
    conn.unregister("t")
    conn.unregister("t")
    assert conn.sql("SELECT sum(a) FROM t").fetchall() == [(6,)]
    assert kept.fetchall() == [(10,)]
    with pytest.raises(pithead.UserError, match="two columns are named a"):
        conn.register("twice", pa.table([[1], [2]], names=["a", "a"]))
        conn.sql("SELECT * FROM twice")
    with pytest.raises(pithead.UserError, match="load makes"):
        conn.register("files", "rows.parquet")


def test_frames_come_without_their_index(conn: pithead.Connection) -> None:
    """As in DuckDB: rows that were filtered or sorted go with those that were not."""
    frame = pd.DataFrame({"a": range(10), "b": list("abcdefghij")})
    part = frame[frame.a > 7].sort_values("a", ascending=False)
    assert conn.sql("SELECT * FROM frame UNION ALL SELECT * FROM part ORDER BY a DESC").fetchmany(3) == [
        (9, "j"),
        (9, "j"),
        (8, "i"),
    ]
    conn.load("t", frame)
    assert conn.load("t", part, mode="append").rows == 2
    conn.register("grouped", frame.groupby("b").sum())
    assert conn.sql("SELECT * FROM grouped").columns == ["a"]
    twice = pd.DataFrame([[1, 2]], columns=["a", "a"])
    assert conn.sql("SELECT * FROM twice").columns == ["a", "a_1"]
    mixed, large = pd.DataFrame({"a": [1, "x", b"y"]}), pd.DataFrame({"a": [2**70]})
    for wrong in (mixed, large):
        with pytest.raises(pithead.UserError, match="has no type of Arrow"):
            conn.register("wrong", wrong)


def test_frames_of_polars_as_they_are(conn: pithead.Connection) -> None:
    own = conn.sql("SELECT NULL AS n, 1 AS a").pl()
    assert conn.sql("SELECT * FROM own").fetchall() == [(None, 1)]
    lazy = pl.LazyFrame({"a": [1, 2, 3]}).filter(pl.col("a") > 1)
    assert conn.sql("SELECT sum(a) FROM lazy").fetchall() == [(5,)]
    objects = pl.DataFrame({"a": pl.Series([object()], dtype=pl.Object)})
    with pytest.raises(pithead.UserError, match="holds Python objects"):
        conn.load("objects", objects)


@pytest.mark.parametrize("query", ["SELECT INTERVAL '1 day' AS d", "SELECT [INTERVAL '1 day'] AS d"])
def test_polars_is_not_given_intervals(conn: pithead.Connection, query: str) -> None:
    result = conn.sql(query)
    for taken in (lambda: result.pl(), lambda: result.pl(lazy=True).collect()):
        with pytest.raises(pithead.UnsupportedError, match="column 'd'"):
            taken()


@pytest.mark.parametrize("name", ["interval", "sampling_interval", "month_day_nano_interval"])
def test_polars_is_given_what_is_only_called_an_interval(conn: pithead.Connection, name: str) -> None:
    """The type of a struct has the names of its fields in it."""
    result = conn.sql(f"SELECT named_struct('{name}', 5) AS s, [named_struct('{name}', 6)] AS l")
    for frame in (result.pl(), result.pl(lazy=True).collect()):
        assert frame.rows() == [({name: 5}, [{name: 6}])]
    inner = conn.sql(f"SELECT named_struct('{name}', INTERVAL '1 day') AS d")
    with pytest.raises(pithead.UnsupportedError, match="column 'd'"):
        inner.pl()


def test_results_without_a_name_are_called_as_duckdb_calls_them(conn: pithead.Connection) -> None:
    table = pa.table({"k": [1, 2, 3], "s": ["a", "b", None]})
    conn.load("t", table)
    duck = duckdb.connect()
    duck.register("t", table)
    for query in (
        "SELECT sum(k), MIN(k), k, count(s) AS n FROM t GROUP BY k",
        "SELECT *, upper(s) FROM t",
        "SELECT max(s) FROM (SELECT s FROM t) JOIN (SELECT k FROM t) ON k = 1",
        'SELECT "sum(k)" FROM (SELECT sum(k) FROM t)',
        "WITH c AS (SELECT max(k), count(s) FROM t) FROM c",
        "SELECT count(DISTINCT k), sum(k) FROM t UNION ALL SELECT 1, 2",
    ):
        assert conn.sql(query).columns == duck.sql(query).columns, query
    totals = conn.sql('SELECT * FROM (SELECT s, sum(k) FROM t GROUP BY s, k) WHERE "sum(k)" > 2')
    assert totals.columns == ["s", "sum(k)"]
