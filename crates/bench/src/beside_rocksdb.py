"""Times durable puts in RocksDB (rocksdict). Prints JSON.

Arguments: a directory for databases, the workloads as a JSON list of {bytes, writers, puts}, and the puts of each writer
before the clock starts. Each put is synchronous: it returns when the write-ahead log is flushed. rocksdict lets go of
Python's lock while RocksDB works, so writers share flushes as RocksDB's own threads would.
"""

import importlib.metadata
import json
import os
import shutil
import sys
import threading
import time

import rocksdict

POOL = os.urandom(8 << 20)


def main():
    directory, workloads, warm_up = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3])
    version = importlib.metadata.version("rocksdict")
    rates = [timed(directory, warm_up, **workload) for workload in workloads]
    print("\n" + json.dumps({"version": "rocksdict " + version, "puts_a_second": rates}))


def timed(directory, warm_up, bytes, writers, puts):
    path = os.path.join(directory, "db")
    database = rocksdict.Rdict(path, rocksdict.Options(raw_mode=True))
    durable = rocksdict.WriteOptions()
    durable.sync = True

    def put(number):
        start = number * 4096 % (len(POOL) - bytes)
        database.put(b"put/%08d" % number, POOL[start : start + bytes], durable)

    run(put, writers, range(warm_up * writers))
    seconds = run(put, writers, range(warm_up * writers, warm_up * writers + puts))
    database.close()
    shutil.rmtree(path)
    return puts / seconds


def run(put, writers, numbers):
    """Seconds that all puts took, each done by one of the writers."""
    left, start, failures = iter(numbers), threading.Barrier(writers + 1), []

    def write():
        start.wait()
        try:
            # next() of a range's iterator is one step under Python's lock, so no number is taken twice.
            while (number := next(left, None)) is not None:
                put(number)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=write) for _ in range(writers)]
    for thread in threads:
        thread.start()
    start.wait()
    started = time.perf_counter()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return time.perf_counter() - started


main()
