"""The command line: `pithead cell load|ls|show|de|drop`, which the program `pithead` starts as `python -m pithead.cell`."""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import pithead
from pithead import UserError

from . import get, io, pl, pp, tl
from ._catalog import Domain, drop, ls
from ._catalog import open as open_dataset
from ._command_words import on_command_line

__all__ = ["main"]

# The name that the user called this by.
_PROG = os.environ.get("PITHEAD_PROG", "python -m pithead.cell")
_EXAMPLES = """examples:
  {prog} load lab.pbmc pbmc.h5ad
  {prog} load lab.e1 filtered_feature_bc_matrix/ --meta donor=d1
  {prog} ls
  {prog} show lab.pbmc
  {prog} de lab.pbmc --groupby cell_type --group B --volcano b.svg
"""
_DE_EXAMPLES = """examples:
  {prog} de lab.pbmc --groupby louvain                       every group against all other cells, to stdout
  {prog} de lab.pbmc --groupby cell_type --group B --reference T -o b.csv
  {prog} de lab.pbmc --groupby cell_type --where "donor = 'd1'" --method wilcoxon --tie-correct -o de.parquet
  {prog} de lab.a lab.b --groupby cell_type --group B        both datasets, genes matched by id
"""
_LOAD_EXAMPLES = """examples:
  {prog} load lab.pbmc pbmc.h5ad --replace
  {prog} load lab.pbmc E-MTAB-5061-marker.zip --drives server1:7433,server2:7433
  {prog} load lab.pbmc filtered_feature_bc_matrix.h5 --kind counts
"""

# The reader of each format, and the options that it takes.
_READERS: dict[str, tuple[Callable[..., io.Source], set[str]]] = {
    "h5ad": (io.read_h5ad, set()),
    "10x-mtx": (io.read_10x_mtx, {"var_names", "gex_only", "spill_dir"}),
    "10x-h5": (io.read_10x_h5, {"var_names", "gex_only", "genome"}),
    "scea": (io.read_scea, {"spill_dir"}),
}
_FLAGS = {"var_names": "--var-names", "genome": "--genome", "gex_only": "--all-features"}


def _parser() -> argparse.ArgumentParser:
    plain = argparse.RawDescriptionHelpFormatter
    where = argparse.ArgumentParser(add_help=False)
    where.add_argument(
        "--data",
        metavar="DIR",
        help="a directory whose drives run in this process (default: $PITHEAD_DATA, else ./pithead-data)",
    )
    where.add_argument("--drives", metavar="HOST:PORT,…", help="drives on the network (default: $PITHEAD_DRIVES)")
    where.add_argument("-q", "--quiet", action="store_true", help="show no progress and no summary")
    parser = argparse.ArgumentParser(
        _PROG, description="Single-cell data on drives.", epilog=_EXAMPLES.replace("{prog}", _PROG), formatter_class=plain
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, does: str, epilog: str | None = None) -> argparse.ArgumentParser:
        return commands.add_parser(
            name,
            help=does,
            description=does[0].upper() + does[1:] + ".",
            parents=[where],
            epilog=epilog and epilog.replace("{prog}", _PROG),
            formatter_class=plain,
        )

    load = command("load", "load a matrix of cells × genes with its tables", _LOAD_EXAMPLES)
    load.add_argument("dataset", help="DOMAIN.NAME or NAME")
    load.add_argument(
        "source", help="an .h5ad, a folder or .h5 of 10x Genomics, a folder or .zip of the Single Cell Expression Atlas"
    )
    load.add_argument("--replace", action="store_true", help="put it in the place of the dataset that is there")
    load.add_argument("--format", choices=list(_READERS), help="what the source is (default: by its name)")
    load.add_argument(
        "--var-names", choices=["gene_ids", "gene_symbols"], help="what identifies genes of 10x Genomics (default: gene_ids)"
    )
    load.add_argument("--genome", help="which genome of a file of 10x Genomics with several")
    load.add_argument("--all-features", action="store_true", help="of 10x Genomics: not gene expression only")
    load.add_argument(
        "--kind", choices=["auto", "counts", "floats"], default="auto", help="what values there are (default: %(default)s)"
    )
    load.add_argument(
        "--codec", choices=["auto", "zstd", "none"], default="auto", help="how slices are compressed (default: %(default)s)"
    )
    load.add_argument(
        "--layout", choices=["sparse", "dense"], default="sparse", help="how genes are stored (default: %(default)s)"
    )
    load.add_argument("--layer", action="append", metavar="NAME", help="load this layer (repeatable; default: all)")
    load.add_argument("--no-layers", action="store_true", help="load no layer")
    load.add_argument("--no-raw", action="store_true", help="do not load raw")
    load.add_argument("--make-unique", action="store_true", help="add -1, -2, … to ids that come again")
    load.add_argument(
        "--meta", action="append", default=[], metavar="KEY=VALUE", help="metadata, kept with the dataset (repeatable)"
    )
    load.add_argument("--spill-dir", metavar="DIR", help="where pieces lie until all are there")
    load.set_defaults(run=_load)

    ls_ = command("ls", "list datasets of cells")
    ls_.add_argument("domain", nargs="?", help="of this domain only")
    ls_.set_defaults(run=_ls)

    show = command("show", "describe a dataset: its parts, metadata and columns")
    show.add_argument("dataset")
    show.set_defaults(run=_show)

    drop_ = command("drop", "drop a dataset of cells with all of its tables")
    drop_.add_argument("dataset")
    drop_.set_defaults(run=_drop)

    de = command("de", "find genes that differ between groups of cells", _DE_EXAMPLES)
    de.add_argument("dataset", nargs="+", help="one or several datasets")
    de.add_argument("--groupby", required=True, metavar="COLUMN[,COLUMN]", help="columns of obs that make groups")
    de.add_argument("--group", action="append", metavar="NAME", help="test this group (repeatable; default: all)")
    de.add_argument(
        "--reference", default="rest", metavar="NAME", help="the group to compare with (default: all other cells)"
    )
    de.add_argument(
        "--method",
        default="t-test",
        choices=["t-test", "t-test_overestim_var", "wilcoxon", "student"],
        help="default: %(default)s",
    )
    de.add_argument("--tie-correct", action="store_true", help="correct for ties (wilcoxon)")
    de.add_argument(
        "--correction",
        default="benjamini-hochberg",
        choices=["benjamini-hochberg", "bonferroni"],
        help="default: %(default)s",
    )
    de.add_argument("--fold-change", default="scanpy", choices=["scanpy", "seurat"], help="default: %(default)s")
    de.add_argument("--layer", help="take this layer, not X or raw")
    de.add_argument("--no-raw", action="store_true", help="take X even where raw is there")
    de.add_argument(
        "--normalize", action="store_true", help="take counts as log1p of shares of --target-sum; nothing is rewritten"
    )
    de.add_argument("--target-sum", type=float, default=1e4, metavar="N", help="for --normalize (default: %(default)g)")
    de.add_argument("--where", metavar="SQL", help="only cells that this condition over obs is true for")
    de.add_argument("--n-genes", type=int, metavar="N", help="genes of each group at most, best first (default: all)")
    de.add_argument("--pval-cutoff", type=float, metavar="P", help="only genes whose adjusted p-value is below")
    de.add_argument("--pts", action="store_true", help="add shares of cells that express a gene")
    de.add_argument("--gene-symbols", metavar="COLUMN", help="a column of var with names of genes to add")
    de.add_argument("-o", "--output", metavar="FILE", help="write to a .csv, .tsv or .parquet (default: CSV to stdout)")
    de.add_argument("--volcano", metavar="FILE", help="plot the group's fold changes, as .png, .svg or .pdf")
    de.add_argument("--explain", action="store_true", help="show where the parts of the query run, and do not run it")
    de.set_defaults(run=_de)
    return parser


def _connect(args: argparse.Namespace) -> Any:
    drives = args.drives or (None if args.data else os.environ.get("PITHEAD_DRIVES"))
    if drives:
        return pithead.connect(drives.split(","))
    return pithead.connect(args.data or os.environ.get("PITHEAD_DATA") or "./pithead-data")


def _say(args: argparse.Namespace, text: str) -> None:
    if not args.quiet:
        print(text, file=sys.stderr)


def _load(args: argparse.Namespace) -> None:
    metadata = {}
    for each in args.meta:
        key, equals, value = each.partition("=")
        if not equals or not key:
            raise UserError(f"--meta {each}", hint="write it as KEY=VALUE")
        metadata[key] = value
    layers: Any = False if args.no_layers else args.layer or True
    with _source(args) as source, _connect(args) as conn:
        dataset = io.load(
            conn,
            source,
            args.dataset,
            mode="replace" if args.replace else "create",
            kind=args.kind,
            codec=args.codec,
            layout=args.layout,
            layers=layers,
            raw=not args.no_raw,
            make_unique=args.make_unique,
            metadata=metadata,
            spill_dir=args.spill_dir,
            progress=False if args.quiet else None,
        )
    told = dataset.loaded
    _say(
        args,
        f"{dataset.name}: {told['n_obs']:,} cells × {told['n_vars']:,} genes, {told['nonzeros']:,} {told['kind']}"
        f" that are not zero, in {told['seconds']:.1f} s; {told['stored_bytes'] / 1e6:.1f} MB stored",
    )
    if told["dropped"]:
        _say(args, "not kept: " + ", ".join(told["dropped"]))


def _source(args: argparse.Namespace) -> io.Source:
    kind = args.format or _format_of(args.source)
    if kind is None:
        # It says what there is to read.
        return io.open_source(args.source)
    reader, takes = _READERS[kind]
    given = {"var_names": args.var_names, "genome": args.genome, "gex_only": False if args.all_features else None}
    given = {name: value for name, value in given.items() if value is not None}
    for name in given:
        if name not in takes:
            other = " or ".join(each for each, (_, options) in _READERS.items() if name in options)
            raise UserError(
                f"{_FLAGS[name]} means nothing for {args.source}, which is read as {kind}",
                hint=f"it goes with --format {other}",
            )
    return reader(args.source, **given, **({"spill_dir": args.spill_dir} if "spill_dir" in takes else {}))


def _format_of(source: str) -> str | None:
    """What a source is by its name, or a folder by the files in it; None where that does not tell."""
    if os.path.isdir(source):
        return "scea" if any(".mtx_rows" in name for name in os.listdir(source)) else "10x-mtx"
    endings = {".h5ad": "h5ad", ".h5": "10x-h5", ".hdf5": "10x-h5", ".zip": "scea"}
    return endings.get(os.path.splitext(source)[1].lower())


def _ls(args: argparse.Namespace) -> None:
    with _connect(args) as conn:
        table = ls(conn, args.domain)
    if len(table):
        print(table.to_string(index=False))
    else:
        _say(args, "there is no dataset of cells")


def _show(args: argparse.Namespace) -> None:
    with _connect(args) as conn:
        dataset = open_dataset(conn, args.dataset)
        print(dataset)
        print(f"source: {dataset.source}")
        for key, value in dataset.metadata.items():
            print(f"{key}: {value}")
        for column in dataset.obs.columns:
            values = dataset.obs[column]
            if str(values.dtype) == "category":
                counts = values.value_counts()
                shown = ", ".join(f"{name} ({count:,})" for name, count in counts.head(8).items())
                print(f"obs.{column}: {shown}" + (f", … {len(counts)} in all" if len(counts) > 8 else ""))
            else:
                print(f"obs.{column}: {values.dtype}")


def _drop(args: argparse.Namespace) -> None:
    with _connect(args) as conn:
        drop(conn, args.dataset)


def _de(args: argparse.Namespace) -> None:
    if args.volcano and (not args.group or len(args.group) != 1):
        raise UserError("--volcano is of one group", hint="name it with --group")
    with _connect(args) as conn:
        selections: list[Any] = [open_dataset(conn, name) for name in args.dataset]
        # Views, so that what is set for this run stays with this run.
        selections = [each.select(args.where) if args.where else each[:] for each in selections]
        for each in selections if args.normalize else []:
            pp.normalize_total(each, target_sum=args.target_sum, layer=args.layer)
            pp.log1p(each, layer=args.layer)
        data = selections[0] if len(selections) == 1 else Domain(selections)
        groupby = args.groupby if "," not in args.groupby else args.groupby.split(",")
        use_raw = False if args.no_raw or args.layer or args.normalize else None
        if args.explain:
            print(tl.explained(data, groupby, use_raw=use_raw, layer=args.layer))
            return
        result = tl.rank_genes_groups(
            data,
            groupby,
            groups=args.group or "all",
            reference=args.reference,
            method=args.method,
            tie_correct=args.tie_correct,
            corr_method=args.correction,
            fold_change=args.fold_change,
            layer=args.layer,
            use_raw=use_raw,
            n_genes=args.n_genes,
            pts=args.pts,
        )
    table = get.rank_genes_groups_df(
        result, args.group or None, pval_cutoff=args.pval_cutoff, gene_symbols=args.gene_symbols
    )
    _write(table, args.output)
    if args.output:
        _say(args, f"{len(table):,} rows in {args.output}")
    if args.volcano:
        pl.volcano(result, args.group[0], path=args.volcano, gene_symbols=args.gene_symbols)
        _say(args, f"plot in {args.volcano}")


def _write(table: Any, path: str | None) -> None:
    if path is None:
        table.to_csv(sys.stdout, index=False)
        return
    writers = {".csv": lambda: table.to_csv(path, index=False), ".tsv": lambda: table.to_csv(path, index=False, sep="\t")}
    writers[".parquet"] = lambda: table.to_parquet(path, index=False)
    ending = os.path.splitext(path)[1].lower()
    if ending not in writers:
        raise UserError(f"{path}: a table is not written in that format", hint="end the name with .csv, .tsv or .parquet")
    try:
        writers[ending]()
    except OSError as fault:
        raise UserError(
            f"{path} cannot be written: {fault}", hint="check that its folder is there and may be written to"
        ) from fault


def _code(fault: BaseException) -> int:
    """The exit code of a fault, as in docs/reference/cli.md."""
    if isinstance(fault, KeyboardInterrupt | pithead.Cancelled):
        return 130
    if isinstance(fault, pithead.UserError | pithead.UnsupportedError):
        return 3
    if isinstance(fault, pithead.LimitError | pithead.ConflictError):
        return 4
    return 5 if isinstance(fault, pithead.AccessError) else 1


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command; gives back its exit code."""
    args = _parser().parse_args(argv)
    warnings.showwarning = lambda message, *_, **__: print(f"note: {on_command_line(str(message), _PROG)}", file=sys.stderr)
    try:
        args.run(args)
    except (pithead.Error, KeyboardInterrupt) as fault:
        print(f"error: {on_command_line(str(fault), _PROG) or 'interrupted'}", file=sys.stderr)
        return _code(fault)
    except BrokenPipeError:
        # Whoever reads stdout has enough, as head has.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


if __name__ == "__main__":
    sys.exit(main())
