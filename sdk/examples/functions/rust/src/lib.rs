//! Functions of SQL in Rust. Build them with `cargo build --release`, and make them known with
//! `CREATE FUNCTION scatter(bigint) RETURNS bigint LANGUAGE wasm AS '…/sql_functions.wasm'`.

use std::collections::BTreeSet;

use pithead_ssdlet::{State, functions};

functions! {
    /// Scatters numbers evenly, as hash tables want them (the finaliser of SplitMix64).
    fn scatter(number: i64) -> i64 {
        let mut bits = number as u64;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (bits ^ (bits >> 31)) as i64
    }

    /// Whether a number is among one in sixteen that have nothing else in common, for a sample that is the same each time.
    fn is_sampled(number: i64) -> bool {
        scatter(number) & 15 == 0
    }

    /// The great-circle distance between two places, in kilometres.
    fn distance_km(latitude: f64, longitude: f64, to_latitude: f64, to_longitude: f64) -> f64 {
        let (from, to) = (latitude.to_radians(), to_latitude.to_radians());
        let (north, east) = ((to - from) / 2.0, (to_longitude - longitude).to_radians() / 2.0);
        let chord = north.sin().powi(2) + from.cos() * to.cos() * east.sin().powi(2);
        2.0 * 6_371.0 * chord.sqrt().min(1.0).asin()
    }

    /// Whether a text of digits has a right check digit (Luhn's, as cards have it). Other characters than digits and spaces are an
    /// error.
    fn luhn(digits: &str) -> Result<bool, String> {
        let mut sum = 0;
        for (place, one) in digits.chars().rev().filter(|one| *one != ' ').enumerate() {
            let digit = one.to_digit(10).ok_or_else(|| format!("{digits:?} has {one:?}, which is no digit"))?;
            sum += if place % 2 == 0 { digit } else { digit * 2 / 10 + digit * 2 % 10 };
        }
        Ok(sum % 10 == 0)
    }

    /// A text in which each word begins with a capital. NULL where there is no word.
    fn title(text: &str) -> Option<String> {
        let words: Vec<String> = text.split_whitespace().map(capitalised).collect();
        (!words.is_empty()).then(|| words.join(" "))
    }

    /// The first that is not NULL. It is created CALLED ON NULL INPUT.
    fn either(one: Option<i32>, other: Option<i32>) -> Option<i32> {
        one.or(other)
    }

    /// The mean of growth factors: the root of their product. NULL where there is none.
    aggregate geometric_mean {
        fn accumulate(state: &mut (f64, i64), factor: f64) {
            state.0 += factor.ln();
            state.1 += 1;
        }
        fn combine(state: &mut (f64, i64), other: (f64, i64)) {
            state.0 += other.0;
            state.1 += other.1;
        }
        fn finish(state: (f64, i64)) -> Option<f64> {
            (state.1 > 0).then(|| (state.0 / state.1 as f64).exp())
        }
    }

    /// About how many different texts there are, by the smallest 1,024 of their hashes: within some per cent, in a state of 8 KiB.
    aggregate distinct_about {
        fn accumulate(state: &mut Smallest, text: &str) {
            state.add(hash(text));
        }
        fn combine(state: &mut Smallest, other: Smallest) {
            other.0.into_iter().for_each(|hash| state.add(hash));
        }
        fn finish(state: Smallest) -> i64 {
            state.count()
        }
    }
}

fn capitalised(word: &str) -> String {
    let mut letters = word.chars();
    let first = letters.next().into_iter().flat_map(char::to_uppercase);
    first.chain(letters.flat_map(char::to_lowercase)).collect()
}

/// The smallest hashes, of which the largest says how dense all of them are (Bar-Yossef et al., *Counting Distinct Elements in a Data
/// Stream*, RANDOM 2002).
#[derive(Default)]
struct Smallest(BTreeSet<u64>);

impl Smallest {
    const COUNT: usize = 1_024;

    fn add(&mut self, hash: u64) {
        if self.0.len() < Self::COUNT {
            self.0.insert(hash);
        } else if self.0.last().is_some_and(|largest| hash < *largest) && self.0.insert(hash) {
            self.0.pop_last();
        }
    }

    fn count(&self) -> i64 {
        match self.0.last() {
            Some(largest) if self.0.len() == Self::COUNT => {
                ((Self::COUNT - 1) as f64 / (*largest as f64 / 2f64.powi(64))).round() as i64
            }
            _ => self.0.len() as i64,
        }
    }
}

impl State for Smallest {
    fn write(&self, bytes: &mut Vec<u8>) {
        self.0.iter().copied().collect::<Vec<u64>>().write(bytes);
    }

    fn read(bytes: &mut &[u8]) -> Option<Self> {
        Vec::read(bytes).map(|hashes| Smallest(hashes.into_iter().collect()))
    }
}

/// FNV-1a, then scattered.
fn hash(text: &str) -> u64 {
    let mixed =
        text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |bits, byte| (bits ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    scatter(mixed as i64) as u64
}
