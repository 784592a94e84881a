#!/usr/bin/env python3
"""DuckDB as the judge: what the suites and TPC-H must answer, from an engine that shares no code with Pithead.

usage: judge.py check [--update] [--data DIR] [FILE.slt ...]
       judge.py answers --tables DIR --queries DIR --out FILE

`check` makes the suites' datasets (`data/make.py`), runs every record of the `.slt` files that DuckDB is meant to run
(not `skipif duckdb`), and compares; `--update` writes DuckDB's answers and type letters into the files instead.
`answers` runs each `.sql` file over the Parquet files of a directory and writes the rows as JSON:

    {"q01": {"columns": ["l_returnflag"], "letters": "T", "rows": [["A"]]}}
"""

import argparse
import importlib.util
import json
import os
import pathlib
import sys

try:
    import duckdb
except ImportError:
    sys.exit("judge.py needs duckdb and pyarrow\nhint: run tools/setup.sh, then .tools/bin/python crates/e2e/suites/judge.py")

sys.dont_write_bytecode = True
import render
import slt

SUITES = pathlib.Path(__file__).resolve().parent
MISMATCHES_SHOWN_MAX = 20


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    check = commands.add_parser("check", help="compare the suites with DuckDB")
    check.add_argument("--update", action="store_true", help="write DuckDB's answers into the files")
    check.add_argument("--data", type=pathlib.Path, default=target() / "test-data")
    check.add_argument("files", nargs="*", type=pathlib.Path)
    answers = commands.add_parser("answers", help="write DuckDB's answers as JSON")
    answers.add_argument("--tables", type=pathlib.Path, required=True)
    answers.add_argument("--queries", type=pathlib.Path, required=True)
    answers.add_argument("--out", type=pathlib.Path, required=True)
    options = parser.parse_args()
    return run_check(options) if options.command == "check" else run_answers(options)


def target():
    return pathlib.Path(os.environ.get("CARGO_TARGET_DIR") or SUITES.parents[2] / "target")


def run_check(options):
    make = load_module(SUITES / "data" / "make.py")
    make.main(options.data)
    engine = Engine()
    for dataset in json.loads((options.data / "manifest.json").read_text()):
        engine.register(dataset["name"], options.data / dataset["files"], dataset["format"])
    records = mismatches = 0
    for path in options.files or sorted((SUITES / "slt").glob("*.slt")):
        suite = slt.read(path)
        failed = [told for record in suite if record.verb and record.applies("duckdb") for told in judge(engine, record, options.update)]
        for line, told in failed[:MISMATCHES_SHOWN_MAX]:
            print(f"{path}:{line}: {told}", file=sys.stderr)
        records += sum(1 for record in suite if record.verb)
        mismatches += len(failed)
        if options.update:
            slt.write(path, suite)
    print(f"DuckDB {duckdb.__version__}: {records} records, {mismatches} not as written")
    return 1 if mismatches else 0


def judge(engine, record, update):
    """Runs one record; says what is not as written."""
    try:
        table = engine.run(record.sql)
    except duckdb.Error as error:
        return [] if record.fails else [(record.line, f"DuckDB refuses: {error}")]
    if record.fails:
        return [(record.line, "DuckDB answers, though an error is expected")]
    if record.verb == "statement":
        return []
    letters = "".join(render.letter(field.type) for field in table.schema)
    rows = render.rows(table)
    if record.unordered:
        rows.sort(key=lambda row: render.key(letters, row))
    if update:
        record.words[0], record.rows = letters, rows
        return []
    return [(record.line, told) for told in compare(record, letters, rows)]


def compare(record, letters, rows):
    expected = record.rows
    if record.words[0] != letters:
        yield f"types are {letters}, written is {record.words[0]}"
    elif len(rows) != len(expected):
        yield f"{len(rows)} rows, written are {len(expected)}"
    else:
        if record.unordered:
            expected = sorted(expected, key=lambda row: render.key(letters, row))
        for got, written in zip(rows, expected):
            if not render.same(letters, got, written):
                yield f"row {got}, written is {written}"
                return


def run_answers(options):
    engine = Engine()
    for path in sorted(options.tables.glob("*.parquet")):
        engine.register(path.stem, path, "parquet")
    answers = {}
    for path in sorted(options.queries.glob("*.sql")):
        table = engine.run(path.read_text())
        letters = "".join(render.letter(field.type) for field in table.schema)
        answers[path.stem] = {"columns": table.column_names, "letters": letters, "rows": render.rows(table)}
    partial = options.out.with_suffix(".partial")
    partial.write_text(json.dumps(answers, ensure_ascii=False, indent=0) + "\n")
    partial.rename(options.out)
    return 0


class Engine:
    """DuckDB with datasets in tables, and with the names that DuckDB spells otherwise."""

    MACROS = ["CREATE MACRO regexp_like(s, p) AS regexp_matches(s, p), (s, p, o) AS regexp_matches(s, p, o)"]
    SPELLINGS = {"LEFT SEMI JOIN": "SEMI JOIN", "LEFT ANTI JOIN": "ANTI JOIN"}

    def __init__(self):
        self.connection = duckdb.connect()
        for statement in ["SET TimeZone = 'UTC'", *self.MACROS]:
            self.connection.execute(statement)

    def register(self, name, files, form):
        if form == "arrow":
            import pyarrow

            with pyarrow.ipc.open_file(files) as reader:
                self.connection.register("incoming", reader.read_all())
            source = "incoming"
        else:
            source = f"read_{form}('{files}')"
        self.connection.execute(f'CREATE TABLE "{name}" AS FROM {source}')

    def run(self, sql, rows_max=None):
        """Its answer, of which rows beyond one more than `rows_max` are not taken."""
        for ours, theirs in self.SPELLINGS.items():
            sql = sql.replace(ours, theirs)
        if not returns_rows(sql):
            return self.connection.execute(sql)
        answer = self.connection.sql(sql)
        return (answer if rows_max is None else answer.limit(rows_max + 1)).to_arrow_table()


def returns_rows(sql):
    words = [word for line in sql.split("\n") if not line.startswith("--") for word in line.split()]
    return words[0].upper() in ("SELECT", "WITH", "VALUES", "FROM", "(SELECT") or "RETURNING" in words


def load_module(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    sys.exit(main())
