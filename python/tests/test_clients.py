"""More of PostgreSQL's clients over `pithead serve`: SQLAlchemy and pandas, cursors, binary COPY, ADBC, DuckDB's extension, pgjdbc
and R."""

from __future__ import annotations

import asyncio
import datetime as dt
import decimal
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg  # type: ignore[import-untyped]
import pandas as pd
import psycopg
import pyarrow as pa
import pytest
import sqlalchemy as sa
from fronts import Server, served

D = decimal.Decimal
CLIENTS = Path(__file__).resolve().parents[2] / ".tools" / "clients"
ENDLESS = "SELECT count(*) FROM range(100000000) a, range(100000000) b WHERE a.value + b.value < 0"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with served(tmp_path_factory.mktemp("clients")) as found:
        yield found


@pytest.fixture(scope="module")
def engine(server: Server) -> Iterator[sa.Engine]:
    engine = sa.create_engine(f"postgresql+psycopg://me@127.0.0.1:{server.port}/pithead", isolation_level="AUTOCOMMIT")
    yield engine
    engine.dispose()


def test_sqlalchemy_reflects(engine: sa.Engine) -> None:
    found = sa.inspect(engine)
    assert found.default_schema_name == "main"
    assert {"lab", "main", "information_schema"} <= set(found.get_schema_names())
    assert {"items", "types"} <= set(found.get_table_names()) and found.get_table_names(schema="lab") == ["notes"]
    assert found.has_table("types") and found.has_table("notes", schema="lab") and not found.has_table("nothing")
    assert found.get_view_names() == found.get_sequence_names() == found.get_materialized_view_names() == []
    columns = {column["name"]: column for column in found.get_columns("types")}
    assert [type(column["type"]).__name__ for column in columns.values()] == [
        "SMALLINT", "INTEGER", "BIGINT", "NUMERIC", "REAL", "DOUBLE_PRECISION", "NUMERIC", "TEXT", "BYTEA", "BOOLEAN", "DATE",
        "TIMESTAMP", "TIMESTAMP", "ARRAY", "JSON",
    ]  # fmt: skip
    amount = columns["amount"]["type"]
    assert isinstance(amount, sa.Numeric) and (amount.precision, amount.scale) == (12, 2)
    assert columns["big"]["nullable"] and columns["big"]["default"] is None
    assert found.get_pk_constraint("types")["constrained_columns"] == []
    assert not found.get_foreign_keys("types") and not found.get_indexes("types") and not found.get_unique_constraints("types")
    assert found.get_check_constraints("types") == [] and found.get_table_comment("types") == {"text": None}
    with pytest.raises(sa.exc.NoSuchTableError):
        found.get_columns("nothing")
    metadata = sa.MetaData()
    metadata.reflect(engine, schema="lab")
    assert [column.name for column in metadata.tables["lab.notes"].columns] == ["id", "note"]


def test_sqlalchemy_asks_and_writes(engine: sa.Engine) -> None:
    metadata = sa.MetaData()
    types = sa.Table("types", metadata, autoload_with=engine)
    made = sa.Table(
        "made", metadata, sa.Column("id", sa.BigInteger), sa.Column("name", sa.String(20)), sa.Column("day", sa.Date),
        sa.Column("moment", sa.DateTime), sa.Column("amount", sa.Numeric(10, 2)), sa.Column("flag", sa.Boolean),
    )  # fmt: skip
    with engine.connect() as connection:
        wanted = sa.select(types.c.big, types.c.amount, types.c.list, types.c.pair).where(types.c.name.startswith("text", autoescape=True))
        rows = connection.execute(wanted.where(types.c.big.in_([1, 2])).order_by(types.c.big)).all()
        assert rows == [(1, D("1.25"), [1, None, 7], {"a": 1, "b": "x"}), (2, D("2.50"), [2, None, 7], {"a": 2, "b": "x"})]
        made.create(connection)
        row = {"id": 1, "name": "it's", "day": dt.date(2024, 2, 29), "moment": dt.datetime(2024, 2, 29, 1), "amount": D("1.50"), "flag": True}
        connection.execute(made.insert(), [row | {"id": number} for number in range(5)])
        assert connection.execute(made.update().where(made.c.id == 4).values(name=None)).rowcount == 1
        assert connection.execute(made.delete().where(made.c.id == 0)).rowcount == 1
        assert connection.execute(sa.select(sa.func.count(), sa.func.count(made.c.name), sa.func.sum(made.c.amount))).one() == (4, 3, D(6))
        assert connection.execute(made.select().where(made.c.id == 1)).mappings().one() == row
        made.drop(connection)
        with pytest.raises(sa.exc.ProgrammingError, match="nothing"):
            connection.execute(sa.text("SELECT nothing FROM types"))
    with engine.connect() as connection:
        streamed = connection.execution_options(stream_results=True, isolation_level="READ COMMITTED")
        assert sum(len(part) for part in streamed.execute(sa.text("SELECT id FROM items")).partitions(1000)) == 20000


def test_pandas_reads_and_writes(engine: sa.Engine, server: Server) -> None:
    frame = pd.DataFrame({"a": [1, 2], "s": ["x", None], "day": pd.to_datetime(["2024-01-01", "2024-02-29"]), "f": [1.5, None]})
    frame.to_sql("frame", engine, index=False)
    frame.to_sql("frame", engine, index=False, if_exists="append")
    with pytest.raises(ValueError, match="exists"):
        frame.to_sql("frame", engine, index=False)
    assert pd.read_sql("SELECT count(*) AS n, sum(a) AS a FROM frame", engine).values.tolist() == [[4, 6]]
    frame.to_sql("frame", engine, index=False, if_exists="replace", method="multi")
    pd.testing.assert_frame_equal(pd.read_sql_table("frame", engine).sort_values("a", ignore_index=True), frame)
    chunks = pd.read_sql("SELECT id FROM items", engine, chunksize=6000)
    assert [len(chunk) for chunk in chunks] == [6000, 6000, 6000, 2000]
    frame.to_sql("frame", engine, if_exists="replace")
    assert pd.read_sql("SELECT * FROM frame ORDER BY index", engine)["index"].tolist() == [0, 1]
    # An engine with transactions: several statements of one write, and the connection has asked for that.
    url, options = engine.url, {"options": "-c pithead.block_writes=many"}
    blocks = sa.create_engine(url, connect_args=options)
    frame.to_sql("frame", blocks, index=False, if_exists="replace")
    with blocks.begin() as connection:
        connection.execute(sa.text("DROP TABLE frame"))
    blocks.dispose()


def test_cursors_give_rows_in_parts(server: Server) -> None:
    with psycopg.connect(server.url) as connection:
        with connection.cursor("some") as cursor:
            cursor.execute("SELECT id, kind FROM items WHERE id >= %s ORDER BY id", [10])
            assert [column.name for column in cursor.description or []] == ["id", "kind"]
            assert cursor.fetchmany(2) == [(10, 0), (11, 1)] and cursor.fetchone() == (12, 2)
            assert len(cursor.fetchall()) == 20000 - 13
        with connection.cursor("parts", binary=True) as cursor:
            cursor.itersize = 700
            assert sum(row[0] for row in cursor.execute("SELECT id FROM items")) == 19999 * 10000
        connection.commit()
        connection.execute("DECLARE kept CURSOR WITH HOLD FOR SELECT id FROM items ORDER BY id")
        connection.execute("DECLARE lost CURSOR FOR SELECT id FROM items ORDER BY id")
        connection.commit()
        assert connection.execute("FETCH 2 FROM kept").fetchall() == [(0,), (1,)]
        assert connection.execute("MOVE FORWARD 5 IN kept").rowcount in (-1, 5)
        assert connection.execute("FETCH NEXT FROM kept").fetchall() == [(7,)]
        with pytest.raises(psycopg.errors.InvalidCursorName):
            connection.execute("FETCH lost")
        connection.rollback()
        assert connection.execute("FETCH ALL FROM kept").rowcount == 20000 - 8
        connection.execute("CLOSE kept")
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState):
            connection.execute("DECLARE back CURSOR FOR SELECT 1")
            connection.execute("FETCH PRIOR FROM back")
        connection.rollback()
        with pytest.raises(psycopg.errors.SyntaxError):
            connection.execute("DECLARE wrong CURSOR FOR DELETE FROM items")
        connection.rollback()
        connection.autocommit = True
        with pytest.raises(psycopg.errors.NoActiveSqlTransaction):
            connection.execute("DECLARE alone CURSOR FOR SELECT 1")


def test_cursors_need_no_memory_and_are_cancelled(server: Server) -> None:
    status = Path(f"/proc/{server.process.pid}/status")

    def resident() -> int:
        (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmRSS"))
        return int(line.split()[1]) << 10

    with psycopg.connect(server.url) as connection, connection.cursor("large") as cursor:
        cursor.execute("SELECT value, repeat('x', 1000) FROM range(20000000)")
        cursor.fetchmany(100)
        before = resident()
        for _ in range(20):
            assert len(cursor.fetchmany(1000)) == 1000
        assert resident() < before + (64 << 20)
    with psycopg.connect(server.url) as connection:
        connection.execute("SET statement_timeout = '1s'")
        with pytest.raises(psycopg.errors.QueryCanceled), connection.cursor("slow") as slow:
            slow.execute(ENDLESS).fetchone()


TYPED: dict[str, tuple[str, list[Any]]] = {
    "id": ("int8", [1, None, -(2**63)]),
    "small": ("int2", [1, None, -5]),
    "name": ("text", ["a", None, "é\t\n"]),
    "day": ("date", [dt.date(2024, 2, 29), None, dt.date(1, 1, 1)]),
    "moment": ("timestamp", [dt.datetime(2024, 2, 29, 1, 2, 3, 4), None, dt.datetime(1960, 1, 1)]),
    "amount": ("numeric", [D("1.50"), None, D("-99999999.99")]),
    "flag": ("bool", [True, None, False]),
    "x": ("float8", [1.5, None, float("-inf")]),
    "raw": ("bytea", [b"\0\xff", None, b""]),
}
DDL = "id bigint, small smallint, name text, day date, moment timestamp, amount decimal(10, 2), flag boolean, x double, raw bytea"


def test_binary_copy_loads(server: Server) -> None:
    rows = [tuple(values[place] for _, values in TYPED.values()) for place in range(3)]
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(f"CREATE TABLE binary_rows ({DDL})")
        with connection.cursor().copy("COPY binary_rows FROM STDIN (FORMAT binary)") as copy:
            copy.set_types([kind for kind, _ in TYPED.values()])
            for _ in range(3000):
                for row in rows:
                    copy.write_row(row)
        assert connection.execute("SELECT count(*), count(name), sum(amount) FROM binary_rows").fetchone() == (9000, 6000, 3000 * D("-99999998.49"))
        found = connection.execute("SELECT DISTINCT * FROM binary_rows").fetchall()
        assert sorted(found, key=str) == sorted(rows, key=str)
        with connection.cursor().copy("COPY binary_rows (name, id) FROM STDIN WITH BINARY") as copy:
            copy.set_types(["text", "int8"])
            copy.write_row(("only", 7))
        assert connection.execute("SELECT name, day FROM binary_rows WHERE id = 7").fetchone() == ("only", None)
        connection.execute("DROP TABLE binary_rows")


HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)
LIES = {
    "no header": (b"1\tx\n", psycopg.errors.BadCopyFileFormat),
    "half a header": (HEADER[:14], psycopg.errors.BadCopyFileFormat),
    "flags": (HEADER[:11] + b"\0\1\0\0" + HEADER[15:], psycopg.errors.BadCopyFileFormat),
    "too few fields": (HEADER + b"\0\1\0\0\0\1a", psycopg.errors.BadCopyFileFormat),
    "half a row": (HEADER + b"\0\2\0\0\0\x08", psycopg.errors.BadCopyFileFormat),
    "a length below nothing": (HEADER + b"\0\2\xff\xff\xff\xfe", psycopg.errors.BadCopyFileFormat),
    "a huge field": (HEADER + b"\0\2\x7f\xff\xff\xff", psycopg.errors.BadCopyFileFormat),
    "a short number": (HEADER + b"\0\2\0\0\0\2\0\1\0\0\0\1a", psycopg.errors.InvalidBinaryRepresentation),
    "no UTF-8": (HEADER + b"\0\2\0\0\0\x08\0\0\0\0\0\0\0\1\0\0\0\1\xff", psycopg.errors.CharacterNotInRepertoire),
    "more after the end": (HEADER + b"\xff\xff\0", psycopg.errors.BadCopyFileFormat),
}


def test_binary_that_lies_is_refused(server: Server) -> None:
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("CREATE TABLE lies (id bigint, name text)")
        for lie, (data, error) in LIES.items():
            with pytest.raises(error), connection.cursor().copy("COPY lies FROM STDIN BINARY") as copy:
                copy.write(data)
            assert connection.execute("SELECT count(*) FROM lies").fetchone() == (0,), lie
        connection.execute("DROP TABLE lies")


def test_asyncpg_copies_records_and_reads_arrays(server: Server) -> None:
    async def copied() -> Any:
        connection = await asyncpg.connect(host="127.0.0.1", port=server.port, user="me", database="pithead")
        try:
            assert await connection.fetchval("SELECT list FROM types WHERE big = 2") == [2, None, 7]
            await connection.execute("CREATE TABLE records (id bigint, name text, day date)")
            await connection.copy_records_to_table("records", records=[(1, "a", dt.date(2024, 2, 29)), (2, None, None)])
            found = await connection.fetch("SELECT * FROM records ORDER BY id")
            await connection.execute("DROP TABLE records")
            return [tuple(row) for row in found]
        finally:
            await connection.close()

    assert asyncio.run(copied()) == [(1, "a", dt.date(2024, 2, 29)), (2, None, None)]


def test_adbc(server: Server) -> None:
    from adbc_driver_postgresql import dbapi  # type: ignore[import-untyped]

    table = pa.table(
        {
            "id": pa.array(range(5000), pa.int64()), "name": ["x", None] * 2500, "x": [1.5] * 5000,
            "day": pa.array([dt.date(2024, 2, 29)] * 5000), "moment": pa.array([dt.datetime(2024, 2, 29, 1)] * 5000, pa.timestamp("us")),
            "flag": [True] * 5000, "raw": [b"\0"] * 5000,
        }  # fmt: skip
    )
    with dbapi.connect(f"postgresql://me@127.0.0.1:{server.port}/pithead", autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT small, big, real, name, raw, flag, day, moment, list FROM types ORDER BY big")
        found = cursor.fetch_arrow_table()
        assert found.schema.types[:5] == [pa.int16(), pa.int64(), pa.float32(), pa.string(), pa.binary()]
        assert found.column("list").to_pylist() == [[1, None, 7], [2, None, 7], [3, None, 7]]
        assert found.column("day").to_pylist()[0] == dt.date(2024, 2, 29)
        cursor.execute("SELECT count(*) FROM items WHERE kind = $1", (3,))
        assert cursor.fetchall() == [(2000,)]
        assert cursor.adbc_ingest("ingested", table, mode="create") == 5000
        assert cursor.adbc_ingest("ingested", table, mode="append") == 5000
        cursor.execute("SELECT * FROM ingested WHERE id < 3 ORDER BY id")
        expected = [row for row in table.to_pylist() if row["id"] < 3 for _ in range(2)]
        assert cursor.fetch_arrow_table().to_pylist() == expected
        assert connection.adbc_get_table_schema("ingested").names == table.column_names
        schemas = connection.adbc_get_objects(depth="tables").read_all().to_pylist()[0]["catalog_db_schemas"]
        tables = {schema["db_schema_name"]: [table["table_name"] for table in schema["db_schema_tables"]] for schema in schemas}
        assert tables["lab"] == ["notes"] and "ingested" in tables["main"]
        cursor.execute("DELETE FROM ingested WHERE id < 2 RETURNING id * 2 AS twice")
        assert sorted(cursor.fetchall()) == [(0,), (0,), (2,), (2,)]
        cursor.execute("SELECT count(*) FROM ingested")
        assert cursor.fetchall() == [(9996,)]
        cursor.execute("DROP TABLE ingested")
        with pytest.raises(connection.ProgrammingError, match="nothing"):
            cursor.execute("SELECT nothing FROM items")


def ran(command: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, text=True, capture_output=True, timeout=300, env=dict(os.environ) | environment, check=False)


DUCKDB = """
import glob, os, duckdb
extension, = glob.glob(os.path.dirname(os.path.dirname(duckdb.__file__)) + "/duckdb_extension_postgres_scanner/extensions/*/*.duckdb_extension")
c = duckdb.connect(config={"allow_unsigned_extensions": "true"})
c.execute(f"LOAD '{extension}'")
where = f"host=127.0.0.1 port={os.environ['PORT']} user=me dbname=pithead"
c.execute(f"ATTACH '{where}' AS p (TYPE postgres)")

def same(sql, *expected):
    found = c.execute(sql).fetchall()
    assert found == list(expected), (sql, found)

same("SELECT table_name FROM duckdb_tables() WHERE database_name = 'p' AND schema_name = 'lab'", ("notes",))
same("SELECT column_type FROM (DESCRIBE p.main.types) WHERE column_name IN ('amount', 'list', 'zoned')",
     ("DECIMAL(12,2)",), ("TIMESTAMP WITH TIME ZONE",), ("BIGINT[]",))
same("SELECT count(*), sum(id) FROM p.main.items", (20000, 199990000))
same("SELECT count(*) FROM p.main.items WHERE id < 100 AND kind IN (1, 2)", (20,))
c.execute("SET pg_pages_per_task = 1")
c.execute("ATTACH '" + where + "' AS r (TYPE postgres, READ_ONLY)")
same("SELECT count(*), sum(id) FROM r.main.items", (20000, 199990000))
c.execute("RESET pg_pages_per_task")
same("SELECT small, amount::VARCHAR, name, raw, flag, day::VARCHAR, moment::VARCHAR, list, pair FROM p.main.types WHERE big = 2",
     (2, "2.50", "text 2", b"bytes", True, "2024-03-01", "2024-02-29 01:02:03.5", [2, None, 7], '{"a":2,"b":"x"}'))
same("SELECT count(*) FROM p.main.items a JOIN p.lab.notes b ON a.id = b.id", (1,))
same("SELECT * FROM postgres_query('p', 'SELECT count(*) AS n FROM items')", (20000,))
c.execute("CREATE TABLE p.main.duck (i BIGINT, s VARCHAR, d DATE, n DECIMAL(10, 2))")
c.execute("INSERT INTO p.main.duck SELECT range, 'n' || range, DATE '2024-02-29', range / 4 FROM range(10000)")
same("SELECT count(*), sum(i), max(s), min(d)::VARCHAR, sum(n)::VARCHAR FROM p.main.duck", (10000, 49995000, "n9999", "2024-02-29", "12498750.00"))
try:
    c.execute("DELETE FROM p.main.duck WHERE i = 1")
    raise AssertionError("rows have no places here")
except duckdb.Error as error:
    assert "ctid" in str(error), error
c.execute("CALL postgres_execute('p', 'DELETE FROM duck WHERE i = 1')")
same("SELECT count(*) FROM p.main.duck", (9999,))
c.execute("DROP TABLE p.main.duck")
try:
    c.execute("CREATE TABLE p.main.made AS SELECT 1 AS a")
    raise AssertionError("a block had two statements that write")
except duckdb.Error as error:
    assert "block" in str(error), error
c.execute("DETACH p")
c.execute(f"ATTACH '{where} options=''-c pithead.block_writes=many''' AS q (TYPE postgres)")
c.execute("DROP TABLE IF EXISTS q.main.made")
c.execute("CREATE TABLE q.main.made AS SELECT range AS a FROM range(5000)")
same("SELECT count(*), sum(a) FROM q.main.made", (5000, 12497500))
c.execute("DROP TABLE q.main.made")
print("done")
"""


def test_duckdb_attaches(server: Server) -> None:
    python = CLIENTS / "bin" / "python"
    if not python.exists() or ran([str(python), "-c", "import duckdb_extension_postgres_scanner"]).returncode != 0:
        print("skipped: DuckDB's extension for PostgreSQL is not there")
        pytest.skip("DuckDB's extension for PostgreSQL is not there: tools/setup.sh clients")
    said = ran([str(python), "-c", DUCKDB], PORT=str(server.port))
    assert said.stdout.strip() == "done", said.stderr


def test_pgjdbc(server: Server) -> None:
    jars = sorted(CLIENTS.glob("postgresql-*.jar"))
    if not jars or not shutil.which("javac"):
        print("skipped: pgjdbc or Java is not there")
        pytest.skip("pgjdbc or a JDK is not there: tools/setup.sh clients, apt-get install default-jdk-headless")
    source = Path(__file__).parent / "clients" / "Jdbc.java"
    for zone in ("UTC", "Asia/Kolkata"):
        said = ran(["java", f"-Duser.timezone={zone}", "-cp", str(jars[0]), str(source), str(server.port)])
        assert said.stdout.strip() == "done", said.stderr


def test_r(server: Server) -> None:
    if not shutil.which("Rscript") or ran(["Rscript", "-e", "library(RPostgreSQL); library(dbplyr)"]).returncode != 0:
        print("skipped: R with RPostgreSQL and dbplyr is not there")
        pytest.skip("R is not there: apt-get install r-cran-rpostgresql r-cran-dbplyr")
    said = ran(["Rscript", str(Path(__file__).parent / "clients" / "ask.R"), str(server.port)])
    assert said.stdout.strip().endswith("done"), said.stderr


PSQL = shutil.which("psql")
COMMANDS = [
    r"\dT", r"\dT+", r"\dp", r"\df", r"\df+", r"\dn+", r"\l+", r"\du+", r"\di", r"\ds", r"\dv", r"\dm", r"\dt+", r"\d+ types",
    r"\dD", r"\dF", r"\dx", r"\dL", r"\dc", r"\dC", r"\do", r"\da", r"\db", r"\dO", r"\dRs", r"\dconfig", r"\dA+", r"\db+", r"\z", "SHOW TABLES",
]  # fmt: skip


def test_psql_lists_what_there_is(server: Server) -> None:
    if not PSQL:
        print("skipped: psql is not there")
        pytest.skip("psql is not there")
    for command in COMMANDS:
        said = ran([PSQL, "-X", "-h", "127.0.0.1", "-p", str(server.port), "-U", "me", "-d", "pithead", "-c", command], PAGER="cat")
        assert said.returncode == 0 and "ERROR" not in said.stderr, (command, said.stderr)
