"""Append to a dataset, and replace it: readers see the rows before or after, and nothing between.

    created: 2 rows, sum 3
    appended: 3 rows, sum 13
    replaced: 1 rows, sum 7
"""

import pithead
import pyarrow as pa


def tell(conn: pithead.Connection, what: str) -> None:
    """Prints how many rows there are, and their sum."""
    rows, total = conn.sql("SELECT count(*), sum(value) FROM numbers").fetchall()[0]
    print(f"{what}: {rows} rows, sum {total}")


with pithead.connect(drives=2) as conn:
    conn.load("numbers", pa.table({"value": [1, 2]}))
    tell(conn, "created")
    conn.load("numbers", pa.table({"value": [10]}), mode="append")
    tell(conn, "appended")
    conn.load("numbers", pa.table({"value": [7]}), mode="replace")
    tell(conn, "replaced")
