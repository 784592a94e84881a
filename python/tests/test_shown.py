"""What is shown: results, plans, progress."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import pithead
from pithead import _progress


@pytest.fixture
def loaded(conn: pithead.Connection) -> pithead.Connection:
    conn.load("t", pa.table({"k": range(1000), "s": [f"<{k % 3}>" for k in range(1000)]}), slice_rows=100)
    return conn


def test_results_show_their_first_rows(loaded: pithead.Connection) -> None:
    relation = loaded.sql("SELECT k, s, NULL AS n FROM t ORDER BY k")
    lines = repr(relation).splitlines()
    assert lines[0].split() == ["k", "|", "s", "|", "n"] and lines[2].split() == ["0", "|", "<0>", "|", "NULL"]
    assert len(lines) == 2 + 10 + 1 and lines[-1] == "… more rows"
    shown = relation._repr_html_()
    assert shown.count("<tr>") == 11 and "&lt;2&gt;" in shown and "<2>" not in shown


def test_plans_are_trees_with_sites(loaded: pithead.Connection) -> None:
    relation = loaded.sql("SELECT s, count(*) AS n FROM t WHERE k > 10 GROUP BY s ORDER BY n")
    explained = relation.explain()
    sites = [node.site for node in explained.nodes()]
    assert sites[0] == "host" and {"host", "link", "drive"} <= set(sites)
    assert str(explained).splitlines() == explained.lines and not explained.totals
    assert all(node.children[0].site == "drive" for node in explained.nodes() if node.site == "link" and node.children)


def test_plans_tell_what_ran_where(loaded: pithead.Connection) -> None:
    relation = loaded.sql("SELECT s, count(*) AS n FROM t WHERE k > $1 GROUP BY s", [10])
    explained = relation.explain(analyze=True)
    link = next(node for node in explained.nodes() if node.site == "link")
    assert any("slices read" in fact for fact in link.facts)
    assert any("3 rows" in total for total in explained.totals)
    picture = ElementTree.fromstring(explained._repr_html_())
    texts = " ".join(text.text or "" for text in picture.iter("{http://www.w3.org/2000/svg}text"))
    assert "slices read" in texts and "drives" in texts
    assert len(list(picture.iter("{http://www.w3.org/2000/svg}rect"))) == 3 + len(list(explained.nodes()))


def test_profiles_belong_to_runs(loaded: pithead.Connection) -> None:
    relation = loaded.sql("SELECT sum(k) FROM t WHERE k > 900")
    with pytest.raises(pithead.UserError, match="has not run"):
        relation.profile()
    relation.fetchall()
    profile = relation.profile()
    assert profile["sessions"] >= 1 and profile["slices_read"] >= 1 and profile["seconds"] > 0


def test_work_is_emulated_on_drives_of_a_profile(loaded: pithead.Connection, tmp_path: Path) -> None:
    relation = loaded.sql("SELECT sum(k) FROM t WHERE k > 900")
    with pytest.raises(pithead.UserError, match="has not run"):
        relation.emulated("smart-ssd")
    relation.fetchall()
    taken = relation.emulated("smart-ssd")
    parts = ["host_cpu", "drive_cpu", "medium", "link", "drive_on", "host_on"]
    assert taken["device"] == "smart-ssd" and taken["drives"] >= 1 and taken["seconds"] > 0
    assert sum(taken[f"{part}_joules"] for part in parts) == pytest.approx(taken["system_joules"])
    with pytest.raises(pithead.UserError, match="smart-ssd"):
        relation.emulated("floppy")
    with pytest.raises(pithead.UserError, match="this machine as it is"):
        relation.emulated("native")
    (tmp_path / "mine.toml").write_text("name = 'mine'")
    with pytest.raises(pithead.UserError, match="line 1"):
        relation.emulated(tmp_path / "mine.toml")


def test_all_datasets_of_a_join_are_emulated(conn: pithead.Connection) -> None:
    """Of two datasets that drives join, the one that the other is joined with was left out."""
    for name, rows in (("a", 40_000), ("b", 20_000)):
        conn.load(name, pa.table({"id": range(rows), f"v{name}": range(rows)}), partition_by="id")
    for sides in ("a JOIN b", "b JOIN a"):
        relation = conn.sql(f"SELECT sum(va * vb) FROM {sides} USING (id)")
        relation.fetchall()
        assert "Inner Join" in " ".join(node.text for node in relation.explain().nodes() if node.site == "drive")
        assert relation.emulated("newport")["medium_bytes"] == relation.profile()["medium_bytes"] > 0


class Told:
    """Stands in for a bar of tqdm."""

    def __init__(self, **options: object) -> None:
        self.options, self.seen, self.total, self.n = options, [], None, 0

    def set_postfix_str(self, text: str, refresh: bool) -> None:
        self.text = text

    def refresh(self) -> None:
        self.seen.append((self.n, self.total, self.text))

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def bars(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Told]]:
    made: list[Told] = []

    def make(bar: _progress.Bar, total: int) -> Told:
        made.append(Told(total=total))
        return made[-1]

    monkeypatch.setattr(_progress.Bar, "_make", make)
    monkeypatch.setattr(_progress, "_AFTER", 0.0)
    yield made


def test_progress_is_shown_where_it_is_asked_for(loaded: pithead.Connection, bars: list[Told], monkeypatch: pytest.MonkeyPatch) -> None:
    slow = loaded.sql("SELECT count(*) FROM t a, t b, t c WHERE c.k < 50 AND a.k + b.k > c.k")
    slow.fetchall()
    assert bars == []
    monkeypatch.setattr(pithead.options, "progress", True)
    slow.fetchall()
    assert bars[0].closed and bars[0].seen[-1][1] > 0 and "over the link" in bars[0].seen[-1][2]
    monkeypatch.setattr(pithead.options, "progress", False)
    slow.fetchall()
    assert len(bars) == 1


def test_loads_tell_their_rows(conn: pithead.Connection, bars: list[Told]) -> None:
    import time

    def slowly() -> Iterator[pa.RecordBatch]:
        for _ in range(10):
            time.sleep(0.05)
            yield pa.record_batch({"k": pa.array(range(1000))})

    conn.load("t", pa.RecordBatchReader.from_batches(pa.schema({"k": pa.int64()}), slowly()), progress=True)
    assert bars[0].closed and bars[0].seen[-1][2].endswith("rows")
    conn.load("u", pa.table({"k": [1]}), progress=False)
    assert len(bars) == 1
