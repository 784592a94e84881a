"""Parameters: values of Python in statements."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

import pithead

VALUES = [
    None,
    True,
    -5,
    2**63,
    2**64,
    1.5,
    float("nan"),
    "it's",
    b"\x00'",
    Decimal("12.340"),
    Decimal("-1E+3"),
    Decimal("0.00012"),
    Decimal("1" * 60),
    dt.date(2026, 2, 28),
    dt.time(1, 2, 3, 4),
    dt.datetime(1950, 1, 2, 3, 4, 5, 6),
    dt.datetime(2026, 1, 2, tzinfo=dt.timezone(dt.timedelta(hours=-5))),
    dt.timedelta(days=-1, microseconds=5),
    [1, None, 3],
    ["a", "b"],
]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_values_come_back(conn: pithead.Connection, value: object) -> None:
    for query, params in [("SELECT $1", [value]), ("SELECT ?", (value,)), ("SELECT $v", {"v": value})]:
        (back,) = conn.sql(query, params).fetchone()
        assert back == value or (value != value and back != back), query


def test_numpy_scalars_and_arrays(conn: pithead.Connection) -> None:
    params = [np.int32(7), np.float32(0.5), np.bool_(True), np.array([1, 2]), np.datetime64("2026-01-02", "D")]
    row = conn.sql("SELECT ?, ?, ?, ?, ?", params).fetchone()
    assert row == (7, 0.5, True, [1, 2], dt.date(2026, 1, 2))


def test_parameters_filter_at_the_drives(conn: pithead.Connection) -> None:
    conn.load("t", pa.table({"k": range(1000), "s": [f"s{k % 7}" for k in range(1000)]}))
    relation = conn.sql("SELECT count(*), sum(k) FROM t WHERE k < $most AND s = $s", {"most": 500, "s": "s3"})
    expected = [k for k in range(500) if k % 7 == 3]
    assert relation.fetchone() == (len(expected), sum(expected))
    filters = [node for node in relation.explain().nodes() if "s3" in node.text]
    assert filters and all(node.site == "drive" for node in filters)
    assert conn.sql("SELECT k FROM t WHERE k = ANY($1) ORDER BY k", [[3, 1]]).fetchall() == [(1,), (3,)]
    # A result keeps its values, and what was taken of it by one and by one is not given again.
    assert relation.fetchall() == []
    assert relation.fetchall() == relation.fetchall() != []


@pytest.mark.parametrize(
    ("query", "params", "told"),
    [
        ("SELECT $1", None, "no values"),
        ("SELECT ?, ?", [1], "up to \\$2"),
        ("SELECT $a", {"b": 1}, "parameters \\$a"),
        ("SELECT $1", [object()], "type object"),
        ("SELECT $1", "text", "expected parameters as a list"),
        ("SELECT $1", {1: 2}, "names of parameters"),
        ("SELECT $1", [[1, "a"]], "cannot be used"),
        ("SELECT $1", [Decimal("1." + "1" * 90)], "at most 76"),
    ],
)
def test_what_does_not_fit_is_refused(conn: pithead.Connection, query: str, params: object, told: str) -> None:
    with pytest.raises(pithead.UserError, match=told):
        conn.sql(query, params)
