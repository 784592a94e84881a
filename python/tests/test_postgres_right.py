"""What PostgreSQL's clients give and get is what they said, or an error: values of parameters, changed tables, blocks, zones."""

from __future__ import annotations

import asyncio
import datetime as dt
import decimal
import threading
import time
from collections.abc import Iterator

import asyncpg
import psycopg
import pytest
from fronts import Server, served

D = decimal.Decimal


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with served(tmp_path_factory.mktemp("right")) as found:
        yield found


@pytest.fixture
def connection(server: Server) -> Iterator[psycopg.Connection]:
    with psycopg.connect(server.url, autocommit=True) as connection:
        yield connection


@pytest.mark.parametrize(
    ("column", "value"),
    [("i", 2**40), ("s", 40_000), ("n", D("123456.1")), ("n", 1e9), ("i", "x"), ("d", "zz")],
)
def test_a_value_that_does_not_fit_is_an_error_and_no_null(connection: psycopg.Connection, column: str, value: object) -> None:
    connection.execute("CREATE OR REPLACE TABLE fits (i INT, s SMALLINT, n NUMERIC(6, 2), d DATE)")
    connection.execute("INSERT INTO fits VALUES (1, 1, 1, '2024-02-29')")
    for statement in (f"INSERT INTO fits ({column}) VALUES (%b)", f"UPDATE fits SET {column} = %b"):
        with pytest.raises(psycopg.errors.DataError):
            connection.execute(statement, [value])
    assert connection.execute("SELECT * FROM fits").fetchall() == [(1, 1, D("1.00"), dt.date(2024, 2, 29))]


@pytest.mark.parametrize(
    ("expression", "value", "expected"),
    [
        ("v + %s", D("1.08255"), D("4.33255")),
        ("sum(v * %s)", D("0.00125"), D("0.0040625")),
        ("%s", D("123456789012345678901234567890"), D("123456789012345678901234567890")),
        ("v * %s", D(10) ** 25, D("3.25") * D(10) ** 25),
        ("%s", D("1E+3"), D(1000)),
    ],
)
def test_numbers_keep_the_digits_of_parameters(
    connection: psycopg.Connection, expression: str, value: decimal.Decimal, expected: decimal.Decimal
) -> None:
    connection.execute("CREATE OR REPLACE TABLE priced (v NUMERIC(10, 2))")
    connection.execute("INSERT INTO priced VALUES (3.25)")
    assert connection.execute(f"SELECT {expression} FROM priced", [value]).fetchone() == (expected,)


def test_literals_keep_their_digits(connection: psycopg.Connection) -> None:
    connection.execute("CREATE OR REPLACE TABLE exact (a NUMERIC(20, 4), b NUMERIC(10, 2), f FLOAT, r BYTEA)")
    connection.execute("INSERT INTO exact VALUES (1234567890123456.7891, 1.005, 0.1, '\\xdead'::bytea)")
    row = connection.execute("SELECT * FROM exact WHERE f = 0.1").fetchone()
    assert row == (D("1234567890123456.7891"), D("1.01"), 0.1, b"\xde\xad")


def test_a_statement_over_a_changed_table_is_prepared_again(server: Server) -> None:
    async def ask() -> None:
        connection = await asyncpg.connect(host="127.0.0.1", port=server.port, user="me", database="pithead")
        for before, after, value in [("INT", "TEXT", "zz"), ("INT", "BIGINT", 5_000_000_000), ("INT", "FLOAT", 1.75)]:
            await connection.execute(f"CREATE OR REPLACE TABLE changes (a {before})")
            prepared = await connection.prepare("SELECT * FROM changes")
            await connection.execute(f"CREATE OR REPLACE TABLE changes (a {after})")
            await connection.execute(f"INSERT INTO changes VALUES ('{value}')")
            with pytest.raises(asyncpg.InvalidCachedStatementError):
                await prepared.fetch()
            assert await connection.fetchval("SELECT a FROM changes") == value
        await connection.execute("ALTER TABLE changes ADD COLUMN b INT")
        assert len(await connection.fetchrow("SELECT * FROM changes")) == 2
        await connection.close()

    asyncio.run(ask())


@pytest.mark.parametrize(
    ("query", "values"),
    [("SELECT value + 1 FROM range(10)", []), ("SELECT $1::bigint + value FROM range(10)", [1])],
)
def test_a_portal_is_moved_before_it_has_run(server: Server, query: str, values: list[int]) -> None:
    """A regression: MOVE counted no rows of a portal that nothing had executed, and the portal was empty from then on."""

    async def ask() -> None:
        connection = await asyncpg.connect(host="127.0.0.1", port=server.port, user="me", database="pithead")
        async with connection.transaction():
            cursor = await connection.cursor(query + " ORDER BY 1", *values)
            assert await cursor.forward(3) == 3
            assert [row[0] for row in await cursor.fetch(2)] == [4, 5]
            assert await cursor.forward(100) == 5
            assert await cursor.fetch(1) == []
        await connection.close()

    asyncio.run(ask())


def test_connections_are_ended_by_number(server: Server, connection: psycopg.Connection) -> None:
    def ended(function: str, number: int) -> object:
        row = connection.execute(f"SELECT {function}(%s)", [number]).fetchone()
        return row and row[0]

    def ask(function: str, error: type[Exception]) -> None:
        with psycopg.connect(server.url, autocommit=True) as other:
            number = other.info.backend_pid
            threading.Timer(0.5, ended, [function, number]).start()
            with pytest.raises(error):
                other.execute("SELECT pg_sleep(60)")
            assert other.closed == (function == "pg_terminate_backend")

    ask("pg_cancel_backend", psycopg.errors.QueryCanceled)
    ask("pg_terminate_backend", psycopg.errors.AdminShutdown)
    with psycopg.connect(server.url, autocommit=True) as idle:
        number = idle.info.backend_pid
        assert ended("pg_cancel_backend", number) is True
        assert idle.execute("SELECT 1").fetchone() == (1,), "nothing ran that could be cancelled"
        assert ended("pg_terminate_backend", number) is True
        with pytest.raises(psycopg.OperationalError):
            idle.execute("SELECT 1")
    deadline = time.monotonic() + 10
    while ended("pg_terminate_backend", number) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert ended("pg_terminate_backend", number) is False


def test_asyncpg_knows_the_types_of_casts_and_pools_are_reset(server: Server) -> None:
    async def ask() -> None:
        pool = asyncpg.create_pool(host="127.0.0.1", port=server.port, user="me", database="pithead", min_size=1, max_size=1)
        async with pool:
            assert await pool.fetchval("SELECT $1::int4", 5) == 5
            assert await pool.fetchval("SELECT count(*) FROM (SELECT 1 FROM items LIMIT $1 OFFSET $2) AS some", 7, 2) == 7
            assert await pool.fetchval("SELECT 1") == 1

    asyncio.run(ask())


def test_blocks_may_be_read_only(server: Server) -> None:
    with psycopg.connect(server.url) as connection:
        connection.execute("CREATE OR REPLACE TABLE kept AS SELECT 1 AS a")
        connection.commit()
        connection.read_only = True
        assert connection.execute("SELECT a FROM kept").fetchone() == (1,)
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
            connection.execute("DELETE FROM kept")
        connection.rollback()
        connection.read_only = None
        connection.execute("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY")
        connection.commit()
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
            connection.execute("INSERT INTO kept VALUES (2)")
        connection.rollback()
        connection.execute("SET TRANSACTION READ WRITE")
        connection.execute("INSERT INTO kept VALUES (2)")
        connection.commit()
        assert connection.execute("SELECT count(*) FROM kept").fetchone() == (2,)


def test_settings_end_with_their_block(server: Server) -> None:
    with psycopg.connect(server.url) as connection:

        def zone() -> str:
            row = connection.execute("SHOW TimeZone").fetchone()
            assert row is not None
            return str(row[0])

        connection.execute("SET LOCAL TimeZone = 'Europe/Oslo'")
        assert zone() == "Europe/Oslo"
        connection.commit()
        assert zone() == "UTC"
        connection.rollback()
        connection.execute("SET TimeZone = 'Europe/Oslo'")
        connection.rollback()
        assert zone() == "UTC"
        connection.execute("SET TimeZone = 'Asia/Tokyo'")
        connection.commit()
        assert zone() == "Asia/Tokyo"


def test_moments_are_read_in_the_zone_of_the_session(connection: psycopg.Connection) -> None:
    connection.execute("CREATE OR REPLACE TABLE zoned (z TIMESTAMPTZ, t TIMESTAMP)")
    connection.execute("INSERT INTO zoned VALUES ('2024-07-01 12:00:00+00', '2024-07-01 12:00:00')")
    connection.execute("SET TimeZone = 'Europe/Oslo'")
    for expression, expected in [
        ("extract(hour FROM z)", 14),
        ("date_trunc('day', z)", dt.datetime(2024, 6, 30, 22, tzinfo=dt.UTC)),
        ("z = '2024-07-01 14:00:00'", True),
        ("z = TIMESTAMP '2024-07-01 14:00:00'", True),
        ("z IN ('2024-07-01 14:00:00')", True),
        ("z::timestamp", dt.datetime(2024, 7, 1, 14)),
        ("z::time", dt.time(14)),
        ("z AT TIME ZONE 'America/New_York'", dt.datetime(2024, 7, 1, 8)),
        ("t AT TIME ZONE 'America/New_York'", dt.datetime(2024, 7, 1, 16, tzinfo=dt.UTC)),
        ("t::timestamptz", dt.datetime(2024, 7, 1, 10, tzinfo=dt.UTC)),
    ]:
        assert connection.execute(f"SELECT {expression} FROM zoned").fetchone() == (expected,), expression
    connection.execute("INSERT INTO zoned (z) SELECT t FROM zoned")
    found = connection.execute("SELECT z FROM zoned WHERE t IS NULL").fetchone()
    assert found == (dt.datetime(2024, 7, 1, 10, tzinfo=dt.UTC),)
    found = connection.execute("SELECT count(*) FROM zoned WHERE z = %s", [dt.datetime(2024, 7, 1, 14)]).fetchone()
    assert found == (1,)


@pytest.mark.parametrize("sign", ["%t", "%b"])
def test_moments_of_parameters_are_in_the_zone_of_the_session(connection: psycopg.Connection, sign: str) -> None:
    moment = dt.datetime(2024, 6, 30, 22, 30, tzinfo=dt.UTC)
    midnight = dt.datetime(2024, 6, 30, 22, tzinfo=dt.UTC)
    connection.execute("SET TimeZone = 'Europe/Berlin'")
    connection.execute("CREATE OR REPLACE TABLE walls (t TIMESTAMP, d DATE, z TIMESTAMPTZ)")
    values = [moment, moment, dt.date(2024, 7, 1)]
    connection.execute(f"INSERT INTO walls VALUES ({sign}, {sign}, {sign})", values)
    stored = connection.execute("SELECT t, d, z FROM walls").fetchone()
    assert stored == (dt.datetime(2024, 7, 1, 0, 30), dt.date(2024, 7, 1), midnight)
    utc = dt.datetime(2024, 7, 1, tzinfo=dt.UTC)
    for condition, value, count in [("t =", moment, 1), ("t <", utc, 1), ("z =", dt.date(2024, 7, 1), 1), ("d =", utc, 0)]:
        found = connection.execute(f"SELECT count(*) FROM walls WHERE {condition} {sign}", [value]).fetchone()
        assert found == (count,), condition
    found = connection.execute(f"SELECT count(*) FROM walls WHERE t = ANY({sign})", [[moment]]).fetchone()
    assert found == (1,)
    found = connection.execute(f"SELECT {sign}::text, {sign}::text", [moment, moment.replace(tzinfo=None)]).fetchone()
    assert found == ("2024-07-01 00:30:00+02", "2024-06-30 22:30:00")
    connection.execute("PREPARE walled (timestamptz) AS SELECT $1 AS z")
    assert connection.execute("EXECUTE walled (TIMESTAMP '2024-07-01 00:00:00')").fetchone() == (midnight,)
    connection.execute("DEALLOCATE walled")


def test_arrays_are_what_they_are_written_as(connection: psycopg.Connection) -> None:
    connection.execute("CREATE OR REPLACE TABLE some AS SELECT * FROM (VALUES (2), (3), (1)) AS v (x)")
    for expression, expected in [
        ("array(SELECT x FROM some ORDER BY x DESC LIMIT 2)", [3, 2]),
        ("array(SELECT x FROM some ORDER BY x OFFSET 1)", [2, 3]),
        ("array(SELECT DISTINCT x % 2 FROM some ORDER BY 1)", [0, 1]),
        ("array(SELECT x FROM some WHERE x > 9)", []),
        ("'a,b' = ANY('{\"a,b\",c}')", True),
        ("'a' = ANY('{\"a,b\",c}')", False),
        ("2 = ANY('{1,2}'::int[])", True),
    ]:
        assert connection.execute(f"SELECT {expression}").fetchone() == (expected,), expression
    found = connection.execute("SELECT x FROM some WHERE x = ANY(array(SELECT x FROM some ORDER BY x LIMIT 1))").fetchall()
    assert found == [(1,)]


def test_the_header_of_a_copy_may_have_to_match(connection: psycopg.Connection) -> None:
    connection.execute("CREATE OR REPLACE TABLE headed (a INT, b INT)")

    def copy(text: str) -> None:
        with connection.cursor().copy("COPY headed FROM STDIN (FORMAT csv, HEADER match)") as rows:
            rows.write(text)

    with pytest.raises(psycopg.errors.BadCopyFileFormat):
        copy("b,a\n1,2\n")
    copy("a,b\n1,2\n")
    assert connection.execute("SELECT * FROM headed").fetchall() == [(1, 2)]


def test_names_and_patterns_of_postgresql(connection: psycopg.Connection) -> None:
    cursor = connection.execute("SELECT kind::text, to_char(TIMESTAMP '2024-02-29 13:02:03', 'YYYY-MM-DD HH24:MI') AS c FROM items LIMIT 1")
    assert [column.name for column in cursor.description or []] == ["kind", "c"]
    row = cursor.fetchone()
    assert row is not None and row[1] == "2024-02-29 13:02"
    connection.execute("CREATE SCHEMA IF NOT EXISTS lab")
    connection.execute("CREATE TABLE pithead.lab.named AS SELECT 1 AS a")
    assert connection.execute("SELECT a FROM pithead.lab.named").fetchone() == (1,)
    connection.execute("DROP TABLE pithead.lab.named")
    with pytest.raises(psycopg.errors.Error):
        connection.execute("CREATE TABLE counted (a INT GENERATED ALWAYS AS IDENTITY)")
    with pytest.raises(psycopg.errors.CharacterNotInRepertoire):
        connection.execute(b"SELECT '\xff'")
    assert connection.execute("SELECT 1").fetchone() == (1,)


def test_statements_return_what_they_changed(connection: psycopg.Connection) -> None:
    connection.execute("CREATE OR REPLACE TABLE returned (id BIGINT, name TEXT)")
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO returned VALUES (%s, %s), (2, NULL) RETURNING id, upper(name) AS name", [1, "a"])
        assert cursor.statusmessage == "INSERT 0 2"
        assert [column.name for column in cursor.description or []] == ["id", "name"]
        assert sorted(cursor.fetchall()) == [(1, "A"), (2, None)]
        cursor.executemany("INSERT INTO returned VALUES (%s, %s) RETURNING id", [(3, "c"), (4, "d")], returning=True)
        assert cursor.fetchone() == (3,)
        assert cursor.nextset() and cursor.fetchone() == (4,)
        cursor.execute("DELETE FROM returned WHERE id > %s RETURNING *", [2])
        assert sorted(cursor.fetchall()) == [(3, "c"), (4, "d")]
    with pytest.raises(psycopg.errors.FeatureNotSupported):
        connection.execute("DELETE FROM returned RETURNING count(*)")
    with pytest.raises(psycopg.errors.DataError):
        connection.execute("UPDATE returned SET id = 7 RETURNING CAST(coalesce(name, 'x') AS INT)")
    assert connection.execute("SELECT count(*), sum(id) FROM returned").fetchone() == (2, 3)


def test_asyncpg_takes_what_a_statement_returns(server: Server) -> None:
    async def run() -> list[int]:
        connection = await asyncpg.connect(host="127.0.0.1", port=server.port, user="me", database="pithead")
        try:
            await connection.execute("CREATE OR REPLACE TABLE taken (id BIGINT)")
            first = await connection.fetchval("INSERT INTO taken VALUES ($1) RETURNING id + 1", 41)
            rows = await connection.fetch("UPDATE taken SET id = id * 2 RETURNING id")
            return [first, *(row["id"] for row in rows), await connection.fetchval("SELECT count(*) FROM taken")]
        finally:
            await connection.close()

    assert asyncio.run(run()) == [42, 82, 1]
