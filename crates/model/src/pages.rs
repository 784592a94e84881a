//! [`PageSet`]: some of the pages of a slice, as a bitmap that can travel.

use crate::{Blame, Fault};

/// Pages of a slice, by number. Page `n` is bit `n % 8` of byte `n / 8`, the lowest bit first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageSet {
    pages: u32,
    bits: Vec<u8>,
}

impl PageSet {
    /// No page of so many.
    pub fn none(pages: u32) -> PageSet {
        PageSet { pages, bits: vec![0; bytes_of(pages)] }
    }

    /// Reads a bitmap that came from elsewhere, over a slice of so many pages. It must have exactly the bytes that these pages
    /// need, and no bit past the last page.
    pub fn from_bytes(pages: u32, bits: &[u8]) -> Result<PageSet, Fault> {
        let broken = |what: String| Err(Fault::new(Blame::Device, what));
        if bits.len() != bytes_of(pages) {
            return broken(format!("a bitmap of {} bytes for {pages} pages", bits.len()));
        }
        let past = |last: &u8| !pages.is_multiple_of(8) && last >> (pages % 8) != 0;
        if bits.last().is_some_and(past) {
            return broken(format!("a bitmap names pages past the last of {pages}"));
        }
        Ok(PageSet { pages, bits: bits.to_vec() })
    }

    /// The bitmap.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bits
    }

    /// Pages of the slice.
    pub fn pages(&self) -> u32 {
        self.pages
    }

    /// Adds a page. One that the slice does not have changes nothing.
    pub fn insert(&mut self, page: u32) {
        if page < self.pages {
            self.bits[page as usize / 8] |= 1 << (page % 8);
        }
    }

    /// Whether it has this page.
    pub fn contains(&self, page: u32) -> bool {
        page < self.pages && self.bits[page as usize / 8] & 1 << (page % 8) != 0
    }

    /// How many pages it has.
    pub fn len(&self) -> u32 {
        self.bits.iter().map(|byte| byte.count_ones()).sum()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.bits.iter().all(|byte| *byte == 0)
    }

    /// Its pages, in order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.pages).filter(|page| self.contains(*page))
    }
}

fn bytes_of(pages: u32) -> usize {
    pages.div_ceil(8) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bitmap_comes_back_and_has_each_page_once() {
        let mut set = PageSet::none(11);
        assert!(set.is_empty() && set.as_bytes() == [0, 0]);
        [0, 9, 10, 9, 11, u32::MAX].into_iter().for_each(|page| set.insert(page));
        assert_eq!((set.len(), set.iter().collect::<Vec<_>>()), (3, vec![0, 9, 10]));
        assert_eq!(PageSet::from_bytes(11, set.as_bytes()), Ok(set.clone()));
        assert!(!set.contains(1) && !set.contains(11) && !set.contains(u32::MAX));
        assert!(PageSet::none(0).is_empty() && PageSet::from_bytes(0, &[]).is_ok());
    }

    #[test]
    fn bitmaps_of_another_length_and_pages_past_the_end_are_refused() {
        for (pages, bits) in [(11, &[0_u8][..]), (11, &[0, 0, 0]), (11, &[0, 8]), (8, &[]), (8, &[0, 0]), (0, &[0])] {
            assert_eq!(PageSet::from_bytes(pages, bits).unwrap_err().blame, Blame::Device, "{pages} {bits:?}");
        }
        assert_eq!(PageSet::from_bytes(8, &[0xff]).unwrap().len(), 8);
    }
}
