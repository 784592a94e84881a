"""What a test of genes between groups found, in scanpy's shape."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from pithead import UserError

__all__ = ["Query", "RankResult", "explained"]

_COLUMNS = {"scores": "float32", "pvals": "float64", "pvals_adj": "float64", "logfoldchanges": "float32"}


Query = tuple[Any, str, str, bytes]
"""The partial results of one dataset's genes: a connection, the matrix's table, SQL, and its parameter."""


def explained(queries: Sequence[Query], analyze: bool = False) -> str:
    """Where the parts of queries run, of several each one's under the table's name; with `analyze` they run."""
    texts = []
    for conn, table, query, cells in queries:
        text = str(conn.sql(query, [cells]).explain(analyze=analyze))
        texts.append(text if len(queries) == 1 else f"{table}:\n{text}")
    return "\n".join(texts)


@dataclass(eq=False)
class RankResult(Mapping[str, Any]):
    """Genes ranked for each group; as a mapping, what scanpy puts into `adata.uns['rank_genes_groups']`.

    Attributes
    ----------
    groups
        The groups that were tested, in order.
    genes
        The ids of the genes that were tested.
    stats
        `scores`, `pvals`, `pvals_adj`, `logfoldchanges`, `means`, `means_rest`, `pts` and `pts_rest`, each 64-bit and of shape
        (groups, genes), in the order of `genes`.
    order
        For each group, positions in `genes` of those that are reported, best first; ties by position.
    params
        What was asked, with scanpy's names.
    metadata
        For each dataset that was asked, what was said of it when it was loaded.
    dropped
        For each dataset of a domain, ids of genes that not all have, and which were left out.
    profile
        What the query took, by the names of `Relation.profile`.
    """

    groups: list[str]
    genes: pd.Index
    stats: dict[str, np.ndarray]
    order: list[np.ndarray]
    params: dict[str, Any]
    var: pd.DataFrame
    pts: bool = False
    reference_pts: np.ndarray | None = None
    metadata: dict[str, dict[str, str]] = field(default_factory=dict)
    dropped: dict[str, list[str]] = field(default_factory=dict)
    profile: dict[str, Any] = field(default_factory=dict)
    _queries: list[Query] = field(default_factory=list, repr=False)
    _columns: list[str] = field(default_factory=list, repr=False)
    _shape: dict[str, Any] | None = field(default=None, repr=False)

    @property
    def uns(self) -> dict[str, Any]:
        """The result in scanpy's shape: `params`, record arrays with a field a group, and with `pts` frames of fractions."""
        if self._shape is None:
            names = self.genes.to_numpy(dtype=object)
            shape: dict[str, Any] = {"params": dict(self.params)}
            if self.pts:
                shape["pts"] = self._fractions("pts", self.reference_pts)
                if self.params["reference"] == "rest":
                    shape["pts_rest"] = self._fractions("pts_rest", None)
            shape["names"] = self._records([names[order] for order in self.order], "O")
            for column, dtype in _COLUMNS.items():
                values = self.stats[column]
                shape[column] = self._records([values[row][order] for row, order in enumerate(self.order)], dtype)
            self._shape = shape
        return self._shape

    def _records(self, columns: list[np.ndarray], dtype: str) -> np.recarray:
        # By two lists: a list of pairs gives a field without a name one.
        kinds = np.dtype({"names": self.groups, "formats": [dtype] * len(self.groups)})
        result = np.empty(len(columns[0]), dtype=kinds)
        for group, column in zip(self.groups, columns, strict=True):
            result[group] = column
        return result.view(np.recarray)

    def _fractions(self, which: str, reference: np.ndarray | None) -> pd.DataFrame:
        frame = pd.DataFrame(self.stats[which].T, index=self.genes, columns=self.groups)
        if reference is not None:
            # scanpy's frame has the reference too, where the list of groups has it.
            frame[self.params["reference"]] = reference
            frame = frame[self._columns]
        return frame

    def write_uns(self, adata: Any, key: str = "rank_genes_groups") -> None:
        """Puts the result into `adata.uns[key]`, so that `sc.pl.rank_genes_groups` and the like take it."""
        adata.uns[key] = dict(self.uns)

    def df(
        self,
        group: str | list[str] | None = None,
        *,
        pval_cutoff: float | None = None,
        log2fc_min: float | None = None,
        log2fc_max: float | None = None,
        gene_symbols: str | None = None,
    ) -> pd.DataFrame:
        """A row a gene, as `scanpy.get.rank_genes_groups_df` gives; with a column `group` unless one group was asked for.

        `gene_symbols` names a column of `var` to add.
        """
        wanted = self.groups if group is None else [group] if isinstance(group, str) else list(group)
        for name in wanted:
            if name not in self.groups:
                raise UserError(
                    f"{name!r} was not tested; the groups are: {', '.join(self.groups)}", hint="group=None gives all of them"
                )
        shape = self.uns
        frames = []
        for name in wanted:
            frame = pd.DataFrame(
                {"group": name} | {c: shape[c][name] for c in ("names", "scores", "logfoldchanges", "pvals", "pvals_adj")}
            )
            if self.pts:
                frame["pct_nz_group"] = shape["pts"][name].loc[frame["names"]].to_numpy()
                if "pts_rest" in shape:
                    frame["pct_nz_reference"] = shape["pts_rest"][name].loc[frame["names"]].to_numpy()
            frames.append(frame)
        result = pd.concat(frames, ignore_index=True)
        result["group"] = pd.Categorical(result["group"], categories=wanted)
        if pval_cutoff is not None:
            result = result[result["pvals_adj"] < pval_cutoff]
        if log2fc_min is not None:
            result = result[result["logfoldchanges"] > log2fc_min]
        if log2fc_max is not None:
            result = result[result["logfoldchanges"] < log2fc_max]
        if gene_symbols is not None:
            if gene_symbols not in self.var.columns:
                there = ", ".join(map(str, self.var.columns)) or "none"
                raise UserError(
                    f"var has no column {gene_symbols!r}; the columns are: {there}",
                    hint="leave gene_symbols out to get ids only",
                )
            place = list(result.columns).index("pvals_adj") + 1
            result.insert(place, gene_symbols, self.var[gene_symbols].reindex(result["names"]).to_numpy())
        if len(wanted) == 1:
            result = result.drop(columns="group")
        return result.reset_index(drop=True)

    def explain(self, analyze: bool = False) -> str:
        """Where the parts of the query ran, of several datasets each one's; with `analyze` it runs again."""
        if not self._queries:
            raise UserError(
                "this result was read from a pickle, and the connection that it was made by is not in there",
                hint="pithead.cell.tl.rank_genes_groups(ds, …) makes a result that can tell",
            )
        return explained(self._queries, analyze)

    def __getstate__(self) -> dict[str, Any]:
        # Connections stay in their process, and what `uns` gives is made anew.
        return {**self.__dict__, "_queries": [], "_shape": None}

    def __copy__(self) -> RankResult:
        return self._copied(lambda value: value)

    def __deepcopy__(self, memo: dict[int, Any]) -> RankResult:
        return self._copied(lambda value: copy.deepcopy(value, memo))

    def _copied(self, copied: Callable[[Any], Any]) -> RankResult:
        """A copy that asks over the same connection; unlike a pickle's, it is still there."""
        result = object.__new__(type(self))
        for name, value in self.__getstate__().items():
            setattr(result, name, copied(value))
        result._queries = list(self._queries)
        return result

    def __getitem__(self, key: str) -> Any:
        return self.uns[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.uns)

    def __len__(self) -> int:
        return len(self.uns)

    def __repr__(self) -> str:
        params = self.params
        versus = "all other cells" if params["reference"] == "rest" else params["reference"]
        lines = [f"{len(self.genes)} genes by {params['method']}, groups of {params['groupby']} against {versus}"]
        for row, (group, order) in enumerate(zip(self.groups, self.order, strict=True)):
            if row == 10:
                lines.append(f"    … and {len(self.groups) - 10} more groups")
                break
            lines.append(f"    {group}: " + ", ".join(map(str, self.genes[order[:5]])) + (", …" if len(order) > 5 else ""))
        return "\n".join(lines)
