"""See what a filter at the drives saves: with push-down off, the drives send columns, and the host filters.

    push-down on: 100 rows come from the drives
    push-down off: 100000 rows come from the drives
"""

import numpy as np
import pithead
import pyarrow as pa

with pithead.connect(drives=2) as conn:
    conn.load("numbers", pa.table({"number": np.arange(100_000)}))

    thousands = conn.sql("SELECT number FROM numbers WHERE number % 1000 = 0")
    for setting in ("on", "off"):
        conn.sql(f"SET pithead.pushdown = {setting}")
        thousands.fetchall()
        print(f"push-down {setting}: {thousands.profile()['rows_from_drives']} rows come from the drives")
