"""Find the genes that differ between groups of cells. The drives compute it, and the matrix stays with them.

    B: CD79A, MS4A1
    T: CD3D
"""

import numpy as np
import pandas as pd
import pithead
import pithead.cell as pc
from anndata import AnnData
from scipy import sparse

GENES = ["CD79A", "MS4A1", "CD3D", *(f"GENE{number}" for number in range(37))]


def cells() -> AnnData:
    """Counts of 300 cells × 40 genes: B cells have more of the first two genes, T cells of the third."""
    random = np.random.default_rng(7)
    kinds = np.repeat(["B", "T", "NK"], 100)
    means = np.ones((300, 40))
    means[kinds == "B", :2] = 5
    means[kinds == "T", 2] = 5
    obs = pd.DataFrame({"kind": pd.Categorical(kinds)}, index=[f"cell{number}" for number in range(300)])
    counts = sparse.csr_matrix(random.poisson(means).astype(np.float32))
    return AnnData(counts, obs=obs, var=pd.DataFrame(index=GENES))


with pithead.connect(drives=2) as conn:
    ds = pc.load(conn, cells(), "lab.blood")
    pc.pp.normalize_total(ds, target_sum=1e4)
    pc.pp.log1p(ds)
    result = pc.tl.rank_genes_groups(ds, "kind")
    for kind in ("B", "T"):
        found = result.df(kind, pval_cutoff=0.001, log2fc_min=1)
        print(f"{kind}: {', '.join(sorted(found['names']))}")
