"""Statements that come through a pipe, of the program `pithead`."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from programs import program


@pytest.fixture
def piped(start_drives: Callable) -> Iterator[subprocess.Popen[str]]:
    """`pithead sql` that reads statements from a pipe."""
    command = [program(), "sql", "-q", "--format", "csv", "--drives", start_drives(1).addresses[0]]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, bufsize=1) as process:
        yield process
        process.kill()


def test_a_statement_is_answered_before_the_next_one_comes(piped: subprocess.Popen[str]) -> None:
    assert piped.stdin and piped.stdout
    for number in range(3):
        piped.stdin.write(f"SELECT {number} AS n,\n  ';' AS s; -- complete\n")
        piped.stdin.flush()
        assert [piped.stdout.readline() for _ in range(2)] == ["n,s\n", f"{number},;\n"]
    # The last one needs no end.
    piped.stdin.write("SELECT 7 AS n")
    piped.stdin.close()
    assert piped.stdout.read() == "n\n7\n"
    assert piped.wait(60) == 0


def test_the_first_that_fails_ends_the_run_and_is_told_by_its_number(piped: subprocess.Popen[str]) -> None:
    told, said = piped.communicate("SELECT 1 AS n;\nSELECT nothing;\nSELECT 2 AS n;\n", 60)
    assert told == "n\n1\n" and "statement 2" in said and "nothing" in said
    assert piped.returncode == 3


def test_commands_of_the_prompt_are_lines_between_statements(piped: subprocess.Popen[str], tmp_path: Path) -> None:
    file = tmp_path / "more.sql"
    file.write_text("-- a note\n\\x on\nSELECT 2 AS n;\n\\q\nSELECT 3 AS n;\n")
    text = f"\\timing on\nSELECT '\n\\q' AS t;\n-- read\n\\i {file}\n  \\timing off\nSELECT 4 AS n;\n\\q\nSELECT 5 AS n;\n"
    told, said = piped.communicate(text, 60)
    assert told == 't\n"\n\\q"\nn\n2\nn\n4\n', said
    assert piped.returncode == 0 and said.count("1 row in") == 2, said


def test_commands_in_files_that_cannot_run_end_the_run(start_drives: Callable, tmp_path: Path) -> None:
    drive = start_drives(1).addresses[0]

    def run(*arguments: str, form: str = "csv") -> tuple[str, str, int]:
        command = [program(), "sql", "-q", "--format", form, "--drives", drive, *arguments]
        ended = subprocess.run(command, stdin=subprocess.DEVNULL, text=True, capture_output=True, timeout=60)
        return ended.stdout, ended.stderr, ended.returncode

    described = run("-c", "CREATE TABLE named (a INT)", "-c", "\\d named;")[0]
    assert any(line.split("|")[0].strip() == "a" for line in described.splitlines()), described
    for text in ("SELECT $$a;\n\\nothing$$ AS t", "\\timing off;\r\nSELECT $$a;\n\\nothing$$ AS t;\r\n"):
        assert run("-c", text)[0] == 't\n"a;\n\\nothing"\n', text
    told, said, code = run("-c", "SELECT 1;\n\\timing off\nSELECT 'open")
    assert told == "" and code != 0, "nothing runs of what cannot be told apart"
    told, said, code = run("-o", str(tmp_path / "rows.parquet"), "-c", "\\d", form="parquet")
    assert code != 0 and "writes a table" in said and not (tmp_path / "rows.parquet").exists(), said
    file = tmp_path / "itself.sql"
    file.write_text("SELECT 1 AS n;\n\\nothing\nSELECT 2 AS n;\n")
    told, said, code = run("-f", str(file))
    assert told == "n\n1\n" and "line 2" in said and "there is no command \\nothing" in said and code != 0, said
    file.write_text(f"SELECT 1 AS n;\n\\i {file}\n")
    told, said, code = run("-f", str(file))
    assert told == "n\n1\n" * 17 and "16 times over" in said and code != 0, said
    _, said, code = run("-c", f"\\i {tmp_path / 'absent.sql'}")
    assert "absent.sql" in said and code != 0, said


def test_a_prediction_changes_nothing(tmp_path: Path) -> None:
    """A query runs twice to be predicted, and a statement that is none not at all."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [program(), *arguments, "--data", tmp_path / "data"]
        return subprocess.run(command, stdin=subprocess.DEVNULL, text=True, capture_output=True)

    assert run("sql", "--create", "-c", "CREATE TABLE r AS SELECT value AS v FROM range(1000)").returncode == 0
    changing = ("DELETE FROM r WHERE v > 5", "INSERT INTO r SELECT * FROM r", "UPDATE r SET v = v + 1 WHERE v > 5")
    returning = tuple(f"{statement} RETURNING *" for statement in changing)
    for statement in (*changing, *returning, "DROP TABLE r", "SET pithead.level = '0'"):
        refused = run("whatif", "--profile", "newport", statement)
        assert refused.returncode == 3 and "only queries are predicted" in refused.stderr, refused.stderr
    assert run("whatif", "--profile", "newport", "SELECT count(*) FROM r WHERE v > 5").returncode == 0
    assert run("sql", "--format", "csv", "-c", "SELECT count(*), sum(v) FROM r").stdout.splitlines()[1] == "1000,499500"
