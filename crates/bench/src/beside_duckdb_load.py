"""Times DuckDB's CREATE TABLE AS from Parquet files into a new database file. Prints JSON.

Arguments: the directory of the Parquet files, a directory for the database, threads, the names of the tables in the
order in which they are made, with commas between, a table whose rows are deleted, which of them, and how many rows are
inserted one by one. A statement has committed when its clock stops; CPU is that of the whole process.
"""

import json
import os
import shutil
import sys
import time

import duckdb


def main():
    tables, own, threads, names = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4].split(",")
    table, deleted, inserts = sys.argv[5], sys.argv[6], int(sys.argv[7])
    shutil.rmtree(own, ignore_errors=True)
    os.makedirs(own)
    connection = duckdb.connect(os.path.join(own, "load.duckdb"), config={"threads": threads})
    connection.execute("SET enable_progress_bar = false")
    made = {name: made_from(connection, name, os.path.join(tables, name + ".parquet")) for name in names}
    # Closing writes what the log still holds into the database.
    connection.close()
    stored = sum(os.path.getsize(os.path.join(own, file)) for file in os.listdir(own))
    connection = duckdb.connect(os.path.join(own, "load.duckdb"), config={"threads": threads})
    connection.execute("SET enable_progress_bar = false")
    changed = changes(connection, table, deleted, inserts)
    connection.close()
    shutil.rmtree(own)
    result = {"version": duckdb.__version__, "tables": made, "stored_bytes": stored, "changes": changed}
    print("\n" + json.dumps(result))


def changes(connection, table, deleted, inserts):
    connection.execute("CREATE TABLE inserted (k BIGINT, v VARCHAR)")
    start = time.perf_counter()
    for k in range(inserts):
        connection.execute(f"INSERT INTO inserted VALUES ({k}, 'value {k}')")
    inserts_per_s = inserts / (time.perf_counter() - start)
    rewrite = timed(connection, f"CREATE TABLE again AS SELECT * FROM {table}")
    delete = timed(connection, f"DELETE FROM {table} WHERE {deleted}")
    return {"inserts_per_s": inserts_per_s, "delete_seconds": delete, "rewrite_seconds": rewrite}


def timed(connection, sql):
    start = time.perf_counter()
    connection.execute(sql).fetchall()
    return time.perf_counter() - start


def made_from(connection, name, path):
    start, cpu = time.perf_counter(), time.process_time()
    connection.execute(f"CREATE TABLE {name} AS SELECT * FROM read_parquet(?)", [path])
    seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu
    [rows] = connection.execute(f"SELECT count(*) FROM {name}").fetchone()
    return {"rows": rows, "seconds": seconds, "cpu_seconds": cpu_seconds}


main()
