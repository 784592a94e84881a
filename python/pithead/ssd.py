"""Host programs for drives: applications of SSDlets, in the shape of Biscuit's (Gu et al., ISCA 2016).

An SSDlet is a task of yours that runs in a drive, beside the data. An application is a graph of SSDlets on one or
several drives, connected by typed ports. docs/guides/programs.md shows how to write both.
"""

from __future__ import annotations

import os
import pathlib
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, Self, overload

from . import _arguments, _pithead
from ._errors import UserError

__all__ = ["SSD", "Application", "Input", "Output", "Reader", "SSDlet", "Writer"]


class SSD:
    """A drive on the network.

    Parameters
    ----------
    address
        "host:port", "pithead://host:port" or "pithead+tls://host:port".
    token, ca, cert, key, insecure
        As those of `pithead.connect`.
    """

    def __init__(
        self,
        address: str,
        *,
        token: str | None = None,
        ca: str | os.PathLike[str] | None = None,
        cert: str | os.PathLike[str] | None = None,
        key: str | os.PathLike[str] | None = None,
        insecure: bool = False,
    ) -> None:
        if (cert is None) != (key is None):
            raise UserError("expected both cert and key, or neither")
        token = token or os.environ.get("PITHEAD_TOKEN")
        ca = ca or os.environ.get("PITHEAD_TLS_CA")
        if cert is not None and ca is None:
            raise UserError("a client certificate is sent over TLS only", "say by ca=… whom to trust")
        link = {
            "address": _arguments.text("address", address),
            "token": None if token is None else _arguments.text("token", token),
            "ca": None if ca is None else _arguments.path("ca", ca),
            "cert": None if cert is None else _arguments.path("cert", cert),
            "key": None if key is None else _arguments.path("key", key),
            "insecure": bool(insecure),
        }
        self._native = _pithead.Ssd(link)

    def load_module(self, file: str | os.PathLike[str], name: str | None = None, *, replace: bool = False) -> str:
        """Has the drive keep a module, and returns the name by which SSDlets are made of it: that of the file, unless given.

        Another module of that name is a ConflictError, unless it is to be replaced. The same bytes again are no other module.
        """
        path = pathlib.Path(_arguments.path("file", file))
        name = path.stem if name is None else _arguments.text("name", name)
        self._native.load(name, path.read_bytes(), bool(replace))
        return name

    def unload_module(self, name: str) -> bool:
        """Has the drive forget a module; applications that run keep it. Whether it was there."""
        return self._native.unload(_arguments.text("name", name))

    def __repr__(self) -> str:
        return f"SSD({self._native.label!r})"


class Output:
    """An output port of an SSDlet."""

    def __init__(self, ssdlet: SSDlet, port: int) -> None:
        self._port = (ssdlet._native, _arguments.number("port", port, least=0))


class Input:
    """An input port of an SSDlet."""

    def __init__(self, ssdlet: SSDlet, port: int) -> None:
        self._port = (ssdlet._native, _arguments.number("port", port, least=0))


class SSDlet:
    """A task that runs in a drive. `Application.ssdlet` makes it."""

    def __init__(self, native: _pithead.Ssdlet) -> None:
        self._native = native

    @property
    def name(self) -> str:
        """Its name, as its module declares it."""
        return self._native.name

    def in_(self, port: int) -> Input:
        """An input port, by its number."""
        return Input(self, port)

    def out(self, port: int) -> Output:
        """An output port, by its number."""
        return Output(self, port)


class Reader:
    """Takes what SSDlets put out: values where rows have one column, else tuples; pyarrow.RecordBatch where ports are Arrow."""

    def __init__(self, native: _pithead.Reader) -> None:
        self._native = native
        # Several threads may take from it: one that gets a batch adds its rows to those that others have not taken yet.
        self._rows: deque[Any] = deque()
        self._has_ended = False

    @property
    def types(self) -> str:
        """The types of columns, such as "string,u32", or "arrow"."""
        return self._native.signature

    def __iter__(self) -> Iterator[Any]:
        return self

    # No generator: that would be at its end once something was raised in it, and later calls would find an end.
    def __next__(self) -> Any:
        while True:
            try:
                return self._rows.popleft()
            except IndexError:
                batch = None if self._has_ended else self._native.get()
            if batch is None:
                self._has_ended = True
                raise StopIteration
            self._rows.extend(_arrow().ipc.open_stream(batch) if isinstance(batch, bytes) else batch)

    def get(self) -> Any:
        """Waits for the next row or record batch; None at the end of the stream. Raises if the application failed."""
        return next(self, None)

    def close(self) -> None:
        """Says that nobody reads any more: who sends without end ends by that."""
        self._native.close()


class Writer:
    """Sends to inputs of SSDlets. Closing it ends its part of the stream; a `with` does that."""

    def __init__(self, native: _pithead.Writer) -> None:
        self._native = native

    @property
    def types(self) -> str:
        """The types of columns, such as "string,u32", or "arrow"."""
        return self._native.signature

    def put(self, row: Any) -> bool:
        """Sends a value, a tuple with one for each column, or a pyarrow.RecordBatch, and waits while too much is on its way.
        False once nobody reads any more."""
        if self.types != "arrow":
            return self._native.put(row)
        arrow = _arrow()
        sink = arrow.BufferOutputStream()
        with arrow.ipc.new_stream(sink, row.schema) as stream:
            stream.write_batch(row)
        return self._native.put_bytes(sink.getvalue().to_pybytes())

    def close(self) -> None:
        """Ends its part of the stream."""
        self._native.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class Application:
    """A graph of SSDlets on one or several drives: built, started, then waited for or stopped. Leaving its `with` stops it.

    What fails at one drive ends the application at all of them, and whoever waits is told the drive, the module, the
    SSDlet and the cause.

    Parameters
    ----------
    ssds
        A drive, or several.
    name
        How logs and errors name it: letters, digits, `_`, `-` and `.`.
    memory
        Bytes for its SSDlets at each drive, which may grant less.
    seconds
        Processor time of its SSDlets at each drive; None for as much as the drive allows.
    """

    def __init__(
        self,
        ssds: SSD | Iterable[SSD],
        name: str = "application",
        *,
        memory: int = 256 << 20,
        seconds: float | None = None,
    ) -> None:
        self._ssds: Sequence[SSD] = [ssds] if isinstance(ssds, SSD) else list(ssds)
        if seconds is not None and not 0.001 <= seconds <= 1e6:
            raise UserError(f"seconds: expected 0.001 to 1000000, got {seconds!r}")
        memory = _arguments.number("memory", memory, least=1)
        natives = [ssd._native for ssd in self._ssds]
        self._native = _pithead.Application(_arguments.text("name", name), natives, memory, seconds)

    def ssdlet(self, ssd: SSD, module: str, name: str | None = None, *arguments: Any) -> SSDlet:
        """Makes an SSDlet at a drive, of a module that the drive keeps. The name may be left out where the module has one
        SSDlet. Arguments are numbers, texts, or the names of files and datasets."""
        places = [place for place, known in enumerate(self._ssds) if known is ssd]
        if not places:
            raise UserError(f"{ssd!r} is none of the application's drives")
        texts = [str(argument).lower() if isinstance(argument, bool) else str(argument) for argument in arguments]
        return SSDlet(self._native.ssdlet(places[0], _arguments.text("module", module), name, texts))

    def connect(self, from_: Output, to: Input) -> None:
        """Connects an output to an input, of one drive or of two, of this application or of this one and another. An
        output that is connected to several inputs deals its batches out to them; an input takes from several outputs in
        the order in which batches come. Where the application that puts out fails, so does the one that reads it."""
        self._native.connect(from_._port, to._port)

    @overload
    def connect_to(self, port: Output, *others: Output) -> Reader: ...
    @overload
    def connect_to(self, port: Input, *others: Input) -> Writer: ...
    def connect_to(self, port: Output | Input, *others: Output | Input) -> Reader | Writer:
        """Connects outputs to this program, which reads them as one, or this program to inputs, which it deals out to."""
        ports = [port, *others]
        if all(isinstance(port, Output) for port in ports):
            return Reader(self._native.reader([port._port for port in ports]))
        if all(isinstance(port, Input) for port in ports):
            return Writer(self._native.writer([port._port for port in ports]))
        raise UserError("expected outputs of SSDlets, or inputs, and not both")

    def start(self) -> None:
        """Starts all SSDlets, or none. All ports have to be connected."""
        self._native.start()

    def wait(self) -> float:
        """Waits until all SSDlets have ended; returns the processor time that they took, in seconds. Raises the first
        failure."""
        return self._native.wait()

    def stop(self) -> None:
        """Ends all SSDlets."""
        self._native.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()


def _arrow() -> Any:
    try:
        import pyarrow.ipc
    except ImportError as error:
        raise UserError("record batches of Arrow ports need pyarrow", "pip install pyarrow") from error
    return pyarrow
