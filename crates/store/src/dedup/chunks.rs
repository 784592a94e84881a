//! How values are cut into chunks, and what a chunk is known by.

use std::fmt::{self, Display, Formatter};
use std::str::FromStr;

use fastcdc::v2020::FastCDC;
use sha1::{Digest as _, Sha1};

/// Sizes of content-defined chunks, in bytes: large enough that most of a value is still read in one piece.
const CDC_BYTES: (usize, usize, usize) = (8 << 10, 32 << 10, 128 << 10);

/// How values are cut into chunks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Chunking {
    /// Where the content says so (FastCDC: Xia et al. 2016; see `docs/bibliography.md`), about 32 KiB each, known by BLAKE3. Data that
    /// was moved by an insertion is found as well.
    #[default]
    ContentDefined,
    /// Each 1,024 bytes, known by SHA-1, as the light deduplication of Park et al. 2022.
    Kib,
    /// Each 512 bytes, known by SHA-1, as their heavy one.
    HalfKib,
}

/// A part of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Chunk {
    pub at: usize,
    pub bytes: usize,
    /// What it is known by: the first 8 bytes of its hash. Chunks that have the same are compared byte by byte.
    pub print: u64,
}

impl Chunking {
    /// The least bytes of a run of equal bytes that is worth a share of its own.
    pub(super) fn run_bytes_min(self) -> usize {
        match self {
            Chunking::ContentDefined => CDC_BYTES.0,
            Chunking::Kib => 1 << 10,
            Chunking::HalfKib => 512,
        }
    }

    /// The most shares of a recipe of so many bytes, so that a value is still read in a few large pieces.
    pub(super) fn shares_max(self, bytes: usize) -> usize {
        match self {
            Chunking::ContentDefined => 4 + bytes / (64 << 10),
            Chunking::Kib | Chunking::HalfKib => crate::recipe::FOUND_SHARES_MAX,
        }
    }

    /// Cuts on from `at`, over at least so many bytes or to the end.
    pub(super) fn cut(self, value: &[u8], mut at: usize, bytes: usize, chunks: &mut Vec<Chunk>) -> usize {
        let upto = at.saturating_add(bytes.max(1)).min(value.len());
        let (least, average, most) = CDC_BYTES;
        let cdc = (self == Chunking::ContentDefined).then(|| FastCDC::new(value, least, average, most));
        while at < upto {
            let end = match (&cdc, self) {
                (Some(cdc), _) => cdc.cut(at, value.len() - at).1,
                (None, Chunking::HalfKib) => at + 512,
                (None, _) => at + 1_024,
            };
            let end = end.clamp(at + 1, value.len());
            chunks.push(Chunk { at, bytes: end - at, print: self.print(&value[at..end]) });
            at = end;
        }
        at
    }

    fn print(self, chunk: &[u8]) -> u64 {
        let first = |hash: &[u8]| hash.first_chunk::<8>().map_or(0, |first| u64::from_le_bytes(*first));
        match self {
            Chunking::ContentDefined => first(blake3::hash(chunk).as_bytes()),
            Chunking::Kib | Chunking::HalfKib => first(&Sha1::digest(chunk)),
        }
    }
}

impl Display for Chunking {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Chunking::ContentDefined => "cdc",
            Chunking::Kib => "1KiB",
            Chunking::HalfKib => "0.5KiB",
        })
    }
}

impl FromStr for Chunking {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let all = [Chunking::ContentDefined, Chunking::Kib, Chunking::HalfKib];
        all.into_iter().find(|chunking| chunking.to_string().eq_ignore_ascii_case(text)).ok_or_else(|| {
            let text: String = text.chars().take(40).collect();
            format!("chunks are cut by cdc (where the content says so), 1KiB or 0.5KiB, not {text:?}")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(bytes: usize, seed: u64) -> Vec<u8> {
        let words = (0..bytes.div_ceil(8) as u64).map(|word| blake3::hash(&(word ^ (seed << 40)).to_le_bytes()));
        words.flat_map(|hash| hash.as_bytes()[..8].to_vec()).take(bytes).collect()
    }

    #[test]
    fn chunks_cover_a_value_however_it_is_cut_in_steps() {
        let value = noise(700_001, 1);
        for chunking in [Chunking::ContentDefined, Chunking::Kib, Chunking::HalfKib] {
            let (mut at_once, mut in_steps, mut at) = (Vec::new(), Vec::new(), 0);
            assert_eq!(chunking.cut(&value, 0, usize::MAX, &mut at_once), value.len());
            while at < value.len() {
                at = chunking.cut(&value, at, 64 << 10, &mut in_steps);
            }
            assert_eq!(at_once, in_steps);
            let mut end = 0;
            for chunk in &at_once {
                assert_eq!(chunk.at, end);
                end += chunk.bytes;
            }
            assert_eq!(end, value.len());
            assert_eq!(chunking.to_string().parse(), Ok(chunking));
        }
        assert!("2KiB".parse::<Chunking>().is_err());
    }

    #[test]
    fn content_decides_where_chunks_end() {
        let value = noise(1 << 20, 2);
        let moved = [&b"something before it"[..], &value].concat();
        let prints = |value: &[u8]| {
            let mut chunks = Vec::new();
            Chunking::ContentDefined.cut(value, 0, usize::MAX, &mut chunks);
            chunks.into_iter().map(|chunk| chunk.print).collect::<Vec<_>>()
        };
        let (before, after) = (prints(&value), prints(&moved));
        let same = after.iter().filter(|print| before.contains(print)).count();
        assert!(same >= before.len() - 2, "{same} of {}", before.len());
    }
}
