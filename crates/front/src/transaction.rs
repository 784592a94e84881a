//! [`Transaction`]: a block from BEGIN to COMMIT or ROLLBACK.
//!
//! A statement that writes is a transaction of its own: it is visible as a whole, or not at all, once it has ended. A block may hold one
//! of them, and cannot take it back.

use crate::error::Complaint;
use crate::sql_state::{FAILED_TRANSACTION, NOT_SUPPORTED};

/// Where a connection is with regard to blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Transaction {
    /// In none.
    #[default]
    None,
    /// In one; `writes`: statements of it that have written; `read_only`: none may.
    Open { writes: u32, read_only: bool },
    /// In one of which a statement failed.
    Failed { writes: u32, read_only: bool },
}

impl Transaction {
    /// As ReadyForQuery tells it.
    pub(crate) fn status(self) -> u8 {
        match self {
            Transaction::None => b'I',
            Transaction::Open { .. } => b'T',
            Transaction::Failed { .. } => b'E',
        }
    }

    /// BEGIN, or READ ONLY of one that has begun. What a person should know.
    pub(crate) fn begin(&mut self, repeatable: bool, read_only: bool) -> Result<Option<Complaint>, Complaint> {
        match self {
            Transaction::None => {
                *self = Transaction::Open { writes: 0, read_only };
                Ok(repeatable.then(is_read_committed))
            }
            Transaction::Open { .. } => Ok(Some(Complaint::warning("25001", "there is already a transaction in progress"))),
            Transaction::Failed { .. } => Err(failed()),
        }
    }

    /// SET TRANSACTION READ ONLY or READ WRITE: for the block that is open.
    pub(crate) fn set_read_only(&mut self, to: bool) -> Result<Option<Complaint>, Complaint> {
        match self {
            Transaction::None => {
                Ok(Some(Complaint::warning("25P01", "SET TRANSACTION can only be used in transaction blocks")))
            }
            Transaction::Open { read_only, .. } => {
                *read_only = to;
                Ok(None)
            }
            Transaction::Failed { .. } => Err(failed()),
        }
    }

    /// Whether statements of this block, or outside of one by the session's default, may not write.
    pub(crate) fn is_read_only(self, default: bool) -> bool {
        match self {
            Transaction::Open { read_only, .. } | Transaction::Failed { read_only, .. } => read_only,
            Transaction::None => default,
        }
    }

    /// COMMIT. The tag that it is answered with, and what a person should know.
    pub(crate) fn commit(&mut self) -> Result<(&'static str, Option<Complaint>), Complaint> {
        match std::mem::take(self) {
            Transaction::None => Ok(("COMMIT", Some(none()))),
            Transaction::Open { .. } => Ok(("COMMIT", None)),
            Transaction::Failed { writes: 0, .. } => Ok(("ROLLBACK", None)),
            Transaction::Failed { .. } => Err(kept()),
        }
    }

    /// ROLLBACK. What was written stays, and that is said.
    pub(crate) fn rollback(&mut self) -> Result<Option<Complaint>, Complaint> {
        match std::mem::take(self) {
            Transaction::None => Ok(Some(none())),
            Transaction::Open { writes: 0, .. } | Transaction::Failed { writes: 0, .. } => Ok(None),
            Transaction::Open { .. } | Transaction::Failed { .. } => Err(kept()),
        }
    }

    /// The statements of the block that have written, for one that means something within a block only.
    pub(crate) fn writes_in_block(self, tag: &str) -> Result<u32, Complaint> {
        match self {
            Transaction::None => Err(Complaint::error("25P01", format!("{tag} can only be used in transaction blocks"))),
            Transaction::Open { writes, .. } | Transaction::Failed { writes, .. } => Ok(writes),
        }
    }

    /// ROLLBACK TO a savepoint, before which so many statements had written: the block goes on, unless another one has since.
    pub(crate) fn rollback_to(&mut self, writes_then: u32) -> Result<(), Complaint> {
        match *self {
            Transaction::Open { writes, read_only } | Transaction::Failed { writes, read_only } if writes == writes_then => {
                *self = Transaction::Open { writes, read_only };
                Ok(())
            }
            _ => Err(kept()),
        }
    }

    /// Whether a statement may run now. What a person should know of one that writes. `many`: the client has asked that a block may have
    /// several of these.
    pub(crate) fn check(&self, writes: bool, many: bool) -> Result<Option<Complaint>, Complaint> {
        match self {
            Transaction::Failed { .. } => Err(failed()),
            Transaction::Open { writes: 1.., .. } if writes && !many => Err(Complaint::error(
                NOT_SUPPORTED,
                "a transaction here is one statement that writes, and this block has had one",
            )
            .hint(
                "COMMIT first, run statements outside of a block (autocommit), or SET pithead.block_writes = 'many', so that each \
                 of a block is committed when it ends",
            )),
            Transaction::Open { writes: 0, .. } if writes => Ok(Some(
                Complaint::warning("01000", "this statement is committed when it ends: ROLLBACK will not undo it")
                    .hint("a transaction here is one statement that writes"),
            )),
            _ => Ok(None),
        }
    }

    /// A statement that writes has done so.
    pub(crate) fn wrote(&mut self) {
        if let Transaction::Open { writes, .. } = self {
            *writes = writes.saturating_add(1);
        }
    }

    /// A statement has failed.
    pub(crate) fn fail(&mut self) {
        if let Transaction::Open { writes, read_only } = *self {
            *self = Transaction::Failed { writes, read_only };
        }
    }
}

/// What a person should know who asks for more.
pub(crate) fn is_read_committed() -> Complaint {
    let notice = "each statement of this transaction sees the newest data: the isolation is read committed";
    Complaint::warning(NOT_SUPPORTED, notice)
}

fn failed() -> Complaint {
    let message = "current transaction is aborted, commands ignored until end of transaction block";
    Complaint::error(FAILED_TRANSACTION, message).hint("ROLLBACK ends it")
}

fn none() -> Complaint {
    Complaint::warning("25P01", "there is no transaction in progress")
}

fn kept() -> Complaint {
    Complaint::error(NOT_SUPPORTED, "what was written in this block cannot be rolled back: it was committed by its statement")
        .hint("a transaction here is one statement that writes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_holds_one_statement_that_writes() {
        let mut block = Transaction::default();
        assert!(block.begin(false, false).unwrap().is_none() && block.status() == b'T');
        assert!(block.check(true, false).unwrap().is_some());
        block.wrote();
        assert!(block.check(false, false).unwrap().is_none());
        assert_eq!(block.check(true, false).unwrap_err().code, NOT_SUPPORTED);
        assert!(block.check(true, true).unwrap().is_none());
        assert!(block.rollback().is_err() && block == Transaction::None);
        block.begin(false, false).unwrap();
        block.fail();
        assert_eq!(block.check(false, false).unwrap_err().code, FAILED_TRANSACTION);
        assert_eq!(block.commit().unwrap().0, "ROLLBACK");
        assert!(block.commit().unwrap().1.is_some());
        assert!(block.writes_in_block("SAVEPOINT").is_err());
        block.begin(false, false).unwrap();
        block.fail();
        block.rollback_to(0).unwrap();
        assert_eq!(block.status(), b'T');
        block.wrote();
        block.fail();
        assert!(block.rollback_to(0).is_err() && block.status() == b'E', "what was written since stays");
        block.rollback_to(1).unwrap();
        assert_eq!((block.status(), block.writes_in_block("SAVEPOINT").unwrap()), (b'T', 1));
    }

    #[test]
    fn a_block_may_be_read_only() {
        let mut block = Transaction::default();
        assert!(block.is_read_only(true) && !block.is_read_only(false));
        block.begin(false, true).unwrap();
        assert!(block.is_read_only(false));
        block.fail();
        block.rollback_to(0).unwrap();
        assert!(block.is_read_only(false));
        block.set_read_only(false).unwrap();
        assert!(!block.is_read_only(true));
    }
}
