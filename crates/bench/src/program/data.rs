//! What is worked on.

use super::kernels::NEEDLE;

/// Bytes of a read, as in the module.
pub(super) const BATCH: usize = 256 << 10;

/// A text of words of several lengths, some of which come often.
pub(super) fn text(bytes: usize) -> String {
    let (mut text, mut seed) = (String::with_capacity(bytes + 16), 1_u64);
    while text.len() < bytes {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // The product of two is small more often than large.
        let word = ((seed >> 54) * ((seed >> 44) & 0x3ff)) >> 6;
        let mut rest = word + 1;
        while rest > 0 {
            text.push(char::from(b'a' + (rest % 26) as u8));
            rest /= 5;
        }
        text.push(if seed & 0xf00 == 0 { '\n' } else { ' ' });
    }
    text
}

/// A text with a needle in each megabyte, and some at its end.
pub(super) fn needles(mut text: Vec<u8>) -> Vec<u8> {
    let places = (0..text.len().saturating_sub(NEEDLE.len())).step_by(1 << 20);
    places.for_each(|place| text[place..place + NEEDLE.len()].copy_from_slice(NEEDLE));
    (0..3).for_each(|_| text.extend_from_slice(NEEDLE));
    text
}

/// For each node the next one: a way through all of them, in no order that a cache likes.
pub(super) fn graph(bytes: usize) -> Vec<u8> {
    let nodes = bytes / 8;
    let (mut order, mut seed): (Vec<u64>, u64) = ((0..nodes as u64).collect(), 1);
    // After Sattolo: what comes of swapping each with one before it is one circle.
    for node in (1..nodes).rev() {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        order.swap(node, ((seed >> 33) % node as u64) as usize);
    }
    order.into_iter().flat_map(u64::to_le_bytes).collect()
}

/// Numbers from 0 to 999.
pub(super) fn numbers(bytes: usize) -> Vec<u8> {
    let numbers = (0..bytes as u64 / 8).map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33) as i64 % 1_000);
    numbers.flat_map(i64::to_le_bytes).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_as_large_as_it_is_said_to_be() {
        assert_eq!(numbers(1 << 16).len(), 1 << 16);
        let text = text(1 << 16);
        assert!(text.len() >= 1 << 16 && text.split_ascii_whitespace().count() > 5_000);
    }
}
