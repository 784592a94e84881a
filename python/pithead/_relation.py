"""Results: lazy, and taken as rows, as Arrow or as frames."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from . import _pithead, _progress
from ._errors import UserError
from ._explain import Explained
from ._options import options

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    import polars as pl
    import pyarrow as pa

    from ._connection import Connection

T = TypeVar("T")
# Characters of a value that are shown.
_SHOWN = 60


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
    """The result of a query, made by `Connection.sql`. It runs when its rows are taken, and again when they are taken again.

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

    def __init__(self, connection: Connection, query: str, given: dict[str, Any] | None, columns: _pithead.Columns) -> None:
        self._connection, self._query, self._given = connection, query, given
        self._schema = Schema(columns)
        self._last: _pithead.Stream | None = None
        self._cursor: _pithead.Stream | None = None
        # Rows that the cursor gave and that were not asked for yet.
        self._ahead: list[tuple[Any, ...]] = []

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
        return self._run(None, is_foreign=True).__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> object:
        return self._schema.__arrow_c_schema__()

    def arrow(self) -> pa.Table:
        """All rows as a pyarrow table."""
        import pyarrow as pa

        return self._taken(lambda stream: pa.table(stream))

    def to_arrow_table(self) -> pa.Table:
        """The same as `arrow`."""
        return self.arrow()

    def reader(self) -> pa.RecordBatchReader:
        """The rows as a pyarrow reader: batch by batch, also where all of them would not fit into memory."""
        import pyarrow as pa

        return pa.RecordBatchReader.from_stream(self)

    def df(self) -> pd.DataFrame:
        """All rows as a pandas frame."""
        return self.arrow().to_pandas()

    def pl(self) -> pl.DataFrame:
        """All rows as a polars frame. Texts are not copied: polars keeps them as the engine does."""
        import polars as pl

        return self._taken(lambda stream: pl.DataFrame(_Views(stream)))

    def fetchall(self) -> list[tuple[Any, ...]]:
        """All rows as tuples of Python values; those that are left after `fetchone` and `fetchmany`.

        >>> pithead.connect().sql("SELECT 1 AS a, NULL AS b UNION ALL SELECT 2, 'x' ORDER BY a").fetchall()
        [(1, None), (2, 'x')]
        """
        cursor, self._cursor = self._cursor, None
        if cursor is not None:
            rows, self._ahead = self._ahead, []
            return rows + self._guarded(cursor, lambda: cursor.fetch(None))
        return self._taken(lambda stream: stream.fetch(None))

    def fetchmany(self, size: int = 1) -> list[tuple[Any, ...]]:
        """The next rows; an empty list at the end. `fetchall` takes the rest, and starts anew after it."""
        if self._cursor is None:
            self._cursor, self._ahead = self._run(None, is_foreign=False), []
        cursor = self._cursor
        while len(self._ahead) < size:
            more = self._guarded(cursor, lambda: cursor.fetch(1))
            if not more:
                break
            self._ahead += more
        rows, self._ahead = self._ahead[:size], self._ahead[size:]
        return rows

    def fetchone(self) -> tuple[Any, ...] | None:
        """The next row; None at the end."""
        rows = self.fetchmany(1)
        return rows[0] if rows else None

    def fetchnumpy(self) -> dict[str, np.ndarray]:
        """All rows as NumPy arrays by column; masked ones where there are nulls."""
        table = self.arrow()
        return {name: _numpy(table.column(index)) for index, name in enumerate(table.column_names)}

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """The rows as pyarrow batches, as they come."""
        yield from self.reader()

    def explain(self, analyze: bool = False) -> Explained:
        """The plan, and where each part of it runs; with `analyze` it runs, and there is what it cost.

        >>> conn = pithead.connect(drives=2)
        >>> _ = conn.load("trips", pithead.examples.trips())
        >>> explained = conn.sql("SELECT city, sum(fare) FROM trips WHERE fare > 8 GROUP BY city").explain()
        >>> sorted({node.site for node in explained.nodes()})
        ['drive', 'host', 'link']
        """
        verb = "EXPLAIN ANALYZE" if analyze else "EXPLAIN"
        given = self._given
        stream = self._connection._native.execute(f"{verb} {self._query}", given, None, False)
        return Explained([line for (line,) in self._guarded(stream, lambda: stream.fetch(None))], analyze)

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

    def head(self, rows: int = 10) -> list[tuple[Any, ...]]:
        """The first rows; the statement is cancelled once they are there."""
        stream = self._run(None, is_foreign=False)
        taken: list[tuple[Any, ...]] = []
        try:
            while len(taken) < rows and (more := self._guarded(stream, lambda: stream.fetch(1))):
                taken += more
        finally:
            stream.close()
        return taken[:rows]

    def __repr__(self) -> str:
        rows = self.head(options.rows + 1)
        return _as_text(self._schema, rows[: options.rows], len(rows) > options.rows)

    def _repr_html_(self) -> str:
        rows = self.head(options.rows + 1)
        return _as_html(self._schema, rows[: options.rows], len(rows) > options.rows)

    def _run(self, bar: _progress.Bar | None, is_foreign: bool) -> _pithead.Stream:
        self._last = self._connection._native.execute(self._query, self._given, bar, is_foreign)
        return self._last

    def _taken(self, take: Callable[[_pithead.Stream], T]) -> T:
        """Runs the statement for a consumer that takes all rows."""
        bar = _progress.Bar("query", "slices") if _progress.wanted(None) else None
        try:
            stream = self._run(bar, is_foreign=False)
            return self._guarded(stream, lambda: take(stream))
        finally:
            if bar:
                bar.close()

    @staticmethod
    def _guarded(stream: _pithead.Stream, take: Callable[[], T]) -> T:
        """Raises what ended the rows, rather than what a library made of it."""
        try:
            return take()
        except Exception as error:
            try:
                stream.check()
            except BaseException as failure:
                raise failure from error
            raise


class _Views:
    """A stream whose texts are views."""

    def __init__(self, stream: _pithead.Stream) -> None:
        self._stream = stream

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self._stream.views()


def _numpy(column: pa.ChunkedArray) -> np.ndarray:
    import numpy as np

    if column.null_count == 0:
        return column.to_numpy(zero_copy_only=False)
    mask = column.is_null().to_numpy(zero_copy_only=False)
    values = column.drop_null().to_numpy(zero_copy_only=False)
    full = np.zeros(len(column), dtype=values.dtype)
    full[~mask] = values
    return np.ma.masked_array(full, mask=mask)


def _cell(value: Any) -> str:
    text = "NULL" if value is None else repr(value) if isinstance(value, (bytes, list, dict)) else str(value)
    text = text.replace("\n", " ")
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def _is_number(column: Column) -> bool:
    return column.type.startswith(("int", "uint", "float", "double", "decimal", "halffloat"))


def _as_text(schema: Schema, rows: list[tuple[Any, ...]], has_more: bool) -> str:
    columns = schema.columns
    cells = [[_cell(value) for value in row] for row in rows]
    widths = [max([len(column.name), *(len(row[at]) for row in cells)]) for at, column in enumerate(columns)]
    aligned = [
        [cell.rjust(width) if _is_number(column) else cell.ljust(width) for cell, width, column in zip(row, widths, columns)]
        for row in cells
    ]
    head = " | ".join(column.name.ljust(width) for column, width in zip(columns, widths)).rstrip()
    rule = "-+-".join("-" * width for width in widths)
    rest = ["… more rows"] if has_more else [] if rows else ["(no rows)"]
    return "\n".join([head, rule, *(" | ".join(row).rstrip() for row in aligned), *rest])


def _as_html(schema: Schema, rows: list[tuple[Any, ...]], has_more: bool) -> str:
    def cell(column: Column, value: Any) -> str:
        align = ' style="text-align:right"' if _is_number(column) else ' style="text-align:left"'
        return f"<td{align}>{html.escape(_cell(value))}</td>"

    head = "".join(
        f'<th style="text-align:left" title="{html.escape(column.type)}">{html.escape(column.name)}</th>' for column in schema
    )
    body = "".join("<tr>" + "".join(cell(column, value) for column, value in zip(schema, row)) + "</tr>" for row in rows)
    note = "<p>… more rows</p>" if has_more else "" if rows else "<p>no rows</p>"
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{note}"
