"""Principal components from products with the Gram matrix of the cells, which the drives compute gene by gene."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from pithead import UserError

from . import _native
from ._asked import asking
from ._dataset import Dataset, Selection
from ._out import csc_of
from ._parts import OBSM_COLUMNS_MAX, Matrix
from ._view import mask_of
from .get import moments

__all__ = ["PcaResult", "pca", "top_eigen"]

_GRAM_CELLS_MAX = 4096
_BASIS_BYTES_MAX = 8_000_000
_VALUES_MAX = 8_000_000
_TOLERANCE = 1e-5
_STEPS_MAX = 200


@dataclass(eq=False)
class PcaResult:
    """Principal components, with scanpy's names.

    Attributes
    ----------
    X_pca
        Cells × components, 32-bit.
    PCs
        Genes × components: loadings; zero for genes that were not taken. None if they were not asked for.
    variance, variance_ratio
        Of each component, and its share of all variance.
    params
        What was asked.
    """

    X_pca: np.ndarray
    PCs: np.ndarray | None
    variance: np.ndarray
    variance_ratio: np.ndarray
    params: dict[str, Any]

    def write(self, adata: Any, key_added: str | None = None) -> None:
        """Puts the result into an AnnData of the same cells and genes, where scanpy's `pp.neighbors` looks for it."""
        if len(adata) != len(self.X_pca):
            raise UserError(
                f"the AnnData has {len(adata)} cells; components are of {len(self.X_pca)}",
                hint="take the same selection's to_anndata()",
            )
        obsm, varm, uns = (key_added,) * 3 if key_added else ("X_pca", "PCs", "pca")
        adata.obsm[obsm] = self.X_pca
        if self.PCs is not None and self.PCs.shape[0] == adata.n_vars:
            adata.varm[varm] = self.PCs
        adata.uns[uns] = {"params": self.params, "variance": self.variance, "variance_ratio": self.variance_ratio}

    def __repr__(self) -> str:
        cells, components = self.X_pca.shape
        return f"PCA of {cells} cells: {components} components with {self.variance_ratio.sum():.1%} of the variance"


def pca(
    data: Selection,
    n_comps: int | None = None,
    *,
    layer: str | None = None,
    use_raw: bool = False,
    zero_center: bool = True,
    svd_solver: str | None = None,
    random_state: int = 0,
    mask_var: Any = "auto",
    loadings: bool = True,
    key_added: str | None = None,
    copy: bool = False,
) -> PcaResult:
    """Principal components of the cells. Drives multiply; the values stay there.

    Parameters
    ----------
    n_comps
        Components. None: 50, or one less than there are cells or genes.
    zero_center
        Center genes. False gives a truncated singular value decomposition.
    svd_solver
        "covariance_eigh": the whole Gram matrix, cells × cells, for at most 4,096 cells. "arpack": block Lanczos iterations,
        each of which has the drives multiply once. None: the first one where it can be.
    mask_var
        A mask of genes or the name of a column that is one. "auto": `highly_variable` where `var` has it, else all.
    loadings
        Compute loadings too. The selected genes' values come to the client for it, a block of genes at a time. Without them the
        components' signs are by their largest cell.
    copy
        True: a dataset does not keep the result as `obsm["X_pca"]` (or `key_added`) and `uns["pca"]`.
    """
    matrix, mask_name = _masked(data, data.matrix(layer=layer, use_raw=use_raw), mask_var)
    n_cells, n_genes = data.n_obs, len(matrix.var)
    smaller = min(n_cells, n_genes)
    if n_comps is None:
        n_comps = min(50, smaller - 1)
    if not 1 <= n_comps <= smaller:
        raise UserError(
            f"n_comps={n_comps} of {n_cells} cells and {n_genes} genes", hint=f"give a number from 1 to {smaller}"
        )
    is_kept = not copy and isinstance(data, Dataset)
    if is_kept and n_comps > OBSM_COLUMNS_MAX:
        raise UserError(
            f"n_comps={n_comps}: a dataset keeps {OBSM_COLUMNS_MAX} components at most",
            hint="copy=True keeps none of them; then result.write(adata)",
        )
    values, vectors = _eigen(data, matrix, n_comps, zero_center, svd_solver, random_state)
    singular = np.sqrt(np.maximum(values, 0))
    total = moments([data], [matrix], [None], 0)["m2"][0].sum()
    pcs = _loadings(data, matrix, vectors, singular) if loadings else None
    by = vectors if pcs is None else pcs
    signs = np.sign(by[np.abs(by).argmax(axis=0), np.arange(n_comps)])
    signs[signs == 0] = 1
    scores = vectors * (singular * signs)
    if zero_center:
        variance, whole = values / max(n_cells - 1, 1), total / max(n_cells - 1, 1)
    else:
        variance, whole = scores.var(axis=0), total / max(n_cells, 1)
    params = dict(zero_center=zero_center, use_highly_variable=mask_name == "highly_variable", mask_var=mask_name)
    if layer is not None:
        params["layer"] = layer
    spread = None
    if pcs is not None:
        spread = np.zeros((len(data.matrix(layer=layer, use_raw=use_raw).var), n_comps))
        spread[_places(data, matrix, layer, use_raw)] = pcs * signs
    result = PcaResult(
        scores.astype(np.float32), spread, variance, variance / whole if whole > 0 else np.zeros(n_comps), params
    )
    if is_kept:
        assert isinstance(data, Dataset)
        data.set_obsm(key_added or "X_pca", result.X_pca)
        data.uns[key_added or "pca"] = {
            "params": params,
            "variance": result.variance,
            "variance_ratio": result.variance_ratio,
        }
    return result


def _masked(data: Selection, matrix: Matrix, mask_var: Any) -> tuple[Matrix, str | None]:
    if isinstance(mask_var, str) and mask_var == "auto":
        mask_var = "highly_variable" if "highly_variable" in matrix.var.columns else None
    if mask_var is None:
        return matrix, None
    chosen = np.flatnonzero(mask_of(mask_var, matrix.var, "mask_var", f"{data.name}'s var"))
    genes = chosen if matrix.genes is None else matrix.genes[chosen]
    return Matrix(matrix.key, matrix.table, matrix.kind, genes, matrix.var.iloc[chosen]), mask_var if isinstance(
        mask_var, str
    ) else None


def _places(data: Selection, matrix: Matrix, layer: str | None, use_raw: bool) -> np.ndarray:
    return np.asarray(data.matrix(layer=layer, use_raw=use_raw).var.index.get_indexer(matrix.var.index))


def _eigen(
    data: Selection, matrix: Matrix, k: int, center: bool, solver: str | None, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    if solver not in (None, "covariance_eigh", "arpack"):
        raise UserError(f"svd_solver={solver!r} is not known", hint="it is 'covariance_eigh', 'arpack', or None to choose")
    n = data.n_obs
    if solver == "covariance_eigh" and n > _GRAM_CELLS_MAX:
        raise UserError(
            f"svd_solver='covariance_eigh' takes {_GRAM_CELLS_MAX:,} cells at most, not {n:,}",
            hint="svd_solver='arpack' takes any number",
        )
    if solver == "covariance_eigh" or (solver is None and n <= _GRAM_CELLS_MAX):
        values, vectors = np.linalg.eigh(_gram(data, matrix, data.cells(matrix, center=center), n))
        return values[::-1][:k], vectors[:, ::-1][:, :k]

    def multiply(basis: np.ndarray) -> np.ndarray:
        return _gram(data, matrix, data.cells(matrix, basis=basis, center=center), basis.shape[1])

    width = max(min(_BASIS_BYTES_MAX // (4 * data._root._note["n_obs"]), k + 10), 1)
    return top_eigen(multiply, n, k, width, seed)


def _gram(data: Selection, matrix: Matrix, cells: bytes, columns: int) -> np.ndarray:
    """The Gram matrix over the matrix's genes, or its product with the basis in `cells`; a row for each selected cell."""
    total = np.zeros((data.n_obs, columns))
    with asking(data):
        for listed in _native.gene_lists(matrix.genes):
            found = _native.module().gram(data.conn._native, matrix.table, cells, listed)
            if found:
                total += _native.array(found, np.float64, data.n_obs, columns)
    return total


def top_eigen(
    multiply: Callable[[np.ndarray], np.ndarray], n: int, k: int, width: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """The `k` largest eigenvalues of a symmetric n × n matrix and their vectors, by block Lanczos with full orthogonalisation.

    `multiply` gives the product of the matrix and a basis (n × at most `width`, 32-bit). After Golub and Van Loan, Matrix
    Computations, 10.3.6. It ends when residuals are below 1e-5 of the largest eigenvalue.
    """
    rng = np.random.default_rng(seed)
    block = np.linalg.qr(rng.standard_normal((n, min(width, n))))[0].astype(np.float32)
    blocks: list[np.ndarray] = []
    small = np.zeros((0, 0))
    for _ in range(_STEPS_MAX):
        product = np.array(multiply(np.ascontiguousarray(block)))
        blocks.append(block)
        overlaps = np.concatenate([each.T.astype(np.float64) @ product for each in blocks])
        grown = np.zeros((len(overlaps), len(overlaps)))
        grown[: len(small), : len(small)] = small
        grown[:, len(small) :] = overlaps
        grown[len(small) :, :] = overlaps.T
        small = grown
        values, inner = np.linalg.eigh((small + small.T) / 2)
        values, inner = values[::-1][:k], inner[:, ::-1][:, :k]
        for _again in range(2):
            for each in blocks:
                product -= each @ (each.T.astype(np.float64) @ product)
        block, coupling = np.linalg.qr(product)
        residual = np.linalg.norm(coupling @ inner[-coupling.shape[1] :], axis=0)
        done = len(small) >= k and residual.max() <= _TOLERANCE * max(values[0], 0)
        left = n - len(small)
        if done or left <= 0:
            break
        # Directions that the product did not leave are noise; they are replaced by random ones, which lose nothing.
        weak = np.abs(np.diag(coupling)) <= 1e-12 * max(abs(values[0]), 1e-300)
        if weak.any():
            block[:, weak] = rng.standard_normal((n, int(weak.sum())))
            for _again in range(2):
                for each in blocks:
                    block -= each @ (each.T.astype(np.float64) @ block)
            block = np.linalg.qr(block)[0]
        block = block[:, :left].astype(np.float32)
    else:
        raise UserError(
            f"{_STEPS_MAX} products did not separate {k} components",
            hint="ask for fewer components; the last ones may be alike",
        )
    vectors = np.zeros((n, k))
    at = 0
    for each in blocks:
        vectors += each @ inner[at : at + each.shape[1]]
        at += each.shape[1]
    # Blocks are 32-bit, so their combinations are orthogonal to seven digits only.
    return values, np.linalg.qr(vectors)[0]


def _loadings(data: Selection, matrix: Matrix, vectors: np.ndarray, singular: np.ndarray) -> np.ndarray:
    """Genes × components. Vectors of centred genes are orthogonal to a constant, so that means need not be subtracted."""
    n_genes = len(matrix.var)
    result = np.zeros((n_genes, vectors.shape[1]))
    scale = np.divide(1.0, singular, out=np.zeros_like(singular), where=singular > 1e-12 * max(singular[0], 1e-300))
    step = min(max(_VALUES_MAX // max(data.n_obs, 1), 1), _native.LISTED_GENES_MAX)
    for start in range(0, n_genes, step):
        genes = np.arange(start, min(start + step, n_genes))
        result[genes] = (csc_of(data, matrix, genes).T @ vectors) * scale
    return result
