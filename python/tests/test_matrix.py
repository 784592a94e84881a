"""Types × sources × parameters × ways to take rows, drawn from seeds and judged by DuckDB's package, or by the source where that package
would lose something.

A failure names its seed: PITHEAD_MATRIX_SEED repeats it. PITHEAD_MATRIX_S is how many seconds each test goes on drawing.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from drawn import kinds, plain, table

import pithead

SEED = int(os.environ.get("PITHEAD_MATRIX_SEED", "0"))
SECONDS = float(os.environ.get("PITHEAD_MATRIX_S", "3"))
# Each test draws so many times, however slow the machine is.
LEAST = 1 if "PITHEAD_MATRIX_SEED" in os.environ else 6

# What DuckDB's package cannot load, or would lose something of in tuples.
NOT_JUDGED = {"half", "duration_ns"}
# What its frames and arrays have as something less: microseconds of nanoseconds, bytearrays.
LESS_IN_FRAMES = {"duration_ns", "zoned_ns", "half"}


def seeds() -> Iterator[tuple[int, random.Random]]:
    end = time.monotonic() + SECONDS
    number = 0
    while number < LEAST or (time.monotonic() < end and LEAST > 1):
        yield SEED + number, random.Random(SEED + number)
        number += 1


def drawn(rng: random.Random, rows_max: int = 40) -> pa.Table:
    return table(rng, rng.sample(list(kinds()), rng.randint(3, 12)), rng.choice([0, 1, 2, rng.randint(3, rows_max)]))


def loaded(conn: pithead.Connection, rng: random.Random, name: str, source: object) -> None:
    options = {
        "slice_rows": rng.choice([None, 1, 7, 100]),
        "partition_by": rng.choice([None, "hash:row", "range:row", "round-robin"]),
        "sort_by": rng.choice([None, "row", "row desc"]),
        # Bytes of a fixed length go by the other encoding only.
        "encoding": None if {"fixed_binary", "uuid"} & set(columns_of(source)) else rng.choice(["vortex", "arrow"]),
    }
    conn.load(name, source, mode="replace", **options)


def columns_of(source: Any) -> list[str]:
    return list(source.column_names if isinstance(source, pa.Table) else source.columns)


def judge(source: pa.Table) -> duckdb.DuckDBPyConnection:
    """DuckDB with the source as its table `t`, without what it cannot load."""
    duck = duckdb.connect()
    duck.execute("SET timezone = 'UTC'")
    duck.register("t", source.drop_columns(["half"]) if "half" in source.column_names else source)
    return duck


def exact(source: pa.Table) -> dict[str, list[Any]]:
    """The source's own values."""
    return {name: plain_column(source.column(name)) for name in source.column_names}


def plain_column(column: pa.ChunkedArray) -> list[Any]:
    if pa.types.is_time(column.type):
        return [None if value is None else ("clock", int(value)) for value in nanoseconds(column)]
    return [plain(value) for value in column.to_pylist()]


def nanoseconds(column: pa.ChunkedArray) -> list[int | None]:
    return column.cast(pa.time64("ns")).cast(pa.int64()).to_pylist()


def test_tuples_are_those_of_duckdb(conn: pithead.Connection) -> None:
    for seed, rng in seeds():
        source = drawn(rng)
        loaded(conn, rng, "t", source)
        names = [name for name in source.column_names if name not in NOT_JUDGED]
        query = "SELECT {} FROM t ORDER BY row".format(", ".join(f'"{name}"' for name in names))
        with judge(source) as duck:
            expected = [[plain(value) for value in row] for row in duck.sql(query).fetchall()]
        relation = conn.sql(query)
        rows = relation.fetchall()
        assert [[plain(value) for value in row] for row in rows] == expected, f"seed {seed}"
        again: list[Any] = []
        while (
            more := relation.fetchmany(size)
            if (size := rng.randint(0, 9))
            else [one for one in [relation.fetchone()] if one]
        ):
            again += more
        assert [plain(list(row)) for row in again] == expected and relation.fetchall() == [], f"seed {seed}"
        assert [plain(list(row)) for row in relation.head(3)] == expected[:3], f"seed {seed}"


def test_arrow_is_what_was_loaded(conn: pithead.Connection) -> None:
    for seed, rng in seeds():
        source = drawn(rng)
        loaded(conn, rng, "t", source)
        relation = conn.sql("SELECT * FROM t ORDER BY row")
        takers: list[Callable[[], pa.Table]] = [
            relation.arrow,
            lambda relation=relation: relation.reader().read_all(),
            lambda relation=relation: pa.Table.from_batches(list(relation), pa.schema(relation.schema)),
            lambda relation=relation: duckdb_table(relation),
        ]
        for take in takers[: 3 if NOT_JUDGED & set(source.column_names) or "zoned_ns" in source.column_names else 4]:
            taken = take()
            for name in source.column_names:
                kind = source.schema.field(name).type
                column = taken.column(name)
                back = column if column.type == kind or pa.types.is_dictionary(kind) else column.cast(kind)
                assert plain_column(back) == plain_column(source.column(name)), f"seed {seed}: {name}"


def duckdb_table(relation: pithead.Relation) -> pa.Table:
    with duckdb.connect() as duck:
        duck.execute("SET timezone = 'UTC'")
        taken = duck.sql("SELECT * FROM relation ORDER BY row").to_arrow_table()
    # Its intervals and identifiers are of types of its own.
    keep = [name for name in taken.column_names if "duration" not in name and name not in ("uuid", "null")]
    return pa.table(
        {name: taken.column(name) if name in keep else relation.arrow().column(name) for name in taken.column_names}
    )


def test_frames_and_arrays_are_those_of_duckdb(conn: pithead.Connection) -> None:
    for seed, rng in seeds():
        source = drawn(rng)
        loaded(conn, rng, "t", source)
        query = 'SELECT "{}" FROM t ORDER BY row'
        with judge(source) as duck:
            for name in source.column_names:
                relation = conn.sql(query.format(name))
                frame, array = relation.df()[name], relation.fetchnumpy()[name]
                if name in LESS_IN_FRAMES:
                    expected_frame = expected_array = exact(source)[name]
                elif name == "wide_decimal":
                    # Its floats of so many digits are rounded twice.
                    values = source.column(name).to_pylist()
                    expected_frame = expected_array = [None if value is None else plain(float(value)) for value in values]
                else:
                    judged = duck.sql(query.format(name))
                    expected_frame, expected_array = (
                        [plain(item) for item in taken] for taken in (judged.df()[name], unmasked(judged.fetchnumpy()[name]))
                    )
                told = f"seed {seed}: {name}"
                assert [real(item) for item in frame] == [real(item, plain) for item in expected_frame], told
                assert [plain_day(item) for item in unmasked(array)] == [
                    plain_day(item, False) for item in expected_array
                ], told
                if pa.types.is_integer(source.schema.field(name).type) or pa.types.is_boolean(
                    source.schema.field(name).type
                ):
                    assert frame.dtype == judged.df()[name].dtype and array.dtype == judged.fetchnumpy()[name].dtype, told


def unmasked(array: Any) -> list[Any]:
    """Items, None where they are masked. Times of NumPy stay what they are: `tolist` makes numbers of nanoseconds."""
    if isinstance(array, np.ma.MaskedArray):
        return [None if hidden else item for item, hidden in zip(array.data, np.ma.getmaskarray(array), strict=True)]
    return list(array)


def real(item: Any, form: Callable[[Any], Any] = plain) -> Any:
    """NULL and NaN are one in a column of floats of pandas."""
    found = plain(item) if form is plain and not isinstance(item, (tuple, str)) else item
    return plain_day(None if found == "nan" else found, False)


def plain_day(item: Any, is_raw: bool = True) -> Any:
    """A day as the moment that it begins with, which NumPy and pandas have of it."""
    found = plain(item) if is_raw else item
    if isinstance(found, tuple) and found[0] == "day":
        return "moment", (found[1] - 719_163) * 86_400 * 10**9
    return found


def test_polars_has_what_was_loaded(conn: pithead.Connection) -> None:
    for seed, rng in seeds():
        source = drawn(rng)
        loaded(conn, rng, "t", source)
        taken = conn.sql("SELECT * FROM t ORDER BY row").pl()
        for name in source.column_names:
            wanted = source.column(name)
            if pa.types.is_date64(wanted.type):
                wanted = wanted.cast(pa.date32())
            expected = pl.from_arrow(wanted.cast(pa.string()) if pa.types.is_dictionary(wanted.type) else wanted)
            assert taken[name].dtype == expected.dtype, f"seed {seed}: {name}"
            ours, theirs = (plain_column(series.to_arrow()) for series in (taken[name], expected))
            assert ours == theirs, f"seed {seed}: {name}"


# Values that a column is asked for, made of its Arrow scalars.
AS_PARAMETERS: dict[str, list[Callable[[pa.Scalar], Any]]] = {
    "int": [lambda value: value.as_py(), lambda value: np.array(value.as_py()), lambda value: np.array(value.as_py())[()]],
    "float": [lambda value: value.as_py(), lambda value: np.float64(value.as_py())],
    "moment": [lambda value: pd.Timestamp(value.as_py()), lambda value: value.as_py()],
    "other": [lambda value: value.as_py()],
}
# The engine compares times of day with those of microseconds only, and has no half floats but in storage.
NOT_ASKED = {"half", "null", "lists", "structs", "struct", "list", "texts", "time_s", "time_ms", "time_ns"}
ASKED = [name for name in kinds() if name not in NOT_ASKED]


def ways(kind: pa.DataType) -> list[Callable[[pa.Scalar], Any]]:
    if pa.types.is_integer(kind):
        return AS_PARAMETERS["int"]
    if pa.types.is_floating(kind):
        return AS_PARAMETERS["float"]
    return AS_PARAMETERS["moment" if pa.types.is_timestamp(kind) and kind.unit == "ns" else "other"]


def test_parameters_find_what_equals_them(conn: pithead.Connection) -> None:
    for seed, rng in seeds():
        source = table(rng, rng.sample(ASKED, 6), 30)
        loaded(conn, rng, "t", source)
        for name in source.column_names:
            column = source.column(name)
            column = column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column
            known = [value for value in column if value.is_valid]
            for value in rng.sample(known, min(3, len(known))):
                parameter = rng.choice(ways(column.type))(value)
                storage = column.cast(column.type.storage_type) if isinstance(column.type, pa.BaseExtensionType) else column
                wanted = value.value if isinstance(column.type, pa.BaseExtensionType) else value
                expected = pc.sum(pc.equal(storage, wanted)).as_py() or 0
                if parameter != parameter:
                    expected = sum(1 for item in column.to_pylist() if item is not None and item != item)
                # Lists of the engine tell the two zeros apart, which = does not.
                is_zero = isinstance(parameter, (float, np.floating)) and parameter == 0
                queries = [
                    (f'SELECT count(*) FROM t WHERE "{name}" = $1', [parameter]),
                    (f'SELECT count(*) FROM t WHERE "{name}" = $v', {"v": parameter}),
                    (f'SELECT count(*) FROM t WHERE "{name}" IN (?, ?)', [parameter, parameter]),
                ]
                for query, given in queries[: 2 if is_zero else 3]:
                    found = conn.sql(query, given).fetchone()
                    assert found == (expected,), f"seed {seed}: {query} with {parameter!r}"


def frames(rng: random.Random, rows: int) -> dict[str, Any]:
    """The same kinds of columns as pandas and polars have them."""
    whole = [rng.choice([None, 0, -1, 2**53 + 1, rng.randint(-(2**63), 2**63 - 1)]) for _ in range(rows)]
    texts = [rng.choice([None, "", "a", "ü" * 20]) for _ in range(rows)]
    moments = [rng.choice([None, 0, -1, 10**18 + 1, rng.randint(-(10**18), 10**18)]) for _ in range(rows)]
    stamps = pd.Series(
        pd.array([pd.NaT if each is None else pd.Timestamp(each) for each in moments], dtype="datetime64[ns]")
    )
    pandas = pd.DataFrame(
        {
            "whole": pd.array(whole, dtype="Int64"),
            "plain": pd.Series([each or 0 for each in whole], dtype="int64"),
            "small": pd.array([None if each is None else each % 100 for each in whole], dtype="UInt8"),
            "truth": pd.array([None if each is None else each % 2 == 0 for each in whole], dtype="boolean"),
            "text": pd.array(texts, dtype="string"),
            "object": pd.Series(texts, dtype=object),
            "category": pd.Categorical(texts),
            "stamp": stamps,
            "zoned": stamps.dt.tz_localize("UTC"),
            "seconds": stamps.dt.floor("s").astype("datetime64[s]"),
            "float": pd.Series([rng.choice([float("nan"), -0.0, 1.5]) for _ in range(rows)], dtype="float32"),
            "row": pd.Series(range(rows), dtype="int32"),
        }
    )
    moment = pl.Series("stamp", moments, dtype=pl.Int64).cast(pl.Datetime("ns"))
    polars = pl.DataFrame(
        {
            "whole": pl.Series(whole, dtype=pl.Int64),
            "text": pl.Series(texts, dtype=pl.String),
            "category": pl.Series(texts, dtype=pl.Categorical),
            "stamp": moment,
            "micro": moment.cast(pl.Datetime("us")),
            "zoned": moment.dt.replace_time_zone("UTC"),
            "list": pl.Series([[each] if each else None for each in whole], dtype=pl.List(pl.Int64)),
            "row": pl.Series(range(rows), dtype=pl.Int32),
        }
    )
    return {"pandas": pandas, "polars": polars}


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_frames_of_other_libraries_come_back(conn: pithead.Connection, library: str) -> None:
    for seed, rng in seeds():
        source = frames(rng, rng.choice([0, 1, 20]))[library]
        loaded(conn, rng, "t", source)
        with duckdb.connect() as duck:
            duck.execute("SET timezone = 'UTC'")
            judged = duck.sql("SELECT * FROM source ORDER BY row")
            relation = conn.sql("SELECT * FROM t ORDER BY row")
            expected = [[plain(value) for value in row] for row in judged.fetchall()]
            # pandas' NaN is NULL for DuckDB, and for pandas' own Arrow.
            found = [[plain(value) for value in row] for row in relation.fetchall()]
            assert [[None if item == "nan" else item for item in row] for row in found] == [
                [None if item == "nan" else item for item in row] for row in expected
            ], f"seed {seed}"
        exact_ns = source["stamp"].to_numpy().astype("datetime64[ns]")
        taken = relation.df()["stamp"].to_numpy()
        assert np.array_equal(
            taken, exact_ns[np.argsort(source["row"].to_numpy(), kind="stable")], equal_nan=False
        ) or np.array_equal(taken.astype(np.int64), exact_ns.astype(np.int64)), f"seed {seed}"
