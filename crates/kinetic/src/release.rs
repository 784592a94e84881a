//! [`Release`]: what GETLOG tells of the program that runs.

use std::time::UNIX_EPOCH;

use chrono::DateTime;
use sha1::{Digest as _, Sha1};

/// The version of the protocol that is spoken here.
pub(crate) const PROTOCOL: &str = "3.0.7";

/// Which program this is. Clients compare these texts with those of other drives, and some do not take empty ones.
#[derive(Clone, Debug)]
pub(crate) struct Release {
    /// When the executable that runs was written, which is when it was built or installed. Two builds of one source may differ in
    /// nothing else, so it is not a part of them. Where the machine does not tell, it is the first moment of 1970.
    pub date: String,
    /// Stands for the program's source: a hash, SHA-1 in hexadecimal digits, of `pithead` and the release's number.
    pub source_hash: String,
    /// Stands for the protocol's source: the same hash of `Kinetic` and the protocol's version.
    pub protocol_hash: String,
}

impl Release {
    /// Of the program that runs.
    pub fn running() -> Release {
        let written = std::env::current_exe().and_then(|executable| executable.metadata()?.modified());
        let seconds = written.ok().and_then(|written| written.duration_since(UNIX_EPOCH).ok()).map_or(0, |age| age.as_secs());
        Release {
            date: date_of(seconds),
            source_hash: hash(concat!("pithead ", env!("CARGO_PKG_VERSION"))),
            protocol_hash: hash(&format!("Kinetic {PROTOCOL}")),
        }
    }
}

/// Seconds since 1970 as a date that people read.
fn date_of(seconds: u64) -> String {
    let date = i64::try_from(seconds).ok().and_then(|seconds| DateTime::from_timestamp(seconds, 0)).unwrap_or_default();
    date.format("%a %b %d %H:%M:%S UTC %Y").to_string()
}

fn hash(text: &str) -> String {
    Sha1::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_and_hashes_are_what_others_compute() {
        assert_eq!(date_of(1_795_247_660), "Sat Nov 21 07:54:20 UTC 2026");
        assert_eq!(date_of(0), "Thu Jan 01 00:00:00 UTC 1970");
        assert_eq!(date_of(u64::MAX), date_of(0));
        // The first case of FIPS 180-4.
        assert_eq!(hash("abc"), "a9993e364706816aba3e25717850c26c9cd0d89d");
    }

    #[test]
    fn the_program_that_runs_says_what_it_is() {
        let release = Release::running();
        assert!(!release.date.ends_with("1970"), "{}", release.date);
        assert!(release.source_hash.len() == 40 && release.source_hash != release.protocol_hash);
    }
}
