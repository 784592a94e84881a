"""Hints of the engine, which are written for the command line, in words of Python."""

from __future__ import annotations

# The engine's words and ours, longer ones first.
_WORDS = (
    ("load with --append to add to it, or --replace to start anew", 'mode="append" adds to it, mode="replace" starts anew'),
    ("load without --append to make it", 'mode="create" makes it'),
    ("load with --replace", 'load with mode="replace"'),
    ("leave the option out", "leave the argument out"),
    ("try --encoding arrow", 'try encoding="arrow"'),
    ("name it with --format parquet, csv, json or arrow", "give files whose names end with .parquet, .csv, .jsonl or .arrow, or a table"),
    (
        "--csv-null of load, and nullstr of read_csv, name what stands for NULL",
        "nullstr of read_csv names what stands for NULL, and a table that pyarrow or pandas read from it has the types that you say",
    ),
    ("and --csv-null of load,", "and a table that pyarrow read from it,"),
    ("pithead ls shows which", "conn.datasets() shows which"),
    ("`pithead log --forget`", '`conn.sql("ALTER DOMAIN main FORGET HISTORY")`'),
    ("`pithead status` shows the drives", "conn.drives() shows the drives"),
    ("this one another --data directory", "this one another directory"),
    ("`pithead --version` shows it", "pithead.__version__ shows it"),
    ("--token-file FILE or PITHEAD_TOKEN_FILE", "token=… or PITHEAD_TOKEN"),
    ("connect without --tls-ca", "connect without ca=…"),
    ("the CA of --tls-ca", "the CA of ca=…"),
    ("--tls-ca FILE", 'ca="FILE"'),
    ("--insecure connects", "insecure=True connects"),
    ("name one: --tls-cert FILE --tls-key FILE", 'name one: cert="FILE", key="FILE"'),
    ("--client-ca: --tls-cert FILE --tls-key FILE", '--client-ca: cert="FILE", key="FILE"'),
)


def in_python(hint: str) -> str:
    """The hint as a Python program can follow it.

    >>> in_python("leave the option out, or load with --replace")
    'leave the argument out, or load with mode="replace"'
    """
    if hint == "pithead ls":
        return "conn.datasets() lists those that are there"
    for theirs, ours in _WORDS:
        hint = hint.replace(theirs, ours)
    return hint
