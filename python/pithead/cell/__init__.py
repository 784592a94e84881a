"""Single-cell data on drives: load matrices of cells × genes, and ask which genes differ, as one does in scanpy.

`tl`, `pp`, `get` and `pl` have scanpy's names and defaults; what they need of the matrices is computed at the drives.
"""

try:
    from . import get, pl, pp, tl
    from ._catalog import Domain, drop, ls, open
    from ._dataset import Dataset, Selection, View
    from ._groups import GroupError
    from ._result import RankResult
    from .io import Source, load, read_10x_h5, read_10x_mtx, read_anndata, read_h5ad, read_scea
except ModuleNotFoundError as missing:
    if (missing.name or "").startswith("pithead"):
        raise
    raise ModuleNotFoundError(
        f"pithead.cell needs {missing.name}, which is not installed; get all that it needs by: pip install 'pithead[cell]'",
        name=missing.name,
    ) from missing

__all__ = [
    "Dataset",
    "Domain",
    "GroupError",
    "RankResult",
    "Selection",
    "Source",
    "View",
    "drop",
    "get",
    "load",
    "ls",
    "open",
    "pl",
    "pp",
    "read_10x_h5",
    "read_10x_mtx",
    "read_anndata",
    "read_h5ad",
    "read_scea",
    "tl",
]
