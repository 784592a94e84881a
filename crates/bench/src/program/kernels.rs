// What is measured in the sandbox and beside it: this file is compiled into the benchmark and into its module.
//
// Passes over many bytes are loops of a fixed length, which compilers unroll or turn to SIMD, in functions of their own, where nothing
// rare is called: in the sandbox each turn of a loop that is left looks at the time, and registers are few where a function is long.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, DefaultHasher};

/// What is searched for.
pub const NEEDLE: &[u8] = b"Needle, in a haystack";
/// Steps of a walk through a graph.
pub const STEPS: u64 = 20_000;

/// Words of a text, by how often they come. A word is a run of letters of ASCII, in lower case.
pub struct Words {
    /// Words of at most eight letters, each in its place or in the next one; where both are taken, it is one of the others. The first
    /// place is the empty word's, which is between two bytes that are no letters.
    short: Box<[Slot; PLACES + 1]>,
    others: HashMap<Vec<u8>, u64, BuildHasherDefault<DefaultHasher>>,
    /// The beginning of a word at the end of what was taken so far.
    word: Vec<u8>,
}

/// A word, its first letter in the lowest byte, and how often it came.
#[derive(Clone, Copy)]
struct Slot {
    letters: u64,
    count: u64,
}

const PLACES: usize = 1 << 17;
/// What no letters are: a slot without a word.
const FREE: u64 = !0;

impl Words {
    pub fn new() -> Words {
        let mut short = vec![Slot { letters: FREE, count: 0 }; PLACES + 1];
        short[0].letters = 0;
        Words { short: short.try_into().ok().unwrap(), others: HashMap::default(), word: Vec::new() }
    }

    /// Takes the next bytes of the text.
    pub fn take(&mut self, mut text: &[u8]) {
        loop {
            if self.word.is_empty() {
                text = &text[take_known(&mut self.short, text)..];
            }
            let length = text.iter().position(|byte| !byte.is_ascii_alphabetic());
            self.word.extend_from_slice(&text[..length.unwrap_or(text.len())]);
            let Some(length) = length else { return };
            self.end();
            text = &text[length + 1..];
        }
    }

    /// Ends a word of any length.
    fn end(&mut self) {
        self.word.make_ascii_lowercase();
        let letters = self.word.iter().rev().fold(0, |letters, letter| letters << 8 | u64::from(*letter));
        let mut near = self.short[place(letters)..].iter_mut().take(if self.word.len() > 8 { 0 } else { 2 });
        if let Some(slot) = near.find(|slot| slot.letters == letters || slot.letters == FREE) {
            *slot = Slot { letters, count: slot.count + 1 };
        } else if let Some(count) = self.others.get_mut(&self.word) {
            *count += 1;
        } else {
            self.others.insert(self.word.clone(), 1);
        }
        self.word.clear();
    }

    /// Words and different words.
    pub fn finish(mut self) -> (u64, u64) {
        self.end();
        let counts = self.short[1..].iter().map(|slot| slot.count).chain(self.others.into_values());
        counts.filter(|count| *count != 0).fold((0, 0), |(words, different), count| (words + count, different + 1))
    }
}

#[inline(always)]
fn place(letters: u64) -> usize {
    (letters.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - PLACES.trailing_zeros())) as usize
}

/// Counts words from the beginning of a text, up to one that is not in its place or near the end. Returns where that one is.
#[inline(never)]
fn take_known(short: &mut [Slot; PLACES + 1], text: &[u8]) -> usize {
    /// By how many letters are taken of eight bytes.
    const MASKS: [u64; 9] = [0, 0xff, 0xffff, 0xff_ffff, !0 >> 32, !0 >> 24, !0 >> 16, !0 >> 8, !0];
    let mut at = 0;
    while let Some(block) = text[at..].first_chunk::<72>() {
        let (mut start, mut gaps) = (0, gaps(block.first_chunk().unwrap()));
        let words = gaps.count_ones().min(8);
        let mut take = || {
            let end = gaps.trailing_zeros() as usize;
            let mask = MASKS.get(end - start)?;
            let letters = (u64::from_le_bytes(*block[start..].first_chunk().unwrap()) | 0x2020_2020_2020_2020) & mask;
            let place = place(letters);
            let mut slot = &mut short[place];
            if slot.letters != letters {
                slot = &mut short[place + 1];
                if slot.letters != letters {
                    return None;
                }
            }
            slot.count += 1;
            (start, gaps) = (end + 1, gaps & gaps.wrapping_sub(1));
            Some(())
        };
        // More than eight are left to the next block, for which of blocks has how many cannot be foretold.
        let done = if words == 8 { (0..8).try_for_each(|_| take()) } else { (0..words).try_for_each(|_| take()) };
        at += start;
        if done.is_none() || start == 0 {
            break;
        }
    }
    at
}

/// Which of the bytes are no letters: a bit each.
#[inline(always)]
fn gaps(bytes: &[u8; 64]) -> u64 {
    // The highest bit of each byte tells, and the product has those of eight in its highest byte.
    let flags = bytes.map(|byte| (byte | 0x20).wrapping_sub(b'a').saturating_add(0x80 - 26) & 0x80);
    let (eights, _) = flags.as_chunks::<8>();
    eights.iter().fold(0, |gaps, eight| gaps >> 8 | u64::from_le_bytes(*eight).wrapping_mul(0x0002_0408_1020_4081) & 0xff << 56)
}

/// Tells whether a number is in a range by one signed comparison: SIMD of WebAssembly has no other of 64 bits.
fn within(from: i64, to: i64) -> impl Fn(&i64) -> bool + Copy {
    let shift = i64::MIN.wrapping_sub(from);
    let end = to.max(from).wrapping_add(shift);
    move |number| number.wrapping_add(shift) < end
}

/// How many numbers are in a range.
pub fn count(numbers: &[i64], from: i64, to: i64) -> u64 {
    #[inline(never)]
    fn count(numbers: &[i64; 64], is_within: impl Fn(&i64) -> bool) -> u64 {
        numbers.iter().fold(0, |found: u64, number| found.wrapping_add(u64::from(is_within(number))))
    }
    let is_within = within(from, to);
    let (chunks, rest) = numbers.as_chunks();
    let found: u64 = chunks.iter().map(|chunk| count(chunk, is_within)).sum();
    found + rest.iter().filter(|number| is_within(number)).count() as u64
}

/// The places of numbers that are in a range. Returns how many were written to `places`, which has room for all.
pub fn select(numbers: &[i64], from: i64, to: i64, places: &mut [u32]) -> usize {
    /// A bit for each number, eight together.
    #[inline(never)]
    fn masks(numbers: &[i64; 64], is_within: impl Fn(&i64) -> bool, masks: &mut [u64; 8]) {
        for (mask, eight) in masks.iter_mut().zip(numbers.as_chunks::<8>().0) {
            *mask = (0..8).fold(0, |mask, bit| mask | u64::from(is_within(&eight[bit])) << bit);
        }
    }
    let is_within = within(from, to);
    let (mut found, mut bits) = (0, [0; 8]);
    let (chunks, rest) = numbers.as_chunks();
    for (first, chunk) in (0_u32..).step_by(64).zip(chunks) {
        masks(chunk, is_within, &mut bits);
        for (first, mask) in (first..).step_by(8).zip(bits) {
            let room: &mut [u32; 8] = places[found..].first_chunk_mut().unwrap();
            *room = BITS[mask as usize & 255].map(|place| first.wrapping_add(place));
            found += mask.count_ones() as usize;
        }
    }
    for (place, _) in (64 * chunks.len() as u32..).zip(rest).filter(|(_, number)| is_within(number)) {
        places[found] = place;
        found += 1;
    }
    found
}

/// The places of the bits of each byte.
static BITS: [[u32; 8]; 256] = {
    let (mut places, mut at) = ([[0; 8]; 256], 0);
    while at < 8 * places.len() {
        let (byte, bit) = (at / 8, at % 8);
        if byte >> bit & 1 == 1 {
            places[byte][(byte & ((1 << bit) - 1)).count_ones() as usize] = bit as u32;
        }
        at += 1;
    }
    places
};

/// The sum of places.
pub fn sum(places: &[u32]) -> u64 {
    #[inline(never)]
    fn sum(places: &[u32; 64]) -> u64 {
        places.iter().fold(0, |sum, place| sum.wrapping_add(u64::from(*place)))
    }
    let (chunks, rest) = places.as_chunks();
    chunks.iter().map(sum).sum::<u64>() + rest.iter().map(|place| u64::from(*place)).sum::<u64>()
}
