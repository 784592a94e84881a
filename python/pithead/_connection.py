"""Connections: where statements run."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import tempfile
import weakref
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from . import _arguments, _parameters, _pithead, _progress
from ._errors import UserError
from ._names import quoted
from ._relation import Relation
from ._scope import Frames, frame_of, with_variables
from ._sources import Source, opened
from ._target import target_of


# Registered before any connection's end is, and so called after all of them: their loads are cancelled by then.
atexit.register(_pithead.end_readers)


@dataclass(frozen=True)
class LoadReport:
    """What a load did.

    Attributes
    ----------
    rows, slices
        What was stored.
    source_bytes
        Bytes of the files, or of the batches in memory.
    stored_bytes
        Bytes on the drives' media, of one copy.
    seconds
        From start to visible.
    encoding
        `vortex` or `arrow`.
    note
        Why the encoding is not the default one.
    """

    rows: int
    source_bytes: int
    stored_bytes: int
    slices: int
    seconds: float
    encoding: str
    note: str | None


@dataclass(frozen=True)
class LogEntry:
    """One change of a version of a domain, as `Connection.log` tells of it.

    Attributes
    ----------
    version
        The version that made it.
    time
        When that was, in UTC; None for a version of an earlier release.
    name
        The dataset or view; None where the domain itself was changed.
    change
        What was done, such as `created`, `appended`, `rewritten` or `dropped`.
    rows
        Rows that the dataset had then.
    rows_added, rows_removed
        Rows that it had more than before, and fewer.
    """

    version: int
    time: datetime | None
    name: str | None
    change: str
    rows: int | None
    rows_added: int
    rows_removed: int


@dataclass(frozen=True)
class DatasetInfo:
    """A dataset, as `Connection.datasets` tells of it.

    Attributes
    ----------
    domain, name
        What the dataset is called.
    rows, slices
        What is stored.
    stored_bytes
        Bytes on the drives' media, of one copy.
    encoding
        `vortex` or `arrow`.
    metadata
        What was said of it when it was loaded.
    columns
        Name and Arrow type of each column, in order.
    """

    domain: str
    name: str
    rows: int
    stored_bytes: int
    slices: int
    encoding: str
    metadata: dict[str, str]
    columns: list[tuple[str, str]]

    @property
    def full_name(self) -> str:
        """`domain.name`, as `Connection.load` and `Connection.drop` take it."""
        return f"{self.domain}.{self.name}"


class Connection:
    """A host with its drives; made by `pithead.connect`. Threads may share it.

    Settings that SET changes hold for all threads of the connection. A process that was forked cannot use the connections of the one
    that it was forked from.
    """

    _native: _pithead.Connection

    def __init__(self, native: _pithead.Connection, temporary: str | None = None) -> None:
        self._native = native
        self._registered: Frames = {}
        self._finalizer = weakref.finalize(self, _close, native, temporary, os.getpid())

    def sql(self, query: str, params: Sequence[Any] | Mapping[str, Any] | None = None) -> Relation:
        """A query's result, lazy: it runs when its rows are taken. SET and statements that write run at once, and have no rows.

        Parameters
        ----------
        query
            One statement. Mistakes in it, such as an unknown table, are raised at once.
        params
            A list of values for `$1`, `$2` or `?`, or a dict of values for `$name`.

        >>> conn = pithead.connect()
        >>> conn.sql("SELECT $1 + 1 AS next", [41]).fetchall()
        [(42,)]
        >>> conn.sql("SELECT upper($name) AS name", {"name": "pit"}).fetchone()
        ('PIT',)
        >>> conn.sql("SET pithead.pushdown = off").fetchall()
        []

        A table that no dataset has the name of may be a variable of the caller that holds Arrow data: a frame of pandas or polars, a
        table of pyarrow, a result. It is read as it is now.

        >>> fares = pithead.connect().sql("SELECT 'Oslo' AS city, 7 AS fare")
        >>> conn.sql("SELECT city FROM fares WHERE fare > 5").fetchall()
        [('Oslo',)]
        """
        query = _arguments.text("query", query, "write the statement as a str")
        given = _parameters.given(params)

        def prepare(frames: Frames) -> tuple[_pithead.Statement, Frames]:
            statement = self._native.prepare(query, given, list(frames.items()))
            if statement.columns is None:
                # One that lacks a dataset says so before it changes anything.
                self._native.execute(statement).close()
            return statement, frames

        statement, frames = with_variables(self._native, self._registered, prepare)
        if statement.columns is not None and statement.writes:
            return self._returned(statement)
        return Relation(self, query, given, frames, statement)

    def _returned(self, statement: _pithead.Statement) -> Relation:
        """What a statement with RETURNING gives, which runs once."""
        names = [name for name, _, _ in statement.columns.columns] if statement.columns else []
        if len(set(names)) < len(names):
            raise UserError("RETURNING gives two columns of one name", "give one of them another name by AS")
        frames = {"returned": frame_of(self._native, self._native.execute(statement))}
        query = "SELECT * FROM returned"
        return Relation(self, query, None, frames, self._native.prepare(query, None, list(frames.items())))

    def register(self, name: str, source: Source) -> None:
        """Gives a table in memory a name for the statements of this connection, in place of a dataset `main.name` if there is one.

        Parameters
        ----------
        name
            As statements write it in quotes: a name without quotes is in lower case.
        source
            An object that gives Arrow data, such as a frame of pandas or polars or a table of pyarrow. Its rows are those that it has
            now; they are not copied where that can be helped, so do not change them in place. The index of a frame of pandas is
            left out: `frame.reset_index()` makes columns of it.

        >>> conn = pithead.connect()
        >>> conn.register("one", conn.sql("SELECT 1 AS a"))
        >>> conn.sql("SELECT a FROM one").fetchall()
        [(1,)]
        """
        self._registered[_arguments.text("name", name)] = frame_of(self._native, source)

    def unregister(self, name: str) -> None:
        """Takes the name of a registered table back; one that is none is left as it is. Results that were made of it keep it."""
        self._registered.pop(_arguments.text("name", name), None)

    def execute(self, query: str, params: Sequence[Any] | Mapping[str, Any] | None = None) -> Relation:
        """The same as `sql`, by the name that DB-API programs expect."""
        return self.sql(query, params)

    def executemany(self, query: str, params: Iterable[Sequence[Any] | Mapping[str, Any]]) -> Relation:
        """Runs a statement once for each set of parameters, in their order, and gives what the last one gave.

        Each is a change by itself: where one fails, those before it stay. `load` with mode "append" takes many rows at once, and in
        a fraction of the time.

        Parameters
        ----------
        query
            One statement, with `$1`, `$2` or `?`, or `$name`.
        params
            Lists of values, or dicts of values for `$name`; at least one. All are looked at before the statement runs.

        >>> conn = pithead.connect()
        >>> _ = conn.execute("CREATE TABLE stops (city TEXT, platforms INT)")
        >>> _ = conn.executemany("INSERT INTO stops VALUES (?, ?)", [["Oslo", 19], ["Bergen", 4]])
        >>> conn.sql("SELECT sum(platforms) FROM stops").fetchone()
        (23,)
        """
        sets = _parameters.sets(params)
        for one in sets[:-1]:
            result = self.sql(query, one)
            if result.columns:
                result.fetchall()
        return self.sql(query, sets[-1])

    def table(self, name: str, *, version: int | None = None, time: str | datetime | None = None) -> Relation:
        """All rows of a dataset: `domain.dataset`, or `dataset` of the domain `main`. Names may hold anything but `/`.

        Parameters
        ----------
        name
            The dataset.
        version, time
            As it was in a version of its domain, or at a time; see `log`.

        >>> conn = pithead.connect()
        >>> _ = conn.load("lab.trips.2026", pithead.examples.trips())
        >>> conn.table("lab.trips.2026").columns
        ['city', 'day', 'fare']
        """
        domain, dataset = split_name(_arguments.text("name", name))
        moment = _moment(version, time)
        return self.sql(f"SELECT * FROM {quoted(domain)}.{quoted(dataset)}" + (f" AS OF {moment}" if moment else ""))

    def load(
        self,
        name: str,
        source: Source,
        *,
        mode: str = "create",
        metadata: Mapping[str, str] | None = None,
        partition_by: str | Sequence[str] | None = None,
        sort_by: str | Sequence[str] | None = None,
        slice_rows: int | None = None,
        encoding: str | None = None,
        partitions: int | None = None,
        copies: int | None = None,
        progress: bool | None = None,
    ) -> LoadReport:
        """Loads a dataset. All rows become visible together, or none.

        Parameters
        ----------
        name
            `domain.dataset`, or `dataset` of the domain `main`.
        source
            A path, a glob or several of them (Parquet, CSV, JSON lines, Arrow IPC), also at servers: "https://host/file",
            "s3://bucket/key" or a glob of keys, with the variables of the environment that AWS's tools read; or an object that gives Arrow data, such as a
            pyarrow table or reader, a pandas or polars frame (without its index), or a DuckDB relation. It is streamed. What a reader of pyarrow
            or a result of Pithead raises meanwhile, is raised here.
        mode
            "create", "append" or "replace".
        metadata
            Kept with the dataset; appending adds to it.
        partition_by
            "hash:a,b", "range:a", "round-robin", or columns to hash by. None: by hash of the first column if it looks like a
            key, else round-robin.
        sort_by
            Columns, each with " desc" where the largest are to come first.
        slice_rows
            Rows of a slice at most.
        encoding
            "vortex", "arrow", "parquet", "nsm" or "pax".
        partitions, copies
            Partitions of a new dataset, and drives that each is to be on.
        progress
            Whether to show progress; None: where somebody looks.

        >>> conn = pithead.connect()
        >>> conn.load("trips", pithead.examples.trips(), sort_by="day", metadata={"from": "examples"}).rows
        5
        """
        name = _arguments.text("name", name, 'write it as "domain.dataset"')
        with opened(source) as (files, stream):
            spec = {
                "name": name,
                "sources": files,
                "mode": _arguments.text("mode", mode, 'write "create", "append" or "replace"'),
                "metadata": _arguments.metadata(metadata),
                "partition_by": _partitioning(partition_by),
                "sort_by": _order(sort_by),
                "slice_rows": _count("slice_rows", slice_rows),
                "encoding": None if encoding is None else _arguments.text("encoding", encoding),
                "partitions": _count("partitions", partitions),
                "copies": _count("copies", copies),
            }
            bar = _progress.Bar(f"loading {name}", "B") if _progress.wanted(progress) else None
            try:
                return LoadReport(**self._native.load(spec, stream, bar))
            finally:
                if bar:
                    bar.close()

    def _found(self, name: str) -> _pithead.Found | None:
        """A dataset as it is now, for `_replace`; None: there is none."""
        return self._native.found(name)

    def _replace(self, name: str, source: Source, metadata: dict[str, str], over: _pithead.Found) -> None:
        """Puts other rows in the place of a dataset as it was found, laid out as its rows are.

        Raises ConflictError if anyone has changed it since.
        """
        with opened(source) as (files, stream):
            spec = {
                "name": name,
                "sources": files,
                "mode": "replace",
                "metadata": metadata,
                "partition_by": None,
                "sort_by": [],
                "slice_rows": None,
                "encoding": None,
                "partitions": None,
                "copies": None,
            }
            self._native.load(spec, stream, None, over)

    def datasets(self, domain: str | None = None) -> list[DatasetInfo]:
        """The datasets that there are, of all domains or of one.

        >>> pithead.connect().datasets()
        []
        """
        infos = [DatasetInfo(**facts) for facts in self._native.datasets()]
        return [info for info in infos if domain is None or info.domain == domain]

    def drop(self, name: str, missing_ok: bool = False) -> bool:
        """Drops a dataset. Returns whether it was there; one that is not is an error without `missing_ok`."""
        return self._native.drop(_arguments.text("name", name), bool(missing_ok))

    def log(self, domain: str = "main") -> list[LogEntry]:
        """What the versions of a domain that are kept have changed, the newest first.

        >>> conn = pithead.connect()
        >>> _ = conn.load("trips", pithead.examples.trips())
        >>> [(entry.version, entry.name, entry.change) for entry in conn.log()]
        [(1, 'trips', 'created')]
        """
        rows = self.sql(f"SHOW LOG FROM {quoted(_arguments.text('domain', domain))}").fetchall()
        return [LogEntry(*row) for row in rows]

    def restore(self, name: str, *, version: int | None = None, time: str | datetime | None = None) -> None:
        """Makes a dataset what it was in an older version of its domain, as a new version: also one that was dropped since.

        Parameters
        ----------
        name
            `domain.dataset`, or `dataset` of the domain `main`.
        version, time
            The version, or a time at which it was the newest; see `log`.

        >>> conn = pithead.connect()
        >>> _ = conn.load("trips", pithead.examples.trips())
        >>> conn.drop("trips")
        True
        >>> conn.restore("trips", version=1)
        >>> conn.sql("SELECT count(*) > 0 FROM trips").fetchone()
        (True,)
        """
        moment = _moment(version, time)
        if moment is None:
            raise UserError("expected version=… or time=…", "conn.log() lists the versions that are kept")
        domain, dataset = split_name(_arguments.text("name", name))
        self.sql(f"RESTORE TABLE {quoted(domain)}.{quoted(dataset)} TO {moment}")

    def drives(self) -> dict[str, dict[str, Any]]:
        """How each drive is, by label: its sessions, memory and stored bytes, or under `error` why it does not answer."""
        return {label: json.loads(text) if answers else {"error": text} for label, text, answers in self._native.status()}

    def close(self) -> None:
        """Ends what runs, and the drives inside this process. Temporary data goes. Closing again does nothing."""
        self._finalizer()

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return "<pithead.Connection, closed>" if self._native.is_closed else "<pithead.Connection>"


def connect(
    target: str | os.PathLike[str] | Iterable[str] | None = None,
    *,
    drives: int | None = None,
    threads: int | None = None,
    memory: int | str | None = None,
    token: str | None = None,
    ca: str | os.PathLike[str] | None = None,
    cert: str | os.PathLike[str] | None = None,
    key: str | os.PathLike[str] | None = None,
    insecure: bool = False,
    attach: str
    | os.PathLike[str]
    | Iterable[str | os.PathLike[str]]
    | Mapping[str, str | os.PathLike[str] | Iterable[str | os.PathLike[str]]]
    | None = None,
) -> Connection:
    """Connects to drives, or runs them inside this process.

    Parameters
    ----------
    target
        A directory whose drives run inside this process, for one connection at a time, made where it is new; drives on the network as
        "pithead://host:port,host:port" or as a list of addresses; None for a temporary directory.
    drives
        Drives of a new directory; None for one a core.
    threads
        Threads for queries; None for one a core.
    memory
        Bytes for queries, or a size such as "4GiB"; None for a part of what the machine has.
    token
        Says to drives on the network who this is; None for $PITHEAD_TOKEN.
    ca
        File with the certificates that drives on the network are trusted by, to speak TLS; None for $PITHEAD_TLS_CA.
    cert, key
        Files with a certificate of this client and its key, for drives that ask for one.
    insecure
        Connect to other machines without TLS.
    attach
        Directories of Parquet files to offer where they lie, read-only: each entry of a directory is a dataset. A mapping
        of names to paths makes one dataset of all files below each path; a name may have several paths, such as the files
        that Delta Lake's or Iceberg's own libraries list. For drives inside this process.

    >>> with pithead.connect(drives=2) as conn:
    ...     len(conn.drives())
    2
    """
    directory, addresses = target_of(target)
    if (cert is None) != (key is None):
        raise UserError("expected both cert and key, or neither")
    if addresses:
        token = token or os.environ.get("PITHEAD_TOKEN")
        ca = ca or os.environ.get("PITHEAD_TLS_CA")
    if cert is not None and ca is None:
        raise UserError("a client certificate is sent over TLS only", "say by ca=… whom to trust")
    options = {
        "addresses": addresses,
        "drives": _count("drives", drives, "leave it out for one a core"),
        "threads": _count("threads", threads, "leave it out for one a core"),
        "memory": _memory(memory),
        "token": None if token is None else _arguments.text("token", token),
        "ca": None if ca is None else _arguments.path("ca", ca),
        "cert": None if cert is None else _arguments.path("cert", cert),
        "key": None if key is None else _arguments.path("key", key),
        "insecure": bool(insecure),
        "attach": _attached(attach),
    }
    temporary = None if directory or addresses else tempfile.mkdtemp(prefix="pithead-")
    try:
        made = Connection(_pithead.Connection({**options, "directory": directory or temporary}), temporary)
    except BaseException:
        if temporary:
            shutil.rmtree(temporary, ignore_errors=True)
        if directory:
            _refuse_open(directory)
        raise
    if directory:
        _open[_place(directory)] = made
    return made


# Connections of this process by the directory whose drives they run.
_open: weakref.WeakValueDictionary[tuple[str, int], Connection] = weakref.WeakValueDictionary()


def _place(directory: str) -> tuple[str, int]:
    """A directory's name among those that connections of this process have."""
    return os.path.realpath(directory), os.getpid()


def _refuse_open(directory: str) -> None:
    """Says so where it is a connection of this process that has a directory open."""
    other = _open.get(_place(directory))
    if other is not None and not other._native.is_closed:
        raise UserError(
            f"{directory} is open already: another connection of this process runs its drives",
            "use that connection, which threads may share, or close() it first",
        )


def _attached(attach: Any) -> list[str]:
    """What to attach, as the command line writes it."""
    if attach is None:
        return []
    if isinstance(attach, Mapping):
        return [f"{name}={_arguments.path('attach', path)}" for name, paths in attach.items() for path in _paths(paths)]
    # A path that begins with a name and an equals sign would be read as both.
    return [path if "://" in path else os.path.abspath(path) for path in (_arguments.path("attach", path) for path in _paths(attach))]


def _paths(paths: Any) -> Iterable[Any]:
    """One path, or several."""
    return [paths] if isinstance(paths, str | os.PathLike) else paths


def split_name(name: str) -> tuple[str, str]:
    """Domain and dataset of a name: the first dot splits."""
    domain, dot, dataset = name.partition(".")
    return (domain, dataset) if dot else ("main", name)


def _moment(version: int | None, time: str | datetime | None) -> str | None:
    """A version or a time as SQL takes it after AS OF and TO."""
    if version is not None and time is not None:
        raise UserError("expected version or time, and not both", "conn.log() lists the versions with their times")
    if version is not None:
        return f"VERSION {_arguments.number('version', version, least=1)}"
    if time is None:
        return None
    text = time.isoformat(sep=" ") if isinstance(time, datetime) else _arguments.text("time", time)
    return "TIMESTAMP '" + text.replace("'", "''") + "'"


def _close(native: _pithead.Connection, temporary: str | None, process: int) -> None:
    native.close()
    if temporary and os.getpid() == process:
        shutil.rmtree(temporary, ignore_errors=True)


def _count(argument: str, value: int | None, hint: str = "leave it out for the default") -> int | None:
    return None if value is None else _arguments.number(argument, value, least=1, hint=hint)


def _memory(memory: int | str | None) -> str | None:
    if memory is None or isinstance(memory, str):
        return memory
    return str(_arguments.number("memory", memory, least=0, hint='write bytes, such as 4 << 30, or a size, such as "4GiB"'))


def _partitioning(asked: str | Sequence[str] | None) -> tuple[str, list[str]] | None:
    if asked is None:
        return None
    if not isinstance(asked, str):
        return "hash", _arguments.texts("partition_by", asked)
    how, colon, columns = asked.partition(":")
    if not colon and how != "round-robin":
        return "hash", [asked]
    return how, [column.strip() for column in columns.split(",") if column.strip()]


def _order(asked: str | Sequence[str] | None) -> list[tuple[str, bool]]:
    keys = [] if asked is None else asked.split(",") if isinstance(asked, str) else _arguments.texts("sort_by", asked)
    order = []
    for key in (key.strip() for key in keys):
        column, _, direction = key.rpartition(" ")
        is_direction = column and direction.lower() in ("asc", "desc")
        order.append((column.rstrip(), direction.lower() == "desc") if is_direction else (key, False))
    return order
