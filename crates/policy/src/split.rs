//! The division of slices among levels.
//!
//! A division that uses some of the levels and not the others lies on a face of the triangle of all divisions. The
//! faces are searched one by one, since one-off costs make a step between them, and since [`Steering`](crate::Steering)
//! compares them. Levels 1 and 0 are both the carrier's, so a division uses one of them: there are two triangles, with
//! the side of levels 3 and 2 in common.

use crate::fluid::{Counts, Fluid};
use crate::snapshot::{Allowed, ByLevel, Resource, Snapshot, Split};

/// Up to this number of slices, the search looks at every division.
const EXACT_MAX: u32 = 64;
/// The number of steps along each side of the triangle when the search first looks at larger numbers.
const COARSE: u32 = 24;
/// Finishes that differ by less are equal, and the higher level wins.
const EQUAL: f64 = 1e-9;

/// The levels that a division uses, as one bit for each.
pub type Face = u8;
pub const WHOLE: Face = 1;
pub const FILTERED: Face = 2;
pub const HINTS: Face = 4;
pub const BYTES: Face = 8;
pub const ALL: Face = WHOLE | FILTERED | HINTS | BYTES;
/// All faces.
const FACES: usize = 16;

/// A division and its finish.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    pub counts: Counts,
    pub finish_ns: f64,
    pub bottleneck: Resource,
}

impl Candidate {
    fn at(fluid: &Fluid, counts: Counts) -> Candidate {
        let (finish_ns, bottleneck) = fluid.finish(counts);
        Candidate { counts, finish_ns, bottleneck }
    }

    /// Whether this division finishes sooner, or as soon with higher levels.
    pub fn beats(&self, other: &Candidate) -> bool {
        if self.finish_ns.is_infinite() || other.finish_ns.is_infinite() {
            let both = self.finish_ns.is_infinite() && other.finish_ns.is_infinite();
            return if both { self.counts > other.counts } else { self.finish_ns < other.finish_ns };
        }
        let margin = EQUAL * other.finish_ns;
        self.finish_ns < other.finish_ns - margin || (self.finish_ns <= other.finish_ns + margin && self.counts > other.counts)
    }
}

/// The best division on each face.
#[derive(Clone, Debug)]
pub struct Faces {
    best: [Option<Candidate>; FACES],
    fixed_ns: ByLevel<f64>,
}

impl Faces {
    pub fn of(snapshot: &Snapshot, fluid: &Fluid) -> Faces {
        let allowed = levels(snapshot.allowed);
        let mut search = Search { fluid, allowed, all_or_none: snapshot.whole_is_all_or_none, best: [None; FACES] };
        let left = fluid.left();
        if left <= EXACT_MAX {
            search.everything();
        } else {
            search.lines();
            search.inside();
        }
        let fixed = |bit: Face, counts: Counts| if allowed & bit == 0 { f64::INFINITY } else { fluid.finish(counts).0 };
        let fixed_ns = ByLevel {
            whole: fixed(WHOLE, [left, 0, 0, 0]),
            filtered: fixed(FILTERED, [0, left, 0, 0]),
            hints: fixed(HINTS, [0, 0, left, 0]),
            bytes: fixed(BYTES, [0, 0, 0, left]),
        };
        Faces { best: search.best, fixed_ns }
    }

    /// The best division that uses no level outside `mask`.
    pub fn within(&self, mask: Face) -> Option<Candidate> {
        let faces = self.best.iter().enumerate().filter(|(face, _)| *face as Face & !mask == 0);
        faces.filter_map(|(_, best)| *best).reduce(|best, next| if next.beats(&best) { next } else { best })
    }

    pub fn split(&self, chosen: &Candidate) -> Split {
        let [whole, filtered, hints, bytes] = chosen.counts;
        Split {
            slices: ByLevel { whole, filtered, hints, bytes },
            finish_ns: chosen.finish_ns,
            bottleneck: chosen.bottleneck,
            fixed_ns: self.fixed_ns,
        }
    }
}

/// The levels that the division uses.
pub fn face_of(counts: Counts) -> Face {
    counts.iter().enumerate().filter(|(_, n)| **n > 0).map(|(level, _)| 1 << level).sum()
}

fn levels(allowed: Allowed) -> Face {
    let bits = [(allowed.whole, WHOLE), (allowed.filtered, FILTERED), (allowed.hints, HINTS), (allowed.bytes, BYTES)];
    let mask = bits.into_iter().filter(|(allowed, _)| *allowed).map(|(_, bit)| bit).sum();
    if mask == 0 { WHOLE } else { mask }
}

struct Search<'a> {
    fluid: &'a Fluid,
    allowed: Face,
    all_or_none: bool,
    best: [Option<Candidate>; FACES],
}

impl Search<'_> {
    fn look(&mut self, counts: Counts) {
        let face = face_of(counts);
        if face & !self.allowed != 0 || (self.all_or_none && counts[0] > 0 && face != WHOLE) {
            return;
        }
        let next = Candidate::at(self.fluid, counts);
        if let Some(best) = self.best.get_mut(usize::from(face))
            && best.is_none_or(|best| next.beats(&best))
        {
            *best = Some(next);
        }
    }

    /// The same with the carrier's slices at each of its levels that may be chosen.
    fn look_carried(&mut self, whole: u32, filtered: u32, carried: u32) {
        self.look([whole, filtered, 0, carried]);
        if carried > 0 {
            self.look([whole, filtered, carried, 0]);
        }
    }

    fn everything(&mut self) {
        let left = self.fluid.left();
        for whole in 0..=left {
            for filtered in 0..=left - whole {
                self.look_carried(whole, filtered, left - whole - filtered);
            }
        }
    }

    /// The corners of the triangles, and their sides: first in large steps, then in ever smaller ones around the best
    /// division.
    fn lines(&mut self) {
        let left = self.fluid.left();
        let sides: [fn(u32, u32) -> Counts; 5] =
            [|a, b| [a, b, 0, 0], |a, b| [a, 0, b, 0], |a, b| [a, 0, 0, b], |a, b| [0, a, b, 0], |a, b| [0, a, 0, b]];
        for side in sides {
            let face = usize::from(face_of(side(1, 1)));
            let mut step = (left / EXACT_MAX).max(1);
            (0..=left).step_by(step as usize).for_each(|a| self.look(side(a, left - a)));
            self.look(side(left, 0));
            while step > 1 {
                let fine = (step / 4).max(1);
                let Some(best) = self.best.get(face).copied().flatten() else { break };
                let middle = if best.counts[0] > 0 { best.counts[0] } else { best.counts[1] };
                let (from, to) = (middle.saturating_sub(step), middle.saturating_add(step).min(left));
                (from..=to).step_by(fine as usize).for_each(|a| self.look(side(a, left - a)));
                step = fine;
            }
        }
    }

    /// Divisions that use three levels.
    fn inside(&mut self) {
        type Side = (Face, fn(u32, u32, u32) -> Counts);
        let sides: [Side; 2] = [(HINTS, |a, b, c| [a, b, c, 0]), (BYTES, |a, b, c| [a, b, 0, c])];
        for (level, counts) in sides {
            if self.allowed & level != 0 {
                self.inside_of(usize::from(WHOLE | FILTERED | level), counts);
            }
        }
    }

    fn inside_of(&mut self, face: usize, counts: fn(u32, u32, u32) -> Counts) {
        let left = self.fluid.left();
        let mut step = (left / COARSE).max(1);
        for whole in (step..left).step_by(step as usize) {
            for filtered in (step..left - whole).step_by(step as usize) {
                self.look(counts(whole, filtered, left - whole - filtered));
            }
        }
        while step > 1 {
            let fine = (step / 2).max(1);
            let Some(best) = self.best.get(face).copied().flatten() else { return };
            let around = |n: u32| (n.saturating_sub(step).max(1)..=n.saturating_add(step)).step_by(fine as usize);
            for whole in around(best.counts[0]).filter(|whole| *whole < left) {
                for filtered in around(best.counts[1]).filter(|filtered| *filtered < left - whole) {
                    self.look(counts(whole, filtered, left - whole - filtered));
                }
            }
            step = fine;
        }
    }
}

/// Divides the slices left among the levels that are allowed so that the slowest of drive, link and host finishes
/// soonest.
///
/// Up to 64 slices, it looks at every division; for more, it searches the faces of the triangle of all divisions in
/// large steps and then in ever smaller ones. Of divisions that finish at the same time, it prefers the one with higher
/// levels, because that sends fewer bytes.
pub fn split(snapshot: &Snapshot) -> Split {
    let fluid = Fluid::new(snapshot);
    let faces = Faces::of(snapshot, &fluid);
    match faces.within(ALL) {
        Some(best) => faces.split(&best),
        // Only if nothing is left.
        None => faces.split(&Candidate::at(&fluid, [0; 4])),
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    use super::*;
    use crate::snapshot::{DriveState, HostState, LinkState, Setup, SliceCosts};

    fn random(rng: &mut StdRng, left: u32) -> Snapshot {
        // The costs are spread over orders of magnitude, so that every resource is the bottleneck now and then.
        let mut up_to = |max: f64| if rng.random_bool(0.1) { 0.0 } else { max * 10f64.powf(-3.0 * rng.random::<f64>()) };
        let each = |up_to: &mut dyn FnMut(f64) -> f64, max: f64| ByLevel::from_fn(|_| up_to(max));
        let (drive_ns, host_ns, link_bytes) = (each(&mut up_to, 1e8), each(&mut up_to, 1e8), each(&mut up_to, 1e7));
        let setup = ByLevel::from_fn(|_| Setup { link_bytes: up_to(1e7), host_ns: up_to(1e8), drive_ns: up_to(1e8) });
        Snapshot {
            left,
            resident: up_to(f64::from(left)) as u32,
            costs: SliceCosts { drive_ns, host_ns, link_bytes },
            setup,
            drive: DriveState { cores: up_to(8.0), busy_ns: up_to(1e9) },
            link: LinkState { bytes_per_s: up_to(1e9), backlog_bytes: up_to(1e8) },
            host: HostState { cores: up_to(16.0), backlog_ns: up_to(1e9) },
            allowed: Allowed {
                whole: rng.random_bool(0.9),
                filtered: rng.random_bool(0.8),
                hints: rng.random_bool(0.6),
                bytes: rng.random_bool(0.9),
            },
            whole_is_all_or_none: rng.random_bool(0.1),
        }
    }

    fn by_looking_at_all(ask: &Snapshot) -> f64 {
        let (fluid, mask, left) = (Fluid::new(ask), levels(ask.allowed), ask.left);
        let mut best = f64::INFINITY;
        for whole in 0..=left {
            for filtered in 0..=left - whole {
                let carried = left - whole - filtered;
                for counts in [[whole, filtered, carried, 0], [whole, filtered, 0, carried]] {
                    let legal = face_of(counts) & !mask == 0 && !(ask.whole_is_all_or_none && whole > 0 && whole < left);
                    best = if legal { best.min(fluid.finish(counts).0) } else { best };
                }
            }
        }
        best
    }

    #[test]
    fn small_divisions_are_optimal_and_large_ones_nearly() {
        let mut rng = StdRng::seed_from_u64(5);
        for case in 0..600u32 {
            let left = if case % 3 == 0 { 65 + case / 2 } else { 1 + case % EXACT_MAX };
            let ask = random(&mut rng, left);
            let (found, best) = (split(&ask).finish_ns, by_looking_at_all(&ask));
            let margin = if left <= EXACT_MAX { 1e-8 } else { 0.02 };
            assert!(found == best || (best <= found && found <= best * (1.0 + margin)), "{left}: {found} for {best}: {ask:?}");
        }
    }
}
