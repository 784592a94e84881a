"""Fixtures: a connection to drives in this process, and a dataset that has some of everything."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pithead
import pytest
from scipy import sparse

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def conn():
    with pithead.connect() as connection:
        yield connection


@pytest.fixture
def counts():
    """An AnnData of 60 cells × 25 genes: counts, a layer of floats, raw with more genes, categories, and an array."""
    return make_counts()


def make_counts(n_obs: int = 60, n_vars: int = 25, seed: int = 0):
    from anndata import AnnData

    rng = np.random.default_rng(seed)
    values = rng.poisson(rng.gamma(0.7, 2.0, n_vars), (n_obs, n_vars)).astype(np.float32)
    values[:, 3] = 0
    values[:, 4] = 2 + rng.integers(0, 2, n_obs)
    obs = pd.DataFrame(
        {
            "kind": pd.Categorical(rng.choice(["B", "T", "NK"], n_obs), categories=["T", "B", "NK"]),
            "donor": pd.Categorical(rng.choice(["d1", "d2"], n_obs), ordered=True),
            "age": rng.integers(20, 60, n_obs),
            "score": rng.normal(size=n_obs),
            "good": rng.random(n_obs) < 0.8,
            "note": [f"n{i % 3}" for i in range(n_obs)],
            "id": np.arange(n_obs),
        },
        index=[f"cell{i}" for i in range(n_obs)],
    )
    var = pd.DataFrame(
        {"symbol": [f"S{i}" for i in range(n_vars)], "mt": np.arange(n_vars) % 5 == 0},
        index=[f"gene{i}" for i in range(n_vars)],
    )
    adata = AnnData(sparse.csr_matrix(values), obs=obs, var=var)
    adata.layers["noise"] = rng.normal(size=values.shape).astype(np.float32)
    adata.obsm["X_umap"] = rng.normal(size=(n_obs, 2)).astype(np.float32)
    adata.raw = AnnData(
        sparse.csr_matrix(np.hstack([values, values[:, :2] + 1])),
        obs=obs[[]],
        var=pd.DataFrame(index=[*var.index, "extra0", "extra1"]),
    )
    adata.uns["kind_colors"] = np.array(["#000000", "#ff0000", "#00ff00"], dtype=object)
    adata.uns["title"] = "made up"
    return adata
