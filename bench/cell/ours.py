"""The question in Pithead: a load, the first answers, and answers from what the drives and the host have kept."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import answers, measure
from .answers import TARGET_SUM

_DOMAIN = "bench"


def load_task(h5ad: str, target: str, drives: list[int], count: int, dataset: str, codec: str, spill: str, runs: int) -> dict[str, Any]:
    """Loads the file, and says that values are to be normalised, which rewrites nothing.

    `count` is the number of drives of a folder. Afterwards each of the runs of `query_task` finds a column of groups of its own.
    """
    import pandas as pd
    import pithead
    from pithead import cell

    with _connect(target, count) as conn:
        name = f"{_DOMAIN}.{dataset}"
        with measure.stage(drives) as loading:
            data = cell.load(conn, h5ad, name, codec=codec, spill_dir=spill, progress=False)
        with measure.stage(drives) as normalising:
            cell.pp.normalize_total(data, target_sum=TARGET_SUM)
            cell.pp.log1p(data)
        # Other labels are made in memory, which the large matrix has none to spare of: there is one run of it.
        group = data.obs["group"].cat if runs > 1 else None
        for run in range(1, runs):
            codes = (group.codes.to_numpy() + run) % len(group.categories)
            data.set_obs(_column(run), pd.Categorical.from_codes(codes, group.categories))
        stored = {info.name: info.stored_bytes for info in conn.datasets(_DOMAIN)}
        beside = sum(size for part, size in stored.items() if part.startswith(f"{dataset}."))
        facts = {"stored_bytes": stored[dataset], "stored_bytes_beside": beside, "loaded": data.loaded}
    return {"version": pithead.__version__, "load": loading, "normalise": normalising, **facts}


def query_task(target: str, drives: list[int], count: int, dataset: str, out: str, runs: int, repeats: int) -> dict[str, Any]:
    """All groups against rest, in each run by other labels, so that nothing was kept for it; then the same again, and other pairings.

    Every run opens the dataset and reads its table of cells, and ends with scanpy's sorted arrays.
    """
    import pithead
    from pithead import cell

    name = f"{_DOMAIN}.{dataset}"
    first, kept, pairings = [], [], []
    with _connect(target, count) as conn:
        for run in range(runs):
            with measure.stage(drives) as took:
                data = cell.open(conn, name)
                result = _sorted(cell.tl.rank_genes_groups(data, _column(run), method="t-test", copy=True))
            first.append({**took, **_cost(result)})
            answer = _answer(result, run)
            if run == 0:
                saved = answer
                answers.save(out, answer)
            elif not np.allclose(answer["scores"], saved["scores"], rtol=1e-9, atol=1e-9):
                raise measure.Failed(f"run {run} gave other scores than the first one")
        groups = result.groups
        for repeat in range(repeats):
            with measure.stage(drives) as took:
                again = _sorted(cell.tl.rank_genes_groups(data, _column(runs - 1), method="t-test", copy=True))
            kept.append({**took, **_cost(again)})
            if not np.array_equal(again.stats["scores"], result.stats["scores"]):
                raise measure.Failed("the same question again gave other scores")
            group, reference = (groups[(repeat + step) % len(groups)] for step in (0, 1))
            with measure.stage(drives) as took:
                pairing = cell.tl.rank_genes_groups(data, _column(runs - 1), groups=[group], reference=reference, copy=True)
                _sorted(pairing)
            pairings.append({**took, **_cost(pairing)})
    return {"version": pithead.__version__, "query": first, "repeat": kept, "pairing": pairings}


def _connect(target: str, count: int) -> Any:
    import pithead

    return pithead.connect(target) if target.startswith("pithead://") else pithead.connect(target, drives=count)


def _column(run: int) -> str:
    return f"group_{run}" if run else "group"


def _sorted(result: Any) -> Any:
    """With scanpy's record arrays made, which are so only when they are asked for."""
    assert result.uns["scores"].dtype.names
    return result


def _cost(result: Any) -> dict[str, Any]:
    """What the query itself says that it took."""
    profile = result.profile
    return {"slices_read": profile["slices_read"], "profile": dict(profile)}


def _answer(result: Any, run: int) -> dict[str, np.ndarray]:
    """Groups by the labels that the file has, genes by their place."""
    back = np.roll(np.arange(len(result.groups)), -run)
    scores, pvals = (np.asarray(result.stats[key])[back] for key in ("scores", "pvals"))
    return {"scores": scores, "pvals": pvals, "order": np.stack(result.order)[back]}
