//! Mutants of valid inputs.

use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;

use crate::Target;

/// Mutants grow to at most so many bytes beyond what they are made of.
const GROWTH_MAX: usize = 1 << 20;
/// Numbers at the edges of what lengths, counts and offsets can be.
const NUMBERS: [u64; 22] = [
    0,
    1,
    2,
    7,
    8,
    0x7f,
    0x80,
    0xff,
    0x100,
    0x7fff,
    0x8000,
    0xffff,
    0x1_0000,
    0x00ff_ffff,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    0x1_0000_0000,
    0x100_0000_0000,
    0x7fff_ffff_ffff_ffff,
    0x8000_0000_0000_0000,
    u64::MAX,
];
/// The same where numbers are text.
const TEXTS: [&str; 16] = [
    "0",
    "-1",
    "1",
    "255",
    "2147483648",
    "4294967295",
    "4294967296",
    "9223372036854775807",
    "-9223372036854775808",
    "18446744073709551615",
    "340282366920938463463374607431768211456",
    "1e308",
    "-0.0",
    "null",
    "\"\"",
    "[]",
];
/// What opens a level of nesting in JSON, and in protobuf (a field of another message, two bytes long).
const NESTS: [&[u8]; 5] = [b"[", b"{\"a\":", b"(", b"\"", b"\x0a\x7f"];

/// A mutant of one of `inputs`, with parts of others. The same generator gives the same mutant.
pub fn mutant(target: &Target, inputs: &[&[u8]], random: &mut StdRng) -> Vec<u8> {
    let pick = |random: &mut StdRng| inputs.choose(random).copied().unwrap_or_default();
    let (input, donor) = (pick(random), pick(random));
    let (Some(mut parts), Some(others)) = ((target.parts.split)(input), (target.parts.split)(donor)) else {
        let mut bytes = input.to_vec();
        mutate(&mut bytes, donor, random);
        return bytes;
    };
    // Most mutants differ in little, so that they get far.
    let changes = 1 + random.random_range(0..4_usize) * random.random_range(0..3);
    for _ in 0..changes {
        if random.random_ratio(1, 8) {
            shuffle(&mut parts, &others, target.parts.piece.max(1), random);
        } else if let Some(part) = part_of(&mut parts, random) {
            let other = others.choose(random).map_or(&[][..], Vec::as_slice);
            mutate(part, other, random);
        }
    }
    // Some are torn without regard to parts.
    let mut bytes = (target.parts.join)(&parts);
    if random.random_ratio(1, 20) {
        mutate(&mut bytes, donor, random);
    }
    bytes
}

/// A part to change, seldom one without bytes.
fn part_of<'a>(parts: &'a mut [Vec<u8>], random: &mut StdRng) -> Option<&'a mut Vec<u8>> {
    let filled: Vec<usize> = (0..parts.len()).filter(|part| !parts[*part].is_empty()).collect();
    let chosen = match random.random_ratio(1, 20) {
        true => (!parts.is_empty()).then(|| random.random_range(0..parts.len())),
        false => filled.choose(random).copied(),
    };
    chosen.and_then(|part| parts.get_mut(part))
}

/// Drops, doubles, exchanges or takes over whole pieces.
fn shuffle(parts: &mut Vec<Vec<u8>>, others: &[Vec<u8>], piece: usize, random: &mut StdRng) {
    let pieces = parts.len() / piece;
    if pieces == 0 {
        return;
    }
    let at = random.random_range(0..pieces) * piece;
    match random.random_range(0..4) {
        0 if pieces > 1 => drop(parts.drain(at..at + piece)),
        1 => {
            let copy = parts[at..at + piece].to_vec();
            parts.splice(at..at, copy);
        }
        2 => {
            let with = random.random_range(0..pieces) * piece;
            (0..piece).for_each(|part| parts.swap(at + part, with + part));
        }
        _ if others.len() >= piece => {
            let from = random.random_range(0..others.len() / piece) * piece;
            parts.splice(at..at, others[from..from + piece].to_vec());
        }
        _ => {}
    }
}

/// Changes some bytes.
fn mutate(bytes: &mut Vec<u8>, donor: &[u8], random: &mut StdRng) {
    if bytes.is_empty() {
        bytes.extend((0..random.random_range(0..16)).map(|_| random.random::<u8>()));
        return;
    }
    let length_max = bytes.len() + GROWTH_MAX;
    match random.random_range(0..16) {
        0 | 1 => {
            let at = random.random_range(0..bytes.len());
            bytes[at] ^= 1 << random.random_range(0..8);
        }
        2 => {
            let at = random.random_range(0..bytes.len());
            bytes[at] = *[0, 1, 0x7f, 0x80, 0xff, random.random()].choose(random).unwrap_or(&0);
        }
        3..=6 => overwrite_number(bytes, random),
        7 => bytes.truncate(random.random_range(0..bytes.len())),
        8 => drop(bytes.drain(chunk(bytes.len(), random))),
        9 => {
            let copy = bytes[chunk(bytes.len(), random)].to_vec();
            let times = if random.random_ratio(1, 8) { random.random_range(1..200) } else { 1 };
            insert(bytes, &copy.repeat(times), random);
        }
        10 => {
            let more: Vec<u8> = (0..random.random_range(1..9)).map(|_| random.random::<u8>()).collect();
            insert(bytes, &more, random);
        }
        11 if !donor.is_empty() => {
            let from = chunk(donor.len(), random);
            let at = random.random_range(0..bytes.len());
            let end = (at + from.len()).min(bytes.len());
            bytes.splice(at..end, donor[from].iter().copied());
        }
        12 if !donor.is_empty() => {
            bytes.truncate(random.random_range(0..bytes.len()));
            bytes.extend_from_slice(&donor[random.random_range(0..donor.len())..]);
        }
        13 => {
            let number = varint(number(random));
            let at = random.random_range(0..bytes.len());
            let end = (at + random.random_range(1..=number.len())).min(bytes.len());
            bytes.splice(at..end, number);
        }
        14 => {
            let nest = NESTS.choose(random).copied().unwrap_or_default();
            insert(bytes, &nest.repeat(1 << random.random_range(0..14)), random);
        }
        _ => replace_text_number(bytes, random),
    }
    bytes.truncate(length_max);
}

/// Most numbers in formats are little-endian, and many stand at multiples of their size.
fn overwrite_number(bytes: &mut [u8], random: &mut StdRng) {
    let size = *[1, 2, 4, 4, 8, 8].choose(random).unwrap_or(&4);
    if bytes.len() < size {
        return;
    }
    let mut at = random.random_range(0..=bytes.len() - size);
    if random.random() {
        at -= at % size;
    }
    let there = &mut bytes[at..at + size];
    let before = there.iter().rev().fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
    let number = match random.random_range(0..5) {
        0 => before.wrapping_add(1),
        1 => before.wrapping_sub(1),
        2 => before.wrapping_mul(2),
        _ => number(random),
    };
    let mut number = number.to_le_bytes();
    if random.random_ratio(1, 6) {
        number[..size].reverse();
    }
    there.copy_from_slice(&number[..size]);
}

fn number(random: &mut StdRng) -> u64 {
    let number = NUMBERS.choose(random).copied().unwrap_or_default();
    match random.random_range(0..4) {
        0 => number.wrapping_sub(1),
        1 => number.wrapping_neg(),
        _ => number,
    }
}

fn varint(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

/// Puts another number in the place of one that is text.
fn replace_text_number(bytes: &mut Vec<u8>, random: &mut StdRng) {
    let from = random.random_range(0..bytes.len());
    let is_part = |byte: &u8| byte.is_ascii_digit();
    let Some(start) = bytes[from..].iter().position(is_part).map(|at| from + at) else { return };
    let end = bytes[start..].iter().position(|byte| !is_part(byte)).map_or(bytes.len(), |length| start + length);
    let text = TEXTS.choose(random).copied().unwrap_or_default();
    bytes.splice(start..end, text.bytes());
}

fn insert(bytes: &mut Vec<u8>, more: &[u8], random: &mut StdRng) {
    let at = random.random_range(0..=bytes.len());
    let more = &more[..more.len().min(GROWTH_MAX)];
    bytes.splice(at..at, more.iter().copied());
}

/// A range of a few bytes, or of many.
fn chunk(length: usize, random: &mut StdRng) -> std::ops::Range<usize> {
    let longest = if random.random() { length.min(16) } else { length };
    let bytes = random.random_range(1..=longest);
    let start = random.random_range(0..=length - bytes);
    start..start + bytes
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use rand::SeedableRng;

    use super::*;
    use crate::{Bound, Outcome, Parts};

    fn target() -> Target {
        let parts = Parts {
            split: |bytes| Some(bytes.chunks(10).map(<[u8]>::to_vec).collect()),
            join: |parts| parts.concat(),
            piece: 2,
        };
        let run = Box::new(|_: &[u8]| Outcome::Accepted);
        Target { name: "t", seeds: Vec::new(), parts, bound: Bound { bytes: 0, factor: 0 }, run }
    }

    #[test]
    fn a_seed_gives_the_same_mutants_again_and_another_gives_others() {
        let (a, b) = (b"{\"rows\": 17, \"parts\": [1, 2, 3]}".to_vec(), vec![7_u8; 50]);
        let inputs = [a.as_slice(), b.as_slice()];
        let mutants = |seed: u64| -> Vec<Vec<u8>> {
            let mut random = StdRng::seed_from_u64(seed);
            (0..2_000).map(|_| mutant(&target(), &inputs, &mut random)).collect()
        };
        let (first, again, other) = (mutants(1), mutants(1), mutants(2));
        assert!(first == again && first != other);
        assert!(first.iter().collect::<HashSet<_>>().len() > 1_500);
        assert!(first.iter().all(|mutant| mutant.len() < 10 * GROWTH_MAX));
    }

    #[test]
    fn inputs_without_bytes_can_be_mutated() {
        let mut random = StdRng::seed_from_u64(3);
        assert!((0..100).map(|_| mutant(&target(), &[&[]], &mut random)).any(|mutant| !mutant.is_empty()));
    }
}
