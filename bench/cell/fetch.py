"""A whole table into polars and pandas, from Pithead and from DuckDB's package."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import measure

_SQL = "SELECT * FROM lineitem"
_KEY = ["l_orderkey", "l_linenumber"]


def task(lineitem: str, folder: str, runs: int) -> dict[str, Any]:
    """Loads lineitem once into each, then fetches it in turns, once to warm up and `runs` times. Seconds of each way."""
    import duckdb
    import pithead

    Path(folder).mkdir(parents=True, exist_ok=True)
    with pithead.connect(f"{folder}/pithead") as conn, duckdb.connect(f"{folder}/lineitem.duckdb") as peer:
        conn.load("lineitem", lineitem, mode="replace", progress=False)
        peer.execute("SET enable_progress_bar = false")
        peer.execute("CREATE OR REPLACE TABLE lineitem AS SELECT * FROM read_parquet(?)", [lineitem])
        ways: dict[str, Callable[[], Any]] = {
            "pithead_polars": lambda: conn.sql(_SQL).pl(),
            "duckdb_polars": lambda: peer.sql(_SQL).pl(),
            "pithead_pandas": lambda: conn.sql(_SQL).df(),
            "duckdb_pandas": lambda: peer.sql(_SQL).df(),
        }
        rows = _same(ways)
        seconds: dict[str, list[float]] = {way: [] for way in ways}
        for _ in range(runs):
            for way, fetch in ways.items():
                started = time.perf_counter()
                frame = fetch()
                seconds[way].append(time.perf_counter() - started)
                assert len(frame) == rows
                del frame
    versions = {"pithead": pithead.__version__, "duckdb": duckdb.__version__}
    return {"rows": rows, "versions": versions, "seconds": {way: measure.spread(taken) for way, taken in seconds.items()}}


def _same(ways: dict[str, Callable[[], Any]]) -> int:
    """Fetches in each way once. Raises if both do not give the same table."""
    import polars

    frames = [ways[way]() for way in ("pithead_polars", "duckdb_polars")]
    common = [frame.sort(_KEY).with_columns(polars.selectors.decimal().cast(polars.Float64)) for frame in frames]
    if not common[0].equals(common[1].cast(dict(common[0].schema))):
        raise measure.Failed("lineitem in polars is not the same from Pithead and from DuckDB")
    sizes = {way: len(ways[way]()) for way in ("pithead_pandas", "duckdb_pandas")}
    if set(sizes.values()) != {len(frames[0])}:
        raise measure.Failed(f"lineitem in pandas has {sizes} rows, and {len(frames[0])} in polars")
    return len(frames[0])
