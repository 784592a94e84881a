"""Load Arrow batches as they are made, without a file: the source streams, and is never in memory as a whole.

    100000 rows, of which 10 have a reading over 0.9999
"""

from collections.abc import Iterator

import numpy as np
import pithead
import pyarrow as pa

SCHEMA = pa.schema([("sensor", pa.int64()), ("reading", pa.float64())])


def batches() -> Iterator[pa.RecordBatch]:
    """Ten batches of 10,000 readings that are spread evenly over 0 to 1."""
    for sensor in range(10):
        readings = np.arange(10_000) / 10_000
        yield pa.record_batch([np.full(10_000, sensor), readings + 0.00001], schema=SCHEMA)


with pithead.connect(drives=2) as conn:
    # Anything with Arrow's C stream can be loaded: readers and tables of pyarrow, frames of pandas and polars, results.
    report = conn.load("readings", pa.RecordBatchReader.from_batches(SCHEMA, batches()), partition_by="hash:sensor")
    high = conn.sql("SELECT count(*) FROM readings WHERE reading > 0.9999").fetchall()[0][0]
    print(f"{report.rows} rows, of which {high} have a reading over 0.9999")
