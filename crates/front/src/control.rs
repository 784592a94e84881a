//! What the server does itself: blocks, settings, and what a connection keeps.

use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::util::display::array_value_to_string;
use futures::StreamExt;
use pithead_model::Fault;
use pithead_pg_catalog::{CursorFacts, ISOLATIONS, NO_SETTING, PreparedFacts};

use crate::connection::{Halt, Talk};
use crate::error::Complaint;
use crate::kind::{COMMENT, CREATE_INDEX, CREATE_SCHEMA, Characteristics, DISCARD_ALL, StatementKind};
use crate::portal::{Hold, Started};
use crate::rows::Rows;
use crate::settings::{is_of_block, is_of_host, truth};
use crate::sql_state::{UNKNOWN_SETTING, UNKNOWN_STATEMENT, WRONG_SETTING};
use crate::transaction::{Transaction, is_read_committed};

impl Talk {
    /// Does what a statement asks the server for, and not the host.
    pub(crate) async fn control(&mut self, kind: &StatementKind) -> Result<Started, Halt> {
        let tag = match kind {
            StatementKind::Close(name) => return self.close_cursor(name.as_deref()),
            StatementKind::Show(name) => return self.show(name).await,
            StatementKind::DropSchema(schemas) => return self.drop_schemas(schemas).await,
            StatementKind::NoColumns => return row_of_nothing(),
            StatementKind::Begin(tag, block) => {
                self.begin(*block)?;
                *tag
            }
            StatementKind::Savepoint(name) => self.set_savepoint(name)?,
            StatementKind::Release(name) => self.release_savepoint(name)?,
            StatementKind::Set { name, value, local } => {
                self.set_one(name, value, *local).await?;
                "SET"
            }
            StatementKind::SetTransaction { later, to } => {
                match later {
                    true => self.set_later(*to)?,
                    false => self.set_transaction(*to)?,
                }
                "SET"
            }
            StatementKind::Reset(name) => {
                self.reset(name.as_deref()).await?;
                "RESET"
            }
            StatementKind::Discard(tag) => {
                if *tag == DISCARD_ALL {
                    self.portals.clear();
                    self.statements.clear();
                    self.reset(None).await?;
                }
                *tag
            }
            StatementKind::Prepare(prepare) => {
                self.prepare_by_name(prepare).await?;
                "PREPARE"
            }
            StatementKind::Deallocate(name) => self.deallocate(name.as_deref())?,
            StatementKind::Nothing(tag, mentioned) => {
                for one in mentioned {
                    self.find(one).await?;
                }
                self.notice(of_nothing(tag));
                *tag
            }
            _ => "",
        };
        Ok(Started::Done(tag.to_owned()))
    }

    /// Sets a setting as SET does, for the block where it is one of a block's.
    async fn set_one(&mut self, name: &str, value: &str, local: bool) -> Result<(), Halt> {
        if !is_of_block(name) {
            return self.set_in_block(name, value, local).await;
        }
        let to = characteristic(name, value)?;
        match self.transaction {
            // It would be of a transaction that this statement is alone.
            Transaction::None => {}
            _ => self.set_transaction(to)?,
        }
        Ok(())
    }

    fn begin(&mut self, block: Characteristics) -> Result<(), Halt> {
        let read_only = block.read_only.unwrap_or_else(|| self.settings.is_read_only());
        let isolation = block.isolation.map(str::to_owned).or_else(|| self.settings.show("transaction_isolation"));
        let (is_new, repeatable) = (self.transaction == Transaction::None, block.isolation.is_some_and(is_more));
        let notice = self.transaction.begin(repeatable, read_only)?;
        if is_new {
            self.savepoints.clear();
            self.settings.set_block(isolation.as_deref(), Some(read_only));
        }
        self.notice(notice);
        Ok(())
    }

    /// COMMIT. With `chain`, another block begins as this one was.
    pub(crate) async fn commit(&mut self, chain: bool) -> Result<Started, Halt> {
        let next = self.chained(chain, "COMMIT AND CHAIN")?;
        let ended = self.transaction.commit();
        self.end_block(matches!(ended, Ok(("COMMIT", _)))).await?;
        let (tag, notice) = ended?;
        self.notice(notice);
        self.begin_again(next)?;
        Ok(Started::Done(tag.to_owned()))
    }

    /// ROLLBACK.
    pub(crate) async fn rollback(&mut self, chain: bool) -> Result<Started, Halt> {
        let next = self.chained(chain, "ROLLBACK AND CHAIN")?;
        self.end_block(false).await?;
        let notice = self.transaction.rollback()?;
        self.notice(notice);
        self.begin_again(next)?;
        Ok(Started::Done("ROLLBACK".to_owned()))
    }

    /// The isolation and the access of the block, which the next one is to have, too.
    fn chained(&self, chain: bool, tag: &str) -> Result<Option<(Option<String>, bool)>, Complaint> {
        match self.transaction {
            _ if !chain => Ok(None),
            Transaction::None => Err(Complaint::error("25P01", format!("{tag} can only be used in transaction blocks"))),
            Transaction::Open { read_only, .. } | Transaction::Failed { read_only, .. } => {
                Ok(Some((self.settings.show("transaction_isolation"), read_only)))
            }
        }
    }

    fn begin_again(&mut self, next: Option<(Option<String>, bool)>) -> Result<(), Complaint> {
        if let Some((isolation, read_only)) = next {
            self.transaction.begin(false, read_only)?;
            self.savepoints.clear();
            self.settings.set_block(isolation.as_deref(), Some(read_only));
        }
        Ok(())
    }

    async fn end_block(&mut self, is_committed: bool) -> Result<(), Halt> {
        self.end_portals(is_committed);
        self.settings.end_block();
        self.end_settings(is_committed).await
    }

    /// SET TRANSACTION: of the block that is open.
    fn set_transaction(&mut self, to: Characteristics) -> Result<(), Complaint> {
        let is_open = self.transaction != Transaction::None;
        let mut notice = match to.read_only {
            Some(read_only) => self.transaction.set_read_only(read_only)?,
            None if is_open => None,
            None => self.transaction.set_read_only(false)?,
        };
        if is_open {
            self.settings.set_block(to.isolation, to.read_only);
            notice = notice.or_else(|| to.isolation.is_some_and(is_more).then(is_read_committed));
        }
        self.notice(notice);
        Ok(())
    }

    /// SET SESSION CHARACTERISTICS: of all blocks to come.
    fn set_later(&mut self, to: Characteristics) -> Result<(), Complaint> {
        if let Some(read_only) = to.read_only {
            self.settings.set("default_transaction_read_only", if read_only { "on" } else { "off" })?;
        }
        if let Some(isolation) = to.isolation {
            self.settings.set("default_transaction_isolation", isolation)?;
        }
        Ok(())
    }

    fn deallocate(&mut self, name: Option<&str>) -> Result<&'static str, Complaint> {
        let Some(name) = name else {
            self.statements.clear();
            return Ok("DEALLOCATE ALL");
        };
        let what = || Complaint::error(UNKNOWN_STATEMENT, format!("prepared statement {name:?} does not exist"));
        self.statements.remove(name).map(|_| "DEALLOCATE").ok_or_else(what)
    }

    async fn reset(&mut self, name: Option<&str>) -> Result<(), Halt> {
        let Some(name) = name else {
            let of_host: Vec<String> = self.host_first.keys().cloned().collect();
            for name in self.settings.changed().into_iter().chain(of_host) {
                self.set(&name, "default").await?;
            }
            return Ok(());
        };
        self.set(name, "default").await
    }

    async fn show(&mut self, name: &str) -> Result<Started, Halt> {
        let schema = shown_schema(name);
        if name == "search_path" {
            self.look_along_again().await?;
        }
        let value = if is_of_host(name) { self.shown_by_host(name).await? } else { self.settings.show(name) };
        let Some(value) = value else { return Err(unknown_setting(name).into()) };
        let column = Arc::new(StringArray::from(vec![value]));
        let batch = RecordBatch::try_new(Arc::clone(&schema), vec![column]).map_err(Fault::bug);
        Ok(Started::Rows(Rows::new(Arc::clone(&schema), futures::stream::iter([batch]).boxed()), schema, "SHOW"))
    }

    /// A setting of the host's, whose rows are its name and its value.
    pub(crate) async fn shown_by_host(&mut self, name: &str) -> Result<Option<String>, Halt> {
        let mut rows = self.session.run(&format!("SHOW {name}")).await?.rows;
        while let Some(batch) = rows.next().await {
            let batch = batch?;
            if batch.num_rows() > 0 && batch.num_columns() > 1 {
                return Ok(array_value_to_string(batch.column(1), 0).ok());
            }
        }
        Ok(None)
    }

    /// What comes before a statement that the host reads: names are looked up as they are now.
    pub(crate) async fn before_statement(&mut self, sql: &str) -> Result<(), Halt> {
        self.transaction.check(false, false)?;
        if mentions(sql, "pg_prepared_statements") || mentions(sql, "pg_cursors") {
            *self.settings.listed.lock() = (self.prepared_facts(), self.cursor_facts());
        }
        self.look_along_again().await
    }

    /// Sets what functions of a statement have asked for, once it has ended.
    pub(crate) async fn set_what_was_asked(&mut self) -> Result<(), Halt> {
        for asked in self.settings.take_asked() {
            // Outside of a block, what is local ends with its statement.
            if !(asked.local && self.transaction == Transaction::None) {
                self.set_one(&asked.name, &asked.value, asked.local).await?;
            }
        }
        Ok(())
    }

    fn prepared_facts(&self) -> Vec<PreparedFacts> {
        let named = self.statements.iter().filter(|(name, _)| !name.is_empty());
        let facts = named.map(|(name, prepared)| PreparedFacts {
            name: name.clone(),
            sql: prepared.sql.clone(),
            types: prepared.types.clone(),
            by_sql: prepared.by_sql,
        });
        facts.collect()
    }

    fn cursor_facts(&self) -> Vec<CursorFacts> {
        let cursors = self.portals.iter().filter(|(name, portal)| !name.is_empty() && portal.prepared.schema.is_some());
        let facts = cursors.map(|(name, portal)| CursorFacts {
            name: name.clone(),
            sql: portal.prepared.sql.clone(),
            is_held: portal.hold != Hold::No,
            is_binary: portal.binary.first() == Some(&true),
        });
        facts.collect()
    }
}

/// Whether a text has a word in it, in letters of any size.
pub(crate) fn mentions(text: &str, word: &str) -> bool {
    text.as_bytes().windows(word.len()).any(|part| part.eq_ignore_ascii_case(word.as_bytes()))
}

/// Whether an isolation promises more than is kept here.
fn is_more(isolation: &str) -> bool {
    matches!(isolation, "repeatable read" | "serializable")
}

/// `transaction_isolation` and `transaction_read_only`, set as other settings are.
fn characteristic(name: &str, value: &str) -> Result<Characteristics, Complaint> {
    let value = value.to_lowercase();
    let wrong = || Complaint::error(WRONG_SETTING, format!("invalid value for {name}: {value:?}"));
    if name == "transaction_isolation" {
        let isolation = ISOLATIONS.iter().find(|known| **known == value).copied().ok_or_else(wrong)?;
        return Ok(Characteristics { isolation: Some(isolation), read_only: None });
    }
    Ok(Characteristics { isolation: None, read_only: Some(truth(&value).ok_or_else(wrong)?) })
}

/// What a person should know of a statement for which nothing is done.
fn of_nothing(tag: &str) -> Option<Complaint> {
    match tag {
        CREATE_INDEX => Some(Complaint::warning("01000", "there are no indexes here, so that none was made")),
        CREATE_SCHEMA => Some(Complaint::warning("01000", "a schema is there with its first table")),
        COMMENT => Some(Complaint::notice("comments are not kept here")),
        _ => None,
    }
}

/// That there is no setting of a name.
pub(crate) fn unknown_setting(name: &str) -> Complaint {
    Complaint::error(UNKNOWN_SETTING, format!("{NO_SETTING} {name:?}"))
}

/// The one row of a SELECT without columns.
fn row_of_nothing() -> Result<Started, Halt> {
    let schema: SchemaRef = Arc::new(Schema::empty());
    let one = RecordBatchOptions::new().with_row_count(Some(1));
    let batch = RecordBatch::try_new_with_options(Arc::clone(&schema), Vec::new(), &one).map_err(Fault::bug);
    Ok(Started::Rows(Rows::new(Arc::clone(&schema), futures::stream::iter([batch]).boxed()), schema, "SELECT"))
}

/// The column of SHOW.
pub(crate) fn shown_schema(name: &str) -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new(name, DataType::Utf8, true)]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_blocks_are_read() {
        let read = |name: &str, value: &str| characteristic(name, value).map(|read| (read.isolation, read.read_only)).ok();
        assert_eq!(read("transaction_isolation", "Serializable"), Some((Some("serializable"), None)));
        assert_eq!(read("transaction_read_only", "ON"), Some((None, Some(true))));
        assert_eq!((read("transaction_isolation", "snapshot"), read("transaction_read_only", "maybe")), (None, None));
        assert!(is_more("serializable") && !is_more("read committed"));
        assert!(mentions("FROM PG_Cursors", "pg_cursors") && !mentions("pg_cursor", "pg_cursors"));
    }
}
