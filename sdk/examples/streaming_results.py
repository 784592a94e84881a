"""Take a result batch by batch: memory for a few batches is enough, however many rows there are.

    columns: number, square
    1000000 rows, the largest square is 999998000001
"""

import numpy as np
import pithead
import pyarrow as pa
import pyarrow.compute as pc

with pithead.connect(drives=2) as conn:
    conn.load("numbers", pa.table({"number": np.arange(1_000_000)}))

    # A result is lazy: each iteration runs the statement anew, and reads at most eight batches ahead.
    squares = conn.sql("SELECT number, number * number AS square FROM numbers")
    print(f"columns: {', '.join(squares.columns)}")
    rows, largest = 0, 0
    for batch in squares:
        rows += batch.num_rows
        largest = max(largest, pc.max(batch["square"]).as_py())
    print(f"{rows} rows, the largest square is {largest}")
