//! [`Needle`]: bytes that are searched for among the codes of texts, without decompressing them.
//!
//! In a text that has the needle, some code covers the needle's byte at a chosen place, the anchor. Only few codes can:
//! those whose symbols agree with the needle around that place. So a search looks for these codes, 64 places at a time,
//! and only where one of them is, it walks the codes to the right and to the left and compares.

use std::ops::Range;

use super::sample::Sample;
use super::set::{ByteSet, blocks};
use super::symbols::{ESCAPE, SYMBOL_BYTES, Symbols, is_literal};

/// The most bytes by which a symbol can begin before the needle.
const BEFORE: usize = SYMBOL_BYTES - 1;
/// The longest needle: each place where a symbol can begin has a bit.
pub(super) const NEEDLE_BYTES_MAX: usize = 64 - BEFORE;
/// Anchors that are tried on a sample.
const TRIED: usize = 3;

/// A needle, prepared for the codes of one table.
#[derive(Debug)]
pub(super) struct Needle {
    bytes: Vec<u8>,
    /// For each code, the places of the needle at which its symbol can begin: where it shares bytes with the needle and
    /// contradicts none. Bit 0 is [`BEFORE`] bytes before the needle.
    fits: Box<[u64; 256]>,
    anchor: Anchor,
}

/// The place of the needle that is looked for.
#[derive(Clone, Debug)]
struct Anchor {
    place: usize,
    /// Codes that can cover the place, and the rest of the needle with it.
    to_end: ByteSet,
    /// Codes that can cover the place, but not the rest of the needle: one of `next` follows.
    first: ByteSet,
    next: ByteSet,
    /// The share of places among codes at which a sample has candidates.
    candidates: f32,
}

/// Codes that represent the needle, and perhaps a few bytes before and after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Occurrence {
    pub(super) codes: Range<usize>,
    /// Whether the first code represents no byte before the needle.
    pub(super) begins: bool,
    /// Whether the last code represents no byte after the needle.
    pub(super) ends: bool,
}

impl Needle {
    /// Prepares a needle of 1 to [`NEEDLE_BYTES_MAX`] bytes.
    pub(super) fn new(bytes: &[u8], symbols: &Symbols, sample: &Sample) -> Self {
        assert!((1..=NEEDLE_BYTES_MAX).contains(&bytes.len()), "a needle of {} bytes", bytes.len());
        let fits = fits(bytes, symbols);
        let anchor = Anchor::choose(bytes, symbols, &fits, sample);
        Self { bytes: bytes.to_vec(), fits, anchor }
    }

    /// The share of places among codes at which a search looks closer, in the sample.
    pub(super) fn candidates(&self) -> f32 {
        self.anchor.candidates
    }

    /// Calls `found` for places where the needle is, in order, until one is accepted: then `found` gives the place
    /// among the codes at which the search goes on. `codes` begin with a code. Where codes that overlap each have the
    /// needle, not every way to read it is found.
    pub(super) fn find(&self, symbols: &Symbols, codes: &[u8], mut found: impl FnMut(Occurrence) -> Option<usize>) {
        let mut from = 0;
        self.anchor.each_candidate(codes, |base, mut candidates| {
            while candidates != 0 {
                let place = base + candidates.trailing_zeros() as usize;
                candidates &= candidates - 1;
                // The anchor is the code before.
                if place > from {
                    self.look(symbols, codes, place - 1, |occurrence| found(occurrence).inspect(|next| from = *next).is_some());
                }
            }
        });
    }

    /// Walks the codes around the anchor at `place`, until an occurrence is accepted.
    fn look(&self, symbols: &Symbols, codes: &[u8], place: usize, mut accept: impl FnMut(Occurrence) -> bool) {
        if is_literal(codes, place) {
            return;
        }
        let (anchor, code) = (self.anchor.place, codes[place]);
        if code == ESCAPE {
            if codes.get(place + 1) == self.bytes.get(anchor)
                && let Some(occurrence) = self.walk(symbols, codes, place..place + 2, BEFORE + anchor, BEFORE + anchor + 1)
            {
                accept(occurrence);
            }
            return;
        }
        let length = symbols.length(code);
        let mut starts = self.fits[usize::from(code)] & covering(anchor, length);
        while starts != 0 {
            let start = starts.trailing_zeros() as usize;
            starts &= starts - 1;
            if let Some(occurrence) = self.walk(symbols, codes, place..place + 1, start, start + length)
                && accept(occurrence)
            {
                return;
            }
        }
    }

    /// The occurrence of which the codes `known` represent the bytes from `start` to `end`, both counted from
    /// [`BEFORE`] bytes before the needle.
    #[inline]
    fn walk(&self, symbols: &Symbols, codes: &[u8], known: Range<usize>, start: usize, end: usize) -> Option<Occurrence> {
        let (last, ends) = self.walk_to_end(symbols, codes, known.end, end)?;
        let (mut first, mut start) = (known.start, start);
        while start > BEFORE {
            let before = first.checked_sub(1)?;
            let code = codes[before];
            if is_literal(codes, before) {
                start -= 1;
                first = before.checked_sub(1)?;
                if self.bytes[start - BEFORE] != code {
                    return None;
                }
            } else {
                start = start.checked_sub(symbols.length(code))?;
                first = before;
                if self.fits[usize::from(code)] >> start & 1 == 0 {
                    return None;
                }
            }
        }
        Some(Occurrence { codes: first..last, begins: start == BEFORE, ends })
    }

    /// The end of the codes that, from `place` on, represent the needle from `start` on, and whether they represent no
    /// byte more. `start` counts from [`BEFORE`] bytes before the needle.
    #[inline]
    fn walk_to_end(&self, symbols: &Symbols, codes: &[u8], mut place: usize, mut start: usize) -> Option<(usize, bool)> {
        let end = BEFORE + self.bytes.len();
        while start < end {
            let code = *codes.get(place)?;
            if code == ESCAPE {
                if codes.get(place + 1) != self.bytes.get(start - BEFORE) {
                    return None;
                }
                (place, start) = (place + 2, start + 1);
            } else {
                if self.fits[usize::from(code)] >> start & 1 == 0 {
                    return None;
                }
                (place, start) = (place + 1, start + symbols.length(code));
            }
        }
        Some((place, start == end))
    }

    /// The end of the needle's codes if `codes` begin with the needle, and whether they represent no byte more.
    #[inline]
    pub(super) fn at_start(&self, symbols: &Symbols, codes: &[u8]) -> Option<(usize, bool)> {
        self.walk_to_end(symbols, codes, 0, BEFORE)
    }
}

/// For each code the places at which its symbol can begin (see [`Needle::fits`]).
fn fits(needle: &[u8], symbols: &Symbols) -> Box<[u64; 256]> {
    // The places of the needle at which each byte is.
    let mut places = [0u64; 256];
    for (place, byte) in needle.iter().enumerate() {
        places[usize::from(*byte)] |= 1 << (place + BEFORE);
    }
    let starts = u64::MAX >> (64 - BEFORE - needle.len());
    let inside = starts & !((1 << BEFORE) - 1);
    let mut fits = Box::new([0; 256]);
    for code in 0..ESCAPE {
        let symbol = symbols.symbol(code);
        if symbol.is_empty() {
            continue;
        }
        // A symbol begins at most seven bytes before the needle, and shares its last byte with it then.
        let mut found = starts & u64::MAX << (SYMBOL_BYTES - symbol.len());
        for (offset, byte) in symbol.iter().enumerate() {
            let outside = !(inside >> offset);
            found &= places[usize::from(*byte)] >> offset | outside;
        }
        fits[usize::from(code)] = found;
    }
    fits
}

/// The places at which a symbol begins that covers a place of the needle.
#[inline]
fn covering(place: usize, length: usize) -> u64 {
    ((1 << length) - 1) << (place + SYMBOL_BYTES - length)
}

impl Anchor {
    /// The anchor with the fewest candidates. Those that promise few, as far as each code's share tells, are tried on the
    /// sample.
    fn choose(needle: &[u8], symbols: &Symbols, fits: &[u64; 256], sample: &Sample) -> Self {
        let mut anchors = Self::all(needle, symbols, fits);
        for anchor in &mut anchors {
            let followed = anchor.first.weight(&sample.shares) * anchor.next.weight(&sample.shares);
            anchor.candidates = anchor.to_end.weight(&sample.shares) + followed;
        }
        anchors.sort_by(|one, other| one.candidates.total_cmp(&other.candidates));
        anchors.truncate(TRIED);
        for anchor in &mut anchors {
            let mut count = 0;
            anchor.each_candidate(&sample.codes, |_, candidates| count += candidates.count_ones());
            anchor.candidates = count as f32 / sample.codes.len().max(1) as f32;
        }
        anchors.into_iter().min_by(|one, other| one.candidates.total_cmp(&other.candidates)).expect("a needle has a byte")
    }

    /// Calls `each` with a place and bits for the 64 places from there on. A bit is set where the code **before** may
    /// cover the anchor: so the code that follows decides, and lies in the same block.
    #[inline(always)]
    fn each_candidate(&self, codes: &[u8], mut each: impl FnMut(usize, u64)) {
        let (ends_may_be, firsts_may_be) = (!self.to_end.is_empty(), !self.first.is_empty());
        let (mut base, mut ends_before, mut firsts_before) = (0, 0, 0);
        blocks(codes, |block, there| {
            let ends = if ends_may_be { self.to_end.members(block) & there } else { 0 };
            let firsts = if firsts_may_be { self.first.members(block) & there } else { 0 };
            let mut candidates = ends << 1 | ends_before;
            if firsts | firsts_before != 0 {
                candidates |= (firsts << 1 | firsts_before) & self.next.members(block);
            }
            (ends_before, firsts_before) = (ends >> 63, firsts >> 63);
            if candidates != 0 {
                each(base, candidates);
            }
            base += 64;
        });
        each(base, ends_before);
    }

    /// The anchor at each place of the needle.
    fn all(needle: &[u8], symbols: &Symbols, fits: &[u64; 256]) -> Vec<Self> {
        // The codes that can follow when the needle is covered up to a place. An escape can always be one.
        let mut followers = vec![ByteSet::from_iter([ESCAPE]); needle.len()];
        for code in 0..ESCAPE {
            for start in bits(fits[usize::from(code)] >> BEFORE) {
                followers[start].insert(code);
            }
        }
        let bare = |place| Self {
            place,
            to_end: ByteSet::default(),
            first: ByteSet::default(),
            next: ByteSet::default(),
            candidates: 0.0,
        };
        let mut anchors: Vec<Self> = (0..needle.len()).map(bare).collect();
        for code in 0..ESCAPE {
            for start in bits(fits[usize::from(code)]) {
                let end = start + symbols.length(code) - BEFORE;
                for anchor in &mut anchors[start.saturating_sub(BEFORE)..end.min(needle.len())] {
                    anchor.cover(code, followers.get(end));
                }
            }
        }
        // Any byte can be an escaped one.
        for (anchor, byte) in anchors.iter_mut().zip(needle) {
            let literal = ByteSet::from_iter([*byte]);
            anchor.cover(ESCAPE, (anchor.place + 1 < needle.len()).then_some(&literal));
        }
        anchors
    }

    /// Adds a code that covers the anchor, and those that can follow if the needle does not end in it.
    fn cover(&mut self, code: u8, followers: Option<&ByteSet>) {
        match followers {
            None => self.to_end.insert(code),
            Some(followers) => {
                self.first.insert(code);
                self.next.add_all(followers);
            }
        }
    }
}

/// The places of the bits that are set.
fn bits(mut word: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let place = (word != 0).then(|| word.trailing_zeros() as usize)?;
        word &= word - 1;
        Some(place)
    })
}
