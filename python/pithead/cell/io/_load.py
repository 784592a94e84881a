"""Loading a dataset of cells: its parts first and X last, so that it is seen whole or not at all."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pandas as pd
import pyarrow as pa

from pithead import ConflictError, Error, UserError
from pithead import _arguments

from .. import _frame, _names, _native
from .._dataset import Dataset
from .._parts import OBSM_COLUMNS_MAX
from .._progress import Progress, progress_of
from ._checked import Checked
from ._h5ad import read_anndata, read_h5ad
from ._scea import read_scea
from ._source import MatrixSource, Source, as_numbers
from ._tenx import read_10x_h5, read_10x_mtx

__all__ = ["load", "obsm_table", "open_source"]

_WEAK_CPU = 0.25


@dataclass
class _Options:
    codec: str
    kind: str
    layout: str
    slice_bytes: int | None
    slice_rows: int | None
    spill_dir: str | None
    told: Progress


@dataclass
class _Load:
    """One load as it goes: the parts that it has begun so far, the generations that it replaces, and what it has to say."""

    conn: Any
    domain: str
    dataset: str
    generation: str
    options: _Options
    made: list[str] = field(default_factory=list)
    replaced: set[str] = field(default_factory=set)
    report: dict[str, Any] = field(default_factory=dict)

    def part(self, what: str) -> str:
        return f"{self.domain}.{self.dataset}.{what}{self.generation}"

    def main_of(self, infos: list[Any]) -> Any | None:
        """What the catalogue has of X, if X is that of this load."""
        info = next((info for info in infos if info.name == self.dataset), None)
        note = None if info is None else _names.note_of(info)
        return info if note is not None and note.get("generation") == self.generation else None


def load(
    conn: Any,
    source: Any,
    name: str,
    *,
    mode: Literal["create", "replace"] = "create",
    kind: Literal["auto", "counts", "floats"] = "auto",
    codec: Literal["auto", "zstd", "none"] = "auto",
    layout: Literal["sparse", "dense"] = "sparse",
    layers: bool | Iterable[str] = True,
    raw: bool = True,
    make_unique: bool = False,
    metadata: dict[str, str] | None = None,
    slice_bytes: int | None = None,
    slice_rows: int | None = None,
    spill_dir: str | None = None,
    progress: bool | Progress | None = None,
) -> Dataset:
    """Loads a dataset of cells × genes. Matrices are read and written in pieces, however large they are.

    Parameters
    ----------
    source
        A path (an .h5ad, a folder of 10x Genomics or of the Single Cell Expression Atlas, a zip of the latter, an .h5 of
        10x Genomics), an AnnData, or what a reader of `pithead.cell` gave.
    name
        `domain.dataset`, or `dataset` in the domain `main`.
    mode
        "replace" puts it in the place of a dataset that is there. Readers see the old one or the new one.
    kind
        "counts" takes whole numbers from 0 on and nothing else; "floats" stores 32-bit floats; "auto" decides by the values.
    codec
        "auto" compresses with zstd, unless a drive's CPU is slower than a quarter of its host's kind.
    layout
        "dense" stores each gene as an array with a value for each cell: larger, and the layout of
        Montana et al. 2023, section 5.1.
    layers, raw
        Which layers to load, and whether to load raw.
    make_unique
        Add -1, -2, … to ids that come again, instead of refusing them.
    metadata
        Kept with the dataset and handed on to its results.
    slice_bytes, slice_rows
        Bytes and genes of a slice at most.
    spill_dir
        Where pieces lie until all are there. Default: the system's folder for temporary files.
    progress
        A function of what, done and total; True or False; None shows it if stderr is a terminal.

    Returns the dataset; its `loaded` says what was stored. A load that fails leaves nothing behind.

    Examples
    --------
    >>> new = pithead.cell.load(conn, adata, "lab.new", metadata={"tissue": "blood"})
    >>> new.shape, new.metadata, new.loaded["kind"]
    ((60, 25), {'tissue': 'blood'}, 'counts')
    """
    started = time.monotonic()
    domain, dataset = _names.split(name)
    metadata = _arguments.metadata(metadata)
    _one_of("mode", mode, ("create", "replace"))
    _one_of("kind", kind, ("auto", "counts", "floats"))
    _one_of("codec", codec, ("auto", "zstd", "none"))
    _one_of("layout", layout, ("sparse", "dense"))
    # It refuses what cannot be a name.
    conn._found(f"{domain}.{dataset}")
    _replaced(conn, domain, dataset, mode)
    options = _Options(
        codec_for(conn) if codec == "auto" else codec,
        kind,
        layout,
        None if slice_bytes is None else _arguments.number("slice_bytes", slice_bytes, least=1),
        None if slice_rows is None else _arguments.number("slice_rows", slice_rows, least=1),
        spill_dir,
        progress_of(progress),
    )
    ours = _Load(conn, domain, dataset, _names.generation(), options)
    opened = source if isinstance(source, Source) else open_source(source, spill_dir=spill_dir)
    try:
        wanted = _wanted(layers, opened)
        _check_names(ours, opened, wanted)
        _load(ours, opened, mode, wanted, raw, make_unique, metadata)
    except BaseException:
        # What goes wrong here must not hide why the load has failed.
        with contextlib.suppress(Error):
            _give_up(ours)
        raise
    finally:
        if opened is not source:
            opened.close()
    _drop_replaced(ours)
    info = ours.main_of(conn.datasets(domain))
    if info is None:
        raise ConflictError(
            f"{domain}.{dataset} was loaded, and another client has replaced or dropped it since",
            hint=f"pithead.cell.open(conn, '{domain}.{dataset}') opens what is there now",
        )
    result = Dataset(conn, domain, dataset, info)
    result.loaded = {**ours.report, "seconds": time.monotonic() - started, "dropped": list(opened.dropped)}
    return result


def open_source(source: Any, *, spill_dir: str | None = None) -> Source:
    """The reader for a path or an object, chosen by what it is."""
    if isinstance(source, str | os.PathLike):
        return _open_path(os.fspath(source), spill_dir)
    if type(source).__name__ == "AnnData" and hasattr(source, "isbacked"):
        return read_anndata(source)
    raise UserError(
        f"a {type(source).__name__} is no dataset of cells",
        hint="give a path, an AnnData, or what pithead.cell.read_… gives",
    )


def _open_path(path: str, spill_dir: str | None) -> Source:
    if not os.path.exists(path):
        raise UserError(
            f"there is no file or folder {path}", hint="check the path; relative ones start at the working directory"
        )
    if os.path.isdir(path):
        if any(name.endswith((".mtx_rows", ".mtx_rows.gz")) for name in os.listdir(path)):
            return read_scea(path, spill_dir=spill_dir)
        return read_10x_mtx(path, spill_dir=spill_dir)
    readers = {".h5ad": read_h5ad, ".h5": read_10x_h5, ".hdf5": read_10x_h5}
    ending = os.path.splitext(path)[1].lower()
    if ending == ".zip":
        return read_scea(path, spill_dir=spill_dir)
    if ending not in readers:
        raise UserError(
            f"{path}: what is it? Known are .h5ad, .h5, .zip, and folders with an .mtx",
            hint="pithead.cell.read_… reads it whatever its name",
        )
    return readers[ending](path)


def codec_for(conn: Any) -> str:
    """ "none" where a drive is so slow that it would lose more by unpacking than by reading, else "zstd"."""
    shares = [json.loads(status)["cpu_share"] for _, status, answered in conn._native.status() if answered]
    return "none" if any(share < _WEAK_CPU for share in shares) else "zstd"


def _one_of(argument: str, value: str, values: tuple[str, ...]) -> None:
    if value not in values:
        raise UserError(f"{argument}={value!r}", hint=f"it is one of: {', '.join(values)}")


def _wanted(layers: bool | Iterable[str], source: Source) -> list[str]:
    if isinstance(layers, bool):
        return list(source.layers) if layers else []
    wanted = list(layers)
    for name in wanted:
        if name not in source.layers:
            raise UserError(
                f"{source.label} has no layer {name!r}; it has: {', '.join(source.layers) or 'none'}",
                hint="layers=True takes all there are",
            )
    return wanted


def _check_names(ours: _Load, source: Source, layers: list[str]) -> None:
    """Refuses parts that cannot be tables by their names, before a matrix is read."""
    for part in ("raw.var", *(f"layers.{layer}" for layer in layers), *(f"obsm.{key}" for key in source.obsm)):
        try:
            ours.conn._found(ours.part(part))
        except UserError as fault:
            raise UserError(
                f"{source.label}: {part} cannot be kept: {fault.message}", hint="give it, or the dataset, another name"
            ) from fault


def _replaced(conn: Any, domain: str, dataset: str, mode: str) -> set[str]:
    """The generation of the dataset that is to be replaced, if there is one; raises where it must not be."""
    info = _names.info_of(conn, f"{domain}.{dataset}")
    if info is None:
        return set()
    note = _names.note_of(info)
    if note is None or note.get("part") != "X":
        raise UserError(
            f"{domain}.{dataset} is a table, not a dataset of cells", hint="take another name, or drop the table first"
        )
    if mode == "create":
        raise UserError(
            f"there is a dataset {domain}.{dataset} already", hint="mode='replace' (--replace) puts the new one in its place"
        )
    return {note["generation"]}


def _drop_replaced(ours: _Load) -> None:
    """Drops the parts of the datasets in whose place this one is. Those of other loads stay: they may be on their way."""
    for each in list(ours.conn.datasets(ours.domain)) if ours.replaced else []:
        is_ours = (_names.note_of(each) or {}).get("of") == ours.dataset and _names.is_part(each.name, ours.dataset)
        if is_ours and _names.generation_of(each.name) in ours.replaced:
            ours.conn.drop(f"{ours.domain}.{each.name}", missing_ok=True)


def _give_up(ours: _Load) -> None:
    """Drops the parts of a load that did not end well, unless its X is there all the same. Then those that it replaced go.

    X is there where the load was interrupted after its commit, or where the commit's answer was lost.
    """
    if not ours.made:
        return
    # A commit that is still on its way fails once the domain has changed, so a change of our own comes first. A catalogue
    # that has this change says whether X was made, too. If none has it, all parts stay.
    name = f"{ours.domain}.{ours.dataset}.obs{_names.generation()}"
    note = {_names.KEY: json.dumps({"part": "obs", "of": ours.dataset})}
    ours.conn.load(name, pa.table({"cell": pa.array([], pa.int32())}), metadata=note, progress=False)
    infos = list(ours.conn.datasets(ours.domain))
    ours.conn.drop(name, missing_ok=True)
    if not any(f"{info.domain}.{info.name}" == name for info in infos):
        return
    if ours.main_of(infos) is not None:
        _drop_replaced(ours)
        return
    for part in reversed(ours.made):
        ours.conn.drop(part, missing_ok=True)


def _load(
    ours: _Load, source: Source, mode: str, layers: list[str], raw: bool, make_unique: bool, metadata: dict[str, str]
) -> None:
    obs, var = (
        _checked(source.obs, "cell", source.label, make_unique),
        _checked(source.var, "gene", source.label, make_unique),
    )
    cells = pd.Index(obs.index.astype(str))
    parts: dict[str, Any] = {"layers": {}}
    hidden: dict[str, np.ndarray] = {}
    # X is taken in first, for what can be wrong with it; it is written last, since it makes the dataset seen.
    writer = _taken(ours, source.x, cells, var.index, len(obs), len(var), hidden, "X")
    parts["obs"], parts["var"] = ours.part("obs"), ours.part("var")
    _table(ours, parts["var"], var, "gene", {}, source.label, {})
    if raw and source.raw is not None:
        raw_var = _checked(source.raw[1], "gene", f"{source.label}: raw", make_unique)
        parts["raw"], parts["raw.var"] = (
            _matrix(ours, "raw", source.raw[0], cells, raw_var.index, hidden),
            ours.part("raw.var"),
        )
        _table(ours, parts["raw.var"], raw_var, "gene", {}, source.label, {})
    for layer in layers:
        parts["layers"][layer] = _matrix(ours, f"layers.{layer}", source.layers[layer], cells, var.index, hidden)
    side: dict[str, Any] = {"uns": {}, "transforms": {}, "obsm": {}}
    for key, values in source.obsm.items():
        side["obsm"][key] = ours.part(f"obsm.{key}")
        mine = json.dumps({"part": "obsm", "of": ours.dataset})
        _put(ours, side["obsm"][key], obsm_table(key, values, len(obs), source.label), {_names.KEY: mine})
    _table(ours, parts["obs"], obs, "cell", hidden, source.label, side)
    uns = _names.to_json(source.uns, "uns", source.dropped)
    note = {
        "part": "X",
        "version": _names.VERSION,
        "n_obs": len(obs),
        "n_vars": len(var),
        "kind": writer.kind,
        "parts": parts,
        "uns": uns,
    }
    note |= {
        "source": source.label,
        "loaded": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "generation": ours.generation,
        "layout": ours.options.layout,
    }
    metadata = {**metadata, _names.KEY: json.dumps(note)}
    # Another load may have ended since this one began.
    ours.replaced |= _replaced(ours.conn, ours.domain, ours.dataset, mode)
    stored = _written(ours, writer, f"{ours.domain}.{ours.dataset}", "X", var.index, metadata, mode)
    ours.report |= {
        "n_obs": len(obs),
        "n_vars": len(var),
        "kind": writer.kind,
        "codec": ours.options.codec,
        "nonzeros": stored["nnz"],
    }
    ours.report |= {"slices": stored["slices"], "stored_bytes": ours.report.get("stored_bytes", 0) + stored["stored_bytes"]}


def _checked(frame: pd.DataFrame, what: str, where: str, make_unique: bool) -> pd.DataFrame:
    if make_unique and not frame.index.is_unique:
        from anndata.utils import make_index_unique

        frame = frame.set_axis(make_index_unique(frame.index.astype(str)), axis=0)
    _frame.check_ids(frame.index.astype(str), what, where)
    return frame


def _taken(
    ours: _Load,
    matrix: MatrixSource,
    cells: pd.Index,
    genes: pd.Index,
    n_cells: int,
    n_genes: int,
    hidden: dict[str, np.ndarray],
    key: str,
) -> Any:
    """A writer that has taken the whole matrix in."""
    if (matrix.n_cells, matrix.n_genes) != (n_cells, n_genes):
        raise UserError(
            f"{matrix.label} is {matrix.n_cells} cells × {matrix.n_genes} genes; its tables have {n_cells} and {n_genes}",
            hint="the parts of the source do not belong together",
        )
    options = ours.options
    writer = _native.module().MatrixWriter(
        n_genes, source=matrix.label, codec=options.codec, kind=options.kind, spill_dir=options.spill_dir
    )
    target = Checked(writer, matrix.label, cells, pd.Index(genes.astype(str))) if options.kind == "counts" else writer
    matrix.write(target, lambda done, total: options.told(f"reading {key}", done, total))
    hidden[f"{_frame.HIDDEN}total:{key}"] = _native.array(writer.totals(), np.float64)
    hidden[f"{_frame.HIDDEN}nonzeros:{key}"] = _native.array(writer.nonzeros(), np.uint32).astype(np.int64)
    if writer.n_cells != n_cells:
        raise UserError(
            f"{matrix.label} has {writer.n_cells} cells; the table of cells has {n_cells}",
            hint="the source was cut off; copy it again",
        )
    return writer


def _matrix(
    ours: _Load, key: str, matrix: MatrixSource, cells: pd.Index, genes: pd.Index, hidden: dict[str, np.ndarray]
) -> dict[str, Any]:
    writer = _taken(ours, matrix, cells, genes, len(cells), len(genes), hidden, key)
    name = ours.part(key)
    stored = _written(ours, writer, name, key, genes, {_names.KEY: json.dumps({"part": key, "of": ours.dataset})}, "create")
    ours.report["stored_bytes"] = ours.report.get("stored_bytes", 0) + stored["stored_bytes"]
    return {"table": name, "kind": writer.kind, "n_vars": len(genes)}


def _written(
    ours: _Load, writer: Any, name: str, key: str, genes: pd.Index, metadata: dict[str, str], mode: str
) -> dict[str, Any]:
    options = ours.options
    if key != "X":
        ours.made.append(name)
    stored: dict[str, Any] = writer.load(
        ours.conn._native,
        name,
        [str(each) for each in genes],
        metadata=metadata,
        mode=mode,
        slice_bytes=options.slice_bytes,
        slice_rows=options.slice_rows,
        layout=options.layout,
        progress=lambda done, total: options.told(f"writing {key}", done, total),
    )
    return stored


def _table(
    ours: _Load,
    name: str,
    frame: pd.DataFrame,
    position: str,
    hidden: dict[str, np.ndarray],
    where: str,
    side: dict[str, Any],
) -> None:
    table, note = _frame.to_table(frame, position, hidden, where)
    part = name.removeprefix(f"{ours.domain}.{ours.dataset}.").removesuffix(ours.generation)
    _put(ours, name, table, {_names.KEY: json.dumps({"part": part, "of": ours.dataset, "frame": note, **side})})


def _put(ours: _Load, name: str, table: pa.Table, metadata: dict[str, str]) -> None:
    ours.made.append(name)
    ours.conn.load(name, table, mode="create", metadata=metadata, progress=False)


def obsm_table(key: str, values: Any, n_cells: int, where: str) -> pa.Table:
    """The table of an array with a row a cell: `cell`, then a column for each of the array's: `x0`, `x1`, …"""
    values = np.asarray(values)
    if values.ndim != 2 or len(values) != n_cells or values.dtype.kind not in "iuf" or values.shape[1] > OBSM_COLUMNS_MAX:
        raise UserError(
            f"{where}: obsm[{key!r}] is {values.dtype} of shape {values.shape}, for {n_cells} cells",
            hint=f"give an array of numbers with a row a cell and at most {OBSM_COLUMNS_MAX} columns",
        )
    values = as_numbers(values, where)
    columns = {f"x{place}": pa.array(np.ascontiguousarray(values[:, place])) for place in range(values.shape[1])}
    return pa.table({"cell": pa.array(np.arange(n_cells, dtype=np.int32)), **columns})
