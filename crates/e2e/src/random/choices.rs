//! Decisions of the generator: drawn from a seed, or taken over from an earlier run that is being shrunk.
//!
//! A query follows from the list of its decisions. So a query is shrunk by shortening the list and making the query
//! again, which keeps it well-typed (as in Hypothesis: MacIver and Donaldson 2020; see `docs/bibliography.md`).
//! Decision 0 is the simplest one everywhere.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// Decisions, one after another.
pub(crate) struct Choices {
    source: Source,
    trace: Trace,
}

enum Source {
    Random(Box<StdRng>),
    /// Decisions of another run; 0 once they are used up.
    Given(std::vec::IntoIter<u32>),
}

/// The decisions that a query was made by.
#[derive(Clone, Default)]
pub(crate) struct Trace {
    /// Each is below the number of its possibilities.
    pub(crate) taken: Vec<u32>,
    /// Which decisions made which part; inner parts before outer ones.
    pub(crate) spans: Vec<Span>,
}

/// Decisions `start..end` made a part of this kind.
#[derive(Clone, Copy)]
pub(crate) struct Span {
    pub(crate) label: &'static str,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

impl Choices {
    /// From a seed.
    pub(crate) fn random(seed: u64) -> Choices {
        Choices { source: Source::Random(Box::new(StdRng::seed_from_u64(seed))), trace: Trace::default() }
    }

    /// These, as far as they go.
    pub(crate) fn given(taken: Vec<u32>) -> Choices {
        Choices { source: Source::Given(taken.into_iter()), trace: Trace::default() }
    }

    /// What was decided.
    pub(crate) fn into_trace(self) -> Trace {
        self.trace
    }

    /// One of `0..count`.
    pub(crate) fn below(&mut self, count: usize) -> usize {
        self.next(count, |random| random.random_range(0..count))
    }

    /// A place among weights, in proportion to them.
    pub(crate) fn weighted(&mut self, weights: &[u32]) -> usize {
        self.next(weights.len(), |random| {
            let mut left = random.random_range(0..weights.iter().sum::<u32>());
            let place = weights.iter().position(|weight| {
                let here = left < *weight;
                left = left.saturating_sub(*weight);
                here
            });
            place.unwrap_or(0)
        })
    }

    /// True in so many of a hundred cases.
    pub(crate) fn chance(&mut self, percent: u32) -> bool {
        self.weighted(&[100 - percent, percent]) == 1
    }

    /// One of these.
    pub(crate) fn pick<'a, T: ?Sized>(&mut self, items: &[&'a T]) -> &'a T {
        items[self.below(items.len())]
    }

    /// Where a part begins; hand it to [`Choices::end`].
    pub(crate) fn begin(&self) -> usize {
        self.trace.taken.len()
    }

    /// Ends the part that began at `start`.
    pub(crate) fn end(&mut self, label: &'static str, start: usize) {
        self.trace.spans.push(Span { label, start, end: self.trace.taken.len() });
    }

    fn next(&mut self, count: usize, draw: impl FnOnce(&mut StdRng) -> usize) -> usize {
        let chosen = match &mut self.source {
            Source::Random(random) => draw(random),
            Source::Given(taken) => taken.next().unwrap_or(0) as usize % count,
        };
        self.trace.taken.push(u32::try_from(chosen).expect("few possibilities"));
        chosen
    }
}

impl Trace {
    /// Shorter or simpler lists of decisions, the boldest first.
    pub(crate) fn simpler(&self) -> Vec<Vec<u32>> {
        let mut spans: Vec<Span> = self.spans.iter().copied().filter(|span| span.start < span.end).collect();
        spans.sort_by_key(|span| std::cmp::Reverse(span.end - span.start));
        // A part that begins with whether it is there at all is gone by that one decision.
        let mut lists: Vec<Vec<u32>> = spans.iter().map(|span| self.replaced(*span, &[0])).collect();
        lists.extend(spans.iter().map(|span| self.replaced(*span, &[])));
        for outer in &spans {
            let inner =
                spans.iter().filter(|inner| inner.label == outer.label && inner.start > outer.start && inner.end <= outer.end);
            lists.extend(inner.take(6).map(|inner| self.replaced(*outer, &self.taken[inner.start..inner.end])));
        }
        lists.extend(spans.iter().map(|span| self.replaced(*span, &vec![0; span.end - span.start])));
        let nonzero = (0..self.taken.len()).filter(|place| self.taken[*place] != 0);
        for place in nonzero {
            let mut list = self.taken.clone();
            list[place] = 0;
            lists.push(list);
        }
        lists.retain(|list| *list != self.taken);
        lists.dedup();
        lists
    }

    /// Whether it is simpler than another.
    pub(crate) fn is_below(&self, other: &Trace) -> bool {
        let size = |trace: &Trace| (trace.taken.len(), trace.taken.iter().filter(|choice| **choice != 0).count());
        (size(self), &self.taken) < (size(other), &other.taken)
    }

    fn replaced(&self, span: Span, by: &[u32]) -> Vec<u32> {
        [&self.taken[..span.start], by, &self.taken[span.end..]].concat()
    }
}
