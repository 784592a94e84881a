"""Skytether's first experiment (6.2): CPU of Accumulate over all slices of a dataset, by the slices' width and height."""

from __future__ import annotations

import json
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Any

from . import measure
from .generate import Size, make

WIDTHS = (100, 200, 400, 800, 1200, 1600)
"""Cells, which are all in each slice."""
HEIGHTS = (48, 480)
"""Genes of a slice."""
_GENES = 14_400
# As of E-GEOD-76312, whose cells were sequenced deeply.
_DENSITY = 0.2
_SLICE_BYTES = 1 << 30


def task(target: str, folder: str, runs: int) -> dict[str, Any]:
    """Loads each matrix in each layout and height, and has the drive compute the partials of two groups, keeping nothing.

    CPU is what the drive says that the query took: reading slices, Accumulate, Combine, and sending what came out.
    """
    import pithead
    from pithead import cell

    warnings.simplefilter("ignore")
    points = []
    with pithead.connect(target) as conn:
        conn.sql("SET pithead.summary_cache = off")
        conn.sql("SET pithead.level = 3")
        conn.sql("SET pithead.slice_cache = 0")
        for width in WIDTHS:
            h5ad = Path(folder) / f"slices-{width}.h5ad"
            size = Size(h5ad.stem, width, _GENES, _DENSITY, groups=2)
            made = make(size, h5ad)
            for layout in ("sparse", "dense"):
                for height in HEIGHTS:
                    name = f"bench.slices_{layout}_{height}_{width}"
                    how = {"layout": layout, "slice_rows": height, "slice_bytes": _SLICE_BYTES}
                    data = cell.load(conn, str(h5ad), name, progress=False, **how)
                    taken = [_cpu(cell, data, height) for _ in range(runs + 1)]
                    shape = {"layout": layout, "height": height, "cells": width, "slices": _GENES // height}
                    sizes = {"nonzeros": made["nonzeros"], "stored_bytes": data.loaded["stored_bytes"]}
                    # The first run reads from the medium, and the others from memory.
                    points.append({**shape, **sizes, "drive_cpu_seconds": measure.spread(taken[1:])})
                    cell.drop(conn, name)
                    # Loads of the dense layout take minutes, so it is told how far this is.
                    print(f"slices: {layout}, {height} genes × {width} cells", flush=True)
        about = {**asdict(size), "cells": list(WIDTHS)}
    return {"matrix": about, "points": points}


def _cpu(cell: Any, data: Any, height: int) -> float:
    result = cell.tl.rank_genes_groups(data, "group", groups=["g00"], reference="g01", copy=True)
    if result.profile["slices_read"] != _GENES // height:
        raise measure.Failed(f"{result.profile['slices_read']} slices were read, not {_GENES // height}")
    return result.profile["drive_cpu_seconds"]


def draw(measured: dict[str, Any], path: Path) -> None:
    """The figure, as SVG; what it shows is in its description, too."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    matplotlib.rcParams.update({"svg.hashsalt": "cell-slices", "svg.fonttype": "none", "font.family": "sans-serif"})
    figure, axes = pyplot.subplots(figsize=(7, 4.2), layout="constrained")
    colours = {"sparse": "#1f6fb4", "dense": "#c8552b"}
    for (layout, height), points in _lines(measured["points"]).items():
        cells = [point["cells"] for point in points]
        cpu = [point["drive_cpu_seconds"] for point in points]
        low_high = [[1e3 * (each["median"] - each["min"]) for each in cpu], [1e3 * (each["max"] - each["median"]) for each in cpu]]
        label = f"{layout}, {_GENES // height} slices of {height} genes"
        style = {"color": colours[layout], "linestyle": "-" if height == max(HEIGHTS) else ":", "marker": "o", "markersize": 4}
        axes.errorbar(cells, [1e3 * each["median"] for each in cpu], yerr=low_high, label=label, capsize=2, **style)
    axes.set(xlabel="cells, all of them in each slice", ylabel="CPU at the drive (ms)", yscale="log")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.set_title(f"Accumulate over all slices of {_GENES:,} genes", loc="left", fontsize=11)
    axes.grid(axis="y", which="both", color="#e4e4e4", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=9)
    figure.savefig(path, metadata={"Date": None, "Description": json.dumps(measured["points"])})
    pyplot.close(figure)


def _lines(points: list[dict[str, Any]]) -> dict[tuple[str, int], list[dict[str, Any]]]:
    lines: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for point in points:
        lines.setdefault((point["layout"], point["height"]), []).append(point)
    return lines
