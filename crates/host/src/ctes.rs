//! Queries of WITH that are computed once: their hints, and those whose values are drawn anew each time.

use std::ops::ControlFlow;

use datafusion::common::{DataFusionError, not_impl_err};
use datafusion::execution::SessionState;
use datafusion::logical_expr::Volatility;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{Cte, Expr, Ident, Query, Statement as Sql, TableFactor, Visitor, With};
use datafusion::sql::sqlparser::tokenizer::{Span, Token, TokenWithSpan};
use pithead_syntax::{any_expression, walk};

use crate::dialect::normal;
use crate::tokens::{is_gap, is_word};

/// Takes MATERIALIZED and NOT MATERIALIZED away, which say how a query of WITH is computed, and nothing of its rows.
pub(crate) fn drop_hints(tokens: &mut Vec<TokenWithSpan>) {
    let words: Vec<usize> = (0..tokens.len()).filter(|place| !is_gap(&tokens[*place])).collect();
    let is = |place: usize, word: &str| is_word(&tokens[words[place]], word);
    let mut dropped = Vec::new();
    for place in 1..words.len().saturating_sub(1) {
        if !is(place, "MATERIALIZED") || tokens[words[place + 1]].token != Token::LParen {
            continue;
        }
        match () {
            () if is(place - 1, "AS") => dropped.push(words[place]),
            () if place > 1 && is(place - 1, "NOT") && is(place - 2, "AS") => dropped.extend([words[place - 1], words[place]]),
            () => {}
        }
    }
    dropped.into_iter().rev().for_each(|place| drop(tokens.remove(place)));
}

/// An error where a query of WITH has values such as those of `random()`, and is read more than once: the engine would compute it for each
/// place, and each would have others.
pub(crate) fn refuse_drawn_again(state: &SessionState, statement: &Statement) -> Result<(), DataFusionError> {
    let Statement::Statement(sql) = statement else { return Ok(()) };
    let spreads = matches!(sql.as_ref(), Sql::Update(_) | Sql::Delete(_) | Sql::Merge(_));
    match walk(sql, &mut DrawnAgain { state, spreads, read: vec![] }) {
        ControlFlow::Break(name) => not_impl_err!(
            "WITH {name}, whose values are others each time, as those of random(), is read more than once; store them in a table first"
        ),
        ControlFlow::Continue(()) => Ok(()),
    }
}

struct DrawnAgain<'a> {
    state: &'a SessionState,
    /// Whether a WITH before the statement is in each of its subqueries: the same words at the same place of the text. In a query, they
    /// are one expression that two clauses name.
    spreads: bool,
    /// Names of queries that are drawn anew, and how often a query behind their WITH reads them.
    read: Vec<(Ident, usize)>,
}

impl Visitor for DrawnAgain<'_> {
    type Break = String;

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<String> {
        let Some(with) = query.with.as_ref().filter(|with| !with.recursive) else { return ControlFlow::Continue(()) };
        for name in self.drawn(with) {
            let is_same = |(other, _): &&(Ident, usize)| {
                self.spreads && *other == *name && other.span == name.span && name.span != Span::empty()
            };
            let before: usize = self.read.iter().filter(is_same).map(|(_, reads)| reads).sum();
            let here = reads(query, &normal(name));
            if before + here > 1 {
                return ControlFlow::Break(normal(name));
            }
            self.read.push((name.clone(), here));
        }
        ControlFlow::Continue(())
    }
}

impl DrawnAgain<'_> {
    /// The queries of a WITH that are drawn anew, and those that read one.
    fn drawn<'w>(&self, with: &'w With) -> Vec<&'w Ident> {
        let mut drawn: Vec<&Ident> = Vec::new();
        for Cte { alias, query: of, .. } in &with.cte_tables {
            let reads_drawn = drawn.iter().any(|name| reads(of, &normal(name)) > 0);
            if reads_drawn || self.draws(of) {
                drawn.push(&alias.name);
            }
        }
        drawn
    }

    fn draws(&self, query: &Query) -> bool {
        any_expression(query, |expr| {
            let Expr::Function(function) = expr else { return false };
            let known = self.state.scalar_functions().get(&function.name.to_string().to_lowercase());
            known.is_some_and(|known| known.signature().volatility == Volatility::Volatile)
        })
    }
}

/// How often a query reads a table of this name.
fn reads(query: &Query, name: &str) -> usize {
    struct Reads<'a>(&'a str, usize);
    impl Visitor for Reads<'_> {
        type Break = ();

        fn pre_visit_table_factor(&mut self, table: &TableFactor) -> ControlFlow<()> {
            if let TableFactor::Table { name, args: None, .. } = table
                && let [part] = name.0.as_slice()
                && part.as_ident().is_some_and(|ident| normal(ident) == self.0)
            {
                self.1 += 1;
            }
            ControlFlow::Continue(())
        }
    }
    let mut reads = Reads(name, 0);
    let _ = walk(query, &mut reads);
    reads.1
}

#[cfg(test)]
mod tests {
    use pithead_door::Door;
    use pithead_fakes::FakeDoor;
    use pithead_functions::{EngineOptions, session_state};

    use super::*;
    use crate::statement::{Parsed, parse};
    use crate::tokens::tokens;
    use crate::{Host, HostOptions, Parameters};

    #[test]
    fn hints_go_and_columns_of_their_names_stay() {
        for (sql, expected) in [
            ("WITH x AS MATERIALIZED (SELECT 1) SELECT 2", "WITH x AS (SELECT 1) SELECT 2"),
            ("WITH x(a) as not materialized (SELECT 1) TABLE x", "WITH x(a) as (SELECT 1) TABLE x"),
            ("SELECT 1 AS materialized, (2)", "SELECT 1 AS materialized, (2)"),
        ] {
            let mut read = tokens(sql).unwrap();
            drop_hints(&mut read);
            let text: String = read.iter().map(|token| token.token.to_string()).collect();
            assert_eq!(text.split_whitespace().collect::<Vec<_>>(), expected.split_whitespace().collect::<Vec<_>>());
        }
    }

    #[tokio::test]
    async fn what_is_drawn_anew_is_read_once() {
        let drive: std::sync::Arc<dyn Door> = FakeDoor::new(1);
        let session = Host::connect(vec![drive], HostOptions::default()).await.unwrap().session();
        let run = async |sql: &str| session.run(sql).await.map(|_| ());
        for sql in [
            "WITH x AS (SELECT random() AS r) SELECT * FROM x",
            "WITH x AS MATERIALIZED (SELECT 1 AS r) SELECT * FROM x JOIN x AS y ON x.r = y.r",
            "WITH x AS (SELECT random() AS r), y AS (SELECT * FROM x) SELECT * FROM y",
        ] {
            run(sql).await.unwrap_or_else(|fault| panic!("{sql}: {fault}"));
        }
        for sql in [
            "WITH x AS (SELECT random() AS r) SELECT count(*) FROM x JOIN x AS y ON x.r = y.r",
            "WITH x AS (SELECT uuid() AS u) SELECT (SELECT u FROM x) = (SELECT u FROM x)",
            "WITH x AS (SELECT random() AS r), y AS (SELECT r FROM x) SELECT * FROM y AS a, y AS b",
        ] {
            let fault = run(sql).await.unwrap_err();
            assert!(fault.message.contains("is read more than once"), "{sql}: {fault}");
        }
    }

    /// ROLLUP (1) writes the subquery out again, and it is the same one.
    #[test]
    fn what_two_clauses_name_is_read_once() {
        let state = session_state(&EngineOptions::default());
        let once = "(WITH x AS (SELECT random() AS r) SELECT r > 2 FROM x)";
        let sql = format!("SELECT {once} AS v, count(*) FROM t GROUP BY ROLLUP (1)");
        let Parsed::Query(mut query) = parse(&sql, &Parameters::default()).unwrap() else { panic!("{sql}") };
        crate::dialect::in_the_engines_words(&state, &mut query).unwrap();
        assert_eq!(query.to_string().matches("WITH x").count(), 2, "{query}");
        assert!(refuse_drawn_again(&state, &query).is_ok());
    }

    #[test]
    fn what_is_drawn_anew_before_a_statement_that_writes_is_read_once() {
        let state = session_state(&EngineOptions::default());
        for (sql, again) in [
            ("WITH x AS (SELECT random() AS r) DELETE FROM t WHERE a IN (SELECT r FROM x) OR b IN (SELECT r FROM x)", true),
            ("WITH x AS (SELECT random() AS r) DELETE FROM t WHERE a IN (SELECT r FROM x)", false),
            ("WITH x AS (SELECT 1 AS r) DELETE FROM t WHERE a IN (SELECT r FROM x) OR b IN (SELECT r FROM x)", false),
            ("WITH x AS (SELECT random() AS r) UPDATE t SET a = (SELECT r FROM x), b = (SELECT r FROM x)", true),
            ("WITH x AS (SELECT random() AS r), y AS (SELECT r FROM x) UPDATE t SET a = (SELECT r FROM y), b = 1", false),
            ("WITH x AS (SELECT random() AS r) UPDATE t SET b = x.r FROM x WHERE a > (SELECT r FROM x)", true),
            (
                "DELETE FROM t WHERE a IN (WITH x AS (SELECT random() AS r) SELECT r FROM x) \
                 OR b IN (WITH x AS (SELECT random() AS r) SELECT r FROM x)",
                false,
            ),
        ] {
            let Parsed::Write { statement, .. } = parse(sql, &Parameters::default()).unwrap() else { panic!("{sql}") };
            assert_eq!(refuse_drawn_again(&state, &statement).is_err(), again, "{sql}");
        }
    }
}
