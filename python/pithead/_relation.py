"""Results: lazy, and taken as rows, as Arrow or as frames."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar, overload

from . import _arguments, _pithead, _progress, _shown
from ._cursor import Cursor, guarded
from ._errors import Error, UnsupportedError, UserError
from ._explain import Explained
from ._names import unique
from ._options import options

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    import polars as pl
    import pyarrow as pa

    from ._connection import Connection

T = TypeVar("T")


class Column(NamedTuple):
    """A column of a result: its name, its Arrow type, and whether there may be nulls."""

    name: str
    type: str
    nullable: bool


class Schema:
    """Columns of a result. Arrow libraries take it, too: `pyarrow.schema(relation.schema)`."""

    def __init__(self, native: _pithead.Columns) -> None:
        self._native = native

    @property
    def columns(self) -> list[Column]:
        """The columns, in order."""
        return [Column(*column) for column in self._native.columns]

    @property
    def names(self) -> list[str]:
        """Their names."""
        return [column.name for column in self.columns]

    def __arrow_c_schema__(self) -> object:
        return self._native.__arrow_c_schema__()

    def __len__(self) -> int:
        return len(self.columns)

    def __iter__(self) -> Iterator[Column]:
        return iter(self.columns)

    def __repr__(self) -> str:
        return "\n".join(f"{column.name}: {column.type}{'' if column.nullable else ' not null'}" for column in self)


class Relation:
    """The result of a statement, made by `Connection.sql`. A query runs when its rows are taken, and again when they are taken again.
    A statement without rows, such as SET, has run already; its result has no columns and no rows.

    Threads may share a result: each row that `fetchone` and `fetchmany` give is given once.

    Arrow libraries take it as it is, streaming: `polars.from_arrow(relation)`, `duckdb.sql("FROM relation")`,
    `pyarrow.RecordBatchReader.from_stream(relation)`.

    >>> conn = pithead.connect()
    >>> relation = conn.sql("SELECT 1 AS one, 'two' AS two")
    >>> relation.schema
    one: int64 not null
    two: string not null
    >>> relation
    one | two
    ----+----
      1 | two
    """

    def __init__(
        self,
        connection: Connection,
        query: str,
        given: dict[str, Any] | None,
        frames: dict[str, _pithead.Frame],
        statement: _pithead.Statement,
    ) -> None:
        self._connection, self._query, self._given = connection, query, given
        self._frames = list(frames.items())
        self._statement = statement
        columns = statement.columns
        self._is_query = columns is not None
        self._schema = Schema(columns or _pithead.Stream().columns)
        self._last: _pithead.Stream | None = None
        self._cursor = Cursor()

    @property
    def schema(self) -> Schema:
        """The columns: name, Arrow type, whether there may be nulls."""
        return self._schema

    @property
    def columns(self) -> list[str]:
        """The columns' names."""
        return self._schema.names

    @property
    def query(self) -> str:
        """The statement."""
        return self._query

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self._run(is_foreign=True).__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> object:
        return self._schema.__arrow_c_schema__()

    def arrow(self) -> pa.Table:
        """All rows as a pyarrow table."""
        import pyarrow as pa

        # Not by pa.table: it imports pandas first, and an interrupt that comes during an import can be lost.
        return self._taken(lambda stream: pa.RecordBatchReader.from_stream(stream).read_all())

    def to_arrow_table(self) -> pa.Table:
        """The same as `arrow`."""
        return self.arrow()

    def reader(self) -> pa.RecordBatchReader:
        """The rows as a pyarrow reader: batch by batch, also where all of them would not fit into memory."""
        import pyarrow as pa

        return pa.RecordBatchReader.from_stream(self)

    def df(self) -> pd.DataFrame:
        """All rows as a pandas frame. Whole numbers and truth values with NULL are of pandas' nullable types, so that none loses a digit.
        Of columns with one name, the second is called `name_1`.
        """
        from ._frames import frame

        return frame(self.arrow())

    @overload
    def pl(self, lazy: Literal[False] = False) -> pl.DataFrame: ...
    @overload
    def pl(self, lazy: Literal[True]) -> pl.LazyFrame: ...
    def pl(self, lazy: bool = False) -> pl.DataFrame | pl.LazyFrame:
        """All rows as a polars frame. Texts are not copied: polars keeps them as the engine does. Of columns with one name, the second is
        called `name_1`.

        With `lazy`, a lazy frame: the statement runs when it is collected, and gives only the columns and rows that Polars needs. What
        can be said in SQL of its filters runs where the data is. Its rows are those of the moment at which it is collected.

        >>> conn = pithead.connect()
        >>> _ = conn.load("trips", pithead.examples.trips())
        >>> import polars as pl
        >>> conn.table("trips").pl(lazy=True).filter(pl.col("fare") > 8).select("city").collect().height
        3
        """
        if lazy:
            from ._lazy import lazy as lazy_frame

            return lazy_frame(self)
        import polars as pl

        names = unique(self.columns)
        check_for_polars(self.schema)
        return self._taken(lambda stream: pl.DataFrame(_Views(stream, names)))

    def fetchall(self) -> list[tuple[Any, ...]]:
        """All rows as tuples of Python values; those that are left after `fetchone` and `fetchmany`.

        >>> pithead.connect().sql("SELECT 1 AS a, NULL AS b UNION ALL SELECT 2, 'x' ORDER BY a").fetchall()
        [(1, None), (2, 'x')]
        """
        rest = self._cursor.rest()
        return self._taken(lambda stream: stream.fetch(None)) if rest is None else rest

    def fetchmany(self, size: int = 1) -> list[tuple[Any, ...]]:
        """The next rows; an empty list at the end. `fetchall` takes the rest, and starts anew after it."""
        wanted = _arguments.number("size", size, least=0, hint="fetchall() takes all rows")
        return self._cursor.many(wanted, self._run)

    def fetchone(self) -> tuple[Any, ...] | None:
        """The next row; None at the end."""
        rows = self._cursor.many(1, self._run)
        return rows[0] if rows else None

    def fetchnumpy(self) -> dict[str, np.ndarray[Any, Any]]:
        """All rows as NumPy arrays by column; masked ones where there are nulls. Of columns with one name, the second is called `name_1`."""
        from ._frames import arrays

        return arrays(self.arrow())

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """The rows as pyarrow batches, as they come."""
        import pyarrow as pa

        stream = self._run()
        try:
            batches = guarded(stream, lambda: pa.RecordBatchReader.from_stream(stream))
            while True:
                try:
                    batch = guarded(stream, batches.read_next_batch)
                except StopIteration:
                    return
                yield batch
        finally:
            stream.close()

    def explain(self, analyze: bool = False) -> Explained:
        """The plan, and where each part of it runs; with `analyze` it runs, and there is what it cost.

        >>> conn = pithead.connect(drives=2)
        >>> _ = conn.load("trips", pithead.examples.trips())
        >>> explained = conn.sql("SELECT city, sum(fare) FROM trips WHERE fare > 8 GROUP BY city").explain()
        >>> sorted({node.site for node in explained.nodes()})
        ['drive', 'host', 'link']
        """
        if not self._is_query:
            raise UserError("a statement without rows has no plan", "queries have")
        verb = "EXPLAIN ANALYZE" if analyze else "EXPLAIN"
        native = self._connection._native
        stream = native.execute(native.prepare(f"{verb} {self._query}", self._given, self._frames))
        return Explained([line for (line,) in guarded(stream, lambda: stream.fetch(None))], analyze)

    def profile(self) -> dict[str, float]:
        """What the last run of this result has cost so far: seconds, bytes over the link, slices read and skipped.

        >>> relation = pithead.connect().sql("SELECT 1 AS a")
        >>> _ = relation.fetchall()
        >>> relation.profile()["link_bytes"]
        0
        """
        if self._last is None:
            raise UserError("this result has not run yet, so there is no profile", "take its rows first, as by .arrow()")
        return self._last.profile()

    def emulated(self, device: str | os.PathLike[str]) -> dict[str, Any]:
        """What the drives' part of the last run would have taken on drives of a profile, in virtual time.

        Seconds, bytes, and joules by part, at the levels to which drives took the work here; several sub-plans one after the other.
        `device` is a profile that comes with Pithead, such as `smart-ssd`, or the path of a file.

        >>> relation = pithead.connect().sql("SELECT 1 AS a")
        >>> _ = relation.fetchall()
        >>> relation.emulated("smart-ssd")["system_joules"]
        0.0
        """
        if self._last is None:
            raise UserError("this result has not run yet, so nothing was counted", "take its rows first, as by .arrow()")
        path = Path(device)
        return self._last.emulated(str(device), path.read_text("utf-8") if path.is_file() else None)

    def head(self, rows: int = 10) -> list[tuple[Any, ...]]:
        """The first rows; the statement is cancelled once they are there."""
        wanted = _arguments.number("rows", rows, least=0, hint="fetchall() takes all rows")
        stream = self._run()
        taken: list[tuple[Any, ...]] = []
        try:
            while len(taken) < wanted and (more := guarded(stream, lambda: stream.fetch(1))):
                taken += more
        finally:
            stream.close()
        return taken[:wanted]

    def __repr__(self) -> str:
        return _shown.as_text(*self._first())

    def _repr_html_(self) -> str:
        return _shown.as_html(*self._first())

    def _first(self) -> tuple[list[Column], list[tuple[Any, ...]], bool]:
        """Columns, the rows that are shown, and whether there are more."""
        shown = max(options.rows, 0)
        rows = self.head(shown + 1)
        return self._schema.columns, rows[:shown], len(rows) > shown

    def _run(self, bar: _progress.Bar | None = None, is_foreign: bool = False) -> _pithead.Stream:
        if not self._is_query:
            self._last = _pithead.Stream()
            return self._last
        try:
            stream = self._connection._native.execute(self._statement, bar, is_foreign, self._connection)
        except UserError as error:
            if self._now() is not None:
                raise
            raise UserError(f"a dataset has changed since this result was made: {error.message}", error.hint) from error
        if _told(stream.columns) != _told(self._schema._native) and self._now() != _told(self._schema._native):
            stream.close()
            was, now = (
                ", ".join(" ".join(column) for column in _told(columns))
                for columns in (self._schema._native, stream.columns)
            )
            raise UserError(
                f"a dataset has changed since this result was made: the columns were {was}; now they are {now}",
                "run the statement again by conn.sql(…)",
            )
        self._last = stream
        return stream

    def _now(self) -> list[tuple[str, str]] | None:
        """The columns that the statement would have if it were made now; None if it cannot be made any more."""
        if self._connection._native.is_closed:
            return []
        try:
            columns = self._connection._native.prepare(self._query, self._given, self._frames).columns
        except UserError:
            return None
        except Error:
            return []
        return None if columns is None else _told(columns)

    def _taken(self, take: Callable[[_pithead.Stream], T]) -> T:
        """Runs the statement for a consumer that takes all rows."""
        bar = _progress.Bar("query", "slices") if _progress.wanted(None) else None
        try:
            stream = self._run(bar)
            return guarded(stream, lambda: take(stream))
        finally:
            if bar:
                bar.close()


class _Views:
    """A stream whose texts are views, under names of which each is there once."""

    def __init__(self, stream: _pithead.Stream, names: list[str]) -> None:
        self._stream, self._names = stream, names

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self._stream.views(self._names)


# The type in a column's type, and no field of a struct that has this name.
_INTERVAL = re.compile(r"\bmonth_day_nano_interval\b(?!:)")


def check_for_polars(schema: Schema) -> None:
    """Refuses columns whose types polars does not have: it would panic."""
    for column in schema:
        if _INTERVAL.search(column.type):
            raise UnsupportedError(
                f"polars has no intervals of months and days, as in column {column.name!r}",
                "date_part('epoch', interval) gives seconds; df() and arrow() keep intervals",
            )


def _told(columns: _pithead.Columns) -> list[tuple[str, str]]:
    """Names and types."""
    return [(name, kind) for name, kind, _ in columns.columns]
