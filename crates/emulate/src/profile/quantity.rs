//! A number with its source.

use std::fmt;
use std::ops::Range;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer};

/// A number of a profile.
#[derive(Clone, Debug)]
pub struct Quantity {
    /// Its value, in the unit that its name ends in.
    pub value: f64,
    /// Where it is from: a paper with its section, a data sheet, `assumed`, or `calibrated` on a figure.
    pub source: String,
    /// Where it stands in the file.
    pub(super) span: Range<usize>,
}

impl Quantity {
    /// Of a number that a profile need not name.
    pub(super) fn absent() -> Self {
        Self { value: f64::NAN, source: String::new(), span: 0..0 }
    }

    /// The same, or the value of another one where the file does not name it, and why.
    pub(super) fn or(self, other: &Quantity, why: &str) -> Self {
        // A NaN that a file names has its source, or is refused for that.
        let is_absent = self.value.is_nan() && self.span.is_empty();
        if is_absent { Self { source: why.to_owned(), ..other.clone() } } else { self }
    }

    /// The value of one that was checked to be a whole number.
    pub fn whole(&self) -> u64 {
        self.value as u64
    }
}

/// Where it stands in a file is no part of what it is.
impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value && self.source == other.source
    }
}

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields, expecting = "a number with its source, as { value = 1.5, source = \"assumed\" }")]
        struct Raw {
            #[serde(deserialize_with = "number")]
            value: f64,
            source: String,
        }
        let raw = toml::Spanned::<Raw>::deserialize(deserializer)?;
        let span = raw.span();
        let Raw { value, source } = raw.into_inner();
        Ok(Self { value, source, span })
    }
}

/// Reads a number, and says in words that one is expected.
fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    struct Number;

    impl Visitor<'_> for Number {
        type Value = f64;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a number")
        }

        fn visit_f64<E: Error>(self, value: f64) -> Result<f64, E> {
            Ok(value)
        }

        fn visit_i64<E: Error>(self, value: i64) -> Result<f64, E> {
            Ok(value as f64)
        }

        fn visit_u64<E: Error>(self, value: u64) -> Result<f64, E> {
            Ok(value as f64)
        }
    }
    deserializer.deserialize_f64(Number)
}

/// What a quantity may be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bound {
    /// The least value.
    pub least: f64,
    /// The largest value.
    pub most: f64,
    /// Only whole numbers.
    pub whole: bool,
}

/// A whole number between these, both included.
pub(super) const fn whole(least: f64, most: f64) -> Bound {
    Bound { least, most, whole: true }
}

/// A number between these, both included.
pub(super) const fn real(least: f64, most: f64) -> Bound {
    Bound { least, most, whole: false }
}

/// A section of a profile: its quantities and their bounds.
macro_rules! section {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $bound:expr,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Deserialize)]
        #[serde(deny_unknown_fields, expecting = "a section of numbers with their sources")]
        pub struct $name {
            $($(#[$field_doc])* pub $field: Quantity,)*
        }

        impl $name {
            /// Every quantity with its name and its bounds, in the order of the file.
            pub fn quantities(&self) -> Vec<(&'static str, &Quantity, Bound)> {
                vec![$((stringify!($field), &self.$field, $bound)),*]
            }
        }
    };
}

pub(super) use section;
