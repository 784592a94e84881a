"""DuckDB as a server by the Quack protocol, and as a client by it or by PostgreSQL's.

The server: serve ADDRESS DATABASE DIRECTORY THREADS, then the names of the tables, which it loads from Parquet files into a database of its
own. The client: attached ADDRESS THREADS has the server's tables attached, and answers queries over them itself; query ADDRESS THREADS
sends whole queries to the server. An address is quack:HOST:PORT, or postgres: and a connection string. Requests to a client are lines of JSON on standard input, {"run": {"sql": …, "answer": a file to write}},
and each is answered by a line on standard output.
"""

import json
import os
import sys
import time

import duckdb
import duckdb_extension_httpfs
import duckdb_extension_postgres_scanner
import duckdb_extension_quack
import pyarrow.ipc

TOKEN = "benchmark"


def main():
    way, address, *rest = sys.argv[1:]
    if way == "serve":
        serve(address, *rest)
    else:
        answer(way, address, *rest)


def connect(database, threads):
    connection = duckdb.connect(database, config={"threads": int(threads)})
    connection.execute("SET enable_progress_bar = false")
    for module in (duckdb_extension_httpfs, duckdb_extension_postgres_scanner, duckdb_extension_quack):
        name = module.__name__.removeprefix("duckdb_extension_")
        path = os.path.join(os.path.dirname(module.__file__), "extensions", "v" + duckdb.__version__, name + ".duckdb_extension")
        connection.execute(f"LOAD {text(path)}")
    return connection


def serve(address, database, directory, threads, *tables):
    connection = connect(database, threads)
    for table in tables:
        path = text(os.path.join(directory, table + ".parquet"))
        connection.execute(f"CREATE OR REPLACE TABLE {table} AS SELECT * FROM read_parquet({path})")
    options = f"token := {text(TOKEN)}, allow_other_hostname := true, disable_ssl := true"
    connection.execute(f"CALL quack_serve({text(address)}, {options})")
    say({"ready": ready("tables of its own")})
    for _ in sys.stdin:
        pass


def answer(way, address, threads):
    connection = connect(":memory:", threads)
    kind, _, server = address.partition(":")
    of_quack = f"{text(address)} AS remote (TYPE quack, TOKEN {text(TOKEN)}, DISABLE_SSL true)"
    if kind == "postgres":
        connection.execute(f"ATTACH {text(server)} AS remote (TYPE postgres, READ_ONLY)")
    elif way == "attached":
        connection.execute(f"ATTACH {of_quack}")
    if way == "attached":
        connection.execute("USE remote.main" if kind == "postgres" else "USE remote")
    say({"ready": ready(way)})
    for line in sys.stdin:
        request = json.loads(line)["run"]
        sql = request["sql"]
        if way == "query" and kind == "postgres":
            sql = f"SELECT * FROM postgres_query('remote', {text(sql)})"
        elif way == "query":
            sql = f"SELECT * FROM quack_query({text(address)}, {text(sql)}, token := {text(TOKEN)}, disable_ssl := true)"
        try:
            seconds, rows = run(connection, sql, request["answer"])
        except duckdb.Error as error:
            say({"failed": {"message": str(error)}})
        else:
            say({"ran": {"seconds": seconds, "rows": rows}})


def run(connection, sql, answer):
    start = time.perf_counter()
    table = connection.sql(sql).to_arrow_table()
    seconds = time.perf_counter() - start
    with pyarrow.ipc.new_file(answer, table.schema) as writer:
        writer.write_table(table)
    return seconds, table.num_rows


def ready(what):
    return {"version": f"DuckDB {duckdb.__version__} by Quack", "settings": [what]}


def text(value):
    return "'" + value.replace("'", "''") + "'"


def say(reply):
    print(json.dumps(reply), flush=True)


main()
