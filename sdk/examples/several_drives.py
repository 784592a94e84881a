"""Partition two datasets by the same key over several drives, and their join runs at the drives, beside the rows.

    4 drives
    drive: Inner Join: customers.customer = orders.customer
    C0 paid 1800, C1 paid 1798, C2 paid 1796, C3 paid 1801, C4 paid 1799
"""

import pithead
import pyarrow as pa

CUSTOMERS = pa.table({"customer": range(100), "country": [f"C{number % 5}" for number in range(100)]})
ORDERS = pa.table({"customer": [number % 100 for number in range(3000)], "price": [number % 7 for number in range(3000)]})

with pithead.connect(drives=4) as conn:
    print(f"{len(conn.drives())} drives")
    conn.load("customers", CUSTOMERS, partition_by="hash:customer")
    conn.load("orders", ORDERS, partition_by="hash:customer")

    paid = conn.sql(
        "SELECT country, sum(price) FROM customers JOIN orders USING (customer) GROUP BY country ORDER BY country"
    )
    (join,) = [node for node in paid.explain().nodes() if "Join" in node.text]
    print(f"{join.site}: {join.text}")
    print(", ".join(f"{country} paid {price}" for country, price in paid.fetchall()))
