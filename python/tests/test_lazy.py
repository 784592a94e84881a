"""Lazy frames of Polars over Pithead: whatever is asked of one is what Polars itself makes of the whole frame."""

from __future__ import annotations

import datetime as dt
import decimal
import random
from collections.abc import Iterator
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import pithead
from pithead._predicates import pushed

NAN, INF = float("nan"), float("inf")
ROWS = 3000


def values(draw: random.Random, kind: str) -> Any:
    """A value of a column, or a bound that is near one."""
    match kind:
        case "small":
            return draw.choice([-128, -1, 0, 1, 5, 127])
        case "whole":
            return draw.choice([-(2**63), -5, 0, 1, 7, 2**53, 2**53 + 1, 2**63 - 1])
        case "unsigned":
            return draw.choice([0, 1, 9, 2**63, 2**64 - 1])
        case "single" | "double":
            return draw.choice([NAN, INF, -INF, 0.0, -0.0, 0.1, 1.5, -2.25, 3.0, 1e300 if kind == "double" else 1e30])
        case "name":
            return draw.choice(["", "a", "A", "it's", "a%b", "ab_", "é", "\\", 'say "x"', "zz"])
        case "flag":
            return draw.random() < 0.5
        case "day":
            return draw.choice([dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(2024, 2, 29), dt.date(9999, 12, 31)])
        case "moment":
            return draw.choice(
                [dt.datetime(1969, 12, 31, 23, 59, 59, 999999), dt.datetime(2024, 2, 29), dt.datetime(2024, 2, 29, 1, 2, 3, 4)]
            )
        case "amount":
            return draw.choice([decimal.Decimal("-1.50"), decimal.Decimal("0.00"), decimal.Decimal("2.25"), decimal.Decimal("9999999.99")])
    raise AssertionError(kind)


KINDS = ["small", "whole", "unsigned", "single", "double", "name", "flag", "day", "moment", "amount"]
TYPES: dict[str, Any] = {
    "small": pl.Int8, "whole": pl.Int64, "unsigned": pl.UInt64, "single": pl.Float32, "double": pl.Float64, "name": pl.String,
    "flag": pl.Boolean, "day": pl.Date, "moment": pl.Datetime("us"), "amount": pl.Decimal(12, 2),
}  # fmt: skip
SCHEMA = {name: kind() if isinstance(kind, type) else kind for name, kind in TYPES.items()}


def frame() -> pl.DataFrame:
    draw = random.Random(1)
    columns = {
        kind: pl.Series(kind, [None if draw.random() < 0.1 else values(draw, kind) for _ in range(ROWS)], TYPES[kind]) for kind in KINDS
    }
    return pl.DataFrame({"id": range(ROWS), **columns})


@pytest.fixture(scope="module")
def connection() -> Iterator[pithead.Connection]:
    with pithead.connect(drives=2) as connection:
        connection.load("t", frame(), slice_rows=500)
        yield connection


def random_one(draw: random.Random, those: list[pl.Expr]) -> pl.Expr:
    return those[draw.randrange(len(those))]


def predicate(draw: random.Random, depth: int) -> pl.Expr:
    if depth > 0 and draw.random() < 0.6:
        left, right = predicate(draw, depth - 1), predicate(draw, depth - 1)
        return random_one(draw, [left & right, left | right, ~left, left ^ right])
    kind = draw.choice(KINDS)
    column, value = pl.col(kind), values(draw, kind)
    comparisons = [column < value, column <= value, column > value, column >= value, column == value, column != value]
    some = [values(draw, kind) for _ in range(draw.randrange(4))]
    others = [
        column.is_null(),
        column.is_not_null(),
        column.is_in(pl.Series(some, dtype=TYPES[kind]).implode()),
        column.is_in(pl.Series([*some, None], dtype=TYPES[kind]).implode(), nulls_equal=draw.random() < 0.5),
        column.is_between(pl.lit(value), pl.lit(values(draw, kind)), closed=draw.choice(["both", "left", "right", "none"])),
        column.eq_missing(value),
        pl.lit(value, dtype=TYPES[kind]) < column,
    ]
    if kind == "name":
        others += [column.str.starts_with(pl.lit(value)), column.str.ends_with(pl.lit(value)), column.str.len_chars() > 1]
    if kind in ("single", "double"):
        others += [column.is_nan(), column.is_finite(), column * 2 > value, column > 1]
    if kind == "flag":
        others += [column, ~column]
    return random_one(draw, comparisons + others)


@pytest.mark.parametrize("seed", range(8))
def test_predicates_say_what_polars_says(connection: pithead.Connection, seed: int) -> None:
    draw, whole = random.Random(seed), connection.table("t").pl().sort("id")
    lazy = connection.table("t").pl(lazy=True)
    assert dict(lazy.collect_schema()) == dict(whole.schema)
    said = 0
    for _ in range(40):
        asked = predicate(draw, draw.randrange(4))
        columns = draw.sample(["id", *KINDS], draw.randrange(1, 5))
        expected = whole.filter(asked).sort("id").select(columns)
        query = lazy.filter(asked).sort("id").select(columns)
        assert_frame_equal(query.collect(engine=draw.choice(["in-memory", "streaming"])), expected, check_exact=True)
        said += pushed(asked, whole.schema) is not None
    assert said > 10, "some of them are said in SQL"


PUSHED = {
    '"whole" > 5': pl.col("whole") > 5,
    '("whole" >= 1 AND "name" = \'it\'\'s\')': (pl.col("whole") >= 1) & (pl.col("name") == "it's"),
    "\"name\" IN ('a', 'b')": pl.col("name").is_in(["a", "b"]),
    '"day" < DATE \'2024-02-29\'': pl.lit(dt.date(2024, 2, 29)) > pl.col("day"),
    '("whole" < 1 OR "whole" > 3)': ~pl.col("whole").is_between(1, 3),
    '"single" IS NOT NULL': ~pl.col("single").is_null(),
    '("small" > 1)': (pl.col("small") > 1) & (pl.col("name").str.len_chars() > 1),
    "\"amount\" > CAST('1.50' AS DECIMAL(38, 2))": pl.col("amount") > decimal.Decimal("1.50"),
    "NOT \"flag\"": ~pl.col("flag"),
}  # fmt: skip


@pytest.mark.parametrize("sql", PUSHED)
def test_predicates_are_said_in_sql(sql: str) -> None:
    assert pushed(PUSHED[sql], SCHEMA) == sql


def test_what_is_not_sure_is_left_to_polars() -> None:
    for asked in [
        (pl.col("whole") > 5) | (pl.col("name").str.len_chars() > 1),
        ~((pl.col("whole") > 5) & (pl.col("name").str.len_chars() > 1)),
        pl.col("whole").is_in([1, None], nulls_equal=True),
        ~pl.col("whole").is_in([1, None]),
        pl.col("double") == NAN,
        pl.col("unsigned") > -1,
        pl.col("whole") > 1.5,
        pl.col("name") > pl.col("name").shift(),
    ]:
        assert pushed(asked, SCHEMA) is None, asked


def test_rows_and_columns_that_are_not_needed_are_not_read(connection: pithead.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    from pithead import _lazy

    asked: list[tuple[list[str], str | None, int | None]] = []
    narrowed = _lazy._narrowed

    def heard(relation: Any, read: list[str], condition: str | None, limit: int | None) -> Any:
        asked.append((read, condition, limit))
        return narrowed(relation, read, condition, limit)

    monkeypatch.setattr(_lazy, "_narrowed", heard)
    lazy = connection.table("t").pl(lazy=True)
    assert lazy.filter(pl.col("id") < 10).select("name").collect().height == 10
    assert lazy.head(7).collect().height == 7
    assert lazy.head(30).filter(pl.col("id") >= 0).collect().height == 30
    assert lazy.filter(pl.col("id") >= 100).head(30).collect().height == 30
    assert lazy.select(pl.len()).collect().item() == ROWS
    (counted, *_) = asked.pop()
    assert len(counted) == 1, "one column is enough to count rows"
    assert asked == [
        (["id", "name"], '"id" < 10', None),
        (["id", *KINDS], None, 7),
        (["id", *KINDS], None, 30),
        (["id", *KINDS], '"id" >= 100', None),
    ]


def test_statements_of_all_kinds_are_lazy(connection: pithead.Connection) -> None:
    lazy = connection.sql("SELECT id FROM t WHERE id > $1 ORDER BY id DESC", [5]).pl(lazy=True)
    assert lazy.head(2).collect()["id"].to_list() == [ROWS - 1, ROWS - 2]
    assert lazy.filter(pl.col("id") < 8).collect()["id"].to_list() == [7, 6]
    twice = connection.sql("SELECT id, id FROM t -- twice").pl(lazy=True)
    assert twice.filter(pl.col("id_1") == 3).collect().rows() == [(3, 3)]
    assert connection.sql("SHOW TABLES").pl(lazy=True).filter(pl.col("table_name") == "t").collect().height == 1
    left, right = (connection.table("t").pl(lazy=True) for _ in range(2))
    assert left.join(right, on="id").select(pl.len()).collect().item() == ROWS
    with pytest.raises(pl.exceptions.ColumnNotFoundError):
        left.select("nothing").collect()


def test_errors_and_ends_come_through(connection: pithead.Connection) -> None:
    with pytest.raises(Exception, match="[Dd]ivi"):
        connection.sql("SELECT 1 / (id - id) AS x FROM t").pl(lazy=True).collect()
    with pithead.connect() as other:
        other.sql("CREATE TABLE gone AS SELECT 1 AS a")
        lazy = other.table("gone").pl(lazy=True)
        other.drop("gone")
        with pytest.raises(Exception, match="gone"):
            lazy.collect()
    with pytest.raises(Exception, match="closed"):
        lazy.collect()
