"""Values of every type, there and back, beside DuckDB's."""

from __future__ import annotations

import datetime as dt
import math
import random
import uuid
from decimal import Context, Decimal

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import pithead
from pithead._frames import arrays, frame

UTC = dt.timezone.utc


def table() -> pa.Table:
    """Three rows: ordinary values, values at the ends, and nulls."""
    columns: dict[str, tuple[list[object], pa.DataType]] = {
        "i8": ([-128, 127, None], pa.int8()),
        "i16": ([-(2**15), 2**15 - 1, None], pa.int16()),
        "i32": ([-(2**31), 2**31 - 1, None], pa.int32()),
        "i64": ([-(2**63), 2**63 - 1, None], pa.int64()),
        "u8": ([0, 255, None], pa.uint8()),
        "u64": ([0, 2**64 - 1, None], pa.uint64()),
        "f32": ([1.5, float("inf"), None], pa.float32()),
        "f64": ([-0.1, 1e308, None], pa.float64()),
        "b": ([True, False, None], pa.bool_()),
        "s": (["", "längerer Text über zwölf Bytes ✓", None], pa.string()),
        "large": (["a", "b" * 1000, None], pa.large_string()),
        "y": ([b"", b"\x00\xff" * 10, None], pa.binary()),
        "d": ([dt.date(1, 1, 1), dt.date(9999, 12, 31), None], pa.date32()),
        "t": ([dt.time(0, 0, 0, 1), dt.time(23, 59, 59, 999999), None], pa.time64("us")),
        "ts": ([dt.datetime(1969, 12, 31, 23, 59, 59, 1), dt.datetime(2262, 1, 1), None], pa.timestamp("us")),
        "tsz": (
            [dt.datetime(2026, 6, 1, 12, tzinfo=UTC), dt.datetime(1900, 1, 1, tzinfo=UTC), None],
            pa.timestamp("us", "UTC"),
        ),
        "d64": ([dt.date(1, 1, 1), dt.date(9999, 12, 31), None], pa.date64()),
        "t32": ([dt.time(0, 0, 1), dt.time(23, 59, 59), None], pa.time32("s")),
        "t32ms": ([dt.time(0, 0, 0, 1000), dt.time(23, 59, 59, 999000), None], pa.time32("ms")),
        "t64ns": ([dt.time(0, 0, 0, 1), dt.time(23, 59, 59, 999999), None], pa.time64("ns")),
        "ts_s": ([dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59), None], pa.timestamp("s")),
        "ts_ms": ([dt.datetime(1969, 12, 31, 23, 59, 59, 1000), dt.datetime(2262, 1, 1), None], pa.timestamp("ms")),
        "ts_ns": ([dt.datetime(1969, 12, 31, 23, 59, 59, 1), dt.datetime(2262, 1, 1), None], pa.timestamp("ns")),
        "du": ([dt.timedelta(days=-1, microseconds=1), dt.timedelta(days=400), None], pa.duration("us")),
        "du_s": ([dt.timedelta(seconds=-1), dt.timedelta(days=400), None], pa.duration("s")),
        "uuid": ([uuid.UUID(int=5), uuid.UUID(int=2**128 - 1), None], pa.uuid()),
        "dec": ([Decimal("-12345678901234567.89"), Decimal("0.01"), None], pa.decimal128(19, 2)),
        "l": ([[1, None, 3], [], None], pa.list_(pa.int32())),
        "ls": ([["a", None], [], None], pa.list_(pa.string())),
        "st": ([{"a": 1, "b": "x"}, {"a": None, "b": None}, None], pa.struct({"a": pa.int64(), "b": pa.string()})),
        "n": ([None, None, None], pa.null()),
    }
    return pa.table({name: pa.array(values, kind) for name, (values, kind) in columns.items()})


@pytest.fixture
def loaded(conn: pithead.Connection) -> pithead.Connection:
    numbered = table().append_column("row", pa.array([0, 1, 2]))
    conn.load("t", numbered)
    return conn


COLUMNS = [name for name in table().column_names if name != "n"]


@pytest.mark.parametrize("column", COLUMNS)
def test_values_come_back_as_duckdb_gives_them(loaded: pithead.Connection, column: str) -> None:
    source = table().append_column("row", pa.array([0, 1, 2]))
    query = f'SELECT "{column}" FROM {{}} ORDER BY row'
    with duckdb.connect() as duck:
        duck.execute("SET timezone = 'UTC'")
        duck.register("source", source)
        expected = duck.sql(query.format("source")).fetchall()
    relation = loaded.sql(query.format("t"))
    assert relation.fetchall() == expected
    # Types, too: a day is no moment, and an identifier no bytes.
    one_by_one = [relation.fetchone(), *relation.fetchmany(5)]
    for rows in (one_by_one, relation.head(3)):
        assert [(value, type(value)) for (value,) in rows] == [
            (value, type(value)) for (value,) in expected
        ] or "tsz" == column
    assert relation.arrow().column(0).to_pylist() == source.column(column).to_pylist()


def test_frames_have_the_floats_next_to_decimals() -> None:
    rng = random.Random(5)
    exact = Context(prec=80)
    for precision, scale in [(1, 0), (15, 2), (18, 6), (38, 2), (38, 10), (38, 30), (60, 5)]:
        values: list[Decimal | None] = [None, Decimal(0).scaleb(-scale), Decimal(10**precision - 1).scaleb(-scale, exact)]
        for _ in range(2_000):
            most = 10 ** rng.randint(1, precision) - 1
            values.append(Decimal(rng.randint(-most, most)).scaleb(-scale, exact))
        kind = pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(precision, scale)
        for column in (values, values[:1], values[:40], []):
            chunks = pa.chunked_array([pa.array([None, *column], kind)[1:], pa.array(column, kind)])
            decimals = pa.table({"d": chunks})
            made, array = frame(decimals)["d"], arrays(decimals)["d"]
            wanted = [math.nan if value is None else float(value) for value in [*column, *column]]
            assert made.dtype == array.dtype == np.float64
            np.testing.assert_array_equal(made.to_numpy(), wanted)
            assert np.ma.getmaskarray(array).tolist() == [math.isnan(value) for value in wanted]


def test_null_columns_and_types(loaded: pithead.Connection) -> None:
    assert loaded.sql("SELECT n FROM t").fetchall() == [(None,)] * 3
    types = {column.name: column.type for column in loaded.table("t").schema}
    assert types["s"] == types["large"] == "string"
    assert types["dec"] == "decimal(19, 2)"
    assert types["tsz"] == "timestamp[us, tz=UTC]"
    assert types["st"] == "struct<a: int64, b: string>"
    assert pa.schema(loaded.table("t").schema).names == loaded.table("t").arrow().schema.names


@pytest.mark.parametrize("query", ["SELECT * FROM t WHERE row > 5", "SELECT * FROM t LIMIT 0", "SELECT 1 AS a WHERE false"])
def test_empty_results_keep_their_columns(loaded: pithead.Connection, query: str) -> None:
    relation = loaded.sql(query)
    arrow = relation.arrow()
    assert arrow.num_rows == 0 and arrow.column_names == relation.columns
    assert relation.fetchall() == [] and relation.fetchone() is None
    assert list(relation.df().columns) == list(relation.pl().columns) == relation.columns
    assert "(no rows)" in repr(relation) and "no rows" in relation._repr_html_()


def test_every_consumer_takes_the_same_rows(loaded: pithead.Connection) -> None:
    import polars as pl

    relation = loaded.sql('SELECT row, s, "y", dec, d, ls FROM t ORDER BY row')
    expected = relation.arrow().to_pylist()
    assert relation.pl().to_dicts() == expected
    assert pl.DataFrame(relation).to_dicts() == expected
    assert [row for batch in relation for row in batch.to_pylist()] == expected
    assert relation.reader().read_all().to_pylist() == expected
    with duckdb.connect() as duck:
        taken = duck.sql("SELECT * FROM relation ORDER BY row").fetchall()
    assert taken == [tuple(row.values()) for row in expected]
    frame = relation.df()
    assert frame["s"].isna().tolist() == [False, False, True] and frame["s"][1] == expected[1]["s"]


def test_views_are_given_where_they_are_asked_for(loaded: pithead.Connection) -> None:
    relation = loaded.sql("SELECT s, i64 FROM t ORDER BY row")
    wanted = pa.schema([("s", pa.string_view()), ("i64", pa.float64())])
    taken = pa.RecordBatchReader.from_stream(relation, schema=wanted).read_all()
    assert taken.schema.types == wanted.types and taken["s"].to_pylist() == table()["s"].to_pylist()
    assert relation.arrow().schema.field("s").type == pa.string()
    for refused in [pa.schema([("s", pa.string())]), pa.schema([("s", pa.string()), ("i64", pa.struct({"a": pa.int8()}))])]:
        with pytest.raises(pithead.UserError, match="requested were"):
            pa.RecordBatchReader.from_stream(relation, schema=refused)


def test_numpy_and_intervals(loaded: pithead.Connection) -> None:
    arrays = loaded.sql("SELECT i64, f64, row FROM t ORDER BY row").fetchnumpy()
    assert arrays["row"].tolist() == [0, 1, 2]
    assert arrays["i64"].mask.tolist() == [False, False, True] and arrays["i64"][1] == 2**63 - 1
    row = loaded.sql("SELECT INTERVAL '1' MONTH, INTERVAL '36' HOUR, MAP {'a': 1}").fetchone()
    assert row == (dt.timedelta(days=30), dt.timedelta(hours=36), {"a": 1})
    zoned = loaded.sql(
        "SELECT arrow_cast(tsz, 'Timestamp(Microsecond, Some(\"Europe/Berlin\"))') AS z FROM t ORDER BY row LIMIT 1"
    )
    (moment,) = zoned.fetchone()
    assert moment == dt.datetime(2026, 6, 1, 12, tzinfo=UTC) and moment.utcoffset() == dt.timedelta(hours=2)


def test_days_are_days_in_every_library(loaded: pithead.Connection) -> None:
    import polars as pl

    relation = loaded.sql("SELECT d, d64 FROM t ORDER BY row")
    days = [dt.date(1, 1, 1), dt.date(9999, 12, 31), None]
    assert relation.pl().dtypes == [pl.Date, pl.Date] and relation.pl()["d64"].to_list() == days
    assert relation.arrow()["d64"].to_pylist() == days
    frame = relation.df()
    assert [str(kind) for kind in frame.dtypes] == ["datetime64[us]", "datetime64[us]"] and frame["d"].equals(frame["d64"])
    assert frame["d64"].dt.year[:2].tolist() == [1, 9999] and frame["d64"].isna().tolist() == [False, False, True]
    arrays = relation.fetchnumpy()
    assert arrays["d"].astype("datetime64[D]").tolist() == arrays["d64"].astype("datetime64[D]").tolist() == days


def test_what_datetime_does_not_know_is_text(conn: pithead.Connection) -> None:
    far = {
        "day": pa.array([2932897, -719163, None], pa.int32()).cast(pa.date32()),
        "day64": pa.array([2932897 * 86_400_000, -719163 * 86_400_000, None], pa.int64()).cast(pa.date64()),
        "micro": pa.array([253402300800 * 10**6 + 500_000, -62135596801 * 10**6, None], pa.int64()).cast(pa.timestamp("us")),
        "zoned": pa.array([253402300800 * 10**6 + 500_000, -62135596801 * 10**6, None], pa.int64()).cast(
            pa.timestamp("us", "UTC")
        ),
        "row": pa.array([0, 1, 2]),
    }
    table = pa.table(far)
    conn.load("t", table)
    query = "SELECT day, day64, micro, zoned FROM t ORDER BY row"
    with duckdb.connect() as duck:
        duck.execute("SET timezone = 'UTC'")
        duck.register("t", table)
        expected = duck.sql(query).fetchall()
    relation = conn.sql(query)
    assert relation.fetchall() == expected
    assert expected[0] == ("10000-01-01", "10000-01-01", "10000-01-01 00:00:00.5", "10000-01-01 00:00:00.5+00")
    assert relation.df()["day"].dt.year.tolist()[:2] == [10000, 0]
    # Seconds go further than microseconds of 64 bits do: these were NULL.
    conn.load("s", pa.table({"s": pa.array([10**15, -(10**15)], pa.int64()).cast(pa.timestamp("s"))}))
    ((after,), (before,)) = conn.sql("SELECT s FROM s ORDER BY s DESC").fetchall()
    assert (after, before) == ("31690708-07-05 01:46:40", "31686770-06-29 (BC) 22:13:20")
