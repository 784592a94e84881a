"""Fetches all rows of a table from two servers that speak PostgreSQL's protocol, in turns: SOURCE TARGET TABLE RUNS.

SOURCE and TARGET are connection strings. The table is copied from the source to the target first, and gets a primary key there; an empty
TARGET leaves it out. Then both are asked for all rows by each client, once to compare the answers and then RUNS times. It prints JSON.
"""

import asyncio
import json
import random
import sys
import time

import asyncpg
import psycopg

LOOKUPS = 200


def main():
    source, target, table, runs = sys.argv[1:]
    servers = {"pithead": source} | ({"postgresql": target} if target else {})
    if target:
        copy(source, target, table)
    sql = f"SELECT * FROM {table}"
    ways = {
        "psycopg": lambda server: by_psycopg(server, sql, False),
        "psycopg, binary": lambda server: by_psycopg(server, sql, True),
        "asyncpg": lambda server: asyncio.run(by_asyncpg(server, sql)),
        "psycopg, COPY binary": lambda server: by_copy(server, table),
    }
    taken = {way: {name: [] for name in servers} for way in ways}
    different = [f"lookups by {way}" for way, same in {"psycopg": lookups_agree(servers, table)}.items() if not same]
    rows = 0
    for way, fetch in ways.items():
        answers = [fetch(server)[1] for server in servers.values()]
        if isinstance(answers[0], list):
            rows = len(answers[0])
            for answer in answers:
                answer.sort(key=lambda row: row[0])
        if any(answer != answers[0] for answer in answers):
            different.append(way)
        del answers
        for _ in range(int(runs)):
            for name, server in servers.items():
                seconds, answer = fetch(server)
                del answer
                taken[way][name].append(seconds)
    version = f"psycopg {psycopg.__version__}, asyncpg {asyncpg.__version__}"
    print(json.dumps({"version": version, "rows": rows, "seconds": taken, "different": different}))


def copy(source, target, table):
    columns = {"bigint": "bigint", "integer": "integer", "double precision": "double precision", "numeric": "numeric(12, 2)"}
    with psycopg.connect(source, autocommit=True) as here, psycopg.connect(target, autocommit=True) as there:
        asked = "SELECT column_name, data_type FROM information_schema.columns WHERE table_name = %s ORDER BY ordinal_position"
        names = [f"{name} {columns.get(kind, kind)}" for name, kind in here.execute(asked, [table])]
        there.execute(f"CREATE TABLE {table} ({', '.join(names)})")
        with here.cursor().copy(f"COPY {table} TO STDOUT (FORMAT binary)") as rows:
            with there.cursor().copy(f"COPY {table} FROM STDIN (FORMAT binary)") as written:
                for block in rows:
                    written.write(block)
        there.execute(f"ALTER TABLE {table} ADD PRIMARY KEY (id)")
        there.execute(f"VACUUM ANALYZE {table}")


def lookups_agree(servers, table):
    answers = []
    for server in servers.values():
        draw = random.Random(7)
        with psycopg.connect(server, autocommit=True) as connection:
            rows = connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
            asked = f"SELECT * FROM {table} WHERE id = %s"
            answers.append([connection.execute(asked, [draw.randrange(rows)], prepare=True).fetchall() for _ in range(LOOKUPS)])
    return all(answer == answers[0] and all(len(rows) == 1 for rows in answer) for answer in answers)


def by_psycopg(server, sql, binary):
    with psycopg.connect(server, autocommit=True) as connection:
        start = time.perf_counter()
        rows = connection.cursor(binary=binary).execute(sql).fetchall()
        return time.perf_counter() - start, rows


async def by_asyncpg(server, sql):
    named = dict(word.split("=") for word in server.split())
    connection = await asyncpg.connect(
        host=named["host"], port=int(named["port"]), user=named["user"], database=named["dbname"], ssl=False
    )
    start = time.perf_counter()
    rows = await connection.fetch(sql)
    seconds = time.perf_counter() - start
    await connection.close()
    return seconds, rows


def by_copy(server, table):
    with psycopg.connect(server, autocommit=True) as connection:
        start = time.perf_counter()
        with connection.cursor().copy(f"COPY {table} TO STDOUT (FORMAT binary)") as blocks:
            bytes_ = sum(len(block) for block in blocks)
        return time.perf_counter() - start, bytes_


main()
