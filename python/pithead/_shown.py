"""Results as text and as HTML."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._relation import Column

Row = tuple[Any, ...]
# Characters of a value that are shown.
_SHOWN = 60


def as_text(columns: Sequence[Column], rows: list[Row], has_more: bool) -> str:
    """Rows as a table, with a line for what is not shown."""
    cells = [[_cell(value) for value in row] for row in rows]
    widths = [max([len(column.name), *(len(row[at]) for row in cells)]) for at, column in enumerate(columns)]
    aligned = [
        [cell.rjust(width) if _is_number(column) else cell.ljust(width) for cell, width, column in zip(row, widths, columns)]
        for row in cells
    ]
    head = " | ".join(column.name.ljust(width) for column, width in zip(columns, widths)).rstrip()
    rule = "-+-".join("-" * width for width in widths)
    rest = ["… more rows"] if has_more else [] if rows else ["(no rows)"]
    return "\n".join([*([head, rule] if columns else []), *(" | ".join(row).rstrip() for row in aligned), *rest])


def as_html(columns: Sequence[Column], rows: list[Row], has_more: bool) -> str:
    """The same for notebooks."""

    def cell(column: Column, value: Any) -> str:
        align = ' style="text-align:right"' if _is_number(column) else ' style="text-align:left"'
        return f"<td{align}>{html.escape(_cell(value))}</td>"

    head = "".join(
        f'<th style="text-align:left" title="{html.escape(column.type)}">{html.escape(column.name)}</th>'
        for column in columns
    )
    body = "".join("<tr>" + "".join(cell(column, value) for column, value in zip(columns, row)) + "</tr>" for row in rows)
    note = "<p>… more rows</p>" if has_more else "" if rows else "<p>no rows</p>"
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{note}"


def _cell(value: Any) -> str:
    text = "NULL" if value is None else repr(value) if isinstance(value, (bytes, list, dict)) else str(value)
    text = text.replace("\n", " ")
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def _is_number(column: Column) -> bool:
    return column.type.startswith(("int", "uint", "float", "double", "decimal", "halffloat"))
