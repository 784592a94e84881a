"""Load a file into a dataset, and ask in SQL.

    Bern: 2 trips, 11.10 in fares
    Oslo: 3 trips, 58.25 in fares
"""

import tempfile
from pathlib import Path

import pithead

TRIPS = """city,day,fare
Oslo,2026-03-01,18.50
Bern,2026-03-01,4.20
Oslo,2026-03-02,31.00
Bern,2026-03-02,6.90
Oslo,2026-03-02,8.75
"""

with tempfile.TemporaryDirectory() as directory:
    file = Path(directory) / "trips.csv"
    file.write_text(TRIPS)

    # Two drives run inside this process, on a directory that is made now.
    with pithead.connect(Path(directory) / "data", drives=2) as conn:
        conn.load("trips", file)
        totals = conn.sql("SELECT city, count(*), sum(fare) FROM trips GROUP BY city ORDER BY city")
        for city, trips, fares in totals.fetchall():
            print(f"{city}: {trips} trips, {fares:.2f} in fares")
