//! The table that a statement writes, where texts that it writes may be UUIDs: PostgreSQL reads them as such in columns of that type.

use arrow::datatypes::SchemaRef;
use pithead_host::Right;

use crate::connection::{Halt, Talk, during};
use crate::copy_in::dataset_name;
use crate::lexer::{Token, TokenKind, tokens};

impl Talk {
    /// Looks at the columns of the table that a statement writes, if that matters. One that is not there is the host's to complain of.
    pub(crate) async fn look_at_written(&mut self, sql: &str) -> Result<(), Halt> {
        let found = match table(sql).filter(|_| has_uuid(sql)) {
            Some(table) => self.columns_of(table).await?,
            None => None,
        };
        *self.settings.written.lock() = found;
        Ok(())
    }

    async fn columns_of(&mut self, table: &str) -> Result<Option<SchemaRef>, Halt> {
        let name = dataset_name(table, |bare| self.session.domain_of(bare));
        let Some(name) = name.ok().filter(|name| self.session.check(Right::Write, &name.domain).is_ok()) else {
            return Ok(None);
        };
        let host = self.front.host.clone();
        let snapshot = during(&mut self.link, &self.place.cancel, host.fleet().snapshot()).await??;
        Ok(snapshot.readable(&name).ok().map(|found| SchemaRef::clone(&found.dataset().schema)))
    }
}

/// Whether one of the texts of a statement is a UUID.
fn has_uuid(sql: &str) -> bool {
    sql.split('\'').any(is_uuid)
}

/// Whether a text has the form of a UUID, with hyphens and braces or without.
fn is_uuid(text: &str) -> bool {
    const DIGITS: usize = 32;
    const LONGEST: usize = DIGITS + 6;
    let is_sign = |byte: &u8| matches!(byte, b'-' | b'{' | b'}');
    (DIGITS..=LONGEST).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_hexdigit() || is_sign(&byte))
        && text.bytes().filter(u8::is_ascii_hexdigit).count() == DIGITS
}

/// The name of the table that an INSERT or an UPDATE is of, as it is written.
fn table(sql: &str) -> Option<&str> {
    let is_name = |token: &Token| matches!(token.kind, TokenKind::Word(_) | TokenKind::Name(_));
    let mut words = tokens(sql);
    let verb = words.next()?;
    let first = match verb.text().as_str() {
        "insert" => words.next().filter(|token| token.is("into")).and_then(|_| words.next())?,
        "update" => words.next()?,
        _ => return None,
    };
    // Its parts follow one another without spaces.
    let mut end = first.end;
    for part in words.take_while(is_name) {
        if part.start != end {
            break;
        }
        end = part.end;
    }
    is_name(&first).then(|| &sql[first.start..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11";

    #[test]
    fn texts_that_are_uuids_are_seen() {
        assert!(has_uuid(&format!("INSERT INTO t VALUES (1, '{ID}')")));
        assert!(is_uuid(&format!("{{{}}}", ID.to_uppercase())) && is_uuid(&ID.replace('-', "")));
        assert!(!has_uuid(&format!("INSERT INTO t VALUES ('{ID}x', 'a', '')")));
    }

    #[test]
    fn the_table_that_is_written_is_found() {
        for (sql, expected) in [
            ("insert into t values (1)", Some("t")),
            ("INSERT INTO lab.\"My T\"(a) SELECT 1", Some("lab.\"My T\"")),
            ("/* x */ UPDATE main.t AS u SET a = 1", Some("main.t")),
            ("DELETE FROM t", None),
            ("SELECT 1", None),
            ("INSERT", None),
        ] {
            assert_eq!(table(sql), expected, "{sql}");
        }
    }
}
