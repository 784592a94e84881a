"""What DBeaver asks of the catalogue, over `pithead serve`. DBeaver itself is not run."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from fronts import Server, served


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with served(tmp_path_factory.mktemp("dbeaver")) as found:
        yield found


# What DBeaver's driver for PostgreSQL asks of the catalogue as it opens a connection, a schema and a table, by what it is about.
BROWSED = {
    "databases": "SELECT d.oid, d.* FROM pg_catalog.pg_database d WHERE datallowconn AND NOT datistemplate OR d.datname = %(name)s",
    "schemas": "SELECT n.oid, n.*, d.description FROM pg_catalog.pg_namespace n LEFT JOIN pg_catalog.pg_description d"
    " ON d.objoid = n.oid AND d.objsubid = 0 AND d.classoid = 'pg_namespace'::regclass WHERE n.nspname = 'main' ORDER BY nspname",
    "types": "SELECT t.oid, t.*, c.relkind, format_type(nullif(t.typbasetype, 0), t.typtypmod) AS base, d.description"
    " FROM pg_catalog.pg_type t LEFT JOIN pg_catalog.pg_type item ON item.oid = t.typelem"
    " LEFT JOIN pg_catalog.pg_class c ON c.oid = t.typrelid LEFT JOIN pg_catalog.pg_description d ON t.oid = d.objoid"
    " WHERE (c.relkind IS NULL OR c.relkind = 'c') AND (item.typcategory IS NULL OR item.typcategory <> 'C')",
    "tables": "SELECT c.oid, c.*, d.description, pg_catalog.pg_get_expr(c.relpartbound, c.oid), pg_catalog.pg_get_partkeydef(c.oid)"
    " FROM pg_catalog.pg_class c LEFT JOIN pg_catalog.pg_description d ON d.objoid = c.oid AND d.objsubid = 0"
    " AND d.classoid = 'pg_class'::regclass WHERE c.relnamespace = %(schema)s AND c.relkind NOT IN ('i', 'I', 'c')",
    "columns": "SELECT c.relname, a.*, pg_catalog.pg_get_expr(f.adbin, f.adrelid, true), d.description, p.objid"
    " FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_class c ON a.attrelid = c.oid"
    " LEFT JOIN pg_catalog.pg_attrdef f ON a.attrelid = f.adrelid AND a.attnum = f.adnum"
    " LEFT JOIN pg_catalog.pg_description d ON c.oid = d.objoid AND a.attnum = d.objsubid"
    " LEFT JOIN pg_depend p ON p.refobjid = a.attrelid AND p.deptype = 'i' AND p.refobjsubid = a.attnum AND p.classid = p.refclassid"
    " WHERE NOT a.attisdropped AND c.oid = %(table)s ORDER BY a.attnum",
    "constraints": "SELECT c.oid, c.*, t.relname, r.relnamespace, CASE WHEN c.contype = 'c' THEN"
    ' "substring"(pg_get_constraintdef(c.oid), 7) END FROM pg_catalog.pg_constraint c'
    " JOIN pg_catalog.pg_class t ON t.oid = c.conrelid LEFT JOIN pg_catalog.pg_class r ON r.oid = c.confrelid"
    " WHERE c.conrelid = %(table)s ORDER BY c.oid",
    "indexes": "SELECT i.*, i.indkey AS keys, c.relname, c.relam, t.relname, pg_catalog.pg_get_expr(i.indpred, i.indrelid),"
    " pg_catalog.pg_relation_size(i.indexrelid), pg_catalog.pg_stat_get_numscans(i.indexrelid) FROM pg_catalog.pg_index i"
    " JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid JOIN pg_catalog.pg_class t ON t.oid = i.indrelid WHERE i.indrelid = %(table)s",
    "sizes": "SELECT c.oid, pg_catalog.pg_total_relation_size(c.oid), pg_catalog.pg_relation_size(c.oid) FROM pg_class c"
    " WHERE c.relnamespace = %(schema)s",
    "routines": "SELECT p.oid, p.*, pg_catalog.pg_get_expr(p.proargdefaults, 0) FROM pg_catalog.pg_proc p WHERE p.pronamespace = %(schema)s",
    "triggers": "SELECT x.oid, x.*, p.pronamespace FROM pg_catalog.pg_trigger x LEFT JOIN pg_catalog.pg_proc p ON p.oid = x.tgfoid"
    " WHERE x.tgrelid = %(table)s AND NOT x.tgisinternal",
    "rules": "SELECT r.oid, r.* FROM pg_catalog.pg_rewrite r WHERE r.ev_class = %(table)s AND r.rulename <> '_RETURN'",
    "parents": "SELECT i.*, c.relnamespace FROM pg_catalog.pg_inherits i, pg_catalog.pg_class c"
    " WHERE i.inhrelid = %(table)s AND c.oid = i.inhparent ORDER BY i.inhseqno",
    "roles": "SELECT r.oid, r.*, d.description FROM pg_catalog.pg_roles r LEFT JOIN pg_catalog.pg_shdescription d ON r.oid = d.objoid",
    "extensions": "SELECT e.oid, c.tables, n.nspname, e.* FROM pg_catalog.pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace"
    " LEFT JOIN (SELECT array_agg(s.nspname || '.' || t.relname) AS tables, oid_ext"
    " FROM (SELECT unnest(x.extconfig) AS oid, x.oid AS oid_ext FROM pg_catalog.pg_extension x) k JOIN pg_catalog.pg_class t ON t.oid = k.oid"
    " JOIN pg_catalog.pg_namespace s ON s.oid = t.relnamespace GROUP BY oid_ext) c ON c.oid_ext = e.oid ORDER BY e.oid",
    "encodings": "SELECT c.contoencoding, pg_catalog.pg_encoding_to_char(c.contoencoding) AS name FROM pg_catalog.pg_conversion c"
    " GROUP BY c.contoencoding ORDER BY 2",
    "found by name": "SELECT x.oid, x.relname, x.relnamespace, x.relkind FROM pg_catalog.pg_class x"
    " WHERE x.relkind IN ('r', 'v', 'm', 'f') AND x.relname ILIKE 'typ%%' AND x.relnamespace IN (%(schema)s) ORDER BY x.relname LIMIT 100",
    "rights": "SELECT * FROM information_schema.table_privileges WHERE table_schema = 'main' AND table_name = 'types'",
    "rights of columns": "SELECT * FROM information_schema.column_privileges WHERE table_schema = 'main' AND table_name = 'types'",
    "grants": "SELECT * FROM information_schema.role_table_grants WHERE grantee = %(name)s",
}


def test_what_dbeaver_asks_of_the_catalogue(server: Server) -> None:
    with psycopg.connect(f"host=127.0.0.1 port={server.port} user=me dbname=pithead", autocommit=True) as connection:
        named = {"schema": "SELECT 'main'::regnamespace::oid::bigint", "table": "SELECT 'main.types'::regclass::oid::bigint"}
        values = {name: connection.execute(sql).fetchone()[0] for name, sql in named.items()} | {"name": "pithead"}  # type: ignore[index]
        found = {what: connection.execute(sql, values, prepare=True).fetchall() for what, sql in BROWSED.items()}
        names = [row[0] for row in connection.execute("SELECT relname FROM pg_class WHERE relnamespace = %(schema)s", values)]
    assert len(found["databases"]) == len(found["schemas"]) == 1 and len(found["types"]) > 20
    assert len(found["tables"]) == len(found["sizes"]) == len(names) and "types" in names
    assert [row[0] for row in found["columns"]] == ["types"] * 15
    assert ("types", values["schema"], "r") in [row[1:] for row in found["found by name"]]
    absent = ["constraints", "indexes", "routines", "triggers", "rules", "parents", "rights", "rights of columns", "grants"]
    assert [what for what in absent if found[what]] == []
