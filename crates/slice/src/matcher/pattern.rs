//! [`BytePattern`]: a predicate over texts or binary values, as what their bytes look like.

use std::cmp::Ordering;

use pithead_model::Value;

use super::like::Like;
use crate::Compare;

/// A condition on the bytes of one value.
#[derive(Debug)]
pub(crate) enum BytePattern {
    /// LIKE, unless it is one of the others.
    Like(Like),
    /// Equality, and lists: these values, in order and each once.
    OneOf(Vec<Vec<u8>>),
    /// Values between two bounds.
    Between {
        /// The lowest, and whether it is one of them.
        low: Option<(Vec<u8>, bool)>,
        /// The highest, and whether it is one of them.
        high: Option<(Vec<u8>, bool)>,
    },
}

/// What is known of values whose first bytes are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// None of them matches.
    No,
    /// All of them match.
    Yes,
    /// The rest of the value decides.
    Look,
}

impl BytePattern {
    /// `LIKE pattern`, where a backslash is a character like others.
    pub(super) fn like(pattern: &str) -> Self {
        let like = Like::new(pattern);
        match like.only_text() {
            Some(text) => Self::OneOf(vec![text.to_vec()]),
            None => Self::Like(like),
        }
    }

    /// `IN (values)`. None if they are not all texts or binary values.
    pub(super) fn one_of(values: &[Value]) -> Option<Self> {
        let mut values: Vec<Vec<u8>> = values.iter().map(bytes_of).collect::<Option<_>>()?;
        values.sort_unstable();
        values.dedup();
        Some(Self::OneOf(values))
    }

    /// A comparison. None if the value is no text and no binary value. `<>` is the negation of what this gives.
    pub(super) fn compare(op: Compare, value: &Value) -> Option<Self> {
        let value = bytes_of(value)?;
        Some(match op {
            Compare::Eq | Compare::Ne => Self::OneOf(vec![value]),
            Compare::Lt => Self::Between { low: None, high: Some((value, false)) },
            Compare::Le => Self::Between { low: None, high: Some((value, true)) },
            Compare::Gt => Self::Between { low: Some((value, false)), high: None },
            Compare::Ge => Self::Between { low: Some((value, true)), high: None },
        })
    }

    /// This bound and another one on the other side, as one range.
    pub(super) fn between(&self, other: &Self) -> Option<Self> {
        match (self, other) {
            (Self::Between { low, high: None }, Self::Between { low: None, high })
            | (Self::Between { low: None, high }, Self::Between { low, high: None }) => {
                Some(Self::Between { low: low.clone(), high: high.clone() })
            }
            _ => None,
        }
    }

    /// What all values begin with that match, if that is known without a look at the pattern's other parts.
    pub(super) fn common_start(&self) -> &[u8] {
        let (first, last) = match self {
            Self::Like(like) => return like.head(),
            Self::OneOf(values) => match (values.first(), values.last()) {
                (Some(first), Some(last)) => (first, last),
                _ => return &[],
            },
            Self::Between { low: Some((low, _)), high: Some((high, _)) } => (low, high),
            Self::Between { .. } => return &[],
        };
        let shared = first.iter().zip(last).take_while(|(one, other)| one == other).count();
        &first[..shared]
    }

    /// Whether a value matches.
    pub(crate) fn matches(&self, value: &[u8]) -> bool {
        match self {
            Self::Like(like) => like.matches(value),
            Self::OneOf(values) => values.binary_search_by(|one| one.as_slice().cmp(value)).is_ok(),
            Self::Between { low, high } => {
                let above = low.as_ref().is_none_or(|(low, with)| is_over(value, low, *with));
                above && high.as_ref().is_none_or(|(high, with)| !is_over(value, high, !*with))
            }
        }
    }

    /// What is known of values that begin with `first`, which has at least one byte.
    pub(super) fn after(&self, first: &[u8]) -> Verdict {
        match self {
            Self::Like(like) => match (like.head(), like.is_head_only()) {
                (head, true) if first.starts_with(head) => Verdict::Yes,
                (head, _) if first.starts_with(head) || head.starts_with(first) => Verdict::Look,
                _ => Verdict::No,
            },
            Self::OneOf(values) => {
                let from = values.partition_point(|value| value.as_slice() < first);
                match values.get(from).is_some_and(|value| value.starts_with(first)) {
                    true => Verdict::Look,
                    false => Verdict::No,
                }
            }
            Self::Between { low, high } => {
                let above = low.as_ref().map_or(Verdict::Yes, |(low, _)| over(first, low));
                let over_high = high.as_ref().map_or(Verdict::No, |(high, _)| over(first, high));
                match (above, over_high) {
                    (Verdict::No, _) | (_, Verdict::Yes) => Verdict::No,
                    (Verdict::Yes, Verdict::No) => Verdict::Yes,
                    _ => Verdict::Look,
                }
            }
        }
    }
}

/// Whether a value is over a bound, or is the bound where that is one of those over it.
fn is_over(value: &[u8], bound: &[u8], with: bool) -> bool {
    match value.cmp(bound) {
        Ordering::Less => false,
        Ordering::Equal => with,
        Ordering::Greater => true,
    }
}

/// Whether values that begin with `first` are over a bound.
fn over(first: &[u8], bound: &[u8]) -> Verdict {
    match first.cmp(bound) {
        _ if bound.starts_with(first) => Verdict::Look,
        Ordering::Less => Verdict::No,
        Ordering::Equal | Ordering::Greater => Verdict::Yes,
    }
}

fn bytes_of(value: &Value) -> Option<Vec<u8>> {
    match value {
        Value::Text(text) => Some(text.as_bytes().to_vec()),
        Value::Bytes(bytes) => Some(bytes.clone()),
        Value::Int(_) | Value::Float(_) => None,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Patterns of each kind over a few bytes.
    pub(crate) fn patterns() -> impl Strategy<Value = BytePattern> {
        let value = || prop::collection::vec(prop_oneof![Just(b'a'), Just(b'b'), Just(255u8), any::<u8>()], 0..7);
        let bound = move || prop::option::of((value(), any::<bool>()));
        prop_oneof![
            3 => "[abé%_]{0,8}".prop_map(|pattern| BytePattern::like(&pattern)),
            3 => "[abé]{0,5}%[abé]{1,9}%[abé]{0,5}".prop_map(|pattern| BytePattern::like(&pattern)),
            2 => prop::collection::vec(value(), 0..5).prop_map(|values| {
                BytePattern::one_of(&values.into_iter().map(Value::Bytes).collect::<Vec<_>>()).unwrap()
            }),
            2 => (bound(), bound()).prop_map(|(low, high)| BytePattern::Between { low, high }),
        ]
    }

    proptest! {
        #[test]
        fn verdicts_hold_for_all_that_follows(
            pattern in patterns(),
            text in "[abé]{1,8}",
            bytes in prop::collection::vec(prop_oneof![Just(b'a'), Just(b'b'), Just(255u8)], 1..8),
        ) {
            for value in [text.as_bytes(), &bytes] {
                for known in 1..=value.len() {
                    prop_assert!(!pattern.matches(value) || value.starts_with(pattern.common_start()));
                    match pattern.after(&value[..known]) {
                        Verdict::Yes => prop_assert!(pattern.matches(value)),
                        Verdict::No => prop_assert!(!pattern.matches(value)),
                        Verdict::Look => {}
                    }
                }
            }
        }

        #[test]
        fn bounds_are_compared_byte_by_byte(value in "[ab]{0,3}", low in "[ab]{0,3}", high in "[ab]{0,3}") {
            let compare = |op, bound: &String| BytePattern::compare(op, &Value::Text(bound.clone())).unwrap().matches(value.as_bytes());
            prop_assert_eq!(compare(Compare::Lt, &high), value < high);
            prop_assert_eq!(compare(Compare::Le, &high), value <= high);
            prop_assert_eq!(compare(Compare::Gt, &low), value > low);
            prop_assert_eq!(compare(Compare::Ge, &low), value >= low);
            prop_assert_eq!(compare(Compare::Eq, &low), value == low);
        }
    }

    #[test]
    fn first_bytes_decide_where_they_can() {
        let after = |pattern: &BytePattern, first: &str| pattern.after(first.as_bytes());
        let prefix = BytePattern::like("ab%");
        assert_eq!(
            ["a", "ab", "abc", "b"].map(|first| after(&prefix, first)),
            [Verdict::Look, Verdict::Yes, Verdict::Yes, Verdict::No]
        );
        let above = BytePattern::compare(Compare::Gt, &Value::Text("bc".into())).unwrap();
        assert_eq!(
            ["a", "b", "bb", "bc", "bd", "c"].map(|first| after(&above, first)),
            [Verdict::No, Verdict::Look, Verdict::No, Verdict::Look, Verdict::Yes, Verdict::Yes]
        );
        assert!(BytePattern::one_of(&[Value::Int(1)]).is_none());
    }
}
