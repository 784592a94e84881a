"""PostgreSQL's clients over `pithead serve`: psycopg, asyncpg and psql, none of which know Pithead."""

from __future__ import annotations

import asyncio
import datetime as dt
import decimal
import re
import shutil
import ssl
import subprocess
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import psycopg
import pytest
from fronts import Server, end, loaded, served, start
from programs import program

D = decimal.Decimal


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with served(tmp_path_factory.mktemp("front")) as found:
        yield found


def first(value: object) -> list[object]:
    """What a client of Python makes of the first row of `types`; `value` makes text of JSON."""
    return [
        1, 1, 1, D(1), pytest.approx(0.1), pytest.approx(1 / 3), D("1.25"), "text 1", b"bytes", False, dt.date(2024, 2, 29),
        dt.datetime(2024, 2, 29, 1, 2, 3, 500000), dt.datetime(2024, 2, 29, 1, 2, 3, tzinfo=dt.UTC), [1, None, 7], value,
    ]  # fmt: skip


@pytest.mark.parametrize("binary", [False, True])
def test_psycopg_reads_every_type(server: Server, binary: bool) -> None:
    with psycopg.connect(server.url, autocommit=True) as connection:
        row = connection.execute("SELECT * FROM types ORDER BY whole LIMIT 1", binary=binary).fetchone()
        assert row is not None
        names = [column.name for column in connection.execute("SELECT * FROM types").description or []]
    assert [bytes(v) if isinstance(v, memoryview) else v for v in row] == first({"a": 1, "b": "x"})
    assert names[:3] == ["small", "whole", "big"]


PARAMETERS = [
    ("whole = %s", 2, 1),
    ("big > %s", 1, 2),
    ("amount = %s", D("2.50"), 1),
    ("amount = %s", D("2.505"), 0),
    ("double < %s", 0.5, 1),
    ("name = %s", "text 3", 1),
    ("raw = %s", b"bytes", 3),
    ("flag = %s", True, 2),
    ("day = %s", dt.date(2024, 3, 1), 1),
    ("moment < %s", dt.datetime(2024, 3, 1), 3),
    ("zoned = %s", dt.datetime(2024, 2, 29, 2, 2, 3, tzinfo=dt.timezone(dt.timedelta(hours=1))), 3),
    ("big = ANY(%s)", [1, 3], 2),
    ("name = ANY(%s)", ["text 1", "text 3", "no such"], 2),
    ("name IS NOT DISTINCT FROM %s", None, 0),
]


@pytest.mark.parametrize(("condition", "value", "count"), PARAMETERS)
@pytest.mark.parametrize("sign", ["%s", "%b", "%t"])
def test_psycopg_gives_parameters(server: Server, condition: str, value: object, count: int, sign: str) -> None:
    with psycopg.connect(server.url, autocommit=True) as connection:
        found = connection.execute(f"SELECT count(*) FROM types WHERE {condition.replace('%s', sign)}", [value]).fetchone()
    assert found == (count,)


def test_psycopg_prepares_streams_and_copies(server: Server) -> None:
    with psycopg.connect(server.url, autocommit=True) as connection:
        for number in range(8):
            found = connection.execute("SELECT count(*) FROM items WHERE kind = %s", [number], prepare=True).fetchone()
            assert found == (2000,)
        with connection.cursor() as cursor:
            assert sum(row[0] for row in cursor.stream("SELECT id FROM items")) == 19999 * 10000
        with connection.cursor().copy("COPY (SELECT id, kind FROM items WHERE id < 3 ORDER BY id) TO STDOUT") as copy:
            assert b"".join(copy) == b"0\t0\n1\t1\n2\t2\n"
        with connection.cursor().copy("COPY (SELECT id, 'a' AS a FROM items WHERE id < 2) TO STDOUT (FORMAT binary)") as copy:
            copy.set_types(["int8", "text"])
            assert sorted(copy.rows()) == [(0, "a"), (1, "a")]
        connection.execute("CREATE TABLE copied (id bigint, name text, day date)")
        with connection.cursor().copy("COPY copied (id, name, day) FROM STDIN") as copy:
            for number in range(20000):
                copy.write_row((number, None if number == 7 else f"a\t{number}\n\\", dt.date(2024, 1, 1)))
        assert connection.execute("SELECT count(*), count(name), sum(id), min(name) FROM copied").fetchone() == (
            20000, 19999, 19999 * 10000, "a\t0\n\\",
        )  # fmt: skip
        with pytest.raises(psycopg.errors.BadCopyFileFormat), connection.cursor().copy("COPY copied FROM STDIN") as copy:
            copy.write("1\n")
        with (
            pytest.raises(psycopg.errors.InvalidDatetimeFormat, match="COPY, line 2, column day: .*no day"),
            connection.cursor().copy("COPY copied FROM STDIN") as copy,
        ):
            copy.write("1\tx\t2024-01-01\n1\tx\tno day\n")
        connection.execute("CREATE TABLE times (took interval, seen timestamptz)")
        connection.execute("SET TIME ZONE 'America/New_York'")
        with connection.cursor().copy("COPY times FROM STDIN") as copy:
            copy.write("-1 days +02:03:04\t2020-11-01 01:30:00\n25:00:00\t2020-03-08 02:30:00\n")
        with connection.cursor().copy("COPY (SELECT * FROM times ORDER BY seen) TO STDOUT") as copy:
            written = b"".join(copy)
        assert written == b"25:00:00\t2020-03-08 03:30:00-04\n-1 days +02:03:04\t2020-11-01 01:30:00-05\n"
        with connection.cursor().copy("COPY times FROM STDIN") as copy:
            copy.write(written)
        assert connection.execute("SELECT count(*), count(DISTINCT took) FROM times").fetchone() == (4, 2)
        with pytest.raises(ZeroDivisionError), connection.cursor().copy("COPY copied FROM STDIN") as copy:
            copy.write("1\tx\t2024-01-01\n")
            raise ZeroDivisionError
        assert connection.execute("SELECT count(*) FROM copied").fetchone() == (20000,)
        connection.execute("DROP TABLE copied")


def test_psycopg_writes_and_is_told_what_a_block_is(server: Server) -> None:
    with psycopg.connect(server.url) as connection:
        told: list[str] = []
        connection.add_notice_handler(lambda notice: told.append(notice.message_primary or ""))
        connection.execute("CREATE TABLE written (id bigint, name text, amount decimal(10, 2), day date)")
        connection.commit()
        assert "ROLLBACK will not undo" in told[0]
        with pytest.raises(psycopg.errors.FeatureNotSupported):
            connection.execute("INSERT INTO written VALUES (%s, %s, %s, %s)", [1, "x", D("1.50"), dt.date(2024, 1, 2)])
            connection.execute("INSERT INTO written VALUES (2, 'y', 2, NULL)")
        with pytest.raises(psycopg.errors.FeatureNotSupported):
            connection.rollback()
        connection.autocommit = True
        assert connection.execute("UPDATE written SET name = %s WHERE id = %s", ["z", 1]).rowcount == 1
        assert connection.execute("SELECT * FROM written").fetchall() == [(1, "z", D("1.50"), dt.date(2024, 1, 2))]
        connection.execute("DROP TABLE written")


def test_errors_are_those_that_drivers_know(server: Server) -> None:
    errors = {
        "SELEC 1": psycopg.errors.SyntaxError,
        "SELECT nothing FROM items": psycopg.errors.UndefinedColumn,
        "SELECT * FROM nothing": psycopg.errors.UndefinedTable,
        "SELECT nothing(1)": psycopg.errors.UndefinedFunction,
        "SELECT 1 / (id - id) FROM items": psycopg.errors.DivisionByZero,
        "SELECT 'x'::int": psycopg.errors.InvalidTextRepresentation,
        "SET nothing = 1": psycopg.errors.UndefinedObject,
        "SET client_encoding = 'LATIN1'": psycopg.errors.InvalidParameterValue,
        "SAVEPOINT s": psycopg.errors.NoActiveSqlTransaction,
        "COPY items TO '/tmp/x'": psycopg.errors.FeatureNotSupported,
        "COPY items FROM 's3://lake/x.csv'": psycopg.errors.FeatureNotSupported,
    }
    with psycopg.connect(server.url, autocommit=True) as connection:
        for sql, error in errors.items():
            with pytest.raises(error):
                connection.execute(sql)
        assert connection.execute("SELECT 1").fetchone() == (1,)
        connection.execute("SET statement_timeout = 200")
        with pytest.raises(psycopg.errors.QueryCanceled):
            connection.execute("SELECT count(*) FROM range(100000000) a, range(100000000) b WHERE a.value + b.value < 0")


def test_a_cancelled_statement_ends_within_a_second(server: Server) -> None:
    with psycopg.connect(server.url, autocommit=True) as connection:
        asked: list[float] = []

        def cancel() -> None:
            asked.append(time.monotonic())
            connection.cancel_safe()

        threading.Timer(0.5, cancel).start()
        with pytest.raises(psycopg.errors.QueryCanceled):
            connection.execute("SELECT count(*) FROM range(100000000) a, range(100000000) b WHERE a.value + b.value < 0")
        assert time.monotonic() - asked[0] < 1
        assert connection.execute("SELECT count(*) FROM items").fetchone() == (20000,)


def test_settings_of_clients(server: Server) -> None:
    options = "-c statement_timeout=30s -c search_path=lab"
    with psycopg.connect(server.url, options=options, application_name="tests", autocommit=True) as connection:
        shown = {name: connection.execute(f"SHOW {name}").fetchone() for name in ("statement_timeout", "application_name", "TimeZone")}
        assert shown == {"statement_timeout": ("30s",), "application_name": ("tests",), "TimeZone": ("UTC",)}
        assert connection.execute("SELECT note FROM notes").fetchone() == ("a",)
        assert connection.execute("SELECT current_schema(), current_database(), current_user").fetchone() == ("lab", "pithead", "me")
        connection.execute("SET TIME ZONE 'Europe/Berlin'")
        assert connection.info.parameter_status("TimeZone") == "Europe/Berlin"
        found = connection.execute("SELECT zoned, zoned::text FROM main.types LIMIT 1").fetchone()
        assert found and found[0] == dt.datetime(2024, 2, 29, 1, 2, 3, tzinfo=dt.UTC)
        connection.execute("RESET ALL")
        assert connection.execute("SHOW TimeZone").fetchone() == ("UTC",)


def test_asyncpg(server: Server) -> None:
    asyncio.run(_asyncpg(server))


async def _asyncpg(server: Server) -> None:
    connection = await asyncpg.connect(host="127.0.0.1", port=server.port, user="me", database="pithead")
    columns = "small, whole, big, unsigned, real, double, amount, name, raw, flag, day, moment, zoned, pair"
    row = await connection.fetchrow(f"SELECT {columns} FROM types WHERE whole = $1", 1)
    assert row is not None
    assert list(row) == [value for value in first('{"a":1,"b":"x"}') if not isinstance(value, list)]
    assert await connection.fetchval("SELECT count(*) FROM types WHERE amount = $1 AND day > $2", D("2.50"), dt.date(2024, 1, 1)) == 1
    async with connection.transaction():
        cursor = await connection.cursor("SELECT id FROM items ORDER BY id")
        assert [row["id"] for row in await cursor.fetch(3)] == [0, 1, 2]
        assert [row["id"] for row in await cursor.fetch(2)] == [3, 4]
    await connection.execute("CREATE TABLE many (id bigint, name text)")
    await connection.execute("INSERT INTO many VALUES ($1, $2)", 1, "x")
    assert await connection.fetchval("SELECT name FROM many") == "x"
    condition = "name = ANY($1) AND ($2::text IS NULL OR id = $3 OR $3 IS NULL)"
    found = await connection.fetch(f"SELECT name FROM many WHERE {condition}", ["x"], None, 1)
    assert [row["name"] for row in found] == ["x"]
    await connection.execute("CREATE VIEW wide AS SELECT id, 16777217::float AS f FROM many")
    assert await connection.fetchval("SELECT f FROM wide") == 16777217.0
    await connection.execute("DROP VIEW wide")
    await connection.execute("ALTER TABLE many ADD COLUMN f FLOAT DEFAULT 16777217")
    assert await connection.fetchval("SELECT f FROM many") == 16777217.0
    await connection.execute("DROP TABLE many")
    with pytest.raises(asyncpg.UndefinedTableError):
        await connection.fetch("SELECT * FROM absent")
    with pytest.raises(asyncio.TimeoutError):
        endless = "SELECT count(*) FROM range(100000000) a, range(100000000) b WHERE a.value + b.value < 0"
        await connection.fetch(endless, timeout=0.5)
    assert await connection.fetchval("SELECT 1") == 1
    await connection.close()


PSQL = shutil.which("psql")


def psql(server: Server, *arguments: str, password: str = "", user: str = "me", **environment: str) -> subprocess.CompletedProcess[str]:
    assert PSQL
    command = [PSQL, "-X", "-h", "127.0.0.1", "-p", str(server.port), "-U", user, "-d", "pithead", *arguments]
    environment |= {"PGPASSWORD": password, "PAGER": "cat", "PATH": "/usr/bin:/bin"}
    return subprocess.run(command, env=environment, text=True, capture_output=True, timeout=60, stdin=subprocess.DEVNULL)


@pytest.mark.skipif(not PSQL, reason="psql is not there")
def test_psql_describes(server: Server) -> None:
    for command, expected in {
        r"\dt": ["main | items", "main | types"],
        r"\dt *.*": ["lab", "notes"],
        r"\dn": ["lab", "main"],
        r"\l": ["pithead", "UTF8"],
        r"\du": ["me"],
        r"\d types": ["amount | numeric(12,2)", "day | date", "list | bigint[]", 'Table "main.types"'],
        r"\d+ items": ["id | bigint"],
        r"\d": ["items"],
        r"\dv": ["Did not find any relations."],
        r"\df": [],
        r"\conninfo": ["pithead"],
    }.items():
        said = psql(server, "-c", command)
        text = re.sub(" +", " ", said.stdout + said.stderr)
        assert said.returncode == 0 and all(part in text for part in expected), (command, said.stdout, said.stderr)


@pytest.mark.skipif(not PSQL, reason="psql is not there")
def test_psql_runs_scripts_and_copies(server: Server, tmp_path: Path) -> None:
    said = psql(server, "-At", "-c", r"\timing on", "-c", "SELECT 1; SELECT 2", "-c", "SELECT nothing")
    assert said.stdout.split("\n")[1:3] == ["1", "2"] and "Time:" in said.stdout and "nothing" in said.stderr
    (tmp_path / "rows.csv").write_text('id,name\n1,"a,b"\n2,\n')
    script = tmp_path / "script.sql"
    script.write_text(
        "CREATE TABLE scripted (id bigint, name text);\n"
        rf"\copy scripted FROM '{tmp_path}/rows.csv' CSV HEADER" + "\n"
        rf"\copy (SELECT * FROM scripted ORDER BY id) TO '{tmp_path}/out.csv' CSV HEADER" + "\n"
        "DROP TABLE scripted;\n"
    )
    said = psql(server, "-v", "ON_ERROR_STOP=1", "-f", str(script))
    assert said.returncode == 0, said.stderr
    assert (tmp_path / "out.csv").read_text() == 'id,name\n1,"a,b"\n2,\n'


@pytest.mark.skipif(not PSQL, reason="psql is not there")
def test_tls_tokens_and_certificates(tmp_path: Path) -> None:
    loaded(tmp_path)
    for command in (["cert", "ca"], ["cert", "drive", "127.0.0.1", "localhost"], ["cert", "client", "ops"], ["token", "me", "--read", "main"]):
        subprocess.run([program(), *command], cwd=tmp_path, check=True, capture_output=True)
    access = tmp_path / "access.toml"
    access.write_text(access.read_text() + '\n[[identity]]\nname = "ops"\ncertificate = "ops"\nadminister = ["*"]\n')
    token = (tmp_path / "me.token").read_text().strip()
    files = ["--tls-cert", "certs/127.0.0.1.pem", "--tls-key", "certs/127.0.0.1.key", "--access", "access.toml"]
    server = start(tmp_path, *files)
    ca = {"PGSSLROOTCERT": str(tmp_path / "certs/ca.pem"), "PGSSLMODE": "verify-full"}
    said = psql(server, "-At", "-c", "SELECT count(*) FROM items", password=token, **ca)
    assert said.stdout.strip() == "20000", said.stderr
    assert "within TLS" in psql(server, "-c", "SELECT 1", password=token, PGSSLMODE="disable").stderr
    assert "authentication failed" in psql(server, "-c", "SELECT 1", password="x" * 40, **ca).stderr
    context = ssl.create_default_context(cafile=str(tmp_path / "certs/ca.pem"))

    async def ask() -> object:
        connection = await asyncpg.connect(host="127.0.0.1", port=server.port, user="me", password=token, database="x", ssl=context)
        try:
            return await connection.fetchval("SELECT count(*) FROM items")
        finally:
            await connection.close()

    assert asyncio.run(ask()) == 20000
    assert end(server) == 0
    server = start(tmp_path, *files, "--client-ca", "certs/ca.pem")
    own = ca | {"PGSSLCERT": str(tmp_path / "certs/ops.pem"), "PGSSLKEY": str(tmp_path / "certs/ops.key")}
    said = psql(server, "-At", "-c", "SELECT current_user", user="ops", **own)
    assert said.stdout.strip() == "ops", said.stderr
    assert psql(server, "-c", "SELECT 1", user="me", **own).returncode != 0
    assert end(server) == 0


def test_uuids_of_arrow(server: Server) -> None:
    value = uuid.UUID("00000000-0000-0000-0000-00000000002a")
    with psycopg.connect(server.url, autocommit=True) as connection:
        assert connection.execute("SELECT %s::text", [value]).fetchone() == (str(value),)
