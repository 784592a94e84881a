"""`pithead serve` over drives of a folder, for tests with clients of PostgreSQL."""

from __future__ import annotations

import re
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from programs import program

import pithead

TYPES = """
CREATE TABLE types AS SELECT
    arrow_cast(id, 'Int16') AS small, arrow_cast(id, 'Int32') AS whole, id AS big, arrow_cast(id, 'UInt64') AS unsigned,
    arrow_cast(id * 0.1, 'Float32') AS real, id / 3.0 AS double, arrow_cast(id * 1.25, 'Decimal128(12, 2)') AS amount,
    'text ' || id AS name, arrow_cast('bytes', 'Binary') AS raw, id > 1 AS flag,
    arrow_cast(arrow_cast(19781 + id, 'Int32'), 'Date32') AS day,
    TIMESTAMP '2024-02-29 01:02:03.5' AS moment,
    arrow_cast('2024-02-29T01:02:03Z', 'Timestamp(Microsecond, Some("UTC"))') AS zoned,
    make_array(id, NULL, 7) AS list, named_struct('a', id, 'b', 'x') AS pair
FROM (VALUES (1), (2), (3)) AS v (id)
"""


@dataclass
class Server:
    port: int
    process: subprocess.Popen[str]
    folder: Path
    log: threading.Thread
    console: str = ""

    @property
    def url(self) -> str:
        return f"host=127.0.0.1 port={self.port} user=me dbname=pithead"


def end(server: Server) -> int:
    """Tells the server to end; its exit code."""
    server.process.terminate()
    code = server.process.wait(30)
    server.log.join(30)
    assert server.process.stderr
    server.process.stderr.close()
    return code


def start(folder: Path, *arguments: str) -> Server:
    """`pithead serve` over the drives of a folder."""
    command: list[str | Path] = [program(), "serve", "--listen", "127.0.0.1:0", "--data", "data", *arguments]
    process = subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
    assert process.stderr
    console = ""
    for line in process.stderr:
        if shown := re.search(r"console at (http\S+)", line):
            console = shown[1]
        if found := re.search(r"listening on [^ ]*:(\d+)", line):
            log = threading.Thread(target=process.stderr.read, daemon=True)
            log.start()
            return Server(int(found[1]), process, folder, log, console)
    raise AssertionError("the server ended before it listened")


def loaded(folder: Path) -> None:
    with pithead.connect(str(folder / "data"), drives=2) as connection:
        connection.sql("CREATE TABLE lab.notes AS SELECT 1 AS id, 'a' AS note")
        connection.sql("CREATE TABLE items AS SELECT value AS id, value % 10 AS kind FROM range(20000)")
        connection.sql(TYPES)


@contextmanager
def served(folder: Path) -> Iterator[Server]:
    """A server over what `loaded` loads, which has to end well."""
    loaded(folder)
    server = start(folder)
    yield server
    assert end(server) == 0
