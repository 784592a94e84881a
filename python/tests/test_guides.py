"""Guides: what they show is what happens. docs/internals/testing.md says how a page is written, so that it can be run."""

from __future__ import annotations

from pathlib import Path

import pytest
from guides.pages import Block, blocks_of
from guides.run import Failure, PageRun, page_run

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    str(path.relative_to(ROOT))
    for pattern in ("README.md", "docs/guides/*.md", "docs/concepts/*.md")
    for path in ROOT.glob(pattern)
)
SKIPPED = [block for page in PAGES for block in blocks_of(ROOT, page) if block.skipped]


@pytest.mark.parametrize("page", PAGES)
def test_a_page_does_what_it_says(page: str, program: Path, tmp_path: Path) -> None:
    with page_run(tmp_path, program, ROOT) as run:
        for block in blocks_of(ROOT, page):
            if not block.skipped:
                _run(run, block)


def _run(run: PageRun, block: Block) -> None:
    told = ""
    try:
        run.block(block)
    except Failure as failure:
        told = str(failure)
    if told:
        pytest.fail(told, pytrace=False)


@pytest.mark.parametrize("block", SKIPPED, ids=lambda block: f"{block.page}:{block.line}")
def test_a_block_that_is_not_run(block: Block) -> None:
    """Lists each with its reason: `pytest -rs`."""
    pytest.skip(block.skipped)
