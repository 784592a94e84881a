"""Answers queries in DuckDB over Parquet files that an HTTP server has. Nothing of them is kept from one query to the next.

Arguments: the address of the directory, such as http://10.0.0.2:80, threads, then the names of the tables. Requests are lines of JSON
on standard input, {"run": {"sql": …, "answer": a file to write}}, and each is answered by a line on standard output.
"""

import json
import os
import sys
import time

import duckdb
import duckdb_extension_httpfs
import pyarrow.ipc

CACHES_OFF = {
    "enable_external_file_cache": "false",
    "enable_http_metadata_cache": "false",
    "parquet_metadata_cache": "false",
    "enable_object_cache": "false",
}


def main():
    url, threads, tables = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
    connection = duckdb.connect(":memory:", config={"threads": threads})
    settings = prepare(connection)
    for table in tables:
        connection.execute(f"CREATE VIEW {table} AS SELECT * FROM read_parquet('{url}/{table}.parquet')")
    say({"ready": {"version": f"DuckDB {duckdb.__version__}", "settings": settings}})
    for line in sys.stdin:
        request = json.loads(line)["run"]
        try:
            seconds, rows = run(connection, request["sql"], request["answer"])
        except duckdb.Error as error:
            say({"failed": {"message": str(error)}})
        else:
            say({"ran": {"seconds": seconds, "rows": rows}})


def prepare(connection):
    connection.execute("SET enable_progress_bar = false")
    folder = os.path.join(os.path.dirname(duckdb_extension_httpfs.__file__), "extensions", "v" + duckdb.__version__)
    path = os.path.join(folder, "httpfs.duckdb_extension").replace("'", "''")
    connection.execute(f"LOAD '{path}'")
    known = {name for (name,) in connection.execute("SELECT name FROM duckdb_settings()").fetchall()}
    settings = []
    for name, value in CACHES_OFF.items():
        if name in known:
            connection.execute(f"SET {name} = {value}")
            settings.append(f"{name} = {value}")
        else:
            settings.append(f"{name}: not in this version")
    return settings


def run(connection, sql, answer):
    start = time.perf_counter()
    table = connection.sql(sql).to_arrow_table()
    seconds = time.perf_counter() - start
    with pyarrow.ipc.new_file(answer, table.schema) as writer:
        writer.write_table(table)
    return seconds, table.num_rows


def say(reply):
    print(json.dumps(reply), flush=True)


main()
