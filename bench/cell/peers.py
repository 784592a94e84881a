"""The same question in scanpy, TileDB-SOMA and DuckDB: which genes differ between each group and all other cells."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from . import answers, measure
from .answers import TARGET_SUM, Sums

_PARQUET_ROWS = 1 << 20


def scanpy_task(h5ad: str, out: str, runs: int) -> dict[str, Any]:
    """In memory: reading, normalising and ranking, each measured by itself. The last two run once before, over little, to be compiled."""
    import anndata
    import scanpy

    def normalise(adata: anndata.AnnData) -> None:
        scanpy.pp.normalize_total(adata, target_sum=TARGET_SUM)
        scanpy.pp.log1p(adata)

    def rank(adata: anndata.AnnData) -> None:
        scanpy.tl.rank_genes_groups(adata, "group", method="t-test")

    warm = _little()
    normalise(warm)
    rank(warm)
    with measure.stage() as reading:
        adata = anndata.read_h5ad(h5ad)
    with measure.stage() as normalising:
        normalise(adata)
    ranking = []
    for _ in range(runs):
        with measure.stage() as took:
            rank(adata)
        ranking.append(took)
    answers.save(out, _scanpy_answer(adata))
    stages = {"read": reading, "normalise": normalising, "rank": ranking}
    return {"version": scanpy.__version__, "threads": _threads(), **stages}


def _little() -> Any:
    import anndata
    import pandas as pd
    from scipy import sparse

    matrix = sparse.random(200, 50, 0.3, format="csr", dtype=np.float32, random_state=1)
    return anndata.AnnData(matrix, pd.DataFrame({"group": pd.Categorical(["a", "b"] * 100)}, index=[str(each) for each in range(200)]))


def _threads() -> int:
    import numba

    return int(numba.get_num_threads())


def _scanpy_answer(adata: Any) -> dict[str, np.ndarray]:
    found = adata.uns["rank_genes_groups"]
    groups = found["names"].dtype.names
    order = np.stack([adata.var_names.get_indexer(found["names"][group]) for group in groups])
    answer = {"order": order}
    for key in ("scores", "pvals"):
        answer[key] = np.empty(order.shape)
        for row, group in enumerate(groups):
            answer[key][row, order[row]] = found[key][group]
    return answer


def soma_load_task(h5ad: str, uri: str) -> dict[str, Any]:
    """Ingests the file as its package does it."""
    import tiledbsoma
    import tiledbsoma.io

    with measure.stage() as took:
        tiledbsoma.io.from_h5ad(uri, h5ad, measurement_name="RNA")
    return {"version": tiledbsoma.__version__, "load": took, "stored_bytes": measure.size_of(Path(uri))}


def soma_task(uri: str, out: str, runs: int) -> dict[str, Any]:
    """Streams X as tables into sums of each group, as those who compute over the Census do, and tests by scipy."""
    import tiledbsoma

    def ask() -> dict[str, np.ndarray]:
        with tiledbsoma.Experiment.open(uri) as experiment:
            cells = experiment.obs.read(column_names=["soma_joinid", "group", "total"]).concat().to_pandas()
            genes = experiment.ms["RNA"].var.count
            group, factors = cells["group"].cat.codes.to_numpy(np.int64), TARGET_SUM / cells["total"].to_numpy()
            sums = Sums.zeros(group, len(cells["group"].cat.categories), genes)
            for table in experiment.ms["RNA"].X["data"].read().tables():
                cell = table["soma_dim_0"].to_numpy()
                values = np.log1p(table["soma_data"].to_numpy() * factors[cell])
                sums.add(group[cell] * genes + table["soma_dim_1"].to_numpy(), values)
        return answers.welch(sums.shaped())

    return {"version": tiledbsoma.__version__, "query": _asked(ask, out, runs)}


def duckdb_load_task(h5ad: str, folder: str) -> dict[str, Any]:
    """Writes Parquet: a row a value that is not zero, by gene and cell, and a row a cell."""
    import anndata
    import pyarrow as pa
    import pyarrow.parquet as pq

    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    with measure.stage() as took:
        adata = anndata.read_h5ad(h5ad)
        obs = adata.obs
        matrix = adata.X.tocsc()
        del adata
        gene = np.repeat(np.arange(matrix.shape[1], dtype=np.int32), np.diff(matrix.indptr))
        schema = pa.schema({"cell": pa.int32(), "gene": pa.int32(), "value": pa.int32()})
        with pq.ParquetWriter(target / "x.parquet", schema, compression="zstd") as writer:
            for first in range(0, matrix.nnz, _PARQUET_ROWS):
                span = slice(first, first + _PARQUET_ROWS)
                columns = [matrix.indices[span], gene[span], matrix.data[span].astype(np.int32)]
                writer.write_table(pa.table([pa.array(column) for column in columns], schema=schema))
        codes = obs["group"].cat.codes.to_numpy(np.int32)
        cells = {"cell": np.arange(len(obs), dtype=np.int32), "grp": codes, "total": obs["total"].to_numpy()}
        pq.write_table(pa.table(cells), target / "cells.parquet", compression="zstd")
    return {"load": took, "stored_bytes": measure.size_of(target), "genes": int(matrix.shape[1])}


def duckdb_task(folder: str, out: str, genes: int, runs: int) -> dict[str, Any]:
    """Sums in SQL over the Parquet files; cells without a value for a gene count by their number. The test is scipy's."""
    import duckdb

    connection = duckdb.connect()
    connection.execute("SET enable_progress_bar = false")
    sql = f"""
        SELECT grp, gene, sum(value) AS sums, sum(value * value) AS squares
        FROM (
            SELECT grp, gene, ln(1 + x.value * ({TARGET_SUM} / total)) AS value
            FROM read_parquet('{folder}/x.parquet') AS x JOIN read_parquet('{folder}/cells.parquet') USING (cell)
        ) GROUP BY grp, gene"""

    def ask() -> dict[str, np.ndarray]:
        group = connection.sql(f"SELECT grp FROM read_parquet('{folder}/cells.parquet')").fetchnumpy()["grp"]
        found = connection.sql(sql).fetchnumpy()
        sums = Sums.zeros(group, int(group.max()) + 1, genes)
        place = found["grp"].astype(np.int64) * genes + found["gene"]
        sums.sums[place], sums.squares[place] = found["sums"], found["squares"]
        return answers.welch(sums.shaped())

    return {"version": duckdb.__version__, "query": _asked(ask, out, runs)}


def _asked(ask: Any, out: str, runs: int) -> list[dict[str, Any]]:
    taken = []
    for _ in range(runs):
        with measure.stage() as took:
            answer = ask()
            # What a user gets in the end: a sorted array of each group.
            sorted_answer = [np.take_along_axis(answer[key], answer["order"], axis=1) for key in ("scores", "pvals", "pvals_adj")]
        assert sorted_answer[0].shape == answer["scores"].shape
        taken.append(took)
    answers.save(out, answer)
    return taken
