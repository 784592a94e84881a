#!/usr/bin/env python3
"""DuckDB's answers to random queries (`crates/e2e/src/random`): one line of JSON in, one line out.

    {"tables": {"t0": ["/tmp/x/t0-0.parquet"]}}   {}                                  forgets all other tables
    {"append": "t0", "file": "/tmp/x/1.parquet"}  {}                                  or "replace"
    {"sql": "SELECT 1"}                           {"letters": "I", "rows": [["1"]]}   or {"error": "..."}

Cells and letters are as `render.py` writes them. A table's name may have a schema before it.
"""

import json
import sys

import duckdb

sys.dont_write_bytecode = True
import judge
import render


# Rows of an answer at most. A random join may have millions.
ROWS_MAX = 500_000


def main():
    engine = judge.Engine()
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if "tables" in request:
                engine = with_tables(request["tables"])
                answer = {}
            elif "sql" in request:
                answer = ask(engine, request["sql"])
            else:
                change(engine, **request)
                answer = {}
        except duckdb.Error as error:
            answer = {"error": str(error)}
        print(json.dumps(answer), flush=True)


def with_tables(tables):
    engine = judge.Engine()
    engine.connection.execute("SET threads = 1")
    # DuckDB 2.0 takes two joins for one that differ in the columns that they hand on, and then finds rows that are not there.
    engine.connection.execute("SET disabled_optimizers = 'common_subplan'")
    engine.connection.execute("SET memory_limit = '2GB'")
    for name, files in tables.items():
        schema, _, _ = name.rpartition(".")
        if schema:
            engine.connection.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}")
        engine.connection.execute(f"CREATE TABLE {name} AS FROM read_parquet({files})")
    return engine


def change(engine, file, append=None, replace=None):
    if replace:
        engine.connection.execute(f"DELETE FROM {replace}")
    engine.connection.execute(f"INSERT INTO {append or replace} FROM read_parquet('{file}')")


def ask(engine, sql):
    table = engine.run(sql, ROWS_MAX)
    if table.num_rows > ROWS_MAX:
        return {"error": f"more than {ROWS_MAX} rows, which nobody compares"}
    letters = "".join(render.letter(field.type) for field in table.schema)
    return {"letters": letters, "rows": render.rows(table)}


if __name__ == "__main__":
    main()
