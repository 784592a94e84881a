"""The compiled functions that work on matrices at the drives, and how their buffers become numpy arrays."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

__all__ = ["LISTED_GENES_MAX", "array", "gene_lists", "module", "partials_sql", "quoted"]

LISTED_GENES_MAX = 4096
"""Genes that a question about cells lists at most; of more, it is asked several times."""


def module() -> Any:
    """The compiled functions for cells, `pithead._pithead.cell`."""
    from pithead import _pithead

    return _pithead.cell


def array(buffer: Any, dtype: Any, *shape: int) -> np.ndarray:
    """An array of `shape` over the bytes that a compiled function gave back; read-only, nothing is copied."""
    values = np.frombuffer(buffer, dtype=dtype)
    return values.reshape(shape) if shape else values


def quoted(name: str) -> str:
    """The name `domain.dataset` as SQL takes it; the first dot splits.

    >>> quoted("lab.pbmc.obs")
    '"lab"."pbmc.obs"'
    """
    domain, _, dataset = name.partition(".")
    return ".".join('"' + part.replace('"', '""') + '"' for part in (domain, dataset))


def partials_sql(table: str, dense: int | None = None) -> str:
    """The query whose plan a test runs by: partial results of each gene, made at the drives and combined on the way up.

    `dense` is the number of cells of a matrix that is stored with a column a cell.
    """
    row = "expression" if dense is None else f"dense_row({', '.join(f'c{cell}' for cell in range(dense))})"
    return f"SELECT gene, combine(accumulate({row}, $1)) AS partials FROM {quoted(table)} GROUP BY gene"


def gene_lists(genes: np.ndarray | None) -> Iterator[list[int] | None]:
    """Lists of genes that one question may have; None: all genes. No genes are one empty list."""
    if genes is None:
        yield None
        return
    for start in range(0, max(len(genes), 1), LISTED_GENES_MAX):
        yield genes[start : start + LISTED_GENES_MAX].tolist()
