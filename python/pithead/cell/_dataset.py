"""A dataset of cells × genes that lies on drives, and selections of it, in the shape of an AnnData."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from pithead import ConflictError, Error, UserError

from . import _frame, _names, _native
from ._parts import Matrix, Obsm, Raw, Transform
from ._view import cell_positions, gene_positions

if TYPE_CHECKING:
    from anndata import AnnData

__all__ = ["Dataset", "Matrix", "Selection", "Transform", "View"]

_TRIES = 8
"""Times that a table of the dataset is read or changed anew because another client was first."""

_WAIT_SECONDS = 0.05
"""Longest wait before a second try; before the next ones it grows by as much each time."""


class Selection:
    """Cells and genes of a dataset. `Dataset` selects all of them, `View` some; every function takes either."""

    _root: Dataset
    _cells: np.ndarray | None
    _genes: np.ndarray | None
    uns: dict[str, Any]
    """What is known beside the matrices, and results of `tl`, by their key."""

    @property
    def name(self) -> str:
        """`domain.dataset`."""
        return f"{self._root.domain}.{self._root.dataset}"

    @property
    def conn(self) -> Any:
        """The connection that the dataset was opened over."""
        return self._root._conn

    @property
    def n_obs(self) -> int:
        """How many cells are selected."""
        return self._root._note["n_obs"] if self._cells is None else len(self._cells)

    @property
    def n_vars(self) -> int:
        """How many genes are selected."""
        return self._root._note["n_vars"] if self._genes is None else len(self._genes)

    @property
    def shape(self) -> tuple[int, int]:
        """Cells and genes."""
        return self.n_obs, self.n_vars

    @property
    def obs(self) -> pd.DataFrame:
        """The table of cells, read when first asked for. Change it by `set_obs`: this is a copy."""
        frame = self._root._obs_frame()
        if self._cells is None:
            return frame.copy()
        return _frame.without_unused(frame.iloc[self._cells], frame)

    def obs_columns(self, names: Collection[str]) -> pd.DataFrame:
        """Some columns of `obs`, without ids, or all of it. What was not read yet is read without the others."""
        frame = self._root._obs_columns(names)
        return frame if self._cells is None else _frame.without_unused(frame.iloc[self._cells], frame)

    @property
    def var(self) -> pd.DataFrame:
        """The table of genes. Change it by `set_var`: this is a copy."""
        frame = self._root._var_frame("var")
        if self._genes is None:
            return frame.copy()
        return _frame.without_unused(frame.iloc[self._genes], frame)

    @property
    def obs_names(self) -> pd.Index:
        """The ids of the cells."""
        return self.obs.index

    @property
    def var_names(self) -> pd.Index:
        """The ids of the genes."""
        return self.var.index

    @property
    def layers(self) -> tuple[str, ...]:
        """The names of the layers."""
        return tuple(self._root._note["parts"]["layers"])

    @property
    def raw(self) -> Raw | None:
        """What is known of the raw matrix, or None."""
        return Raw(self) if "raw" in self._root._note["parts"] else None

    @property
    def obsm(self) -> Mapping[str, np.ndarray]:
        """Arrays with a row a cell, such as X_umap, read when asked for."""
        return Obsm(self)

    @property
    def metadata(self) -> dict[str, str]:
        """What was said of the dataset when it was loaded: its own keys, not those of Pithead."""
        return dict(self._root._metadata)

    @property
    def source(self) -> str:
        """What the dataset was loaded from."""
        return str(self._root._note["source"])

    def select(self, condition: str, params: Any = None) -> View:
        """The cells that an SQL condition over the table of cells is true for.

        `params` are those of `Connection.sql`.

        Examples
        --------
        >>> ds.select("age > 30").n_obs == (adata.obs["age"] > 30).sum().item()
        True
        """
        table = _native.quoted(self._root._note["parts"]["obs"])
        found = self.conn.sql(f"SELECT cell FROM {table} WHERE ({condition})", params).arrow()
        cells = np.sort(found.column("cell").to_numpy().astype(np.int64))
        if self._cells is not None:
            cells = np.intersect1d(cells, self._cells, assume_unique=True)
        return View(self, cells, self._genes)

    def __getitem__(self, index: Any) -> View:
        """Cells, or cells and genes: masks, ids, positions and slices as AnnData takes them, or for cells an SQL condition.

        A view keeps the dataset's order. It reads nothing.

        Examples
        --------
        >>> ds["kind = 'B' AND age > 30", ["gene1", "gene2"]].n_vars
        2
        >>> ds[ds.obs["good"]][:5].obs_names.equals(ds.obs_names[ds.obs["good"]][:5])
        True
        """
        cells, genes = index if isinstance(index, tuple) else (index, slice(None))
        chosen = self.select(cells)._cells if isinstance(cells, str) else cell_positions(cells, self)
        return View(self, chosen, gene_positions(genes, self))

    def set_obs(self, column: str | pd.DataFrame, values: Any = None) -> None:
        """Adds or replaces a column of the table of cells, or with a DataFrame all of its columns. No matrix is touched.

        A Series is matched by ids. Cells that are not in a view have no value afterwards.

        Examples
        --------
        >>> ds.set_obs("old", ds.obs["age"] > 40)
        >>> pithead.cell.open(conn, "lab.pbmc").obs["old"].equals(adata.obs["age"] > 40)
        True
        """

        def change(frame: pd.DataFrame, _: dict[str, Any]) -> None:
            selected = pd.DataFrame(index=frame.index if self._cells is None else frame.index[self._cells])
            added = column
            if not isinstance(added, pd.DataFrame):
                added = pd.DataFrame({column: _aligned(str(column), values, selected)})
            for name in added.columns:
                checked = _frame.with_values(selected, str(name), added[name], "cells")[str(name)]
                frame[str(name)] = checked if self._cells is None else checked.reindex(frame.index)

        self._root._change_obs(change)

    def matrix(self, *, layer: str | None = None, use_raw: bool = False) -> Matrix:
        """One of the matrices: a layer, raw, or X."""
        parts = self._root._note["parts"]
        if layer is not None:
            if layer not in parts["layers"]:
                there = ", ".join(parts["layers"]) or "none"
                raise UserError(f"{self.name} has no layer {layer!r}; the layers are: {there}", hint="layer=None takes X")
            part = parts["layers"][layer]
            return Matrix(f"layers.{layer}", part["table"], part["kind"], self._genes, self.var)
        if use_raw:
            if "raw" not in parts:
                raise UserError(f"{self.name} has no raw matrix, and use_raw is True", hint="use_raw=False takes X")
            return Matrix("raw", parts["raw"]["table"], parts["raw"]["kind"], None, self._root._var_frame("raw.var"))
        return Matrix("X", self.name, self._root._note["kind"], self._genes, self.var)

    def transform(self, matrix: Matrix) -> Transform:
        """What is done to the values of `matrix` on the fly."""
        raise NotImplementedError

    def cells(
        self,
        matrix: Matrix,
        *,
        groups: np.ndarray | None = None,
        n_groups: int = 0,
        reference: int | None = None,
        basis: np.ndarray | None = None,
        log1p: bool | None = None,
        expm1: bool = False,
        center: bool = False,
    ) -> bytes:
        """What the drives must know of the cells for a query over `matrix`.

        `groups` (n_obs) are numbers of groups, -1 for none; `basis` (n_obs × k) is 32-bit; `log1p=False` leaves the logarithm
        out; `expm1` has sums of `expm1(value)` made too; `center` subtracts genes' means, for Gram matrices.
        """
        total = self._root._note["n_obs"]
        transform = self.transform(matrix)
        exclude = None
        if self._cells is not None:
            exclude = np.ones(total, dtype=np.uint8)
            exclude[self._cells] = 0
        totals = None
        if transform.target_sum is not None:
            totals = transform.totals if transform.totals is not None else self._root._totals(matrix)[0]
            totals = np.ascontiguousarray(totals, dtype=np.float64)
        encoded: bytes = _native.module().encode_cells(
            total,
            groups=None if groups is None else self._spread(groups, np.int32, -1),
            n_groups=n_groups,
            exclude=exclude,
            totals=totals,
            target_sum=transform.target_sum,
            log1p=transform.log1p if log1p is None else log1p,
            base=transform.base,
            reference=reference,
            expm1=expm1,
            center=center,
            basis=None if basis is None else self._spread(basis, np.float32, 0),
        )
        return encoded

    def _spread(self, values: np.ndarray, dtype: Any, missing: Any) -> np.ndarray:
        """`values` of the selected cells as values of all cells."""
        if self._cells is None:
            return np.ascontiguousarray(values, dtype=dtype)
        spread = np.full((self._root._note["n_obs"], *values.shape[1:]), missing, dtype=dtype)
        spread[self._cells] = values
        return spread

    def to_anndata(self, *, layers: bool = True, raw: bool = True) -> AnnData:
        """The selection as an AnnData in memory: matrices are CSR with 32-bit floats, with what `pp` says done to them."""
        from ._out import to_anndata

        return to_anndata(self, layers=layers, raw=raw)

    def explain(self, *, layer: str | None = None, use_raw: bool = False, analyze: bool = False) -> str:
        """Where the parts of a query over a matrix of the selection would run; with `analyze` it runs."""
        matrix = self.matrix(layer=layer, use_raw=use_raw)
        query = _native.partials_sql(matrix.table, self._root._dense())
        return str(self.conn.sql(query, [self.cells(matrix)]).explain(analyze=analyze))

    def __len__(self) -> int:
        return self.n_obs

    def __repr__(self) -> str:
        lines = [f"{self._title()} with n_obs × n_vars = {self.n_obs} × {self.n_vars}"]
        note = self._root
        shown = {
            "obs": [entry["name"] for entry in note._obs_note()["frame"]["columns"]],
            "var": [entry["name"] for entry in note._var_note("var")["columns"]],
            "uns": list(self.uns),
            "obsm": list(self.obsm),
            "layers": list(self.layers),
        }
        lines += [f"    {part}: " + ", ".join(repr(name) for name in names) for part, names in shown.items() if names]
        if self.raw is not None:
            lines.append(f"    raw: {self.raw.n_vars} genes")
        return "\n".join(lines)

    def _title(self) -> str:
        raise NotImplementedError


class Dataset(Selection):
    """A dataset of cells × genes; `open` and `load` make it. Tables are read when asked for, matrices never as a whole.

    `loaded` holds what the load that made it has to say, and is empty otherwise.
    """

    def __init__(self, conn: Any, domain: str, dataset: str, info: Any) -> None:
        self._root = self
        self._cells = None
        self._genes = None
        self._conn = conn
        self.domain = domain
        self.dataset = dataset
        note = _names.note_of(info)
        if note is None or note.get("part") != "X":
            raise UserError(
                f"{domain}.{dataset} is a table, not a dataset of cells",
                hint="pithead.cell.ls(conn) lists those that are; pithead.cell.load makes one",
            )
        if note["version"] > _names.VERSION:
            raise UserError(
                f"{domain}.{dataset} is of version {note['version']} of the format; this release knows {_names.VERSION}",
                hint="use a newer release of Pithead",
            )
        self._note = note
        self._metadata = {key: value for key, value in info.metadata.items() if key != _names.KEY}
        self._frames: dict[str, pd.DataFrame] = {}
        self._columns: dict[str, pd.Series] = {}
        self._hidden: dict[str, np.ndarray] = {}
        self._side: dict[str, Any] | None = None
        self._sums: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        self.loaded: dict[str, Any] = {}
        self.uns = {**_names.from_json(note["uns"]), **_names.from_json(self._obs_note()["uns"])}

    def set_var(self, column: str | pd.DataFrame, values: Any = None) -> None:
        """Adds or replaces a column of the table of genes, or several with a DataFrame. No slice of a matrix is touched."""
        part = self._note["parts"]["var"]

        def changed() -> tuple[Any, dict[str, Any], pd.DataFrame]:
            note, frame, _ = self._read(part, "gene")
            added = column if isinstance(column, pd.DataFrame) else pd.DataFrame({column: _aligned(column, values, frame)})
            for name in added.columns:
                frame = _frame.with_values(frame, str(name), added[name], "genes")
            table, note["frame"] = _frame.to_table(frame, "gene", {}, part)
            return table, note, frame

        _, self._frames["var"] = self._changed(part, changed)

    def set_obsm(self, key: str, values: np.ndarray) -> None:
        """Keeps an array with a row a cell (at most 4,096 columns) with the dataset, as scanpy's `obsm[key]`."""
        from .io._load import obsm_table

        table = obsm_table(key, values, self.n_obs, self.name)
        side = self._part_note(self._note["parts"]["obs"])
        name = side["obsm"].get(key, f"{self.name}.obsm.{key}{self._note['generation']}")
        mine = json.dumps({"part": "obsm", "of": self.dataset})
        self._conn.load(name, table, mode="replace", metadata={_names.KEY: mine}, progress=False)

        def change(_: pd.DataFrame, side: dict[str, Any]) -> None:
            side["obsm"][key] = name

        self._change_obs(change)

    def transform(self, matrix: Matrix) -> Transform:
        known = self._obs_note()["transforms"].get(matrix.key)
        return Transform() if known is None else Transform(**known)

    def set_transform(self, matrix: Matrix, change: Callable[[Transform], Transform]) -> Transform:
        """Changes what is done to the values of `matrix` on the fly, and keeps it with the dataset; no slice is touched.

        `change` is given what is kept now, perhaps by another client since the dataset was opened, and gives what is to be kept.
        It is called again where another client was first. Returns what is kept.
        """
        part = self._note["parts"]["obs"]

        def changed() -> tuple[Any, dict[str, Any], Transform]:
            side = self._part_note(part)
            transform = change(Transform(**side["transforms"].get(matrix.key, {})))
            kept = asdict(replace(transform, totals=None))
            del kept["totals"]
            side["transforms"][matrix.key] = kept
            if matrix.key == "X":
                side["uns"].pop("log1p", None)
                if transform.log1p:
                    side["uns"]["log1p"] = {"base": transform.base}
            # The note lies with the table. Its rows pass through as a stream, however many they are.
            return self._conn.sql(f"SELECT * FROM {_native.quoted(part)}"), side, transform

        transform: Transform
        self._side, transform = side, _ = self._changed(part, changed)
        if matrix.key == "X":
            self.uns.pop("log1p", None)
            if "log1p" in self._note["uns"] or transform.log1p:
                self.uns["log1p"] = side["uns"].get("log1p", self._note["uns"].get("log1p"))
        return transform

    def _check_standing(self, info: Any | None) -> None:
        """Raises unless X, of which the catalogue has `info`, is still the one that was opened.

        Another X belongs to other tables of cells and genes than those of this handle.
        """
        note = None if info is None else _names.note_of(info)
        if note is None or any(note.get(key) != self._note[key] for key in ("generation", "loaded")):
            raise UserError(
                f"{self.name} was {'dropped' if note is None else 'replaced'} since it was opened",
                hint=f"open it again: pithead.cell.open(conn, {self.name!r})",
            )

    def _changed(self, part: str, changed: Callable[[], tuple[Any, dict[str, Any], Any]]) -> tuple[dict[str, Any], Any]:
        """Puts other rows with another note in the place of a part's, and returns the note and what else `changed` gave.

        `changed` reads the part and gives rows, note and what it likes. Where another client was first, it is called again,
        and so nothing is lost of what either has written.
        """
        for again in range(_TRIES):
            over = self._conn._found(part)
            if over is None:
                raise self._gone(part)
            before = json.dumps(self._part_note(part))
            try:
                rows, note, kept = changed()
                self._conn._replace(part, rows, {_names.KEY: json.dumps(note)}, over)
            except Error as fault:
                # Rows that are read while the table gets other columns are an error of their own.
                is_late = isinstance(fault, ConflictError) or json.dumps(self._part_note(part)) != before
                if not is_late or again == _TRIES - 1:
                    raise
                time.sleep(random.uniform(0, _WAIT_SECONDS * (again + 1)))
            else:
                break
        return note, kept

    def _change_obs(self, change: Callable[[pd.DataFrame, dict[str, Any]], None]) -> None:
        """Has `change` change the table of cells and its note, and writes them."""
        part = self._note["parts"]["obs"]

        def changed() -> tuple[Any, dict[str, Any], tuple[pd.DataFrame, dict[str, np.ndarray]]]:
            side, frame, hidden = self._read(part, "cell")
            change(frame, side)
            table, side["frame"] = _frame.to_table(frame, "cell", hidden, part)
            return table, side, (frame, hidden)

        self._side, (self._frames["obs"], self._hidden) = self._changed(part, changed)

    def _obs_note(self) -> dict[str, Any]:
        if self._side is None:
            self._side = self._part_note(self._note["parts"]["obs"])
        return self._side

    def _var_note(self, which: str) -> dict[str, Any]:
        frame: dict[str, Any] = self._part_note(self._note["parts"][which])["frame"]
        return frame

    def _part_note(self, part: str) -> dict[str, Any]:
        info = _names.info_of(self._conn, part)
        note = None if info is None else _names.note_of(info)
        if note is None:
            raise self._gone(part)
        return note

    def _gone(self, part: str) -> UserError:
        return UserError(
            f"the table {part}, which belongs to {self.name}, is gone",
            hint="open the dataset again; it may have been replaced or dropped",
        )

    def _read(
        self, part: str, position: str, names: Collection[str] | None = None
    ) -> tuple[dict[str, Any], pd.DataFrame, dict[str, np.ndarray]]:
        """A part's note, its rows as that note describes them, and its hidden columns; of `names` these, if it has them all.

        Another client may put others in their place at any time, so the note is looked at before and after.
        """
        note = self._part_note(part)
        for _ in range(_TRIES):
            rows = self._rows(part, None if names is None else _frame.stored_names(names, note["frame"]))
            before, note = note, self._part_note(part)
            if json.dumps(before["frame"]) == json.dumps(note["frame"]):
                return note, *_frame.from_table(rows, position, before["frame"])
        raise ConflictError(f"others keep changing {part}", hint="wait until they are done, and try again")

    def _obs_frame(self) -> pd.DataFrame:
        if "obs" not in self._frames:
            self._side, self._frames["obs"], self._hidden = self._read(self._note["parts"]["obs"], "cell")
        return self._frames["obs"]

    def _var_frame(self, which: str) -> pd.DataFrame:
        if which not in self._frames:
            _, self._frames[which], _ = self._read(self._note["parts"][which], "gene")
        return self._frames[which]

    def _rows(self, part: str, only: Collection[str] | None = None) -> Any:
        """A table's rows; of `only` these columns, with the cells' positions."""
        listed = "*" if only is None else ", ".join('"' + name.replace('"', '""') + '"' for name in ("cell", *only))
        return self._conn.sql(f"SELECT {listed} FROM {_native.quoted(part)}").arrow()

    def _totals(self, matrix: Matrix) -> tuple[np.ndarray, np.ndarray]:
        """Sum of each cell's stored values over all genes, and how many are not zero; both were kept by the load."""
        names = [f"{_frame.HIDDEN}{what}:{matrix.key}" for what in ("total", "nonzeros")]
        if not set(names) <= set(self._hidden):
            rows = self._rows(self._note["parts"]["obs"], names)
            self._hidden |= _frame.from_table(rows, "cell", self._obs_note()["frame"])[1]
        return self._hidden[names[0]], self._hidden[names[1]]

    def _obs_columns(self, names: Collection[str]) -> pd.DataFrame:
        if "obs" in self._frames:
            return self._obs_frame()
        if not set(names) <= set(self._columns):
            # Rows are as they are now, so they are described by the note as it is now.
            _, frame, _ = self._read(self._note["parts"]["obs"], "cell", names)
            if not set(names) <= set(frame.columns):
                return self._obs_frame()
            self._columns |= {name: frame[name] for name in names}
        return pd.DataFrame({name: self._columns[name] for name in names})

    def _dense(self) -> int | None:
        """The number of cells where each has a column of its own, else None."""
        return self._note["n_obs"] if self._note["layout"] == "dense" else None

    def _title(self) -> str:
        return f"Dataset {self.name}"


class View(Selection):
    """Some cells and genes of a dataset, in its order. It reads nothing; functions ask the drives for what it selects."""

    def __init__(self, parent: Selection, cells: np.ndarray | None, genes: np.ndarray | None) -> None:
        self._root = parent._root
        self._cells = cells
        self._genes = genes
        self._transforms: dict[str, Transform] = dict(parent._transforms) if isinstance(parent, View) else {}
        self.uns = dict(parent.uns)

    def transform(self, matrix: Matrix) -> Transform:
        return self._transforms.get(matrix.key) or self._root.transform(matrix)

    def set_transform(self, matrix: Matrix, change: Callable[[Transform], Transform]) -> Transform:
        """Changes what is done to values on the fly for this view and views of it; the dataset keeps its own.

        `change` is given what is done to them now. Returns what is done from now on.
        """
        transform = change(self.transform(matrix))
        self._transforms[matrix.key] = transform
        if matrix.key == "X":
            if transform.log1p:
                self.uns["log1p"] = {"base": transform.base}
            elif "log1p" not in self._root._note["uns"]:
                self.uns.pop("log1p", None)
        return transform

    def _title(self) -> str:
        return f"View of dataset {self.name}"


def _aligned(name: str, values: Any, frame: pd.DataFrame) -> pd.Series:
    return _frame.with_values(frame[[]], name, values, "rows")[name]
