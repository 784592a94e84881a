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
    /// In one; `wrote`: a statement of it has written; `read_only`: none may.
    Open { wrote: bool, read_only: bool },
    /// In one of which a statement failed.
    Failed { wrote: bool, read_only: bool },
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
                *self = Transaction::Open { wrote: false, read_only };
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
            Transaction::Failed { wrote: false, .. } => Ok(("ROLLBACK", None)),
            Transaction::Failed { wrote: true, .. } => Err(kept()),
        }
    }

    /// ROLLBACK. What was written stays, and that is said.
    pub(crate) fn rollback(&mut self) -> Result<Option<Complaint>, Complaint> {
        match std::mem::take(self) {
            Transaction::None => Ok(Some(none())),
            Transaction::Open { wrote: false, .. } | Transaction::Failed { wrote: false, .. } => Ok(None),
            Transaction::Open { wrote: true, .. } | Transaction::Failed { wrote: true, .. } => Err(kept()),
        }
    }

    /// SAVEPOINT and RELEASE, which mean something within a block only.
    pub(crate) fn savepoint(self, tag: &str) -> Result<(), Complaint> {
        match self {
            Transaction::None => Err(Complaint::error("25P01", format!("{tag} can only be used in transaction blocks"))),
            Transaction::Open { .. } => Ok(()),
            Transaction::Failed { .. } => Err(failed()),
        }
    }

    /// ROLLBACK TO a savepoint: the block goes on, unless something was written in it.
    pub(crate) fn rollback_to(&mut self) -> Result<(), Complaint> {
        match self {
            Transaction::None => Err(Complaint::error("25P01", "ROLLBACK TO can only be used in transaction blocks")),
            Transaction::Open { wrote: true, .. } | Transaction::Failed { wrote: true, .. } => Err(kept()),
            Transaction::Open { wrote: false, .. } => Ok(()),
            Transaction::Failed { wrote: false, read_only } => {
                *self = Transaction::Open { wrote: false, read_only: *read_only };
                Ok(())
            }
        }
    }

    /// Whether a statement may run now. What a person should know of one that writes. `many`: the client has asked that a block may have
    /// several of these.
    pub(crate) fn check(&self, writes: bool, many: bool) -> Result<Option<Complaint>, Complaint> {
        match self {
            Transaction::Failed { .. } => Err(failed()),
            Transaction::Open { wrote: true, .. } if writes && !many => Err(Complaint::error(
                NOT_SUPPORTED,
                "a transaction here is one statement that writes, and this block has had one",
            )
            .hint(
                "COMMIT first, run statements outside of a block (autocommit), or SET pithead.block_writes = 'many', so that each \
                 of a block is committed when it ends",
            )),
            Transaction::Open { wrote: false, .. } if writes => Ok(Some(
                Complaint::warning("01000", "this statement is committed when it ends: ROLLBACK will not undo it")
                    .hint("a transaction here is one statement that writes"),
            )),
            _ => Ok(None),
        }
    }

    /// A statement that writes has done so.
    pub(crate) fn wrote(&mut self) {
        if let Transaction::Open { wrote, .. } = self {
            *wrote = true;
        }
    }

    /// A statement has failed.
    pub(crate) fn fail(&mut self) {
        if let Transaction::Open { wrote, read_only } = *self {
            *self = Transaction::Failed { wrote, read_only };
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
        assert!(block.savepoint("SAVEPOINT").is_err());
        block.begin(false, false).unwrap();
        block.fail();
        block.rollback_to().unwrap();
        assert_eq!(block.status(), b'T');
    }

    #[test]
    fn a_block_may_be_read_only() {
        let mut block = Transaction::default();
        assert!(block.is_read_only(true) && !block.is_read_only(false));
        block.begin(false, true).unwrap();
        assert!(block.is_read_only(false));
        block.fail();
        block.rollback_to().unwrap();
        assert!(block.is_read_only(false));
        block.set_read_only(false).unwrap();
        assert!(!block.is_read_only(true));
    }
}
