"""Host programs of drives on the network, with a process for each drive."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pithead
from pithead.ssd import SSD, Application, Reader

ROOT = Path(__file__).resolve().parents[2]

Start = Callable[[int], Any]


@pytest.fixture(scope="session")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with modules of the template and the examples in C++."""
    out = tmp_path_factory.mktemp("modules")
    for folder, name in (("sdk/cpp/template", "doubler"), ("sdk/examples/ssdlets/cpp", "wordcount")):
        make = ["make", "-s", "-C", ROOT / folder, f"OUT={out}", f"ZIG={sys.executable} -m ziglang", out / f"{name}.wasm"]
        subprocess.run(make, check=True, capture_output=True)
    return out


def sessions(drives: Any) -> str:
    program = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release" / "pithead"
    command = [program, "session", "ls", "--json", "--drives", ",".join(drives.addresses)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_rows_go_through_ssdlets_of_several_drives(start_drives: Start, modules: Path) -> None:
    drives = start_drives(2)
    ssds = [SSD(address) for address in drives.addresses]
    for ssd in ssds:
        assert ssd.load_module(modules / "doubler.wasm") == "doubler"
    with Application(ssds) as app:
        chain = [app.ssdlet(ssd, "doubler") for ssd in (*ssds, ssds[0])]
        for one, other in zip(chain, chain[1:], strict=False):
            app.connect(one.out(0), other.in_(0))
        to, answers = app.connect_to(chain[0].in_(0)), app.connect_to(chain[-1].out(0))
        app.start()
        with to:
            for number in range(5):
                assert to.put(number)
                assert answers.get() == 8 * number
        assert list(answers) == []
        answers.close()
        assert answers.get() is None
        assert app.wait() > 0
    assert sessions(drives) == ""


def test_columns_are_tuples_and_the_host_deals_out_and_gathers(start_drives: Start, modules: Path) -> None:
    ssds = [SSD(f"pithead://{address}") for address in start_drives(2).addresses]
    for ssd in ssds:
        ssd.load_module(modules / "wordcount.wasm")
    with Application(ssds, "words", memory=64 << 20, seconds=60) as app:
        reducers = [app.ssdlet(ssd, "wordcount", "idReducer") for ssd in ssds]
        to = app.connect_to(*(reducer.in_(0) for reducer in reducers))
        counts = app.connect_to(*(reducer.out(0) for reducer in reducers))
        assert (to.types, counts.types) == ("string,u32", "string,u32")
        app.start()
        with to:
            for _ in range(1000):
                for word in ("to", "bé"):
                    to.put((word, 2))
        told: dict[str, int] = {}
        for word, count in counts:
            told[word] = told.get(word, 0) + count
        app.wait()
    assert told == {"to": 2000, "bé": 2000}


def test_one_application_reads_what_another_one_puts_out(start_drives: Start, modules: Path) -> None:
    ssds = [SSD(address) for address in start_drives(2).addresses]
    for ssd in ssds:
        ssd.load_module(modules / "doubler.wasm")
    with Application(ssds[0], "first") as first, Application(ssds[1], "second") as second:
        one, other = first.ssdlet(ssds[0], "doubler"), second.ssdlet(ssds[1], "doubler")
        first.connect(one.out(0), other.in_(0))
        to, answers = first.connect_to(one.in_(0)), second.connect_to(other.out(0))
        second.start()
        first.start()
        to.put(1)
        assert answers.get() == 4
        first.stop()
        for _ in range(2):
            with pytest.raises(pithead.Cancelled, match=r"the application first, which it reads, has failed"):
                answers.get()


def test_threads_that_share_a_reader_lose_no_rows() -> None:
    asked, released = threading.Event(), threading.Event()
    batches = iter([[4, 5, 6], [1, 2, 3]])

    class Native:
        def get(self) -> list[int] | None:
            batch = next(batches, None)
            if batch == [4, 5, 6]:
                asked.set()
                released.wait(60)
            return batch

    native: Any = Native()
    reader = Reader(native)
    taken: list[int] = []
    thread = threading.Thread(target=lambda: taken.append(reader.get()))
    thread.start()
    assert asked.wait(60)
    taken.append(reader.get())
    released.set()
    thread.join()
    assert sorted([*taken, *reader]) == [1, 2, 3, 4, 5, 6]


def test_the_end_stays_the_end_once_the_reader_is_closed() -> None:
    class Native:
        is_closed = False

        def get(self) -> None:
            assert not self.is_closed

        def close(self) -> None:
            self.is_closed = True

    native: Any = Native()
    reader = Reader(native)
    assert reader.get() is None
    reader.close()
    assert reader.get() is None


def test_mistakes_say_what_was_expected(start_drives: Start, modules: Path) -> None:
    (address,) = start_drives(1).addresses
    ssd = SSD(address)
    ssd.load_module(modules / "doubler.wasm")
    with pytest.raises(pithead.ConflictError):
        ssd.load_module(modules / "wordcount.wasm", "doubler")
    with Application(ssd) as app:
        with pytest.raises(pithead.UserError, match=r"the drive has no module none"):
            app.ssdlet(ssd, "none")
        with pytest.raises(pithead.UserError, match=r"none of the application's drives"):
            app.ssdlet(SSD(address), "doubler")
        doubler = app.ssdlet(ssd, "doubler", "idDoubler")
        with pytest.raises(pithead.UserError, match=r"idDoubler.in\(0\) is not connected"):
            app.start()
        to, answers = app.connect_to(doubler.in_(0)), app.connect_to(doubler.out(0))
        app.start()
        with pytest.raises(pithead.UserError, match=r"'seven' is no i64"):
            to.put("seven")
        app.stop()
        with pytest.raises(pithead.Cancelled, match=r"the application application was stopped"):
            answers.get()
    assert ssd.unload_module("doubler")
    assert not ssd.unload_module("doubler")


def test_a_drive_that_dies_is_an_error_that_names_it(start_drives: Start, modules: Path) -> None:
    drives = start_drives(2)
    ssds = [SSD(address) for address in drives.addresses]
    for ssd in ssds:
        ssd.load_module(modules / "doubler.wasm")
    with Application(ssds) as app:
        one, other = (app.ssdlet(ssd, "doubler") for ssd in ssds)
        app.connect(one.out(0), other.in_(0))
        to, answers = app.connect_to(one.in_(0)), app.connect_to(other.out(0))
        app.start()
        to.put(1)
        assert answers.get() == 4
        drives.processes[1].send_signal(signal.SIGKILL)
        with pytest.raises(pithead.DriveError, match=drives.addresses[1]):
            answers.get()
        with pytest.raises(pithead.DriveError, match=drives.addresses[1]):
            app.wait()
    drives.addresses.pop()
    limit = time.monotonic() + 10
    while sessions(drives):
        assert time.monotonic() < limit, "an application is left at the other drive"
        time.sleep(0.05)
