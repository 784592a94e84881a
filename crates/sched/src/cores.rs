//! Lists of cores, pinning to them, and the priority of threads there.

use std::ops::RangeInclusive;
use std::sync::Once;

use core_affinity::CoreId;

use crate::PoolError;

/// More cores than Linux supports.
const CORE_MAX: usize = 8_191;

/// Reads `0,2-3`: cores and ranges of cores. Each core is returned once, in the order written.
pub fn parse_cores(text: &str) -> Result<Vec<usize>, PoolError> {
    let malformed = || PoolError::CoreList(text.to_string());
    let mut cores = Vec::new();
    for part in text.split(',') {
        for core in parse_range(part.trim()).ok_or_else(malformed)? {
            if cores.contains(&core) {
                return Err(malformed());
            }
            cores.push(core);
        }
    }
    Ok(cores)
}

fn parse_range(part: &str) -> Option<RangeInclusive<usize>> {
    let (first, last) = part.split_once('-').unwrap_or((part, part));
    let (first, last) = (parse_core(first)?, parse_core(last)?);
    (first <= last).then_some(first..=last)
}

fn parse_core(text: &str) -> Option<usize> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|core| digits && *core <= CORE_MAX)
}

/// Refuses an empty list and cores on which this process may not run.
pub fn check_cores(wanted: &[usize]) -> Result<(), PoolError> {
    let cores: Vec<usize> = core_affinity::get_core_ids().unwrap_or_default().into_iter().map(|core| core.id).collect();
    if wanted.is_empty() {
        return Err(PoolError::CoreList(String::new()));
    }
    match wanted.iter().find(|core| !cores.contains(core)) {
        Some(&core) => Err(PoolError::NoCore { core, cores }),
        None => Ok(()),
    }
}

/// Pins the calling thread to the core. [`check_cores`] has accepted the core, so a refusal only costs speed, and is told once.
pub(crate) fn pin(core: usize) {
    static TOLD: Once = Once::new();
    if !core_affinity::set_for_current(CoreId { id: core }) {
        TOLD.call_once(|| tracing::warn!(core, "the system did not let a thread be pinned; threads go on without"));
    }
}

/// The lowest priority that the kernel gives by weight. A thread of it takes 1.4% of a core that another one wants, too.
pub(crate) const NICE_MAX: i32 = 19;

/// Gives the calling thread the lowest priority. A refusal only costs speed, and is told once.
///
/// Not `SCHED_IDLE`: a step holds locks of the store for moments, and whoever waits for one that such a thread holds waits
/// many times as long (`docs/internals/services.md`).
pub(crate) fn lower_priority() {
    static TOLD: Once = Once::new();
    // SAFETY: the call has no pointers. On Linux it is about the calling thread alone, and cuts what is too much.
    let nice = unsafe { libc::nice(2 * NICE_MAX + 1) };
    if nice != NICE_MAX {
        TOLD.call_once(|| tracing::warn!("the system did not let a thread's priority be lowered; threads go on without"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_read_as_written() {
        assert_eq!(parse_cores("0,2-3").unwrap(), [0, 2, 3]);
        assert_eq!(parse_cores("7").unwrap(), [7]);
        assert_eq!(parse_cores(" 4-4 , 1").unwrap(), [4, 1]);
        for bad in ["", ",", "1,", "a", "-1", "1-", "3-2", "1,1", "0-2,1", "+1", "0-99999999999", "1-2-3"] {
            assert!(parse_cores(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn cores_that_are_not_there_are_refused() {
        let there = core_affinity::get_core_ids().unwrap()[0].id;
        check_cores(&[there]).unwrap();
        assert!(matches!(check_cores(&[there, CORE_MAX]), Err(PoolError::NoCore { core: CORE_MAX, .. })));
        assert!(check_cores(&[]).is_err());
    }
}
