"""Pass values beside a statement, not within it: they are taken exactly, and go to the drives as literals do.

    $1, $2: [('Oslo', 2)]
    $city: [('Bern', 2)]
"""

from datetime import date

import pithead

with pithead.connect() as conn:
    conn.load("trips", pithead.examples.trips())

    late = "SELECT city, count(*) FROM trips WHERE city = $1 AND day >= $2 GROUP BY city"
    print(f"$1, $2: {conn.sql(late, ['Oslo', date(2026, 1, 2)]).fetchall()}")

    named = "SELECT city, count(*) FROM trips WHERE city = $city GROUP BY city"
    print(f"$city: {conn.sql(named, {'city': 'Bern'}).fetchall()}")
