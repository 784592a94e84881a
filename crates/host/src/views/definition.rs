//! What CREATE VIEW and DROP VIEW say. The query is kept as it was written, so the statement is read by its tokens as far as AS.

use datafusion::sql::parser::Statement as Syntax;
use datafusion::sql::sqlparser::ast::Statement as Sql;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};
use pithead_model::{Blame, Fault, FaultKind};

use crate::dialect::name_results;
use crate::statement::{self, Named, Parsed};
use crate::tokens::{Places, is_gap, is_word};
use crate::{Parameters, as_of, tokens};

/// How the statement is written, for whoever wrote it otherwise.
const FORM: &str = "CREATE [OR REPLACE] VIEW [IF NOT EXISTS] [domain.]name [(column, …)] AS SELECT …";

/// CREATE VIEW as it was written.
pub(crate) struct ViewDefinition {
    pub(crate) name: Named,
    /// Names of the columns, where they have others than those of the query.
    pub(crate) columns: Vec<String>,
    /// The query.
    pub(crate) sql: String,
    pub(crate) replaces: bool,
    pub(crate) if_not_exists: bool,
}

/// DROP VIEW as it was written.
pub(crate) struct DroppedViews {
    pub(crate) names: Vec<Named>,
    pub(crate) if_exists: bool,
}

/// Takes a statement for CREATE VIEW if it begins so.
pub(crate) fn read(sql: &str, tokens: &[TokenWithSpan]) -> Result<Option<ViewDefinition>, Fault> {
    let mut rest = Rest(tokens.iter().filter(|token| !is_gap(token) && token.token != Token::EOF).collect());
    if !rest.take(&["CREATE"]) {
        return Ok(None);
    }
    let replaces = rest.take(&["OR", "REPLACE"]);
    let kind = ["TEMPORARY", "TEMP", "MATERIALIZED", "RECURSIVE"].into_iter().find(|kind| rest.take(&[kind]));
    if !rest.take(&["VIEW"]) {
        return Ok(None);
    }
    if let Some(kind) = kind {
        let what = format!("CREATE {kind} VIEW is not a statement that this release runs");
        return Err(Fault::new(Blame::Unsupported, what).hint(FORM));
    }
    let if_not_exists = rest.take(&["IF", "NOT", "EXISTS"]);
    if replaces && if_not_exists {
        return Err(expected("OR REPLACE or IF NOT EXISTS, and not both"));
    }
    let name = Named::new(rest.names(&Token::Period)?);
    let columns = match rest.take_token(&Token::LParen) {
        true => {
            let columns = rest.names(&Token::Comma)?;
            if !rest.take_token(&Token::RParen) {
                return Err(expected("the names of the columns, with commas between them"));
            }
            columns
        }
        false => Vec::new(),
    };
    let Some(begin) = rest.take(&["AS"]).then(|| rest.0.first()).flatten() else {
        return Err(expected("AS and a query"));
    };
    let mut places = Places::new(sql);
    let begin = places.byte(begin.span.start);
    let end = rest.0.last().filter(|last| last.token == Token::SemiColon);
    let end = end.map_or(sql.len(), |last| places.byte(last.span.start));
    let sql = sql[begin..end.max(begin)].trim().to_owned();
    query_of(&sql)?;
    if as_of::is_in(&tokens::tokens(&sql)?)? {
        let what = "a view reads tables as they are now: a version that it names would be forgotten after a time";
        return Err(
            Fault::new(Blame::Unsupported, what).hint("keep what was there as a table: CREATE TABLE … AS SELECT … AS OF …")
        );
    }
    Ok(Some(ViewDefinition { name, columns, sql, replaces, if_not_exists }))
}

/// The query of a view. All of its columns have names.
pub(super) fn query_of(sql: &str) -> Result<Syntax, Fault> {
    if let Parsed::Query(mut syntax) = statement::parse(sql, &Parameters::default())?
        && let Syntax::Statement(statement) = &mut syntax
        && let Sql::Query(query) = statement.as_mut()
    {
        name_results(query);
        return Ok(syntax);
    }
    Err(expected("a query after AS"))
}

fn expected(what: &str) -> Fault {
    Fault::invalid(format!("expected {what} in CREATE VIEW")).of_kind(FaultKind::Syntax).hint(FORM)
}

/// The tokens that are not read yet, gaps aside.
struct Rest<'a>(Vec<&'a TokenWithSpan>);

impl Rest<'_> {
    /// Takes these words if they come next.
    fn take(&mut self, words: &[&str]) -> bool {
        let are_next = words.len() <= self.0.len() && words.iter().zip(&self.0).all(|(word, token)| is_word(token, word));
        if are_next {
            self.0.drain(..words.len());
        }
        are_next
    }

    fn take_token(&mut self, wanted: &Token) -> bool {
        let is_next = self.0.first().is_some_and(|token| token.token == *wanted);
        if is_next {
            self.0.remove(0);
        }
        is_next
    }

    /// One name or more.
    fn names(&mut self, between: &Token) -> Result<Vec<String>, Fault> {
        let mut names = Vec::new();
        loop {
            let name = self.0.first().and_then(|token| statement::word(token));
            names.push(name.ok_or_else(|| expected("a name"))?);
            self.0.remove(0);
            if !self.take_token(between) {
                return Ok(names);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokens::tokens;

    fn told(sql: &str) -> Option<ViewDefinition> {
        read(sql, &tokens(sql).unwrap()).unwrap()
    }

    #[test]
    fn the_query_is_kept_as_it_was_written() {
        let view = told("create view Lab.v (A, \"B b\") as\n  SELECT 'é;' AS x, -- why\n    2 FROM t ;").unwrap();
        assert_eq!(view.sql, "SELECT 'é;' AS x, -- why\n    2 FROM t");
        assert_eq!(view.columns, ["a", "B b"]);
        assert_eq!(view.name.resolve("main").unwrap().to_string(), "lab.v");
        assert!(!view.replaces && !view.if_not_exists);
        assert!(told("CREATE OR REPLACE VIEW v AS FROM t").unwrap().replaces);
        assert!(told("CREATE VIEW IF NOT EXISTS v AS (SELECT 1)").unwrap().if_not_exists);
        assert!(told("CREATE TABLE view AS SELECT 1").is_none() && told("SELECT 1").is_none());
    }

    #[test]
    fn what_is_no_view_is_refused() {
        for wrong in [
            "CREATE VIEW v",
            "CREATE VIEW v AS",
            "CREATE VIEW AS SELECT 1",
            "CREATE VIEW v (a b) AS SELECT 1",
            "CREATE VIEW v AS DROP TABLE t",
            "CREATE VIEW v AS SELECT 1; SELECT 2",
            "CREATE VIEW v AS SHOW TABLES",
            "CREATE TEMP VIEW v AS SELECT 1",
            "CREATE VIEW v AS FROM t AS OF VERSION 3",
            "CREATE OR REPLACE VIEW IF NOT EXISTS v AS SELECT 1",
        ] {
            assert!(read(wrong, &tokens(wrong).unwrap()).is_err(), "{wrong}");
        }
    }
}
