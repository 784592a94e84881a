"""Predicates of Polars as SQL. Polars applies them to what comes once more, so SQL may keep more rows than a predicate does, and never
fewer: what cannot be said in SQL with that certainty is left out.
"""

from __future__ import annotations

import datetime as dt
import decimal
import io
import json
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ._names import quoted

if TYPE_CHECKING:
    import polars as pl

Node = Any

_OPPOSITE = {"Lt": "GtEq", "LtEq": "Gt", "Gt": "LtEq", "GtEq": "Lt", "Eq": "NotEq", "NotEq": "Eq"}
_TURNED = {"Lt": "Gt", "LtEq": "GtEq", "Gt": "Lt", "GtEq": "LtEq", "Eq": "Eq", "NotEq": "NotEq"}
_SIGNS = {"Lt": "<", "LtEq": "<=", "Gt": ">", "GtEq": ">=", "Eq": "=", "NotEq": "<>"}
_BETWEEN = {"Both": ("GtEq", "LtEq"), "Left": ("GtEq", "Lt"), "Right": ("Gt", "LtEq"), "None": ("Gt", "Lt")}
_VALUES_MAX = 1000
"""Most values of `is_in` that are written into a statement."""


def pushed(predicate: pl.Expr, schema: Mapping[str, pl.DataType]) -> str | None:
    """A condition that holds for every row that the predicate holds for; None: there is none worth saying."""
    import polars as pl

    try:
        node = json.loads(predicate.meta.serialize(format="json"))
    except (pl.exceptions.PolarsError, ValueError):
        return None
    return _Translation(schema).condition(node, False)


class _Translation:
    def __init__(self, schema: Mapping[str, pl.DataType]) -> None:
        self._schema = schema

    def condition(self, node: Node, negated: bool) -> str | None:
        """A node that is true or false; `negated`: what holds where it is false."""
        match node:
            case {"Column": str(name)} if self._is(name, "Boolean"):
                return f"NOT {quoted(name)}" if negated else quoted(name)
            case {"BinaryExpr": {"left": left, "op": "And" | "LogicalAnd", "right": right}}:
                return self._joined([left, right], not negated, negated)
            case {"BinaryExpr": {"left": left, "op": "Or" | "LogicalOr", "right": right}}:
                return self._joined([left, right], negated, negated)
            case {"BinaryExpr": {"left": {"Column": name}, "op": op, "right": value}} if op in _SIGNS:
                return self._comparison(name, _OPPOSITE[op] if negated else op, value)
            case {"BinaryExpr": {"left": value, "op": op, "right": {"Column": name}}} if op in _SIGNS:
                return self._comparison(name, _TURNED[_OPPOSITE[op] if negated else op], value)
            case {"Function": {"input": [inner], "function": {"Boolean": "Not"}}}:
                return self.condition(inner, not negated)
            case {"Function": {"input": [{"Column": name}, *rest], "function": function}}:
                return self._call(name, rest, function, negated)
        return None

    def _is(self, name: str, *kinds: str) -> bool:
        return name in self._schema and type(self._schema[name]).__name__ in kinds

    def _joined(self, nodes: list[Node], all_of: bool, negated: bool) -> str | None:
        """Conditions that all hold, or of which one does. Of the first kind, what cannot be said is left out."""
        conditions = [self.condition(node, negated) for node in nodes]
        said = [condition for condition in conditions if condition is not None]
        if not said or (len(said) < len(conditions) and not all_of):
            return None
        return "(" + (" AND " if all_of else " OR ").join(said) + ")"

    def _call(self, name: str, rest: list[Node], function: Node, negated: bool) -> str | None:
        if name not in self._schema:
            return None
        match function:
            case {"Boolean": "IsNull" | "IsNotNull" as kind}:
                return f"{quoted(name)} IS {'NOT ' if (kind == 'IsNotNull') != negated else ''}NULL"
            case {"Boolean": {"IsBetween": {"closed": closed}}} if closed in _BETWEEN and len(rest) == 2:
                ops = [_OPPOSITE[op] if negated else op for op in _BETWEEN[closed]]
                bounds = [self._comparison(name, op, bound) for op, bound in zip(ops, rest, strict=True)]
                said = [bound for bound in bounds if bound is not None]
                if not said or (negated and len(said) < 2):
                    return None
                return "(" + (" OR " if negated else " AND ").join(said) + ")"
            case {"Boolean": {"IsIn": {"nulls_equal": False}}} if len(rest) == 1:
                return self._among(name, rest[0], negated)
            case {"StringExpr": "StartsWith"} if len(rest) == 1 and self._is(name, "String"):
                start = _literal(rest[0])
                said_start = None if start is None else self._value(name, start.item())
                return said_start and f"{'NOT ' if negated else ''}starts_with({quoted(name)}, {said_start})"
        return None

    def _among(self, name: str, node: Node, negated: bool) -> str | None:
        found = _literal(node)
        if found is None or self._is(name, "Float32", "Float64", "Datetime"):
            return None
        values = found.explode().to_list() if type(found.dtype).__name__ in ("List", "Array") else found.to_list()
        if len(values) > _VALUES_MAX or (negated and None in values):
            return None
        said = [self._value(name, value) for value in values if value is not None]
        if None in said:
            return None
        if not said:
            return f"{quoted(name)} IS NOT NULL" if negated else "FALSE"
        return f"{quoted(name)} {'NOT ' if negated else ''}IN ({', '.join(str(value) for value in said)})"

    def _comparison(self, name: str, op: str, node: Node) -> str | None:
        found = _literal(node)
        if found is None or name not in self._schema or (value := found.item()) is None:
            return None
        if self._is(name, "Float32", "Float64"):
            return self._float(name, op, value)
        if self._is(name, "Datetime"):
            return self._moment(name, op, value)
        said = self._value(name, value)
        return said and f"{quoted(name)} {_SIGNS[op]} {said}"

    def _value(self, name: str, value: Any) -> str | None:
        """A value in SQL, where it is one of the column's own kind, so that both compare in one way."""
        if self._is(name, "Boolean") and isinstance(value, bool):
            return str(value).upper()
        if self._is(name, "String") and isinstance(value, str) and "\0" not in value:
            return "'" + value.replace("'", "''") + "'"
        if self._is(name, "Date") and isinstance(value, dt.date) and not isinstance(value, dt.datetime):
            return f"DATE '{value.isoformat()}'"
        if isinstance(value, bool):
            return None
        if isinstance(value, int) and self._schema[name].is_integer():
            least = 0 if self._schema[name].is_unsigned_integer() else -(2**63) + 1
            return str(value) if least <= value < 2**63 else None
        if isinstance(value, int | decimal.Decimal) and self._is(name, "Decimal"):
            return _decimal(decimal.Decimal(value))
        return None

    def _float(self, name: str, op: str, value: Any) -> str | None:
        """Comparisons of floats, a little wider: Polars takes 0 and -0 for equal, and NaN for the largest value."""
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        try:
            value = float(value)
        except OverflowError:
            return None
        if not math.isfinite(value):
            return None
        single = self._is(name, "Float32")
        margin = abs(value) * 1e-6 + 1e-44 if single else 0.0
        low, high = math.nextafter(value - margin, -math.inf), math.nextafter(value + margin, math.inf)
        if not math.isfinite(low) or not math.isfinite(high):
            return None
        column = quoted(name)
        # NaN is larger than all numbers.
        return _around(column, op, repr(low), repr(high), f" OR isnan({column})")

    def _moment(self, name: str, op: str, value: Any) -> str | None:
        """Comparisons of moments, a little wider: units may differ between a column and a value."""
        zone = getattr(self._schema[name], "time_zone", None)
        if not isinstance(value, dt.datetime) or zone is not None or value.tzinfo is not None:
            return None
        around = dt.timedelta(milliseconds=1)
        try:
            low, high = ((value + by).isoformat(sep=" ", timespec="microseconds") for by in (-around, around))
        except OverflowError:
            return None
        return _around(quoted(name), op, f"TIMESTAMP '{low}'", f"TIMESTAMP '{high}'")


def _around(column: str, op: str, low: str, high: str, or_above: str = "") -> str:
    """A comparison with bounds a little below and above its value; `or_above` is what else is above every bound."""
    match op:
        case "Lt" | "LtEq":
            return f"{column} <= {high}"
        case "Gt" | "GtEq":
            return f"({column} >= {low}{or_above})"
        case "Eq":
            return f"({column} >= {low} AND {column} <= {high})"
    return f"{column} IS NOT NULL"


def _decimal(value: decimal.Decimal) -> str | None:
    exponent = value.as_tuple().exponent
    if not isinstance(exponent, int) or len(value.as_tuple().digits) + max(exponent, 0) > 38 or exponent < -38:
        return None
    scale = max(-exponent, 0)
    return f"CAST('{value:f}' AS DECIMAL(38, {scale}))"


def _literal(node: Node) -> pl.Series | None:
    """The value of a literal, or its values; None: it is none."""
    import polars as pl

    if not isinstance(node, dict) or list(node) != ["Literal"]:
        return None
    try:
        return pl.select(pl.Expr.deserialize(io.StringIO(json.dumps(node)), format="json")).to_series()
    except (pl.exceptions.PolarsError, ValueError):
        return None
