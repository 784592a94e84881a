"""Times DuckDB's CREATE TABLE AS from Parquet files into a new database file. Prints JSON.

Arguments: the directory of the Parquet files, a directory for the database, threads, and the names of the tables in
the order in which they are made, with commas between. A statement has committed when its clock stops; CPU is that of
the whole process.
"""

import json
import os
import shutil
import sys
import time

import duckdb


def main():
    tables, own, threads, names = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4].split(",")
    shutil.rmtree(own, ignore_errors=True)
    os.makedirs(own)
    connection = duckdb.connect(os.path.join(own, "load.duckdb"), config={"threads": threads})
    connection.execute("SET enable_progress_bar = false")
    made = {name: made_from(connection, name, os.path.join(tables, name + ".parquet")) for name in names}
    # Closing writes what the log still holds into the database.
    connection.close()
    stored = sum(os.path.getsize(os.path.join(own, file)) for file in os.listdir(own))
    shutil.rmtree(own)
    print("\n" + json.dumps({"version": duckdb.__version__, "tables": made, "stored_bytes": stored}))


def made_from(connection, name, path):
    start, cpu = time.perf_counter(), time.process_time()
    connection.execute(f"CREATE TABLE {name} AS SELECT * FROM read_parquet(?)", [path])
    seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu
    [rows] = connection.execute(f"SELECT count(*) FROM {name}").fetchone()
    return {"rows": rows, "seconds": seconds, "cpu_seconds": cpu_seconds}


main()
