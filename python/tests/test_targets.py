"""Targets of `pithead.connect`: what each is taken for, and what is said of those that are neither directories nor addresses."""

from __future__ import annotations

from pathlib import Path

import pytest

import pithead
from pithead._target import target_of


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("host:99", 'write "pithead://host:99"; a new directory of this name is "./host:99"'),
        ("host:99,other:99", "reads like addresses of drives"),
        ("127.0.0.1:7433", "reads like addresses of drives"),
        ("[::1]:7433", "reads like addresses of drives"),
        ("http://host:99", "neither a directory nor an address"),
        ("pithead:/host", None),
        ("pithead://", "at least one address"),
        ("pithead://,", "at least one address"),
        ("", "got an empty text"),
        (Path(), None),
        ("~nobody-at-all/data", "home of a user that is not known"),
        (b"data", "os.fsdecode"),
        (bytearray(b"data"), "expected a path"),
        (5, "a directory or addresses of drives, got a int"),
        (1.5, "got a float"),
        ({"host": 99}, "got a dict"),
        ([], "at least one address"),
        ([b"host:99"], "address of a drive: expected a str"),
        (["http://host:99"], "no address of a drive"),
        ([("host", 99)], "address of a drive: expected a str"),
    ],
    ids=repr,
)
def test_what_is_no_target_is_told(target: object, told: str | None, tmp_path: Path) -> None:
    if told is None:
        assert target_of(target)[1] == []
        return
    with pytest.raises(pithead.UserError) as refused:
        pithead.connect(target)  # type: ignore[arg-type]
    assert told in str(refused.value)
    assert list(tmp_path.iterdir()) == []


def test_targets_are_told_apart(tmp_path: Path) -> None:
    assert target_of(None) == (None, [])
    assert target_of("pithead://a:1, b:2") == (None, ["pithead://a:1", "pithead://b:2"])
    assert target_of("pithead+tls://a:1") == (None, ["pithead+tls://a:1"])
    assert target_of(["a:1", "pithead://b:2,c:3"]) == (None, ["a:1", "pithead://b:2", "pithead://c:3"])
    assert target_of(part for part in ("a:1", "b")) == (None, ["a:1", "b"])
    for path in ("data", "./host:99", "a/b:1", "C:\\data", "host:", "12:30 notes"):
        assert target_of(path) == (path, [])
    assert target_of(Path("host:99")) == ("host:99", [])
    assert target_of("~/data") == target_of(Path("~/data")) == (str(tmp_path / "home/data"), [])
    (tmp_path / "host:99").mkdir()
    assert target_of("host:99") == ("host:99", [])


def test_home_is_where_a_shell_has_it(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    with pithead.connect("~/data", drives=1) as conn:
        assert conn.sql("SELECT 1").fetchall() == [(1,)]
    assert (tmp_path / "home/data").is_dir() and not (tmp_path / "~").exists()


def test_little_memory_is_enough_or_refused() -> None:
    with pithead.connect(drives=1, threads=1, memory=1 << 20) as conn:
        assert conn.sql("SELECT 1").fetchall() == [(1,)]
    for memory in (0, "0B", (1 << 20) - 1):
        with pytest.raises(pithead.UserError, match="memory: expected at least 1 MiB"):
            pithead.connect(memory=memory)
