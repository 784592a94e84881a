//! [`check_clock`]: the engine cannot tell the time before 1970.

use std::time::SystemTime;

use pithead_model::{Blame, Fault};

/// Refuses to go on where the system's clock is before 1970: the engine reads it for each statement, and would panic.
pub fn check_clock() -> Result<(), Fault> {
    check(SystemTime::now())
}

fn check(now: SystemTime) -> Result<(), Fault> {
    match now < SystemTime::UNIX_EPOCH {
        true => Err(Fault::new(Blame::Device, "the clock of this machine is before 1970").hint("set it, then try again")),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_clock_before_1970_is_refused() {
        assert!(check_clock().is_ok() && check(SystemTime::UNIX_EPOCH).is_ok());
        assert_eq!(check(SystemTime::UNIX_EPOCH - Duration::from_secs(1)).unwrap_err().blame, Blame::Device);
    }
}
