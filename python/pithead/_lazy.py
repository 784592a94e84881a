"""Results as lazy frames of Polars: what Polars needs of a result is asked of Pithead, and the rest is not read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from . import _pithead
from ._cursor import guarded
from ._errors import UserError
from ._names import quoted, unique
from ._predicates import pushed

if TYPE_CHECKING:
    import polars as pl

    from ._relation import Relation


def lazy(relation: Relation) -> pl.LazyFrame:
    """A lazy frame over a result, which runs when the frame is collected."""
    from polars.io.plugins import register_io_source

    names = unique(relation.columns)
    schema = _schema(relation, names)
    # A statement whose columns are not told apart by their names, or whose rows have an order, is not put into another one.
    has_order = re.search(r"\border\s+by\b", relation.query, re.IGNORECASE) is not None
    is_whole = names != relation.columns or has_order

    def source(
        with_columns: list[str] | None, predicate: pl.Expr | None, n_rows: int | None, batch_size: int | None
    ) -> Iterator[pl.DataFrame]:
        wanted = names if with_columns is None else with_columns
        needed = set(wanted) if predicate is None else {*wanted, *predicate.meta.root_names()}
        read = [name for name in names if name in needed] or names[:1]
        # Where there are both, the rows are counted before the predicate leaves some out.
        condition = None if predicate is None or n_rows is not None else pushed(predicate, schema)
        statement = None if is_whole else _narrowed(relation, read, condition, n_rows)
        yield from _frames(relation, statement, read, wanted, predicate, n_rows)

    return register_io_source(source, schema=schema, validate_schema=True, is_pure=True, explain_name="PITHEAD")


def _schema(relation: Relation, names: list[str]) -> pl.Schema:
    """The columns' types in Polars."""
    import polars as pl
    import pyarrow as pa

    from ._relation import check_for_polars

    check_for_polars(relation.schema)
    told = pa.schema(relation.schema)
    empty = pa.schema([field.with_name(name) for field, name in zip(told, names, strict=True)]).empty_table()
    frame = pl.from_arrow(empty)
    assert isinstance(frame, pl.DataFrame)
    return frame.schema


def _narrowed(relation: Relation, read: list[str], condition: str | None, limit: int | None) -> _pithead.Statement | None:
    """A statement for a part of a result; None: the statement cannot stand in another one, as SHOW cannot."""
    query = relation.query.strip().rstrip(";")
    columns = ", ".join(quoted(name) for name in read)
    # On lines of its own: the statement may end with a comment.
    sql = f"SELECT {columns} FROM (\n{query}\n) AS result"
    if condition is not None:
        sql += f" WHERE {condition}"
    if limit is not None:
        sql += f" LIMIT {limit}"
    try:
        return relation._connection._native.prepare(sql, relation._given, relation._frames)
    except UserError:
        return None


def _frames(
    relation: Relation,
    statement: _pithead.Statement | None,
    read: list[str],
    wanted: list[str],
    predicate: pl.Expr | None,
    n_rows: int | None,
) -> Iterator[pl.DataFrame]:
    """The rows, batch by batch."""
    import polars as pl
    import pyarrow as pa

    from ._relation import _Views

    native = relation._connection._native
    stream = relation._run() if statement is None else native.execute(statement, None, True, relation._connection)
    names = unique(relation.columns) if statement is None else read
    left = n_rows
    try:
        batches = guarded(stream, lambda: pa.RecordBatchReader.from_stream(_Views(stream, names)))
        while left is None or left > 0:
            try:
                batch = guarded(stream, batches.read_next_batch)
            except StopIteration:
                return
            frame = pl.from_arrow(batch)
            assert isinstance(frame, pl.DataFrame)
            if left is not None:
                frame = frame.head(left)
                left -= frame.height
            if predicate is not None:
                frame = frame.filter(predicate)
            yield frame.select(wanted)
    finally:
        stream.close()
