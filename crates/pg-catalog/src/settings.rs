//! The settings that PostgreSQL's clients set and ask for, and what is made of them here.

/// A setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Its name as PostgreSQL shows it.
    pub name: &'static str,
    /// Its value unless it is set.
    pub default: &'static str,
    /// The only values, in small letters; empty: any.
    pub values: &'static [&'static str],
    /// Whether clients may set it.
    pub is_fixed: bool,
    /// Whether clients are told of its value, and of each change.
    pub is_told: bool,
}

const fn any(name: &'static str, default: &'static str) -> Setting {
    Setting { name, default, values: &[], is_fixed: false, is_told: false }
}

const fn only(name: &'static str, default: &'static str, values: &'static [&'static str]) -> Setting {
    Setting { name, default, values, is_fixed: false, is_told: false }
}

const fn fixed(name: &'static str, default: &'static str) -> Setting {
    Setting { name, default, values: &[], is_fixed: true, is_told: false }
}

const fn told(setting: Setting) -> Setting {
    Setting { is_told: true, ..setting }
}

/// The isolations that transactions may ask for.
pub const ISOLATIONS: &[&str] = &["read committed", "read uncommitted", "repeatable read", "serializable"];
const SWITCH: &[&str] = &["on", "off", "true", "false", "yes", "no", "1", "0"];

/// One that is on or off, and changes no answer.
const fn switch(name: &'static str, default: &'static str) -> Setting {
    only(name, default, SWITCH)
}

/// How many statements of a block may write: `one`, or `many`, each of which is committed when it ends.
pub const BLOCK_WRITES: &str = "pithead.block_writes";

/// All of them. What has other values in PostgreSQL and only one here is refused where another one is asked for, so that nobody takes
/// one for the other.
pub const SETTINGS: &[Setting] = &[
    told(any("application_name", "")),
    switch("array_nulls", "on"),
    fixed("autovacuum", "off"),
    only("backslash_quote", "safe_encoding", &["safe_encoding", "on", "off"]),
    fixed("block_size", "8192"),
    only("bytea_output", "hex", &["hex"]),
    any("check_function_bodies", "on"),
    told(only("client_encoding", "UTF8", &["utf8", "utf-8", "unicode", "sql_ascii"])),
    any("client_min_messages", "notice"),
    any("constraint_exclusion", "partition"),
    any("cpu_index_tuple_cost", "0.005"),
    any("cpu_operator_cost", "0.0025"),
    any("cpu_tuple_cost", "0.01"),
    any("cursor_tuple_fraction", "0.1"),
    told(only("DateStyle", "ISO, MDY", &["iso", "iso, mdy", "iso, dmy", "iso, ymd", "iso,mdy", "iso,dmy", "iso,ymd"])),
    any("deadlock_timeout", "1s"),
    any("default_statistics_target", "100"),
    any("default_table_access_method", "heap"),
    any("default_tablespace", ""),
    any("default_transaction_deferrable", "off"),
    only("default_transaction_isolation", "read committed", ISOLATIONS),
    switch("default_transaction_read_only", "off"),
    any("effective_cache_size", "4GB"),
    any("effective_io_concurrency", "1"),
    switch("enable_async_append", "on"),
    switch("enable_bitmapscan", "on"),
    switch("enable_gathermerge", "on"),
    switch("enable_hashagg", "on"),
    switch("enable_hashjoin", "on"),
    switch("enable_incremental_sort", "on"),
    switch("enable_indexonlyscan", "on"),
    switch("enable_indexscan", "on"),
    switch("enable_material", "on"),
    switch("enable_memoize", "on"),
    switch("enable_mergejoin", "on"),
    switch("enable_nestloop", "on"),
    switch("enable_parallel_append", "on"),
    switch("enable_parallel_hash", "on"),
    switch("enable_partition_pruning", "on"),
    switch("enable_partitionwise_aggregate", "off"),
    switch("enable_partitionwise_join", "off"),
    switch("enable_seqscan", "on"),
    switch("enable_sort", "on"),
    switch("enable_tidscan", "on"),
    switch("escape_string_warning", "on"),
    any("extra_float_digits", "1"),
    any("force_parallel_mode", "off"),
    any("from_collapse_limit", "8"),
    any("geqo", "on"),
    any("geqo_threshold", "12"),
    any("hash_mem_multiplier", "1.0"),
    any("idle_in_transaction_session_timeout", "0"),
    any("idle_session_timeout", "0"),
    told(fixed("in_hot_standby", "off")),
    told(fixed("integer_datetimes", "on")),
    told(only("IntervalStyle", "postgres", &["postgres"])),
    told(fixed("is_superuser", "off")),
    any("jit", "off"),
    any("jit_above_cost", "100000"),
    any("join_collapse_limit", "8"),
    fixed("lc_collate", "C.UTF-8"),
    fixed("lc_ctype", "C.UTF-8"),
    any("lc_messages", "C.UTF-8"),
    any("lc_monetary", "C.UTF-8"),
    any("lc_numeric", "C.UTF-8"),
    any("lc_time", "C.UTF-8"),
    any("lock_timeout", "0"),
    any("log_duration", "off"),
    any("log_min_duration_statement", "-1"),
    any("log_min_messages", "warning"),
    any("log_statement", "none"),
    any("maintenance_work_mem", "64MB"),
    fixed("max_connections", "1024"),
    fixed("max_identifier_length", "255"),
    fixed("max_index_keys", "32"),
    any("max_parallel_maintenance_workers", "2"),
    any("max_parallel_workers", "8"),
    any("max_parallel_workers_per_gather", "2"),
    fixed("max_prepared_transactions", "0"),
    any("min_parallel_index_scan_size", "512kB"),
    any("min_parallel_table_scan_size", "8MB"),
    switch("parallel_leader_participation", "on"),
    any("parallel_setup_cost", "1000"),
    any("parallel_tuple_cost", "0.1"),
    only(BLOCK_WRITES, "one", &["one", "many"]),
    fixed("password_encryption", "scram-sha-256"),
    only("plan_cache_mode", "auto", &["auto", "force_custom_plan", "force_generic_plan"]),
    any("quote_all_identifiers", "off"),
    any("random_page_cost", "4"),
    any("row_security", "on"),
    any("seq_page_cost", "1"),
    fixed("server_encoding", "UTF8"),
    fixed("server_version", crate::SERVER_VERSION),
    fixed("server_version_num", "150000"),
    only("session_replication_role", "origin", &["origin"]),
    only("standard_conforming_strings", "on", &["on"]),
    any("synchronize_seqscans", "on"),
    any("synchronous_commit", "on"),
    any("tcp_keepalives_count", "0"),
    any("tcp_keepalives_idle", "0"),
    any("tcp_keepalives_interval", "0"),
    any("temp_buffers", "8MB"),
    any("temp_tablespaces", ""),
    any("track_activities", "on"),
    any("track_io_timing", "off"),
    switch("transaction_deferrable", "off"),
    only("transaction_isolation", "read committed", ISOLATIONS),
    switch("transaction_read_only", "off"),
    only("transform_null_equals", "off", &["off", "false", "no", "0"]),
    fixed("wal_level", "minimal"),
    any("work_mem", "4MB"),
    any("xmloption", "content"),
];

/// The setting of this name, however it is written.
pub fn setting(name: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|known| known.name.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_there_once_and_defaults_are_allowed() {
        let mut names: Vec<String> = SETTINGS.iter().map(|known| known.name.to_lowercase()).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), SETTINGS.len());
        for known in SETTINGS {
            assert!(known.values.is_empty() || known.values.contains(&known.default.to_lowercase().as_str()), "{}", known.name);
        }
    }
}
