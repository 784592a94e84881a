"""What the benchmark does in processes of their own: `python -m cell.tasks NAME ARGUMENTS`, with arguments as JSON."""

from __future__ import annotations

import importlib
import json
import os
import resource
import sys

from .measure import end_with_parent

_TASKS = {
    "generate": ("generate", "task"),
    "reference": ("answers", "reference_task"),
    "scanpy": ("peers", "scanpy_task"),
    "soma_load": ("peers", "soma_load_task"),
    "soma": ("peers", "soma_task"),
    "duckdb_load": ("peers", "duckdb_load_task"),
    "duckdb": ("peers", "duckdb_task"),
    "pithead_load": ("ours", "load_task"),
    "pithead": ("ours", "query_task"),
    "slices": ("slices", "task"),
    "fetch": ("fetch", "task"),
}


def main() -> None:
    """Does one task, and writes what it returns to the descriptor that the benchmark gave."""
    end_with_parent()
    name, arguments = sys.argv[1], json.loads(sys.argv[2])
    if limit := arguments.pop("memory_limit", None):
        # Before anything large is imported: private memory that can be written to, of all kinds.
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    module, function = _TASKS[name]
    answer = getattr(importlib.import_module(f"cell.{module}"), function)(**arguments)
    with os.fdopen(int(os.environ["PITHEAD_BENCH_ANSWER"]), "w") as out:
        json.dump(answer, out)


if __name__ == "__main__":
    main()
