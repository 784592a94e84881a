//! Tables of what there is to know of tables and of the connection that asks.

use arrow::datatypes::Field;

use crate::facts::{ColumnStatistics, Facts, Listed};
use crate::rows::{Cell, NULL, row};
use crate::tables::{CALLER, DATABASE_OID, Table};
use crate::types::{TYPES, formatted, pg_type};
use crate::zones;

pub(crate) const TABLES: &[Table] = &[
    Table(
        "pg_stats",
        "schemaname:s tablename:s attname:s inherited:b null_frac:f avg_width:i n_distinct:f most_common_vals:S \
         most_common_freqs:F histogram_bounds:S correlation:f most_common_elems:S most_common_elem_freqs:F \
         elem_count_histogram:F",
        Some(columns),
    ),
    Table("pg_stat_all_tables", TABLE_COLUMNS, Some(tables)),
    Table("pg_stat_user_tables", TABLE_COLUMNS, Some(tables)),
    Table(
        "pg_stat_activity",
        "datid:o datname:s pid:i usesysid:o usename:s application_name:s state:s backend_type:s",
        Some(activity),
    ),
    // Nothing is counted for the database as a whole.
    Table(
        "pg_stat_database",
        "datid:o datname:s numbackends:i xact_commit:o xact_rollback:o blks_read:o blks_hit:o tup_returned:o tup_fetched:o \
         tup_inserted:o tup_updated:o tup_deleted:o conflicts:o temp_files:o temp_bytes:o deadlocks:o blk_read_time:f \
         blk_write_time:f session_time:f active_time:f sessions:o stats_reset:t",
        Some(|facts| vec![row![DATABASE_OID, &facts.database]]),
    ),
    Table(
        "pg_stat_gssapi",
        "pid:i gss_authenticated:b principal:s encrypted:b",
        Some(|facts| vec![row![facts.process, false, NULL, false]]),
    ),
    Table("pg_cursors", "name:s statement:s is_holdable:b is_binary:b is_scrollable:b creation_time:t", Some(cursors)),
    Table(
        "pg_prepared_statements",
        "name:s statement:s prepare_time:t parameter_types:S from_sql:b generic_plans:o custom_plans:o",
        Some(prepared),
    ),
    Table("pg_timezone_names", "name:s abbrev:s utc_offset:v is_dst:b", Some(time_zones)),
];

const TABLE_COLUMNS: &str = "relid:o schemaname:s relname:s seq_scan:o seq_tup_read:o idx_scan:o idx_tup_fetch:o n_tup_ins:o \
     n_tup_upd:o n_tup_del:o n_tup_hot_upd:o n_live_tup:o n_dead_tup:o n_mod_since_analyze:o n_ins_since_vacuum:o last_vacuum:t \
     last_autovacuum:t last_analyze:t last_autoanalyze:t vacuum_count:o autovacuum_count:o analyze_count:o autoanalyze_count:o";

/// What summaries of columns tell. Tables without rows have none, as tables have with PostgreSQL that nobody has analyzed.
fn columns(facts: &Facts) -> Vec<Vec<Cell>> {
    let tables = facts.numbered().tables.iter().map(|(_, table)| table).filter(|table| table.view.is_none() && table.rows > 0);
    tables.flat_map(|table| of_table(facts, table)).collect()
}

fn of_table(facts: &Facts, table: &Listed) -> Vec<Vec<Cell>> {
    let known = facts.statistics(table);
    table.schema.fields().iter().zip(known).filter_map(|(field, known)| of_column(table, field, known)).collect()
}

/// None: nothing is known of its NULLs.
fn of_column(table: &Listed, field: &Field, known: ColumnStatistics) -> Option<Vec<Cell>> {
    let oid = pg_type(field);
    let length = TYPES.iter().find(|known| known.oid == oid).map_or(-1, |known| i64::from(known.length));
    // Of others, it is as much as the columns of the table have on average.
    let average = table.bytes / table.rows.max(1) / table.schema.fields().len().max(1) as u64;
    let width = if length > 0 { length } else { average.max(1) as i64 };
    let distinct = distinct(known.distinct, table.rows);
    Some(row![&table.domain, &table.name, field.name(), false, known.nulls?, width, distinct])
}

/// The number of different values; where they are many, the part of the rows that they are, below 0.
fn distinct(values: u64, rows: u64) -> f64 {
    /// From this part of the rows on, there are more of them with more rows.
    const GROWING: f64 = 0.1;
    let part = values as f64 / rows as f64;
    if part > GROWING { -part.min(1.0) } else { values as f64 }
}

fn tables(facts: &Facts) -> Vec<Vec<Cell>> {
    let of = |(oid, table): &(i64, Listed)| {
        let mut cells = row![*oid, &table.domain, &table.name];
        cells.extend(vec![NULL; 8]);
        cells.extend(row![table.rows as i64, 0]);
        cells
    };
    facts.numbered().tables.iter().filter(|(_, table)| table.view.is_none()).map(of).collect()
}

/// The connection that asks. Others are not told of.
fn activity(facts: &Facts) -> Vec<Vec<Cell>> {
    let application = facts.shown.show("application_name").unwrap_or_default();
    vec![row![DATABASE_OID, &facts.database, facts.process, CALLER, &facts.user, application, "active", "client backend"]]
}

fn cursors(facts: &Facts) -> Vec<Vec<Cell>> {
    let cursors = facts.shown.cursors().into_iter();
    cursors.map(|cursor| row![cursor.name, cursor.sql, cursor.is_held, cursor.is_binary, false]).collect()
}

fn prepared(facts: &Facts) -> Vec<Vec<Cell>> {
    let statements = facts.shown.prepared().into_iter();
    let types = |types: &[u32]| types.iter().map(|oid| formatted(*oid, -1)).collect::<Vec<String>>();
    statements.map(|known| row![known.name, known.sql, NULL, types(&known.types), known.by_sql]).collect()
}

fn time_zones(_: &Facts) -> Vec<Vec<Cell>> {
    let zones = zones::all().into_iter();
    zones.map(|zone| row![zone.name, zone.abbreviation, zone.offset_micros, zone.is_summer]).collect()
}

#[cfg(test)]
mod tests {
    use arrow::array::{Array, AsArray};
    use arrow::datatypes::Float64Type;

    use crate::facts::facts_of_tests;
    use crate::tables::table;

    #[test]
    fn columns_tell_what_their_summaries_do() {
        let found = table("pg_stats", &facts_of_tests()).unwrap();
        let floats = |name: &str| found.column_by_name(name).unwrap().as_primitive::<Float64Type>().values().to_vec();
        assert_eq!((floats("null_frac"), floats("n_distinct")), (vec![0.0, 0.25], vec![-1.0, 0.0]));
        let names = found.column_by_name("attname").unwrap();
        assert_eq!(names.as_string::<i32>().iter().flatten().collect::<Vec<_>>(), ["a", "b"]);
    }

    #[test]
    fn zones_have_the_offsets_of_now() {
        let found = table("pg_timezone_names", &facts_of_tests()).unwrap();
        let names = found.column_by_name("name").unwrap().as_string::<i32>();
        let at = names.iter().position(|name| name == Some("Asia/Kolkata")).unwrap();
        let offset = found.column_by_name("utc_offset").unwrap();
        let offset = offset.as_primitive::<arrow::datatypes::IntervalMonthDayNanoType>();
        assert!(names.len() > 400 && offset.value(at).nanoseconds == 19_800_000_000_000 && !found.column(3).is_empty());
    }
}
