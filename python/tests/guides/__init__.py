"""Runs what the documentation shows."""
