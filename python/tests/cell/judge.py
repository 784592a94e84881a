"""Judges results of tests of genes: beside scanpy's, and beside scipy's functions on the dense matrix."""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy import stats


def log_p(values):
    """Logarithms of p-values; those below what a float holds are at its end."""
    return np.log10(np.maximum(np.asarray(values, dtype=np.float64), 1e-300))


def same_as_scanpy(ours, adata, key="rank_genes_groups"):
    """Compares a result with `adata.uns[key]`, gene by gene: the order of genes that tie is not compared."""
    theirs = adata.uns[key]
    assert ours["names"].dtype.names == theirs["names"].dtype.names
    assert {k: v for k, v in ours["params"].items() if k != "use_raw"} == {
        k: v for k, v in theirs["params"].items() if k != "use_raw"
    }
    assert set(ours) == set(theirs)
    for group in ours["names"].dtype.names:
        for column in ("scores", "pvals", "pvals_adj", "logfoldchanges"):
            assert ours[column].dtype == theirs[column].dtype
        a = pd.DataFrame(
            {c: ours[c][group] for c in ("scores", "pvals", "pvals_adj", "logfoldchanges")}, index=ours["names"][group]
        )
        b = pd.DataFrame({c: theirs[c][group] for c in a.columns}, index=theirs["names"][group])
        # What is in both lists: where lists are cut, genes that tie at the end may differ.
        assert len(a) == len(b)
        np.testing.assert_allclose(a["scores"], b["scores"], rtol=1e-5, atol=1e-5)
        shared = a.index.intersection(b.index)
        assert len(shared) >= 0.9 * len(a)
        a, b = a.loc[shared], b.loc[shared]
        np.testing.assert_allclose(a["scores"], b["scores"], rtol=1e-5, atol=1e-5, err_msg=group)
        for column in ("pvals", "pvals_adj"):
            np.testing.assert_allclose(log_p(a[column]), log_p(b[column]), rtol=1e-5, atol=1e-5, err_msg=f"{group} {column}")
        np.testing.assert_allclose(a["logfoldchanges"], b["logfoldchanges"], rtol=1e-4, atol=1e-4, err_msg=group)
    for frame in ("pts", "pts_rest"):
        if frame in theirs:
            pd.testing.assert_frame_equal(ours[frame], theirs[frame], check_names=False, rtol=1e-12)


def same_as_scipy(result, values, groups, method, reference=None):
    """Compares 64-bit scores and p-values with scipy's on `values` (cells × genes)."""
    values = np.asarray(values, dtype=np.float64)
    for row, group in enumerate(result.groups):
        ours = values[groups == group]
        others = values[groups == reference] if reference else values[groups != group]
        with np.errstate(all="ignore"):
            if method == "wilcoxon":
                found = stats.mannwhitneyu(ours, others, method="asymptotic", use_continuity=False)
                n, m = len(ours), len(others)
                ties = np.array(
                    [stats.tiecorrect(stats.rankdata(np.r_[ours[:, g], others[:, g]])) for g in range(values.shape[1])]
                )
                score = (found.statistic - n * m / 2) / np.sqrt(ties * n * m * (n + m + 1) / 12)
            else:
                found = stats.ttest_ind(ours, others, equal_var=method == "student")
                score = found.statistic
        score, pvals = np.nan_to_num(score), np.where(np.isnan(found.pvalue), 1.0, found.pvalue)
        np.testing.assert_allclose(result.stats["scores"][row], score, rtol=1e-10, atol=1e-10, err_msg=group)
        kept = pvals > 1e-300
        np.testing.assert_allclose(
            np.log(result.stats["pvals"][row][kept]), np.log(pvals[kept]), rtol=1e-10, atol=1e-10, err_msg=group
        )
