"""Writes the parts of docs/reference that say what the code says: commands, settings, and the Python package."""
