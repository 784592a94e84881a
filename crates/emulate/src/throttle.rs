//! What slows a real drive down to a profile.

use pithead_model::Counts;

use crate::fleet::{core_seconds, whole_page};
use crate::model::ModelError;
use crate::profile::{Cpu, Parts, Profile};
use crate::work::PageWork;

/// What a drive grants a session at least, in bytes: with less, it refuses all of them (`drive/src/resources/budget.rs`).
const SESSION_BYTES_MIN: u64 = 16 << 20;

/// The speeds of a profile's device, as limits for a drive on this machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Throttle {
    /// Cores for users' work.
    pub cores: u64,
    /// The speed of one of them, as a share of a core of this machine. Above 1: this machine is the slower one.
    pub core_share: f64,
    /// What one of them takes for what a drive counts.
    pub core: CoreSeconds,
    /// What the medium delivers, bytes a second.
    pub medium_bytes_per_s: f64,
    /// From a read's start until its first byte, in seconds.
    pub read_latency_s: f64,
    /// What the device reads ahead, in bytes.
    pub page_buffer_bytes: u64,
    /// What the link carries, bytes a second.
    pub link_bytes_per_s: f64,
    /// From one GET of its host to the next, at most, in seconds; 0: the device speaks first.
    pub poll_s: f64,
    /// The same at least.
    pub poll_least_s: f64,
    /// The device's memory, in bytes.
    pub memory_bytes: u64,
}

/// What a core takes for what a drive counts, in seconds: the same as the model says, term by term.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CoreSeconds {
    /// Bytes of a page.
    pub page_bytes: u64,
    /// For a page, with its way through the memory.
    pub page_s: f64,
    /// For a row, which is compared once.
    pub row_s: f64,
    /// For a row that passes, besides.
    pub match_s: f64,
    /// For a row that an aggregate takes in, besides.
    pub sum_s: f64,
}

impl CoreSeconds {
    fn of(parts: &Parts, cpu: &Cpu) -> Self {
        // A page costs its part of all pages; what is in it costs by itself. What a session will hold is not known when it begins,
        // so it is taken to fit the fast memory.
        let seconds = |work: &PageWork| cpu.seconds(work, 0.0);
        let empty = seconds(&PageWork::default());
        let beside = |work: PageWork| seconds(&work) - empty;
        Self {
            page_bytes: parts.medium.page_bytes.whole(),
            page_s: seconds(&whole_page(parts)),
            row_s: beside(PageWork { compares: 1, ..PageWork::default() }),
            match_s: beside(PageWork { matches: 1, ..PageWork::default() }),
            sum_s: beside(PageWork { sums: 1, ..PageWork::default() }),
        }
    }
}

impl Throttle {
    /// The limits that make a drive on this machine as fast as a profile's. Work that the drive counts takes what the profile's core
    /// takes for it. Other work takes a share: cores are compared by work that a drive's operators did here, of which `counts` is what
    /// it counted, and `here_s` the seconds that a core took for it.
    pub fn of(profile: &Profile, counts: &Counts, here_s: f64) -> Result<Throttle, ModelError> {
        let there_s = core_seconds(profile, counts)?;
        let parts = profile.parts.as_ref().ok_or_else(|| ModelError::Native(profile.name.clone()))?;
        let cpu = parts.cpu.as_ref().ok_or_else(|| ModelError::NoCpu(profile.name.clone()))?;
        let memory_bytes = parts.memory.dram_bytes.whole();
        if memory_bytes < SESSION_BYTES_MIN {
            return Err(ModelError::Memory { name: profile.name.clone(), has: memory_bytes, least: SESSION_BYTES_MIN });
        }
        Ok(Throttle {
            cores: cpu.cores.whole(),
            core_share: here_s / there_s,
            core: CoreSeconds::of(parts, cpu),
            medium_bytes_per_s: parts.medium.bytes_per_s(),
            read_latency_s: parts.medium.read_latency_s.value,
            page_buffer_bytes: parts.memory.page_buffer_bytes.whole(),
            link_bytes_per_s: parts.link.bytes_per_s.value,
            poll_s: parts.link.poll_s.value,
            poll_least_s: parts.link.poll_least_s.value,
            memory_bytes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{builtin_names, find};

    fn counts() -> Counts {
        Counts {
            rows: 1_000_000,
            read_bytes: 16_384_000,
            stored_bytes: 16_384_000,
            passed_rows: 400_000,
            passed_bytes: 3_200_000,
            out_rows: 1,
            out_bytes: 8,
        }
    }

    #[test]
    fn a_core_is_compared_by_what_the_model_takes_for_the_same_work() {
        let throttle = Throttle::of(&find("newport").unwrap(), &counts(), 0.01).unwrap();
        // 1,000 pages with 8,560 cycles each, and 8.56 for each comparison, match and sum, at 1.2 GHz.
        let cycles = 1000.0 * 8560.0 + 8.56 * (1_000_000.0 + 400_000.0 + 400_000.0);
        assert!((throttle.core_share - 0.01 / (cycles / 1.2e9)).abs() < 1e-6, "{throttle:?}");
        assert_eq!((throttle.cores, throttle.link_bytes_per_s), (4, 3.2e9));
    }

    #[test]
    fn what_counts_cost_adds_up_to_what_the_model_takes() {
        for name in ["smart-ssd", "pm1725-biscuit", "kinetic-envoy", "newport", "dpu-array"] {
            let profile = find(name).unwrap();
            let core = Throttle::of(&profile, &counts(), 0.01).unwrap().core;
            let counts = counts();
            let pages = counts.read_bytes as f64 / core.page_bytes as f64;
            let passed = counts.passed_rows as f64;
            let sum = pages * core.page_s + counts.rows as f64 * core.row_s + passed * (core.match_s + core.sum_s);
            let modelled = core_seconds(&profile, &counts).unwrap();
            assert!((sum / modelled - 1.0).abs() < 1e-6, "{name}: {sum} {modelled}");
        }
    }

    #[test]
    fn a_device_whose_memory_is_too_small_for_any_session_is_refused() {
        let with = |bytes: f64| {
            let mut profile = find("smart-ssd").unwrap();
            profile.parts.as_mut().unwrap().memory.dram_bytes.value = bytes;
            Throttle::of(&profile, &counts(), 0.01)
        };
        let told = with(2e6).unwrap_err().to_string();
        assert!(told.contains("smart-ssd has 2.0 MB of memory") && told.contains("16.8 MB"), "{told}");
        assert_eq!(with(f64::from(16 << 20)).unwrap().memory_bytes, 16 << 20);
    }

    #[test]
    fn every_device_with_cores_has_limits_and_the_others_say_why_not() {
        for name in builtin_names() {
            let profile = find(name).unwrap();
            let has_cores = profile.parts.as_ref().map(|parts| parts.cpu.is_some());
            match (Throttle::of(&profile, &counts(), 0.01), has_cores) {
                (Ok(throttle), Some(true)) => assert!(throttle.core_share > 0.0 && throttle.medium_bytes_per_s > 0.0),
                (Err(ModelError::NoCpu(_)), Some(false)) | (Err(ModelError::Native(_)), None) => {}
                other => panic!("{name}: {other:?}"),
            }
        }
    }
}
