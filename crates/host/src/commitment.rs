//! [`Commitment`]: until when a statement can be cancelled.
//!
//! What a statement changes is sent at its end, by one commit. From then on others may see it, and to say that it was cancelled would have
//! its client do it once more. So whoever would cancel it comes too late: a timeout, an operator, its own client. It goes on to its
//! outcome, and tells that.

use parking_lot::Mutex;
use pithead_fleet::{Committed, Edit, Fleet, NotCommitted};
use pithead_model::{Blame, Fault};

/// Until when a statement can be cancelled, and whether it was.
#[derive(Debug, Default)]
pub struct Commitment(Mutex<Stage>);

#[derive(Debug)]
enum Stage {
    /// So many changes were sent that were made, or may have been. `asked`: why it was to be cancelled since.
    Going { sent: usize, asked: Option<Fault> },
    /// It was cancelled before it sent any.
    Cancelled(Fault),
}

impl Default for Stage {
    fn default() -> Self {
        Stage::Going { sent: 0, asked: None }
    }
}

impl Commitment {
    /// Cancels the statement, unless a change of it was sent. Whether it is cancelled.
    pub fn cancel(&self, why: Fault) -> bool {
        let mut stage = self.0.lock();
        match &mut *stage {
            Stage::Cancelled(_) => true,
            Stage::Going { sent: 0, .. } => {
                *stage = Stage::Cancelled(why);
                true
            }
            Stage::Going { asked, .. } => {
                asked.get_or_insert(why);
                false
            }
        }
    }

    /// Whether a change was sent that was made, or may have been.
    pub fn is_sent(&self) -> bool {
        matches!(*self.0.lock(), Stage::Going { sent: 1.., .. })
    }

    /// A change is sent next. A fault: the statement is cancelled, and it must not be.
    pub(crate) fn send(&self) -> Result<(), Fault> {
        match &mut *self.0.lock() {
            Stage::Cancelled(why) => Err(why.clone()),
            Stage::Going { sent, .. } => {
                *sent += 1;
                Ok(())
            }
        }
    }

    /// It is certain that a change was not made which was sent.
    pub(crate) fn withdraw(&self) {
        let mut stage = self.0.lock();
        if let Stage::Going { sent, asked } = &mut *stage {
            *sent = sent.saturating_sub(1);
            if let Some(why) = asked.take_if(|_| *sent == 0) {
                *stage = Stage::Cancelled(why);
            }
        }
    }

    /// A fault if the statement is cancelled, so that it does not begin again.
    pub(crate) fn check(&self) -> Result<(), Fault> {
        match &*self.0.lock() {
            Stage::Cancelled(why) => Err(why.clone()),
            Stage::Going { .. } => Ok(()),
        }
    }

    /// Does what changes something and says of its outcome no more than a fault.
    pub(crate) async fn change<T>(&self, change: impl Future<Output = Result<T, Fault>>) -> Result<T, Fault> {
        self.send()?;
        let outcome = change.await;
        // What a drive does not answer may have been made.
        if outcome.as_ref().is_err_and(|fault| matches!(fault.blame, Blame::User | Blame::Access | Blame::Conflict)) {
            self.withdraw();
        }
        outcome
    }

    /// Makes a change, unless the statement is cancelled.
    pub(crate) async fn commit<E: Edit>(&self, fleet: &Fleet, edit: &E) -> Result<Committed<E::Output>, NotCommitted> {
        self.send()?;
        let outcome = fleet.commit(edit).await;
        if outcome.as_ref().is_err_and(|not| not.certain) {
            self.withdraw();
        }
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why(what: &str) -> Fault {
        Fault::new(Blame::Cancelled, what)
    }

    #[test]
    fn what_is_cancelled_sends_nothing() {
        let commitment = Commitment::default();
        assert!(commitment.check().is_ok() && !commitment.is_sent());
        assert!(commitment.cancel(why("first")) && commitment.cancel(why("second")));
        assert_eq!((commitment.send().unwrap_err().message, commitment.is_sent()), ("first".to_owned(), false));
    }

    #[test]
    fn what_was_sent_is_not_cancelled_unless_it_was_not_made() {
        let commitment = Commitment::default();
        commitment.send().unwrap();
        assert!(commitment.is_sent() && !commitment.cancel(why("first")) && !commitment.cancel(why("second")));
        assert!(commitment.check().is_ok());
        commitment.withdraw();
        assert!(!commitment.is_sent());
        assert_eq!(commitment.check().unwrap_err().message, "first", "it does not begin again");
        assert!(commitment.send().is_err());
    }

    #[test]
    fn what_was_made_stays_so_whatever_comes_of_the_next_change() {
        let commitment = Commitment::default();
        commitment.send().unwrap();
        commitment.send().unwrap();
        assert!(!commitment.cancel(why("first")));
        commitment.withdraw();
        assert!(commitment.is_sent() && commitment.check().is_ok() && commitment.send().is_ok());
    }
}
