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

/// How many statements of a block may write: `one`, or `many`, each of which is committed when it ends.
pub const BLOCK_WRITES: &str = "pithead.block_writes";

/// All of them. What has other values in PostgreSQL and only one here is refused where another one is asked for, so that nobody takes
/// one for the other.
pub const SETTINGS: &[Setting] = &[
    told(any("application_name", "")),
    only("backslash_quote", "safe_encoding", &["safe_encoding", "on", "off"]),
    only("bytea_output", "hex", &["hex"]),
    any("check_function_bodies", "on"),
    told(only("client_encoding", "UTF8", &["utf8", "utf-8", "unicode", "sql_ascii"])),
    any("client_min_messages", "notice"),
    told(only("DateStyle", "ISO, MDY", &["iso", "iso, mdy", "iso, dmy", "iso, ymd", "iso,mdy", "iso,dmy", "iso,ymd"])),
    any("default_statistics_target", "100"),
    any("default_table_access_method", "heap"),
    any("default_tablespace", ""),
    any("default_transaction_deferrable", "off"),
    any("default_transaction_isolation", "read committed"),
    any("default_transaction_read_only", "off"),
    any("extra_float_digits", "1"),
    any("geqo", "on"),
    any("idle_in_transaction_session_timeout", "0"),
    any("idle_session_timeout", "0"),
    told(fixed("in_hot_standby", "off")),
    told(fixed("integer_datetimes", "on")),
    told(only("IntervalStyle", "postgres", &["postgres"])),
    told(fixed("is_superuser", "off")),
    any("jit", "off"),
    fixed("lc_collate", "C.UTF-8"),
    fixed("lc_ctype", "C.UTF-8"),
    any("lc_messages", "C.UTF-8"),
    any("lc_monetary", "C.UTF-8"),
    any("lc_numeric", "C.UTF-8"),
    any("lc_time", "C.UTF-8"),
    any("lock_timeout", "0"),
    any("log_statement", "none"),
    any("maintenance_work_mem", "64MB"),
    fixed("max_connections", "1024"),
    fixed("max_identifier_length", "255"),
    fixed("max_index_keys", "32"),
    only(BLOCK_WRITES, "one", &["one", "many"]),
    any("quote_all_identifiers", "off"),
    any("row_security", "on"),
    fixed("server_encoding", "UTF8"),
    fixed("server_version", crate::SERVER_VERSION),
    fixed("server_version_num", "150000"),
    only("standard_conforming_strings", "on", &["on"]),
    any("synchronize_seqscans", "on"),
    any("synchronous_commit", "on"),
    fixed("transaction_isolation", "read committed"),
    fixed("transaction_read_only", "off"),
    fixed("wal_level", "minimal"),
    any("work_mem", "4MB"),
    any("xmloption", "content"),
];

/// The setting of this name, however it is written.
pub fn setting(name: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|known| known.name.eq_ignore_ascii_case(name))
}
