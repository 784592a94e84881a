"""ADBC's driver for Flight SQL over `pithead serve --flight`, as `bounds.rs` starts it. Says `all of it` at the end."""

from __future__ import annotations

import contextlib
import os
import threading
import time
import warnings
from typing import Any

import adbc_driver_flightsql as flightsql
import adbc_driver_manager as manager
import numpy
import pandas
import polars
import pyarrow as pa
from adbc_driver_flightsql import dbapi

URI = f"grpc://{os.environ['FLIGHT']}"
TOKEN = os.environ["TOKEN"]
BEARER = {flightsql.DatabaseOptions.AUTHORIZATION_HEADER.value: f"Bearer {TOKEN}"}
ENDLESS = "SELECT count(*) FROM range(100000000) a, range(100000000) b WHERE a.value + b.value < 0"


def refused(work: Any, text: str) -> None:
    """`work` fails, and says so."""
    try:
        work()
    except manager.Error as error:
        assert text in str(error), error
    else:
        raise AssertionError(f"expected an error with {text!r}")


def strangers() -> None:
    for options in ({}, {"username": "adbc", "password": "wrong"}, {flightsql.DatabaseOptions.AUTHORIZATION_HEADER.value: "Bearer x"}):

        def call(options: dict[str, str] = options) -> None:
            with dbapi.connect(URI, db_kwargs=options, autocommit=True) as connection, connection.cursor() as cursor:
                cursor.execute("SELECT 1")

        try:
            call()
        except manager.Error as error:
            assert error.status_code == manager.AdbcStatusCode.UNAUTHENTICATED, error
        else:
            raise AssertionError(f"expected that {options} is refused")


def statements(cursor: Any) -> None:
    cursor.execute("SELECT id, name, price FROM t WHERE price > 2 ORDER BY id")
    assert cursor.fetchall() == [(2, "two", 2.5), (3, None, 3.5), (4, "four", 4.5), (5, "five", 5.5)]
    cursor.execute("SELECT name FROM t WHERE id > 100")
    assert cursor.fetch_arrow_table().num_rows == 0
    cursor.execute("SELECT value, repeat('x', 100) AS x FROM range(300000)")
    assert cursor.fetch_arrow_table().num_rows == 300_000
    cursor.execute("CREATE TABLE w (a BIGINT, b VARCHAR)")
    cursor.execute("INSERT INTO w VALUES (1, 'x'), (2, NULL)")
    assert cursor.rowcount == 2, cursor.rowcount
    cursor.execute("SELECT name FROM t WHERE id = ? OR name = ?", (1, "two"))
    assert sorted(cursor.fetchall()) == [("one",), ("two",)]
    cursor.execute("SELECT id FROM t ORDER BY id LIMIT ? OFFSET ?", (2, 1))
    assert cursor.fetchall() == [(2,), (3,)]
    cursor.executemany("INSERT INTO w VALUES (?, ?)", [(n, f"n{n}") for n in range(1_000)])
    assert cursor.rowcount == 1_000, cursor.rowcount
    cursor.execute("SELECT count(*), max(b) FROM w")
    assert cursor.fetchall() == [(1_002, "x")]
    cursor.execute("DELETE FROM w WHERE a >= ?", (10,))
    cursor.execute("SELECT count(*) FROM w")
    assert cursor.fetchone() == (12,)
    assert cursor.adbc_execute_schema("SELECT id FROM t").names == ["id"]
    partitions, schema = cursor.adbc_execute_partitions("SELECT id FROM t ORDER BY id")
    assert len(partitions) == 1 and schema.names == ["id"]
    cursor.adbc_read_partition(partitions[0])
    assert cursor.fetchall() == [(1,), (2,), (3,), (4,), (5,)]


def errors(cursor: Any) -> None:
    for sql, text in [
        ("SELEC 1", "SELEC"),
        ("SELECT nothing FROM t", "nothing"),
        ("SELECT * FROM absent", "absent"),
        ("SELECT id / (id - id) FROM t", "ivide by zero"),
        ("SET pithead.pushdown = off", "headers of the calls"),
    ]:

        def call(sql: str = sql) -> None:
            cursor.execute(sql)
            cursor.fetchall()

        refused(call, text)
    cursor.execute("SELECT 1")
    assert cursor.fetchall() == [(1,)]


def ingestion(cursor: Any) -> None:
    table = pa.table({"a": pa.array(range(100_000), pa.int64()), "b": [f"b{n}" for n in range(100_000)]})
    assert cursor.adbc_ingest("i", table, mode="create") == 100_000
    refused(lambda: cursor.adbc_ingest("i", table, mode="create"), "exists already")
    assert cursor.adbc_ingest("i", table.to_reader(max_chunksize=1_000), mode="append") == 100_000
    cursor.execute("SELECT count(*), sum(a), max(b) FROM i")
    assert cursor.fetchall() == [(200_000, 2 * sum(range(100_000)), "b99999")]
    assert cursor.adbc_ingest("i", table.slice(0, 10), mode="replace") == 10
    assert cursor.adbc_ingest("made", table.slice(0, 3), mode="create_append", db_schema_name="lab") == 3
    cursor.execute("SELECT (SELECT count(*) FROM i), (SELECT count(*) FROM lab.made)")
    assert cursor.fetchall() == [(10, 3)]


def large_batches() -> None:
    """The driver sends a batch as one message, up to a bound of its own. This one has 80 MB."""
    unbounded = {**BEARER, flightsql.DatabaseOptions.WITH_MAX_MSG_SIZE.value: str(1 << 30)}
    with dbapi.connect(URI, db_kwargs=unbounded, autocommit=True) as connection, connection.cursor() as cursor:
        table = pa.table({"a": numpy.arange(10_000_000)})
        assert cursor.adbc_ingest("large", table, mode="create") == 10_000_000
        cursor.execute("SELECT count(*), max(a) FROM large")
        assert cursor.fetchall() == [(10_000_000, 9_999_999)]
        cursor.execute("DROP TABLE large")


def catalogue(connection: Any) -> None:
    objects = connection.adbc_get_objects(depth="all").read_all().to_pylist()
    assert [catalog["catalog_name"] for catalog in objects] == ["pithead"]
    domains = {domain["db_schema_name"]: domain["db_schema_tables"] for domain in objects[0]["catalog_db_schemas"]}
    assert set(domains) == {"lab", "main"}, domains
    columns = {table["table_name"]: [column["column_name"] for column in table["table_columns"]] for table in domains["main"]}
    assert columns["t"] == ["id", "name", "price"], columns
    some = connection.adbc_get_objects(depth="tables", table_name_filter="m%").read_all().to_pylist()
    names = [table["table_name"] for domain in some[0]["catalog_db_schemas"] for table in domain["db_schema_tables"]]
    assert names == ["made"], names
    schema = connection.adbc_get_table_schema("t", db_schema_filter="main")
    assert schema.names == ["id", "name", "price"] and schema.field("name").type == pa.string(), schema
    assert connection.adbc_get_table_types() == ["TABLE", "VIEW"]
    assert connection.adbc_get_info()["vendor_name"] == "Pithead"


def cancellation(connection: Any) -> None:
    with connection.cursor() as cursor:
        threading.Timer(0.5, cursor.adbc_cancel).start()
        start = time.monotonic()
        try:
            cursor.execute(ENDLESS)
            cursor.fetchall()
        except (manager.Error, OSError, pa.ArrowException) as error:
            assert "ancel" in str(error), error
        else:
            raise AssertionError("it was to be cancelled")
        assert time.monotonic() - start < 5


def frames(connection: Any) -> None:
    sql = "SELECT name, price FROM t ORDER BY id"
    frame = polars.read_database(sql, connection)
    assert frame.columns == ["name", "price"] and frame["price"].sum() == 17.5
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert pandas.read_sql(sql, connection)["price"].sum() == 17.5
    frame.write_database("from_polars", connection, if_table_exists="append")
    assert polars.read_database("SELECT count(*) AS n FROM from_polars", connection)["n"][0] == 5


def sessions() -> None:
    """Options of a session, which the driver keeps by a cookie."""
    cookies = {**BEARER, flightsql.DatabaseOptions.WITH_COOKIE_MIDDLEWARE.value: "true"}
    with dbapi.connect(URI, db_kwargs=cookies, autocommit=True) as connection, connection.cursor() as cursor:
        connection.adbc_current_db_schema = "lab"
        assert connection.adbc_current_db_schema == "lab" and connection.adbc_current_catalog == "pithead"
        cursor.execute("SELECT count(*) FROM made")
        assert cursor.fetchall() == [(3,)]


strangers()
by_name = {"username": "adbc", "password": TOKEN}
with dbapi.connect(URI, db_kwargs=by_name, autocommit=True) as named, contextlib.closing(named.cursor()) as first:
    first.execute("SELECT current_user")
    assert first.fetchall() == [("adbc",)]
with dbapi.connect(URI, db_kwargs=BEARER, autocommit=True) as connected:
    with connected.cursor() as cursor:
        statements(cursor)
        errors(cursor)
        ingestion(cursor)
        large_batches()
    catalogue(connected)
    cancellation(connected)
    frames(connected)
sessions()
lab = {**BEARER, flightsql.DatabaseOptions.RPC_CALL_HEADER_PREFIX.value + "pithead.domain": "lab"}
with dbapi.connect(URI, db_kwargs=lab, autocommit=True) as connected, connected.cursor() as cursor:
    cursor.execute("SELECT count(*) FROM made")
    assert cursor.fetchall() == [(3,)]
print("all of it")
