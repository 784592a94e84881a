"""Two clients at one dataset: loads at the same time or interrupted, and handles and columns that are older than it."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from anndata import AnnData
from scipy import sparse
from test_dataset import same

import pithead
from pithead import cell
from pithead.cell import _dataset
from pithead.cell.io import _load

pytestmark = pytest.mark.filterwarnings("ignore")


def names(conn) -> set[str]:
    return {info.name for info in conn.datasets("lab")}


def interposed(monkeypatch, owner, function: str, when, act) -> None:
    """Has `act` done once, before the first call of a function that `when` holds for."""
    original = getattr(owner, function)
    done = []

    def first(*given, **named):
        if not done and when(*given):
            done.append(True)
            act()
        return original(*given, **named)

    monkeypatch.setattr(owner, function, first)


def test_of_two_loads_at_once_one_is_there_and_whole(conn, counts, monkeypatch):
    """Both began before any table was there. The one that came second dropped tables of the one that had ended well."""
    first = counts[:40].copy()
    interposed(monkeypatch, _load, "_taken", lambda *_: True, lambda: cell.load(conn, first, "lab.d"))
    with pytest.raises(pithead.UserError, match="there is a dataset lab.d already"):
        cell.load(conn, counts, "lab.d")
    kept = cell.open(conn, "lab.d")
    back = kept.to_anndata()
    same(back.X, first.X)
    same(back.raw.X, first.raw.X)
    pd.testing.assert_frame_equal(back.var, first.var)
    assert back.obs_names.tolist() == first.obs_names.tolist() and len(names(conn)) == 7
    cell.drop(conn, "lab.d")
    assert not names(conn)


def test_of_two_replacements_at_once_the_last_one_stays(conn, counts, monkeypatch):
    cell.load(conn, counts, "lab.d")
    others = []
    meanwhile = counts[:40].copy()
    interposed(
        monkeypatch,
        _load,
        "_taken",
        lambda *_: True,
        lambda: others.append(cell.load(conn, meanwhile, "lab.d", mode="replace")),
    )
    last = cell.load(conn, counts[:30].copy(), "lab.d", mode="replace")
    assert others[0].n_obs == 40 and cell.open(conn, "lab.d").n_obs == last.n_obs == 30
    same(last.to_anndata().X, counts[:30].X)
    with pytest.raises(pithead.UserError, match="which belongs to lab.d, is gone"):
        others[0].to_anndata()
    assert len(names(conn)) == 7


def test_a_load_that_was_replaced_before_it_returned_says_so(conn, counts, monkeypatch):
    interposed(
        monkeypatch,
        _load,
        "_drop_replaced",
        lambda *_: True,
        lambda: cell.load(conn, counts[:30].copy(), "lab.d", mode="replace"),
    )
    with pytest.raises(pithead.ConflictError, match="another client has replaced or dropped it since"):
        cell.load(conn, counts, "lab.d")
    assert cell.open(conn, "lab.d").n_obs == 30 and len(names(conn)) == 7


@pytest.mark.parametrize("fault", [KeyboardInterrupt, pithead.DriveError("the answer was lost")], ids=str)
def test_what_was_committed_stays_whole_when_the_load_does_not_return(conn, counts, monkeypatch, fault):
    """X was committed, and then the load was interrupted. Its other tables were dropped, so that nothing could be opened."""
    written = _load._written

    def lost(ours, writer, name, key, *rest):
        stored = written(ours, writer, name, key, *rest)
        if key == "X":
            raise fault
        return stored

    for size, mode in ((60, "create"), (40, "replace")):
        monkeypatch.setattr(_load, "_written", lost)
        with pytest.raises((KeyboardInterrupt, pithead.DriveError)):
            cell.load(conn, counts[:size].copy(), "lab.d", mode=mode)
        monkeypatch.setattr(_load, "_written", written)
        back = cell.open(conn, "lab.d").to_anndata()
        same(back.X, counts[:size].X)
        same(back.raw.X, counts[:size].raw.X)
        same(back.layers["noise"], counts[:size].layers["noise"])
        assert len(names(conn)) == 7


def test_what_may_have_been_committed_stays_where_nobody_can_tell(conn, counts, monkeypatch):
    written = _load._written

    def closed(ours, writer, name, key, *rest):
        if key == "X":
            monkeypatch.setattr(pithead.Connection, "load", refused)
            raise KeyboardInterrupt
        return written(ours, writer, name, key, *rest)

    def refused(*_, **__):
        raise pithead.DriveError("no drive answers")

    monkeypatch.setattr(_load, "_written", closed)
    with pytest.raises(KeyboardInterrupt):
        cell.load(conn, counts, "lab.d")
    assert len(names(conn)) == 6
    cell.drop(conn, "lab.d", missing_ok=True)
    assert not names(conn)


def test_a_handle_of_a_dataset_that_was_replaced_asks_nothing_of_the_new_one(conn, counts):
    """Genes of the new matrix were reported under the ids of the old one, without a word."""
    ds = cell.load(conn, counts, "lab.d")
    cell.pp.normalize_total(ds)
    cell.pp.log1p(ds)
    view = ds[ds.obs["good"]]
    asked = {
        "rank": lambda: cell.tl.rank_genes_groups(ds, "kind", use_raw=False),
        "view": lambda: cell.tl.rank_genes_groups(view, "kind", use_raw=False),
        "domain": lambda: cell.tl.rank_genes_groups([ds], "kind", use_raw=False),
        "aggregate": lambda: cell.get.aggregate(ds, "kind", "mean"),
        "metrics": lambda: cell.pp.calculate_qc_metrics(ds),
        "pca": lambda: cell.pp.pca(ds, 3, copy=True, loadings=False),
        "take": lambda: ds.to_anndata(raw=False, layers=False),
        "raw": lambda: cell.get.aggregate(ds, "kind", "mean", use_raw=True),
    }
    assert all(ask() is not None for ask in asked.values())
    keep = np.arange(24, -1, -1)
    new = cell.load(conn, counts[:, keep].copy(), "lab.d", mode="replace")
    for name, ask in asked.items():
        with pytest.raises(pithead.UserError, match="lab.d was replaced since it was opened") as fault:
            ask()
        assert "pithead.cell.open(conn, 'lab.d')" in fault.value.hint, name
    same(cell.open(conn, "lab.d").to_anndata().X, counts[:, keep].X)
    new.to_anndata()
    cell.drop(conn, "lab.d")
    with pytest.raises(pithead.UserError, match="lab.d was dropped since it was opened"):
        new.to_anndata()


def test_columns_that_another_handle_has_changed_have_their_own_categories(conn, counts):
    """Cells whose label was new were in no group, and counted as all other cells."""
    ds = cell.load(conn, counts, "lab.d", raw=False)
    finer = pd.Categorical([str(number % 5) for number in range(60)])
    cell.open(conn, "lab.d").set_obs("kind", finer)
    result = cell.tl.rank_genes_groups(ds, "kind", layer="noise")
    assert result.groups == ["0", "1", "2", "3", "4"]
    assert ds.obs_columns(["kind"])["kind"].tolist() == list(finer)


def test_columns_that_change_while_they_are_read_are_old_or_new(conn, counts, monkeypatch):
    ds, other = cell.load(conn, counts, "lab.d", raw=False), cell.open(conn, "lab.d")
    finer = pd.Categorical([f"new{number % 5}" for number in range(60)])
    interposed(monkeypatch, _dataset.Dataset, "_rows", lambda self, *_: self is ds, lambda: other.set_obs("kind", finer))
    assert ds.obs_columns(["kind"])["kind"].tolist() == list(finer)


def test_a_value_of_no_category_is_named(conn, counts):
    ds = cell.load(conn, counts, "lab.d", raw=False)
    part = ds._note["parts"]["obs"]
    conn.sql(f"UPDATE {cell._native.quoted(part)} SET kind = 'ILC' WHERE cell = 3")
    with pytest.raises(pithead.UserError, match="the column 'kind' holds 'ILC', which is none of its categories"):
        ds.obs_columns(["kind"])


@pytest.mark.parametrize("change", ["set_obs", "set_obsm", "normalize_total", "log1p"])
def test_no_column_is_lost_to_a_change_at_the_same_time(conn, counts, monkeypatch, change):
    """Each read the table of cells, and put it back without what the other had written meanwhile."""
    ds, other = cell.load(conn, counts, "lab.d", raw=False), cell.open(conn, "lab.d")
    changes = {
        "set_obs": lambda: ds.set_obs("mine", np.arange(60)),
        "set_obsm": lambda: ds.set_obsm("X_mine", np.ones((60, 2))),
        "normalize_total": lambda: cell.pp.normalize_total(ds, target_sum=10),
        "log1p": lambda: cell.pp.log1p(ds),
    }
    cluster = [f"c{number % 3}" for number in range(60)]
    theirs = pd.Categorical(cluster)
    interposed(monkeypatch, pithead.Connection, "_replace", lambda *_: True, lambda: other.set_obs("cluster", theirs))
    changes[change]()
    fresh = cell.open(conn, "lab.d")
    assert fresh.obs["cluster"].tolist() == ds.obs["cluster"].tolist() == cluster
    transform = fresh.transform(fresh.matrix())
    assert (transform.target_sum, transform.log1p) == (10 if change == "normalize_total" else None, change == "log1p")
    assert ("mine" in fresh.obs, "X_mine" in fresh.obsm) == (change == "set_obs", change == "set_obsm")
    assert ds.transform(ds.matrix()) == transform and fresh.obs["id"].tolist() == list(range(60))


def kept_transform(conn) -> tuple[float | None, bool]:
    fresh = cell.open(conn, "lab.d")
    kept = fresh.transform(fresh.matrix())
    assert ("log1p" in fresh.uns) == kept.log1p
    return kept.target_sum, kept.log1p


def test_no_transform_is_lost_to_an_older_handle(conn, counts):
    """What a handle had read when it was opened was put over what others had set since."""
    first, second = cell.load(conn, counts, "lab.d", raw=False), cell.open(conn, "lab.d")
    cell.pp.normalize_total(first, target_sum=10)
    cell.pp.log1p(second)
    assert kept_transform(conn) == (10, True)
    assert second.transform(second.matrix()) == cell.open(conn, "lab.d").transform(second.matrix())
    for change in (cell.pp.normalize_total, cell.pp.log1p):
        with pytest.raises(pithead.UserError, match="logarithms already") as fault:
            change(first)
        assert "untransform" in fault.value.hint
    cell.pp.untransform(first)
    assert kept_transform(conn) == (None, False)
    # This handle has not seen that the logarithms are gone.
    cell.pp.normalize_total(second, target_sum=20)
    cell.pp.log1p(second)
    assert kept_transform(conn) == (20, True)


def test_no_transform_is_lost_to_another_one_at_the_same_time(conn, counts, monkeypatch):
    ds, other = cell.load(conn, counts, "lab.d", raw=False), cell.open(conn, "lab.d")
    set_first = lambda: cell.pp.normalize_total(other, target_sum=10)  # noqa: E731
    interposed(monkeypatch, pithead.Connection, "_replace", lambda *_: True, set_first)
    cell.pp.log1p(ds)
    assert kept_transform(conn) == (10, True)


def test_a_target_is_that_of_whoever_was_first(conn, counts, monkeypatch):
    ds, other = cell.load(conn, counts, "lab.d", raw=False), cell.open(conn, "lab.d")
    set_first = lambda: cell.pp.normalize_total(other, target_sum=10)  # noqa: E731
    interposed(monkeypatch, pithead.Connection, "_replace", lambda *_: True, set_first)
    cell.pp.normalize_total(ds, key_added="factor")
    assert kept_transform(conn) == (10, False)
    np.testing.assert_allclose(ds.obs["factor"], np.asarray(counts.X.sum(axis=1)).ravel() / 10)


def test_no_column_of_genes_is_lost_to_a_change_at_the_same_time(conn, counts, monkeypatch):
    ds, other = cell.load(conn, counts, "lab.d", raw=False), cell.open(conn, "lab.d")
    interposed(monkeypatch, pithead.Connection, "_replace", lambda *_: True, lambda: other.set_var("theirs", np.arange(25)))
    ds.set_var("mine", np.arange(25))
    assert {"mine", "theirs"} <= set(cell.open(conn, "lab.d").var.columns) == set(ds.var.columns)


def test_changes_that_never_come_first_are_given_up(conn, counts, monkeypatch):
    ds = cell.load(conn, counts, "lab.d", raw=False)
    monkeypatch.setattr(_dataset, "_WAIT_SECONDS", 0)

    def conflicts(*_):
        raise pithead.ConflictError("dataset lab.d.obs was changed by others meanwhile")

    monkeypatch.setattr(pithead.Connection, "_replace", conflicts)
    with pytest.raises(pithead.ConflictError, match="changed by others"):
        ds.set_obs("mine", np.arange(60))
    assert "mine" not in ds.obs


def test_a_table_that_was_changed_is_laid_out_as_it_was(conn):
    """Rows are put over the table as it was found, with columns and types that it did not have."""
    values = sparse.csr_matrix(np.random.default_rng(0).poisson(1, (700, 5)).astype(np.float32))
    ds = cell.load(conn, AnnData(values), "lab.wide")
    frame = ds.obs.assign(
        when=pd.Timestamp("2024-01-01"), took=pd.Timedelta("1s"), flag=pd.array([True, None] * 350, dtype="boolean")
    )
    ds.set_obs(frame)
    ds.set_obs("number", np.arange(700))
    back = cell.open(conn, "lab.wide")
    pd.testing.assert_frame_equal(back.obs[list(frame.columns)], frame)
    assert back.obs["number"].tolist() == list(range(700)) and back.obs["took"].dtype == frame["took"].dtype
    same(back.to_anndata().X, values)
