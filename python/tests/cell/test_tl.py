"""Genes that differ between groups: beside scanpy and scipy, gene by gene."""

from __future__ import annotations

import warnings

import anndata
import numpy as np
import pandas as pd
import pytest
from conftest import make_counts
from judge import same_as_scanpy, same_as_scipy
from scipy import sparse

import pithead
from pithead import cell

sc = pytest.importorskip("scanpy")
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def pbmc():
    return sc.datasets.pbmc68k_reduced()


ASKED = [
    {},
    {"use_raw": False},
    {"method": "t-test_overestim_var"},
    {"method": "wilcoxon"},
    {"method": "wilcoxon", "tie_correct": True},
    {"method": "wilcoxon", "tie_correct": True, "reference": "CD19+ B", "pts": True},
    {"method": "wilcoxon", "use_raw": False},
    {"reference": "CD19+ B"},
    {"reference": "CD19+ B", "groups": ["Dendritic", "CD14+ Monocyte"], "pts": True},
    {"groups": ["Dendritic", "CD14+ Monocyte"], "pts": True},
    {"n_genes": 20, "rankby_abs": True, "pts": True},
    {"corr_method": "bonferroni", "n_genes": 100},
    {"mask_var": np.arange(765) % 3 == 0},
]


def varied(adata):
    """Genes of X that vary within each group. Of the others scanpy takes variances that should be 0 as a little less than that,
    so that their scores become 0; scipy judges these genes below.
    """
    labels = adata.obs["bulk_labels"]
    return np.all([np.ptp(adata.X[labels == group], axis=0) > 0 for group in labels.cat.categories], axis=0)


@pytest.mark.parametrize("asked", ASKED, ids=str)
def test_scanpys_answer_on_its_own_data(conn, pbmc, asked):
    adata = pbmc.copy()
    if asked.get("use_raw") is False and "wilcoxon" not in asked.values():
        asked = asked | {"mask_var": varied(adata)}
    sc.tl.rank_genes_groups(adata, "bulk_labels", **({"method": "t-test"} | asked))
    ds = cell.load(conn, pbmc, "lab.pbmc")
    result = cell.tl.rank_genes_groups(ds, "bulk_labels", **asked)
    assert ds.uns["rank_genes_groups"] is result
    same_as_scanpy(result, adata)
    other = pbmc.copy()
    result.write_uns(other)
    if asked == {}:
        for plot in (sc.pl.rank_genes_groups, sc.pl.rank_genes_groups_dotplot, sc.pl.rank_genes_groups_heatmap):
            plot(other, show=False)
    groups = asked.get("groups", ["Dendritic", "CD14+ Monocyte"])
    for group in (groups, groups[0]):
        ours = cell.get.rank_genes_groups_df(ds, group, pval_cutoff=0.5, log2fc_min=-2)
        theirs = sc.get.rank_genes_groups_df(other, group, pval_cutoff=0.5, log2fc_min=-2)
        # scanpy's column of groups is text where it has merged fractions, and categories elsewhere.
        pd.testing.assert_frame_equal(ours, theirs, check_dtype=False, check_categorical=False)


@pytest.mark.parametrize("method", ["student", "t-test", "wilcoxon"])
@pytest.mark.parametrize("reference", [None, "CD19+ B"])
@pytest.mark.parametrize("use_raw", [True, False])
def test_scipys_answer(conn, pbmc, method, reference, use_raw):
    ds = cell.load(conn, pbmc, "lab.pbmc")
    values = pbmc.raw.X if use_raw else pbmc.X
    values = values.toarray() if sparse.issparse(values) else values
    result = cell.tl.rank_genes_groups(
        ds, "bulk_labels", method=method, tie_correct=True, reference=reference or "rest", use_raw=use_raw
    )
    same_as_scipy(result, values, pbmc.obs["bulk_labels"].to_numpy(), method, reference)


def hard_case(seed):
    """A matrix with what goes wrong easily: constant genes, ties, large offsets, outliers, cells without a label."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(12, 80))
    constant = [np.zeros(n), np.ones(n), np.full(n, 1e4)]
    drawn = [rng.poisson(0.05, n), rng.poisson(3, n), rng.normal(size=n), 1e4 + rng.normal(size=n), rng.integers(0, 2, n)]
    others = [np.r_[1e6, np.zeros(n - 1)], np.round(rng.normal(size=n), 1), -rng.random(n), (np.arange(n) % 2) * 3.0]
    columns = [*constant, *drawn, *others]
    values = np.stack(columns, axis=1).astype(np.float32)
    labels = pd.Categorical(rng.choice(["a", "b", "c", None], n), categories=["c", "a", "b"])
    labels[:6] = ["a", "a", "b", "b", "c", "c"]
    return values, labels


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("method", ["student", "t-test", "wilcoxon"])
@pytest.mark.parametrize("reference", [None, "a"])
def test_hard_cases(conn, seed, method, reference):
    from anndata import AnnData

    values, labels = hard_case(seed)
    adata = AnnData(values, obs=pd.DataFrame({"g": labels}, index=[f"c{i}" for i in range(len(labels))]))
    ds = cell.load(conn, adata, "lab.hard")
    result = cell.tl.rank_genes_groups(ds, "g", method=method, tie_correct=True, reference=reference or "rest")
    # A gene that is the same everywhere has score 0 and p 1. scipy's Welch of it is NaN or noise.
    for gene in (0, 1, 2):
        assert (result.stats["scores"][:, gene] == 0).all() and (result.stats["pvals"][:, gene] == 1).all()
    wider = AnnData(values[:, 3:], obs=adata.obs)
    ds = cell.load(conn, wider, "lab.hard", mode="replace")
    result = cell.tl.rank_genes_groups(ds, "g", method=method, tie_correct=True, reference=reference or "rest")
    same_as_scipy(result, values[:, 3:], np.asarray(labels.astype(object)), method, reference)


def test_views_masks_and_several_columns(conn, counts):
    ds = cell.load(conn, counts, "lab.pbmc")
    cell.pp.normalize_total(ds, target_sum=1e3)
    cell.pp.log1p(ds)
    adata = counts.copy()
    adata.raw = None
    sc.pp.normalize_total(adata, target_sum=1e3)
    sc.pp.log1p(adata)
    sc.tl.rank_genes_groups(adata, "kind", method="t-test")
    same_as_scanpy(cell.tl.rank_genes_groups(ds, "kind", use_raw=False), adata)
    # A view, and mask_obs, are what a subset is to scanpy.
    part = adata[adata.obs["good"], adata.var["mt"]].copy()
    sc.tl.rank_genes_groups(part, "kind", method="t-test")
    view = ds[ds.obs["good"], ds.var["mt"]]
    same_as_scanpy(cell.tl.rank_genes_groups(view, "kind", use_raw=False), part)
    same_as_scanpy(cell.tl.rank_genes_groups(ds, "kind", use_raw=False, mask_obs="good", mask_var="mt"), part)
    # Two columns are one of both.
    adata.obs["both"] = pd.Categorical(adata.obs["kind"].astype(str) + "_" + adata.obs["donor"].astype(str))
    sc.tl.rank_genes_groups(adata, "both", method="t-test", reference="B_d1")
    ours = cell.tl.rank_genes_groups(ds, ["kind", "donor"], use_raw=False, reference="B_d1")
    assert ours.groups == ["T_d1", "T_d2", "B_d2", "NK_d1", "NK_d2"]
    for group in ours.groups:
        a = ours.df(group).set_index("names")
        b = sc.get.rank_genes_groups_df(adata, group).set_index("names").loc[a.index]
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


def test_a_base_of_logarithms(conn, counts):
    ds = cell.load(conn, counts, "lab.pbmc", raw=False)
    adata = counts.copy()
    adata.raw = None
    for target in (adata, ds):
        pp = sc.pp if target is adata else cell.pp
        pp.normalize_total(target, target_sum=1e3)
        pp.log1p(target, base=2)
    sc.tl.rank_genes_groups(adata, "kind", method="t-test")
    same_as_scanpy(cell.tl.rank_genes_groups(ds, "kind"), adata)


def test_a_base_of_a_layers_logarithms(conn, counts):
    """The base was looked for where only that of X is kept, so that logarithms to 2 were turned back as natural ones."""
    counts.raw = None
    counts.layers = {"counts": counts.X.copy()}
    ds = cell.load(conn, counts, "lab.pbmc")
    sc.pp.log1p(counts, base=2, layer="counts")
    cell.pp.log1p(ds, base=2, layer="counts")
    sc.tl.rank_genes_groups(counts, "kind", method="t-test", layer="counts", use_raw=False)
    same_as_scanpy(cell.tl.rank_genes_groups(ds, "kind", layer="counts", use_raw=False), counts)
    assert "log1p" not in ds.uns


def test_a_view_has_the_base_that_its_dataset_got_since(conn, counts):
    ds = cell.load(conn, counts, "lab.pbmc", raw=False)
    view = ds[:40]
    cell.pp.log1p(ds, base=2)
    late, early = (cell.tl.rank_genes_groups(each, "kind") for each in (ds[:40], view))
    np.testing.assert_array_equal(early.stats["logfoldchanges"], late.stats["logfoldchanges"])
    with pytest.raises(pithead.UserError, match="logarithms have different bases"):
        other = cell.load(conn, counts, "lab.other", raw=False)
        cell.pp.log1p(other)
        cell.tl.rank_genes_groups([view, other], "kind")


def test_seurats_fold_change(conn, counts):
    ds = cell.load(conn, counts, "lab.pbmc", raw=False)
    cell.pp.normalize_total(ds, target_sum=1e4)
    cell.pp.log1p(ds)
    values = counts.X.toarray() / counts.X.sum(axis=1) * 1e4
    values = np.asarray(values)
    inside = (counts.obs["kind"] == "B").to_numpy()
    # Version 5 adds 1 to sums, version 4 to means.
    for name, ours, others in (("seurat", 1 / inside.sum(), 1 / (~inside).sum()), ("seurat_v4", 1, 1)):
        result = cell.tl.rank_genes_groups(ds, "kind", fold_change=name, groups=["B"])
        expected = np.log2((values[inside].mean(axis=0) + ours) / (values[~inside].mean(axis=0) + others))
        np.testing.assert_allclose(result.stats["logfoldchanges"][0], expected, rtol=1e-5, atol=1e-6)


def test_layers_and_counts(conn, counts):
    ds = cell.load(conn, counts, "lab.pbmc")
    with pytest.raises(pithead.UserError, match="layer='noise' and raw cannot both"):
        cell.tl.rank_genes_groups(ds, "kind", layer="noise")
    adata = counts.copy()
    sc.tl.rank_genes_groups(adata, "kind", layer="noise", use_raw=False, method="t-test")
    same_as_scanpy(cell.tl.rank_genes_groups(ds, "kind", layer="noise", use_raw=False), adata)
    with pytest.warns(UserWarning, match="are counts, and tests expect logarithms"):
        cell.tl.rank_genes_groups(ds, "kind")
    kept = cell.tl.rank_genes_groups(ds, "kind", layer="noise", use_raw=False, key_added="mine")
    assert ds.uns["mine"] is kept
    assert cell.tl.rank_genes_groups(ds, "kind", layer="noise", use_raw=False, copy=True) is not ds.uns["rank_genes_groups"]


@pytest.mark.parametrize("column", ["note", "good", "age10"])
def test_groups_of_other_types(conn, counts, column):
    counts.obs["age10"] = counts.obs["age"] // 10
    ds = cell.load(conn, counts, "lab.pbmc", raw=False)
    result = cell.tl.rank_genes_groups(ds, column, layer="noise")
    assert result.groups == [str(each) for each in sorted(counts.obs[column].unique())]


def test_a_reference_that_is_a_number(conn, counts):
    """The result was made, and could not be read."""
    counts.obs["leiden"] = np.arange(60) % 3
    ds = cell.load(conn, counts, "lab.pbmc", raw=False)
    result = cell.tl.rank_genes_groups(ds, "leiden", reference=0, layer="noise", pts=True)
    named = cell.tl.rank_genes_groups(ds, "leiden", reference="0", layer="noise", pts=True)
    assert result["params"]["reference"] == "0" and result["names"].dtype.names == ("1", "2")
    assert result["pts"].columns.tolist() == ["0", "1", "2"]
    pd.testing.assert_frame_equal(result["pts"], named["pts"])
    pd.testing.assert_frame_equal(cell.get.rank_genes_groups_df(ds, "1"), result.df("1"))


def test_groups_that_cannot_be_compared(conn, counts):
    labels = np.array(["many"] * 57 + ["two"] * 2 + ["one"])
    counts.obs["g"] = pd.Categorical(labels, categories=["many", "two", "one", "none"])
    ds = cell.load(conn, counts, "lab.pbmc", raw=False)
    with pytest.raises(ValueError, match=r"fewer than two cells have no variance: one \(1\), none \(0\)") as fault:
        cell.tl.rank_genes_groups(ds, "g")
    assert isinstance(fault.value, pithead.UserError) and fault.value.hint == "leave them out: groups=['many', 'two']"
    with pytest.raises(ValueError, match="only contain one sample"):
        sc.tl.rank_genes_groups(counts, "g", method="t-test")
    assert cell.tl.rank_genes_groups(ds, "g", groups=["many", "two"]).groups == ["many", "two"]
    with pytest.raises(ValueError, match=r"one \(1\)"):
        cell.tl.rank_genes_groups(ds, "g", groups=["many"], reference="one")
    for asked, message in [
        ({"groupby": "nothing"}, "has no column 'nothing' in obs; the columns are: kind, donor"),
        ({"groupby": "score"}, "holds fractions, not groups"),
        ({"groupby": "g", "groups": ["x"]}, "no cell's g is 'x'; the groups are: many, two, one, none"),
        ({"groupby": "g", "groups": "many"}, "is no list of groups"),
        ({"groupby": "g", "groups": []}, "there is no group of g to compare"),
        ({"groupby": "g", "reference": "x"}, "reference='x' is no group of g"),
        ({"groupby": "g", "groups": ["many"], "reference": "many"}, "no group of g to compare"),
        ({"groupby": "kind", "method": "logreg"}, "method='logreg' is not known"),
        ({"groupby": "kind", "corr_method": "fdr"}, "corr_method='fdr' is not known"),
        ({"groupby": "kind", "use_raw": True}, "has no raw matrix"),
        ({"groupby": "kind", "layer": "x"}, "has no layer 'x'; the layers are: noise"),
        ({"groupby": "kind", "mask_var": "x"}, "has no column 'x'"),
        ({"groupby": "kind", "mask_var": np.zeros(25, dtype=bool)}, "leaves no gene"),
        ({"groupby": "kind", "mask_var": np.ones(3, dtype=bool)}, "has 3 values for 25 rows"),
        ({"groupby": "kind", "mask_obs": np.arange(60)}, "holds int64 values, not true and false"),
    ]:
        with pytest.raises(pithead.UserError, match=message) as fault:
            cell.tl.rank_genes_groups(ds, **asked)
        assert fault.value.hint


def test_datasets_of_a_domain_are_one(conn):
    a, b = make_counts(seed=1), make_counts(40, 30, seed=2)
    b = b[:, ::-1].copy()
    b.obs["kind"] = b.obs["kind"].cat.reorder_categories(["B", "NK", "T"])
    for each in (a, b):
        each.raw = None
    both = anndata.concat({"a": a, "b": b}, index_unique="-", merge="same")
    both.obs["kind"] = pd.Categorical(both.obs["kind"], categories=["T", "B", "NK"])
    datasets = [cell.load(conn, each, f"lab.{name}", metadata={"from": name}) for name, each in (("a", a), ("b", b))]
    for each in datasets:
        cell.pp.log1p(each)
    sc.pp.log1p(both)
    for asked in ({}, {"reference": "B"}, {"method": "t-test_overestim_var", "corr_method": "bonferroni"}):
        sc.tl.rank_genes_groups(both, "kind", **({"method": "t-test"} | asked))
        with pytest.warns(UserWarning, match="left out: 5 of lab.b"):
            result = cell.tl.rank_genes_groups(cell.Domain(conn, "lab"), "kind", **asked)
        assert result.dropped == {"lab.b": [f"gene{i}" for i in range(29, 24, -1)]}
        assert result.metadata == {"lab.a": {"from": "a"}, "lab.b": {"from": "b"}}
        for group in result.groups:
            ours = result.df(group).set_index("names").sort_index()
            theirs = sc.get.rank_genes_groups_df(both, group).set_index("names").sort_index()
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        few = cell.tl.rank_genes_groups(datasets, "kind", mask_var=["gene1", "gene2", "gene29"])
    assert sorted(few.genes) == ["gene1", "gene2"]
    np.testing.assert_allclose(few.stats["pvals_adj"].max(axis=1), few.stats["pvals"].max(axis=1))
    views = [datasets[0][:, ["gene5", "gene6"]], datasets[1]]
    assert sorted(cell.tl.rank_genes_groups(views, "kind").genes) == ["gene5", "gene6"]
    c = make_counts(10)
    c.var_names = [f"other{i}" for i in range(25)]
    c.raw = None
    with pytest.raises(pithead.UserError, match="no gene id is in all"):
        cell.tl.rank_genes_groups([datasets[0], cell.load(conn, c, "lab.c")], "kind")


def test_plans_are_shown(conn, counts):
    ds = cell.load(conn, counts, "lab.pbmc", raw=False)
    result = cell.tl.rank_genes_groups(ds, "kind", layer="noise")
    for text in (result.explain(), ds.explain(layer="noise"), ds[:5].explain()):
        assert "accumulate" in text


def test_a_result_shows_itself(conn, counts):
    ds = cell.load(conn, counts, "lab.pbmc", raw=False)
    result = cell.tl.rank_genes_groups(ds, "kind", layer="noise", reference="B", n_genes=3)
    first = repr(result).splitlines()
    assert (
        first[0] == "25 genes by t-test, groups of kind against B" and first[1].startswith("    T: gene") and len(first) == 3
    )
    assert "symbol" in result.df("T", gene_symbols="symbol").columns
    with pytest.raises(pithead.UserError, match="'B' was not tested; the groups are: T, NK"):
        result.df("B")


def test_values_on_different_scales_are_warned_of(conn):
    """Cells of one dataset had the sum 10,000 and those of the other 100, and nothing said that they were compared."""
    a, b = (cell.load(conn, make_counts(seed=seed), f"lab.{name}", raw=False) for seed, name in enumerate("ab"))
    domain = cell.Domain([a, b])

    def told(ask):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            ask()
        assert all(each.filename == __file__ for each in caught)
        return [str(each.message) for each in caught]

    def ranked():
        return told(lambda: cell.tl.rank_genes_groups(domain, "kind"))

    for ds, target in ((a, 1e4), (b, 1e2)):
        cell.pp.normalize_total(ds, target_sum=target)
        cell.pp.log1p(ds)
    [warning] = ranked()
    assert "have different sums" in warning and "lab.a 10000, lab.b 100;" in warning
    assert told(lambda: cell.get.aggregate(domain, "kind", "mean")) == [warning]
    cell.pp.untransform(b)
    cell.pp.normalize_total(b, target_sum=1e4)
    [warning] = ranked()
    assert "others are not: lab.b;" in warning
    cell.pp.log1p(b)
    assert ranked() == []
