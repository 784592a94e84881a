"""The same answers wherever and however matrices lie: drives, layouts, push-down, servers, kills."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

sc = pytest.importorskip("scanpy")

from judge import same_as_scanpy, same_as_scipy  # noqa: E402
from programs import free_port  # noqa: E402

import pithead  # noqa: E402
from pithead import cell  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
METHODS = [
    ("t-test", None),
    ("student", "CD19+ B"),
    ("t-test_overestim_var", None),
    ("wilcoxon", None),
    ("wilcoxon", "CD19+ B"),
]


@pytest.fixture(scope="module")
def pbmc():
    return sc.datasets.pbmc68k_reduced()


@pytest.fixture(scope="module")
def expected(pbmc):
    """Answers of one drive, which scipy has judged."""
    with pithead.connect() as conn:
        ds = cell.load(conn, pbmc, "lab.pbmc")
        answers = asked(ds)
    values = pbmc.raw.X.toarray()
    for (method, reference), result in zip(METHODS, answers, strict=False):
        if method != "t-test_overestim_var":
            same_as_scipy(result, values, pbmc.obs["bulk_labels"].to_numpy(), method, reference)
    return answers


def asked(ds):
    return [
        cell.tl.rank_genes_groups(ds, "bulk_labels", method=m, reference=r or "rest", tie_correct=True, copy=True)
        for m, r in METHODS
    ]


def same(ours, expected):
    for a, b in zip(ours, expected, strict=True):
        assert a.groups == b.groups and list(a.genes) == list(b.genes)
        for name, values in b.stats.items():
            np.testing.assert_allclose(a.stats[name], values, rtol=1e-10, atol=1e-12, err_msg=name, equal_nan=True)


@pytest.mark.parametrize("drives", [1, 2, 5])
@pytest.mark.parametrize("layout", ["sparse", "dense"])
def test_drives_and_layouts(pbmc, expected, drives, layout, tmp_path):
    with pithead.connect(tmp_path / "data", drives=drives) as conn:
        ds = cell.load(conn, pbmc, "lab.pbmc", layout=layout, slice_rows=50)
        same(asked(ds), expected)
        back = ds.to_anndata()
        np.testing.assert_array_equal(back.raw.X.toarray(), pbmc.raw.X.toarray())
        np.testing.assert_array_equal(back.X.toarray(), pbmc.X)


@pytest.mark.parametrize(
    "setting", ["pithead.level = 0", "pithead.level = 2", "pithead.level = 3", "pithead.pushdown = off"]
)
def test_levels_and_no_push_down(pbmc, expected, setting):
    with pithead.connect() as conn:
        ds = cell.load(conn, pbmc, "lab.pbmc", slice_rows=50)
        conn.sql(f"SET {setting}")
        same(asked(ds), expected)


@pytest.mark.parametrize("codec", ["zstd", "none"])
def test_codecs(pbmc, expected, codec):
    with pithead.connect() as conn:
        same(asked(cell.load(conn, pbmc, "lab.pbmc", codec=codec)), expected)


def test_scanpy_takes_what_comes_back(pbmc, expected):
    adata = pbmc.copy()
    sc.tl.rank_genes_groups(adata, "bulk_labels", method="t-test")
    same_as_scanpy(expected[0], adata)


def test_another_pairing_reads_no_slice(pbmc):
    with pithead.connect() as conn:
        ds = cell.load(conn, pbmc, "lab.pbmc", slice_rows=50)
        first = cell.tl.rank_genes_groups(ds, "bulk_labels")
        again = cell.tl.rank_genes_groups(ds, "bulk_labels", reference="CD19+ B", groups=["Dendritic"], method="student")
        assert first.profile["slices_read"] > 0 and again.profile["slices_read"] == 0
        assert "accumulate" in again.explain()


def binary():
    """The program, for drives of their own."""
    root = Path(__file__).parents[3]
    target = Path(os.environ.get("CARGO_TARGET_DIR", root / "target"))
    found = [os.environ.get("PITHEAD_BIN"), target / "release/pithead", shutil.which("pithead")]
    return next((str(path) for path in found if path and Path(path).exists()), None)


class Drive:
    """A drive in a process of its own."""

    def __init__(self, folder):
        self.address = f"127.0.0.1:{free_port()}"
        self.folder = folder
        self.start()

    def start(self):
        command = [binary(), "drive", "serve", "--data", str(self.folder), "--listen", self.address]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        for line in self.process.stderr:
            if re.search(r"listen|serv", line):
                return
        raise AssertionError(f"the drive at {self.address} ended with {self.process.wait()}")

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.process.stderr.close()


@pytest.mark.skipif(binary() is None, reason="the program pithead is not built")
def test_drives_of_their_own_that_are_killed(pbmc, expected, tmp_path):
    drives = [Drive(tmp_path / f"drive{number}") for number in range(2)]
    try:
        with pithead.connect([drive.address for drive in drives]) as conn:
            ds = cell.load(conn, pbmc, "lab.pbmc", slice_rows=50)
            same(asked(ds), expected)
        for drive in drives:
            drive.kill()
            drive.start()
        with pithead.connect([drive.address for drive in drives]) as conn:
            ds = cell.open(conn, "lab.pbmc")
            same(asked(ds), expected)
            np.testing.assert_array_equal(ds.to_anndata().X.toarray(), pbmc.X)
    finally:
        for drive in drives:
            drive.kill()


def test_more_cells_than_one_block_of_a_gene(tmp_path):
    # Positions of cells are delta-coded; here they pass every width.
    from anndata import AnnData

    rng = np.random.default_rng(0)
    values = (
        sparse.random(70_000, 40, density=0.02, random_state=0, data_rvs=lambda n: rng.integers(1, 70_000, n))
        .tocsr()
        .astype(np.float32)
    )
    values[69_999, 3] = 70_001
    values.sort_indices()
    adata = AnnData(values)
    adata.obs["g"] = np.where(np.arange(70_000) % 7 == 0, "a", "b")
    with pithead.connect(tmp_path / "data", drives=2) as conn:
        ds = cell.load(conn, adata, "lab.large", kind="counts")
        assert (values != ds.to_anndata().X).nnz == 0
        result = cell.tl.rank_genes_groups(ds, "g")
        same_as_scipy(result, values.toarray(), adata.obs["g"].to_numpy(), "t-test")
        cell.pp.log1p(ds)
        sc.pp.log1p(adata)
        sc.pp.pca(adata, n_comps=5)
        ours = cell.pp.pca(ds, n_comps=5, svd_solver="arpack")
        np.testing.assert_allclose(ours.variance, adata.uns["pca"]["variance"], rtol=1e-3)
