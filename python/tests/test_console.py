"""The console as people use it: a headless Chromium over `pithead serve --console`."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from browser import CONTROL, ENTER, MISSING, Browser
from fronts import Server, end, loaded, start
from programs import program

pytestmark = pytest.mark.skipif(MISSING is not None, reason=MISSING or "")

ENDLESS = "SELECT count(*) FROM range(100000000) a, range(100000000) b WHERE a.value + b.value < 0"
CUT = "SELECT kind, count(*) AS items, sum(id) AS ids FROM items WHERE id > 100 GROUP BY kind ORDER BY kind"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("console")
    loaded(folder)
    found = start(folder, "--console", "0")
    yield found
    assert end(found) == 0


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser(insecure=True) as found:
        yield found


@pytest.fixture
def page(server: Server, browser: Browser) -> Iterator[Browser]:
    """The page of a server that anybody may use. What it does is allowed by its own policy, and fails nowhere."""
    browser.messages()
    browser.open(server.console)
    browser.until("return document.querySelectorAll('.drive').length === 2")
    yield browser
    assert browser.messages() == []


def run(page: Browser, sql: str) -> None:
    page.type("#sql", sql)
    page.type("#sql", CONTROL + ENTER, clear=False)
    page.until("return !document.getElementById('run').disabled", 60)


def test_a_query_is_run_and_its_cut_is_drawn(page: Browser) -> None:
    run(page, CUT)
    rows = page.run("return [...document.querySelectorAll('#results tr')].map(row => [...row.cells].map(cell => cell.innerText))")
    assert rows[:2] == [["kind", "items", "ids"], ["0", "1989", "19989450"]] and len(rows) == 11
    assert "10 rows, in" in page.text("#results .result .quiet")
    zones = page.run("return [...document.querySelectorAll('#results .plan .zone-name')].map(name => name.textContent)")
    assert zones == ["host", "the cut", "drives"]
    below = page.run(
        "const cut = Number(document.querySelector('#results .plan .cut').getAttribute('y1'));"
        "const top = node => Number(node.getAttribute('transform').match(/ ([0-9.]+)/)[1]);"
        "const all = kind => [...document.querySelectorAll('#results .node.' + kind)].map(top);"
        "return [all('host').every(y => y < cut), all('drive').every(y => y > cut), all('host').length, all('drive').length]"
    )
    assert below[:2] == [True, True] and min(below[2:]) > 0
    assert "main.items" in page.run("return document.querySelector('#results .pill').textContent")
    # Whoever ran it, it is listed, and opened on demand.
    page.until("return document.querySelector('#recent .statement')")
    page.click("#recent .statement .text")
    page.until("return document.querySelector('#recent .plan svg')")
    assert page.text("#recent .statement .text").startswith("SELECT kind")
    page.click("#recent .statement .text")
    page.until("return !document.querySelector('#recent .plan')")


def test_values_are_texts_and_keep_their_digits(page: Browser) -> None:
    run(page, "SELECT 9223372036854775807 AS big, '<img src=x onerror=alert(1)>' AS \"<b>\", NULL AS nothing")
    cells = page.run("return [...document.querySelectorAll('#results th, #results td')].map(cell => cell.textContent)")
    assert cells == ["big", "<b>", "nothing", "9223372036854775807", "<img src=x onerror=alert(1)>", "NULL"]
    assert page.run("return document.querySelector('#results img, #results b')") is None
    run(page, "SELECT value FROM range(5000)")
    assert "the first 1,000 rows of more" in page.text("#results .result .quiet")


def test_an_error_is_underlined_where_it_is(page: Browser) -> None:
    run(page, "SELECT 1;\n  SELEC 2")
    said = page.run("return document.querySelector('#results .fault').innerText")
    line, mark = page.run("return document.querySelector('#results .fault pre').textContent").split("\n")
    assert said.startswith("invalid request") and line.endswith("  SELEC 2")
    assert line[mark.index("^") :].startswith("SELEC")
    # What came before it is shown.
    assert page.run("return document.querySelectorAll('#results table').length") == 1


def test_what_runs_is_shown_and_cancelled(page: Browser, server: Server) -> None:
    with psycopg.connect(server.url, autocommit=True) as connection, connection.cursor() as cursor:
        page.run("window.stays = document.querySelector('.drive')")
        cursor.connection.pgconn.send_query(ENDLESS.encode())
        page.until("return document.querySelector('#running .statement')")
        assert page.text("#running [data-part=user]") == "me" and page.text("#running-count") == "1"
        page.click("#running [data-part=cancel]")
        page.until("return !document.querySelector('#running .statement')")
        said = [result.error_message for result in iter(cursor.connection.pgconn.get_result, None)]
        assert b"cancelled" in b"".join(filter(None, said))
        assert page.run("return window.stays.isConnected"), "what is shown is renewed, and not made again"
    # The page's own, by its button.
    page.type("#sql", ENDLESS)
    page.click("#run")
    page.until("return document.querySelector('#running .statement')")
    page.click("#stop")
    page.until("return !document.querySelector('#running .statement')")
    assert "stopped" in page.text("#results")


def test_the_page_fits_a_phone_and_the_dark(page: Browser) -> None:
    run(page, CUT)
    for width, is_dark in [(360, False), (1280, True)]:
        page.size(width, 800)
        page.dark(is_dark)
        assert page.run("return document.documentElement.scrollWidth <= window.innerWidth"), width
        back = page.run("return getComputedStyle(document.body).backgroundColor")
        assert (sum(int(part) for part in back[4:-1].split(",")) < 200) == is_dark, back
    page.dark(False)
    # Each control has a name for those who hear the page.
    nameless = "return [...document.querySelectorAll('button, input, textarea')].filter(e => !e.innerText && !e.labels?.length)"
    assert page.run(nameless) == []


def test_a_server_that_knows_its_callers_asks_for_a_token(browser: Browser, server: Server, tmp_path: Path) -> None:
    def pithead(*arguments: str) -> None:
        subprocess.run([program(), *arguments], cwd=tmp_path, check=True, capture_output=True)

    pithead("token", "ann", "--read", "main")
    pithead("cert", "ca")
    pithead("cert", "drive", "127.0.0.1")
    loaded(tmp_path)
    tls = ["--tls-cert", "certs/127.0.0.1.pem", "--tls-key", "certs/127.0.0.1.key"]
    secured = start(tmp_path, "--console", "0", "--access", "access.toml", *tls)
    try:
        assert secured.console.startswith("https://")
        browser.open(secured.console)
        browser.until("return !document.getElementById('entry').hidden")
        browser.type("#token", "guessed")
        browser.click("#entry button")
        assert "token" in browser.until("return document.getElementById('entry-fault').innerText")
        browser.type("#token", (tmp_path / "ann.token").read_text().strip())
        browser.click("#entry button")
        browser.until("return document.querySelector('.drive')")
        assert browser.text("#caller").startswith("ann")
        run(browser, "SELECT * FROM lab.notes")
        assert "not allowed" in browser.text("#results") or "no table" in browser.text("#results")
        # The token is in no address, and in no other page.
        assert browser.run("return location.href") == secured.console
        browser.click("#leave")
        browser.until("return !document.getElementById('entry').hidden")
        assert browser.run("return sessionStorage.getItem('pithead-token')") is None
    finally:
        assert end(secured) == 0
