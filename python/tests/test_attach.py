"""Parquet and Arrow files that are attached where they lie, beside DuckDB over the same rows."""

from __future__ import annotations

import datetime as dt
import os
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

import pithead

LEVELS = ["SET pithead.level = 0", "SET pithead.level = 1", "SET pithead.level = 2", "SET pithead.pushdown = off", None]


def people(start: int, rows: int) -> pa.Table:
    numbers = range(start, start + rows)
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "age": pa.array([n % 90 if n % 11 else None for n in numbers], pa.int32()),
            "name": pa.array([f"name {n % 257:03}" if n % 7 else None for n in numbers], pa.string()),
            "born": pa.array([dt.date(1950, 1, 1) + dt.timedelta(days=n % 9000) for n in numbers], pa.date32()),
            "share": pa.array([n / 8 if n % 5 else float("nan") for n in numbers], pa.float64()),
            "tags": pa.array([["a", str(n % 3)] if n % 4 else [] for n in numbers], pa.list_(pa.string())),
        }
    )


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """A directory with a dataset of folders, one of one file, and one of files with other columns each."""
    root = tmp_path / "lake"
    for year in (2023, 2024):
        for month in ("01", "02"):
            folder = root / "people" / f"year={year}" / f"month={month}"
            folder.mkdir(parents=True)
            table = people(year * 1000 + int(month) * 5000, 5000)
            pq.write_table(table, folder / "part.parquet", row_group_size=1200, write_page_index=year == 2024)
    pq.write_table(pa.table({"k": [1, 2, 3], "v": ["x", "y", "z"]}), root / "small.parquet")
    mixed = root / "mixed"
    mixed.mkdir()
    pq.write_table(pa.table({"a": pa.array([1, 2], pa.int32()), "b": ["p", "q"]}), mixed / "1.parquet")
    pq.write_table(pa.table({"c": [0.5], "a": pa.array([2**40], pa.int64())}), mixed / "2.parquet")
    return root


QUERIES = [
    "SELECT count(*), sum(id), count(age), count(DISTINCT name), min(born), max(name) FROM people",
    "SELECT year, month, count(*) AS n, sum(age) AS s FROM people GROUP BY year, month ORDER BY year, month",
    "SELECT id, name, share FROM people WHERE id BETWEEN 2030100 AND 2030140 ORDER BY id",
    "SELECT id FROM people WHERE name = 'name 100' AND year = 2024 AND age > 40 ORDER BY id",
    "SELECT count(*) FROM people WHERE share > 1e9 OR age IS NULL",
    "SELECT count(*) FROM people WHERE month = '03'",
    "SELECT count(*) FROM people WHERE name LIKE 'name 1%' AND born < DATE '1960-01-01'",
    "SELECT s.v, count(*) FROM people AS p JOIN small AS s ON p.age = s.k GROUP BY s.v ORDER BY s.v",
    "SELECT id, tags FROM people WHERE id < 2028040 ORDER BY id",
    "SELECT name, max(id) AS m FROM people GROUP BY name HAVING max(id) > 2034000 ORDER BY m DESC, name LIMIT 7",
]


@pytest.mark.parametrize("level", LEVELS)
def test_answers_are_those_of_duckdb_over_the_same_files(lake: Path, level: str | None) -> None:
    judge = duckdb.connect()
    judge.sql(f"CREATE VIEW people AS FROM read_parquet('{lake}/people/**/*.parquet', hive_partitioning = true)")
    judge.sql(f"CREATE VIEW small AS FROM read_parquet('{lake}/small.parquet')")
    with pithead.connect(attach=lake) as conn:
        if level:
            conn.sql(level)
        for query in QUERIES:
            assert shown(conn.sql(query).fetchall()) == shown(judge.sql(query).fetchall()), query


def shown(rows: list[tuple[Any, ...]]) -> list[str]:
    return [repr(row) for row in rows]


@pytest.mark.parametrize("compression", ["uncompressed", "lz4", "zstd"])
@pytest.mark.parametrize("level", LEVELS)
def test_arrow_files_give_the_same_answers(lake: Path, tmp_path: Path, level: str | None, compression: Any) -> None:
    """Each second file is one of Arrow's, with a dictionary in the place of texts."""
    judge = duckdb.connect()
    judge.sql(f"CREATE VIEW people AS FROM read_parquet('{lake}/people/**/*.parquet', hive_partitioning = true)")
    judge.sql(f"CREATE VIEW small AS FROM read_parquet('{lake}/small.parquet')")
    expected = {query: shown(judge.sql(query).fetchall()) for query in QUERIES}
    for path in [*(lake / "people").rglob("month=02/*.parquet"), lake / "small.parquet"]:
        table = pq.ParquetFile(path).read()
        if "name" in table.column_names:
            table = table.set_column(table.column_names.index("name"), "name", table["name"].dictionary_encode())
        pyarrow.feather.write_feather(table, path.with_suffix(".arrow"), compression=compression, chunksize=1200)
        path.unlink()
    with pithead.connect(attach=lake) as conn:
        if level:
            conn.sql(level)
        for query in QUERIES:
            assert shown(conn.sql(query).fetchall()) == expected[query], query


def test_arrow_files_that_change_or_lie_are_seen(lake: Path) -> None:
    def write(start: int) -> None:
        pyarrow.feather.write_feather(people(start, 3000), lake / "new.tmp", chunksize=500)
        os.replace(lake / "new.tmp", lake / "some.feather")

    write(0)
    with pithead.connect(attach=lake) as conn:
        query = "SELECT count(*), min(id) FROM some"
        assert conn.sql(query).fetchone() == (3000, 0)
        write(70)
        assert conn.sql(query).fetchone() == (3000, 70)
        whole = (lake / "some.feather").read_bytes()
        for lie in (whole[:-20], whole[: len(whole) // 2], whole[:-200] + bytes(190) + whole[-10:], b"ARROW1", b""):
            (lake / "some.feather").write_bytes(lie)
            with pytest.raises(pithead.Error, match="some.feather"):
                conn.sql(query).fetchall()
            assert conn.sql("SELECT count(*) FROM small").fetchone() == (3,)
        with pa.ipc.new_stream(lake / "some.feather", people(0, 1).schema) as stream:
            stream.write_table(people(0, 10))
        with pytest.raises(pithead.Error, match="a stream has no footer"):
            conn.sql("SELECT count(*) FROM some").fetchall()


def test_files_of_other_columns_are_one_dataset(lake: Path) -> None:
    with pithead.connect(attach=lake) as conn:
        rows = conn.sql("SELECT a, b, c FROM mixed ORDER BY a").fetchall()
        assert rows == [(1, "p", None), (2, "q", None), (2**40, None, 0.5)]
        assert conn.sql("SELECT count(*) FROM mixed WHERE b IS NULL AND c = 0.5").fetchone() == (1,)


def test_one_name_for_all_files_below_a_folder(lake: Path) -> None:
    with pithead.connect(attach={"lab.p": lake / "people"}) as conn:
        assert conn.sql("SELECT count(*) FROM lab.p WHERE year = 2023").fetchone() == (10000,)


def test_one_name_for_files_that_a_table_format_lists(lake: Path) -> None:
    """As deltalake's `file_uris()` gives them: columns that only folders have are there, and no other file is."""
    listed = [str(lake / "people" / f"year={year}" / "month=02" / "part.parquet") for year in (2023, 2024)]
    with pithead.connect(attach={"people": listed}) as conn:
        rows = conn.sql("SELECT year, month, count(*) FROM people GROUP BY year, month ORDER BY year").fetchall()
        assert rows == [(2023, "02", 5000), (2024, "02", 5000)]


def test_changes_are_seen_by_the_next_statement(lake: Path) -> None:
    with pithead.connect(attach=lake) as conn:
        count = conn.sql("SELECT count(*), sum(k) FROM small")
        assert count.fetchone() == (3, 6)
        pq.write_table(pa.table({"k": [10, 20], "v": ["x", "y"]}), lake / "new.tmp")
        os.replace(lake / "new.tmp", lake / "small.parquet")
        assert conn.sql("SELECT count(*), sum(k) FROM small").fetchone() == (2, 30)
        pq.write_table(pa.table({"k": [5]}), lake / "other.parquet")
        assert conn.sql("SELECT k FROM other").fetchall() == [(5,)]
        (lake / "other.parquet").unlink()
        with pytest.raises(pithead.Error, match="other"):
            conn.sql("SELECT k FROM other").fetchall()


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO small VALUES (4, 'w')",
        "DELETE FROM small WHERE k = 1",
        "UPDATE small SET v = 'q'",
        "TRUNCATE TABLE small",
        "DROP TABLE small",
        "ALTER TABLE small ADD COLUMN w INT",
    ],
)
def test_files_are_never_written(lake: Path, statement: str) -> None:
    before = (lake / "small.parquet").read_bytes()
    with pithead.connect(attach=lake) as conn:
        with pytest.raises(pithead.UserError, match="attached in place"):
            conn.sql(statement).fetchall()
        assert conn.sql("SELECT count(*) FROM small").fetchone() == (3,)
        conn.sql("CREATE TABLE copied AS SELECT * FROM small")
        conn.sql("INSERT INTO copied VALUES (4, 'w')")
        assert conn.sql("SELECT sum(k) FROM copied").fetchone() == (10,)
    assert (lake / "small.parquet").read_bytes() == before


def test_what_cannot_be_read_says_why(lake: Path) -> None:
    (lake / "broken.parquet").write_bytes(b"PAR1 this is none PAR1")
    half = (lake / "small.parquet").read_bytes()
    (lake / "half.parquet").write_bytes(half[: len(half) // 2])
    torn = lake / "torn"
    torn.mkdir()
    pq.write_table(pa.table({"a": [1]}), torn / "1.parquet")
    pq.write_table(pa.table({"a": ["text"]}), torn / "2.parquet")
    with pithead.connect(attach=lake) as conn:
        for name, reason in [("broken", "broken.parquet"), ("half", "half.parquet"), ("torn", "no type holds both")]:
            with pytest.raises(pithead.Error, match=reason):
                conn.sql(f"SELECT count(*) FROM {name}").fetchall()
        assert conn.sql("SELECT count(*) FROM small").fetchone() == (3,)


def test_a_directory_that_is_not_there_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(pithead.UserError, match="cannot attach"):
        pithead.connect(attach=tmp_path / "nowhere")
