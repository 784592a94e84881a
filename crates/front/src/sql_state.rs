//! Which SQLSTATE a fault has. Who is to blame says the class; the kind says which it is, and where the engine's words say more, they do.
//!
//! Words are looked at here and in `functions/src/fault_kind.rs`, and nowhere else. A test of the whole runs the statements that say them.

use pithead_model::{Blame, Fault, FaultKind};
use pithead_pg_catalog::NO_SETTING;

/// A code of the SQL standard, or of PostgreSQL, that drivers know.
pub(crate) type SqlState = &'static str;

pub(crate) const PROTOCOL_VIOLATION: SqlState = "08P01";
pub(crate) const TOO_LARGE: SqlState = "54000";
pub(crate) const NOT_SUPPORTED: SqlState = "0A000";
pub(crate) const WRONG_PASSWORD: SqlState = "28P01";
pub(crate) const NOT_AUTHORIZED: SqlState = "28000";
pub(crate) const TOO_MANY: SqlState = "53300";
pub(crate) const SHUTDOWN: SqlState = "57P01";
pub(crate) const FAILED_TRANSACTION: SqlState = "25P02";
pub(crate) const UNKNOWN_SETTING: SqlState = "42704";
pub(crate) const WRONG_SETTING: SqlState = "22023";
pub(crate) const FIXED_SETTING: SqlState = "55P02";
pub(crate) const UNKNOWN_STATEMENT: SqlState = "26000";
pub(crate) const UNKNOWN_PORTAL: SqlState = "34000";
pub(crate) const UNKNOWN_SAVEPOINT: SqlState = "3B001";
pub(crate) const UNKNOWN_SCHEMA: SqlState = "3F000";
pub(crate) const DEPENDED_ON: SqlState = "2BP01";
pub(crate) const KNOWN_STATEMENT: SqlState = "42P05";
pub(crate) const WRONG_TEXT: SqlState = "22P02";
pub(crate) const WRONG_BINARY: SqlState = "22P03";
pub(crate) const WRONG_COPY: SqlState = "22P04";
pub(crate) const SYNTAX: SqlState = "42601";
pub(crate) const READ_ONLY: SqlState = "25006";
pub(crate) const WRONG_ENCODING: SqlState = "22021";
/// What is wrong with a request in no way that has a code.
pub(crate) const UNKNOWN_REQUEST: SqlState = "42000";
const OUT_OF_RANGE: SqlState = "22003";
pub(crate) const WRONG_MOMENT: SqlState = "22007";
const MOMENT_OUT_OF_RANGE: SqlState = "22008";
const DISK_FULL: SqlState = "53100";

/// What faults of requests say whose kind tells less than a code does. The first that a fault's text has decides.
const WORDS: [(&str, SqlState); 109] = [
    // Values of functions.
    ("cannot take square root of a negative", "2201F"),
    ("zero raised to a negative power", "2201F"),
    ("cannot take logarithm of", "2201E"),
    ("regex parse error", "2201B"),
    ("Regular expression did not compile", "2201B"),
    ("a regular expression is too large", "2201B"),
    ("negative count not allowed", "22011"),
    ("negative substring length", "22011"),
    ("overlay start position", "22011"),
    ("NTILE requires a positive integer", "22014"),
    ("frame offsets for ROWS", "22013"),
    ("Invalid escape character in SIMILAR TO", "22025"),
    ("LIMIT must be >= 0", "2201W"),
    ("OFFSET must be >=0", "2201X"),
    ("null character not permitted", TOO_LARGE),
    ("invalid Unicode scalar value: -", WRONG_SETTING),
    ("invalid Unicode scalar value", TOO_LARGE),
    ("Unsupported date_trunc granularity", WRONG_SETTING),
    ("Date part '", WRONG_SETTING),
    ("Invalid timezone", WRONG_SETTING),
    ("there is no time zone", WRONG_SETTING),
    ("should satisfy `0 < precision", WRONG_SETTING),
    ("There is no built-in encoding", WRONG_SETTING),
    ("Failed to decode value using", WRONG_SETTING),
    ("field position must not be zero", WRONG_SETTING),
    ("step can't be 0", WRONG_SETTING),
    ("Step cannot be zero", WRONG_SETTING),
    ("factorial of a negative number", OUT_OF_RANGE),
    ("Percentile value must be between", OUT_OF_RANGE),
    ("Month value", MOMENT_OUT_OF_RANGE),
    ("Day value", MOMENT_OUT_OF_RANGE),
    ("Hour value", MOMENT_OUT_OF_RANGE),
    ("Minute value", MOMENT_OUT_OF_RANGE),
    ("Second value", MOMENT_OUT_OF_RANGE),
    ("Unable to represent", MOMENT_OUT_OF_RANGE),
    ("Unable to parse date from", MOMENT_OUT_OF_RANGE),
    ("make_timestamp: there is no", MOMENT_OUT_OF_RANGE),
    ("Date arithmetic overflow", MOMENT_OUT_OF_RANGE),
    ("an interval, which is of no day", WRONG_MOMENT),
    ("input syntax for type interval", WRONG_MOMENT),
    ("to TIME; expected a text", WRONG_MOMENT),
    ("Expected an integer value", WRONG_TEXT),
    ("Expected LIMIT to be an integer", WRONG_TEXT),
    ("Expected OFFSET to be an integer", WRONG_TEXT),
    ("Invalid HexStringLiteral", WRONG_TEXT),
    ("SingleQuotedByteStringLiteral", WRONG_TEXT),
    // Forms of statements.
    ("statement is nested too deeply", "54001"),
    ("returned more than one row", "21000"),
    ("several rows say what the same row", "21000"),
    ("the statement has the parameter", "42P02"),
    ("Invalid placeholder, zero", "42P02"),
    ("Order by column out of bounds", "42P10"),
    ("Order by index starts at 1", "42P10"),
    ("SELECT DISTINCT ON expressions must match", "42P10"),
    ("Cannot find column with position", "42P10"),
    ("For SELECT DISTINCT, ORDER BY expressions", "42P10"),
    ("names given as column alias", "42P10"),
    ("Inconsistent data length across values list", SYNTAX),
    ("The subquery should only return one column", SYNTAX),
    ("queries have different number of columns", SYNTAX),
    ("Unsupported compound identifier", SYNTAX),
    ("expected [domain.]dataset, got", SYNTAX),
    ("UPDATE sets column", SYNTAX),
    ("columns, and its query has", SYNTAX),
    ("to_char: the pattern", SYNTAX),
    ("cannot be larger than end bound", "42P20"),
    ("RANGE requires exactly one ORDER BY column", "42P20"),
    ("does not support logical expression WindowFunction", "42P20"),
    ("Aggregate functions are not allowed", "42803"),
    ("Aggregate function calls cannot be nested", "42803"),
    ("Aggregate function calls cannot contain window", "42803"),
    // Names.
    ("is a window function and needs OVER", "42809"),
    ("is of aggregates, and at", "42809"),
    ("Cannot access field at argument", "42809"),
    ("is a table, and no view", "42809"),
    ("is a view, and no dataset", "42809"),
    ("is a view, which holds no rows", "42809"),
    ("duplicate unqualified field name", "42701"),
    ("has a column ", "42701"),
    ("require unique expression names", "42701"),
    ("duplicate qualified field name", "42712"),
    ("WITH query name", "42712"),
    ("Invalid qualifier", "42P01"),
    ("Unsupported SQL type", "42704"),
    ("define it by WINDOW", "42704"),
    ("not found in struct", "42703"),
    ("there is no setting", UNKNOWN_SETTING),
    ("is not a variable which can be viewed", UNKNOWN_SETTING),
    (NO_SETTING, UNKNOWN_SETTING),
    ("more than one function is named", "42725"),
    ("does not exist, or is one of the engine's own", "42883"),
    ("must be a member of the role", "42501"),
    // Types.
    ("Cannot coerce arithmetic expression", "42883"),
    ("for logical boolean operation", "42804"),
    ("Cannot infer common argument type", "42883"),
    ("Cannot infer common string type", "42883"),
    ("Unary operator '-' only", "42883"),
    ("unnest() can only be applied to", "42883"),
    ("must be an INTEGER, TIMESTAMP, DATE or NULL", "42883"),
    ("Unsupported CAST from", "42846"),
    ("a number cannot be cast to TIME", "42846"),
    ("Incompatible inputs for Union", "42804"),
    ("Join condition must be boolean", "42804"),
    ("array_element does not take values", "42804"),
    ("common type to coerce", "42883"),
    ("non-boolean predicate", "42804"),
    ("requires a boolean expression", "42804"),
    ("no valid cast exists", "42804"),
    ("Cannot automatically convert", "42804"),
];

/// The code of a fault. `located`: the fault tells where in the statement it is.
pub(crate) fn sql_state(fault: &Fault, located: bool) -> SqlState {
    match fault.blame {
        Blame::User if located => SYNTAX,
        Blame::User => of_request(fault),
        Blame::Unsupported => of_words(&fault.message).unwrap_or(NOT_SUPPORTED),
        Blame::Limit => of_limit(fault),
        Blame::Device => "58030",
        Blame::Conflict => "40001",
        Blame::Access => "42501",
        Blame::Cancelled => "57014",
        Blame::Corrupt => "XX001",
        // Errors of other libraries come so where nothing says whose they are.
        Blame::Bug => of_words(&fault.message).filter(|code| *code == "2201B").unwrap_or("XX000"),
    }
}

fn of_request(fault: &Fault) -> SqlState {
    let by_words = || of_cast(&fault.message).or_else(|| of_words(&fault.message));
    match fault.kind {
        FaultKind::NoTable => "42P01",
        FaultKind::NoColumn => of_column(&fault.message),
        FaultKind::NoFunction => of_words(&fault.message).unwrap_or("42883"),
        FaultKind::AmbiguousColumn => "42702",
        FaultKind::NotGrouped => "42803",
        FaultKind::Exists => "42P07",
        FaultKind::WrongName => "42602",
        FaultKind::DivideByZero => "22012",
        FaultKind::NotNull => "23502",
        FaultKind::Syntax => of_words(&fault.message).unwrap_or(SYNTAX),
        FaultKind::WrongValue => by_words().unwrap_or(WRONG_TEXT),
        FaultKind::OutOfRange => by_words().unwrap_or(OUT_OF_RANGE),
        FaultKind::Timeout | FaultKind::Memory | FaultKind::Busy | FaultKind::Other => {
            let unsupported = || fault.message.contains("not supported").then_some(NOT_SUPPORTED);
            by_words().or_else(unsupported).unwrap_or(UNKNOWN_REQUEST)
        }
    }
}

fn of_limit(fault: &Fault) -> SqlState {
    const FULL: [&str; 3] = ["no space left", "No space left", "no room to spill"];
    match fault.kind {
        FaultKind::Timeout => "57014",
        FaultKind::Memory => "53200",
        FaultKind::Busy => "53000",
        _ if FULL.iter().any(|words| fault.message.contains(words)) => DISK_FULL,
        _ => TOO_LARGE,
    }
}

fn of_words(message: &str) -> Option<SqlState> {
    WORDS.iter().find(|(words, _)| message.contains(words)).map(|(_, code)| *code)
}

/// The code of a column that is not there: that of its table, where its name is qualified by none that there is.
fn of_column(message: &str) -> SqlState {
    fn table(column: &str) -> Option<&str> {
        let (table, _) = column.trim_end_matches('.').rsplit_once('.')?;
        table.rsplit('.').next()
    }
    let column = message.split_once("No field named ").and_then(|(_, rest)| rest.split_whitespace().next());
    let Some(wanted) = column.and_then(table) else { return "42703" };
    let known = message.split_once("Valid fields are ").map_or("", |(_, fields)| fields);
    if known.split(", ").any(|field| table(field) == Some(wanted)) { "42703" } else { "42P01" }
}

/// The code of a value that a cast does not take, where its type and its text say more than that.
fn of_cast(message: &str) -> Option<SqlState> {
    if let Some((_, rest)) = message.split_once("Cannot cast string '") {
        let (text, rest) = rest.rsplit_once("' to value of ")?;
        return of_text(text, rest);
    }
    if let Some((_, rest)) = message.split_once("Error parsing timestamp from '") {
        let text = rest.split_once('\'').map_or(rest, |(text, _)| text);
        return of_text(text, "Timestamp");
    }
    // A number, or a moment, of another type.
    let (_, rest) = message.split_once("an't cast value ")?;
    let (_, to) = rest.rsplit_once("to type ")?;
    Some(if is_of_moments(to) { MOMENT_OUT_OF_RANGE } else { OUT_OF_RANGE })
}

fn is_of_moments(data_type: &str) -> bool {
    ["Date", "Time", "Interval", "Duration"].iter().any(|name| data_type.starts_with(name))
}

/// The code of a text that is none of a type's: it has the form of a value that the type does not reach, or it has not.
fn of_text(text: &str, data_type: &str) -> Option<SqlState> {
    let text = text.trim();
    if is_of_moments(data_type) {
        let is_time = data_type.starts_with("Time64") || data_type.starts_with("Time32");
        let has_form = if is_time { has_form(text, 2, ':') } else { has_form(text, 3, '-') };
        return Some(if has_form { MOMENT_OUT_OF_RANGE } else { WRONG_MOMENT });
    }
    let is_whole = is_digits(text.strip_prefix(['-', '+']).unwrap_or(text));
    let is_decimal = data_type.starts_with("Decimal") && text.parse::<f64>().is_ok_and(f64::is_finite);
    let is_int = data_type.starts_with("Int") || data_type.starts_with("UInt");
    (is_int && is_whole || is_decimal).then_some(OUT_OF_RANGE)
}

/// Whether a text begins with so many numbers that a sign stands between, as a date or a time does.
fn has_form(text: &str, count: usize, sign: char) -> bool {
    let parts: Vec<&str> = text.splitn(count, sign).collect();
    let Some((last, before)) = parts.split_last() else { return false };
    before.len() + 1 == count
        && before.iter().all(|part| is_digits(part))
        && last.starts_with(|first: char| first.is_ascii_digit())
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(blame: Blame, kind: FaultKind, message: &str) -> SqlState {
        sql_state(&Fault::new(blame, message).of_kind(kind), false)
    }

    #[test]
    fn codes_are_those_that_drivers_know() {
        let code = |blame, kind| code(blame, kind, "it is so");
        assert_eq!(code(Blame::User, FaultKind::NoTable), "42P01");
        assert_eq!(code(Blame::User, FaultKind::DivideByZero), "22012");
        assert_eq!(code(Blame::User, FaultKind::Other), "42000");
        assert_eq!(code(Blame::Limit, FaultKind::Timeout), "57014");
        assert_eq!(code(Blame::Limit, FaultKind::Other), TOO_LARGE);
        assert_eq!(code(Blame::Access, FaultKind::NoTable), "42501");
        assert_eq!(code(Blame::Conflict, FaultKind::Exists), "40001");
        assert_eq!(code(Blame::Bug, FaultKind::Other), "XX000");
    }

    #[test]
    fn words_say_what_kinds_do_not() {
        let no_setting = "current_setting: unrecognized configuration parameter \"nothing\"";
        assert_eq!(code(Blame::User, FaultKind::Other, no_setting), UNKNOWN_SETTING);
        assert_eq!(code(Blame::Limit, FaultKind::Other, "no space left on the medium at /d (8 bytes needed)"), DISK_FULL);
        assert_eq!(code(Blame::Bug, FaultKind::Other, "External error: regex parse error: ("), "2201B");
        assert_eq!(code(Blame::Bug, FaultKind::Other, "LIMIT must be >= 0"), "XX000");
        assert_eq!(code(Blame::Unsupported, FaultKind::Other, "Unsupported SQL type nothing"), "42704");
        assert_eq!(code(Blame::User, FaultKind::Other, "Insert-on clause not supported"), NOT_SUPPORTED);
        assert_eq!(code(Blame::User, FaultKind::Syntax, "statement is nested too deeply"), "54001");
        let no_column = |message: &str| code(Blame::User, FaultKind::NoColumn, message);
        assert_eq!(no_column("No field named nothing. Valid fields are t.id, t.name"), "42703");
        assert_eq!(no_column("No field named main.t.nothing.\nValid fields are t.id, t.name."), "42703");
        assert_eq!(no_column("No field named x.id. Did you mean 't.id'?\nValid fields are t.id, tx.name."), "42P01");
        assert_eq!(no_column("No field named x.id."), "42P01");
        // What is called so has a kind of its own.
        assert_eq!(code(Blame::User, FaultKind::NoTable, "no dataset main.boolean"), "42P01");
    }

    #[test]
    fn texts_are_of_no_value_or_of_one_out_of_range() {
        let cast = |text: &str, data_type: &str| {
            let message = format!("drive d: Arrow error: Cast error: Cannot cast string '{text}' to value of {data_type} type");
            code(Blame::User, FaultKind::WrongValue, &message)
        };
        for (text, data_type, expected) in [
            ("abc", "Int32", WRONG_TEXT),
            ("", "Int32", WRONG_TEXT),
            ("1.5", "Int64", WRONG_TEXT),
            ("-99999999999", "Int32", OUT_OF_RANGE),
            ("it's", "Float64", WRONG_TEXT),
            ("1e60", "Decimal128(38, 10)", OUT_OF_RANGE),
            ("maybe", "Boolean", WRONG_TEXT),
            ("abc", "Date32", WRONG_MOMENT),
            ("2024-1", "Date32", WRONG_MOMENT),
            ("2024-13-45", "Date32", MOMENT_OUT_OF_RANGE),
            ("2024-02-30 10:00", "Timestamp(µs)", MOMENT_OUT_OF_RANGE),
            ("12:00", "Timestamp(µs)", WRONG_MOMENT),
            ("25:61:00", "Time64(ns)", MOMENT_OUT_OF_RANGE),
            ("noon", "Time64(ns)", WRONG_MOMENT),
        ] {
            assert_eq!(cast(text, data_type), expected, "{text} {data_type}");
        }
        let said = |message: &str| code(Blame::User, FaultKind::WrongValue, message);
        assert_eq!(said("Arrow error: Cast error: Can't cast value 100000 to type Int16"), OUT_OF_RANGE);
        assert_eq!(said("Error parsing timestamp from '2024-13-45 00:00:00': error parsing date"), MOMENT_OUT_OF_RANGE);
        assert_eq!(said("Error parsing timestamp from 'x': timestamp must contain at least 10 characters"), WRONG_MOMENT);
    }
}
