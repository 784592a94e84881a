"""Plots, and the command line with its exit codes."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import pithead
from pithead import cell
from pithead.cell import __main__ as command

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
