"""What is loaded: files, or rows of another library whose own exceptions come through."""

from __future__ import annotations

import contextlib
import glob
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from . import _arguments, _pithead
from ._errors import UserError
from ._names import unique
from ._relation import Relation

if TYPE_CHECKING:
    import pyarrow as pa

Source = Any


@contextlib.contextmanager
def opened(source: Source) -> Iterator[tuple[list[str], object | None]]:
    """Files, or an object that gives an Arrow stream. What the object raises while it is read is raised at the end, as it was."""
    source = _as_arrow(source)
    files = _files(source)
    if files is not None:
        yield files, None
    elif isinstance(source, Relation) or _is_reader(source):
        watched = _Watched(source)
        try:
            yield [], watched
        except Exception:
            if (failure := watched.failure()) is None:
                raise
            failure.add_note("pithead: the source of the rows failed, and nothing was loaded")
            raise failure
    else:
        yield [], source


def _as_arrow(source: Any) -> Any:
    """A frame as its library's own Arrow stream does not give it: of pandas without the index, of polars with columns that are NULL."""
    pandas, polars = sys.modules.get("pandas"), sys.modules.get("polars")
    if pandas is not None and isinstance(source, pandas.DataFrame):
        return _of_pandas(source)
    if polars is not None and isinstance(source, polars.LazyFrame):
        source = source.collect()
    if (arrow := sys.modules.get("pyarrow")) is not None:
        source = _decoded(arrow, source)
    if polars is not None and isinstance(source, polars.DataFrame):
        for name, dtype in source.schema.items():
            if dtype == polars.Object:
                raise UserError(f"column {name!r} holds Python objects", "cast it to a type of polars, or leave it out")
        if any("Null" in str(dtype) for dtype in source.schema.values()):
            return source.to_arrow()
    return source


def _decoded(arrow: Any, source: Any) -> Any:
    """Data of pyarrow with the values of its run-end encoded columns, one for each row; other objects as they are."""
    if not isinstance(source, (arrow.Table, arrow.RecordBatch, arrow.RecordBatchReader)):
        return source
    from pyarrow.types import is_run_end_encoded

    places = [place for place, field in enumerate(source.schema) if is_run_end_encoded(field.type)]
    if not places:
        return source
    import pyarrow.compute as pc

    def plain(rows: Any) -> Any:
        for place in places:
            field = rows.schema.field(place)
            column = rows.column(place)
            if isinstance(column, arrow.ChunkedArray):
                # Not all kernels take many chunks.
                chunks = [pc.run_end_decode(chunk) for chunk in column.chunks]
                column = arrow.chunked_array(chunks, field.type.value_type)
            else:
                column = pc.run_end_decode(column)
            rows = rows.set_column(place, field.with_type(field.type.value_type), column)
        return rows

    if not isinstance(source, arrow.RecordBatchReader):
        return plain(source)
    schema = source.schema
    for place in places:
        schema = schema.set(place, schema.field(place).with_type(schema.field(place).type.value_type))
    return arrow.RecordBatchReader.from_batches(schema, (plain(batch) for batch in source))


def _of_pandas(frame: Any) -> pa.Table:
    import pyarrow as pa

    names = [str(name) for name in frame.columns]
    if len(set(names)) < len(names):
        frame = frame.set_axis(unique(names), axis="columns")
    try:
        return pa.Table.from_pandas(frame, preserve_index=False)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError) as failure:
        raise UserError(
            f"a column of the frame has no type of Arrow: {failure}",
            "give it one, as with frame.astype({'column': 'str'})",
        ) from failure


def _is_reader(source: Any) -> bool:
    arrow = sys.modules.get("pyarrow")
    return arrow is not None and isinstance(source, arrow.RecordBatchReader)


class _Watched:
    """A source that keeps the exception which ended it: Arrow's C stream carries no more than its text."""

    def __init__(self, source: Any) -> None:
        self._source = source
        self._stream: _pithead.Stream | None = None
        self._failure: BaseException | None = None

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        if isinstance(self._source, Relation):
            self._stream = self._source._run(is_foreign=True)
            return self._stream.__arrow_c_stream__()
        import pyarrow as pa

        return pa.RecordBatchReader.from_batches(self._source.schema, self._batches()).__arrow_c_stream__()

    def _batches(self) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._source
        except GeneratorExit:
            raise
        except BaseException as failure:
            self._failure = failure
            raise

    def failure(self) -> BaseException | None:
        """What ended the source, if it did not end by itself."""
        if self._failure is None and self._stream is not None:
            try:
                self._stream.check()
            except BaseException as failure:
                return failure
        return self._failure


def _files(source: Source) -> list[str] | None:
    if isinstance(source, (str, os.PathLike)):
        return [_path(source)]
    if isinstance(source, (list, tuple, set)) and all(isinstance(part, (str, os.PathLike)) for part in source):
        if not source:
            raise UserError(
                "expected files to load, got an empty list", "to make a dataset without rows, load an empty table"
            )
        return [_path(part) for part in source]
    if hasattr(source, "__arrow_c_stream__") or hasattr(source, "__arrow_c_array__"):
        return None
    raise UserError(
        f"cannot load from an object of type {type(source).__name__}",
        "give a path, a glob, or an object with Arrow data: a table of pyarrow, polars or DuckDB, a pandas frame (2.2 or newer)",
    )


def _path(path: str | os.PathLike[str]) -> str:
    found = _arguments.path("source", path)
    # A path object is meant as it is, also where its name holds what a glob would read.
    return found if isinstance(path, str) else glob.escape(found)
