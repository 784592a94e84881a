//! Completion at the prompt: datasets, their columns, words of SQL, commands, and files.

use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use reedline::{Completer, CompletionResult, Span, Suggestion};

use crate::script::COMMANDS;

/// The most suggestions: more than a person reads through.
const SUGGESTIONS_MAX: usize = 200;

/// Words that statements are made of.
const WORDS: &[&str] = &[
    "ADD COLUMN",
    "ALL",
    "ALTER TABLE",
    "ANALYZE",
    "AND",
    "AS",
    "ASC",
    "AVG(",
    "BETWEEN",
    "BY",
    "CASE",
    "CAST(",
    "COALESCE(",
    "COUNT(",
    "CREATE",
    "CROSS",
    "DATE",
    "DELETE",
    "DESC",
    "DESCRIBE",
    "DISTINCT",
    "DROP",
    "ELSE",
    "END",
    "EXCEPT",
    "EXISTS",
    "EXPLAIN",
    "EXTRACT(",
    "FALSE",
    "FIRST",
    "FROM",
    "FULL",
    "GROUP",
    "HAVING",
    "IN",
    "INNER",
    "INSERT",
    "INTERSECT",
    "INTERVAL",
    "INTO",
    "IS",
    "JOIN",
    "LAST",
    "LEFT",
    "LIKE",
    "LIMIT",
    "MATCHED",
    "MAX(",
    "MERGE INTO",
    "MIN(",
    "NOT",
    "NULL",
    "NULLS",
    "OFFSET",
    "ON",
    "OR",
    "ORDER",
    "OUTER",
    "OVER",
    "PARTITION",
    "RIGHT",
    "ROLLUP",
    "SELECT",
    "SET",
    "SHOW",
    "SUBSTRING(",
    "SUM(",
    "TABLE",
    "TABLES",
    "THEN",
    "TIMESTAMP",
    "TRUE",
    "TRUNCATE",
    "UNION",
    "UPDATE",
    "USING",
    "VALUES",
    "VIEW",
    "WHEN",
    "WHERE",
    "WITH",
];

/// What can be named: each dataset with its columns.
pub(super) type Names = Arc<Mutex<Vec<(String, Vec<String>)>>>;

/// Completes the word before the cursor.
pub(super) struct Completing {
    pub(super) names: Names,
}

impl Completer for Completing {
    fn complete(&mut self, line: &str, pos: usize) -> CompletionResult {
        let before = line.get(..pos).unwrap_or("");
        let (start, found) = suggestions(before, line, &self.names.lock());
        let suggestion = |value: String| Suggestion {
            // What goes on is no whole word.
            append_whitespace: !value.ends_with(['(', '.', '/']),
            value,
            span: Span::new(start, pos),
            ..Suggestion::default()
        };
        CompletionResult::fresh(found.into_iter().take(SUGGESTIONS_MAX).map(suggestion).collect::<Vec<_>>())
    }
}

/// Where the word begins that ends `before`, and what it may become.
fn suggestions(before: &str, line: &str, names: &[(String, Vec<String>)]) -> (usize, Vec<String>) {
    if let Some(command) = before.trim_start().strip_prefix('\\') {
        return match command.split_once(char::is_whitespace) {
            None => (before.len() - command.len(), of(COMMANDS.iter().map(|(name, _)| (*name).to_owned()), command)),
            Some(("i" | "o", path)) => files(before, path.trim_start()),
            Some((_, word)) => {
                let word = word.trim_start();
                (before.len() - word.len(), of(names.iter().map(|(name, _)| name.clone()), word))
            }
        };
    }
    let start = before
        .rfind(|c: char| !(c.is_alphanumeric() || "_.\"".contains(c)))
        .map_or(0, |at| at + before[at..].chars().next().map_or(0, char::len_utf8));
    let word = &before[start..];
    if word.is_empty() {
        return (start, vec![]);
    }
    let tables = || names.iter().map(|(name, _)| name.clone());
    let columns = || {
        let named = names.iter().filter(|(name, _)| line.contains(name.as_str()));
        named.flat_map(|(_, columns)| columns.iter().map(|column| quoted(column)))
    };
    let mut found = of(columns().chain(tables()), word);
    found.extend(of(WORDS.iter().map(|known| cased(known, word)), word));
    (start, found)
}

/// Those that begin as `word` does, in order and once each.
fn of(known: impl Iterator<Item = String>, word: &str) -> Vec<String> {
    let begins = |known: &String| known.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word));
    let mut found: Vec<String> = known.filter(begins).collect();
    found.sort();
    found.dedup();
    found
}

/// In small letters where the person writes so.
fn cased(known: &str, word: &str) -> String {
    if word.starts_with(|c: char| c.is_lowercase()) { known.to_ascii_lowercase() } else { known.to_owned() }
}

/// A name as SQL takes it.
fn quoted(name: &str) -> String {
    let is_plain = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    if is_plain { name.to_owned() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}

/// The files that `path` may become.
fn files(before: &str, path: &str) -> (usize, Vec<String>) {
    let (folder, start) = path.rsplit_once('/').map_or(("", path), |(folder, start)| (&path[..=folder.len()], start));
    let entries = std::fs::read_dir(if folder.is_empty() { Path::new(".") } else { Path::new(folder) });
    let names = entries.into_iter().flatten().flatten().filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        // Files that are hidden are meant only where their dot is written.
        let is_shown = start.starts_with('.') || !name.starts_with('.');
        let end = if entry.path().is_dir() { "/" } else { "" };
        is_shown.then(|| format!("{folder}{name}{end}"))
    });
    let mut found: Vec<String> = names.filter(|name| name.starts_with(path)).collect();
    found.sort();
    (before.len() - path.len(), found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Vec<(String, Vec<String>)> {
        let columns = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        vec![("trips".into(), columns(&["city", "Fare", "fares"])), ("lab.cells".into(), columns(&["cell_type"]))]
    }

    fn found(line: &str) -> Vec<String> {
        let at = line.find('|').unwrap();
        let whole = line.replacen('|', "", 1);
        suggestions(&line[..at], &whole, &names()).1
    }

    #[test]
    fn words_names_and_columns_of_what_is_named() {
        assert_eq!(found("SEL|"), ["SELECT"]);
        assert_eq!(found("select c|"), ["case", "cast(", "coalesce(", "count(", "create", "cross"]);
        assert_eq!(found("select ci| from trips"), ["city"]);
        assert_eq!(found("select \"F| from trips"), ["\"Fare\""]);
        assert_eq!(found("select * from tr|"), ["trips", "true", "truncate"]);
        assert_eq!(found("select * from lab.|"), ["lab.cells"]);
        assert_eq!(found("select |"), [""; 0]);
        assert_eq!(found("select 'é'=c|").len(), 6);
    }

    #[test]
    fn commands_and_what_they_take() {
        assert_eq!(found("\\ti|"), ["timing"]);
        assert_eq!(found("\\d tr|"), ["trips"]);
        let folder = tempfile::tempdir().unwrap();
        for name in ["report.sql", "rest.txt", ".hidden"] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        std::fs::create_dir(folder.path().join("reports")).unwrap();
        let at = |name: &str| format!("{}/{name}", folder.path().display());
        assert_eq!(found(&format!("\\i {}|", at("rep"))), [at("report.sql"), at("reports/")]);
        assert_eq!(found(&format!("\\o {}|", at("."))), [at(".hidden")]);
    }

    #[test]
    fn the_span_is_the_word() {
        assert_eq!(suggestions("select a+ci", "select a+ci", &names()).0, "select a+".len());
        assert_eq!(suggestions("\\d tr", "\\d tr", &names()).0, "\\d ".len());
    }
}
