//! [`PageSample`]: which pages of a slice a sample reads.

use serde::{Deserialize, Serialize};

/// A choice of a few pages of each slice: one out of each of as many equal stretches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageSample {
    /// Pages of a slice at most. 0 is taken for 1.
    pub pages: u32,
    /// What the choice within a stretch hangs on.
    pub seed: u64,
}

impl PageSample {
    /// The chosen ones of some pages, in their order. Few pages are all chosen.
    pub fn choose(&self, pages: Vec<u64>) -> Vec<u64> {
        let wanted = self.pages.max(1) as usize;
        if pages.len() <= wanted {
            return pages;
        }
        let chosen = |stretch: usize| {
            let (start, end) = (stretch * pages.len() / wanted, (stretch + 1) * pages.len() / wanted);
            let within = spread(self.seed.wrapping_add(stretch as u64)) % (end - start) as u64;
            pages[start + within as usize]
        };
        (0..wanted).map(chosen).collect()
    }
}

/// A number whose bits all hang on all bits of another (Steele et al. 2014, SplitMix; see `docs/bibliography.md`).
fn spread(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_stretch_gives_one_page() {
        for seed in 0..50 {
            let chosen = PageSample { pages: 4, seed }.choose((100..132).collect());
            let stretches: Vec<u64> = chosen.iter().map(|page| (page - 100) / 8).collect();
            assert_eq!(stretches, [0, 1, 2, 3]);
        }
        let differs = |seed| PageSample { pages: 1, seed }.choose((0..32).collect()) != [0];
        assert!((0..50).any(differs));
    }

    #[test]
    fn few_pages_are_all_chosen() {
        let sample = PageSample { pages: 3, seed: 7 };
        assert_eq!(sample.choose(vec![2, 5]), [2, 5]);
        assert_eq!(sample.choose(vec![]), Vec::<u64>::new());
        assert_eq!(PageSample { pages: 0, seed: 7 }.choose(vec![2, 5]).len(), 1);
    }
}
