"""Times a query over lineitem in DuckDB: on a table as the Parquet file has it, and on one sorted by l_shipdate. Prints JSON.

Arguments: lineitem's Parquet file, a directory for DuckDB's own tables, threads, runs, the query.
"""

import json
import os
import sys
import time

import duckdb


def main():
    parquet, own, threads, runs, sql = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
    os.makedirs(own, exist_ok=True)
    result = {"version": duckdb.__version__}
    for name, order in (("native", ""), ("sorted", " ORDER BY l_shipdate")):
        connection = duckdb.connect(os.path.join(own, name + ".duckdb"), config={"threads": threads})
        connection.execute("SET enable_progress_bar = false")
        connection.execute("CREATE TABLE IF NOT EXISTS lineitem AS SELECT * FROM read_parquet(?)" + order, [parquet])
        once(connection, sql)
        result[name] = [once(connection, sql) for _ in range(runs)]
        connection.close()
    # DuckDB may have drawn its progress there: the answer has a line of its own, the last.
    print("\n" + json.dumps(result))


def once(connection, sql):
    start = time.perf_counter()
    connection.sql(sql).to_arrow_table()
    return time.perf_counter() - start


main()
