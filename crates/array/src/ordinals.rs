//! [`Ordinals`]: the slices of a partition as hosts count them, and as the drives below count their parts of it. Pure.
//!
//! Hosts count slices across runs in the manifest's order. Within a run the first drive's slices come first, then the second
//! one's. A drive counts its own slices across the same runs.

use pithead_model::SliceSpan;

/// Slices that follow each other above and at a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stretch {
    above: u32,
    below: u32,
    count: u32,
}

/// Both ways from one numbering to the other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ordinals {
    /// By drive, ascending in both numberings.
    drives: Vec<Vec<Stretch>>,
    total: u32,
}

impl Ordinals {
    /// From the slices of each run at each drive. None: more slices than there are numbers.
    pub(crate) fn new(drives: usize, runs: &[Vec<u32>]) -> Option<Ordinals> {
        let mut ordinals = Ordinals { drives: vec![vec![]; drives], total: 0 };
        let mut below = vec![0_u32; drives];
        for run in runs {
            for (drive, count) in run.iter().copied().enumerate().filter(|(_, count)| *count > 0) {
                let stretches = ordinals.drives.get_mut(drive)?;
                stretches.push(Stretch { above: ordinals.total, below: below[drive], count });
                below[drive] = below[drive].checked_add(count)?;
                ordinals.total = ordinals.total.checked_add(count)?;
            }
        }
        Some(ordinals)
    }

    /// Slices of all drives.
    pub(crate) fn total(&self) -> u32 {
        self.total
    }

    /// Slices at one drive.
    pub(crate) fn count(&self, drive: usize) -> u32 {
        self.drives.get(drive).and_then(|stretches| stretches.last()).map_or(0, |last| last.below + last.count)
    }

    /// A drive's slice as hosts count it; none: the drive has no such slice.
    pub(crate) fn above(&self, drive: usize, slice: u32) -> Option<u32> {
        let stretches = self.drives.get(drive)?;
        let after = stretches.partition_point(|stretch| stretch.below <= slice);
        let stretch = stretches.get(after.checked_sub(1)?)?;
        (slice - stretch.below < stretch.count).then(|| stretch.above + (slice - stretch.below))
    }

    /// A drive's spans as hosts count them; none: the drive has not all of these slices.
    pub(crate) fn spans_above(&self, drive: usize, spans: &[SliceSpan]) -> Option<Vec<SliceSpan>> {
        let mut above = Vec::new();
        for span in spans {
            let end = span.first.checked_add(span.count).filter(|end| *end <= self.count(drive))?;
            let stretches = self.drives.get(drive)?;
            for stretch in stretches {
                let cut = overlap((stretch.below, stretch.count), (span.first, end));
                push(&mut above, cut.map(|(first, count)| SliceSpan { first: stretch.above + (first - stretch.below), count }));
            }
        }
        Some(above)
    }

    /// What of spans as hosts count them is at a drive, as the drive counts.
    pub(crate) fn spans_below(&self, drive: usize, spans: &[SliceSpan]) -> Vec<SliceSpan> {
        let mut below = Vec::new();
        for span in spans {
            let end = span.first.saturating_add(span.count);
            for stretch in self.drives.get(drive).into_iter().flatten() {
                let cut = overlap((stretch.above, stretch.count), (span.first, end));
                push(&mut below, cut.map(|(first, count)| SliceSpan { first: stretch.below + (first - stretch.above), count }));
            }
        }
        below
    }

    /// What of all slices is in none of these spans, which are ascending.
    pub(crate) fn without(&self, done: &[SliceSpan]) -> Vec<SliceSpan> {
        let mut left = Vec::new();
        let mut from = 0;
        for span in done {
            push(&mut left, (span.first > from).then(|| SliceSpan { first: from, count: span.first - from }));
            from = span.first.saturating_add(span.count);
        }
        push(&mut left, (self.total > from).then(|| SliceSpan { first: from, count: self.total - from }));
        left
    }
}

/// First and number of what two spans have in common; the second is given by its end.
fn overlap((first, count): (u32, u32), (from, end): (u32, u32)) -> Option<(u32, u32)> {
    let (first, last) = (first.max(from), (first + count).min(end));
    (first < last).then(|| (first, last - first))
}

/// Adds a span, to the last one where it goes on from that.
fn push(spans: &mut Vec<SliceSpan>, span: Option<SliceSpan>) {
    let Some(span) = span else { return };
    match spans.last_mut() {
        Some(last) if last.first + last.count == span.first => last.count += span.count,
        _ => spans.push(span),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(first: u32, count: u32) -> SliceSpan {
        SliceSpan { first, count }
    }

    /// Two runs at three drives: 0 1 | 2 | - and 3 | 4 5 | 6 as hosts count.
    fn ordinals() -> Ordinals {
        Ordinals::new(3, &[vec![2, 1, 0], vec![1, 2, 1]]).unwrap()
    }

    #[test]
    fn every_slice_is_at_one_drive_and_comes_back() {
        let ordinals = ordinals();
        assert_eq!((ordinals.total(), [0, 1, 2].map(|drive| ordinals.count(drive))), (7, [3, 3, 1]));
        let at = |drive: usize| -> Vec<u32> {
            (0..ordinals.count(drive)).map(|slice| ordinals.above(drive, slice).unwrap()).collect()
        };
        assert_eq!([at(0), at(1), at(2)], [vec![0, 1, 3], vec![2, 4, 5], vec![6]]);
        assert_eq!([ordinals.above(0, 3), ordinals.above(2, 1), ordinals.above(3, 0)], [None; 3]);
        for drive in 0..3 {
            for slice in 0..ordinals.count(drive) {
                let above = ordinals.above(drive, slice).unwrap();
                assert_eq!(ordinals.spans_below(drive, &[span(above, 1)]), [span(slice, 1)]);
                for other in (0..3).filter(|other| *other != drive) {
                    assert!(ordinals.spans_below(other, &[span(above, 1)]).is_empty());
                }
            }
        }
    }

    #[test]
    fn spans_are_cut_where_another_drive_comes_between() {
        let ordinals = ordinals();
        assert_eq!(ordinals.spans_above(0, &[span(1, 2)]), Some(vec![span(1, 1), span(3, 1)]));
        assert_eq!(ordinals.spans_above(1, &[span(0, 3)]), Some(vec![span(2, 1), span(4, 2)]));
        assert_eq!(ordinals.spans_above(2, &[span(0, 2)]), None);
        assert_eq!(ordinals.spans_above(0, &[span(u32::MAX, 2)]), None);
        assert_eq!(ordinals.spans_below(0, &[span(1, 3)]), [span(1, 2)]);
        assert_eq!(ordinals.spans_below(1, &[span(0, 7)]), [span(0, 3)]);
    }

    #[test]
    fn what_is_left_and_what_is_done_are_all() {
        let ordinals = ordinals();
        assert_eq!(ordinals.without(&[]), [span(0, 7)]);
        assert_eq!(ordinals.without(&[span(0, 1), span(2, 2)]), [span(1, 1), span(4, 3)]);
        assert!(ordinals.without(&[span(0, 7)]).is_empty());
        assert!(Ordinals::new(2, &[]).unwrap().without(&[]).is_empty());
    }

    #[test]
    fn more_slices_than_numbers_are_refused() {
        assert_eq!(Ordinals::new(2, &[vec![u32::MAX, 1]]), None);
    }
}
