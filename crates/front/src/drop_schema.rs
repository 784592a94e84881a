//! DROP SCHEMA: the views and tables of a domain, which is there as long as it has one.

use std::sync::Arc;

use pithead_host::{Commitment, Parameters, Right};
use pithead_pg_catalog::quoted;

use crate::connection::{Halt, Talk, answering, during};
use crate::error::Complaint;
use crate::lexer::{Token, TokenKind};
use crate::portal::Started;
use crate::sql_state::{DEPENDED_ON, SYNTAX, UNKNOWN_SCHEMA};
use crate::work::in_own_task;

/// A DROP SCHEMA, read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct DropSchema {
    pub(crate) names: Vec<String>,
    pub(crate) if_exists: bool,
    /// Whether what is in them goes, too.
    pub(crate) cascades: bool,
}

impl DropSchema {
    /// Reads one; `rest` follows the word SCHEMA.
    pub(crate) fn read(rest: &[Token]) -> Result<DropSchema, Complaint> {
        let wrong = || Complaint::error(SYNTAX, "expected DROP SCHEMA [IF EXISTS] name [, …] [CASCADE | RESTRICT]");
        let (if_exists, rest) = match rest {
            [first, second, rest @ ..] if first.is("if") && second.is("exists") => (true, rest),
            rest => (false, rest),
        };
        let end = rest.iter().position(|token| token.is("cascade") || token.is("restrict") || token.is_sign(';'));
        let (names, behind) = rest.split_at(end.unwrap_or(rest.len()));
        let name = |tokens: &[Token]| match tokens {
            [Token { kind: TokenKind::Word(name), .. }] if !name.contains('.') => Ok(name.clone()),
            [Token { kind: TokenKind::Name(name), .. }] => Ok(name.clone()),
            _ => Err(wrong()),
        };
        let names = names.split(|token| token.is_sign(',')).map(name).collect::<Result<_, _>>()?;
        if behind.iter().skip(1).any(|token| !token.is_sign(';')) {
            return Err(wrong());
        }
        Ok(DropSchema { names, if_exists, cascades: behind.first().is_some_and(|word| word.is("cascade")) })
    }
}

impl Talk {
    /// Drops the views of domains, and then the tables of each together.
    pub(crate) async fn drop_schemas(&mut self, schemas: &DropSchema) -> Result<Started, Halt> {
        let statements = self.what_goes(schemas).await?;
        self.check_writes(!statements.is_empty())?;
        let (session, commitment) = (Arc::clone(&self.session), Arc::<Commitment>::default());
        let sends = Arc::clone(&commitment);
        let dropping = in_own_task(&self.entrance.work, async move {
            for statement in statements {
                session.run_until(&statement, &Parameters::default(), &sends).await?;
            }
            Ok(())
        });
        let done = answering(&mut self.link, &self.place.cancel, &commitment, None, dropping).await?;
        if commitment.is_sent() {
            self.transaction.wrote();
        }
        done?;
        Ok(Started::Done("DROP SCHEMA".to_owned()))
    }

    /// The statements that drop what is in domains. An error where it may not go, or where there is no domain.
    async fn what_goes(&mut self, schemas: &DropSchema) -> Result<Vec<String>, Halt> {
        let host = self.front.host.clone();
        let snapshot = during(&mut self.link, &self.place.cancel, host.fleet().snapshot()).await??;
        let mut statements = Vec::new();
        for domain in &schemas.names {
            self.session.check(Right::Write, domain)?;
            let of_domain = |name: &str| format!("{}.{}", quoted(domain), quoted(name));
            let views = snapshot.views().filter(|(name, _)| name.domain == *domain);
            let views: Vec<String> = views.map(|(name, _)| of_domain(&name.dataset)).collect();
            let tables = snapshot.datasets().map(|found| found.name()).filter(|name| name.domain == *domain);
            let tables: Vec<String> = tables.map(|name| of_domain(&name.dataset)).collect();
            let is_there = snapshot.domains().any(|(known, _)| known == domain);
            match views.len() + tables.len() {
                0 if is_there => {}
                0 if schemas.if_exists => {
                    self.notice(Some(Complaint::notice(format!("schema {domain:?} does not exist, skipping"))));
                }
                0 => {
                    let missing = Complaint::error(UNKNOWN_SCHEMA, format!("schema {domain:?} does not exist"));
                    return Err(missing.hint("a schema is there with its first table").into());
                }
                count if !schemas.cascades => {
                    let message = format!("cannot drop schema {domain}, which has tables and views, {count} in all");
                    return Err(Complaint::error(DEPENDED_ON, message).hint("DROP SCHEMA … CASCADE drops them, too").into());
                }
                _ => {}
            }
            statements.extend(views.iter().map(|view| format!("DROP VIEW IF EXISTS {view}")));
            if !tables.is_empty() {
                statements.push(format!("DROP TABLE IF EXISTS {}", tables.join(", ")));
            }
        }
        Ok(statements)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lexer::tokens;

    #[test]
    fn names_and_what_becomes_of_their_tables_are_read() {
        let read = |sql: &str| DropSchema::read(&tokens(sql).collect::<Vec<_>>());
        let schemas = |names: &[&str], if_exists, cascades| DropSchema {
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            if_exists,
            cascades,
        };
        assert_eq!(read("Lab").unwrap(), schemas(&["lab"], false, false));
        assert_eq!(read("if exists \"My D\", lab cascade;").unwrap(), schemas(&["My D", "lab"], true, true));
        assert_eq!(read("lab RESTRICT").unwrap(), schemas(&["lab"], false, false));
        for sql in ["", "IF EXISTS", "a.b", "a b", "a,", "a cascade b"] {
            assert!(read(sql).is_err(), "{sql}");
        }
    }
}
