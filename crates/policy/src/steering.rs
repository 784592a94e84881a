//! What one session remembers: its estimates and its decisions.

use std::cmp::Ordering;

use pithead_model::Level;
use serde::{Deserialize, Serialize};

use crate::estimate::Estimate;
use crate::fluid::{CARRIED, Counts, Fluid, sane};
use crate::snapshot::{ByLevel, Resource, SliceCosts, Snapshot, Split};
use crate::split::{ALL, BYTES, Candidate, FILTERED, Face, Faces, HINTS, WHOLE, face_of};

/// A session leaves a mode at once for a finish that is sooner by this share.
const GAIN_AT_ONCE: f64 = 0.10;
/// A smaller gain has to last for several decisions.
const GAIN_LASTING: f64 = 0.03;
const LASTING: u32 = 3;
/// Divisions whose finishes differ by less than this are equally good.
const NEAR: f64 = 0.02;
/// The factor by which a finish may still come sooner where its bottleneck is known for certain.
const SURE: f64 = 0.9;
/// How many times its estimate a slice may last at an engine of which nothing was measured: at an engine like the host,
/// and at a weak one.
const WORST: f64 = 4.0;
const WORST_WEAK: f64 = 20.0;
/// The share of the finish that a slice may take if it is sent only to keep the link from being idle.
const EXPLORING: f64 = 0.1;
/// The most bytes that such a slice may have, relative to what the drive would send.
const EXPLORING_BYTES: f64 = 1.5;
/// The weight of the cost model in samples: as a guess, and after an earlier measurement.
const PRIOR_GUESSED: f64 = 2.0;
const PRIOR_CONFIDENT: f64 = 6.0;
/// The number of samples after which a sub-plan is well known.
const SETTLED: u32 = 4;
const SPREAD_SETTLED: f64 = 0.6;
/// Differences between slices do not matter below these values.
const NS_FLOOR: f64 = 1_000.0;
const BYTES_FLOOR: f64 = 64.0;

/// The measured cost of a round at the drive, summed over its slices. A value that is not a number was not measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// The level at which the slices were executed.
    pub level: Level,
    /// The number of slices.
    pub slices: u32,
    /// CPU time at the drive.
    pub drive_ns: f64,
    /// The CPU time that level 2 would have cost.
    pub scan_ns: f64,
    /// Bytes sent.
    pub link_bytes: f64,
    /// Bytes that level 2 would have sent.
    pub scan_bytes: f64,
    /// Bytes that level 0 would have sent.
    pub stored_bytes: f64,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// The level at which a free worker executes its next slice. `None`: the rest is for the carrier.
    pub worker: Option<Level>,
    /// The level at which the carrier takes another slice. `None`: it takes none.
    pub carry: Option<Level>,
    /// The division of all remaining slices of which this is the next step.
    pub split: Split,
}

/// The estimates of one session, and its decisions so far.
///
/// An estimate is a weighted median of the last samples and of the cost model's prediction, so that slow first slices
/// and false reports have little effect. The session leaves a mode (the levels that workers and carrier use) for one
/// that finishes sooner by more than a tenth, or for one that finishes a little sooner for several decisions in
/// succession.
#[derive(Clone, Debug)]
pub struct Steering {
    seed: SliceCosts,
    /// Time at the host for the same work, over time at the drive.
    host_over_drive: f64,
    scan_ns: Estimate,
    rest_ns: Estimate,
    hint_ns: Estimate,
    carry_ns: Estimate,
    host_ns: ByLevel<Estimate>,
    link_bytes: ByLevel<Estimate>,
    costs: SliceCosts,
    workers: u32,
    mode: Option<Face>,
    wanted: Option<Face>,
    wanted_for: u32,
}

impl Steering {
    /// Starts from the cost model's prediction or, if `confident`, from what an earlier session of the same sub-plan
    /// measured.
    pub fn new(seed_costs: SliceCosts, confident: bool) -> Steering {
        let weight = if confident { PRIOR_CONFIDENT } else { PRIOR_GUESSED };
        let ns = |prior: f64| Estimate::new(prior, weight, NS_FLOOR);
        let (drive, host, link) = (&seed_costs.drive_ns, &seed_costs.host_ns, &seed_costs.link_bytes);
        let (whole, scan) = (sane(drive.whole), sane(drive.filtered));
        let ratio = sane(host.bytes) / whole;
        let mut steering = Steering {
            host_over_drive: if ratio.is_finite() && ratio > 0.0 { ratio } else { 1.0 },
            scan_ns: ns(scan),
            rest_ns: ns(whole - scan),
            hint_ns: ns(drive.hints),
            carry_ns: ns(drive.bytes),
            host_ns: ByLevel::from_fn(|level| ns(*host.get(level))),
            link_bytes: ByLevel::from_fn(|level| Estimate::new(*link.get(level), weight, BYTES_FLOOR)),
            costs: SliceCosts::default(),
            workers: 0,
            mode: None,
            wanted: None,
            wanted_for: 0,
            seed: seed_costs,
        };
        steering.refresh();
        steering
    }

    /// Sets how fast both engines are, in time for one unit of a calibration loop. The host's costs then follow from
    /// the drive's until the host has measured them.
    pub fn set_speed(&mut self, drive_ns_per_unit: f64, host_ns_per_unit: f64) {
        let ratio = host_ns_per_unit / drive_ns_per_unit;
        if ratio.is_finite() && ratio > 0.0 {
            self.host_over_drive = ratio.clamp(1e-3, 1e3);
            self.follow_drive();
            self.refresh();
        }
    }

    /// Sets how many slices the drive runs at one time. If others keep its cores busy, each of these slices is slow.
    pub fn set_workers(&mut self, workers: u32) {
        self.workers = workers;
    }

    /// Adds the measurement of a round at the drive. A round at level 3 also shows what levels 2 and 0 would cost.
    pub fn measure(&mut self, sample: &Sample) {
        if sample.slices == 0 {
            return;
        }
        let slices = sample.slices;
        let each = |sum: f64| sum / f64::from(slices);
        match sample.level {
            Level::Whole => {
                let scan = sample.scan_ns.min(sane(sample.drive_ns));
                self.scan_ns.push(each(if sample.scan_ns.is_nan() { f64::NAN } else { scan }), slices);
                self.rest_ns.push(each(sample.drive_ns - sample.scan_ns), slices);
                self.link_bytes.whole.push(each(sample.link_bytes), slices);
                self.link_bytes.filtered.push(each(sample.scan_bytes), slices);
            }
            Level::Filtered => {
                self.scan_ns.push(each(sample.drive_ns), slices);
                self.link_bytes.filtered.push(each(sample.link_bytes), slices);
            }
            Level::Hints => {
                self.hint_ns.push(each(sample.drive_ns), slices);
                self.link_bytes.hints.push(each(sample.link_bytes), slices);
            }
            Level::Bytes => self.carry_ns.push(each(sample.drive_ns), slices),
        }
        self.link_bytes.bytes.push(each(sample.stored_bytes), slices);
        self.refresh();
    }

    /// Adds what the host measured: the CPU time, in sum, of slices that it received at `level`.
    pub fn measure_host(&mut self, level: Level, slices: u32, ns: f64) {
        if slices > 0 {
            self.host_ns.get_mut(level).push(ns / f64::from(slices), slices);
            self.refresh();
        }
    }

    /// Expects so many bytes of a slice at level 1, until slices were sent at it: what the bounds of one slice's pages say.
    pub fn expect_hints(&mut self, link_bytes: f64) {
        self.link_bytes.hints.set_prior(link_bytes);
        self.refresh();
    }

    /// The present estimates.
    pub fn costs(&self) -> &SliceCosts {
        &self.costs
    }

    /// Whether enough was measured for the sub-plan to be confidently sized the next time.
    pub fn is_settled(&self) -> bool {
        let known = |estimate: &Estimate| estimate.seen() >= SETTLED && estimate.spread() < SPREAD_SETTLED;
        known(&self.scan_ns) || known(&self.host_ns.bytes) || known(&self.host_ns.hints)
    }

    /// Decides what a free worker and the carrier do next. It ignores the costs in `snapshot`, and uses
    /// [`Steering::costs`] instead.
    pub fn decide(&mut self, snapshot: &Snapshot) -> Decision {
        let now = Snapshot { costs: self.costs.clone(), ..snapshot.clone() };
        let fluid = Fluid::new(&now).with_workers(self.workers);
        let faces = Faces::of(&now, &fluid);
        let Some(best) = faces.within(ALL) else {
            let (finish_ns, bottleneck) = fluid.finish([0; 4]);
            let nothing = Candidate { counts: [0; 4], finish_ns, bottleneck };
            return Decision { worker: None, carry: None, split: faces.split(&nothing) };
        };
        let mode = self.choose(&faces, &best);
        let chosen = plain(&faces, mode).unwrap_or(best);
        let chosen = self.careful(&fluid, &faces, mode, chosen);
        self.note(chosen.counts);
        let waits = fluid.can_wait(chosen.counts, chosen.finish_ns);
        let worker = self.worker(&now, chosen.counts).filter(|_| !waits);
        let carry = carried(chosen.counts).filter(|_| !self.is_guess(&now, chosen.counts));
        let carry = carry.or_else(|| self.explores(&now, &fluid, chosen.finish_ns));
        Decision { worker, carry, split: faces.split(&chosen) }
    }

    /// The levels to use from now on.
    fn choose(&mut self, faces: &Faces, best: &Candidate) -> Face {
        let Some(mode) = self.mode else {
            return self.begin(simplest(faces, best));
        };
        let Some(kept) = faces.within(mode) else {
            return self.begin(simplest(faces, best));
        };
        if kept.finish_ns <= best.finish_ns * (1.0 + GAIN_LASTING) || best.finish_ns.is_infinite() {
            self.wanted = None;
            return mode;
        }
        let wanted = simplest(faces, best);
        self.wanted_for = if self.wanted == Some(wanted) { self.wanted_for + 1 } else { 1 };
        self.wanted = Some(wanted);
        if kept.finish_ns > best.finish_ns * (1.0 + GAIN_AT_ONCE) || self.wanted_for >= LASTING {
            return self.begin(wanted);
        }
        mode
    }

    /// A slice that was begun cannot be taken back. Therefore no slice is begun at a level where it may last longer
    /// than all the others take without that level. While estimates are uncertain, this rules out a drive that may be
    /// slow and a link that may be slow.
    fn careful(&self, fluid: &Fluid, faces: &Faces, mode: Face, chosen: Candidate) -> Candidate {
        let host = [self.host_ns.hints.range(WORST), self.host_ns.bytes.range(WORST)];
        let far_host = |level: usize| if level == CARRIED { host[0] } else { host[1] };
        let (scan, whole) = (self.scan_ns.range(self.worst()), self.whole_range());
        // Both levels of the drive err alike, so they are compared by their expected costs.
        let soon =
            |near: Candidate| near.finish_ns * if near.bottleneck == Resource::Drive { scan.0.min(whole.0) } else { SURE };
        // Where both are used, a link that is just as long hides how uncertain the drive is.
        let near = [WHOLE, FILTERED, WHOLE | FILTERED].into_iter().filter_map(|mask| faces.within(mask));
        let near_soon = near.map(soon).min_by(f64::total_cmp);
        let (hint, carry) = (self.hint_ns.range(self.worst()), self.carry_ns.range(self.worst()));
        let far_soon = faces.within(HINTS | BYTES).map(|far| {
            let (host, drive) = if far.counts[CARRIED] > 0 { (host[0], hint) } else { (host[1], carry) };
            let least = match far.bottleneck {
                Resource::Host => host.0,
                Resource::Drive => drive.0,
                Resource::Link => SURE,
            };
            far.finish_ns * least
        });
        let at_drive = [whole.1, scan.1, hint.1, carry.1];
        let worst = |level: usize| fluid.path(level, at_drive.get(level).copied().unwrap_or(1.0), far_host(level).1);
        let late_by = |level: usize| {
            let others = faces.within(ALL & !(1 << level))?;
            let late = fluid.path(level, 1.0, 1.0) - others.finish_ns;
            let soon = if level >= CARRIED { near_soon } else { far_soon };
            Some(soon.map_or(late, |soon| late.max(worst(level) - soon)))
        };
        let safe: Face = (0..4).filter(|level| late_by(*level).is_none_or(|by| by <= 0.0)).map(|level| 1 << level).sum();
        if let Some(kept) = plain(faces, mode & safe).or_else(|| plain(faces, safe)) {
            return kept;
        }
        // All levels may be late, so this is the one that is least late at worst.
        let all = |level: usize| {
            let all = faces.within(1 << level)?;
            Some((all.finish_ns + worst(level) - fluid.path(level, 1.0, 1.0), all))
        };
        let least = (0..4).filter_map(all).min_by(|a, b| a.0.total_cmp(&b.0));
        least.map_or(chosen, |(_, all)| all)
    }

    /// Whether the carrier waits until the link is free: nothing of the drive, which does a part of the slices, was measured
    /// yet, so that what is sent beyond the first slice rests on a guess.
    fn is_guess(&self, now: &Snapshot, counts: Counts) -> bool {
        counts[0] + counts[1] > 0 && self.scan_ns.seen() == 0 && now.link.backlog_bytes > 0.0
    }

    /// The level at which a slice may be sent only because the link would be idle: nothing of the drive was measured yet,
    /// and the slice costs little.
    fn explores(&self, now: &Snapshot, fluid: &Fluid, finish_ns: f64) -> Option<Level> {
        let sent = &now.costs.link_bytes;
        let may = |level: Level, place: usize| {
            let light = *sent.get(level) < EXPLORING_BYTES * sent.whole.min(sent.filtered);
            let may = light && now.allowed.get(level) && !now.whole_is_all_or_none && self.scan_ns.seen() == 0;
            may && fluid.path(place, 1.0, WORST) < EXPLORING * finish_ns
        };
        [(Level::Hints, CARRIED), (Level::Bytes, CARRIED + 1)]
            .into_iter()
            .find(|(level, place)| may(*level, *place))
            .map(|it| it.0)
    }

    /// The first slices are slow, above all at weak engines (Montana et al. 2023, Skytether, section 6.3), and a weak
    /// engine that others begin to use becomes slower still.
    fn worst(&self) -> f64 {
        (WORST / self.host_over_drive).clamp(WORST, WORST_WEAK)
    }

    /// The least and the most that level 3 may take at the drive, relative to the estimate.
    fn whole_range(&self) -> (f64, f64) {
        let (scan, rest) = (self.scan_ns.value(), self.rest_ns.value() + NS_FLOOR);
        let (of_scan, of_rest) = (self.scan_ns.range(self.worst()), self.rest_ns.range(self.worst()));
        let mean = |a: f64, b: f64| (a * scan + b * rest) / (scan + rest);
        (mean(of_scan.0, of_rest.0), mean(of_scan.1, of_rest.1))
    }

    fn begin(&mut self, mode: Face) -> Face {
        self.mode = Some(mode);
        self.wanted = None;
        mode
    }

    /// In a division that uses levels 3 and 2, level 2 keeps the link fed and level 3 does the rest.
    fn worker(&self, now: &Snapshot, counts: Counts) -> Option<Level> {
        match counts {
            [0, 0, ..] => None,
            [0, ..] => Some(Level::Filtered),
            [_, 0, ..] => Some(Level::Whole),
            _ if sane(now.link.backlog_bytes) < 2.0 * self.costs.link_bytes.filtered => Some(Level::Filtered),
            _ => Some(Level::Whole),
        }
    }

    /// The samples of an engine that is not used fade.
    fn note(&mut self, counts: Counts) {
        let [whole, filtered, hints, bytes] = counts;
        if whole == 0 && filtered == 0 {
            self.scan_ns.fade();
        }
        if whole == 0 {
            self.rest_ns.fade();
        }
        if hints == 0 {
            self.hint_ns.fade();
            self.host_ns.hints.fade();
        }
        if bytes == 0 {
            self.host_ns.bytes.fade();
        }
        self.refresh();
    }

    /// The host's costs follow from the drive's or, where only the host was measured, the drive's from the host's.
    fn refresh(&mut self) {
        if self.scan_ns.seen() > 0 {
            self.follow_drive();
        } else if self.host_ns.bytes.seen() > 1 || self.host_ns.hints.seen() > 1 {
            self.follow_host();
        }
        self.follow_carrier();
        let (scan, rest) = (self.scan_ns.value(), self.rest_ns.value());
        self.costs = SliceCosts {
            drive_ns: ByLevel { whole: scan + rest, filtered: scan, hints: self.hint_ns.value(), bytes: self.carry_ns.value() },
            host_ns: ByLevel::from_fn(|level| self.host_ns.get(level).value()),
            link_bytes: ByLevel::from_fn(|level| self.link_bytes.get(level).value()),
        };
    }

    /// The carrier's level of which less was measured is as far off its prediction as the other.
    fn follow_carrier(&mut self) {
        let (hints, bytes) = (sane(self.seed.drive_ns.hints), sane(self.seed.drive_ns.bytes));
        let factor = |measured: &Estimate, seed: f64| (measured.value() + NS_FLOOR) / (seed + NS_FLOOR);
        match self.hint_ns.seen().cmp(&self.carry_ns.seen()) {
            Ordering::Greater => self.carry_ns.set_prior(bytes * factor(&self.hint_ns, hints)),
            Ordering::Less => self.hint_ns.set_prior(hints * factor(&self.carry_ns, bytes)),
            Ordering::Equal => {}
        }
    }

    fn follow_drive(&mut self) {
        let (scan, rest) = (self.scan_ns.value(), self.rest_ns.value());
        self.host_ns.bytes.set_prior((scan + rest) * self.host_over_drive);
        // Bounds rule out the same pages of a slice that comes as a whole.
        self.host_ns.hints.set_prior((scan + rest) * self.host_over_drive);
        // Receiving rows costs the host something even where no work is left to do.
        let seed = &self.seed.host_ns;
        self.host_ns.filtered.set_prior(rest * self.host_over_drive + sane(seed.whole));
    }

    fn follow_host(&mut self) {
        let seed = &self.seed.drive_ns;
        let (whole, scan) = (sane(seed.whole), sane(seed.filtered));
        let measured = if self.host_ns.bytes.seen() > 1 { &self.host_ns.bytes } else { &self.host_ns.hints };
        let factor = measured.value() / (whole * self.host_over_drive);
        if factor.is_finite() && factor > 0.0 {
            self.scan_ns.set_prior(scan * factor);
            self.rest_ns.set_prior((whole - scan) * factor);
        }
    }
}

/// The best division within `mode`, or one of a single level that is nearly as good: a slice that hardly helps is not
/// worth its risk.
fn plain(faces: &Faces, mode: Face) -> Option<Candidate> {
    let best = faces.within(mode).filter(|_| mode != 0)?;
    let near = |level: &Face| {
        faces.within(mode & level).filter(|it| mode & level != 0 && it.finish_ns <= best.finish_ns * (1.0 + NEAR))
    };
    [WHOLE, FILTERED, HINTS, BYTES].iter().find_map(near).or(Some(best))
}

/// Of the modes that are nearly as good as the best, the one with the fewest levels, and of these the one with the
/// highest.
fn simplest(faces: &Faces, best: &Candidate) -> Face {
    let near = |mode: &Face| {
        faces.within(*mode).is_some_and(|it| {
            it.finish_ns <= best.finish_ns * (1.0 + GAIN_LASTING)
                || (it.finish_ns.is_infinite() && best.finish_ns.is_infinite())
        })
    };
    let single = [WHOLE, FILTERED, HINTS, BYTES];
    let double = [WHOLE | HINTS, WHOLE | BYTES, FILTERED | HINTS, FILTERED | BYTES, WHOLE | FILTERED];
    let mut modes = single.into_iter().chain(double);
    modes.find(near).unwrap_or(face_of(best.counts))
}

/// The carrier's level in a division; none: it has no slice.
fn carried(counts: Counts) -> Option<Level> {
    match counts {
        [_, _, 0, 0] => None,
        [_, _, 0, _] => Some(Level::Bytes),
        _ => Some(Level::Hints),
    }
}
