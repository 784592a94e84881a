"""Questions to the drives, whose answers are good only while X is the one that the dataset was opened with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pithead import Cancelled, Error, UserError

if TYPE_CHECKING:
    from ._dataset import Selection

__all__ = ["asking", "check_connection"]


def check_connection(selections: Sequence[Selection]) -> None:
    """Raises UserError where datasets are of several connections: a question goes to the drives of one."""
    if len({id(each.conn) for each in selections}) > 1:
        raise UserError(
            "the datasets are of different connections",
            hint="open all of them over one connection to all drives that hold them, or load them into one",
        )


@contextmanager
def asking(*selections: Selection) -> Iterator[None]:
    """Around a question about matrices: raises UserError if one of the datasets was replaced or dropped since it was opened.

    It looks when the answer is there. X keeps its name when it is replaced, and the X of an older load does not come back.
    So the X that is there at the end was there all the time.
    """
    try:
        yield
    except Cancelled:
        raise
    except Error:
        # A replaced matrix has other cells or no table any more, and what the drives say of that is of no help.
        _check(selections)
        raise
    _check(selections)


def _check(selections: Sequence[Selection]) -> None:
    listed: dict[int, dict[str, Any]] = {}
    for root in {id(each._root): each._root for each in selections}.values():
        conn = root._conn
        if id(conn) not in listed:
            listed[id(conn)] = {f"{info.domain}.{info.name}": info for info in conn.datasets()}
        root._check_standing(listed[id(conn)].get(root.name))
