"""Files that pages take as given. Notes in pages make them: `python -m guides.samples trips pbmc`."""

from __future__ import annotations

import datetime as dt
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def readings() -> None:
    """`readings.csv`, by the program of first-steps.md."""
    page = (ROOT / "docs/guides/first-steps.md").read_text()
    programs = [text for text in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "readings.csv" in text]
    exec(programs[0], {})


def trips() -> None:
    """`trips-0.parquet` and `trips-1.parquet`: 2,000 taxi trips each."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    start = dt.datetime(2026, 1, 1)
    for part in range(2):
        numbers = range(part * 2000, part * 2000 + 2000)
        times = [start + dt.timedelta(minutes=number) for number in numbers]
        columns = {
            "trip_id": list(numbers),
            "city": [("Oslo", "Lima", "Pune", "Bern")[number % 4] for number in numbers],
            "pickup_time": times,
            "day": [time.date() for time in times],
            "fare": [number % 50 + 0.5 for number in numbers],
        }
        pq.write_table(pa.table(columns), f"trips-{part}.parquet")


def pbmc() -> None:
    """`pbmc.h5ad`: counts of 300 blood cells × 40 genes, of three types and two donors."""
    import numpy as np
    import pandas as pd
    from anndata import AnnData
    from scipy import sparse

    random = np.random.default_rng(7)
    genes = ["CD79A", "MS4A1", *(f"GENE{number}" for number in range(38))]
    types = random.choice(["B cell", "T cell", "NK cell"], 300)
    means = np.where((types == "B cell")[:, None] & (np.arange(40) < 2), 5.0, 1.0)
    obs = {"cell_type": pd.Categorical(types), "donor": pd.Categorical(random.choice(["d1", "d2"], 300))}
    cells = pd.DataFrame(obs, index=[f"cell{number}" for number in range(300)])
    counts = sparse.csr_matrix(random.poisson(means).astype(np.float32))
    AnnData(counts, obs=cells, var=pd.DataFrame(index=genes)).write_h5ad("pbmc.h5ad")


def joined() -> None:
    """`lineitem.parquet` and `part.parquet`: some rows of what TPC-H calls so."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    numbers = range(1000)
    lines = {
        "l_partkey": [number % 100 for number in numbers],
        "l_quantity": [float(number % 50) for number in numbers],
        "l_extendedprice": [float(number) for number in numbers],
    }
    parts = {"p_partkey": list(range(100)), "p_brand": [f"Brand#{number % 30}" for number in range(100)]}
    pq.write_table(pa.table(lines), "lineitem.parquet")
    pq.write_table(pa.table(parts), "part.parquet")


if __name__ == "__main__":
    for name in sys.argv[1:]:
        {"readings": readings, "trips": trips, "pbmc": pbmc, "joined": joined}[name]()
