"""What is measured, in which order, and what becomes of it."""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sys
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from . import report
from .measure import Drives, Failed, end_with_parent, missing, run_task, size_of

PARTS = ("small", "medium", "large", "slices", "fetch")
ENGINES = ("pithead", "scanpy", "tiledbsoma", "duckdb")
_DRIVES = 2
_REPEATS = 7
_SCANPY_SECONDS = 600
# A client has this part of the largest file's size as memory.
_MEMORY_SHARE = 4


def main() -> None:
    """Measures, prints, and writes the JSON. Ends with status 1 and what was wrong, if something was."""
    options = _options()
    # Whoever ends this, or what has started it, ends the drives and tasks that it has started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    end_with_parent()
    work = options.directory / "work"
    shutil.rmtree(work, ignore_errors=True)
    try:
        measured = _measure(options, work)
    except Failed as failed:
        sys.exit(f"error: {failed}")
    except KeyboardInterrupt:
        sys.exit(130)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    print(report.summary_text(measured["summary"]))
    if options.out:
        options.out.write_text(json.dumps(measured, indent=1) + "\n")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m cell", description=__doc__)
    parser.add_argument("--program", required=True, metavar="FILE", help="the binary pithead, for drives")
    parser.add_argument("--directory", type=Path, default=Path("demo-data/cell"), help="where matrices and stores are kept")
    parser.add_argument("--runs", type=int, default=3, help="runs of each question; scanpy and others rank once from 100,000 cells on")
    parser.add_argument("--only", choices=PARTS, nargs="+", default=list(PARTS), help="parts to measure")
    parser.add_argument("--engines", choices=ENGINES, nargs="+", default=list(ENGINES), help="who is asked")
    parser.add_argument("--lineitem", type=Path, help="TPC-H's lineitem as Parquet, for the part fetch")
    parser.add_argument("--figure", type=Path, help="where to draw the part slices, as SVG")
    parser.add_argument("--out", type=Path, help="where to write everything as JSON")
    return parser.parse_args()


def _measure(options: argparse.Namespace, work: Path) -> dict[str, Any]:
    engines = _installed(options.engines)
    measured: dict[str, Any] = {"runs": options.runs, "drives": _DRIVES, "sizes": {}}
    for name in (part for part in PARTS if part in options.only):
        if name == "slices" and "pithead" in engines:
            measured["slices"] = _slices(options, work)
            print(report.slices_text(measured["slices"]), flush=True)
        elif name == "fetch" and "pithead" in engines and options.lineitem:
            measured["fetch"] = run_task("fetch", lineitem=str(options.lineitem), folder=str(work / "fetch"), runs=max(options.runs, 5))
            print(report.fetch_text(measured["fetch"]), flush=True)
        elif name in ("small", "medium", "large"):
            measured["sizes"][name] = _Sized(options, work, name, engines).measure()
            print(report.size_text(measured["sizes"][name]), flush=True)
    measured["summary"] = report.summary(measured)
    return measured


def _installed(wanted: Iterable[str]) -> list[str]:
    """Those of the engines that are there; of others it is said how to get them."""
    if absent := missing("numpy", "scipy", "h5py", "anndata", "pandas"):
        raise Failed(f"Python lacks {', '.join(absent)}\nhint: tools/setup.sh puts what is needed into .tools")
    found = []
    for engine in wanted:
        if not missing(engine):
            found.append(engine)
        elif engine == "pithead":
            raise Failed("Python does not find the package pithead\nhint: install it, `pip install .`, or run `make test` once")
        else:
            get = "tools/setup.sh peers" if engine == "tiledbsoma" else "tools/setup.sh"
            print(f"{engine} is not installed, and its columns are missing: {get} installs it")
    return found


def _slices(options: argparse.Namespace, work: Path) -> dict[str, Any]:
    # One drive, as in Montana et al. 2023, section 6.2.
    with Drives(options.program, work / "slices", 1) as drives:
        measured = run_task("slices", target=drives.target, folder=str(options.directory), runs=options.runs)
    shutil.rmtree(work / "slices")
    if options.figure:
        from .slices import draw

        draw(measured, options.figure)
    return measured


class _Sized:
    """All engines over a matrix of one size."""

    def __init__(self, options: argparse.Namespace, work: Path, name: str, engines: list[str]) -> None:
        self._options, self._work, self._name, self._engines = options, work, name, engines
        self._h5ad = str(options.directory / f"{name}.h5ad")
        self._is_large = name == "large"
        # Where one run takes a minute, its CPU time says enough.
        self._peer_runs = options.runs if name == "small" else 1
        self._left_out: list[str] = []
        self._matrix: dict[str, int] = {}

    def measure(self) -> dict[str, Any]:
        """Makes the matrix if need be, asks each engine, and compares what they answer before anything is said."""
        from .generate import SIZES

        size = SIZES[self._name]
        self._matrix = run_task("generate", h5ad=self._h5ad, size=asdict(size))
        shape = f"{size.cells:,} cells × {size.genes:,} genes, {self._matrix['nonzeros']:,} non-zeros"
        print(f"{self._name}: {shape}, h5ad of {self._matrix['bytes'] / 1e6:,.0f} MB", flush=True)
        reference = Path(self._h5ad).with_suffix(".npz")
        run_task("reference", h5ad=self._h5ad, out=str(reference))
        self._work.mkdir(parents=True, exist_ok=True)
        engines: dict[str, Any] = {}
        for engine in (each for each in ("scanpy", "tiledbsoma", "duckdb") if each in self._engines):
            if taken := self._peer(engine):
                engines[engine] = taken
        if "pithead" in self._engines:
            engines["pithead"] = self._pithead("zstd", remote=True)
            if self._is_large:
                self._left_out.append("pithead_none, pithead_in_process: for the disk's sake; see the size before")
            else:
                engines["pithead_none"] = self._pithead("none", remote=True)
                engines["pithead_in_process"] = self._pithead("zstd", remote=False)
        self._compare(engines, reference)
        return {"matrix": {**asdict(size), **self._matrix}, "engines": engines, "left_out": self._left_out}

    def _peer(self, engine: str) -> dict[str, Any] | None:
        """One of the others; none where it is not tried, or does not come to an end."""
        if self._is_large and engine != "scanpy":
            self._left_out.append(f"{engine}: not tried at this size; ingesting it takes longer than all the rest")
            return None
        out = {"out": self._answer(engine), "runs": self._peer_runs}
        try:
            if engine == "scanpy":
                return run_task("scanpy", timeout=_SCANPY_SECONDS if self._is_large else None, h5ad=self._h5ad, **out)
        except Failed as failed:
            if not self._is_large:
                raise
            self._left_out.append(str(failed))
            return None
        folder = self._work / engine
        if engine == "tiledbsoma":
            loaded = run_task("soma_load", h5ad=self._h5ad, uri=str(folder))
            asked = run_task("soma", uri=str(folder), **out)
        else:
            loaded = run_task("duckdb_load", h5ad=self._h5ad, folder=str(folder))
            asked = run_task("duckdb", folder=str(folder), genes=self._matrix["genes"], **out)
        shutil.rmtree(folder)
        return {**loaded, **asked}

    def _pithead(self, codec: str, *, remote: bool) -> dict[str, Any]:
        folder, spill = self._work / f"pithead-{codec}", self._work / "spill"
        spill.mkdir(exist_ok=True)
        limit = self._matrix["bytes"] // _MEMORY_SHARE if self._is_large else None
        name = ("pithead" if codec == "zstd" else "pithead_none") if remote else "pithead_in_process"
        common: dict[str, Any] = {"dataset": "cells", "count": _DRIVES, "runs": self._options.runs, "memory_limit": limit}
        loading = {"h5ad": self._h5ad, "codec": codec, "spill": str(spill)}
        asking = {"out": self._answer(name), "repeats": _REPEATS}
        if remote:
            with Drives(self._options.program, folder, _DRIVES) as drives:
                there = {"target": drives.target, "drives": drives.processes, **common}
                loaded, asked = run_task("pithead_load", **there, **loading), run_task("pithead", **there, **asking)
        else:
            there = {"target": str(folder), "drives": [], **common}
            loaded, asked = run_task("pithead_load", **there, **loading), run_task("pithead", **there, **asking)
        on_disk = size_of(folder)
        shutil.rmtree(folder)
        shutil.rmtree(spill)
        return {"codec": codec, "memory_limit": limit, "on_disk_bytes": on_disk, **loaded, **asked}

    def _answer(self, engine: str) -> str:
        return str(self._work / f"{self._name}-{engine}.npz")

    def _compare(self, engines: Iterable[str], reference: Path) -> None:
        """Every answer with that by the definition, and with scanpy's."""
        from .answers import difference

        beside = {"the definition": reference}
        if "scanpy" in engines:
            beside["scanpy"] = Path(self._answer("scanpy"))
        for engine in engines:
            for other, answer in beside.items():
                if different := difference(Path(self._answer(engine)), answer):
                    raise Failed(f"{self._name}: {engine} and {other} differ: {different}")
