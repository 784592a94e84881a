"""Preprocessing and aggregates, beside scanpy's."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from test_dataset import same

import pithead
from pithead import cell
from pithead.cell._pca import top_eigen

sc = pytest.importorskip("scanpy")
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def both(conn, counts):
    """The same counts as an AnnData and as a dataset, without raw."""
    counts.raw = None
    return counts, cell.load(conn, counts, "lab.pbmc")


@pytest.mark.parametrize("target", [None, 1e4])
@pytest.mark.parametrize("base", [None, 2])
def test_normalised_logarithms(conn, both, target, base):
    adata, ds = both
    sc.pp.normalize_total(adata, target_sum=target, key_added="factor")
    cell.pp.normalize_total(ds, target_sum=target, key_added="factor")
    np.testing.assert_allclose(ds.obs["factor"], adata.obs["factor"], rtol=1e-6)
    same(ds.to_anndata().X, adata.X)
    cell.pp.normalize_total(ds, target_sum=target)
    sc.pp.log1p(adata, base=base)
    cell.pp.log1p(ds, base=base)
    fresh = cell.open(conn, "lab.pbmc")
    same(fresh.to_anndata().X, adata.X)
    assert fresh.uns["log1p"] == {"base": base} == adata.uns["log1p"]
    same(fresh[10:20, [3, 4, 5]].to_anndata().X, adata[10:20, [3, 4, 5]].X)
    with pytest.raises(pithead.UserError, match="holds logarithms already"):
        cell.pp.log1p(ds)
    with pytest.raises(pithead.UserError, match="logarithms already"):
        cell.pp.normalize_total(ds)
    cell.pp.untransform(ds)
    assert "log1p" not in cell.open(conn, "lab.pbmc").uns
    assert "log1p" not in ds.uns


def test_a_view_is_normalised_by_its_own_genes(conn, both):
    adata, ds = both
    part = adata[adata.obs["good"], adata.var["mt"]].copy()
    view = ds[ds.obs["good"], ds.var["mt"]]
    for _ in range(2):
        cell.pp.normalize_total(view, target_sum=100)
    cell.pp.log1p(view)
    sc.pp.normalize_total(part, target_sum=100)
    sc.pp.log1p(part)
    same(view.to_anndata().X, part.X)
    same(view[:5].to_anndata().X, part[:5].X)
    # The dataset keeps its own.
    same(ds.to_anndata().X, adata.X)


@pytest.mark.parametrize("target", [1e4, None])
@pytest.mark.parametrize("cells", [slice(None), slice(5, 40)], ids=["all", "some"])
def test_genes_of_a_normalised_dataset_have_sums_of_their_own(conn, both, target, cells):
    """The target of the whole dataset was taken for the median of the selected genes' sums."""
    adata, ds = both
    sc.pp.normalize_total(adata, target_sum=target)
    cell.pp.normalize_total(ds, target_sum=target)
    part, view = adata[cells, :10].copy(), ds[cells, :10]
    genes = slice(2, 8)
    for _ in range(2):
        sc.pp.normalize_total(part)
        cell.pp.normalize_total(view)
        same(view.to_anndata().X, part.X)
        # Then a view of a view, which was normalised by its own genes.
        part, view = part[:, genes].copy(), view[:, genes]
    sc.pp.log1p(part)
    cell.pp.log1p(view)
    same(view.to_anndata().X, part.X)


def test_logarithms_that_were_loaded_are_known(conn, both):
    adata, _ = both
    sc.pp.log1p(adata)
    ds = cell.load(conn, adata, "lab.log")
    with pytest.raises(pithead.UserError, match="holds logarithms already") as fault:
        cell.pp.log1p(ds)
    assert "when it was loaded" in fault.value.hint
    with pytest.raises(pithead.UserError, match="negative sums"):
        cell.pp.normalize_total(ds, layer="noise")
    with pytest.raises(pithead.UserError, match="base=1 is no base"):
        cell.pp.log1p(ds, layer="noise", base=1)


def test_cells_without_counts(conn, both):
    adata, _ = both
    adata = adata.copy()
    adata.X[7] = 0
    ds = cell.load(conn, adata, "lab.zero")
    with pytest.raises(pithead.UserError, match="selects no cell"):
        cell.pp.normalize_total(ds[[]])
    with pytest.raises(pithead.UserError, match="the median of the cells' sums is 0"):
        cell.pp.normalize_total(ds[[7]])
    with pytest.warns(UserWarning, match="Some cells have zero counts"):
        cell.pp.normalize_total(ds, target_sum=1e3)
    sc.pp.normalize_total(adata, target_sum=1e3)
    same(ds.to_anndata().X, adata.X)


@pytest.mark.parametrize("log1p", [True, False])
def test_metrics_of_quality(both, log1p):
    adata, ds = both
    obs, var = sc.pp.calculate_qc_metrics(adata, qc_vars=["mt"], percent_top=None, log1p=log1p)
    for data, rows in ((ds, slice(None)), (ds[ds.obs["good"]], adata.obs["good"].to_numpy())):
        if not isinstance(rows, slice):
            obs, var = sc.pp.calculate_qc_metrics(adata[rows].copy(), qc_vars=["mt"], percent_top=None, log1p=log1p)
        ours, our_var = cell.pp.calculate_qc_metrics(data, qc_vars=["mt"], log1p=log1p)
        pd.testing.assert_frame_equal(ours, obs, check_dtype=False, rtol=1e-5)
        pd.testing.assert_frame_equal(our_var, var, check_dtype=False, rtol=1e-5)
    cell.pp.calculate_qc_metrics(ds, qc_vars="mt", inplace=True)
    assert "pct_counts_mt" in ds.obs and "total_counts" in ds.var
    with pytest.raises(pithead.UserError, match="percent_top"):
        cell.pp.calculate_qc_metrics(ds, percent_top=[50])


def test_sums_of_counts_are_whole(conn):
    """1 / 49 * 49 is less than 1, so that filters for one count dropped the gene."""
    from anndata import AnnData

    values = np.zeros((49, 3), dtype=np.float32)
    values[7, 0], values[3:6, 1] = 1, 5
    adata = AnnData(values, obs=pd.DataFrame(index=[f"c{place}" for place in range(49)]))
    ds = cell.load(conn, adata, "lab.few")
    _, var = cell.pp.calculate_qc_metrics(ds)
    assert var["total_counts"].tolist() == [1, 15, 0]
    cell.pp.normalize_total(ds, target_sum=0.5)
    _, scaled = cell.pp.calculate_qc_metrics(ds)
    np.testing.assert_allclose(scaled["total_counts"], [0.5, 1.5, 0])


def test_metrics_that_cannot_be_kept_leave_nothing(both):
    _, ds = both
    with pytest.raises(pithead.UserError, match="belong to a whole dataset"):
        cell.pp.calculate_qc_metrics(ds[:30], inplace=True)
    assert "total_counts" not in ds.obs


@pytest.fixture
def larger(conn):
    """200 cells × 300 genes with clusters, as an AnnData and as a dataset of counts."""
    from anndata import AnnData

    rng = np.random.default_rng(5)
    kinds = rng.integers(0, 3, 200)
    means = rng.gamma(0.5, 2.0, (3, 300))
    adata = AnnData(
        __import__("scipy.sparse").sparse.csr_matrix(rng.poisson(means[kinds]).astype(np.float32)),
        obs=pd.DataFrame(
            {"kind": pd.Categorical(kinds.astype(str)), "batch": pd.Categorical(rng.choice(["x", "y"], 200))},
            index=[f"c{i}" for i in range(200)],
        ),
        var=pd.DataFrame(index=[f"g{i}" for i in range(300)]),
    )
    return adata, cell.load(conn, adata, "lab.larger")


@pytest.mark.parametrize("flavor", ["seurat", "cell_ranger"])
@pytest.mark.parametrize(
    "asked", [{}, {"n_top_genes": 50}, {"batch_key": "batch"}, {"batch_key": "batch", "n_top_genes": 50}], ids=str
)
@pytest.mark.parametrize("loaded", [False, True])
def test_highly_variable_genes(conn, larger, flavor, asked, loaded):
    adata, ds = larger
    sc.pp.normalize_total(adata, target_sum=1e3)
    sc.pp.log1p(adata, base=2)
    if loaded:
        ds = cell.load(conn, adata, "lab.logs")
    else:
        cell.pp.normalize_total(ds, target_sum=1e3)
        cell.pp.log1p(ds, base=2)
    theirs = sc.pp.highly_variable_genes(adata, flavor=flavor, inplace=False, **asked)
    theirs = theirs.loc[adata.var_names]
    ours = cell.pp.highly_variable_genes(ds, flavor=flavor, inplace=False, **asked)
    columns = [name for name in theirs.columns if name != "mean_bin"]
    pd.testing.assert_frame_equal(ours[columns], theirs[columns], check_dtype=False, check_names=False, rtol=1e-4, atol=1e-6)
    assert 0 < ours["highly_variable"].sum() < 300
    assert cell.pp.highly_variable_genes(ds, flavor=flavor, **asked) is None
    assert cell.open(conn, ds.name).var["highly_variable"].tolist() == theirs["highly_variable"].tolist()


@pytest.mark.parametrize("solver", ["covariance_eigh", "arpack", None])
@pytest.mark.parametrize("asked", [{}, {"zero_center": False}, {"mask_var": np.arange(300) % 2 == 0}], ids=str)
def test_principal_components(conn, larger, solver, asked):
    adata, ds = larger
    sc.pp.log1p(adata)
    cell.pp.log1p(ds)
    sc.pp.pca(adata, n_comps=10, svd_solver="arpack", **asked)
    result = cell.pp.pca(ds, n_comps=10, svd_solver=solver, **asked)
    np.testing.assert_allclose(result.variance, adata.uns["pca"]["variance"], rtol=1e-3)
    np.testing.assert_allclose(result.variance_ratio, adata.uns["pca"]["variance_ratio"], rtol=1e-3)
    # The first three separate the clusters; those behind them are noise whose directions are sensitive.
    for ours, theirs in ((result.X_pca, adata.obsm["X_pca"]), (result.PCs, adata.varm["PCs"])):
        assert ours.shape == theirs.shape
        np.testing.assert_allclose(ours[:, :2], theirs[:, :2], rtol=1e-3, atol=1e-3)
    back = ds.to_anndata()
    same(back.obsm["X_pca"], result.X_pca)
    result.write(back)
    if solver is None and not asked:
        sc.pp.neighbors(back)
        assert back.obsp["connectivities"].shape == (200, 200)
    assert back.uns["pca"]["params"].keys() == adata.uns["pca"]["params"].keys()


def test_many_components_are_kept_too(conn, larger, monkeypatch):
    """Of more than 64, the variances were kept and the components were not: those of an earlier call stayed beside them."""
    _, ds = larger
    cell.pp.pca(ds, n_comps=5)
    result = cell.pp.pca(ds, n_comps=100, loadings=False)
    back = cell.open(conn, ds.name).to_anndata()
    assert back.obsm["X_pca"].shape == (200, 100) == (200, len(ds.uns["pca"]["variance"]))
    same(back.obsm["X_pca"], result.X_pca)
    monkeypatch.setattr(cell._pca, "OBSM_COLUMNS_MAX", 99)
    with pytest.raises(pithead.UserError, match="a dataset keeps 99 components at most") as fault:
        cell.pp.pca(ds, n_comps=100)
    assert "copy=True" in fault.value.hint
    assert cell.pp.pca(ds, n_comps=100, loadings=False, copy=True).X_pca.shape == (200, 100)


def test_components_of_a_view(larger):
    adata, ds = larger
    rows = np.arange(200) % 3 != 0
    part = adata[rows].copy()
    sc.pp.pca(part, n_comps=3, svd_solver="arpack")
    for solver in ("covariance_eigh", "arpack"):
        result = cell.pp.pca(ds[rows], n_comps=3, svd_solver=solver)
        np.testing.assert_allclose(result.variance, part.uns["pca"]["variance"], rtol=1e-3)
        assert result.X_pca.shape == (rows.sum(), 3)
    with pytest.raises(pithead.UserError, match="n_comps=500 of 133 cells and 300 genes"):
        cell.pp.pca(ds[rows], n_comps=500)


@pytest.mark.parametrize("width", [1, 4, 30])
def test_eigenvectors_of_a_matrix_with_few_directions(width):
    # Fewer directions than asked for: the rest are zeros, and the iteration ends.
    rng = np.random.default_rng(0)
    factor = rng.normal(size=(40, 5)) * [9, 7, 5, 3, 1]
    matrix = factor @ factor.T
    values, vectors = top_eigen(lambda basis: matrix @ basis.astype(np.float64), 40, 8, width, 0)
    expected = np.linalg.eigvalsh(matrix)[::-1][:8]
    np.testing.assert_allclose(values, expected, atol=1e-4 * expected[0])
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(8), atol=1e-10)
    np.testing.assert_allclose(matrix @ vectors[:, :4], vectors[:, :4] * values[:4], atol=1e-3 * expected[0])


@pytest.mark.parametrize("by", ["kind", ["kind", "donor"], ["donor", "kind"]])
def test_aggregates(both, by):
    adata, ds = both
    functions = ["sum", "mean", "var", "count_nonzero"]
    theirs = sc.get.aggregate(adata, by, functions)
    ours = cell.get.aggregate(ds, by, functions)
    pd.testing.assert_frame_equal(ours.obs, theirs.obs)
    pd.testing.assert_frame_equal(ours.var, theirs.var)
    for function in functions:
        np.testing.assert_allclose(ours.layers[function], theirs.layers[function], rtol=1e-5, atol=1e-5)
    assert (ours.layers["sum"] == np.rint(ours.layers["sum"])).all()
    noise = cell.get.aggregate(ds, by, "mean", layer="noise", mask="good")
    expected = sc.get.aggregate(adata[adata.obs["good"]].copy(), by, "mean", layer="noise")
    np.testing.assert_allclose(noise.layers["mean"], expected.layers["mean"], rtol=1e-5)


def test_aggregates_of_a_domain(conn, both):
    adata, ds = both
    half = cell.load(conn, adata[:30, :20].copy(), "lab.half", metadata={"from": "half"})
    whole = __import__("anndata").concat([adata, adata[:30, :20]])
    theirs = sc.get.aggregate(whole, "kind", ["sum", "count_nonzero"])
    ours = cell.get.aggregate([ds, half], "kind", ["sum", "count_nonzero"])[theirs.obs_names, theirs.var_names]
    for function in theirs.layers:
        np.testing.assert_allclose(ours.layers[function], theirs.layers[function])
    assert ours.uns["pithead"] == {"lab.half": {"from": "half"}}
    with pytest.raises(pithead.UserError, match="func='median' is not known") as fault:
        cell.get.aggregate(ds, "kind", "median")
    assert "to_anndata" in fault.value.hint


def test_genes_of_one_value_have_no_dispersion(conn, both):
    """The mean of many values is off by what a sum rounds off, and the variance was what that makes: 1e-30, and not 0."""
    adata, _ = both
    values = adata.X.toarray()
    sc.pp.log1p(adata)
    for gene, value in enumerate([0.1, 1.3, 2.7]):
        values[:, gene] = np.float32(value)
    values[:, 3:] = np.log1p(values[:, 3:])
    # One cell of this gene has the next number.
    values[:, 7], values[0, 7] = np.float32(1.3), np.nextafter(np.float32(1.3), np.float32(9))
    adata.X = values
    ds = cell.load(conn, adata, "lab.alike")
    for asked in ({}, {"batch_key": "donor"}):
        ours = cell.pp.highly_variable_genes(ds, inplace=False, **asked)
        alike = ours["dispersions"].iloc[:3]
        assert (alike.isna() if not asked else alike.fillna(0) == 0).all(), ours.head(9)
    ours = cell.pp.highly_variable_genes(ds, inplace=False)
    assert -40 < ours["dispersions"].iloc[7] < -20


@pytest.mark.parametrize("least", [-1, -1.5])
def test_values_without_a_logarithm_are_refused(conn, both, least):
    """They became no numbers, and so did all that was asked of their genes."""
    adata, _ = both
    adata.X = adata.X.toarray() - 0.5
    ds = cell.load(conn, adata, "lab.above", layers=False)
    cell.pp.log1p(ds)
    adata.X[3, 4] = least
    ds = cell.load(conn, adata, "lab.below", layers=False)
    with pytest.raises(pithead.UserError, match="1 genes of lab.below have values of -1 or below"):
        cell.pp.log1p(ds)
    assert "log1p" not in cell.open(conn, "lab.below").uns
    cell.pp.log1p(ds[:3])
    cell.pp.log1p(ds[:, :4])
