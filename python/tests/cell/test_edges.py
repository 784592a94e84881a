"""Groups and values at their edges: no cells on the other side, groups named twice, values that no float of 32 bits holds, copies."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pandas as pd
import pytest
from anndata import AnnData
from judge import same_as_scanpy
from scipy import sparse

import pithead
from pithead import cell

sc = pytest.importorskip("scanpy")
pytestmark = pytest.mark.filterwarnings("ignore")


def labelled(labels: list[str | None], seed: int = 0) -> AnnData:
    values = np.random.default_rng(seed).poisson(2, (len(labels), 6)).astype(np.float32)
    obs = pd.DataFrame({"g": pd.Categorical(labels)}, index=[f"c{place}" for place in range(len(labels))])
    adata = AnnData(sparse.csr_matrix(values), obs=obs)
    sc.pp.log1p(adata)
    return adata


@pytest.mark.parametrize("method", ["t-test", "t-test_overestim_var", "wilcoxon"])
@pytest.mark.parametrize("labels", [["A"] * 7, ["A"] * 7 + ["B"], ["A"] * 7 + [None], ["A"] * 4 + [None] * 3], ids=len)
def test_a_rest_of_few_cells_or_none_is_scanpys(conn, method, labels):
    adata = labelled(labels)
    ds = cell.load(conn, adata, "lab.few")
    result = cell.tl.rank_genes_groups(ds, "g", groups=["A"], method=method, pts=True)
    sc.tl.rank_genes_groups(adata, "g", groups=["A"], method=method, pts=True)
    theirs = adata.uns["rank_genes_groups"]
    ours = result.df("A").set_index("names")
    judged = sc.get.rank_genes_groups_df(adata, "A").set_index("names").loc[ours.index]
    # Of one cell scanpy's variance is what rounding leaves; there is none.
    is_noise = labels.count("B") + labels.count(None) == 1 and method != "wilcoxon"
    for column in ("logfoldchanges",) if is_noise else ("scores", "logfoldchanges", "pvals", "pvals_adj"):
        np.testing.assert_allclose(ours[column], judged[column], rtol=1e-4, atol=1e-5, err_msg=column)
    assert ours["logfoldchanges"].isna().all() == (len(set(labels)) == 1)
    for frame in ("pts", "pts_rest"):
        pd.testing.assert_frame_equal(result[frame], theirs[frame], check_names=False)


@pytest.mark.parametrize("method", ["t-test", "t-test_overestim_var"])
def test_a_rest_of_one_cell_without_rounding_is_scanpys(conn, method):
    """Of one cell of whole numbers scanpy's variance is 0."""
    values = np.random.default_rng(1).poisson(4, (6, 8)).astype(np.float32)
    adata = AnnData(values, obs=pd.DataFrame({"g": pd.Categorical(list("AAAAAB"))}, index=list("uvwxyz")))
    ds = cell.load(conn, adata, "lab.last")
    result = cell.tl.rank_genes_groups(ds, "g", groups=["A"], method=method)
    sc.tl.rank_genes_groups(adata, "g", groups=["A"], method=method)
    ours = result.df("A").set_index("names")
    judged = sc.get.rank_genes_groups_df(adata, "A").set_index("names").loc[ours.index]
    for column in ("scores", "pvals", "pvals_adj"):
        np.testing.assert_allclose(ours[column], judged[column], rtol=1e-4, atol=1e-6, err_msg=column)
    assert (ours["pvals"] < 1).any()


def test_an_empty_rest_has_no_fold_change_of_seurat_either(conn):
    ds = cell.load(conn, labelled(["A"] * 7), "lab.one")
    for fold_change in ("seurat", "seurat_v4"):
        result = cell.tl.rank_genes_groups(ds, "g", method="student", fold_change=fold_change)
        assert np.isnan(result.stats["logfoldchanges"]).all() and (result.stats["scores"] == 0).all()


@pytest.mark.parametrize("groups", [["A", "A"], ["A", "B", "A"], ["B", "A", "A"], ("C", "C", "A")], ids=str)
@pytest.mark.parametrize("reference", ["rest", "B"])
@pytest.mark.parametrize("method", ["t-test", "wilcoxon"])
def test_a_group_named_twice_is_tested_once_as_by_scanpy(conn, groups, reference, method):
    adata = labelled(["A"] * 9 + ["B"] * 8 + ["C"] * 7)
    ds = cell.load(conn, adata, "lab.abc")
    result = cell.tl.rank_genes_groups(ds, "g", groups=groups, reference=reference, method=method)
    sc.tl.rank_genes_groups(adata, "g", groups=list(groups), reference=reference, method=method)
    same_as_scanpy(result, adata)
    assert result.groups == [group for group in dict.fromkeys(groups) if group != reference]
    once = cell.tl.rank_genes_groups(ds, "g", groups=list(dict.fromkeys(groups)), reference=reference, method=method)
    np.testing.assert_array_equal(result.stats["pvals_adj"], once.stats["pvals_adj"])
    assert cell.tl.rank_genes_groups(ds, "g", groups=groups, reference=reference, method=method, pts=True)[
        "pts"
    ].columns.is_unique


def made(value: float, kind: type) -> AnnData:
    values = np.array([[0.5, 0.0, 1.5], [0.0, value, 2.0]])
    return AnnData(kind(values), obs=pd.DataFrame(index=["c0", "c1"]), var=pd.DataFrame(index=["g0", "g1", "g2"]))


@pytest.mark.parametrize("kind", [sparse.csr_matrix, sparse.csc_matrix, np.asarray], ids=["csr", "csc", "dense"])
@pytest.mark.parametrize("value", [1e300, -1e39, np.float64(np.finfo(np.float32).max) * 1.0001])
def test_what_no_float_of_32_bits_holds_is_refused(conn, kind, value):
    with pytest.raises(pithead.UserError, match="cell 1 has .* of gene 1 .*floats of 32 bits end at 3.4") as refused:
        cell.load(conn, made(value, kind), "lab.large")
    assert refused.value.hint and cell.ls(conn).empty
    layered = made(1.0, kind)
    layered.layers["large"] = made(value, kind).X
    with pytest.raises(pithead.UserError, match="floats of 32 bits"):
        cell.load(conn, layered, "lab.large")
    assert conn.datasets() == []


@pytest.mark.parametrize("value", [float(np.finfo(np.float32).max), np.inf, -np.inf, np.nan, 1e-45, 1e-300, -1e-300])
def test_what_a_float_of_32_bits_holds_comes_back(conn, value):
    ds = cell.load(conn, made(value, sparse.csr_matrix), "lab.small")
    back = ds.to_anndata().X.toarray()
    np.testing.assert_array_equal(back, np.array([[0.5, 0.0, 1.5], [0.0, np.float32(value), 2.0]], dtype=np.float32))
    assert ds.loaded["nonzeros"] == np.count_nonzero(back)


def test_results_are_pickled_and_copied(conn, counts):
    ds = cell.load(conn, counts, "lab.pbmc", raw=False)
    result = cell.tl.rank_genes_groups(ds, "kind", layer="noise", pts=True, n_genes=5)
    for other in (
        pickle.loads(pickle.dumps(result)),
        copy.copy(result),
        copy.deepcopy(result),
        copy.deepcopy(ds.uns)["rank_genes_groups"],
    ):
        assert type(other) is type(result) and other is not result
        assert set(other) == set(result) and repr(other) == repr(result) and other.profile == result.profile
        pd.testing.assert_frame_equal(other.df(), result.df())
        np.testing.assert_array_equal(other["names"], result["names"])
        pd.testing.assert_frame_equal(other["pts"], result["pts"])
    assert "accumulate" in copy.copy(result).explain() and "accumulate" in copy.deepcopy(result).explain()
    with pytest.raises(pithead.UserError, match="read from a pickle"):
        pickle.loads(pickle.dumps(result)).explain()
    assert copy.deepcopy(result).stats["scores"] is not result.stats["scores"]
    components = cell.pp.pca(ds, 3, layer="noise")
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(components)).X_pca, copy.deepcopy(components).X_pca)
    error = pickle.loads(pickle.dumps(pithead.DriveError("gone", "start it")))
    assert (error.message, error.hint, str(error)) == ("gone", "start it", "gone\nhint: start it")


def test_profiles_have_the_names_of_those_of_statements(conn, counts):
    ds = cell.load(conn, counts, "lab.pbmc", raw=False)
    result = cell.tl.rank_genes_groups(ds, "kind", layer="noise")
    relation = conn.sql("SELECT 1")
    relation.fetchall()
    assert set(result.profile) == set(relation.profile())
    assert result.profile["seconds"] > 0 and result.profile["slices_read"] > 0


def test_pieces_of_a_matrix_are_not_appended(conn):
    writer = cell._native.module().MatrixWriter(1, source="it")
    writer.push_dense(np.array([[1.0]]))
    with pytest.raises(pithead.UserError, match='mode: expected one of "create", "replace", got "append"'):
        writer.load(conn._native, "lab.x", ["g0"], metadata={}, mode="append")


@pytest.mark.parametrize("option", ["slice_bytes", "slice_rows"])
def test_sizes_of_slices_are_positive(conn, counts, option):
    for value in (0, -1, 1.5):
        with pytest.raises(pithead.UserError, match=f"{option}: expected"):
            cell.load(conn, counts, "lab.pbmc", **{option: value})


def test_cells_that_are_named_twice_are_refused(conn, counts):
    ds = cell.load(conn, counts, "lab.once")
    for data in ([ds, ds], [ds[:30], ds[10:]]):
        with pytest.raises(pithead.UserError, match="cells of lab.once are in two of the selections"):
            cell.tl.rank_genes_groups(data, "kind")
        with pytest.raises(pithead.UserError, match="name each cell once"):
            cell.get.aggregate(data, "kind", "sum")
    apart = cell.get.aggregate([ds[:30], ds[30:]], "kind", "sum")
    whole = cell.get.aggregate(ds, "kind", "sum")
    assert apart.var_names.tolist() == whole.var_names.tolist()
    np.testing.assert_array_equal(apart[whole.obs_names].layers["sum"], whole.layers["sum"])


def test_counts_keep_their_digits_or_are_refused(conn):
    adata = AnnData(sparse.csr_matrix(np.array([[2.0**24, 0], [1, 2]])))
    assert cell.load(conn, adata, "lab.most", kind="counts").to_anndata().X[0, 0] == 2**24
    for dtype in (np.float64, np.int64, np.uint32):
        adata.X = sparse.csr_matrix(np.array([[2**24 + 1, 0], [1, 2]], dtype=dtype))
        with pytest.raises(pithead.UserError, match="more than 16777216"):
            cell.load(conn, adata, "lab.more", kind="counts")


def test_a_group_may_have_the_empty_name(conn):
    adata = labelled(["", "", "B", "B", "C", "C"])
    ds = cell.load(conn, adata, "lab.nameless")
    result = cell.tl.rank_genes_groups(ds, "g")
    sc.tl.rank_genes_groups(adata, "g")
    assert result["names"].dtype.names == adata.uns["rank_genes_groups"]["names"].dtype.names == ("", "B", "C")
    np.testing.assert_allclose(result["scores"][""], adata.uns["rank_genes_groups"]["scores"][""], rtol=1e-4)


def test_truth_values_are_zeros_and_ones(conn):
    dense = np.array([[True, False], [False, True]])
    for values in (sparse.csr_matrix(dense), sparse.csc_matrix(dense), dense):
        ds = cell.load(conn, AnnData(values), "lab.truth", mode="replace")
        np.testing.assert_array_equal(ds.to_anndata().X.toarray(), dense.astype(np.float32))


def test_one_value_is_that_of_all_cells(conn, counts):
    ds = cell.load(conn, counts, "lab.all")
    ds.set_obs("batch", "first")
    ds.set_obs("number", 7)
    assert set(ds.obs["batch"]) == {"first"} and set(ds.obs["number"]) == {7}
    with pytest.raises(pithead.UserError, match="twice"):
        ds.set_obs("wrong", pd.Series([1, 2], index=[counts.obs_names[0]] * 2))


@pytest.mark.parametrize("target", [-1, 0, float("nan"), float("inf"), "1e4"])
def test_no_sum_of_a_cell(conn, counts, target):
    ds = cell.load(conn, counts, "lab.sums")
    with pytest.raises(pithead.UserError, match="no sum that cells can have"):
        cell.pp.normalize_total(ds, target_sum=target)
