//! What clients ask the catalogue, in the words that they ask it in, and what functions of PostgreSQL's do here.

use std::time::{Duration, Instant};

use pithead_e2e::front::{done, five_rows};
use pithead_e2e::{FrontProcess, RawClient};

use super::{code, rows};

#[test]
fn clients_find_the_functions_that_they_call() {
    let folder = five_rows();
    let front = FrontProcess::start(folder.path(), &["--data", "data"]);
    let mut client = RawClient::connect(front.address());
    for (sql, expected) in [
        ("SELECT format('%s: %I = %L, %%', 'a', 'My T', NULL)", "a: \"My T\" = NULL, %"),
        ("SELECT format('%I.%I', 'main', 't')::regclass::oid = 't'::regclass::oid", "t"),
        ("SELECT array_lower(ARRAY[7, 8], 1) || ' ' || array_upper(ARRAY[7, 8], 1)", "1 2"),
        ("SELECT (parse_ident('Main.\"T\"'))[2] || array_length(parse_ident('a.b'), 1)", "T2"),
        ("SELECT sum(i) FROM generate_series(1, array_upper(string_to_array('a,b,c', ','), 1)) AS i", "6"),
        ("SELECT quote_literal('it''s') || quote_nullable(NULL)", "'it''s'NULL"),
        ("SELECT count(*) > 400 FROM pg_timezone_names WHERE utc_offset = INTERVAL '0' OR NOT is_dst", "t"),
        ("SELECT has_table_privilege('t', 'INSERT') AND has_schema_privilege('main', 'CREATE')", "t"),
        ("SELECT null_frac FROM pg_stats WHERE tablename = 't' AND attname = 'name'", "0.2"),
        ("SELECT n_live_tup FROM pg_stat_user_tables WHERE relname = 't'", "5"),
        ("SELECT count(*) FROM pg_stat_database WHERE datname = current_database() AND xact_commit IS NULL", "1"),
        ("SELECT count(*) FROM pg_catalog.pg_user_mappings AS um", "0"),
        ("SELECT pg_is_wal_replay_paused() OR inet_server_addr() IS NOT NULL OR inet_client_port() > 0", "NULL"),
        ("SELECT count(*) FROM pg_stat_replication, pg_replication_slots, pg_stat_user_indexes", "0"),
        ("SELECT reset_val FROM pg_settings WHERE name = 'search_path'", "main"),
        (
            "SELECT parameter_types::regtype[] FROM pg_prepared_statements UNION ALL SELECT ARRAY[23, 25]::regtype[]",
            "{integer,text}",
        ),
        ("SELECT '{int4,text}'::regtype[]", "{23,25}"),
        ("SELECT count(*) FROM pg_opfamily, pg_amop, pg_amproc, pg_parameter_acl, pg_shadow, pg_policies, pg_stat_ssl", "0"),
        ("SELECT count(*) FROM information_schema.domains, information_schema.check_constraints", "0"),
        ("SELECT character_set_name FROM information_schema.character_sets", "UTF8"),
        ("SELECT count(*) FROM pg_class c LEFT JOIN pg_description d ON d.classoid = c.tableoid AND d.objoid = c.oid", "1"),
        ("SELECT current_setting('password_encryption')", "scram-sha-256"),
    ] {
        let replies = client.query(sql);
        assert_eq!(rows(&replies), [[expected]], "{sql}: {:?}", replies.iter().find(|reply| reply.0 == 'E'));
    }
    assert!(code(&client.query("SELECT format('%s')")).is_some());
    // What is not there: scripts rely on the error.
    for (sql, expected) in [
        ("SELECT 'tirps'::regclass", "42P01"),
        ("SELECT pg_table_size('tirps')", "42P01"),
        ("SELECT has_table_privilege('tirps', 'SELECT')", "42P01"),
        ("SELECT current_setting('nope')", "42704"),
    ] {
        assert_eq!(code(&client.query(sql)).as_deref(), Some(expected), "{sql}");
    }
    assert_eq!(rows(&client.query("SELECT to_regclass('tirps'), current_setting('nope', true)")), [["NULL", "NULL"]]);
}

/// As Grafana's editor of queries, Metabase, ADBC and pgjdbc ask.
#[test]
fn named_clients_find_tables_and_their_columns() {
    const PATH: &str = "quote_ident(table_schema) IN (SELECT CASE WHEN trim(s[i]) = '\"$user\"' THEN user ELSE trim(s[i]) END FROM \
        generate_series(array_lower(string_to_array(current_setting('search_path'),','),1), \
        array_upper(string_to_array(current_setting('search_path'),','),1)) as i, \
        string_to_array(current_setting('search_path'),',') s)";
    let folder = five_rows();
    done(folder.path(), &["sql", "--data", "data", "-c", "CREATE TABLE lab.n AS SELECT 1 AS a"]);
    let front = FrontProcess::start(folder.path(), &["--data", "data"]);
    let mut client = RawClient::connect(front.address());
    let tables = format!(
        "SELECT CASE WHEN {PATH} THEN quote_ident(table_name) ELSE quote_ident(table_schema) || '.' || quote_ident(table_name) END \
         AS \"table\" FROM information_schema.tables WHERE quote_ident(table_schema) NOT IN ('information_schema', 'pg_catalog') \
         ORDER BY CASE WHEN {PATH} THEN 0 ELSE 1 END, 1"
    );
    assert_eq!(rows(&client.query(&tables)), [["t"], ["lab.n"]]);
    let columns = format!(
        "SELECT quote_ident(column_name) AS \"column\" FROM information_schema.columns WHERE CASE WHEN \
         array_length(parse_ident('t'),1) = 2 THEN quote_ident(table_schema) = (parse_ident('t'))[1] AND quote_ident(table_name) = \
         (parse_ident('t'))[2] ELSE quote_ident(table_name) = 't' AND {PATH} END"
    );
    assert_eq!(rows(&client.query(&columns)), [["id"], ["name"], ["price"]]);
    let described = "SELECT c.column_name AS name, CASE WHEN c.udt_schema IN ('public', 'pg_catalog') THEN FORMAT('%s', c.udt_name) \
        ELSE FORMAT('\"%s\".\"%s\"', c.udt_schema, c.udt_name) END AS \"database-type\", COL_DESCRIPTION(CAST(CAST(FORMAT('%I.%I', \
        CAST(c.table_schema AS TEXT), CAST(c.table_name AS TEXT)) AS REGCLASS) AS OID), c.ordinal_position) AS comment \
        FROM information_schema.columns AS c WHERE c.table_schema !~ '^information_schema|catalog_history|pg_' AND \
        c.table_name = 't' ORDER BY c.ordinal_position";
    assert_eq!(rows(&client.query(described))[0], ["id", "int8", "NULL"]);
    let constraints = "WITH other_constraints AS (SELECT con.conname, CASE con.contype WHEN 'c' THEN 'CHECK' WHEN 'u' THEN 'UNIQUE' \
        WHEN 'p' THEN 'PRIMARY KEY' END AS contype, ARRAY_AGG(attr.attname) AS colnames FROM pg_catalog.pg_constraint AS con \
        CROSS JOIN UNNEST(conkey) AS conkeys INNER JOIN pg_catalog.pg_class AS cls ON cls.oid = con.conrelid \
        INNER JOIN pg_catalog.pg_namespace AS nsp ON nsp.oid = cls.relnamespace INNER JOIN pg_catalog.pg_attribute AS attr \
        ON attr.attnum = conkeys AND cls.oid = attr.attrelid WHERE con.contype IN ('c', 'u', 'p') AND nsp.nspname = 'main' \
        AND cls.relname = 't' GROUP BY conname, contype) SELECT conname, contype, colnames, NULL, NULL, NULL FROM other_constraints";
    let replies = client.query(constraints);
    assert!(code(&replies).is_none() && rows(&replies).is_empty(), "{:?}", replies.iter().find(|reply| reply.0 == 'E'));
    let described = "SELECT c.oid, a.attnum, a.attname, c.relname, n.nspname, a.attnotnull OR (t.typtype = 'd' AND t.typnotnull), \
        a.attidentity != '' OR pg_catalog.pg_get_expr(d.adbin, d.adrelid) LIKE '%nextval(%' FROM pg_catalog.pg_class c JOIN \
        pg_catalog.pg_namespace n ON (c.relnamespace = n.oid) JOIN pg_catalog.pg_attribute a ON (c.oid = a.attrelid) JOIN \
        pg_catalog.pg_type t ON (a.atttypid = t.oid) LEFT JOIN pg_catalog.pg_attrdef d ON (d.adrelid = a.attrelid AND d.adnum = a.attnum) \
        JOIN (SELECT 't'::regclass::oid AS oid, 1 AS attnum UNION ALL SELECT 't'::regclass::oid, 2) vals \
        ON (c.oid = vals.oid AND a.attnum = vals.attnum) ORDER BY a.attnum";
    let replies = client.query(described);
    let names: Vec<String> = rows(&replies).into_iter().map(|row| row[2].clone()).collect();
    assert_eq!(names, ["id", "name"], "{:?}", replies.iter().find(|reply| reply.0 == 'E'));
}

#[test]
fn who_sleeps_is_woken_and_keeps_nobody_waiting() {
    let folder = five_rows();
    let front = FrontProcess::start(folder.path(), &["--data", "data"]);
    let mut sleepers: Vec<RawClient> = (0..16).map(|_| RawClient::connect(front.address())).collect();
    for sleeper in &mut sleepers {
        sleeper.send('Q', b"SELECT pg_sleep(3600)\0");
    }
    let start = Instant::now();
    let mut client = RawClient::connect(front.address());
    assert_eq!(rows(&client.query("SELECT count(*) FROM t")), [["5"]]);
    assert_eq!(rows(&client.query("SELECT pg_sleep(0.3), pg_sleep_for(INTERVAL '100 milliseconds')")), [["", ""]]);
    assert!(start.elapsed() >= Duration::from_millis(300), "it slept");
    assert_eq!(code(&client.query("SET statement_timeout = '200ms'; SELECT pg_sleep(3600)")).as_deref(), Some("57014"));
    for sleeper in &mut sleepers {
        RawClient::cancel(front.address(), sleeper.key);
        assert_eq!(code(&sleeper.until('Z')).as_deref(), Some("57014"));
    }
    assert!(start.elapsed() < Duration::from_secs(30), "{:?}", start.elapsed());
}
