"""`pithead explain`, and `pithead sql` where no data directory is: as somebody finds them who has only just installed the program."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from programs import program


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    pq.write_table(pa.table({"id": range(1000), "city": [f"city {n % 7}" for n in range(1000)]}), tmp_path / "trips.parquet")
    return tmp_path


def ran(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [program(), *arguments]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PITHEAD_")}
    return subprocess.run(command, cwd=folder, env=environment, text=True, capture_output=True, timeout=120, check=False)


def test_a_plan_is_a_picture(folder: Path) -> None:
    made = ran(folder, "sql", "--create", "-q", "-c", "CREATE TABLE trips AS FROM 'trips.parquet'")
    assert made.returncode == 0, made.stderr
    query = "SELECT t.city, count(*) FROM trips AS t JOIN (SELECT max(id) AS id FROM trips) AS m ON t.id < m.id GROUP BY t.city"
    plain = ran(folder, "explain", query)
    assert plain.returncode == 0 and "drive" in plain.stdout and "TableScan: main.trips" in plain.stdout, plain
    drawn = ran(folder, "explain", "--analyze", "--html", "plan.html", query)
    assert drawn.returncode == 0 and drawn.stdout == "", drawn
    page = (folder / "plan.html").read_text()
    found = re.search("<svg.*</svg>", page, re.DOTALL)
    assert found is not None
    picture = ElementTree.fromstring(found.group(0))
    sites = {box.get("class") for box in picture.iter("rect")}
    assert {"host", "link", "drive"} <= sites, sites
    assert "rows, " in page and "ms CPU" in page and "t.id &lt; m.id" in page
    refused = ran(folder, "explain", "--html", "other.html", "DROP TABLE trips")
    assert refused.returncode == 3 and "expected a query" in refused.stderr and not (folder / "other.html").exists(), refused


def test_files_need_no_data_directory(folder: Path) -> None:
    for sql, expected in [
        ("SELECT count(*), max(city) FROM 'trips.parquet'", "1000,city 6"),
        ("DESCRIBE 'trips.parquet'", "id,Int64,YES"),
        ("SUMMARIZE 'trips.parquet'", "city,"),
        ("CREATE TABLE t AS FROM 'trips.parquet'; SELECT sum(id) FROM t", "499500"),
    ]:
        answer = ran(folder, "sql", "--format", "csv", "-c", sql)
        assert answer.returncode == 0 and expected in answer.stdout, (sql, answer)
        assert "no --data, and no pithead-data here" in answer.stderr
    assert [path.name for path in folder.iterdir()] == ["trips.parquet"]
    named = ran(folder, "sql", "--data", "nowhere", "-c", "SELECT 1")
    assert named.returncode == 3 and "there is no data directory nowhere" in named.stderr, named


def test_shells_and_man_know_the_commands(folder: Path) -> None:
    for shell in ["bash", "zsh", "fish"]:
        assert "--token-file" in ran(folder, "completions", shell).stdout or shell == "fish"
    pages = ran(folder, "man", "pages")
    assert pages.returncode == 0 and "--analyze" in (folder / "pages/pithead-explain.1").read_text().replace("\\-", "-"), pages


def test_a_terminal_shows_how_far_a_statement_is(folder: Path) -> None:
    ran(folder, "sql", "--create", "-q", "-c", "CREATE TABLE numbers AS SELECT value AS id FROM range(300000)")
    query = "SELECT count(*) FROM numbers AS a JOIN numbers AS b ON a.id % 40 = b.id % 40 WHERE a.id * b.id % 7 = 3"
    leader, follower = pty.openpty()
    process = subprocess.Popen([program(), "sql", "-c", query], cwd=folder, stdout=subprocess.DEVNULL, stderr=follower)
    os.close(follower)
    shown, limit = "", time.monotonic() + 100
    try:
        while "from drives" not in shown and time.monotonic() < limit:
            shown += os.read(leader, 4096).decode()
    except OSError:  # It has ended.
        pass
    finally:
        process.kill()
        process.wait()
        os.close(leader)
    assert re.search(r"running, \d+s; [\d,]+ rows?, .* from drives \(", shown), shown
