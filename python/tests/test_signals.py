"""Signals at random moments of programs over a drive: exit codes, what they leave, and whether the drive is free again.

A failure names its seed: PITHEAD_SIGNALS_SEED repeats it. PITHEAD_SIGNALS is how many signals are sent.
"""

from __future__ import annotations

import fcntl
import os
import pty
import random
import re
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from programs import program

import pithead

SEED = int(os.environ.get("PITHEAD_SIGNALS_SEED", "14"))
COUNT = int(os.environ.get("PITHEAD_SIGNALS", "12"))
# Far above what a machine of tests needs; nothing is measured by it.
PATIENCE = 60.0
ROWS = 60_000
STATEMENTS = [
    # Does not end, and has no rows.
    "SELECT a.k FROM t a, t b WHERE a.k + b.k = -1",
    # Does not end in its time, and has rows at once.
    "SELECT a.k, b.s FROM t a, t b",
    "SELECT count(*) FROM t a JOIN t b ON a.m = b.m JOIN t c ON b.m = c.m",
    # Spills.
    "SELECT a.s, b.s FROM t a JOIN t b ON a.m = b.m ORDER BY b.s, a.k",
    # May have ended before.
    "SELECT m, count(*), min(s) FROM t GROUP BY m ORDER BY m",
]
PYTHON = """
import sys
import polars, pyarrow
import pithead
target, statement = sys.argv[1:]
conn = pithead.connect(target, memory="256MiB")
print("ready", flush=True)
while True:
    {take}
"""
TAKES = ["conn.sql(statement).fetchall()", "conn.sql(statement).arrow()", "conn.sql(statement).pl()"]
TAKES += ["for batch in conn.sql(statement): pass", "conn.sql(statement).head(100_000)"]
# Exit codes of a program that listens, and of one that does not yet.
CODES = {signal.SIGINT: {130, -signal.SIGINT}, signal.SIGTERM: {143, -signal.SIGTERM}, signal.SIGKILL: {-signal.SIGKILL}}


def ended(child: subprocess.Popen[bytes]) -> int:
    try:
        return child.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        child.kill()
        raise


def batch(rng: random.Random, target: str, folder: Path, sent: signal.Signals) -> None:
    """A statement of the command line, of a file or of stdin, with its rows in a file or in a pipe that nobody reads."""
    statement, moment = rng.choice(STATEMENTS), rng.uniform(0, 1.5)
    out, unread = folder / "out.csv", rng.random() < 0.3
    command = [program(), "sql", "--drives", target, "--memory", "256MiB", "--format", "csv"]
    command += [] if unread else ["-o", out]
    typed = rng.random() < 0.3
    command += ["-f", "-"] if typed else ["-c", statement]
    with open(folder / "said", "wb") as said:
        child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said)
        assert child.stdin and child.stdout
        if typed:
            child.stdin.write(statement.encode())
        child.stdin.close()
        time.sleep(moment)
        child.send_signal(sent)
        code = ended(child)
        child.stdout.close()
    # It may have ended by itself: whole, or at its memory's bound.
    assert code in CODES[sent] | ({0} if statement == STATEMENTS[-1] else {4}), (statement, moment)
    assert b"panicked" not in (folder / "said").read_bytes()
    if code != 0 and sent != signal.SIGKILL:
        assert not out.exists() and not Path(f"{out}.partial").exists(), (statement, moment)


class Terminal:
    """A program at a terminal of its own, and a person who types."""

    def __init__(self, command: list[object]) -> None:
        self.side, inner = pty.openpty()
        self.child = subprocess.Popen(
            command,
            stdin=inner,
            stdout=inner,
            stderr=inner,
            start_new_session=True,
            # Its own terminal, so that what is typed there becomes signals.
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(inner)
        self.seen = b""

    def type(self, text: bytes) -> None:
        os.write(self.side, text)

    def look(self, seconds: float) -> None:
        """Takes what is shown, and answers the question where the cursor is."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0 and select.select([self.side], [], [], left)[0]:
            try:
                shown = os.read(self.side, 65536)
            except OSError:
                return
            self.seen += shown
            for _ in range(shown.count(b"\x1b[6n")):
                self.type(b"\x1b[1;1R")

    def wait_for(self, shown: str, meanwhile: Callable[[], None] = lambda: None) -> None:
        end = time.monotonic() + PATIENCE
        self.look(0.2)
        while not re.search(shown.encode(), self.seen):
            assert time.monotonic() < end and self.child.poll() is None, (shown, self.seen[-2000:])
            # Not once it is shown: what is typed next would follow a key that nobody presses then.
            meanwhile()
            self.look(0.2)
        self.seen = b""

    def close(self) -> None:
        self.child.kill()
        self.child.wait()
        os.close(self.side)


def prompt(rng: random.Random, target: str, folder: Path, sent: signal.Signals) -> None:
    """A statement at the prompt, which goes on after Ctrl-C and ends with the others."""
    terminal = Terminal([program(), "sql", "--drives", target, "--memory", "256MiB"])
    try:
        terminal.wait_for("pithead> ")
        terminal.type(rng.choice(STATEMENTS[:-1]).encode() + b";\r")
        terminal.look(rng.uniform(0, 1.5))
        if sent == signal.SIGINT:
            # One that is typed just before the statement runs is for nobody; then a person types it again.
            last = [0.0]

            def again() -> None:
                if time.monotonic() - last[0] > 3:
                    last[0] = time.monotonic()
                    terminal.type(b"\x03")

            again()
            # It may have ended by itself: at its memory's bound, or with the first of its rows.
            terminal.wait_for(r"(cancelled|error: |there are more)[\s\S]*pithead> ", again)
            terminal.type(b"SELECT 41 + 1 AS sum;\r")
            terminal.wait_for(r"42[\s\S]*pithead> ")
            terminal.type(b"\\q\r")
            terminal.look(0.2)
        else:
            terminal.child.send_signal(sent)
        end = time.monotonic() + PATIENCE
        while terminal.child.poll() is None and time.monotonic() < end:
            terminal.look(0.1)
        assert terminal.child.returncode in ({0} if sent == signal.SIGINT else CODES[sent]), terminal.seen[-2000:]
        assert b"panicked" not in terminal.seen
    finally:
        terminal.close()


def python(rng: random.Random, target: str, folder: Path, sent: signal.Signals) -> None:
    """A program in Python that takes one result after the other, in one of the ways that there are."""
    take, statement = rng.choice(TAKES), rng.choice(STATEMENTS)
    # A gigabyte of rows in memory would say nothing about signals.
    statement = f"SELECT count(*) FROM ({statement})" if "fetchall" in take or "arrow" in take or "pl()" in take else statement
    with open(folder / "said", "wb") as said:
        command = [sys.executable, "-c", PYTHON.format(take=take), target, statement]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said)
        assert child.stdout and child.stdout.readline() == b"ready\n"
        time.sleep(rng.uniform(0, 1.5))
        child.send_signal(sent)
        code = ended(child)
        child.stdout.close()
    told = (folder / "said").read_text()
    # The interpreter ends by the signal that it got, after the exception was shown. A sort may have met its bound before.
    assert code == -sent or (code == 1 and "LimitError" in told), (take, statement, told)
    if sent == signal.SIGINT and code != 1:
        assert told.strip().splitlines()[-1] == "KeyboardInterrupt", (take, statement, told)
    assert "panicked" not in told and "Fatal" not in told, told


def test_signals_at_random_moments(
    start_drives: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    drives = start_drives(1)
    address = drives.addresses[0]
    with pithead.connect(drives.target) as conn:
        rows = {"k": range(ROWS), "m": [k % 100 for k in range(ROWS)], "s": [f"{k:0>40}" for k in range(ROWS)]}
        conn.load("t", pa.table(rows), slice_rows=5_000)
        for number in range(SEED, SEED + COUNT):
            rng = random.Random(number)
            kind = [batch, prompt, python][number % 3]
            sent = rng.choice([signal.SIGINT, signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
            told = f"PITHEAD_SIGNALS_SEED={number} PITHEAD_SIGNALS=1: {kind.__name__}, {sent.name}"
            folder = tmp_path / f"{number}"
            temporary = folder / "temporary"
            temporary.mkdir(parents=True)
            monkeypatch.setenv("TMPDIR", str(temporary))
            monkeypatch.setenv("HOME", str(folder))
            monkeypatch.setenv("NO_COLOR", "1")
            try:
                kind(rng, address if kind is not python else f"pithead://{address}", folder, sent)
                if sent == signal.SIGINT or (sent == signal.SIGTERM and kind is not python):
                    assert list(temporary.rglob("*")) == []
                start = time.monotonic()
                while any(drive["sessions"] or drive["memory_reserved"] for drive in conn.drives().values()):
                    assert time.monotonic() - start < PATIENCE, conn.drives()
                    time.sleep(0.02)
                assert conn.sql("SELECT count(*), sum(k) FROM t WHERE m < 50").fetchall() == [
                    (ROWS // 2, sum(k for k in range(ROWS) if k % 100 < 50))
                ]
            except BaseException:
                print(told)
                raise


def test_who_is_told_that_a_change_was_cancelled_may_make_it_again(tmp_path: Path) -> None:
    """A signal comes before a change is sent, and it is not made; or it comes too late, and the change is told as made."""
    data, rows = tmp_path / "data", tmp_path / "rows.csv"
    rows.write_text("v\n" + "1\n" * 1_000)

    def command(*arguments: object) -> list[object]:
        return [program(), *arguments, "--data", data]

    def count() -> int:
        asked = command("sql", "-q", "--format", "csv", "-c", "SELECT count(*) FROM r")
        return int(subprocess.run(asked, capture_output=True, text=True, check=True).stdout.split()[1])

    subprocess.run(command("sql", "-q", "--create", "-c", "CREATE TABLE r (v BIGINT)"), check=True)
    before = 0
    for number in range(SEED, SEED + COUNT):
        rng = random.Random(number)
        sent = rng.choice([signal.SIGINT, signal.SIGTERM])
        insert = command("sql", "-c", "INSERT INTO r SELECT value FROM range(1000)")
        change = rng.choice([insert, command("load", "r", rows, "--append")])
        told = f"PITHEAD_SIGNALS_SEED={number} PITHEAD_SIGNALS=1: {change[1]}, {sent.name}"
        child = subprocess.Popen(change, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
        time.sleep(rng.uniform(0.02, 0.4))
        child.send_signal(sent)
        said = child.communicate(timeout=PATIENCE)[1]
        after = count()
        assert child.returncode in CODES[sent] | {0}, (told, said)
        assert after - before == (1_000 if child.returncode == 0 else 0), (told, said)
        before = after
