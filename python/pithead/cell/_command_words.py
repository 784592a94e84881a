"""What is said in words of Python, in words of the command line `pithead cell`."""

from __future__ import annotations

import ast
import re
import shlex

__all__ = ["on_command_line"]

# What is said where no option of the command line does it.
_PYTHON = "in Python, "
_WORDS: tuple[tuple[str, str], ...] = (
    # Groups, and which matrix.
    (r"groups='all' takes every group", "leave out --group to test every group"),
    (r"reference='rest' takes all other cells", "leave out --reference to take all other cells"),
    (r"\breference=(?=')", "--reference "),
    (r"ds\.set_obs\((?P<column>'[^']*'), values\) adds one", f"{_PYTHON}ds.set_obs(\\g<column>, values) adds one"),
    (r"say use_raw=False, or load", "say --no-raw, or load"),
    (r"layer=None takes X", "leave out --layer to take raw or X"),
    # What is done to values.
    (r"\btarget_sum=(?=[^)]* is no sum)", "--target-sum "),
    (
        r"pp\.untransform\(ds\) takes (that back; then normalize_total, log1p|back what log1p set)",
        "leave out --normalize",
    ),
    (
        r"what is stored was logarithms when it was loaded",
        "leave out --normalize: what is stored was logarithms when it was loaded",
    ),
    (
        r"pithead\.cell\.pp\.normalize_total\(ds\) and pp\.log1p\(ds\) set that, and rewrite nothing",
        "--normalize takes them, and rewrites nothing",
    ),
    (r"(?=pithead\.cell\.pp\.(normalize_total\(ds, |log1p\(ds\) sets that))", _PYTHON),
    (r"(?<!\w)pp\.log1p\(ds, base=…\) sets", f"{_PYTHON}pithead.cell.pp.log1p(ds, base=…) sets"),
    (r" \(result\.dropped names them\)", ""),
    (r"leave gene_symbols out", "leave out --gene-symbols"),
    # Loads.
    (r"mode='replace' \(--replace\) puts", "--replace puts"),
    (r"load (it )?with mode=\"replace\"", r"load \1with --replace"),
    (r"kind='floats' (keeps [^(;]*[^(; ])( \(--kind floats\))?", r"--kind floats \1"),
    (r"kind='auto' decides", "--kind auto decides"),
    (r"with kind=\"floats\"", "with --kind floats"),
    (r"with layout=\"sparse\"", "with --layout sparse"),
    (r"make_unique=True \(--make-unique\) adds", "--make-unique adds"),
    (r"genome='…' says which \(--genome\)", "--genome says which"),
    (r"\(var_names='gene_ids'\)", "(--var-names gene_ids)"),
    (r"layers=True takes all there are", "leave out --layer to take all there are"),
    (r"gex_only=False takes all features", "--all-features takes all of them"),
    (r"as `spill_dir`", "with --spill-dir"),
    (r"pithead\.cell\.read_… reads it whatever its name", "--format says what it is, whatever its name"),
    (r"files of 10x Genomics are read by read_10x_h5", "--format 10x-h5 reads files of 10x Genomics"),
    (r"(?=prefix='…' says)", f"{_PYTHON}pithead.cell.read_10x_mtx takes it: "),
    (r"(?=matrix='…' is part)", f"{_PYTHON}pithead.cell.read_scea takes it: "),
    # What there is.
    (
        r"load one: pithead\.cell\.load\(conn, .*\), or python -m pithead\.cell load (\S+) FILE\.h5ad",
        r"load one: PROG load \1 FILE.h5ad",
    ),
    (
        r"pithead\.cell\.ls\(conn\) lists those that are; pithead\.cell\.load makes one",
        "`PROG ls` lists those that are; `PROG load` makes one",
    ),
    (r"pithead\.cell\.ls\(conn\) lists", "`PROG ls` lists"),
    (r"conn\.drop\('([^']*)'\) drops", r"`pithead drop \1` drops"),
    (r"conn\.datasets\(\) shows which", "`pithead ls` shows which"),
    (r"conn\.drives\(\) shows the drives", "`pithead status` shows the drives"),
    (r"open it again: pithead\.cell\.open\(conn, '[^']*'\)", "begin again"),
    (r"pithead\.cell\.open\(conn, '([^']*)'\) opens what is there now", r"`PROG show \1` shows what is there now"),
)
_GROUPS = re.compile(r"groups=(\[[^\]]*\])")


def on_command_line(text: str, prog: str) -> str:
    """A fault or a warning as one can follow it who has called `prog`.

    >>> on_command_line("leave them out: groups=['C', 'T cell']", "pithead cell")
    "leave them out: --group C --group 'T cell'"
    >>> on_command_line("groups='all' takes every group", "pithead cell")
    'leave out --group to test every group'
    """
    for theirs, ours in _WORDS:
        text = re.sub(theirs, ours.replace("PROG", prog.replace("\\", r"\\")), text)
    return _GROUPS.sub(_options, text)


def _options(found: re.Match[str]) -> str:
    try:
        names = ast.literal_eval(found[1])
    except (SyntaxError, ValueError):
        # A name has a bracket in it.
        return found[0]
    return " ".join(f"--group {shlex.quote(str(name))}" for name in names)
