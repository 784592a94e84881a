//! Tables as they were: `FROM t AS OF VERSION 12`, `FROM t AS OF TIMESTAMP '2026-11-24 10:00'`, and the forms that other engines have.
//!
//! The parser knows none of them, so each is read by its tokens and becomes a name in quotes, which no user can write: the table's, and
//! after it the version or the time. The planner looks that name up like any other, and finds the dataset of that version: another
//! table than the one that is there now, however alike the two are.

use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::scalar::ScalarValue;
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::keywords::{Keyword, RESERVED_FOR_TABLE_ALIAS};
use datafusion::sql::sqlparser::parser::Parser;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Whitespace, Word};
use pithead_fleet::AsOf;
use pithead_functions::{EngineOptions, PlanningState, fault_from_datafusion};
use pithead_model::{Blame, DatasetName, Fault, FaultKind, RESERVED};

use crate::statement::word;
use crate::tokens::{is_gap, is_word, token_at};

/// How it is written, for whoever wrote it otherwise.
const FORM: &str = "FROM t AS OF VERSION 12, or FROM t AS OF TIMESTAMP '2026-11-24 10:00:00'; an alias comes after it";

/// A table's name with a moment, as the planner is to look it up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Moment(String);

impl Moment {
    /// A version.
    pub(crate) fn version(number: u64) -> Self {
        Self(number.to_string())
    }

    /// A time, by an expression of SQL.
    pub(crate) fn time(expression: &str) -> Self {
        Self(format!("t{expression}"))
    }

    fn name(&self, table: &str) -> String {
        format!("{table}{RESERVED}@{}", self.0)
    }

    /// The dataset and the moment that a name is made of; none: it is a name as it is.
    pub(crate) fn split(name: &DatasetName) -> Option<(DatasetName, Moment)> {
        let (table, moment) = name.dataset.split_once(RESERVED)?;
        let moment = Moment(moment.strip_prefix('@')?.to_owned());
        Some((DatasetName { domain: name.domain.clone(), dataset: table.to_owned() }, moment))
    }

    /// Which one it is. Times without a zone are of the session's.
    pub(crate) async fn resolve(&self, time_zone: Option<&str>) -> Result<AsOf, Fault> {
        match self.0.strip_prefix('t') {
            Some(expression) => Ok(AsOf::Time(time_ms(expression, time_zone).await?)),
            None => Ok(AsOf::Version(self.0.parse().map_err(|_| expected("a version's number"))?)),
        }
    }
}

/// What an expression of SQL says as a time, milliseconds since 1970 UTC.
async fn time_ms(expression: &str, time_zone: Option<&str>) -> Result<u64, Fault> {
    let state = PlanningState::new(&EngineOptions { time_zone: time_zone.map(str::to_owned), ..EngineOptions::default() });
    let sql = format!("SELECT CAST(({expression}) AS TIMESTAMP WITH TIME ZONE)");
    let at = |error| fault_from_datafusion(error).at(format_args!("AS OF TIMESTAMP {expression}"));
    let plan = state.create_logical_plan(&sql).await.map_err(at)?;
    let plan = state.optimize(&plan).map_err(at)?;
    let nanoseconds = match &plan {
        LogicalPlan::Projection(projection) => match projection.expr.first().cloned().map(Expr::unalias) {
            Some(Expr::Literal(ScalarValue::TimestampNanosecond(Some(value), _), _)) => Some(value),
            _ => None,
        },
        _ => None,
    };
    let milliseconds = nanoseconds.and_then(|value| u64::try_from(value.div_euclid(1_000_000)).ok());
    milliseconds.ok_or_else(|| expected("a time after 1970, as a constant"))
}

/// Whether the tokens name a table as it was.
pub(crate) fn is_in(tokens: &[TokenWithSpan]) -> Result<bool, Fault> {
    let mut tokens = tokens.to_vec();
    put_into_names(&mut tokens)
}

/// Puts each moment into the name of its table. Whether there was one.
pub(crate) fn put_into_names(tokens: &mut Vec<TokenWithSpan>) -> Result<bool, Fault> {
    let places: Vec<usize> = (0..tokens.len()).filter(|place| !is_gap(&tokens[*place])).collect();
    let mut found = Vec::new();
    let mut at = 1;
    while at < places.len() {
        let Some(clause) = Clause::read(tokens, &places, at)? else {
            at += 1;
            continue;
        };
        refuse_as_target(tokens, &places, at - 1)?;
        at = clause.end;
        found.push(clause);
    }
    // From the last to the first, so that places stay right.
    for clause in found.iter().rev() {
        let (from, to) = (places[clause.table], places[clause.end - 1]);
        let has_alias = places.get(clause.end).is_some_and(|next| is_alias(&tokens[*next]));
        let span = tokens[from].span;
        let table = tokens[from].token.clone();
        let name = clause.moment.name(&word(&tokens[from]).unwrap_or_default());
        let quoted = Token::Word(Word { value: name, quote_style: Some('"'), keyword: Keyword::NoKeyword });
        let mut put = vec![token_at(quoted, span)];
        if !has_alias {
            let named = Token::Word(Word { value: "AS".to_owned(), quote_style: None, keyword: Keyword::AS });
            let space = || token_at(Token::Whitespace(Whitespace::Space), span);
            put.extend([space(), token_at(named, span), space(), token_at(table, span), space()]);
        }
        tokens.splice(from..=to, put);
    }
    Ok(!found.is_empty())
}

/// A table's name and its moment, as places among the tokens that are no gaps.
struct Clause {
    /// The last part of the name.
    table: usize,
    /// The first token after all of it.
    end: usize,
    moment: Moment,
}

impl Clause {
    /// One whose moment begins at a place; none: none does.
    fn read(tokens: &[TokenWithSpan], places: &[usize], at: usize) -> Result<Option<Clause>, Fault> {
        const VERSION_FORMS: [&[&str]; 3] =
            [&["AS", "OF", "VERSION"], &["FOR", "VERSION", "AS", "OF"], &["VERSION", "AS", "OF"]];
        const TIME_FORMS: [&[&str]; 4] = [
            &["AS", "OF", "TIMESTAMP"],
            &["FOR", "SYSTEM_TIME", "AS", "OF"],
            &["FOR", "TIMESTAMP", "AS", "OF"],
            &["TIMESTAMP", "AS", "OF"],
        ];
        if word(&tokens[places[at - 1]]).is_none() {
            return Ok(None);
        }
        let token = |place: usize| places.get(place).map(|place| &tokens[*place]);
        let begins =
            |words: &[&str]| (at..).zip(words).all(|(place, wanted)| token(place).is_some_and(|token| is_word(token, wanted)));
        let clause = |end: usize, moment: Moment| Ok(Some(Clause { table: at - 1, end, moment }));
        if let Some(words) = VERSION_FORMS.iter().find(|words| begins(words)) {
            let place = at + words.len();
            return match token(place).map(|token| &token.token) {
                Some(Token::Number(number, _)) => clause(place + 1, version_of(number)?),
                // A column that is named so, in a list.
                _ if words[0] == "VERSION" => Ok(None),
                Some(Token::Placeholder(_)) => Err(no_placeholder()),
                _ => Err(expected("a version's number")),
            };
        }
        if let Some(words) = TIME_FORMS.iter().find(|words| begins(words)) {
            let place = at + words.len();
            if words[0] == "TIMESTAMP" && !token(place).is_some_and(begins_time) {
                return Ok(None);
            }
            let (end, moment) = time_at(tokens, places, place)?;
            return clause(end, moment);
        }
        let is_call = begins(&["AT"]) && token(at + 1).is_some_and(|token| token.token == Token::LParen);
        let arrow = token(at + 3).is_some_and(|token| token.token == Token::RArrow);
        if !is_call || !arrow {
            return Ok(None);
        }
        let (end, moment) = match token(at + 2) {
            Some(name) if is_word(name, "VERSION") => match token(at + 4).map(|token| &token.token) {
                Some(Token::Number(number, _)) => (at + 5, version_of(number)?),
                Some(Token::Placeholder(_)) => return Err(no_placeholder()),
                _ => return Err(expected("a version's number")),
            },
            Some(name) if is_word(name, "TIMESTAMP") => time_at(tokens, places, at + 4)?,
            _ => return Err(expected("AT (VERSION => 12) or AT (TIMESTAMP => '…')")),
        };
        match token(end).map(|token| &token.token) {
            Some(Token::RParen) => clause(end + 1, moment),
            _ => Err(expected("a parenthesis that ends AT (…)")),
        }
    }
}

/// The time that an expression says which begins at a place, and the place after it.
pub(crate) fn time_at(tokens: &[TokenWithSpan], places: &[usize], at: usize) -> Result<(usize, Moment), Fault> {
    let begin = places.get(at).copied().unwrap_or(tokens.len());
    let rest = tokens[begin..].to_vec();
    let mut parser = Parser::new(&GenericDialect {}).with_tokens_with_locations(rest);
    let expression = parser.parse_expr().map_err(|error| fault_from_datafusion(error.into()))?;
    let taken = begin + parser.index();
    if tokens[begin..taken.min(tokens.len())].iter().any(|token| matches!(token.token, Token::Placeholder(_))) {
        return Err(no_placeholder());
    }
    let end = places.partition_point(|place| *place < taken);
    Ok((end, Moment::time(&expression.to_string())))
}

fn version_of(number: &str) -> Result<Moment, Fault> {
    number.parse().map(Moment::version).map_err(|_| expected("a version's number"))
}

/// Whether a token can begin a time, where a column may be meant that is named `timestamp`.
fn begins_time(token: &TokenWithSpan) -> bool {
    const WORDS: [&str; 5] = ["TIMESTAMP", "NOW", "CURRENT_TIMESTAMP", "CAST", "TO_TIMESTAMP"];
    matches!(token.token, Token::SingleQuotedString(_) | Token::LParen) || WORDS.iter().any(|word| is_word(token, word))
}

/// Whether a token after a table is, or begins, its alias.
fn is_alias(token: &TokenWithSpan) -> bool {
    match &token.token {
        Token::Word(word) if word.quote_style.is_some() => true,
        Token::Word(word) => word.keyword == Keyword::AS || !RESERVED_FOR_TABLE_ALIAS.contains(&word.keyword),
        _ => false,
    }
}

/// Refuses a table that is to be changed, and whatever is no table.
fn refuse_as_target(tokens: &[TokenWithSpan], places: &[usize], last: usize) -> Result<(), Fault> {
    let token = |place: usize| &tokens[places[place]];
    let mut first = last;
    while first >= 2 && token(first - 1).token == Token::Period && word(token(first - 2)).is_some() {
        first -= 2;
    }
    let before = |back: usize| first.checked_sub(back).map(token);
    let follows = |back: usize, words: &[&str]| before(back).is_some_and(|token| words.iter().any(|word| is_word(token, word)));
    let is_target = follows(1, &["INTO", "UPDATE"])
        || (follows(1, &["FROM"]) && follows(2, &["DELETE"]))
        || (follows(1, &["TABLE", "EXISTS"]) && is_one_of(token(0), &["DROP", "ALTER", "TRUNCATE"]))
        || is_one_of(token(0), &["COPY"]);
    if is_target {
        let what = "a table is changed as it is now, and not as of a version of before";
        return Err(Fault::invalid(what).hint("RESTORE TABLE t TO VERSION AS OF 12 makes a table what it was"));
    }
    let is_table = follows(1, &["FROM", "JOIN", "USING", "TABLE", "DESCRIBE", "DESC"])
        || before(1).is_some_and(|token| matches!(token.token, Token::Comma | Token::LParen));
    if is_table { Ok(()) } else { Err(expected("AS OF behind the name of a table")) }
}

fn is_one_of(token: &TokenWithSpan, words: &[&str]) -> bool {
    words.iter().any(|word| is_word(token, word))
}

fn no_placeholder() -> Fault {
    Fault::new(Blame::Unsupported, "a placeholder as the version or the time of AS OF").hint("write it into the statement")
}

pub(crate) fn expected(what: &str) -> Fault {
    Fault::invalid(format!("expected {what}")).of_kind(FaultKind::Syntax).hint(FORM)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokens::{tokens, written};

    fn rewritten(sql: &str) -> String {
        let mut tokens = tokens(sql).unwrap();
        put_into_names(&mut tokens).unwrap();
        written(&tokens).replace(RESERVED, "")
    }

    #[test]
    fn a_moment_becomes_part_of_the_name() {
        for (sql, expected) in [
            ("FROM t AS OF VERSION 12", "FROM \"t@12\" AS t"),
            ("FROM Lab.T as of version 12 WHERE a = 1", "FROM Lab . \"t@12\" AS T WHERE a = 1"),
            ("FROM t JOIN t AS OF VERSION 3 AS old ON true", "FROM t JOIN \"t@3\" AS old ON true"),
            ("FROM t AS OF VERSION 3 old, \"T\" VERSION AS OF 4", "FROM \"t@3\" old , \"T@4\" AS \"T\""),
            ("FROM t AT (VERSION => 12) x", "FROM \"t@12\" x"),
            ("FROM t AT (TIMESTAMP => now())", "FROM \"t@tnow()\" AS t"),
            ("FROM t FOR VERSION AS OF 2", "FROM \"t@2\" AS t"),
            ("FROM (FROM t AS OF TIMESTAMP '2026-11-24') AS s", "FROM ( FROM \"t@t'2026-11-24'\" AS t ) AS s"),
            ("FROM t TIMESTAMP AS OF '2026-11-24' o", "FROM \"t@t'2026-11-24'\" o"),
            (
                "FROM t FOR SYSTEM_TIME AS OF TIMESTAMP '2026-11-24' - INTERVAL '1 hour' WHERE b",
                "FROM \"t@tTIMESTAMP '2026-11-24' - INTERVAL '1 hour'\" AS t WHERE b",
            ),
        ] {
            assert_eq!(rewritten(sql), expected, "{sql}");
        }
    }

    #[test]
    fn all_else_stays_as_it_is() {
        for sql in ["SELECT version AS of FROM t", "SELECT timestamp AS of FROM t AS of", "SELECT a AT TIME ZONE 'UTC' FROM t"]
        {
            assert_eq!(rewritten(sql), written(&tokens(sql).unwrap()), "{sql}");
        }
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for sql in [
            "INSERT INTO t AS OF VERSION 3 SELECT 1",
            "UPDATE lab.t AS OF VERSION 3 SET a = 1",
            "DELETE FROM t AS OF VERSION 3",
            "DROP TABLE t AS OF VERSION 3",
            "FROM t x AS OF VERSION 3",
            "FROM t AS OF VERSION next",
            "FROM t AS OF VERSION $1",
            "FROM t AS OF TIMESTAMP $1",
            "FROM t AT (OFFSET => -60)",
            "FROM t AT (VERSION => 3",
        ] {
            assert!(put_into_names(&mut tokens(sql).unwrap()).is_err(), "{sql}");
        }
    }

    #[tokio::test]
    async fn times_are_constants_in_the_sessions_zone() {
        let at = |text: &str, zone| {
            let moment = Moment::time(text);
            async move { moment.resolve(zone).await }
        };
        let noon = AsOf::Time(1_795_521_600_000);
        assert_eq!(at("'2026-11-24 12:00:00'", None).await, Ok(noon));
        assert_eq!(at("TIMESTAMP '2026-11-24 11:00:00' + INTERVAL '1 hour'", None).await, Ok(noon));
        assert_eq!(at("'2026-11-24 13:00:00'", Some("Europe/Berlin")).await, Ok(noon));
        assert_eq!(at("'2026-11-24 13:00:00+01:00'", None).await, Ok(noon));
        assert!(at("now()", None).await.is_ok());
        for wrong in ["'soon'", "a", "random()", "NULL", "'1960-01-01'"] {
            assert!(at(wrong, None).await.is_err(), "{wrong}");
        }
        assert_eq!(Moment::version(12).resolve(None).await, Ok(AsOf::Version(12)));
    }
}
