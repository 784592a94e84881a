"""Runs the benchmark: `python -m cell --help`."""

from .run import main

if __name__ == "__main__":
    main()
