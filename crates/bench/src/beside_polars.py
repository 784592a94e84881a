"""Times queries in Polars' streaming engine on Parquet files. Prints JSON.

Arguments: the directory of the Parquet files, a directory for answers, threads, runs. The queries are read from standard
input as a JSON list of [name, sql]. A query that Polars' SQL refuses, or that fails, is told of with its error; the
answer of each other one is written to NAME.arrow. Frames are lazy: every run reads the files.
"""

import json
import os
import sys
import time

os.environ["POLARS_MAX_THREADS"] = sys.argv[3]

import polars as pl


def main():
    tables, answers, runs = sys.argv[1], sys.argv[2], int(sys.argv[4])
    queries = json.load(sys.stdin)
    os.makedirs(answers, exist_ok=True)
    files = sorted(name for name in os.listdir(tables) if name.endswith(".parquet"))
    frames = {name[: -len(".parquet")]: pl.scan_parquet(os.path.join(tables, name)) for name in files}
    result = {"version": pl.__version__, "seconds": {}, "refused": {}}
    with pl.SQLContext(frames) as context:
        for name, sql in queries:
            try:
                answer = run(context, sql)
                result["seconds"][name] = [once(context, sql) for _ in range(runs)]
            except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
                result["refused"][name] = str(error).splitlines()[0]
                result["seconds"].pop(name, None)
                continue
            path = os.path.join(answers, name + ".arrow")
            answer.write_ipc(path, compression="uncompressed", compat_level=pl.CompatLevel.oldest())
    print("\n" + json.dumps(result))


def run(context, sql):
    return context.execute(sql, eager=False).collect(engine="streaming")


def once(context, sql):
    start = time.perf_counter()
    run(context, sql)
    return time.perf_counter() - start


main()
