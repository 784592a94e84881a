"""Values of classes that Python has of its own, made from the numbers that the engine keeps."""

from __future__ import annotations

import datetime as dt
import decimal as dec
import functools
import uuid
import zoneinfo

from ._errors import UserError

_EPOCH = dt.datetime(1970, 1, 1)
_EPOCH_UTC = _EPOCH.replace(tzinfo=dt.timezone.utc)
_DAY_0 = _EPOCH.toordinal()
_DAY = 86_400 * 10**6
# The calendar repeats after so many years, which have so many days.
_CYCLE_YEARS, _CYCLE_DAYS = 400, 146_097
_EXACT = dec.Context(prec=80)
# PostgreSQL and DuckDB take months of intervals for so long, where a length is asked for.
_DAYS_A_MONTH = 30


def decimal(digits: int | str, scale: int) -> dec.Decimal:
    """`digits` / 10^`scale`, exactly."""
    return dec.Decimal(digits).scaleb(-scale, _EXACT)


def identifier(octets: bytes) -> uuid.UUID:
    """The UUID of 16 bytes."""
    return uuid.UUID(bytes=octets)


def date(days: int) -> dt.date | str:
    """The day so many days after 1970-01-01. One that `datetime` does not know is text, as DuckDB's package has it.

    >>> from pithead._values import date
    >>> date(1), date(2932897), date(-719163)
    (datetime.date(1970, 1, 2), '10000-01-01', '0001-12-31 (BC)')
    """
    try:
        return dt.date.fromordinal(_DAY_0 + days)
    except (ValueError, OverflowError):
        return _far(days)


def time(count: int, per_second: int) -> dt.time | str:
    """The time of day so long after midnight; the end of the day is text."""
    microseconds = _microseconds(count, per_second)
    if 0 <= microseconds < _DAY:
        return (_EPOCH + dt.timedelta(microseconds=microseconds)).time()
    return _clock(microseconds)


def timestamp(count: int, per_second: int, zone: str | None) -> dt.datetime | str:
    """The moment so long after 1970, in `zone`; a naive one without. One that `datetime` does not know is text, in UTC."""
    microseconds = _microseconds(count, per_second)
    try:
        if zone is None:
            return _EPOCH + dt.timedelta(microseconds=microseconds)
        return (_EPOCH_UTC + dt.timedelta(microseconds=microseconds)).astimezone(_zone(zone))
    except OverflowError:
        days, rest = divmod(microseconds, _DAY)
        return f"{_far(days)} {_clock(rest)}{'' if zone is None else '+00'}"


def interval(months: int, days: int, count: int, per_second: int) -> dt.timedelta:
    """A length of time; months are of 30 days."""
    try:
        return dt.timedelta(days=months * _DAYS_A_MONTH + days, microseconds=_microseconds(count, per_second))
    except OverflowError:
        raise UserError(
            f"an interval of {months} months and {days} days is longer than a timedelta can be",
            "take the result as Arrow, by .arrow()",
        ) from None


def _microseconds(count: int, per_second: int) -> int:
    if per_second <= 10**6:
        return count * (10**6 // per_second)
    # What is finer goes, towards 0, as in DuckDB's package.
    finer = per_second // 10**6
    return count // finer if count >= 0 else -(-count // finer)


def _far(days: int) -> str:
    cycles, day = divmod(days + _DAY_0 - 1, _CYCLE_DAYS)
    near = dt.date.fromordinal(day + 1)
    year = near.year + cycles * _CYCLE_YEARS
    return f"{year if year > 0 else 1 - year:04}-{near.month:02}-{near.day:02}{'' if year > 0 else ' (BC)'}"


def _clock(microseconds: int) -> str:
    seconds, rest = divmod(microseconds, 10**6)
    text = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{text}.{rest:06}".rstrip("0") if rest else text


@functools.lru_cache
def _zone(name: str) -> dt.tzinfo:
    if name[:1] in "+-":
        hours, _, minutes = name[1:].partition(":")
        offset = dt.timedelta(hours=int(hours[:2]), minutes=int(minutes or hours[2:] or 0))
        return dt.timezone(-offset if name[0] == "-" else offset)
    return dt.timezone.utc if name.upper() in ("UTC", "Z") else zoneinfo.ZoneInfo(name)
