//! [`Savepoints`]: the names that a block has given to moments of it. What is written is committed by its statement, so a block can go
//! back to such a moment only where nothing was written since.

use crate::connection::Talk;
use crate::error::Complaint;
use crate::sql_state::{TOO_LARGE, UNKNOWN_SAVEPOINT};

/// Savepoints of a block at most. Drivers that set one before each statement do not always release them.
const SAVEPOINTS_MAX: usize = 10_000;
/// Bytes of a name that count, as in PostgreSQL.
const NAME_BYTES: usize = 63;

/// The savepoints of a block, the oldest first. Two may have one name: the later one is meant.
#[derive(Debug, Default)]
pub(crate) struct Savepoints(Vec<Savepoint>);

#[derive(Debug)]
struct Savepoint {
    name: String,
    /// Statements of the block that had written by then.
    writes: u32,
}

impl Savepoints {
    /// The block has ended, or a new one begins.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    fn set(&mut self, name: &str, writes: u32) -> Result<(), Complaint> {
        if self.0.len() >= SAVEPOINTS_MAX {
            let what = format!("a block may have {SAVEPOINTS_MAX} savepoints, and this would be one more");
            return Err(Complaint::error(TOO_LARGE, what).hint("RELEASE those that are not needed any more"));
        }
        self.0.push(Savepoint { name: known(name).to_owned(), writes });
        Ok(())
    }

    /// It goes, and those after it.
    fn release(&mut self, name: &str) -> Result<(), Complaint> {
        let place = self.place(name)?;
        self.0.truncate(place);
        Ok(())
    }

    /// It stays, and those after it go, where `is_free` says of the statements that had written when it was set that it may be so.
    fn back_to(&mut self, name: &str, is_free: impl FnOnce(u32) -> Result<(), Complaint>) -> Result<(), Complaint> {
        let place = self.place(name)?;
        is_free(self.0[place].writes)?;
        self.0.truncate(place + 1);
        Ok(())
    }

    fn place(&self, name: &str) -> Result<usize, Complaint> {
        let place = self.0.iter().rposition(|savepoint| savepoint.name == known(name));
        place.ok_or_else(|| Complaint::error(UNKNOWN_SAVEPOINT, format!("savepoint \"{name}\" does not exist")))
    }
}

fn known(name: &str) -> &str {
    let end = name.char_indices().map(|(at, character)| at + character.len_utf8()).take_while(|end| *end <= NAME_BYTES).last();
    &name[..end.unwrap_or(0)]
}

impl Talk {
    /// SAVEPOINT.
    pub(crate) fn set_savepoint(&mut self, name: &str) -> Result<&'static str, Complaint> {
        let writes = self.transaction.writes_in_block("SAVEPOINT")?;
        self.savepoints.set(name, writes)?;
        Ok("SAVEPOINT")
    }

    /// RELEASE.
    pub(crate) fn release_savepoint(&mut self, name: &str) -> Result<&'static str, Complaint> {
        self.transaction.writes_in_block("RELEASE SAVEPOINT")?;
        self.savepoints.release(name)?;
        Ok("RELEASE")
    }

    /// ROLLBACK TO: the block goes on, unless something was written since.
    pub(crate) fn rollback_to_savepoint(&mut self, name: &str) -> Result<(), Complaint> {
        self.transaction.writes_in_block("ROLLBACK TO SAVEPOINT")?;
        let transaction = &mut self.transaction;
        self.savepoints.back_to(name, |writes| transaction.rollback_to(writes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code<T>(outcome: Result<T, Complaint>) -> Option<(&'static str, String)> {
        outcome.err().map(|complaint| (complaint.code, complaint.message))
    }

    #[test]
    fn names_are_known_until_they_are_released() {
        let mut savepoints = Savepoints::default();
        for (name, writes) in [("a", 0), ("b", 0), ("a", 1), ("c", 1)] {
            savepoints.set(name, writes).unwrap();
        }
        assert!(savepoints.back_to("a", |_| Err(Complaint::error(TOO_LARGE, "no"))).is_err());
        let back = |savepoints: &mut Savepoints, name: &str, expected: u32| {
            savepoints.back_to(name, |writes| {
                assert_eq!(writes, expected, "{name}");
                Ok(())
            })
        };
        back(&mut savepoints, "c", 1).unwrap();
        back(&mut savepoints, "a", 1).unwrap();
        assert_eq!(code(back(&mut savepoints, "c", 1)), Some(("3B001", "savepoint \"c\" does not exist".into())));
        savepoints.release("a").unwrap();
        back(&mut savepoints, "b", 0).unwrap();
        back(&mut savepoints, "a", 0).unwrap();
        assert_eq!(code(savepoints.release("b")).map(|(code, _)| code), Some("3B001"), "it went with what came before it");
        savepoints.clear();
        assert!(savepoints.release("a").is_err());
    }

    #[test]
    fn names_and_their_number_are_bounded() {
        let mut savepoints = Savepoints::default();
        let long = "é".repeat(40);
        savepoints.set(&long, 0).unwrap();
        savepoints.back_to(&"é".repeat(31), |_| Ok(())).expect("PostgreSQL knows a name by its first 63 bytes");
        while savepoints.0.len() < SAVEPOINTS_MAX {
            savepoints.set("s", 0).unwrap();
        }
        assert_eq!(code(savepoints.set("s", 0)).map(|(code, _)| code), Some(TOO_LARGE));
    }
}
