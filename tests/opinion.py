#!/usr/bin/env python3
"""DuckDB's answers to random queries (`crates/e2e/src/random`): one line of JSON in, one line out.

    {"tables": {"t0": "/tmp/x/t0-*.parquet"}}     {}                                  forgets all other tables
    {"sql": "SELECT 1"}                           {"letters": "I", "rows": [["1"]]}   or {"error": "..."}

Cells and letters are as `render.py` writes them.
"""

import json
import sys

import duckdb

sys.dont_write_bytecode = True
import judge
import render


def main():
    engine = judge.Engine()
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if "tables" in request:
                engine = judge.Engine()
                engine.connection.execute("SET threads = 1")
                for name, files in request["tables"].items():
                    engine.register(name, files, "parquet")
                answer = {}
            else:
                answer = ask(engine, request["sql"])
        except duckdb.Error as error:
            answer = {"error": str(error)}
        print(json.dumps(answer), flush=True)


def ask(engine, sql):
    table = engine.run(sql)
    letters = "".join(render.letter(field.type) for field in table.schema)
    return {"letters": letters, "rows": render.rows(table)}


if __name__ == "__main__":
    main()
