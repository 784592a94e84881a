"""`pithead bench cell`: differential expression at the drives, beside scanpy, TileDB-SOMA and DuckDB.

`run` decides what is measured, `tasks` are what it starts as processes of their own, `report` is what it says.
"""
