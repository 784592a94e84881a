"""How values are written in `.slt` files and in answer files. `crates/e2e/src/render.rs` follows the same rules.

One row a line, cells separated by tabs:

| value                      | text                                                                            |
|----------------------------|---------------------------------------------------------------------------------|
| NULL                       | `NULL`                                                                          |
| text                       | as it is; `(empty)` for the empty text; backslash, tab, newline, return as `\\\\`, |
|                            | `\\t`, `\\n`, `\\r`; a space at either end as `\\s`                                 |
| boolean                    | `true`, `false`                                                                 |
| integer                    | digits                                                                          |
| decimal                    | digits, without zeros at the end of the fraction                                |
| float                      | the shortest text that reads back the same, `NaN`, `inf`, `-inf`                |
| date                       | `1969-12-31`                                                                    |
| time                       | `23:59:59.25`, without zeros at the end of the fraction                         |
| timestamp                  | `1969-12-31 23:59:59.25`, likewise; with a zone: in UTC, and `Z` at the end     |
| interval                   | `14 months 3 days 1500000000 ns`                                                |
| binary                     | `0x` and lower-case hexadecimal digits                                          |
| list, struct               | `[a, b]`, `{name: value, name: value}`                                          |

A query's type letters say how columns are compared: `I` integer, `D` decimal, `T` text, `B` boolean, `?` others, all
as text; `R` float as a number, within 1e-9 of the larger magnitude. Where one side has a decimal and the other a float,
one unit of the decimal's last place is allowed too. Integers and decimals of equal value have equal text.
"""

import datetime
import math

import pyarrow as pa

EPOCH_DAY = datetime.date(1970, 1, 1).toordinal()
UNIT_NS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
ESCAPES = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"}


def letter(kind):
    """The type letter of a column."""
    if pa.types.is_dictionary(kind):
        return letter(kind.value_type)
    if pa.types.is_boolean(kind):
        return "B"
    if pa.types.is_integer(kind):
        return "I"
    if pa.types.is_decimal(kind):
        return "I" if kind.scale == 0 else "D"
    if pa.types.is_floating(kind):
        return "R"
    if is_text(kind):
        return "T"
    return "?"


def rows(table):
    """All rows of an Arrow table, each a list of cells."""
    columns = [column(table.column(i)) for i in range(table.num_columns)]
    return [list(row) for row in zip(*columns)] if columns else [[] for _ in range(table.num_rows)]


def column(chunked):
    """The cells of a column."""
    if pa.types.is_dictionary(chunked.type):
        chunked = chunked.cast(chunked.type.value_type)
    kind = chunked.type
    return [cell(kind, value) for chunk in chunked.chunks for value in raw(kind, chunk)]


def cell(kind, value):
    """One value, as `raw` gives it."""
    if value is None:
        return "NULL"
    if pa.types.is_boolean(kind):
        return "true" if value else "false"
    if is_text(kind):
        return text(value)
    if pa.types.is_decimal(kind):
        return number(value)
    if pa.types.is_floating(kind):
        return real(value)
    if pa.types.is_date(kind):
        return date(value)
    if pa.types.is_time(kind):
        return clock(value * UNIT_NS[kind.unit])
    if pa.types.is_timestamp(kind):
        return timestamp(value * UNIT_NS[kind.unit], kind.tz)
    if pa.types.is_interval(kind):
        return f"{value[0]} months {value[1]} days {value[2]} ns"
    if is_binary(kind):
        return "0x" + value.hex()
    if is_list(kind):
        return "[" + ", ".join(nested(kind.value_type, item) for item in value) + "]"
    if pa.types.is_struct(kind):
        return "{" + ", ".join(f"{field.name}: {nested(field.type, value[field.name])}" for field in kind) + "}"
    return str(value)


def nested(kind, value):
    """A value within a list or struct, where dates and times arrive as Python's own."""
    if isinstance(value, datetime.datetime):
        return timestamp((value.replace(tzinfo=None) - datetime.datetime(1970, 1, 1)) // datetime.timedelta(microseconds=1) * 1000, kind.tz)
    if isinstance(value, datetime.date):
        return date(value.toordinal() - EPOCH_DAY)
    return cell(kind, value)


def raw(kind, array):
    """Python values; dates and times as numbers of their unit, since Python's own do not reach far enough."""
    if pa.types.is_date32(kind):
        return array.cast(pa.int32()).to_pylist()
    if pa.types.is_time32(kind):
        return array.cast(pa.int32()).to_pylist()
    if pa.types.is_time64(kind) or pa.types.is_timestamp(kind):
        return array.cast(pa.int64()).to_pylist()
    return array.to_pylist()


def is_text(kind):
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


def is_binary(kind):
    return pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind) or pa.types.is_binary_view(kind)


def is_list(kind):
    return pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)


def text(value):
    if value == "":
        return "(empty)"
    for plain, escaped in ESCAPES.items():
        value = value.replace(plain, escaped)
    if value.startswith(" "):
        value = "\\s" + value[1:]
    if value.endswith(" "):
        value = value[:-1] + "\\s"
    return value


def number(value):
    digits = format(value, "f")
    if "." in digits:
        digits = digits.rstrip("0").rstrip(".")
    return "0" if digits == "-0" else digits


def real(value):
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return repr(float(value))


def date(days):
    return datetime.date.fromordinal(days + EPOCH_DAY).isoformat()


def clock(nanoseconds):
    seconds, fraction = divmod(nanoseconds, 1_000_000_000)
    shown = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return shown + (f".{fraction:09}".rstrip("0") if fraction else "")


def timestamp(nanoseconds, zone):
    days, rest = divmod(nanoseconds, 86_400_000_000_000)
    return f"{date(days)} {clock(rest)}{'Z' if zone else ''}"


def same(kinds, left, right):
    """Whether two rows of cells are equal by the rules above."""
    return len(left) == len(right) and all(a == b or (kind == "R" and close(a, b)) for kind, a, b in zip(kinds, left, right))


def close(left, right):
    """Whether two texts are numbers within the tolerance."""
    try:
        a, b = float(left), float(right)
    except ValueError:
        return False
    if math.isnan(a) or math.isnan(b):
        return math.isnan(a) and math.isnan(b)
    if math.isinf(a) or math.isinf(b):
        return a == b
    return abs(a - b) <= 1e-9 * max(abs(a), abs(b))


def key(kinds, row):
    """An order of rows in which those that differ in floats only stand together."""
    cells = list(zip(kinds, row))
    return [cell for kind, cell in cells if kind != "R"], [rank(cell) for kind, cell in cells if kind == "R"]


def rank(cell):
    return (0, 0.0) if cell == "NULL" else (2, 0.0) if cell == "NaN" else (1, float(cell))
