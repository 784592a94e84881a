"""The tests of the guides: they find what is wrong, and leave nothing out."""

from __future__ import annotations

from pathlib import Path

import pytest
from guides.compare import Identities, difference
from guides.pages import PageError, blocks_of, commands_of
from guides.places import Places
from guides.run import Failure, page_run

ROOT = Path(__file__).resolve().parents[2]


def page_of(directory: Path, text: str) -> str:
    (directory / "page.md").write_text(text)
    return "page.md"


def run(directory: Path, program: Path, text: str) -> None:
    page = page_of(directory, text)
    with page_run(directory, program, ROOT) as reader:
        for block in blocks_of(directory, page):
            reader.block(block)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("```console\n$ echo one\ntwo\n```\n", r"page.md:3: `echo one` says something else"),
        ("```console\n$ echo one\none\ntwo\n```\n", r"page.md:4: "),
        ("```console\n$ printf 'one\\ntwo\\n'\none\n```\n", r"\+two"),
        ("```sh\necho fine\nfalse\n```\n", r"page.md:3: `false` ended with 1"),
        ("```sh\nexit 3\n```\n", r"page.md:2: `exit 3` ended with 3"),
        ("```python\nimport os\nos._exit(0)\n```\n", r"page.md:2: Python ended"),
        ("```console\n$ echo 'error: no'\nerror: no\n```\n", r"page.md:2: .* ended with 0"),
        ("```console\n$ (exit 3)\n$ echo $?\n4\n```\n", r"page.md:4: "),
        ("text\n\n```python\na = 1\nb = a / 0\n```\n", r"page.md:5: (.|\n)*ZeroDivisionError"),
        ("```sql\nSELECT\n```\n", r"page.md:2: "),
        ("<!-- test: setup\nfalse\n-->\n", r"page.md:2: `false` ended with 1"),
        ("```sh\npithead drive serve --data /disk1 --listen 0.0.0.0:7433\n```\n", r"0.0.0.0 is reached from other machines"),
    ],
)
def test_a_page_that_is_wrong_fails(text: str, said: str, program: Path, tmp_path: Path) -> None:
    with pytest.raises(Failure, match=said):
        run(tmp_path, program, text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("```bash\necho\n```\n", r"page.md:2: a fence of 'bash'"),
        ("```\necho\n```\n", r"page.md:2: a fence of ''"),
        ("```sh\necho\n", r"page.md:1: what begins here does not end"),
        ("```console\necho\n```\n", r"page.md:2: a console begins with"),
        ("<!-- test: skip -->\n```sh\nfalse\n```\n", r"page.md:1: .* says why"),
        ("<!-- test: skip it needs another machine -->\n", r"has no block after it"),
        ("<!-- test: skip it needs another machine -->\n```text\nx\n```\n", r"page.md:3: .* is never run"),
        ("<!-- test: ignore this one please -->\n", r"page.md:1: a note to tests is of"),
    ],
)
def test_what_cannot_be_read_is_no_way_to_skip(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(PageError, match=said):
        for block in blocks_of(tmp_path, page_of(tmp_path, text)):
            list(commands_of(block))


def test_commands_share_what_a_shell_keeps(program: Path, tmp_path: Path) -> None:
    text = """
        ```sh
        cat > rows.csv <<END
        a,b
        END
        mkdir below; cd below
        Q="two words"
        ```

        ```python
        from pathlib import Path
        rows = Path("../rows.csv")
        ```

        ```console
        $ pwd; echo "$Q"
        …
        two words
        $ cat ../rows.csv | \\
        > wc -l
        1
        ```

        ```python
        assert rows.exists()
        ```
        """
    run(tmp_path, program, "\n".join(line.removeprefix(" " * 8) for line in text.splitlines()))


def test_servers_end_with_their_page(program: Path, tmp_path: Path) -> None:
    page = page_of(tmp_path, "```sh\npithead drive serve --data /disk1 &\npithead status --drives 127.0.0.1:7433\n```\n")
    with page_run(tmp_path, program, ROOT) as reader:
        reader.block(blocks_of(tmp_path, page)[0])
        (server,) = reader.servers.running
        assert server.process.poll() is None
    assert server.process.poll() is not None


@pytest.mark.parametrize(
    ("shown", "said"),
    [
        ("5 rows in 0.023 s, 6.4 kB over the link", "5 rows in 1.2 min, 12 B over the link"),
        ("(75 MB/s of source)", "(0 MB/s of source)"),
        ('{"rows":5,"uptime_s":3,"free_bytes":67}', '{"rows":5,"uptime_s":0.5,"free_bytes":1}'),
        (" a   |  b\n-----+----", " a |      b\n---+--------"),
        ("one\n…\nfour", "one\ntwo\nthree\nfour"),
        ("read … of 5", "read 3 of 5"),
        ("drive 805cb548da646478\nid 805cb548da646478", "drive 0123456789abcdef\nid 0123456789abcdef"),
    ],
)
def test_what_differs_by_run_is_the_same(shown: str, said: str) -> None:
    assert difference(tuple(shown.splitlines()), said, Identities()) is None


@pytest.mark.parametrize(
    ("shown", "said"),
    [
        ("5 rows in 0.023 s", "6 rows in 0.023 s"),
        ('{"rows":5}', '{"rows":6}'),
        (" drive  Filter", " drive    Filter"),
        ("one\n…\nfour", "one\ntwo\nthree"),
        ("drive 805cb548da646478\nid 805cb548da646478", "drive 0123456789abcdef\nid fedcba9876543210"),
        ("slices read", "slices"),
    ],
)
def test_what_is_wrong_differs(shown: str, said: str) -> None:
    assert difference(tuple(shown.splitlines()), said, Identities()) is not None


def test_places_have_ports_of_their_own_and_come_back(tmp_path: Path) -> None:
    places = Places(tmp_path)
    command = "pithead drive serve --data /disk2 --listen 0.0.0.0:7433 --metrics 9433 # on server2"
    real = places.real(command)
    assert "7433" not in real and "9433" not in real and f"--data {tmp_path}/disk2" in real
    port = real.split("0.0.0.0:")[1].split()[0]
    assert places.real("server2:7433,server3:7433").startswith(f"127.0.0.12:{port},127.0.0.13:")
    assert places.documented(f"on 0.0.0.0:{port}") == "on 0.0.0.0:7433"
    assert places.documented(f"cannot reach 127.0.0.12:{port}") == "cannot reach server2:7433"
