"""A whole table into polars and pandas, from Pithead and from DuckDB's package."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import measure

KINDS = ("polars", "pandas", "pandas_as_is")
"""Frames; for "pandas" SQL makes the types that pandas has, for "pandas_as_is" `.df()` does, of decimals and dates as they are stored."""
_KEY = ["l_orderkey", "l_linenumber"]
_AS_IS = "SELECT * FROM lineitem"
# What `.df()` of both makes of `_AS_IS`.
_PLAIN = """
    SELECT l_orderkey, l_partkey, l_suppkey, l_linenumber, CAST(l_quantity AS DOUBLE) AS l_quantity,
        CAST(l_extendedprice AS DOUBLE) AS l_extendedprice, CAST(l_discount AS DOUBLE) AS l_discount, CAST(l_tax AS DOUBLE) AS l_tax,
        l_returnflag, l_linestatus, CAST(l_shipdate AS TIMESTAMP) AS l_shipdate, CAST(l_commitdate AS TIMESTAMP) AS l_commitdate,
        CAST(l_receiptdate AS TIMESTAMP) AS l_receiptdate, l_shipinstruct, l_shipmode, l_comment
    FROM lineitem"""


def task(lineitem: str, folder: str, runs: int) -> dict[str, Any]:
    """Loads lineitem once into each, then fetches it in turns, once to compare and `runs` times. Seconds of each way."""
    import duckdb
    import pithead

    Path(folder).mkdir(parents=True, exist_ok=True)
    with pithead.connect(f"{folder}/pithead") as conn, duckdb.connect(f"{folder}/lineitem.duckdb") as peer:
        conn.load("lineitem", lineitem, mode="replace", progress=False)
        peer.execute("SET enable_progress_bar = false")
        peer.execute("CREATE OR REPLACE TABLE lineitem AS SELECT * FROM read_parquet(?)", [lineitem])
        ways = {
            f"{engine}_{kind}": _way(relation, kind) for kind in KINDS for engine, relation in (("pithead", conn.sql), ("duckdb", peer.sql))
        }
        rows = _same(ways)
        seconds: dict[str, list[float]] = {way: [] for way in ways}
        for _ in range(runs):
            for way, fetch in ways.items():
                started = time.perf_counter()
                frame = fetch()
                seconds[way].append(time.perf_counter() - started)
                if len(frame) != rows:
                    raise measure.Failed(f"{way} gave {len(frame)} rows, and {rows} before")
                del frame
    versions = {"pithead": pithead.__version__, "duckdb": duckdb.__version__}
    return {"rows": rows, "versions": versions, "seconds": {way: measure.spread(taken) for way, taken in seconds.items()}}


def _way(sql: Callable[[str], Any], kind: str) -> Callable[[], Any]:
    if kind == "polars":
        return lambda: sql(_AS_IS).pl()
    return lambda: sql(_PLAIN if kind == "pandas" else _AS_IS).df()


def _same(ways: dict[str, Callable[[], Any]]) -> int:
    """Fetches in each way once, and gives how many rows there are. Raises if both do not give the same tables."""
    import pandas
    import polars

    ours, theirs = (ways[f"{engine}_polars"]().sort(_KEY) for engine in ("pithead", "duckdb"))
    rows = len(ours)
    decimals = polars.selectors.decimal().cast(polars.Float64)
    if not ours.with_columns(decimals).equals(theirs.cast(dict(ours.schema)).with_columns(decimals)):
        raise measure.Failed("lineitem in polars is not the same from Pithead and from DuckDB")
    for kind in ("pandas", "pandas_as_is"):
        ours, theirs = (ways[f"{engine}_{kind}"]().sort_values(_KEY, ignore_index=True) for engine in ("pithead", "duckdb"))
        try:
            # Units of timestamps may differ.
            pandas.testing.assert_frame_equal(ours, theirs, check_dtype=False, check_exact=True)
        except AssertionError as different:
            raise measure.Failed(f"lineitem in {kind} is not the same from Pithead and from DuckDB: {different}") from None
    return rows
