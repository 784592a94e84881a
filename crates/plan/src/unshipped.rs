//! Why a join stays at the host: what keeps each side from the drives of the other one.

use crate::side::Side;

/// Why a side is not shipped to the drives of the other one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unshipped {
    /// The other side's rows are made at the host.
    NoDrives,
    /// Its rows without a match must show, and each drive has only a part of what they may match.
    Unmatched,
    /// It is larger than what is shipped at most.
    Large,
    /// The other side is fetched with fewer bytes.
    Dear,
    /// When it was computed, it was too large; or it has other rows each time.
    Refused,
    /// It reads what a recursive query around the join has found so far.
    Recursive,
}

/// The reason of both sides together, for people. Each side comes with why it was not shipped.
pub(crate) fn reason(unshipped: &[(Side, Unshipped)]) -> String {
    let made_at_host = unshipped.iter().any(|(_, why)| *why == Unshipped::NoDrives);
    let apart = if made_at_host { "" } else { "its sides are not partitioned alike by what joins them, and " };
    match unshipped {
        [(_, one), (_, other)] if one == other => format!("{apart}{}", of_both(*one)),
        sides => {
            // What is said of a side is said before what follows from it.
            let (first, then): (Vec<_>, Vec<_>) = sides.iter().copied().partition(|(_, why)| *why == Unshipped::NoDrives);
            let sides: Vec<String> = first.into_iter().chain(then).map(|(side, why)| of_one(side, why)).collect();
            format!("{apart}{}", sides.join(", and "))
        }
    }
}

fn of_both(why: Unshipped) -> &'static str {
    match why {
        Unshipped::NoDrives => "both of its sides are made at the host",
        Unshipped::Unmatched => "a row without a match at one drive may have one at another",
        Unshipped::Large => "neither is small enough to ship",
        Unshipped::Dear => "to ship either one takes more bytes than to fetch the other",
        Unshipped::Refused => "both were too large when they were computed, or have other rows each time",
        Unshipped::Recursive => "both read what a recursive query has found so far",
    }
}

fn of_one(side: Side, why: Unshipped) -> String {
    let name = |side: Side| if side == Side::Left { "left" } else { "right" };
    let (own, other) = (name(side), name(side.other()));
    match why {
        Unshipped::NoDrives => format!("the {other} side is made at the host"),
        Unshipped::Unmatched => format!("a row of the {own} side without a match at one drive may have one at another"),
        Unshipped::Large => format!("the {own} side is too large to ship"),
        Unshipped::Dear => format!("to ship the {own} side takes more bytes than to fetch the {other} one"),
        Unshipped::Refused => format!("the {own} side was too large when it was computed, or has other rows each time"),
        Unshipped::Recursive => format!("the {own} side reads what a recursive query has found so far"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_side_has_its_own_reason_and_one_that_both_have_is_said_once() {
        let of = |left, right| reason(&[(Side::Right, right), (Side::Left, left)]);
        assert_eq!(
            of(Unshipped::Large, Unshipped::Large),
            "its sides are not partitioned alike by what joins them, and neither is small enough to ship"
        );
        assert_eq!(
            of(Unshipped::Dear, Unshipped::NoDrives),
            "the left side is made at the host, and to ship the left side takes more bytes than to fetch the right one"
        );
        let outer = of(Unshipped::Unmatched, Unshipped::Large);
        assert!(outer.contains("the right side is too large to ship, and a row of the left side without a match"), "{outer}");
        assert!(
            of(Unshipped::NoDrives, Unshipped::Dear).starts_with("the right side is made at the host, and to ship the right")
        );
        assert_eq!(of(Unshipped::NoDrives, Unshipped::NoDrives), "both of its sides are made at the host");
    }
}
