//! [`Shutdown`]: the end of a CSE, known to all of its parts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pithead_model::{Blame, Fault};

/// Whether a CSE has begun to stop: then it takes no new work. Clones are of the same CSE.
#[derive(Clone, Debug)]
pub struct Shutdown {
    keeper: &'static str,
    has_begun: Arc<AtomicBool>,
}

impl Shutdown {
    /// Of a CSE that runs. `keeper`: what kind of CSE it is, such as "drive".
    pub fn of(keeper: &'static str) -> Self {
        Self { keeper, has_begun: Arc::default() }
    }

    /// What kind of CSE it is.
    pub fn keeper(&self) -> &'static str {
        self.keeper
    }

    /// From now on the CSE takes no new work.
    pub fn begin(&self) {
        self.has_begun.store(true, Ordering::Release);
    }

    /// Whether it takes no new work any more.
    pub fn has_begun(&self) -> bool {
        self.has_begun.load(Ordering::Acquire)
    }

    /// A fault where it takes no new work any more.
    pub fn check(&self) -> Result<(), Fault> {
        if self.has_begun() { Err(self.fault()) } else { Ok(()) }
    }

    /// What hosts are told then.
    pub fn fault(&self) -> Fault {
        Fault::new(Blame::Device, format!("the {} is stopping", self.keeper)).hint("start it again, then try again")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_parts_of_a_cse_see_its_end() {
        let shutdown = Shutdown::of("drive");
        let part = shutdown.clone();
        part.check().unwrap();
        shutdown.begin();
        assert!(part.has_begun() && part.check().unwrap_err().message.contains("drive"));
    }
}
