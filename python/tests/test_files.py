"""Files in a FROM, read where the program runs, beside DuckDB."""

from __future__ import annotations

from pathlib import Path

import duckdb
import psycopg
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from fronts import served

import pithead


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three files of trips in Parquet, and the same rows in other forms."""
    monkeypatch.chdir(tmp_path)
    for number in range(3):
        numbers = range(number * 400, (number + 1) * 400)
        fares = pa.array([n % 40 / 4 if n % 7 else None for n in numbers])
        trips = pa.table({"id": pa.array(numbers, pa.int64()), "city": [f"city {n % 11}" for n in numbers], "fare": fares})
        pq.write_table(trips, f"trips-{number}.parquet", row_group_size=150)
        pyarrow.csv.write_csv(trips, f"trips-{number}.csv")
        with open(f"trips-{number}.json", "w") as out:
            out.writelines(f'{{"id": {row["id"]}, "city": "{row["city"]}"}}\n' for row in trips.to_pylist())
    Path("odd.txt").write_text("1;-;x\n2;5;y\n")
    return tmp_path


QUERIES = [
    "SELECT count(*), sum(id), sum(fare), min(city) FROM 'trips-1.parquet'",
    "SELECT count(*), sum(id), count(fare) FROM 'trips-*.parquet' WHERE city <> 'city 3'",
    "SELECT city, sum(fare) FROM read_parquet('trips-*.parquet') GROUP BY city ORDER BY city",
    "SELECT r.city, count(*) FROM read_parquet(['trips-0.parquet', 'trips-2.parquet']) AS r GROUP BY ALL ORDER BY ALL",
    "SELECT sum(id), count(fare) FROM read_csv('trips-*.csv')",
    "SELECT sum(id), max(city) FROM read_json_auto('trips-2.json')",
    "SELECT * FROM read_csv('odd.txt', delim = ';', header = false, nullstr = '-', names = ['a', 'b', 'c']) ORDER BY a",
    "FROM 'trips-0.csv' WHERE id < 3 ORDER BY id",
    "FROM 'trips-*.parquet' LIMIT 700",
    "SELECT t.city, count(*) FROM 'trips-0.parquet' AS t JOIN 'trips-0.csv' AS c USING (id) GROUP BY ALL ORDER BY ALL",
    "SELECT a.id FROM read_parquet('trips-0.parquet') AS a WHERE a.id IN (SELECT id + 398 FROM 'trips-0.json') ORDER BY 1",
]


@pytest.mark.parametrize("query", QUERIES)
def test_files_are_read_as_duckdb_reads_them(folder: Path, query: str) -> None:
    expected = duckdb.sql(query).fetchall()
    with pithead.connect() as connection:
        assert connection.sql(query).fetchall() == expected


def test_datasets_are_made_of_files_and_joined_with_them(folder: Path) -> None:
    with pithead.connect(folder / "data", drives=2) as connection:
        connection.sql("CREATE TABLE trips AS SELECT * FROM 'trips-0.parquet'")
        connection.sql("INSERT INTO trips FROM read_csv('trips-1.csv')")
        query = """SELECT t.city, count(*), sum(f.fare) FROM {trips} AS t JOIN 'trips-*.parquet' AS f ON t.id = f.id
                   WHERE f.fare > 1 GROUP BY t.city ORDER BY t.city"""
        expected = duckdb.sql(query.format(trips="read_parquet(['trips-0.parquet', 'trips-1.parquet'])")).fetchall()
        assert connection.sql(query.format(trips="trips")).fetchall() == expected
        # A prepared statement sees a file that was written anew.
        again = connection.sql("SELECT count(*) FROM 'trips-2.parquet'")
        assert again.fetchall() == [(400,)]
        pq.write_table(pa.table({"id": [1]}), "trips-2.parquet")
        assert connection.sql("SELECT count(*) FROM 'trips-2.parquet'").fetchall() == [(1,)]


def test_what_is_written_comes_back_as_it_was(folder: Path) -> None:
    with pithead.connect() as connection:
        connection.sql("""CREATE TABLE texts AS SELECT * FROM (VALUES
                          (1, ''), (2, NULL), (3, 'x'), (4, 'NULL'), (5, '""'), (NULL, 'a,b')) AS t (k, s)""")
        rows = connection.sql("SELECT * FROM texts ORDER BY k").fetchall()
        for options in ["", "(NULL 'NULL')", "(NULL '-', DELIMITER ';')"]:
            connection.sql(f"COPY texts TO 'texts.csv' {options}")
            connection.sql("CREATE OR REPLACE TABLE back AS SELECT * FROM texts WHERE false")
            connection.sql(f"COPY back FROM 'texts.csv' {options}")
            assert connection.sql("SELECT * FROM back ORDER BY k").fetchall() == rows, options
        floats = """SELECT 'NaN'::float8 AS x, ['-Infinity'::float8, 1.5::float8] AS l,
                    named_struct('a', 'Infinity'::float8) AS s"""
        connection.sql(f"COPY ({floats}) TO 'floats.json'")
        for read in [connection.sql, duckdb.sql]:
            ((x, items, struct),) = read("SELECT * FROM 'floats.json'").fetchall()
            assert (str(x), items, list(struct.values())) == ("nan", [-float("inf"), 1.5], [float("inf")])
        for name in ["same.parquet", "same.arrow", "same.json", "same.csv"]:
            connection.sql(f"COPY (SELECT 1 AS k, 2 AS k) TO '{name}'")
            assert connection.sql(f"SELECT k, k_1 FROM '{name}'").fetchall() == [(1, 2)], name


def test_what_cannot_be_read_is_told(folder: Path) -> None:
    Path("no.parquet").write_bytes(b"PAR1 nothing PAR1")
    with pithead.connect() as connection:
        connection.sql("CREATE TABLE trips AS SELECT 1 AS id")
        for statement, words in [
            ("SELECT * FROM 'none.parquet'", "none.parquet"),
            ("SELECT * FROM 'no.parquet'", "no.parquet"),
            ("SELECT * FROM read_csv('trips-0.csv', skip = 2)", "has no option skip"),
            ("SELECT * FROM read_parquet(trips)", "expected read_parquet"),
            ("CREATE VIEW v AS SELECT * FROM 'trips-0.parquet'", "nor do views"),
        ]:
            with pytest.raises(pithead.Error, match=words):
                connection.sql(statement).fetchall()
        # A dataset may be named in quotes of this kind, as before.
        assert connection.sql("SELECT * FROM 'trips'").fetchall() == [(1,)]


def test_a_server_reads_no_files_for_its_clients(folder: Path) -> None:
    with served(folder) as server, psycopg.connect(server.url, autocommit=True) as connection:
        for query in [f"SELECT * FROM '{folder}/trips-0.parquet'", f"SELECT * FROM read_csv('{folder}/odd.txt')"]:
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(query)
        assert connection.execute("SELECT count(*) FROM items").fetchall() == [(20000,)]
