//! The tables of `pg_catalog`, and those of `information_schema`, as rows.

use arrow::array::RecordBatch;
use datafusion::sql::sqlparser::keywords::{
    ALL_KEYWORDS, ALL_KEYWORDS_INDEX, Keyword, RESERVED_FOR_IDENTIFIER, RESERVED_FOR_TABLE_ALIAS,
};

use crate::facts::Facts;
use crate::formatting::quoted;
use crate::rows::{Cell, NULL, batch, row};
use crate::types::{TYPES, modifier, pg_type};
use crate::{SETTINGS, absent, information, procedures, stats};

/// The role that owns everything.
pub(crate) const OWNER: i64 = 10;
/// Its name.
pub(crate) const OWNER_NAME: &str = "pithead";
/// The role of whoever asks.
pub(crate) const CALLER: i64 = 16_383;
/// The number of the schema `pg_catalog`.
pub(crate) const CATALOG_SCHEMA: i64 = 11;
/// The number of the schema `information_schema`.
const INFORMATION_SCHEMA: i64 = 13_000;
/// The number of the one database.
pub(crate) const DATABASE_OID: i64 = 5;
/// The access method of tables.
const HEAP: i64 = 2;

/// What makes the rows of a table.
type Rows = fn(&Facts) -> Vec<Vec<Cell>>;

/// A table: its name, its columns, its rows; none: it never has any.
pub(crate) struct Table(pub(crate) &'static str, pub(crate) &'static str, pub(crate) Option<Rows>);

/// The rows of a table of `pg_catalog`; none: there is no such table. Those of `information_schema` are there under names that begin
/// with [`information::PREFIX`].
pub fn table(name: &str, facts: &Facts) -> Option<RecordBatch> {
    let Table(_, columns, rows) = all().find(|known| known.0 == name)?;
    Some(batch(columns, &rows.map(|rows| rows(facts)).unwrap_or_default()))
}

fn of_catalog() -> impl Iterator<Item = &'static Table> {
    TABLES.iter().chain(stats::TABLES).chain(procedures::TABLES).chain(absent::TABLES)
}

fn all() -> impl Iterator<Item = &'static Table> {
    of_catalog().chain(information::TABLES)
}

/// Whether a table never has rows, since there are no such things here.
pub(crate) fn is_empty(name: &str) -> bool {
    all().any(|known| known.0 == name && known.2.is_none())
}

/// Whether there is a table of this name.
pub(crate) fn is_table(name: &str) -> bool {
    of_catalog().any(|known| known.0 == name)
}

const TABLES: &[Table] = &[
    Table("pg_namespace", "oid:o nspname:s nspowner:o nspacl:S", Some(namespaces)),
    Table(
        "pg_class",
        "oid:o relname:s relnamespace:o reltype:o reloftype:o relowner:o relam:o relfilenode:o reltablespace:o relpages:i \
         reltuples:f relallvisible:i reltoastrelid:o relhasindex:b relisshared:b relpersistence:s relkind:s relnatts:h relchecks:h \
         relhasrules:b relhastriggers:b relhassubclass:b relrowsecurity:b relforcerowsecurity:b relispopulated:b relreplident:s \
         relispartition:b relrewrite:o relfrozenxid:o relminmxid:o relacl:S reloptions:S relpartbound:s",
        Some(classes),
    ),
    Table(
        "pg_attribute",
        "attrelid:o attname:s atttypid:o attstattarget:i attlen:h attnum:h attndims:i attcacheoff:i atttypmod:i attbyval:b \
         attalign:s attstorage:s attcompression:s attnotnull:b atthasdef:b atthasmissing:b attidentity:s attgenerated:s \
         attisdropped:b attislocal:b attinhcount:i attcollation:o attacl:S attoptions:S attfdwoptions:S attmissingval:s",
        Some(attributes),
    ),
    Table(
        "pg_type",
        "oid:o typname:s typnamespace:o typowner:o typlen:h typbyval:b typtype:s typcategory:s typispreferred:b typisdefined:b \
         typdelim:s typrelid:o typsubscript:s typelem:o typarray:o typinput:s typoutput:s typreceive:s typsend:s typmodin:s \
         typmodout:s typanalyze:s typalign:s typstorage:s typnotnull:b typbasetype:o typtypmod:i typndims:i typcollation:o \
         typdefaultbin:s typdefault:s typacl:S",
        Some(types),
    ),
    Table(
        "pg_database",
        "oid:o datname:s datdba:o encoding:i datlocprovider:s datistemplate:b datallowconn:b datconnlimit:i datfrozenxid:o \
         datminmxid:o dattablespace:o datcollate:s datctype:s daticulocale:s datcollversion:s datacl:S",
        Some(databases),
    ),
    Table(
        "pg_roles",
        "rolname:s rolsuper:b rolinherit:b rolcreaterole:b rolcreatedb:b rolcanlogin:b rolreplication:b rolconnlimit:i \
         rolpassword:s rolvaliduntil:s rolbypassrls:b rolconfig:S oid:o",
        Some(roles),
    ),
    Table(
        "pg_user",
        "usename:s usesysid:o usecreatedb:b usesuper:b userepl:b usebypassrls:b passwd:s valuntil:s useconfig:S",
        Some(users),
    ),
    Table("pg_settings", SETTINGS_COLUMNS, Some(settings)),
    // A function that gives the same rows.
    Table("pg_show_all_settings", SETTINGS_COLUMNS, Some(settings)),
    Table("pg_get_keywords", "word:s catcode:s barelabel:b catdesc:s baredesc:s", Some(keywords)),
    Table(
        "pg_tables",
        "schemaname:s tablename:s tableowner:s tablespace:s hasindexes:b hasrules:b hastriggers:b rowsecurity:b",
        Some(tables),
    ),
    Table("pg_views", "schemaname:s viewname:s viewowner:s definition:s", Some(views)),
    Table("pg_am", "oid:o amname:s amhandler:s amtype:s", Some(|_| vec![row![HEAP, "heap", "heap_tableam_handler", "t"]])),
    Table("pg_tablespace", "oid:o spcname:s spcowner:o spcacl:S spcoptions:S", Some(|_| vec![row![1663, "pg_default", OWNER]])),
];

const SETTINGS_COLUMNS: &str = "name:s setting:s unit:s category:s short_desc:s extra_desc:s context:s vartype:s source:s min_val:s \
     max_val:s enumvals:S boot_val:s reset_val:s sourcefile:s sourceline:i pending_restart:b";

fn namespaces(facts: &Facts) -> Vec<Vec<Cell>> {
    let own = [row![CATALOG_SCHEMA, "pg_catalog", OWNER], row![INFORMATION_SCHEMA, "information_schema", OWNER]];
    let domains = facts.numbered().domains.iter().map(|(oid, name)| row![*oid, name, OWNER]);
    own.into_iter().chain(domains).collect()
}

fn classes(facts: &Facts) -> Vec<Vec<Cell>> {
    /// Bytes of PostgreSQL's pages, which sizes are told in.
    const PAGE: u64 = 8192;
    let numbered = facts.numbered();
    let class = |(oid, table): &(i64, crate::Listed)| {
        let (columns, pages) = (table.schema.fields().len() as i64, table.bytes.div_ceil(PAGE).min(i32::MAX as u64) as i64);
        let schema = numbered.domain(&table.domain);
        let (kind, method) = if table.view.is_some() { ("v", 0) } else { ("r", HEAP) };
        row![
            *oid,
            &table.name,
            schema,
            0,
            0,
            OWNER,
            method,
            0,
            0,
            pages,
            table.rows as i64,
            0,
            0,
            false,
            false,
            "p",
            kind,
            columns,
            0,
            false,
            false,
            false,
            false,
            false,
            true,
            "d",
            false,
            0,
            0,
            0
        ]
    };
    numbered.tables.iter().map(class).collect()
}

fn attributes(facts: &Facts) -> Vec<Vec<Cell>> {
    let mut rows = Vec::new();
    for (oid, table) in &facts.numbered().tables {
        for (number, field) in (1_i64..).zip(table.schema.fields()) {
            let number_of_type = pg_type(field);
            let known = TYPES.iter().find(|known| known.oid == number_of_type);
            let (length, dimensions) = known.map_or((-1, 1), |known| (i64::from(known.length), 0));
            let collation = if known.is_some_and(|known| known.category == 'S') { 100 } else { 0 };
            rows.push(row![
                *oid,
                field.name(),
                i64::from(number_of_type),
                -1,
                length,
                number,
                dimensions,
                -1,
                i64::from(modifier(field.data_type())),
                (1..=8).contains(&length),
                "i",
                "p",
                "",
                !field.is_nullable(),
                false,
                false,
                "",
                "",
                false,
                true,
                0,
                collation
            ]);
        }
    }
    rows
}

/// The name of the function that reads or writes a type's values: by it some clients know a type.
fn function(name: &str, what: &str) -> String {
    const APART: [&str; 9] = ["date", "time", "timestamp", "timestamptz", "interval", "numeric", "uuid", "json", "jsonb"];
    let between = if APART.contains(&name) { "_" } else { "" };
    format!("{name}{between}{what}")
}

fn types(_: &Facts) -> Vec<Vec<Cell>> {
    let mut rows = Vec::new();
    for known in &TYPES {
        let (oid, array) = (i64::from(known.oid), i64::from(known.array));
        let collation = if known.category == 'S' { 100 } else { 0 };
        let [input, output, receive, send] = ["in", "out", "recv", "send"].map(|what| function(known.name, what));
        rows.push(row![
            oid,
            known.name,
            CATALOG_SCHEMA,
            OWNER,
            i64::from(known.length),
            (1..=8).contains(&known.length),
            "b",
            known.category.to_string(),
            false,
            true,
            ",",
            0,
            "-",
            0,
            array,
            input,
            output,
            receive,
            send,
            "-",
            "-",
            "-",
            "i",
            "p",
            false,
            0,
            -1,
            0,
            collation
        ]);
        if array > 0 {
            rows.push(row![
                array,
                format!("_{}", known.name),
                CATALOG_SCHEMA,
                OWNER,
                -1,
                false,
                "b",
                "A",
                false,
                true,
                ",",
                0,
                "array_subscript_handler",
                oid,
                0,
                "array_in",
                "array_out",
                "array_recv",
                "array_send",
                "-",
                "-",
                "array_typanalyze",
                "i",
                "x",
                false,
                0,
                -1,
                0,
                collation
            ]);
        }
    }
    rows
}

fn databases(facts: &Facts) -> Vec<Vec<Cell>> {
    /// UTF8, by PostgreSQL's number for it.
    const UTF8: i64 = 6;
    vec![row![DATABASE_OID, &facts.database, OWNER, UTF8, "c", false, true, -1, 0, 0, 1663, "C.UTF-8", "C.UTF-8"]]
}

fn roles(facts: &Facts) -> Vec<Vec<Cell>> {
    let role =
        |name: &str, owns: bool, oid: i64| row![name, owns, true, owns, owns, !owns, false, -1, NULL, NULL, owns, NULL, oid];
    let mut roles = vec![role(OWNER_NAME, true, OWNER)];
    if facts.user != OWNER_NAME {
        roles.push(role(&facts.user, false, CALLER));
    }
    roles
}

fn users(facts: &Facts) -> Vec<Vec<Cell>> {
    vec![row![&facts.user, CALLER, false, false, false, false, "********"]]
}

fn settings(facts: &Facts) -> Vec<Vec<Cell>> {
    let path = quoted(&facts.shown.domain());
    // Those that are not of the list, since their values are those of the session.
    let of_session = [("search_path", path.as_str()), ("statement_timeout", "0"), ("TimeZone", "UTC")];
    let all = SETTINGS.iter().map(|known| (known.name, known.default)).chain(of_session);
    let one = |(name, default): (&str, &str)| {
        let now = facts.shown.show(name).unwrap_or_else(|| default.to_owned());
        let mut cells = row![name, now, NULL, "PostgreSQL", "", NULL, "user", "string", "default", NULL, NULL, NULL];
        cells.extend(row![default, default, NULL, NULL, false]);
        cells
    };
    all.map(one).collect()
}

/// The words that SQL has here, and which of them are no names unless they are quoted.
fn keywords(_: &Facts) -> Vec<Vec<Cell>> {
    let one = |(word, keyword): (&&str, &Keyword)| {
        let (code, said) = match RESERVED_FOR_IDENTIFIER.contains(keyword) || RESERVED_FOR_TABLE_ALIAS.contains(keyword) {
            true => ("R", "reserved"),
            false => ("U", "unreserved"),
        };
        row![word.to_lowercase(), code, code == "U", said, NULL]
    };
    ALL_KEYWORDS.iter().zip(ALL_KEYWORDS_INDEX).map(one).collect()
}

fn tables(facts: &Facts) -> Vec<Vec<Cell>> {
    let one =
        |(_, table): &(i64, crate::Listed)| row![&table.domain, &table.name, OWNER_NAME, NULL, false, false, false, false];
    facts.numbered().tables.iter().filter(|(_, table)| table.view.is_none()).map(one).collect()
}

fn views(facts: &Facts) -> Vec<Vec<Cell>> {
    let one = |(_, table): &(i64, crate::Listed)| Some(row![&table.domain, &table.name, OWNER_NAME, table.view.as_ref()?]);
    facts.numbered().tables.iter().filter_map(one).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::AsArray;

    use super::*;
    use crate::facts::{ConnectionFacts, TestSource, facts_of_tests};

    #[test]
    fn every_table_has_as_many_columns_as_its_rows() {
        let facts = facts_of_tests();
        for Table(name, columns, rows) in all() {
            let (wide, rows) = (columns.split_whitespace().count(), rows.map(|rows| rows(&facts)).unwrap_or_default());
            assert!(rows.iter().all(|row| row.len() <= wide), "{name}");
            let batch = table(name, &facts).unwrap();
            assert_eq!((batch.num_rows(), batch.num_columns()), (rows.len(), wide), "{name}");
        }
        assert_eq!(table("pg_attribute", &facts).unwrap().num_rows(), 6);
        assert!(table("pg_nothing", &facts).is_none());
    }

    /// A connection to a host whose domain is not `main`.
    struct Elsewhere;

    impl ConnectionFacts for Elsewhere {
        fn show(&self, _: &str) -> Option<String> {
            None
        }

        fn domain(&self) -> String {
            "My D".to_owned()
        }
    }

    #[test]
    fn the_path_that_comes_back_is_the_hosts() {
        let facts = Facts::new("me".into(), 1, Arc::new(Elsewhere), TestSource);
        let batch = table("pg_settings", &facts).unwrap();
        let column = |name: &str| batch.column_by_name(name).unwrap().as_string::<i32>().clone();
        let row = column("name").iter().position(|name| name == Some("search_path")).unwrap();
        assert_eq!(["boot_val", "reset_val"].map(|name| column(name).value(row).to_owned()), ["\"My D\""; 2]);
    }

    #[test]
    fn no_table_is_there_twice() {
        let mut names: Vec<_> = all().map(|table| table.0).collect();
        names.sort_unstable();
        let many = names.len();
        names.dedup();
        assert_eq!(names.len(), many);
    }
}
