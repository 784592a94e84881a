"""Runs the benchmark: `python -m cell --help`."""

from .run import main

main()
