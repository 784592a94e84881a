"""A connection and compiled functions over numpy, for tests of readers and shapes where there is no engine."""

from __future__ import annotations

import pickle
import re
import sys
import types
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
from scipy import io, sparse, stats


def install() -> None:
    """Puts a package `pithead` in the place of one whose library is not built: exceptions, and the functions below."""
    package = types.ModuleType("pithead")
    package.__path__ = [str(Path(__file__).parents[2] / "pithead")]

    class Error(Exception):
        def __init__(self, message: str, hint: str | None = None) -> None:
            super().__init__(message)
            self.hint = hint

    package.Error = Error
    for name in ("User", "Unsupported", "Limit", "Drive", "Conflict", "Access", "Corrupt", "Internal"):
        setattr(package, f"{name}Error", type(f"{name}Error", (Error,), {}))
    package.Cancelled = type("Cancelled", (Error,), {})
    native = types.ModuleType("pithead._pithead")
    native.cell = sys.modules[__name__]
    package._pithead = native
    sys.modules["pithead"], sys.modules["pithead._pithead"] = package, native


class Connection:
    """Tables in a dictionary."""

    def __init__(self) -> None:
        self.tables: dict[str, tuple[object, dict[str, str]]] = {}
        self._native = self
        self.log: list[str] = []

    def datasets(self, domain=None):
        infos = []
        for name, (table, metadata) in self.tables.items():
            of, _, dataset = name.partition(".")
            if domain in (None, of):
                rows = table.num_rows if isinstance(table, pa.Table) else table.shape[1]
                infos.append(
                    SimpleNamespace(domain=of, name=dataset, rows=rows, stored_bytes=100, metadata=metadata, columns=[])
                )
        return infos

    def status(self):
        return [("drive", '{"cpu_share": 1.0}', True)]

    def load(self, name, source, *, mode="create", metadata=None, progress=None):
        import pithead

        if mode == "create" and name in self.tables:
            raise pithead.UserError(f"{name} is there")
        self.log.append(name)
        self.tables[name] = (source, metadata or {})

    def drop(self, name, missing_ok=False):
        if not missing_ok or name in self.tables:
            del self.tables[name]

    def sql(self, query, params=None):
        if query.startswith("SELECT gene, combine("):
            return SimpleNamespace(explain=lambda analyze=False: f"at the drives: {query}")
        columns, domain, name, where = re.fullmatch(
            r'SELECT (.*?) FROM "(.*?)"\."(.*?)"(?: WHERE \((.*)\))?', query
        ).groups()
        table = self.tables[f"{domain}.{name}"][0]
        if where:
            frame = table.to_pandas().query(where.replace(" = ", " == ").replace("AND", "and"))
            table = table.take(pa.array(frame.index))
        # Drives answer in any order.
        table = table.take(pa.array(np.arange(table.num_rows)[::-1]))
        return SimpleNamespace(arrow=lambda: table if columns == "*" else table.select(columns.split(", ")))

    def close(self):
        pass


class MatrixWriter:
    def __init__(self, n_genes, *, source, codec="zstd", kind="auto", spill_dir=None):
        assert codec in ("zstd", "none")
        self.n_genes, self._kind, self.blocks, self.by_genes = n_genes, kind, [], False

    def push_csr(self, indptr, indices, data):
        self.blocks.append(sparse.csr_matrix((data, indices, indptr - indptr[0]), shape=(len(indptr) - 1, self.n_genes)))

    def push_csc(self, indptr, indices, data, n_cells):
        self.by_genes = True
        self.blocks.append(sparse.csc_matrix((data, indices, indptr - indptr[0]), shape=(n_cells, len(indptr) - 1)))

    def push_dense(self, block):
        assert block.flags.c_contiguous
        self.blocks.append(sparse.csr_matrix(block))

    def read_mtx(self, path, n_cells, cells_are_rows=False, progress=None):
        values = sparse.csr_matrix(io.mmread(path))
        self.blocks.append(values if cells_are_rows else values.T.tocsr())

    def _matrix(self):
        stack = sparse.hstack if self.by_genes else sparse.vstack
        matrix = stack(self.blocks).tocsc().astype(np.float64)
        assert matrix.shape[1] == self.n_genes
        matrix.eliminate_zeros()
        return matrix

    n_cells = property(lambda self: self._matrix().shape[0])
    nnz = property(lambda self: self._matrix().nnz)

    @property
    def kind(self):
        data = self._matrix().data
        return (
            self._kind if self._kind != "auto" else "counts" if ((data >= 0) & (data == np.floor(data))).all() else "floats"
        )

    def totals(self):
        return np.asarray(self._matrix().sum(axis=1)).ravel().astype(np.float64).tobytes()

    def nonzeros(self):
        return np.diff(self._matrix().tocsr().indptr).astype(np.uint32).tobytes()

    def load(
        self,
        conn,
        dataset,
        ids,
        *,
        metadata,
        mode="create",
        slice_bytes=None,
        slice_rows=None,
        layout="sparse",
        progress=None,
    ):
        matrix = self._matrix()
        matrix.ids = ids
        conn.load(dataset, matrix, mode=mode, metadata=metadata)
        return {"rows": matrix.shape[1], "stored_bytes": 8 * matrix.nnz, "slices": 1, "seconds": 0.0, "nnz": matrix.nnz}


def encode_cells(n_cells, **how):
    for name, dtype in (("groups", np.int32), ("exclude", np.uint8), ("totals", np.float64), ("basis", np.float32)):
        assert how[name] is None or (how[name].dtype == dtype and how[name].flags.c_contiguous and len(how[name]) == n_cells)
    return pickle.dumps({"n_cells": n_cells, **how})


def _dense(conn, table, cells, genes=None):
    how = pickle.loads(cells)
    matrix = conn.tables[table][0]
    values = matrix.toarray()
    if how["target_sum"] is not None:
        totals = how["totals"]
        values = values * np.divide(how["target_sum"], totals, out=np.zeros_like(totals), where=totals > 0)[:, None]
    if how["log1p"]:
        values = np.log1p(values) / (np.log(how["base"]) if how["base"] else 1.0)
    keep = np.ones(how["n_cells"], dtype=bool) if how["exclude"] is None else how["exclude"] == 0
    places = np.arange(values.shape[1]) if genes is None else np.asarray(genes, dtype=int)
    groups = np.full(how["n_cells"], -1) if how["groups"] is None else how["groups"]
    return values[keep][:, places], groups[keep], [matrix.ids[each] for each in places], places, how, keep


def _joined(conn, parts, genes):
    found = [_dense(conn, table, cells, genes) for table, cells in parts]
    ids = found[0][2] if len(found) == 1 else sorted(set.intersection(*(set(each[2]) for each in found)))
    columns = []
    for values, _, its, *_ in found:
        columns.append(values[:, [its.index(each) for each in ids]])
    return np.concatenate(columns), np.concatenate([each[1] for each in found]), ids, found[0][3]


def moments(conn, parts, *, genes=None):
    values, groups, ids, places = _joined(conn, parts, genes)
    n_groups = pickle.loads(parts[0][1])["n_groups"]
    out = {name: np.zeros((n_groups + 1, len(ids))) for name in ("mean", "m2", "nonzeros")}
    for group in range(n_groups + 1):
        block = values[groups == (group if group < n_groups else -1)]
        if len(block):
            out["mean"][group], out["m2"][group] = block.mean(axis=0), block.var(axis=0) * len(block)
            out["nonzeros"][group] = (block != 0).sum(axis=0)
    return _keys(parts, ids, places) | {name: each.tobytes() for name, each in out.items()}


def _keys(parts, ids, places):
    return {"ids": ids if len(parts) > 1 else [], "genes": np.asarray(places, dtype=np.int32).tobytes()}


def rank_genes(conn, parts, *, method, groups, reference, corr_method, tie_correct, fold_change, base, genes):
    assert fold_change == "scanpy" or all(pickle.loads(cells)["expm1"] for _, cells in parts)
    values, codes, ids, places = _joined(conn, parts, genes)
    names = ("scores", "pvals", "pvals_adj", "logfoldchanges", "pts", "pts_rest", "means", "means_rest")
    out = {name: np.zeros((len(groups), len(ids))) for name in names}
    back = lambda each: np.expm1(each * (np.log(base) if base else 1.0))  # noqa: E731
    for row, group in enumerate(groups):
        ours, others = values[codes == group], values[codes != group] if reference is None else values[codes == reference]
        with np.errstate(all="ignore"):
            if method == "wilcoxon":
                ranks = stats.rankdata(np.concatenate([ours, others]), axis=0)
                n, m = len(ours), len(others)
                ties = np.array([stats.tiecorrect(ranks[:, g]) for g in range(len(ids))]) if tie_correct else 1
                score = (ranks[:n].sum(axis=0) - n * (n + m + 1) / 2) / np.sqrt(ties * n * m * (n + m + 1) / 12)
                p = 2 * stats.norm.sf(np.abs(score))
            else:
                n_rest = len(ours) if method == "t-test_overestim_var" else len(others)
                moments_of = [(each.mean(axis=0), each.std(axis=0, ddof=1)) for each in (ours, others)]
                score, p = stats.ttest_ind_from_stats(
                    *moments_of[0], len(ours), *moments_of[1], n_rest, equal_var=method == "student"
                )
        out["scores"][row], out["pvals"][row] = np.nan_to_num(score), np.where(np.isnan(p), 1, p)
        out["pvals_adj"][row] = np.frombuffer(adjust(out["pvals"][row], corr_method))
        out["means"][row], out["means_rest"][row] = ours.mean(axis=0), others.mean(axis=0)
        if fold_change == "scanpy":
            out["logfoldchanges"][row] = np.log2((back(out["means"][row]) + 1e-9) / (back(out["means_rest"][row]) + 1e-9))
        else:
            add = (1, 1) if fold_change == "seurat_v4" else (1 / len(ours), 1 / len(others))
            out["logfoldchanges"][row] = np.log2((back(ours).mean(axis=0) + add[0]) / (back(others).mean(axis=0) + add[1]))
        out["pts"][row], out["pts_rest"][row] = (ours != 0).mean(axis=0), (others != 0).mean(axis=0)
    return _keys(parts, ids, places) | {"profile": {}} | {name: each.tobytes() for name, each in out.items()}


def adjust(pvals, method):
    pvals = np.frombuffer(pvals, dtype=np.float64)
    if method == "bonferroni":
        return np.minimum(pvals * len(pvals), 1.0).tobytes()
    return stats.false_discovery_control(pvals, method="bh").tobytes()


def cell_sums(conn, dataset, cells, genes=None):
    values, *_ = _dense(conn, dataset, cells, genes)
    return {"sum": values.sum(axis=1).tobytes(), "nonzeros": (values != 0).sum(axis=1).astype(np.uint32).tobytes()}


def take(conn, dataset, cells, genes=None):
    values, _, _, places, *_ = _dense(conn, dataset, cells, genes)
    block = sparse.csc_matrix(values[:, ::-1].astype(np.float32))
    parts = (places[::-1].astype(np.int32), block.indptr.astype(np.int64), block.indices.astype(np.int32), block.data)
    return dict(zip(("genes", "indptr", "indices", "data"), (each.tobytes() for each in parts), strict=True))


def gram(conn, dataset, cells, genes=None):
    values, _, _, _, how, keep = _dense(conn, dataset, cells, genes)
    values = values - values.mean(axis=0) if how["center"] else values
    if how["basis"] is None:
        return (values @ values.T).tobytes()
    return (values @ (values.T @ how["basis"][keep].astype(np.float64))).tobytes()
