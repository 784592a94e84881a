"""Plots, and the command line with its exit codes."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import h5py
import numpy as np
import pandas as pd
import pytest
from scipy import sparse

import pithead
from pithead import cell
from pithead.cell import __main__ as command
from pithead.cell import _command_words

pytestmark = pytest.mark.filterwarnings("ignore")


def test_a_volcano_names_the_strongest(conn, counts, tmp_path):
    ds = cell.load(conn, counts, "lab.pbmc", raw=False)
    cell.pp.log1p(ds)
    result = cell.tl.rank_genes_groups(ds, "kind")
    for ending in ("png", "svg", "pdf"):
        path = tmp_path / f"v.{ending}"
        figure = cell.pl.volcano(
            result, "B", path=path, pval_cutoff=1.1, log2fc_cutoff=0.1, n_labels=2, gene_symbols="symbol"
        )
        assert path.stat().st_size > 1000
    table = result.df("B")
    up = table[(table["pvals_adj"] < 1.1) & (table["logfoldchanges"] >= 0.1)]
    named = {text.get_text() for text in figure.axes[0].texts}
    strongest = up[up["pvals_adj"] == up["pvals_adj"].min()]["names"]
    assert named & {f"S{name.removeprefix('gene')}" for name in strongest} and len(named) <= 4
    assert figure.axes[0].get_title() == "B against all other cells (t-test)"
    with pytest.raises(pithead.UserError, match="not written in that format"):
        cell.pl.volcano(ds, "B", path="v.txt")
    with pytest.raises(pithead.UserError, match="no ranked genes"):
        cell.pl.volcano(cell.open(conn, "lab.pbmc"), "B")


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Runs a command over one data directory; gives back exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    for name in ("PITHEAD_DATA", "PITHEAD_DRIVES"):
        monkeypatch.delenv(name, raising=False)

    def run(*argv):
        code = command.main(list(map(str, argv)))
        out = capsys.readouterr()
        return code, out.out, out.err

    return run


def test_the_command_line_from_load_to_drop(run, counts, tmp_path):
    counts.write_h5ad(tmp_path / "a.h5ad")
    code, out, err = run("load", "lab.a", "a.h5ad", "--meta", "tissue=blood", "--no-raw")
    assert (code, out) == (0, "") and "lab.a: 60 cells × 25 genes" in err
    code, out, _ = run("ls")
    assert code == 0 and "lab.a" in out and "noise" in out
    code, out, _ = run("show", "lab.a")
    assert (
        code == 0 and "Dataset lab.a with n_obs × n_vars = 60 × 25" in out and "tissue: blood" in out and "obs.kind: " in out
    )
    code, out, _ = run("de", "lab.a", "--groupby", "kind", "--normalize", "--pts")
    table = pd.read_csv(__import__("io").StringIO(out))
    assert code == 0 and len(table) == 75 and table.columns[0] == "group" and table.columns[-1] == "pct_nz_reference"
    code, out, err = run(
        "de",
        "lab.a",
        "--groupby",
        "kind",
        "--group",
        "B",
        "--reference",
        "T",
        "--normalize",
        "-o",
        "b.tsv",
        "--volcano",
        "b.svg",
        "--gene-symbols",
        "symbol",
    )
    assert (code, out) == (0, "") and "25 rows in b.tsv" in err and (tmp_path / "b.svg").exists()
    assert pd.read_csv(tmp_path / "b.tsv", sep="\t")["symbol"].str.startswith("S").all()
    code, _, _ = run(
        "de", "lab.a", "--groupby", "kind,donor", "--normalize", "--where", "good = True", "--n-genes", 3, "-o", "b.parquet"
    )
    assert code == 0 and len(pd.read_parquet(tmp_path / "b.parquet")) == 18
    code, out, _ = run("de", "lab.a", "--groupby", "kind", "--explain")
    assert code == 0 and "accumulate" in out
    assert run("drop", "lab.a")[0] == 0
    assert run("ls")[1] == ""


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["load", "lab.a", "nowhere.h5ad"], "error: there is no file nowhere.h5ad"),
        (["load", "lab.a", "nowhere"], "error: there is no file or folder nowhere"),
        (["load", "lab.a", "a.h5ad", "--meta", "x"], "error: --meta x\nhint: write it as KEY=VALUE"),
        (["show", "lab.a"], "error: there is no dataset lab.a; the datasets of cells are: none\nhint: load one"),
        (["de", "lab.a", "--groupby", "kind", "--volcano", "v.svg"], "error: --volcano is of one group"),
    ],
)
def test_faults_are_a_line_and_a_hint(run, counts, tmp_path, argv, message):
    counts.write_h5ad(tmp_path / "a.h5ad")
    code, out, err = run(*argv)
    assert (code, out) == (3, "") and err.startswith(message) and "\nhint: " in err


def test_a_plan_is_shown_and_nothing_runs(run, counts, tmp_path, monkeypatch):
    """The test ran first: whoever asked what it would cost paid for it, and groups that no test takes had no plan."""
    counts.obs["few"] = ["alone", *["other"] * 59]
    counts.write_h5ad(tmp_path / "a.h5ad")
    for name in ("lab.a", "lab.b"):
        assert run("load", name, "a.h5ad", "--no-raw")[0] == 0
    monkeypatch.setattr(command.tl, "rank_genes_groups", lambda *_, **__: pytest.fail("the test runs"))
    code, out, _ = run("de", "lab.a", "--groupby", "few", "--explain")
    assert code == 0 and "accumulate" in out
    code, out, _ = run("de", "lab.a", "lab.b", "--groupby", "kind,donor", "--normalize", "--where", "good", "--explain")
    assert code == 0 and out.index("lab.a:") < out.index("lab.b:") and out.count("accumulate") >= 2
    code, _, err = run("de", "lab.a", "--groupby", "nothing", "--explain")
    assert code == 3 and "has no column 'nothing'" in err


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (["de", "lab.a", "--groupby", "few"], "hint: leave them out: --group other --group 'the rest'\n"),
        (["de", "lab.a", "--groupby", "kind", "--group", "C"], "hint: leave out --group to test every group\n"),
        (
            ["de", "lab.a", "--groupby", "kind", "--reference", "C"],
            "error: --reference 'C' is no group of kind; the groups are: T, B, NK\nhint: leave out --reference to take",
        ),
        (["de", "lab.a", "--groupby", "kind", "--layer", "none"], "hint: leave out --layer to take raw or X\n"),
        (["de", "lab.a", "--groupby", "none"], "hint: in Python, ds.set_obs('none', values) adds one\n"),
        (["de", "lab.a", "--groupby", "kind", "--normalize", "--target-sum", "0"], "error: --target-sum 0.0 is no sum"),
        (["de", "lab.a", "--groupby", "kind", "--gene-symbols", "none"], "hint: leave out --gene-symbols to get ids only\n"),
        (["de", "lab.a", "--groupby", "kind"], "are counts, and tests expect logarithms: --normalize takes them, and rewrites"),
        (["de", "lab.b", "--groupby", "kind"], "hint: load one: python -m pithead.cell load lab.b FILE.h5ad\n"),
        (["load", "lab.a", "a.h5ad"], "hint: --replace puts the new one in its place\n"),
        (["load", "lab.b", "a.h5ad", "--layer", "none"], "hint: leave out --layer to take all there are\n"),
        (["load", "lab.b", "a.h5ad", "--kind", "counts"], "hint: --kind floats keeps values of any kind; --kind auto decides"),
    ],
)
def test_hints_are_in_words_of_the_command_line(run, counts, tmp_path, argv, told):
    """`groups=['other']` is of no use to one who types options."""
    counts.obs["few"] = ["alone", *["other"] * 50, *["the rest"] * 9]
    counts.write_h5ad(tmp_path / "a.h5ad")
    assert run("load", "lab.a", "a.h5ad", "--no-raw")[0] == 0
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        _, _, err = run(*argv)
    assert told in err


def test_words_of_the_command_line_are_said_somewhere_in_other_words():
    """What is not said any more needs no other words, and what is said otherwise needs others."""
    folder = Path(command.__file__).parent
    sources = [*folder.rglob("*.py"), folder.parent / "_hints.py"]
    engine = [*(folder.parents[2] / "crates/cell/src").glob("*.rs")]
    text = "".join(path.read_text() for path in sources + engine if path.name != "_command_words.py")
    for theirs, _ in _command_words._WORDS:
        longest = max(re.split(r"\(\?[=<!]|\\.|[^\w '=:;,…]+", theirs), key=len).strip()
        assert len(longest) > 4 and longest in text, theirs


@pytest.mark.parametrize("name", ["f.h5", "f.hdf5", "f.H5"])
def test_options_of_10x_genomics_hold_whatever_the_file_is_called(run, tmp_path, name):
    """Only names that end with .h5 were read with them."""
    with h5py.File(tmp_path / name, "w") as file:
        values = sparse.csr_matrix(np.arange(12).reshape(4, 3))
        for part in ("data", "indices", "indptr"):
            file[f"matrix/{part}"] = getattr(values, part)
        file["matrix/shape"], file["matrix/barcodes"] = [3, 4], [b"A", b"B", b"C", b"D"]
        file["matrix/features/id"], file["matrix/features/name"] = [b"E0", b"E1", b"E2"], [b"S0", b"S1", b"S2"]
        file["matrix/features/feature_type"] = [b"Gene Expression", b"Antibody Capture", b"Gene Expression"]
        file["matrix/features/genome"] = [b"human", b"human", b"mouse"]
    asked = ("--var-names", "gene_symbols", "--all-features", "--genome", "human")
    assert run("load", "lab.a", name, *asked)[0] == 0
    with pithead.connect(tmp_path / "pithead-data") as conn:
        assert cell.open(conn, "lab.a").var_names.tolist() == ["S0", "S1"]


@pytest.mark.parametrize("option", [["--genome", "GRCh38"], ["--var-names", "gene_ids"], ["--all-features"]])
def test_options_that_a_reader_does_not_take_are_refused(run, counts, tmp_path, option):
    counts.write_h5ad(tmp_path / "a.h5ad")
    code, _, err = run("load", "lab.a", "a.h5ad", *option)
    assert code == 3 and err.startswith(f"error: {option[0]} means nothing for a.h5ad, which is read as h5ad\nhint: ")
    assert "10x-h5" in err


def test_exit_codes():
    kinds = {
        "UserError": 3,
        "UnsupportedError": 3,
        "LimitError": 4,
        "ConflictError": 4,
        "AccessError": 5,
        "DriveError": 1,
        "CorruptError": 1,
        "Cancelled": 130,
    }
    for name, code in kinds.items():
        assert command._code(getattr(pithead, name)("x")) == code
    assert command._code(KeyboardInterrupt()) == 130
    with pytest.raises(SystemExit) as fault:
        command.main(["de"])
    assert fault.value.code == 2


def test_zero_p_values_are_drawn(conn, counts, tmp_path):
    ds = cell.load(conn, counts, "lab.pbmc", raw=False)
    result = cell.tl.rank_genes_groups(ds, "kind", layer="noise")
    result.stats["pvals_adj"] = np.where(np.arange(25) == 3, 0.0, result.stats["pvals_adj"])
    result.stats["logfoldchanges"] = np.nan_to_num(result.stats["logfoldchanges"]) + 3
    figure = cell.pl.volcano(result, "B")
    assert np.isfinite(figure.axes[0].get_ylim()).all()
    assert "gene3" in {text.get_text() for text in figure.axes[0].texts}
