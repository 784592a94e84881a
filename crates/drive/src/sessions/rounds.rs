//! [`RoundPolicy`]: how a session's slices are cut into rounds. Pure.

use pithead_plan::ResultShape;

/// Shipped inputs above this make a hash table that is not worth building once a slice.
const INPUT_BYTES_LARGE: usize = 1 << 20;

/// What the policy looks at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SessionFacts {
    /// How outputs of several rounds go together.
    pub shape: ResultShape,
    /// All slices must be in one round.
    pub whole_partition: bool,
    /// Datasets besides the driving one.
    pub other_parts: usize,
    /// Bytes of the tables sent along.
    pub input_bytes: usize,
    /// Only a few pages are read.
    pub is_sample: bool,
    /// Slices of the driving partition.
    pub slices: u32,
    /// Threads granted.
    pub threads: usize,
}

/// How a session runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RoundPolicy {
    /// Tasks that run rounds side by side.
    pub tasks: usize,
    /// Whether the outputs of rounds stay at the drive and are combined before they travel.
    pub keep: bool,
    /// No further round begins once closed rounds to level 3 have this many rows.
    pub rows_enough: Option<u64>,
    /// Whether the first round is the only one.
    pub single: bool,
    /// Slices that each task would have of all.
    share: usize,
    growth: Growth,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Growth {
    One,
    Doubling,
    All,
}

impl RoundPolicy {
    pub(crate) fn new(facts: &SessionFacts) -> Self {
        let single = facts.whole_partition || facts.slices == 0;
        let keep = matches!(facts.shape, ResultShape::Partials | ResultShape::TopK) && !facts.whole_partition;
        let joins = facts.other_parts > 0 || facts.input_bytes > INPUT_BYTES_LARGE;
        Self {
            tasks: if single || facts.is_sample { 1 } else { facts.threads.clamp(1, facts.slices as usize) },
            keep,
            share: facts.slices as usize / facts.threads.max(1),
            rows_enough: match facts.shape {
                ResultShape::Limit(rows) if !facts.whole_partition => Some(rows as u64),
                _ => None,
            },
            single,
            growth: match (single || joins || facts.is_sample, keep) {
                (true, _) => Growth::All,
                (false, true) => Growth::Doubling,
                (false, false) => Growth::One,
            },
        }
    }

    /// Slices that a task's `nth` round takes at most, where so many are left. No task takes more of these than its even part: the
    /// others would have nothing to do while it is at the rest. Each round has a plan made anew, so that parts of an eighth of a
    /// task's share are not divided.
    pub(crate) fn slices_max(&self, nth: u32, left: usize) -> usize {
        match self.growth {
            Growth::One => 1,
            Growth::Doubling => (1 << nth.min(20)).min(left.div_ceil(self.tasks).max(self.share / 8).max(1)),
            // One round takes slices as it gets to them, which is as even.
            Growth::All => usize::MAX,
        }
    }

    /// Whether later rounds take more slices than the first, and hang on what is left.
    pub(crate) fn grows(&self) -> bool {
        self.growth == Growth::Doubling
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FACTS: SessionFacts = SessionFacts {
        shape: ResultShape::Rows,
        whole_partition: false,
        other_parts: 0,
        input_bytes: 0,
        is_sample: false,
        slices: 9,
        threads: 4,
    };

    fn sizes(facts: SessionFacts) -> Vec<usize> {
        let policy = RoundPolicy::new(&facts);
        (0..4).map(|nth| policy.slices_max(nth, usize::MAX)).collect()
    }

    #[test]
    fn rows_travel_a_slice_a_round_and_partials_grow() {
        assert_eq!(sizes(FACTS), [1, 1, 1, 1]);
        assert_eq!(sizes(SessionFacts { shape: ResultShape::Limit(5), ..FACTS }), [1, 1, 1, 1]);
        assert_eq!(sizes(SessionFacts { shape: ResultShape::Partials, ..FACTS }), [1, 2, 4, 8]);
        assert_eq!(sizes(SessionFacts { other_parts: 1, ..FACTS })[0], usize::MAX);
        assert_eq!(sizes(SessionFacts { input_bytes: 2 << 20, ..FACTS })[0], usize::MAX);
    }

    /// Tasks that take a slice in the same time: how many slices each of them has in the end, and the rounds of all.
    fn shared(slices: usize, threads: usize) -> (Vec<usize>, u32) {
        let policy = RoundPolicy::new(&SessionFacts { shape: ResultShape::Partials, slices: slices as u32, threads, ..FACTS });
        let (mut left, mut tasks) = (slices, vec![(0, 0); threads]);
        while left > 0 {
            // Who is done first goes on first.
            let (taken, nth) = tasks.iter_mut().min_by_key(|task| task.0).unwrap();
            let takes = policy.slices_max(*nth, left).min(left);
            (*taken, *nth, left) = (*taken + takes, *nth + 1, left - takes);
        }
        let rounds = tasks.iter().map(|(_, nth)| nth).sum();
        (tasks.into_iter().map(|(taken, _)| taken).collect(), rounds)
    }

    #[test]
    fn the_last_slices_are_shared() {
        assert_eq!(shared(8, 2).0, [4, 4], "and not 1 + 2 + 2 and 1 + 2");
        for (slices, threads) in [(9, 2), (100, 3), (1000, 4), (64, 8), (7, 4), (4000, 16)] {
            let (taken, rounds) = shared(slices, threads);
            let (most, least) = (taken.iter().max().unwrap(), taken.iter().min().unwrap());
            let share = slices / threads;
            assert!(most - least <= (share / 8).max(1), "{slices} slices, {threads} tasks: {taken:?}");
            // Those that grow to a share, and some eighths of it.
            assert!(rounds as usize <= threads * (share.ilog2() as usize + 8), "{slices} slices, {threads} tasks: {rounds}");
        }
    }

    /// Plans for several rounds would take longer than the pages.
    #[test]
    fn a_sample_is_one_round() {
        let policy = RoundPolicy::new(&SessionFacts { is_sample: true, shape: ResultShape::Partials, ..FACTS });
        assert_eq!((policy.tasks, policy.slices_max(0, 9)), (1, usize::MAX));
    }

    #[test]
    fn a_whole_partition_and_an_empty_one_are_one_round() {
        for facts in
            [SessionFacts { whole_partition: true, shape: ResultShape::Partials, ..FACTS }, SessionFacts { slices: 0, ..FACTS }]
        {
            let policy = RoundPolicy::new(&facts);
            assert!(policy.single && policy.tasks == 1 && !policy.keep);
        }
    }

    #[test]
    fn no_more_tasks_than_slices() {
        assert_eq!(RoundPolicy::new(&SessionFacts { slices: 3, ..FACTS }).tasks, 3);
        assert_eq!(RoundPolicy::new(&FACTS).tasks, 4);
    }
}
