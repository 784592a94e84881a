"""Exceptions, by who can help."""

from __future__ import annotations

from ._hints import in_python


class Error(Exception):
    """Something went wrong. `hint` says what to do about it, where something can be done.

    >>> import pithead
    >>> try:
    ...     pithead.connect().sql("SELECT 1 +")
    ... except pithead.Error as error:
    ...     print(type(error).__name__)
    UserError
    """

    hint: str | None
    message: str

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message, hint)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\nhint: {self.hint}"


class UserError(Error, ValueError):
    """The request cannot be right: bad SQL, an unknown name, a file that is not what it says."""


class UnsupportedError(Error, NotImplementedError):
    """The thing asked for is right, but this release cannot do it."""


class LimitError(Error):
    """A bound was met: memory, sessions, time. Trying later or with a larger bound helps."""


class DriveError(Error, OSError):
    """A medium, drive or link failed or is not there."""

    def __str__(self) -> str:
        return Error.__str__(self)


class ConflictError(Error):
    """Two changes met; this one changed nothing and may be tried again."""


class AccessError(Error, PermissionError):
    """The caller may not do this: no credentials, wrong ones, or ones without the right."""

    def __str__(self) -> str:
        return Error.__str__(self)


class Cancelled(Error):
    """The caller ended it, as by closing the connection."""


class CorruptError(Error):
    """Bytes that should be ours are not what they say."""


class InternalError(Error):
    """A mistake of Pithead's own."""


# Tracebacks name them as programs do.
for _error in [Error, *Error.__subclasses__()]:
    _error.__module__ = "pithead"


def of_engine(kind: str, message: str, hint: str | None) -> Error:
    """The exception that a fault of the engine is raised as; `kind` is the name of its class."""
    made: Error = globals()[kind](message, None if hint is None else in_python(hint))
    return made
