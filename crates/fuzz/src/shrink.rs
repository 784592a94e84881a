//! Makes a failing input smaller while it still fails.

use crate::Target;

/// Tries at most.
const TRIES_MAX: usize = 3_000;

/// The smallest input found that still `fails`: pieces are left out, then parts cut, chunks of them left out, and bytes set to
/// zero.
pub fn shrink(target: &Target, input: &[u8], mut fails: impl FnMut(&[u8]) -> bool) -> Vec<u8> {
    let mut tries = TRIES_MAX;
    let mut fails = |input: &[u8]| {
        tries = tries.saturating_sub(1);
        tries > 0 && fails(input)
    };
    let Some(mut parts) = (target.parts.split)(input).filter(|parts| fails(&(target.parts.join)(parts))) else {
        return shrink_bytes(input.to_vec(), &mut fails);
    };
    let piece = target.parts.piece.max(1);
    for start in (0..parts.len()).step_by(piece).rev() {
        let mut fewer = parts.clone();
        fewer.drain(start..(start + piece).min(parts.len()));
        if !fewer.is_empty() && fails(&(target.parts.join)(&fewer)) {
            parts = fewer;
        }
    }
    for number in 0..parts.len() {
        let with = |part: &[u8]| {
            let mut changed = parts.clone();
            changed[number] = part.to_vec();
            (target.parts.join)(&changed)
        };
        let smaller = shrink_bytes(parts[number].clone(), &mut |part| fails(&with(part)));
        parts[number] = smaller;
    }
    (target.parts.join)(&parts)
}

fn shrink_bytes(mut bytes: Vec<u8>, fails: &mut dyn FnMut(&[u8]) -> bool) -> Vec<u8> {
    let mut chunk = bytes.len();
    while chunk > 0 {
        let mut start = 0;
        while start < bytes.len() {
            let end = (start + chunk).min(bytes.len());
            let without = [&bytes[..start], &bytes[end..]].concat();
            if fails(&without) {
                bytes = without;
                continue;
            }
            if bytes[start..end].iter().any(|byte| *byte != 0) {
                let mut zeroed = bytes.clone();
                zeroed[start..end].fill(0);
                if fails(&zeroed) {
                    bytes = zeroed;
                }
            }
            start = end;
        }
        chunk /= 2;
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Bound, Outcome, Parts};

    fn target(parts: Parts) -> Target {
        let run = Box::new(|_: &[u8]| Outcome::Accepted);
        Target { name: "t", seeds: Vec::new(), parts, bound: Bound { bytes: 0, factor: 0 }, run }
    }

    #[test]
    fn what_matters_is_left() {
        let input: Vec<u8> = (0..=255).cycle().take(2_000).collect();
        let small = shrink(&target(Parts::WHOLE), &input, |input| input.contains(&77) && input.len() > 2);
        assert_eq!((small.len(), small.contains(&77)), (3, true));
        assert_eq!(small.iter().filter(|byte| **byte == 0).count(), 2);
    }

    #[test]
    fn pieces_stay_whole() {
        let lines = Parts {
            split: |bytes| Some(bytes.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect()),
            join: |parts| parts.join(&b'\n'),
            piece: 1,
        };
        let small = shrink(&target(lines), b"one\ntwo\nthree\nfour", |input| input.windows(3).any(|part| part == b"hre"));
        assert_eq!(small, b"hre");
    }
}
