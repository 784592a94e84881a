"""Values of classes that Python has of its own, made from the numbers that the engine keeps."""

from __future__ import annotations

import datetime as dt
import decimal as dec
import functools
import zoneinfo

_EPOCH = dt.datetime(1970, 1, 1)
_EPOCH_UTC = _EPOCH.replace(tzinfo=dt.timezone.utc)
_DAY_0 = _EPOCH.toordinal()
_EXACT = dec.Context(prec=80)
# PostgreSQL and DuckDB take months of intervals for so long, where a length is asked for.
_DAYS_A_MONTH = 30


def decimal(digits: int | str, scale: int) -> dec.Decimal:
    """`digits` / 10^`scale`, exactly."""
    return dec.Decimal(digits).scaleb(-scale, _EXACT)


def date(days: int) -> dt.date:
    """The day so many days after 1970-01-01."""
    return dt.date.fromordinal(_DAY_0 + days)


def time(microseconds: int) -> dt.time:
    """The time of day so long after midnight."""
    return (_EPOCH + dt.timedelta(microseconds=microseconds)).time()


def timestamp(microseconds: int, zone: str | None) -> dt.datetime:
    """The moment so long after 1970, in `zone`; a naive one without."""
    if zone is None:
        return _EPOCH + dt.timedelta(microseconds=microseconds)
    return (_EPOCH_UTC + dt.timedelta(microseconds=microseconds)).astimezone(_zone(zone))


def interval(months: int, days: int, microseconds: int) -> dt.timedelta:
    """A length of time; months are of 30 days."""
    return dt.timedelta(days=months * _DAYS_A_MONTH + days, microseconds=microseconds)


@functools.lru_cache
def _zone(name: str) -> dt.tzinfo:
    if name[:1] in "+-":
        hours, _, minutes = name[1:].partition(":")
        offset = dt.timedelta(hours=int(hours[:2]), minutes=int(minutes or hours[2:] or 0))
        return dt.timezone(-offset if name[0] == "-" else offset)
    return dt.timezone.utc if name.upper() in ("UTC", "Z") else zoneinfo.ZoneInfo(name)
