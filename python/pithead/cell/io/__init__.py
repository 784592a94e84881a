"""Sources of datasets of cells, read in pieces: h5ad, 10x Genomics, EBI's Single Cell Expression Atlas, AnnData in memory."""

from ._h5ad import read_anndata, read_h5ad
from ._load import load, open_source
from ._scea import read_scea
from ._source import Source
from ._tenx import read_10x_h5, read_10x_mtx

__all__ = ["Source", "load", "open_source", "read_10x_h5", "read_10x_mtx", "read_anndata", "read_h5ad", "read_scea"]
