"""The figures that count, and tables of the rest."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from .fetch import KINDS
from .measure import median

_PEERS = {"scanpy": "scanpy", "soma": "tiledbsoma", "duckdb": "duckdb"}


def summary(measured: dict[str, Any]) -> dict[str, float]:
    """The figures that count; those whose parts were not measured are left out. Ratios are the other's figure over ours."""
    figures: dict[str, float] = {}
    sizes = measured["sizes"]
    if "pithead" in sizes.get("medium", {}).get("engines", {}):
        figures |= _medium(sizes["medium"])
    ours = [size for size in sizes.values() if "pithead" in size["engines"]]
    if ours:
        figures |= _largest(ours[-1])
    if "fetch" in measured:
        figures |= _fetch(measured["fetch"]["seconds"])
    if "slices" in measured:
        figures |= _slices(measured["slices"]["points"])
    return {name: float(f"{figure:.4g}") for name, figure in figures.items()}


def _medium(size: dict[str, Any]) -> dict[str, float]:
    engines, nonzeros = size["engines"], size["matrix"]["nonzeros"]
    ours = engines["pithead"]
    cpu, seconds = median(ours["query"], "cpu"), median(ours["query"], "seconds")
    repeat, pairing = (median(ours[kind], "seconds") for kind in ("repeat", "pairing"))
    figures = {
        "link_bytes_vs_h5ad": size["matrix"]["bytes"] / link(ours["query"]),
        "bytes_per_nonzero_zstd": ours["stored_bytes"] / nonzeros,
        "repeat_ms": 1e3 * max(repeat, pairing),
        "repeat_same_ms": 1e3 * repeat,
        "repeat_pairing_ms": 1e3 * pairing,
        "repeat_slices_read": max(run["slices_read"] for kind in ("repeat", "pairing") for run in ours[kind]),
        "load_seconds": ours["load"]["seconds"],
    }
    if "pithead_none" in engines:
        figures["bytes_per_nonzero_plain"] = engines["pithead_none"]["stored_bytes"] / nonzeros
    for short, name in _PEERS.items():
        if name in engines:
            asked = engines[name].get("query") or engines[name]["rank"]
            figures[f"cpu_vs_{short}"] = median(asked, "cpu") / cpu
            figures[f"wall_vs_{short}"] = median(asked, "seconds") / seconds
    if "scanpy" in engines:
        for kind, key in (("cpu", "cpu"), ("wall", "seconds")):
            whole = sum(engines["scanpy"][each][key] for each in ("read", "normalise")) + median(engines["scanpy"]["rank"], key)
            figures[f"{kind}_vs_scanpy_with_reading"] = whole / (cpu if kind == "cpu" else seconds)
    if "tiledbsoma" in engines:
        figures["ingest_cpu_vs_soma"] = engines["tiledbsoma"]["load"]["cpu"] / ours["load"]["cpu"]
        figures["ingest_wall_vs_soma"] = engines["tiledbsoma"]["load"]["seconds"] / ours["load"]["seconds"]
    return figures


def _largest(size: dict[str, Any]) -> dict[str, float]:
    ours = size["engines"]["pithead"]
    load, query = ours["load"]["peak_bytes"], max(run["peak_bytes"] for kind in ("query", "repeat", "pairing") for run in ours[kind])
    figures = {"client_peak_gb": max(load, query) / 1e9, "client_peak_load_gb": load / 1e9, "client_peak_query_gb": query / 1e9}
    if limit := ours["memory_limit"]:
        figures["h5ad_bytes_vs_memory_limit"] = size["matrix"]["bytes"] / limit
        figures["link_bytes_vs_h5ad_large"] = size["matrix"]["bytes"] / link(ours["query"])
        figures["repeat_large_ms"] = 1e3 * max(median(ours[kind], "seconds") for kind in ("repeat", "pairing"))
        figures["load_seconds_large"] = ours["load"]["seconds"]
    return figures


def _fetch(seconds: dict[str, Any]) -> dict[str, float]:
    each = {kind: seconds[f"duckdb_{kind}"]["median"] / seconds[f"pithead_{kind}"]["median"] for kind in KINDS}
    # What pandas makes objects of is told apart: DuckDB's package gives other types there.
    whole = math.sqrt(each["polars"] * each["pandas"])
    return {"fetch_vs_duckdb": whole, **{f"fetch_{kind}_vs_duckdb": ratio for kind, ratio in each.items()}}


def _slices(points: list[dict[str, Any]]) -> dict[str, float]:
    """At the greatest width: slices of few genes against those of many, and dense against sparse."""
    width = max(point["cells"] for point in points)
    cpu = {(each["layout"], each["height"]): each["drive_cpu_seconds"]["median"] for each in points if each["cells"] == width}
    low, high = min(height for _, height in cpu), max(height for _, height in cpu)
    figures = {f"slices_{layout}_{low}_vs_{high}": cpu[layout, low] / cpu[layout, high] for layout in ("sparse", "dense")}
    return {**figures, "slices_dense_vs_sparse": cpu["dense", high] / cpu["sparse", high]}


def link(runs: Sequence[dict[str, Any]]) -> float:
    """Bytes between drives and client, the median of runs; the kernel's count, or where that lost a connection the query's own."""
    own = sorted(max(run["link_bytes"], run["profile"]["link_bytes"]) for run in runs)
    return own[len(own) // 2]


def size_text(size: dict[str, Any]) -> str:
    """Who took what, over a matrix of one size."""
    header = ("", "CPU s", "of drives", "wall s", "peak MB", "link MB", "load CPU s", "load s", "load peak MB", "stored MB", "B/value")
    rows, nonzeros = [], size["matrix"]["nonzeros"]
    for name, engine in size["engines"].items():
        loaded, stored = engine.get("load"), engine.get("stored_bytes")
        load = ["", "", ""] if loaded is None else [_s(loaded["cpu"]), _s(loaded["seconds"]), _mb(loaded["peak_bytes"])]
        keep = ["", ""] if stored is None else [_mb(stored), f"{stored / nonzeros:.2f}"]
        if name == "scanpy":
            rows.append(_stage("scanpy: read", [engine["read"]]))
            rows.append(_stage("scanpy: normalise", [engine["normalise"]]))
            rows.append(_stage("scanpy: rank", engine["rank"]))
            continue
        rows.append([*_stage(name, engine["query"])[:6], *load, *keep])
        for kind in ("repeat", "pairing"):
            if kind in engine:
                rows.append(_stage(f"{name}: {kind}", engine[kind]))
    return table(header, rows) + "".join(f"\nleft out: {line}" for line in size["left_out"]) + "\n"


def _stage(name: str, runs: Sequence[dict[str, Any]]) -> list[str]:
    cpu, drives, seconds = (_s(median(runs, key)) for key in ("cpu", "cpu_drives", "seconds"))
    sent = link(runs) if "profile" in runs[0] else 0
    return [name, cpu, drives if sent else "", seconds, _mb(max(run["peak_bytes"] for run in runs)), _mb(sent) if sent else ""] + [""] * 5


def slices_text(slices: dict[str, Any]) -> str:
    """CPU of Accumulate by shape and layout of slices."""
    points = slices["points"]
    widths = sorted({point["cells"] for point in points})
    lines: dict[tuple[str, int], list[str]] = {}
    for point in points:
        lines.setdefault((point["layout"], point["height"]), []).append(f"{1e3 * point['drive_cpu_seconds']['median']:.1f}")
    header = ("CPU at the drive, ms, by cells", *map(str, widths))
    return table(header, [[f"{layout}, {height} genes a slice", *cells] for (layout, height), cells in lines.items()]) + "\n"


def fetch_text(fetch: dict[str, Any]) -> str:
    """Seconds of a whole table into polars and pandas."""
    rows = [[way.replace("_", ", ", 1), *(f"{taken[key]:.3f}" for key in ("median", "min", "max"))] for way, taken in fetch["seconds"].items()]
    return table((f"lineitem, {fetch['rows']:,} rows", "median s", "min", "max"), rows) + "\n"


def summary_text(figures: dict[str, float]) -> str:
    """Name and figure, a line each."""
    width = max(map(len, figures), default=0)
    return "summary\n" + "\n".join(f"  {name:<{width}}  {figure:g}" for name, figure in figures.items())


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as they need to be, the first to the left.

    >>> print(table(("", "s"), [["scanpy", "12.5"], ["pithead", "0.5"]]))
                s
    scanpy   12.5
    pithead   0.5
    """
    lines = [list(header), *map(list, rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    shown = []
    for line in lines:
        first, *others = (cell.ljust(width) if place == 0 else cell.rjust(width) for place, (cell, width) in enumerate(zip(line, widths, strict=True)))
        shown.append("  ".join([first, *others]).rstrip())
    return "\n".join(shown)


def _s(seconds: float) -> str:
    return f"{seconds:.2f}" if seconds < 100 else f"{seconds:.0f}"


def _mb(size: float) -> str:
    return f"{size / 1e6:.1f}" if size < 1e8 else f"{size / 1e6:.0f}"
