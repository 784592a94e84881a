//! Reading a statement: its tokens once, its syntax tree once, and what kind of statement it is.

use datafusion::sql::parser::{DFParserBuilder, Statement as Syntax};
use datafusion::sql::sqlparser::ast::{ObjectType, Statement as Sql};
use datafusion::sql::sqlparser::dialect::{Dialect, GenericDialect, PostgreSqlDialect};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Whitespace, Word};
use pithead_functions::fault_from_datafusion;
use pithead_model::{Blame, COLUMNS_MAX, DatasetName, Fault, RESERVED};

use crate::column_words::{name_columns, name_columns_of_query};
use crate::copying::{CopyFile, Copying};
use crate::dialect::name_results;
use crate::file_tables::{name_files, reads_files};
use crate::functions::{Definition, Dropped};
use crate::history::{self, History};
use crate::operators::{refuse_what_is_too_deep, refuse_what_is_too_wide};
use crate::renaming::{self, Renaming};
use crate::schemas::CATALOG;
use crate::tokens::{Places, is_gap, is_word, parts, read, token_at, tokens};
use crate::truncating::several;
use crate::views::{self, DroppedViews, ViewDefinition};
use crate::writing::{Altering, Layout, as_merge, sort_clauses, take_apart, take_returning, take_with};
use crate::{
    Parameters, as_of, copying, ctes, explain_options, from_first, parameters, precedence, settings, showing, statement_plan,
};

/// A statement, as far as the session must know it.
pub(crate) enum Parsed {
    /// SET or RESET.
    Set { name: String, value: String },
    /// DROP TABLE.
    Drop { names: Vec<Named>, if_exists: bool },
    /// CREATE FUNCTION.
    CreateFunction(Definition),
    /// DROP FUNCTION.
    DropFunction(Dropped),
    /// CREATE VIEW.
    CreateView(ViewDefinition),
    /// DROP VIEW.
    DropViews(DroppedViews),
    /// SHOW LOG, RESTORE and ALTER DOMAIN.
    History(History),
    /// CREATE TABLE, INSERT, DELETE, UPDATE, MERGE or TRUNCATE, and the layout of a new table.
    Write {
        statement: Syntax,
        layout: Layout,
        /// Whether it deletes rows however many rows of another table match each.
        matches_often: bool,
        /// What RETURNING asks for, as a query over the statement's table.
        returning: Option<Box<Syntax>>,
    },
    /// ALTER TABLE.
    Alter(Box<Altering>),
    /// ALTER TABLE and ALTER VIEW … RENAME TO.
    Rename(Renaming),
    /// TRUNCATE of several tables.
    Truncate(Vec<Named>),
    /// COPY of a query's rows, or of a dataset's, into a file.
    CopyTo { query: Syntax, file: CopyFile },
    /// COPY of files into a dataset, whose columns may be named.
    CopyFrom { name: Named, columns: Option<Vec<String>>, file: CopyFile },
    /// EXPLAIN [ANALYZE] of `query`.
    Explain { query: Syntax, analyze: bool },
    /// EXPLAIN [ANALYZE] FORMAT SUBSTRAIT of `query`.
    Substrait { query: Syntax, analyze: bool },
    /// SUMMARIZE of `query`.
    Summarize { query: Syntax },
    /// EXPLAIN PUSHDOWN of `query`.
    Pushdown { query: Syntax },
    /// Everything that the engine plans.
    Query(Syntax),
    /// A query that came as a Substrait plan, and not as SQL.
    Plan(Vec<u8>),
}

impl Parsed {
    /// One word for what kind it is.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Parsed::Set { .. } => "set",
            Parsed::Drop { .. } | Parsed::DropFunction(_) | Parsed::DropViews(_) => "drop",
            Parsed::Write { .. }
            | Parsed::Alter(_)
            | Parsed::Rename(_)
            | Parsed::Truncate(_)
            | Parsed::CreateFunction(_)
            | Parsed::CreateView(_) => "write",
            Parsed::CopyTo { .. } | Parsed::CopyFrom { .. } => "copy",
            Parsed::Explain { .. } | Parsed::Pushdown { .. } | Parsed::Substrait { .. } => "explain",
            Parsed::History(history) => history.kind(),
            Parsed::Query(_) | Parsed::Summarize { .. } | Parsed::Plan(_) => "query",
        }
    }
}

/// A dataset's name as a statement writes it.
pub(crate) struct Named(Vec<String>);

impl Named {
    /// From its parts.
    pub(crate) fn new(parts: Vec<String>) -> Self {
        Self(parts)
    }

    /// The full name; a bare one is of `domain`.
    pub(crate) fn resolve(&self, domain: &str) -> Result<DatasetName, Fault> {
        match self.0.as_slice() {
            [dataset] => DatasetName::new(domain, dataset),
            [domain, dataset] => DatasetName::new(domain, dataset),
            [catalog, domain, dataset] if catalog == CATALOG => DatasetName::new(domain, dataset),
            parts => Err(Fault::new(Blame::User, format!("expected [domain.]dataset, got {}", parts.join(".")))),
        }
    }
}

/// Reads a statement. The parameters say which placeholders are intervals.
pub(crate) fn parse(sql: &str, parameters: &Parameters) -> Result<Parsed, Fault> {
    if let Some(set) = parse_set(sql)? {
        return Ok(set);
    }
    refuse_reserved(sql)?;
    let mut tokens = tokens(sql)?;
    describe_files(&mut tokens);
    name_columns(&mut tokens);
    name_columns_of_query(&mut tokens);
    if let Some(view) = views::read(sql, &tokens)? {
        return Ok(Parsed::CreateView(view));
    }
    if let Some(history) = history::read(&tokens)? {
        return Ok(Parsed::History(history));
    }
    if let Some(renaming) = renaming::read(&tokens) {
        return Ok(Parsed::Rename(renaming));
    }
    if let Some(copying) = copying::read(&tokens)? {
        return copied(copying, parameters);
    }
    if !take_summarize(&mut tokens) {
        return parse_tokens(tokens, parameters);
    }
    match parse_tokens(tokens, parameters)? {
        Parsed::Query(mut query) => {
            if let Syntax::Statement(sql) = &mut query
                && let Sql::Query(results) = sql.as_mut()
            {
                name_results(results);
            }
            Ok(Parsed::Summarize { query })
        }
        _ => Err(Fault::invalid("expected SUMMARIZE dataset, or SUMMARIZE query")),
    }
}

/// Takes the word SUMMARIZE away, and makes a query of a dataset's name that follows it. Whether it was there.
fn take_summarize(tokens: &mut Vec<TokenWithSpan>) -> bool {
    let words: Vec<usize> = (0..tokens.len()).filter(|place| !is_gap(&tokens[*place])).collect();
    let is_there = words.first().is_some_and(|place| is_word(&tokens[*place], "SUMMARIZE"));
    if let (true, Some(next)) = (is_there, words.get(1)) {
        const QUERIES: [&str; 5] = ["SELECT", "WITH", "FROM", "VALUES", "TABLE"];
        let is_name = matches!(tokens[*next].token, Token::Word(_) | Token::SingleQuotedString(_))
            && !QUERIES.iter().any(|word| is_word(&tokens[*next], word));
        if is_name {
            put_from(tokens, *next);
        }
        tokens.drain(..*next);
    }
    is_there
}

/// Makes a query of the file that follows DESCRIBE, as of the dataset that follows SUMMARIZE.
fn describe_files(tokens: &mut Vec<TokenWithSpan>) {
    let mut words = tokens.iter().enumerate().filter(|(_, token)| !is_gap(token));
    let is_there = words.next().is_some_and(|(_, first)| is_word(first, "DESCRIBE") || is_word(first, "DESC"));
    if let (true, Some((place, second))) = (is_there, words.next()) {
        let is_file =
            matches!(second.token, Token::SingleQuotedString(_)) || word(second).is_some_and(|name| reads_files(&name));
        if is_file {
            put_from(tokens, place);
        }
    }
}

fn put_from(tokens: &mut Vec<TokenWithSpan>, place: usize) {
    let from = Word { value: "FROM".to_owned(), quote_style: None, keyword: Keyword::FROM };
    let span = tokens[place].span;
    tokens.splice(place..place, [token_at(Token::Word(from), span), token_at(Token::Whitespace(Whitespace::Space), span)]);
}

fn copied(copying: Copying<'_>, parameters: &Parameters) -> Result<Parsed, Fault> {
    let Copying { source, columns, is_query, file } = copying;
    let name = Named(source.iter().filter_map(word).collect());
    let columns = columns.map(|columns| columns.iter().filter_map(word).collect::<Vec<_>>());
    if matches!(file, CopyFile::From(..)) {
        return Ok(Parsed::CopyFrom { name, columns, file });
    }
    let query = match is_query {
        true => source.to_vec(),
        false => {
            let columns = columns
                .map_or("*".to_owned(), |columns| columns.iter().map(|name| quoted(name)).collect::<Vec<_>>().join(", "));
            let name = name.0.iter().map(|part| quoted(part)).collect::<Vec<_>>().join(".");
            tokens(&format!("SELECT {columns} FROM {name}"))?
        }
    };
    match parse_tokens(query, parameters)? {
        Parsed::Query(query) => Ok(Parsed::CopyTo { query, file }),
        _ => Err(Fault::invalid("expected a query in the parentheses of COPY")),
    }
}

/// A name, in lower case unless it is in quotes.
pub(crate) fn word(token: &TokenWithSpan) -> Option<String> {
    match &token.token {
        Token::Word(word) if word.quote_style.is_some() => Some(word.value.clone()),
        Token::Word(word) => Some(word.value.to_lowercase()),
        _ => None,
    }
}

pub(crate) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn parse_tokens(mut tokens: Vec<TokenWithSpan>, parameters: &Parameters) -> Result<Parsed, Fault> {
    as_of::put_into_names(&mut tokens)?;
    let is_substrait = explain_options::take_substrait(&mut tokens);
    ctes::drop_hints(&mut tokens);
    from_first::add_select(&mut tokens);
    sort_clauses(&mut tokens);
    parameters::number(&mut tokens)?;
    parameters.tell_intervals(&mut tokens);
    let is_pushdown = take_pushdown(&mut tokens);
    refuse_what_is_too_deep(&tokens)?;
    let is_alter = tokens.iter().find(|token| !is_gap(token)).is_some_and(|word| is_word(word, "ALTER"));
    // Only there `ALTER COLUMN … TYPE … USING` is known, and only in the other one types and values of structs.
    let has_structs = || tokens.iter().any(|token| is_word(token, "STRUCT") || token.token == Token::LBrace);
    let dialect: &dyn Dialect = if is_alter && !has_structs() { &PostgreSqlDialect {} } else { &GenericDialect {} };
    let may_be_wide = tokens.len() > COLUMNS_MAX;
    let parser = DFParserBuilder::new(tokens).with_dialect(dialect).build();
    let mut statements = parser.and_then(|mut parser| parser.parse_statements()).map_err(fault_from_datafusion)?;
    let (Some(statement), true) = (statements.pop_front(), statements.is_empty()) else {
        return Err(Fault::invalid("expected exactly one SQL statement"));
    };
    if may_be_wide {
        refuse_what_is_too_wide(&statement)?;
    }
    match (told_apart(statement), is_pushdown) {
        (Ok(Parsed::Query(query)), true) => Ok(Parsed::Pushdown { query }),
        (_, true) => Err(Fault::invalid("EXPLAIN PUSHDOWN runs a query; expected one after it")),
        (Ok(Parsed::Explain { query, analyze }), false) if is_substrait => Ok(Parsed::Substrait { query, analyze }),
        (parsed, false) => parsed,
    }
}

/// Takes both words out of `EXPLAIN PUSHDOWN query`. Whether they were there.
fn take_pushdown(tokens: &mut Vec<TokenWithSpan>) -> bool {
    let mut words = tokens.iter().enumerate().filter(|(_, token)| !is_gap(token));
    let is_explain = words.next().is_some_and(|(_, first)| is_word(first, "EXPLAIN"));
    match words.next() {
        Some((place, second)) if is_explain && is_word(second, "PUSHDOWN") => {
            tokens.drain(..=place);
            true
        }
        _ => false,
    }
}

fn told_apart(mut statement: Syntax) -> Result<Parsed, Fault> {
    match &mut statement {
        Syntax::Explain(explain) => name_files(&mut explain.statement)?,
        statement => name_files(statement)?,
    }
    match statement {
        Syntax::Explain(explain) => Ok(Parsed::Explain { query: mended(*explain.statement), analyze: explain.options.analyze }),
        Syntax::Statement(statement) => match take_with(*statement) {
            Sql::Drop { object_type: ObjectType::Table, if_exists, names, .. } => {
                let names = names.iter().map(|name| Ok(Named(parts(name)?))).collect::<Result<_, Fault>>()?;
                Ok(Parsed::Drop { names, if_exists })
            }
            Sql::Drop { object_type: ObjectType::View, if_exists, names, .. } => {
                let names = names.iter().map(|name| Ok(Named(parts(name)?))).collect::<Result<_, Fault>>()?;
                Ok(Parsed::DropViews(DroppedViews { names, if_exists }))
            }
            Sql::AlterTable(alter) => Ok(Parsed::Alter(Box::new(Altering::of(alter)?))),
            Sql::CreateFunction(create) => Ok(Parsed::CreateFunction(Definition::of(create)?)),
            Sql::DropFunction(drop) => Ok(Parsed::DropFunction(Dropped::of(drop)?)),
            mut statement if writes(&statement) => {
                if let Sql::Truncate(truncate) = &mut statement
                    && let Some(names) = several(truncate)?
                {
                    return Ok(Parsed::Truncate(names));
                }
                take_apart(&mut statement)?;
                let layout = Layout::take(&mut statement)?;
                let returning = take_returning(&mut statement)?;
                let returning = returning.map(|query| Box::new(mended(Syntax::Statement(Box::new(query)))));
                let matches_often = matches!(statement, Sql::Delete(_));
                let statement = mended(Syntax::Statement(Box::new(as_merge(statement)?)));
                Ok(Parsed::Write { statement, layout, matches_often, returning })
            }
            statement if reads(&statement) => {
                let mut statement = Syntax::Statement(Box::new(statement));
                showing::show_tables(&mut statement)?;
                Ok(Parsed::Query(mended(statement)))
            }
            statement => Err(not_run(&statement.to_string())),
        },
        other => Err(not_run(&other.to_string())),
    }
}

fn mended(mut statement: Syntax) -> Syntax {
    precedence::mend(&mut statement);
    statement_plan::mend_null_treatment(&mut statement);
    settings::show_in_full(&mut statement);
    statement
}

/// Statements that the engine plans and that change nothing; others are told apart before their names are looked up.
fn reads(statement: &Sql) -> bool {
    const WORDS: [&str; 3] = ["SHOW", "DESCRIBE", "DESC"];
    matches!(statement, Sql::Query(_)) || WORDS.contains(&first_word(&statement.to_string()).as_str())
}

/// The table that a statement makes; none: it makes none.
pub(crate) fn made(statement: &Syntax) -> Option<Result<Named, Fault>> {
    let Syntax::Statement(statement) = statement else { return None };
    match statement.as_ref() {
        Sql::CreateTable(create) => Some(parts(&create.name).map(Named)),
        _ => None,
    }
}

/// Statements whose rows are written.
fn writes(statement: &Sql) -> bool {
    use Sql::{CreateTable, Delete, Insert, Merge, Truncate, Update};
    matches!(statement, CreateTable(_) | Insert(_) | Delete(_) | Update(_) | Merge(_) | Truncate(_))
}

fn first_word(text: &str) -> String {
    text.chars().take_while(char::is_ascii_alphabetic).collect::<String>().to_uppercase()
}

fn not_run(text: &str) -> Fault {
    Fault::new(Blame::Unsupported, format!("{} is not a statement that this release runs", first_word(text))).hint(
        "queries, EXPLAIN, SUMMARIZE, SET, SHOW, DESCRIBE, CREATE TABLE, ALTER TABLE, INSERT, DELETE, UPDATE, MERGE, TRUNCATE, COPY, DROP TABLE, \
         RESTORE, CREATE VIEW, DROP VIEW, CREATE FUNCTION and DROP FUNCTION run here",
    )
}

/// Names with this character are the planner's.
fn refuse_reserved(sql: &str) -> Result<(), Fault> {
    let Some(place) = sql.find(RESERVED) else { return Ok(()) };
    let message = format!("the statement has a NUL character, as character {}", sql[..place].chars().count() + 1);
    Err(Fault::new(Blame::User, message).hint("remove it; a text that has it can be given as a parameter, or as chr(0)"))
}

/// Whether a statement is a SET, whatever it sets.
pub fn is_set(sql: &str) -> bool {
    behind_set(sql).is_some()
}

/// What follows the word SET in a statement that begins with it.
fn behind_set(sql: &str) -> Option<&str> {
    let text = sql.trim();
    let behind = |text| str::split_once(text, char::is_whitespace).filter(|(verb, _)| verb.eq_ignore_ascii_case("set"));
    // Only such a one is read for the comments around it.
    behind(behind_comments(text))?;
    behind(without_comments_around(text).trim_end_matches(';').trim_end()).map(|(_, rest)| rest)
}

/// The text from the first that is no space and no comment.
fn behind_comments(mut text: &str) -> &str {
    loop {
        text = text.trim_start();
        let end = match text.get(..2) {
            Some("--") => text.find('\n'),
            Some("/*") => comment_end(text),
            _ => return text,
        };
        text = &text[end.unwrap_or(text.len())..];
    }
}

/// The end of a comment that a text begins with, in which there may be others.
fn comment_end(text: &str) -> Option<usize> {
    let (mut depth, mut at) = (0_usize, 0);
    let bytes = text.as_bytes();
    while let Some(two) = bytes.get(at..at + 2) {
        match two {
            b"/*" => depth += 1,
            b"*/" if depth == 1 => return Some(at + 2),
            b"*/" => depth -= 1,
            _ => {
                at += 1;
                continue;
            }
        }
        at += 2;
    }
    None
}

/// `SET name = value` and `SET name TO value`: names have dots and values may be bare words, so it is read by tokens.
fn parse_set(sql: &str) -> Result<Option<Parsed>, Fault> {
    let Some(rest) = behind_set(sql) else { return Ok(None) };
    if let Some(zone) = rest.get(..9).filter(|words| words.eq_ignore_ascii_case("time zone")).map(|_| rest[9..].trim_start()) {
        let zone = zone.strip_prefix('=').or_else(|| split_word(&rest[5..], "to").map(|(_, zone)| zone)).unwrap_or(zone).trim();
        if zone.is_empty() {
            return Err(Fault::new(Blame::User, "expected SET TIME ZONE 'name', such as 'Europe/Berlin' or '+02:00'"));
        }
        return Ok(Some(Parsed::Set { name: "datafusion.execution.time_zone".into(), value: unquoted(zone) }));
    }
    let assignment = rest.split_once('=').or_else(|| split_word(rest, "to"));
    let (name, value) = match assignment {
        Some((name, value)) if !name.trim().is_empty() && !value.trim().is_empty() => (name.trim(), value.trim()),
        _ => return Err(Fault::new(Blame::User, "expected SET name = value").hint("SHOW ALL lists the names")),
    };
    // PostgreSQL's and DuckDB's name of the setting.
    let name = if name.eq_ignore_ascii_case("timezone") { "datafusion.execution.time_zone" } else { name };
    Ok(Some(Parsed::Set { name: name.to_owned(), value: unquoted(value) }))
}

/// The text from the first token that is no space, no comment and no semicolon to the last one. What is no SQL stays as it
/// is.
fn without_comments_around(sql: &str) -> &str {
    let Ok(Ok(tokens)) = read(sql) else { return sql };
    let mut places = Places::new(sql);
    let mut said = tokens.iter().filter(|token| !is_gap(token) && !matches!(token.token, Token::SemiColon | Token::EOF));
    let Some(first) = said.next() else { return "" };
    let last = said.next_back().unwrap_or(first);
    sql.get(places.byte(first.span.start)..places.byte(last.span.end)).unwrap_or(sql)
}

fn split_word<'a>(text: &'a str, word: &str) -> Option<(&'a str, &'a str)> {
    let (name, rest) = text.split_once(char::is_whitespace)?;
    let rest = rest.trim_start();
    let (found, value) = rest.split_once(char::is_whitespace)?;
    found.eq_ignore_ascii_case(word).then_some((name, value))
}

fn unquoted(value: &str) -> String {
    let inner = value.strip_prefix('\'').and_then(|value| value.strip_suffix('\''));
    inner.map_or_else(|| value.to_owned(), |inner| inner.replace("''", "'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(sql: &str) -> Result<Parsed, Fault> {
        parse(sql, &Parameters::default())
    }

    #[test]
    fn statements_are_told_apart() {
        let set = |sql: &str| match read(sql).unwrap() {
            Parsed::Set { name, value } => format!("{name}={value}"),
            _ => "other".into(),
        };
        assert_eq!(set("SET pithead.pushdown = off;"), "pithead.pushdown=off");
        assert_eq!(set("set time zone = 'Europe/Berlin'"), "datafusion.execution.time_zone=Europe/Berlin");
        for zone in ["set time zone 'UTC'", "SET TIME ZONE TO 'UTC'", "set time zone = 'UTC'"] {
            assert_eq!(set(zone), "datafusion.execution.time_zone=UTC", "{zone}");
        }
        assert_eq!(set("SET TimeZone = 'Asia/Tokyo'"), "datafusion.execution.time_zone=Asia/Tokyo");
        assert_eq!(set("set a.b to 3"), "a.b=3");
        for commented in [
            "-- all times as in Oslo\nSET time zone = 'Europe/Oslo'",
            "SET time zone = 'Europe/Oslo'; -- of the é",
            "/* one\n -- more */ set time zone to 'Europe/Oslo' /* é */ ;",
        ] {
            assert_eq!(set(commented), "datafusion.execution.time_zone=Europe/Oslo", "{commented}");
        }
        assert_eq!(set("SET pithead.pushdown = off -- for the test"), "pithead.pushdown=off");
        assert_eq!(set("SET a.b = '-- no comment'"), "a.b=-- no comment");
        assert_eq!(set("SET a.b = it's"), "a.b=it's");
        // A regression: all of a text that begins with a comment was read to find out.
        assert!(is_set("/* a /* b */ */ -- c\n SET a = 1") && !is_set("/* a /* b */ SET a = 1") && !is_set("-- SET a = 1"));
        assert!(matches!(read("-- SET a = 1\nSELECT 1").unwrap(), Parsed::Query(_)));
        assert!(matches!(read("create table t as select 1").unwrap(), Parsed::Write { .. }));
        assert!(read("create index i on t (a)").is_err());
        assert!(matches!(read("explain analyze select 1").unwrap(), Parsed::Explain { analyze: true, .. }));
        assert!(matches!(read("drop table if exists lab.t").unwrap(), Parsed::Drop { if_exists: true, .. }));
        assert!(matches!(read("select 1").unwrap(), Parsed::Query(_)));
        for summarized in
            ["summarize lab.t", "SUMMARIZE\n t ;", "summarize select 1", "summarize from t", "summarize (select 1)"]
        {
            assert!(matches!(read(summarized).unwrap(), Parsed::Summarize { .. }), "{summarized}");
        }
        assert!(matches!(read("summarize 'a.parquet'").unwrap(), Parsed::Summarize { .. }));
        for described in ["describe 'a.parquet'", "DESC read_csv('a.txt', delim = ';')"] {
            let Ok(Parsed::Query(Syntax::Explain(_) | Syntax::Statement(_)) | Parsed::Explain { .. }) = read(described) else {
                panic!("{described}");
            };
        }
        assert!(read("summarize").is_err() && read("summarize drop table t").is_err());
        assert!(matches!(read("DROP VIEW IF EXISTS a, b").unwrap(), Parsed::DropViews(views) if views.names.len() == 2));
        assert!(read("selec 1").is_err());
        assert!(read("select 1; select 2").is_err());
        assert!(read("select 'except all' union all select 'x' except select 'y'").is_ok());
    }
}
