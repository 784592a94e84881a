//! Functions of SQL in Rust. Build them with `cargo build --release`, and make them known with
//! `CREATE FUNCTION scatter(bigint) RETURNS bigint LANGUAGE wasm AS '…/sql_functions.wasm'`.

use pithead_ssdlet::functions;

functions! {
    /// Scatters numbers evenly, as hash tables want them (the finaliser of SplitMix64).
    fn scatter(number: i64) -> i64 {
        let mut bits = number as u64;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (bits ^ (bits >> 31)) as i64
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
}

fn capitalised(word: &str) -> String {
    let mut letters = word.chars();
    let first = letters.next().into_iter().flat_map(char::to_uppercase);
    first.chain(letters.flat_map(char::to_lowercase)).collect()
}
