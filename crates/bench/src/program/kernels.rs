// What is measured in the sandbox and beside it: this file is compiled into the benchmark and into its module.

use std::collections::HashMap;

/// What is searched for.
pub const NEEDLE: &[u8] = b"Needle, in a haystack";
/// Steps of a walk through a graph.
pub const STEPS: u64 = 20_000;

/// Words of a text, by how often they come. A word is a run of letters of ASCII, in lower case.
pub struct Words {
    counts: HashMap<Vec<u8>, u64, std::hash::BuildHasherDefault<Fnv>>,
    /// The beginning of a word at the end of what was taken so far.
    word: Vec<u8>,
}

impl Words {
    pub fn new() -> Words {
        Words { counts: HashMap::default(), word: Vec::new() }
    }

    /// Takes the next bytes of the text.
    pub fn take(&mut self, text: &[u8]) {
        for byte in text {
            if byte.is_ascii_alphabetic() {
                self.word.push(byte.to_ascii_lowercase());
            } else if !self.word.is_empty() {
                self.end();
            }
        }
    }

    fn end(&mut self) {
        match self.counts.get_mut(&self.word) {
            Some(count) => *count += 1,
            None => drop(self.counts.insert(self.word.clone(), 1)),
        }
        self.word.clear();
    }

    /// Words and different words.
    pub fn finish(mut self) -> (u64, u64) {
        if !self.word.is_empty() {
            self.end();
        }
        (self.counts.values().sum(), self.counts.len() as u64)
    }
}

/// The hash of Fowler, Noll and Vo (FNV-1a, 64 bits).
pub struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Fnv {
        Fnv(0xcbf2_9ce4_8422_2325)
    }
}

impl std::hash::Hasher for Fnv {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// How many numbers are in a range.
pub fn count(numbers: &[i64], from: i64, to: i64) -> u64 {
    numbers.iter().map(|number| u64::from((from <= *number) & (*number < to))).sum()
}

/// The places of numbers that are in a range. Returns how many were written to `places`, which has room for all.
pub fn select(numbers: &[i64], from: i64, to: i64, places: &mut [u32]) -> usize {
    let mut found = 0;
    for (place, number) in (0_u32..).zip(numbers) {
        if let Some(room) = places.get_mut(found) {
            *room = place;
        }
        found += usize::from((from <= *number) & (*number < to));
    }
    found
}
