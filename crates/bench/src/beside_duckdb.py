"""Times queries in DuckDB: on tables of its own, and on the Parquet files. Prints JSON.

Arguments: the directory of the Parquet files, a directory for DuckDB's own tables, threads, runs. The queries are read
from standard input as a JSON list of [name, sql].
"""

import json
import os
import sys
import time

import duckdb


def main():
    tables, own, threads, runs = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    queries = json.load(sys.stdin)
    names = sorted(name[: -len(".parquet")] for name in os.listdir(tables) if name.endswith(".parquet"))
    result = {"version": duckdb.__version__}
    result["native"], result["native_peak_bytes"] = native(tables, own, names, threads, runs, queries)
    result["parquet"] = parquet(tables, names, threads, runs, queries)
    # DuckDB may have drawn its progress there: the answer has a line of its own, the last.
    print("\n" + json.dumps(result))


def native(tables, own, names, threads, runs, queries):
    os.makedirs(own, exist_ok=True)
    connection = connect(os.path.join(own, "tpch.duckdb"), threads)
    for name in names:
        path = os.path.join(tables, name + ".parquet")
        connection.execute(f"CREATE TABLE IF NOT EXISTS {name} AS SELECT * FROM read_parquet(?)", [path])
    # Memory from here on, as for the one it is measured beside.
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    return timed(connection, runs, queries), peak_bytes()


def peak_bytes():
    with open("/proc/self/status") as file:
        [line] = [line for line in file if line.startswith("VmHWM:")]
    return int(line.split()[1]) * 1024


def parquet(tables, names, threads, runs, queries):
    connection = connect(":memory:", threads)
    for name in names:
        path = os.path.join(tables, name + ".parquet").replace("'", "''")
        connection.execute(f"CREATE VIEW {name} AS SELECT * FROM read_parquet('{path}')")
    return timed(connection, runs, queries)


def connect(path, threads):
    connection = duckdb.connect(path, config={"threads": threads})
    connection.execute("SET enable_progress_bar = false")
    return connection


def timed(connection, runs, queries):
    seconds = {}
    for name, sql in queries:
        once(connection, sql)
        seconds[name] = [once(connection, sql) for _ in range(runs)]
    return seconds


def once(connection, sql):
    # Rows as Arrow, which is what they are on the other side, too, and not as objects of Python's.
    start = time.perf_counter()
    connection.sql(sql).to_arrow_table()
    return time.perf_counter() - start


main()
