"""The examples in docstrings."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import pithead
import pithead.cell

MODULES = [
    name for _, name, _ in pkgutil.walk_packages(pithead.cell.__path__, "pithead.cell.") if not name.endswith("__main__")
]


@pytest.mark.parametrize("name", MODULES)
def test_examples(conn, counts, name):
    module = importlib.import_module(name)
    ds = pithead.cell.load(conn, counts, "lab.pbmc")
    names = {"pithead": pithead, "conn": conn, "adata": counts, "ds": ds}
    for test in doctest.DocTestFinder().find(module, extraglobs=names):
        found = doctest.DocTestRunner().run(test)
        assert found.failed == 0, test.name


def test_there_are_examples():
    found = [test for name in MODULES for test in doctest.DocTestFinder().find(importlib.import_module(name))]
    assert sum(len(test.examples) for test in found) > 10
