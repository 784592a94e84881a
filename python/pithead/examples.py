"""Small data for examples."""

from __future__ import annotations

from pathlib import Path


def trips() -> Path:
    """A CSV file of five taxi trips: city, day, fare."""
    return Path(__file__).with_name("trips.csv")
