"""Readers: files of every kind that is read, in pieces, and what is said of those that are wrong."""

from __future__ import annotations

import gzip
import zipfile

import h5py
import numpy as np
import pandas as pd
import pytest
from scipy import io, sparse
from test_dataset import same

import pithead
from pithead import cell
from pithead.cell.io import _load, _source


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    """Pieces so small that every matrix comes in several."""
    for module in (_source, cell.io._h5ad):
        monkeypatch.setattr(module, "NONZEROS_MAX", 100)


def stored(conn, source, **how):
    return cell.load(conn, source, "lab.d", **how).to_anndata()


@pytest.mark.parametrize(
    "make",
    [
        sparse.csr_matrix,
        sparse.csc_matrix,
        sparse.coo_matrix,
        lambda x: x.toarray(),
        lambda x: np.asfortranarray(x.toarray()),
    ],
)
def test_anndata_and_h5ad_of_each_layout(conn, counts, tmp_path, make):
    import anndata

    counts.X = make(counts.X) if make is not sparse.coo_matrix else counts.X
    if make is sparse.coo_matrix:
        counts.X = sparse.csr_matrix(make(counts.X))
    same(stored(conn, counts).X, counts.X)
    path = tmp_path / "a.h5ad"
    counts.write_h5ad(path, compression="gzip")
    back = stored(conn, path, mode="replace")
    same(back.X, counts.X)
    same(back.raw.X, counts.raw.X)
    same(back.layers["noise"], counts.layers["noise"])
    same(back.obsm["X_umap"], counts.obsm["X_umap"])
    pd.testing.assert_frame_equal(back.obs, counts.obs)
    backed = anndata.read_h5ad(path, backed="r")
    same(stored(conn, backed, mode="replace").X, counts.X)
    backed.file.close()


def test_scanpys_own_file_of_an_old_format(conn):
    scanpy = pytest.importorskip("scanpy")
    path = next(iter(__import__("pathlib").Path(scanpy.__file__).parent.glob("datasets/10x_pbmc68k_reduced.h5ad")))
    expected = scanpy.datasets.pbmc68k_reduced()
    back = stored(conn, path)
    same(back.X, expected.X)
    same(back.raw.X, expected.raw.X)
    assert list(back.obs["bulk_labels"].cat.categories) == list(expected.obs["bulk_labels"].cat.categories)
    assert back.obs["louvain"].tolist() == expected.obs["louvain"].tolist()
    same(back.obsm["X_umap"], expected.obsm["X_umap"])


def test_which_layers_and_what_cannot_be_kept(conn, counts):
    counts.obsp["near"] = sparse.eye(60, format="csr")
    counts.uns["function"] = {"a": 1, "odd": object()}
    ds = cell.load(conn, counts, "lab.d", layers=[], raw=False)
    assert ds.layers == () and ds.raw is None
    assert ds.loaded["dropped"] == ["obsp['near']", "uns.function.odd"]
    assert ds.uns["function"] == {"a": 1}
    with pytest.raises(pithead.UserError, match="has no layer 'x'; it has: noise"):
        cell.load(conn, counts, "lab.e", layers=["x"])


def tenx_folder(tmp_path, ending, kinds=None, symbols=("S0", "S1", "S1", "S3")):
    rng = np.random.default_rng(1)
    values = rng.poisson(1.0, (6, 4))
    folder = tmp_path / "tenx"
    folder.mkdir()
    write = (
        (lambda name, text: (folder / (name + ".gz")).write_bytes(gzip.compress(text.encode())))
        if ending
        else (lambda name, text: (folder / name).write_text(text))
    )
    io.mmwrite(folder / "m.mtx", sparse.coo_matrix(values.T), field="integer")
    write("matrix.mtx", (folder / "m.mtx").read_text())
    (folder / "m.mtx").unlink()
    rows = [f"ENSG{i}\t{symbol}" + (f"\t{kinds[i]}" if kinds else "") for i, symbol in enumerate(symbols)]
    write("features.tsv" if kinds else "genes.tsv", "\n".join(rows) + "\n")
    write("barcodes.tsv", "".join(f"AC{i}-1\n" for i in range(6)))
    return folder, values


@pytest.mark.parametrize("ending", ["", ".gz"])
@pytest.mark.parametrize(
    "kinds", [None, ["Gene Expression"] * 4, ["Gene Expression", "Antibody Capture", "Gene Expression", "Gene Expression"]]
)
def test_10x_folders(conn, tmp_path, ending, kinds):
    folder, values = tenx_folder(tmp_path, ending, kinds)
    back = stored(conn, folder)
    keep = [i for i in range(4) if not kinds or kinds[i] == "Gene Expression"]
    same(back.X, values[:, keep])
    assert list(back.var_names) == [f"ENSG{i}" for i in keep]
    assert back.var["gene_symbols"].tolist() == [["S0", "S1", "S1", "S3"][i] for i in keep]
    assert list(back.obs_names) == [f"AC{i}-1" for i in range(6)]
    if kinds:
        same(stored(conn, cell.read_10x_mtx(folder, gex_only=False), mode="replace").X, values)


def test_10x_names_that_come_again_are_an_error(conn, tmp_path):
    folder, values = tenx_folder(tmp_path, "")
    with pytest.raises(pithead.UserError, match="gene 'S1' is in row 2 and again in row 3") as fault:
        cell.load(conn, cell.read_10x_mtx(folder, var_names="gene_symbols"), "lab.d")
    assert "make_unique" in fault.value.hint
    back = stored(conn, cell.read_10x_mtx(folder, var_names="gene_symbols"), make_unique=True)
    assert list(back.var_names) == ["S0", "S1", "S1-1", "S3"]
    same(back.X, values)


def test_10x_files_that_do_not_belong_together(conn, tmp_path):
    folder, _ = tenx_folder(tmp_path, "")
    (folder / "barcodes.tsv").write_text("AC0-1\nAC1-1\n")
    with pytest.raises(
        pithead.UserError,
        match=r"matrix.mtx is a matrix of 4 × 6, but .*barcodes.tsv has 2 cells and .*genes.tsv has 4 genes",
    ):
        cell.load(conn, folder, "lab.d")
    (folder / "barcodes.tsv").unlink()
    with pytest.raises(pithead.UserError, match="has no barcodes.tsv"):
        cell.load(conn, folder, "lab.d")
    (folder / "barcodes.tsv").write_text("AC0-1\n" * 6)
    with pytest.raises(pithead.UserError, match="cell 'AC0-1' is in row 1 and again in row 2"):
        cell.load(conn, folder, "lab.d")
    assert not list(conn.datasets("lab"))


def test_10x_entries_that_are_cut_off_are_seen(conn, tmp_path):
    folder, _ = tenx_folder(tmp_path, "", ["Gene Expression", "Antibody Capture", "Gene Expression", "Gene Expression"])
    lines = (folder / "matrix.mtx").read_text().splitlines(keepends=True)
    (folder / "matrix.mtx").write_text("".join(lines[:-2]))
    with pytest.raises(pithead.UserError, match="where its head says"):
        cell.load(conn, folder, "lab.d")
    (folder / "matrix.mtx").write_text("something else\n")
    with pytest.raises(pithead.UserError, match="does not begin with"):
        cell.load(conn, folder, "lab.d")


@pytest.mark.parametrize("version", [2, 3])
def test_10x_hdf5(conn, tmp_path, version):
    values = np.random.default_rng(2).poisson(1.0, (200, 4)).astype(np.int32)
    csr = sparse.csr_matrix(values)
    path = tmp_path / "f.h5"
    with h5py.File(path, "w") as file:
        group = file.create_group("matrix" if version == 3 else "GRCh38")
        names = [f"ENSG{i}".encode() for i in range(4)]
        group["barcodes"] = [f"AC{i}-1".encode() for i in range(200)]
        for name in ("data", "indices", "indptr"):
            group[name] = getattr(csr, name)
        group["shape"] = [4, 200]
        if version == 3:
            group["features/id"], group["features/name"] = names, [b"S0", b"S1", b"S1", b"S3"]
            group["features/feature_type"] = [b"Gene Expression"] * 3 + [b"Antibody Capture"]
            group["features/genome"] = [b"GRCh38"] * 4
        else:
            group["genes"], group["gene_names"] = names, [b"S0", b"S1", b"S1", b"S3"]
    back = stored(conn, path)
    same(back.X, values[:, : 3 if version == 3 else 4])
    if version == 3:
        same(stored(conn, cell.read_10x_h5(path, gex_only=False), mode="replace").X, values)
    with h5py.File(path, "a") as file:
        group = file["matrix" if version == 3 else "GRCh38"]
        group["indptr"][-1] = 10**6
    with pytest.raises(pithead.UserError, match="indptr asks for values up to 1000000"):
        cell.load(conn, path, "lab.other")


def scea_folder(tmp_path, design=True):
    folder = tmp_path / "scea"
    folder.mkdir()
    values = np.random.default_rng(3).poisson(1.0, (5, 3)).astype(float)
    stem = "E-TEST-1.aggregated_filtered_counts.mtx"
    io.mmwrite(folder / stem, sparse.coo_matrix(values.T))
    io.mmwrite(folder / "E-TEST-1.aggregated_filtered_normalised_counts.mtx", sparse.coo_matrix(values.T / 2))
    for matrix in (stem, "E-TEST-1.aggregated_filtered_normalised_counts.mtx"):
        (folder / f"{matrix}_rows").write_text("".join(f"ENSG{i}\tENSG{i}\n" for i in range(3)))
        (folder / f"{matrix}_cols").write_text("".join(f"SAMEA-{i}\n" for i in range(5)))
    if design:
        rows = [f"SAMEA-{i}\t{'blood' if i % 2 else 'liver'}\t{20 + i}\n" for i in (4, 3, 2, 1, 0, 9)]
        (folder / "ExpDesign-E-TEST-1.tsv").write_text(
            "Assay\tSample Characteristic[organ]\tSample Characteristic[age]\n" + "".join(rows)
        )
    return folder, values


@pytest.mark.parametrize("zipped", [False, True])
def test_downloads_of_the_atlas(conn, tmp_path, zipped):
    folder, values = scea_folder(tmp_path)
    source = folder
    if zipped:
        source = tmp_path / "e.zip"
        with zipfile.ZipFile(source, "w") as archive:
            for each in folder.iterdir():
                archive.write(each, f"../{each.name}")
    back = stored(conn, source)
    same(back.X, values)
    assert back.obs["Sample Characteristic[organ]"].tolist() == ["liver", "blood", "liver", "blood", "liver"]
    assert back.obs["Sample Characteristic[age]"].tolist() == [20, 21, 22, 23, 24]
    same(stored(conn, cell.read_scea(source, matrix="normalised"), mode="replace").X, values / 2)


def test_downloads_of_the_atlas_that_lack_something(conn, tmp_path):
    folder, _ = scea_folder(tmp_path)
    design = folder / "ExpDesign-E-TEST-1.tsv"
    design.write_text("Assay\torgan\nSAMEA-0\tliver\n")
    with pytest.warns(UserWarning, match="has no line for 4 of 5 cells"):
        assert stored(conn, folder).obs["organ"].isna().sum() == 4
    design.write_text("Assay\torgan\nother\tliver\n")
    with pytest.raises(pithead.UserError, match="describes none of the matrix's cells"):
        cell.load(conn, folder, "lab.e")
    design.write_text("Assay\torgan\nSAMEA-0\tliver\nSAMEA-0\tblood\n")
    with pytest.raises(pithead.UserError, match="'SAMEA-0' is in line 2 and again in line 3"):
        cell.load(conn, folder, "lab.e")
    (folder / "E-TEST-1.aggregated_filtered_counts.mtx_rows").unlink()
    with pytest.raises(pithead.UserError, match="mtx_rows, which says what"):
        cell.load(conn, folder, "lab.e")
    (tmp_path / "broken.zip").write_bytes(b"PK\x03\x04 not a zip")
    with pytest.raises(pithead.UserError, match="is no zip that can be read"):
        cell.load(conn, tmp_path / "broken.zip", "lab.e")


@pytest.mark.parametrize("dtype", ["?", "i1", "u2", "f2", ">f4", ">f8", ">i4", "g"])
@pytest.mark.parametrize("kind", ["auto", "counts"])
def test_numbers_of_any_type(conn, counts, tmp_path, dtype, kind):
    """Those that the writer does not take were said to be no array."""
    from anndata import AnnData

    expected = counts.X.toarray() % 2
    for make in (np.asarray, sparse.csr_matrix, sparse.csc_matrix):
        source = make(expected)
        if make is np.asarray:
            source = source.astype(dtype)
        else:
            # scipy makes no matrix of some of these types, but files have them.
            source.data = source.data.astype(dtype)
        adata = AnnData(source)
        adata.obsm["X_half"] = (expected[:, :2] / 2).astype(dtype if np.dtype(dtype).kind == "f" else "f4")
        back = stored(conn, adata, mode="replace", kind=kind)
        same(back.X, expected)
        same(back.obsm["X_half"], expected[:, :2] / 2)
        if dtype != "g":
            adata.write_h5ad(tmp_path / "a.h5ad")
            same(stored(conn, tmp_path / "a.h5ad", mode="replace", kind=kind).X, expected)


@pytest.mark.parametrize("dtype", ["u1", "u2", "u4", "u8", "i2", ">i4", ">i8", ">u8"])
@pytest.mark.parametrize("make", [sparse.csr_matrix, sparse.csc_matrix])
def test_indices_of_any_type(conn, counts, tmp_path, dtype, make):
    counts.X = make(counts.X)
    path = tmp_path / "a.h5ad"
    counts.write_h5ad(path)
    with h5py.File(path, "a") as file:
        for part in ("X/indices", "X/indptr"):
            held = file[part][:]
            del file[part]
            file[part] = held.astype(dtype if part == "X/indices" else ">i8")
    same(stored(conn, path).X, counts.X)


def test_columns_of_another_order_of_bytes(conn, counts):
    counts.obs["swapped"] = np.arange(60, dtype=">f8")
    assert cell.load(conn, counts, "lab.d").obs["swapped"].tolist() == list(range(60))


@pytest.mark.parametrize("make", [np.asarray, sparse.csr_matrix, sparse.csc_matrix])
def test_values_that_are_no_numbers(conn, counts, make):
    from anndata import AnnData

    adata = AnnData(make(counts.X.toarray().astype(np.complex64)))
    with pytest.raises(pithead.UserError, match="AnnData: X holds values of the type complex64, not numbers") as fault:
        cell.load(conn, adata, "lab.d")
    assert fault.value.hint
    assert not list(conn.datasets("lab"))


def test_what_cannot_be_stored_is_said_before_a_matrix_is_read(conn, counts, monkeypatch):
    """It was an error of the last table, when all matrices had been read and written."""
    monkeypatch.setattr(_load, "_taken", lambda *_: pytest.fail("a matrix is read"))
    with pytest.raises(pithead.UserError, match="metadata: expected texts, got 'donors': 3") as fault:
        cell.load(conn, counts, "lab.d", metadata={"donors": 3})
    assert "json.dumps" in fault.value.hint
    with pytest.raises(pithead.UserError, match="'a/b'|\"a/b\""):
        cell.load(conn, counts, "lab.a/b")
    for held, part in ((counts.layers, "layers.a/b"), (counts.obsm, "obsm.a/b")):
        held["a/b"] = np.zeros((60, 25))
        with pytest.raises(pithead.UserError, match=f"AnnData: {part} cannot be kept: .*is not a name") as fault:
            cell.load(conn, counts, "lab.d")
        assert fault.value.hint == "give it, or the dataset, another name"
        del held["a/b"]
    assert not list(conn.datasets())


def test_h5ad_that_is_cut_off(conn, counts, tmp_path):
    path = tmp_path / "a.h5ad"
    counts.write_h5ad(path)
    whole = path.read_bytes()
    for share in (0.0, 0.01, 0.5, 0.9, 0.999):
        path.write_bytes(whole[: int(len(whole) * share)])
        with pytest.raises(pithead.UserError, match=r"a\.h5ad") as fault:
            cell.load(conn, path, "lab.d")
        assert "copy it again" in fault.value.hint
    assert not list(conn.datasets("lab"))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: f["X"].attrs.__setitem__("shape", [60, 24]), "X is 60 × 24; its tables have 60 cells and 25 genes"),
        (lambda f: f["X/indptr"].__setitem__(-1, 10**6), "indptr asks for values up to 1000000"),
        (lambda f: f["X/indptr"].__setitem__(3, 0), "or it goes back"),
        (lambda f: f["X/indices"].__setitem__(5, 99), "column 99 of a matrix with 25 columns"),
        (lambda f: f["X/indices"].__setitem__(5, -1), "column -1 of a matrix with 25 columns"),
        (lambda f: f.__delitem__("X"), "has no X"),
        (lambda f: f.__delitem__("var"), "has no var"),
        (lambda f: f["X"].attrs.__setitem__("encoding-type", "dok"), "stored as dok"),
    ],
)
def test_h5ad_that_disagrees_with_itself(conn, counts, tmp_path, damage, message):
    path = tmp_path / "a.h5ad"
    counts.write_h5ad(path)
    with h5py.File(path, "a") as file:
        damage(file)
    with pytest.raises(pithead.UserError, match=message) as fault:
        cell.load(conn, path, "lab.d")
    assert fault.value.hint
    assert not list(conn.datasets("lab"))


def test_a_failed_load_leaves_nothing(conn, counts, monkeypatch):
    # The last part is X; a fault there must take away what came before it.
    def fails(ours, writer, name, key, *rest):
        if key == "X":
            raise KeyboardInterrupt
        return written(ours, writer, name, key, *rest)

    written = _load._written
    monkeypatch.setattr(_load, "_written", fails)
    with pytest.raises(KeyboardInterrupt):
        cell.load(conn, counts, "lab.d")
    assert not list(conn.datasets("lab"))
    monkeypatch.setattr(_load, "_written", written)
    before = cell.load(conn, counts, "lab.d")
    monkeypatch.setattr(_load, "_written", fails)
    with pytest.raises(KeyboardInterrupt):
        cell.load(conn, counts[:5].copy(), "lab.d", mode="replace")
    monkeypatch.setattr(_load, "_written", written)
    assert len(list(conn.datasets("lab"))) == 7
    assert cell.open(conn, "lab.d").obs.equals(before.obs)


def test_parts_that_a_killed_load_has_left_are_no_obstacle(conn, counts, monkeypatch):
    def killed(ours, writer, name, key, *rest):
        if key == "X":
            ours.made.clear()
            raise KeyboardInterrupt
        return written(ours, writer, name, key, *rest)

    written = _load._written
    monkeypatch.setattr(_load, "_written", killed)
    with pytest.raises(KeyboardInterrupt):
        cell.load(conn, counts, "lab.d")
    monkeypatch.setattr(_load, "_written", written)
    assert len(list(conn.datasets("lab"))) == 6
    assert cell.load(conn, counts, "lab.d").n_obs == 60
    cell.drop(conn, "lab.d")
    assert not list(conn.datasets("lab"))


@pytest.mark.parametrize("value", [-1, 0.5, np.nan, np.inf])
@pytest.mark.parametrize("make", [sparse.csr_matrix, sparse.csc_matrix, np.asarray])
def test_what_is_no_count_is_named(conn, counts, value, make):
    values = counts.X.toarray()
    values[17, 8] = value
    counts.X = make(values)
    counts = counts.copy()
    del counts.layers["noise"]
    with pytest.raises(pithead.UserError, match=r"cell 'cell17' \(row 18\) and gene 'gene8' \(column 9\) is no count"):
        cell.load(conn, counts, "lab.d", kind="counts")
    if np.isfinite(value):
        ds = cell.load(conn, counts, "lab.d")
        assert cell.ls(conn, "lab")["kind"].tolist() == ["floats"]
        same(ds.to_anndata().X, values)


@pytest.mark.parametrize("shape", [(0, 4), (5, 0), (0, 0)])
@pytest.mark.parametrize("make", [sparse.csr_matrix, sparse.csc_matrix, np.zeros])
def test_nothing_is_loaded_and_comes_back(conn, shape, make):
    from anndata import AnnData

    adata = AnnData(
        make(shape),
        obs=pd.DataFrame(index=[f"c{i}" for i in range(shape[0])]),
        var=pd.DataFrame(index=[f"g{i}" for i in range(shape[1])]),
    )
    ds = cell.load(conn, adata, "lab.d")
    assert ds.shape == shape and ds.to_anndata().shape == shape


def test_tables_keep_types_and_names(conn):
    from anndata import AnnData

    obs = pd.DataFrame(
        {
            "cell": [1, 2, 3],
            "pithead_total": [1.5, np.nan, 2.5],
            "nullable": pd.array([1, None, 3], dtype="Int64"),
            "truth": pd.array([True, None, False], dtype="boolean"),
            "text": ["a", None, "b"],
            "when": pd.to_datetime(["2024-01-01", "2024-01-02", None]),
            "numbers": pd.Categorical([3, 1, None], categories=[3, 2, 1], ordered=True),
            "half": np.array([1, 2, 3], dtype=np.float16),
            "tiny": np.array([1, 2, 3], dtype=np.int8),
            "empty": [None, None, None],
            'quo"ted name': [1, 2, 3],
        },
        index=["x", "y", "z"],
    )
    obs.index.name = "barcode"
    ds = cell.load(conn, AnnData(np.eye(3, dtype=np.float32), obs=obs), "lab.d")
    back = ds.obs
    assert list(back.columns) == list(obs.columns) and back.index.equals(obs.index) and back.index.name == "barcode"
    for name in obs.columns:
        assert back[name].dtype == obs[name].dtype, name
        assert back[name].isna().tolist() == obs[name].isna().tolist(), name
        assert back[name].dropna().tolist() == obs[name].dropna().tolist(), name
    assert back["numbers"].cat.ordered and list(back["numbers"].cat.categories) == [3, 2, 1]
    obs["mixed"] = [1, "a", [2]]
    with pytest.raises(pithead.UserError, match="column 'mixed' holds values of several kinds"):
        cell.load(conn, AnnData(np.eye(3, dtype=np.float32), obs=obs), "lab.e")


def test_weak_drives_get_no_codec():
    from types import SimpleNamespace

    def codec(*shares):
        status = [(f"drive {i}", f'{{"cpu_share": {share}}}', True) for i, share in enumerate(shares)]
        native = SimpleNamespace(status=lambda: [*status, ("away", "cannot be reached", False)])
        return _load.codec_for(SimpleNamespace(_native=native))

    assert codec(1.0, 0.25) == "zstd"
    assert codec(1.0, 1 / 15) == "none"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("nowhere.h5ad", "there is no file or folder nowhere.h5ad"),
        (__file__, "what is it"),
        (42, "an? int is no dataset of cells"),
    ],
)
def test_sources_that_are_none(conn, source, message):
    with pytest.raises(pithead.UserError, match=message):
        cell.load(conn, source, "lab.d")


def test_progress_is_told(conn, counts):
    told = []
    cell.load(conn, counts, "lab.d", progress=lambda what, done, total: told.append((what, done, total)))
    assert [each for each in told if each[0] == "reading X"][-1][1:] == (counts.X.nnz, counts.X.nnz)
    assert len([each for each in told if each[0] == "reading X"]) > 3
