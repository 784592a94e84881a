"""Catch what goes wrong by who can help; a hint says what to do.

    UserError: no dataset main.tirps; near: main.trips
    hint: conn.datasets() lists those that are there
"""

import pithead

with pithead.connect() as conn:
    conn.load("trips", pithead.examples.trips())
    try:
        conn.sql("SELECT * FROM tirps")
    except pithead.Error as error:
        print(f"{type(error).__name__}: {error.message}")
        print(f"hint: {error.hint}")
