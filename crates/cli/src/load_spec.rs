//! What `pithead load` is told in words of its own: partitioning, order, metadata, delimiters.

use std::str::FromStr;

use pithead_host::PartitionBy;
use pithead_model::SortKey;

/// `hash:a,b`, `range:a`, `round-robin`.
pub(crate) fn parse_partitioning(text: &str) -> Result<PartitionBy, String> {
    let (how, columns) = text.split_once(':').unwrap_or((text, ""));
    let columns = names(columns);
    match (how, columns.as_slice()) {
        ("round-robin", []) => Ok(PartitionBy::RoundRobin),
        ("hash", [_, ..]) => Ok(PartitionBy::Hash(columns)),
        ("range", [column]) => Ok(PartitionBy::Range(column.clone())),
        ("range", [_, _, ..]) => Err("range takes one column".to_owned()),
        _ => Err("expected hash:COLUMN[,COLUMN], range:COLUMN or round-robin".to_owned()),
    }
}

/// The columns of an order: `a,b desc`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SortBy(pub(crate) Vec<SortKey>);

impl FromStr for SortBy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let keys = names(text).iter().map(|key| parse_sort_key(key)).collect::<Result<Vec<_>, _>>()?;
        match keys.is_empty() {
            true => Err("expected COLUMN[ desc][,COLUMN[ desc]]".to_owned()),
            false => Ok(Self(keys)),
        }
    }
}

/// A column's name may have blanks; only a last word `asc` or `desc` is a direction.
fn parse_sort_key(key: &str) -> Result<SortKey, String> {
    let (column, descending) = match key.rsplit_once(char::is_whitespace) {
        Some((column, word)) if word.eq_ignore_ascii_case("desc") => (column.trim_end(), true),
        Some((column, word)) if word.eq_ignore_ascii_case("asc") => (column.trim_end(), false),
        _ => (key, false),
    };
    Ok(SortKey { column: column.to_owned(), descending })
}

/// `key=value`.
pub(crate) fn parse_metadata(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("expected KEY=VALUE".to_owned()),
    }
}

/// One ASCII character, or `\t`, or `tab`.
pub(crate) fn parse_delimiter(text: &str) -> Result<u8, String> {
    match text {
        "\\t" | "tab" => Ok(b'\t'),
        _ => match text.as_bytes() {
            [byte] if byte.is_ascii() && !matches!(byte, b'"' | b'\n' | b'\r') => Ok(*byte),
            _ => Err("expected one ASCII character, or tab".to_owned()),
        },
    }
}

fn names(text: &str) -> Vec<String> {
    text.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitionings_read_as_written() {
        assert!(matches!(parse_partitioning("round-robin"), Ok(PartitionBy::RoundRobin)));
        assert!(matches!(parse_partitioning("hash:a, b"), Ok(PartitionBy::Hash(columns)) if columns == ["a", "b"]));
        assert!(matches!(parse_partitioning("range:day"), Ok(PartitionBy::Range(column)) if column == "day"));
        for wrong in ["hash", "hash:", "hash:,", "range:a,b", "round-robin:a", "modulo:a", ""] {
            assert!(parse_partitioning(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn orders_read_as_written() {
        let SortBy(keys) = "day, fare DESC,tip asc,gross weight".parse().unwrap();
        let read: Vec<(&str, bool)> = keys.iter().map(|key| (key.column.as_str(), key.descending)).collect();
        assert_eq!(read, [("day", false), ("fare", true), ("tip", false), ("gross weight", false)]);
        assert!("".parse::<SortBy>().is_err());
    }

    #[test]
    fn metadata_and_delimiters_read_as_written() {
        assert_eq!(parse_metadata("source=a=b"), Ok(("source".into(), "a=b".into())));
        assert!(parse_metadata("=x").is_err() && parse_metadata("x").is_err());
        assert_eq!([parse_delimiter("|"), parse_delimiter("\\t"), parse_delimiter("tab")], [Ok(b'|'), Ok(b'\t'), Ok(b'\t')]);
        assert!(parse_delimiter("||").is_err() && parse_delimiter("\"").is_err() && parse_delimiter("é").is_err());
    }
}
