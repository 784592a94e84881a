//! [`Sample`]: some of the codes of texts, by which a search chooses what to look for.

/// The most codes of a sample, and the runs that they are taken in.
const CODES: usize = 4_096;
const RUNS: usize = 8;

/// A sample of codes. Its runs need not begin with a code.
#[derive(Debug)]
pub(super) struct Sample {
    pub(super) codes: Vec<u8>,
    /// The share of each byte among them.
    pub(super) shares: [f32; 256],
}

impl Default for Sample {
    /// A sample of nothing.
    fn default() -> Self {
        Self { codes: Vec::new(), shares: [0.0; 256] }
    }
}

impl Sample {
    /// A sample of these codes, taken from all over them.
    pub(super) fn of(codes: &[u8]) -> Self {
        let runs = codes.chunks(codes.len().div_ceil(RUNS).max(1));
        let codes: Vec<u8> = runs.flat_map(|run| run.iter().copied().take(CODES / RUNS)).collect();
        let mut shares = [0.0; 256];
        for code in &codes {
            shares[usize::from(*code)] += 1.0;
        }
        shares.iter_mut().for_each(|share| *share /= codes.len().max(1) as f32);
        Self { codes, shares }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_of_everywhere() {
        for length in [0, 1, 7, 8, 100, 5_000, 100_000] {
            let codes: Vec<u8> = (0..length).map(|place| (place * 4 / length) as u8).collect();
            let sample = Sample::of(&codes);
            assert_eq!(sample.codes.len(), length.min(CODES));
            if length >= 100 {
                assert!((0..4).all(|code| (0.2..0.3).contains(&sample.shares[code])), "{length}: {:?}", &sample.shares[..4]);
            }
        }
    }
}
