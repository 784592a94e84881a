"""Datasets: what was loaded comes back, selections, tables that change, and domains."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import pithead
from pithead import cell


def same(a, b):
    a = a.toarray() if hasattr(a, "toarray") else np.asarray(a)
    b = b.toarray() if hasattr(b, "toarray") else np.asarray(b)
    np.testing.assert_allclose(a, b, rtol=1e-6)


def test_what_was_loaded_comes_back(conn, counts):
    ds = cell.load(conn, counts, "lab.pbmc", metadata={"tissue": "blood"})
    assert ds.shape == (60, 25) and ds.layers == ("noise",) and ds.raw.n_vars == 27
    pd.testing.assert_frame_equal(ds.obs, counts.obs)
    pd.testing.assert_frame_equal(ds.var, counts.var)
    assert ds.metadata == {"tissue": "blood"}
    assert ds.uns["title"] == "made up" and list(ds.uns["kind_colors"]) == list(counts.uns["kind_colors"])
    back = cell.open(conn, "lab.pbmc").to_anndata()
    same(back.X, counts.X)
    same(back.layers["noise"], counts.layers["noise"])
    same(back.raw.X, counts.raw.X)
    same(back.obsm["X_umap"], counts.obsm["X_umap"])
    assert list(back.raw.var_names) == list(counts.raw.var_names)
    assert back.uns["pithead"] == {"tissue": "blood"}
    pd.testing.assert_frame_equal(back.obs, counts.obs)


def test_repr_names_the_parts(conn, counts):
    ds = cell.load(conn, counts, "lab.pbmc")
    assert repr(ds) == (
        "Dataset lab.pbmc with n_obs × n_vars = 60 × 25\n"
        "    obs: 'kind', 'donor', 'age', 'score', 'good', 'note', 'id'\n"
        "    var: 'symbol', 'mt'\n"
        "    uns: 'kind_colors', 'title'\n"
        "    obsm: 'X_umap'\n"
        "    layers: 'noise'\n"
        "    raw: 27 genes"
    )
    assert repr(ds[:5, :3]).startswith("View of dataset lab.pbmc with n_obs × n_vars = 5 × 3\n")


@pytest.mark.parametrize(
    "index",
    [
        (slice(5, 20), slice(None)),
        (slice(None), ["gene3", "gene7"]),
        ([3, 1, 2], slice(0, 4)),
        (np.arange(60) % 2 == 0, np.arange(25) % 3 == 0),
        (["cell7", "cell1"], "gene4"),
        ([], slice(None)),
    ],
)
def test_views_select_what_anndata_selects(conn, counts, index):
    view = cell.load(conn, counts, "lab.pbmc")[index]
    cells, genes = index
    expected = counts[cells, genes]
    # A view keeps the dataset's order.
    expected = counts[counts.obs_names.isin(expected.obs_names), counts.var_names.isin(expected.var_names)].copy()
    assert view.shape == expected.shape
    back = view.to_anndata()
    same(back.X, expected.X)
    assert list(back.obs_names) == list(expected.obs_names) and list(back.var_names) == list(expected.var_names)
    if len(expected):
        assert list(back.obs["kind"].cat.categories) == list(expected.obs["kind"].cat.categories)
    assert back.raw.shape == expected.raw.shape


def test_conditions_select_cells(conn, counts):
    ds = cell.load(conn, counts, "lab.pbmc")
    view = ds["kind = 'B' AND age > 30", ["gene1", "gene2"]]
    expected = (counts.obs["kind"] == "B") & (counts.obs["age"] > 30)
    assert list(view.obs_names) == list(counts.obs_names[expected]) and view.n_vars == 2
    again = view.select("donor = 'd1'")
    assert list(again.obs_names) == list(counts.obs_names[expected & (counts.obs["donor"] == "d1")]) and again.n_vars == 2
    assert ds[ds.obs["good"]].n_obs == counts.obs["good"].sum()
    assert view[view.obs["donor"] == "d1"].obs_names.equals(again.obs_names)
    assert ds[10:20][2:4].obs_names.tolist() == ["cell12", "cell13"]


def test_masks_that_may_have_missing_values(conn, counts):
    """They were taken for ids, or by position whatever their own order was."""
    ds = cell.load(conn, counts, "lab.pbmc")
    flag = pd.Series(pd.array([True, False, True] * 20, dtype="boolean"), index=counts.obs_names)
    expected = counts.obs_names[flag.to_numpy(dtype=bool)].tolist()
    labels = pd.Series(pd.Categorical(flag), flag.index)
    for mask in (flag, flag[::-1], flag.array, flag.astype("bool[pyarrow]")[::-1], labels):
        assert ds[mask].obs_names.tolist() == expected
    with pytest.raises(pithead.UserError, match="the mask's ids are not the cells"):
        ds[flag.rename(lambda name: name + "x")]
    flag.iloc[3] = pd.NA
    ds.set_obs("flag", flag)
    for mask in (ds.obs["flag"], flag.array):
        with pytest.raises(pithead.UserError, match="the mask of cells has missing values") as fault:
            ds[mask]
        assert fault.value.hint == "say what they mean: mask.fillna(False)"
    assert ds[ds.obs["flag"].fillna(False)].n_obs == 39
    with pytest.raises(pithead.UserError, match="the mask of genes has missing values"):
        ds[:, pd.array([True, None] + [False] * 23, dtype="boolean")]


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ((["cell1", "nobody"], slice(None)), "has no cell 'nobody'"),
        ((slice(None), ["gene1", "GENE"]), "has no gene 'GENE'"),
        (([60], slice(None)), "cell 60 of lab.pbmc, which has 60"),
        (([True, False], slice(None)), "the mask has 2 values for 60 cells"),
    ],
)
def test_what_is_not_there_is_named(conn, counts, index, message):
    ds = cell.load(conn, counts, "lab.pbmc")
    with pytest.raises(pithead.UserError, match=message) as fault:
        ds[index]
    assert fault.value.hint


def test_new_columns_touch_no_matrix(conn, counts):
    ds = cell.load(conn, counts, "lab.pbmc")
    other = cell.open(conn, "lab.pbmc")
    clusters = pd.Series(pd.Categorical([str(i % 4) for i in range(60)]), index=ds.obs_names[::-1])
    ds.set_obs("leiden", clusters)
    other.set_obs("number", np.arange(60))
    fresh = cell.open(conn, "lab.pbmc")
    assert fresh.obs["leiden"].tolist() == clusters.reindex(fresh.obs_names).tolist()
    assert fresh.obs["number"].tolist() == list(range(60))
    ds[ds.obs["kind"] == "B"].set_obs("sub", ["x"] * int((ds.obs["kind"] == "B").sum()))
    fresh = cell.open(conn, "lab.pbmc")
    assert (fresh.obs["sub"].notna() == (fresh.obs["kind"] == "B")).all()
    fresh.set_var("length", np.arange(25.0))
    fresh.set_obsm("X_pca", np.arange(120.0).reshape(60, 2))
    fresh = cell.open(conn, "lab.pbmc")
    assert fresh.var["length"].tolist() == list(range(25))
    same(fresh.obsm["X_pca"], np.arange(120.0).reshape(60, 2))
    same(fresh[3:5].obsm["X_pca"], [[6, 7], [8, 9]])
    with pytest.raises(pithead.UserError, match="61 values for 60"):
        ds.set_obs("wrong", np.arange(61))
    with pytest.raises(pithead.UserError, match="1 cells have no value|1 rows have no value"):
        ds.set_obs("wrong", clusters[:-1])
    if isinstance(getattr(conn, "log", None), list):
        assert conn.log.count("lab.pbmc") == 1


def test_listed_replaced_and_dropped(conn, counts):
    cell.load(conn, counts, "lab.pbmc")
    cell.load(conn, counts[:10].copy(), "lab.small", raw=False, layers=False)
    listed = cell.ls(conn, "lab")
    assert listed["name"].tolist() == ["lab.pbmc", "lab.small"] and listed["n_obs"].tolist() == [60, 10]
    with pytest.raises(pithead.UserError, match="there is a dataset lab.pbmc already"):
        cell.load(conn, counts, "lab.pbmc")
    old = cell.open(conn, "lab.pbmc")
    cell.load(conn, counts[:20].copy(), "lab.pbmc", mode="replace", raw=False)
    new = cell.open(conn, "lab.pbmc")
    assert new.n_obs == 20 and new.raw is None and len(new.obs) == 20
    with pytest.raises(pithead.UserError, match="is gone"):
        old.obs  # noqa: B018
    names = {f"{info.domain}.{info.name}" for info in conn.datasets("lab")}
    assert len([name for name in names if name.startswith("lab.pbmc")]) == 5
    cell.drop(conn, "lab.pbmc")
    cell.drop(conn, "lab.small")
    assert not list(conn.datasets("lab"))
    with pytest.raises(pithead.UserError, match="the datasets of cells are: none"):
        cell.open(conn, "lab.pbmc")
    cell.drop(conn, "lab.pbmc", missing_ok=True)


def test_a_domain_is_its_datasets(conn, counts):
    cell.load(conn, counts, "lab.a")
    cell.load(conn, counts[:10].copy(), "lab.b")
    domain = cell.Domain(conn, "lab")
    assert [each.name for each in domain] == ["lab.a", "lab.b"] and domain.n_obs == 70
    with pytest.raises(pithead.UserError, match="has no dataset"):
        cell.Domain(conn, "nowhere")


def test_datasets_of_two_connections_are_not_taken_together(conn, counts):
    """All of them were asked for at the first one's drives, which may have others by the same names."""
    mine = cell.load(conn, counts, "lab.a", raw=False)
    cell.load(conn, counts[::-1].copy(), "lab.b", raw=False)
    with pithead.connect() as other:
        theirs = cell.load(other, counts, "lab.b", raw=False)
        for asked in (
            lambda: cell.Domain([mine, theirs]),
            lambda: cell.tl.rank_genes_groups([mine, theirs], "kind"),
            lambda: cell.get.aggregate([mine, theirs[:30]], "kind", "sum"),
        ):
            with pytest.raises(pithead.UserError, match="the datasets are of different connections") as fault:
                asked()
            assert "one connection" in fault.value.hint
    assert cell.get.aggregate(cell.Domain(conn, "lab"), "kind", "sum").n_obs == 3
