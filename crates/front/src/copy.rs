//! [`Copy`]: a COPY statement, read.

use crate::error::Complaint;
use crate::lexer::{Token, TokenKind, tokens};
use crate::sql_state::{NOT_SUPPORTED, SYNTAX, WRONG_SETTING};

/// What COPY reads or writes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Query(String),
    /// A table as it is written, and its columns; none: all.
    Table {
        name: String,
        columns: Vec<String>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CopyFormat {
    Text,
    Csv,
    Binary,
}

/// A COPY statement.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Copy {
    /// FROM STDIN; else TO STDOUT.
    pub(crate) is_in: bool,
    pub(crate) source: Source,
    pub(crate) options: CopyOptions,
}

/// How its bytes are to be read or written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CopyOptions {
    pub(crate) format: CopyFormat,
    pub(crate) header: bool,
    /// Whether the header has to have the names of the columns.
    pub(crate) header_match: bool,
    pub(crate) delimiter: u8,
    pub(crate) null: String,
    pub(crate) quote: u8,
    pub(crate) escape: u8,
}

impl Copy {
    /// Reads a statement whose first word is COPY.
    pub(crate) fn read(sql: &str) -> Result<Copy, Complaint> {
        let all: Vec<Token> = tokens(sql).filter(|token| !token.is_sign(';')).collect();
        let mut rest = &all[1.min(all.len())..];
        let source = match rest {
            [first, ..] if first.is_sign('(') => {
                let end = closing(rest).ok_or_else(|| wrong("a parenthesis is not closed"))?;
                let query = sql[first.end..rest[end].start].trim().to_owned();
                rest = &rest[end + 1..];
                Source::Query(query)
            }
            [first, ..] => {
                let last = rest.iter().position(|token| token.is("to") || token.is("from") || token.is_sign('('));
                let last = last
                    .filter(|last| *last > 0)
                    .ok_or_else(|| wrong("expected COPY table FROM STDIN, or COPY (query) TO STDOUT"))?;
                let name = sql[first.start..rest[last - 1].end].to_owned();
                rest = &rest[last..];
                Source::Table { name, columns: columns(&mut rest)? }
            }
            [] => return Err(wrong("expected COPY table FROM STDIN, or COPY (query) TO STDOUT")),
        };
        let (direction, end) = (rest.first(), rest.get(1));
        let is_in = match (direction, end) {
            (Some(from), Some(stdin)) if from.is("from") && stdin.is("stdin") => true,
            (Some(to), Some(stdout)) if to.is("to") && stdout.is("stdout") => false,
            _ => {
                return Err(Complaint::error(
                    NOT_SUPPORTED,
                    "COPY reads from STDIN and writes to STDOUT; files are not the server's to open",
                )
                .hint("psql's \\copy does that with files of the client"));
            }
        };
        if is_in && matches!(source, Source::Query(_)) {
            return Err(wrong("COPY reads into a table"));
        }
        let options = CopyOptions::read(&rest[2..])?;
        Ok(Copy { is_in, source, options })
    }

    /// What COPY TO asks for.
    pub(crate) fn query(&self) -> String {
        match &self.source {
            Source::Query(sql) => sql.clone(),
            Source::Table { name, columns } if columns.is_empty() => format!("SELECT * FROM {name}"),
            Source::Table { name, columns } => {
                let quoted: Vec<String> = columns.iter().map(|column| format!("\"{}\"", column.replace('"', "\"\""))).collect();
                format!("SELECT {} FROM {name}", quoted.join(", "))
            }
        }
    }
}

/// Where the parenthesis that comes first is closed.
fn closing(tokens: &[Token]) -> Option<usize> {
    let mut depth = 0_usize;
    for (place, token) in tokens.iter().enumerate() {
        if token.is_sign('(') {
            depth += 1;
        } else if token.is_sign(')') {
            depth = depth.checked_sub(1)?;
            if depth == 0 {
                return Some(place);
            }
        }
    }
    None
}

/// `(a, b)`, where it is there.
fn columns(rest: &mut &[Token]) -> Result<Vec<String>, Complaint> {
    if !rest.first().is_some_and(|token| token.is_sign('(')) {
        return Ok(Vec::new());
    }
    let end = closing(rest).ok_or_else(|| wrong("a parenthesis is not closed"))?;
    let names = rest[1..end].iter().filter(|token| !token.is_sign(',')).map(Token::text).collect();
    *rest = &rest[end + 1..];
    Ok(names)
}

impl CopyOptions {
    /// `WITH (FORMAT csv, HEADER)`, or the words of older versions: `CSV HEADER`.
    fn read(rest: &[Token]) -> Result<CopyOptions, Complaint> {
        let words: Vec<&Token> =
            rest.iter().filter(|token| !token.is_sign('(') && !token.is_sign(')') && !token.is_sign(',')).collect();
        let mut header_match = false;
        let (mut format, mut header, mut delimiter, mut null, mut quote, mut escape) =
            (CopyFormat::Text, false, None, None, None, None);
        let mut words = words.into_iter().peekable();
        while let Some(word) = words.next() {
            match word.text().as_str() {
                "with" | "as" => {}
                "format" => format = format_of(&value(&mut words, "FORMAT")?)?,
                "csv" => format = CopyFormat::Csv,
                "binary" => format = CopyFormat::Binary,
                "header" => {
                    let given = words
                        .next_if(|token| ["true", "false", "on", "off", "1", "0", "match"].contains(&token.text().as_str()));
                    header_match = given.is_some_and(|token| token.is("match"));
                    header = given.is_none_or(|token| !["false", "off", "0"].contains(&token.text().as_str()));
                }
                "delimiter" | "delimiters" => delimiter = Some(byte(&value(&mut words, "DELIMITER")?, "DELIMITER")?),
                "null" => null = Some(value(&mut words, "NULL")?),
                "quote" => quote = Some(byte(&value(&mut words, "QUOTE")?, "QUOTE")?),
                "escape" => escape = Some(byte(&value(&mut words, "ESCAPE")?, "ESCAPE")?),
                "encoding" => match value(&mut words, "ENCODING")?.to_lowercase().replace('-', "").as_str() {
                    "utf8" => {}
                    other => return Err(Complaint::error(NOT_SUPPORTED, format!("COPY in {other}; UTF8 is supported"))),
                },
                "freeze" => {
                    let _ = words.next_if(|token| token.is("true") || token.is("false"));
                }
                other => return Err(Complaint::error(NOT_SUPPORTED, format!("the option {other:?} of COPY"))),
            }
        }
        let is_csv = format == CopyFormat::Csv;
        let given = [("QUOTE", quote.is_some()), ("ESCAPE", escape.is_some())];
        if let Some((name, _)) = given.into_iter().find(|(_, is_given)| *is_given && !is_csv) {
            return Err(Complaint::error(NOT_SUPPORTED, format!("COPY {name} is for the format csv only")));
        }
        if header && format == CopyFormat::Binary {
            return Err(Complaint::error(NOT_SUPPORTED, "COPY HEADER is for the formats text and csv only"));
        }
        let quote = quote.unwrap_or(b'"');
        let options = CopyOptions {
            format,
            header,
            header_match,
            delimiter: delimiter.unwrap_or(if is_csv { b',' } else { b'\t' }),
            null: null.unwrap_or_else(|| if is_csv { String::new() } else { "\\N".to_owned() }),
            quote,
            escape: escape.unwrap_or(quote),
        };
        options.check()?;
        Ok(options)
    }

    /// Whether what is written by these options can be read by them.
    fn check(&self) -> Result<(), Complaint> {
        let refuse = |what: &str| Err(Complaint::error(WRONG_SETTING, what));
        let is_csv = self.format == CopyFormat::Csv;
        // What a backslash makes something else of, and what numbers are made of.
        if !is_csv && (self.delimiter.is_ascii_alphanumeric() || self.delimiter == b'.') {
            return refuse("COPY DELIMITER of the format text cannot be a letter, a digit or a point");
        }
        if is_csv && self.delimiter == self.quote {
            return refuse("COPY DELIMITER and QUOTE must be different");
        }
        if self.null.bytes().any(|byte| byte == self.delimiter || b"\r\n".contains(&byte) || is_csv && byte == self.quote) {
            return refuse("COPY NULL cannot contain the delimiter, the quote or the end of a line");
        }
        Ok(())
    }
}

fn value<'a>(words: &mut std::iter::Peekable<impl Iterator<Item = &'a Token>>, name: &str) -> Result<String, Complaint> {
    let _ = words.next_if(|token| token.is("as"));
    let found = words.next().filter(|token| !matches!(token.kind, TokenKind::Sign(_)));
    found.map(Token::text).ok_or_else(|| wrong(&format!("{name} of COPY has no value")))
}

fn format_of(text: &str) -> Result<CopyFormat, Complaint> {
    match text.to_lowercase().as_str() {
        "text" => Ok(CopyFormat::Text),
        "csv" => Ok(CopyFormat::Csv),
        "binary" => Ok(CopyFormat::Binary),
        other => Err(Complaint::error(
            WRONG_SETTING,
            format!("COPY format {other:?} is not recognized; there are text, csv and binary"),
        )),
    }
}

fn byte(text: &str, name: &str) -> Result<u8, Complaint> {
    match text.as_bytes() {
        [b'\\'] if name == "DELIMITER" => Err(Complaint::error(WRONG_SETTING, "COPY DELIMITER cannot be a backslash")),
        [byte] if byte.is_ascii() && !b"\r\n".contains(byte) => Ok(*byte),
        _ => Err(Complaint::error(NOT_SUPPORTED, format!("COPY {name} must be a single one-byte character"))),
    }
}

fn wrong(what: &str) -> Complaint {
    Complaint::error(SYNTAX, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_are_read_in_both_forms() {
        let copy = Copy::read("COPY (SELECT (1), ')' FROM t) TO STDOUT (FORMAT \"binary\");").unwrap();
        assert_eq!(
            (copy.is_in, copy.query().as_str(), copy.options.format),
            (false, "SELECT (1), ')' FROM t", CopyFormat::Binary)
        );
        let copy = Copy::read("copy main.\"My T\" (a, \"B\") from stdin with csv header delimiter as ';' null 'x'").unwrap();
        assert_eq!(copy.source, Source::Table { name: "main.\"My T\"".into(), columns: vec!["a".into(), "B".into()] });
        assert!(copy.is_in && copy.options.header && copy.options.delimiter == b';' && copy.options.null == "x");
        let copy = Copy::read("COPY t(a) TO STDOUT WITH (FORMAT csv, HEADER false, DELIMITER '|')").unwrap();
        assert_eq!((copy.query().as_str(), copy.options.header), ("SELECT \"a\" FROM t", false));
        for wrong in [
            "COPY",
            "COPY t",
            "COPY (SELECT 1 TO STDOUT",
            "COPY t FROM '/etc/passwd'",
            "COPY t TO STDOUT (FORMAT xml)",
            "COPY (SELECT 1) FROM STDIN",
            "COPY t FROM STDIN DELIMITER 'ab'",
            "COPY t TO STDOUT (DELIMITER 'n')",
            "COPY t TO STDOUT (FORMAT csv, DELIMITER '\"')",
            "COPY t TO STDOUT (FORMAT csv, NULL 'a,b')",
            "COPY t TO STDOUT (QUOTE '!')",
            "COPY t TO STDOUT (FORMAT binary, HEADER)",
        ] {
            assert!(Copy::read(wrong).is_err(), "{wrong}");
        }
    }
}
