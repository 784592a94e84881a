//! When a division of slices is finished: at the longest of the times of drive, link and host. The time of each
//! resource includes what the first slice takes to reach it and what the last slice takes after it.

use crate::snapshot::{ByLevel, Resource, Snapshot};

/// Slices by level, highest first.
pub type Counts = [u32; 4];

/// From this place in [`Counts`] on, levels are the carrier's: the host gets what is stored. A division uses one of them.
pub const CARRIED: usize = 2;

/// The longest estimate: 30 years. The sum of a billion such slices is still finite.
const NS_MAX: f64 = 1e18;
/// The least share of a core. Where no core is free, a session still gets a little CPU time in the end.
const CORES_MIN: f64 = 1e-3;
const CORES_MAX: f64 = 1e5;

/// A worker may only wait if afterwards it still needs no more than this share of the time that is left.
const WAIT_MAX: f64 = 0.8;

/// A value that is at least zero and at most a bound. Negative values and NaN become zero.
pub fn sane(value: f64) -> f64 {
    if value > 0.0 { value.min(NS_MAX) } else { 0.0 }
}

/// A CPU, which turns work in nanoseconds of a core into time.
#[derive(Clone, Copy, Debug)]
struct Cpu {
    cores: f64,
    /// The number of slices that run at one time.
    lanes: u32,
    /// The share of a core that a lane gets.
    speed: f64,
    ahead: f64,
}

impl Cpu {
    fn new(cores: f64, ahead_ns: f64) -> Cpu {
        let cores = if cores > CORES_MIN { cores.min(CORES_MAX) } else { CORES_MIN };
        let lanes = (cores - 0.05).ceil().max(1.0);
        Cpu { cores, lanes: lanes as u32, speed: cores / lanes, ahead: sane(ahead_ns) / cores }
    }

    /// When slices of two kinds are finished that are handed out to whichever lane is free, the longer ones first.
    fn schedule(&self, [a, b]: [u32; 2], [a_ns, b_ns]: [f64; 2]) -> f64 {
        let ((long_n, long), (n, short)) = if a_ns >= b_ns { ((a, a_ns), (b, b_ns)) } else { ((b, b_ns), (a, a_ns)) };
        let (whole, extra) = (f64::from(long_n / self.lanes), f64::from(long_n % self.lanes));
        let lanes = f64::from(self.lanes);
        let (low, high) = (whole * long, if extra > 0.0 { (whole + 1.0) * long } else { whole * long });
        if n == 0 || short <= 0.0 {
            return high / self.speed;
        }
        let done_by = |t: f64| {
            let each = |from: f64| ((t - from) / short + 1e-9).floor().max(0.0);
            extra * each(high) + (lanes - extra) * each(low)
        };
        if done_by(high) >= f64::from(n) {
            return high / self.speed;
        }
        let even = ((f64::from(long_n) * long + f64::from(n) * short) / lanes).max(low);
        // The next lanes to be free are those where a short slice ends, of either kind, in order, until there are
        // enough.
        let mut low_at = low + ((even - low) / short - 1e-9).ceil().max(1.0) * short;
        let mut high_at = high + ((even - high) / short - 1e-9).ceil().max(1.0) * short;
        for _ in 0..8 {
            let next = if extra > 0.0 { low_at.min(high_at) } else { low_at };
            if done_by(next) >= f64::from(n) {
                return next.max(high) / self.speed;
            }
            if next == low_at {
                low_at += short;
            } else {
                high_at += short;
            }
        }
        (even + short).max(high) / self.speed
    }
}

/// The costs of a slice and of the first slice at one level, as times of one core and of the link.
#[derive(Clone, Copy, Debug)]
struct Stages {
    drive_ns: f64,
    link_ns: f64,
    host_ns: f64,
    setup_drive: f64,
    setup_link: f64,
    setup_host: f64,
}

/// A snapshot, converted to times.
#[derive(Clone, Debug)]
pub struct Fluid {
    left: u32,
    resident: u32,
    stages: [Stages; 4],
    drive: Cpu,
    host: Cpu,
    link_ahead: f64,
}

impl Fluid {
    pub fn new(snapshot: &Snapshot) -> Fluid {
        let rate = snapshot.link.bytes_per_s;
        let send = |bytes: f64| match sane(bytes) {
            0.0 => 0.0,
            bytes if rate > 0.0 => bytes / rate * 1e9,
            _ => f64::INFINITY,
        };
        let costs = &snapshot.costs;
        let stages = ByLevel::from_fn(|level| {
            let setup = snapshot.setup.get(level);
            Stages {
                drive_ns: sane(*costs.drive_ns.get(level)),
                link_ns: send(*costs.link_bytes.get(level)),
                host_ns: sane(*costs.host_ns.get(level)),
                setup_drive: sane(setup.drive_ns),
                setup_link: send(setup.link_bytes),
                setup_host: sane(setup.host_ns),
            }
        });
        Fluid {
            left: snapshot.left,
            resident: snapshot.resident.min(snapshot.left),
            stages: stages.to_array(),
            drive: Cpu::new(snapshot.drive.cores, snapshot.drive.busy_ns),
            host: Cpu::new(snapshot.host.cores, snapshot.host.backlog_ns),
            link_ahead: send(snapshot.link.backlog_bytes),
        }
    }

    /// Sets how many slices the drive runs at one time. Otherwise that is the drive's share of cores, rounded up.
    pub fn with_workers(mut self, workers: u32) -> Fluid {
        if workers > 0 {
            self.drive.lanes = workers;
            self.drive.speed = (self.drive.cores / f64::from(workers)).min(1.0);
            self.drive.cores = self.drive.cores.min(f64::from(workers));
        }
        self
    }

    /// When a slice that is begun now is finished, if its work takes `drive` times its estimate at the drive and `host`
    /// times its estimate at the host.
    pub fn path(&self, level: usize, drive: f64, host: f64) -> f64 {
        let Some(at) = self.stages.get(level) else { return f64::INFINITY };
        let held = level >= CARRIED && self.resident > 0;
        let link = if held || at.link_ns == 0.0 { 0.0 } else { self.link_ahead + at.link_ns };
        let setup = at.setup_link + at.setup_host / self.host.cores;
        let before =
            if link > 0.0 { at.drive_ns * drive / self.drive.speed + link } else { at.drive_ns * drive / self.drive.speed };
        setup + before.max(self.host.ahead) + at.host_ns * host / self.host.speed
    }

    /// Whether a worker does better to wait. This is so if its rows take more bytes on the link than stored slices do,
    /// the link has enough to send for now, and the drive has time for all its slices later. The host then gets its
    /// share first, and does not have to wait for it at the end.
    pub fn can_wait(&self, counts: Counts, finish_ns: f64) -> bool {
        let [whole, filtered, ..] = &self.stages;
        let carried = carried(counts);
        let sent = self.stages[carried].link_ns;
        let heavy = if counts[0] > 0 { whole.link_ns } else { filtered.link_ns };
        let drive = f64::from(counts[0]) * whole.drive_ns + f64::from(counts[1]) * filtered.drive_ns;
        let link = f64::from(counts[0]) * whole.link_ns + f64::from(counts[1]) * filtered.link_ns;
        let later = self.drive.ahead + drive / self.drive.cores + link;
        counts[carried] > 0 && heavy > sent && self.link_ahead > 0.0 && later < WAIT_MAX * finish_ns
    }

    pub fn left(&self) -> u32 {
        self.left
    }

    /// The finish of these slices, in nanoseconds from now, and the resource that is busy longest.
    pub fn finish(&self, counts: Counts) -> (f64, Resource) {
        let mut need = Need::default();
        let mut path = 0.0f64;
        for (level, (count, at)) in counts.into_iter().zip(&self.stages).enumerate().filter(|(_, (count, _))| *count > 0) {
            let sent = if level >= CARRIED { count - count.min(self.resident) } else { count };
            let d = at.drive_ns / self.drive.speed;
            let l = if sent == 0 { 0.0 } else { at.link_ns };
            let h = at.host_ns / self.host.speed;
            need.drive += f64::from(count) * at.drive_ns + at.setup_drive;
            need.link += if sent == 0 { 0.0 } else { f64::from(sent) * l } + at.setup_link;
            need.host += f64::from(count) * at.host_ns + at.setup_host;
            if level < CARRIED {
                need.after_drive = need.after_drive.min(l + h);
            }
            if l > 0.0 {
                need.before_link = need.before_link.min(d);
                need.after_link = need.after_link.min(h);
            }
            if h > 0.0 {
                need.before_host = need.before_host.min(if sent < count { 0.0 } else { d + l });
            }
            path = path.max(at.setup_link + at.setup_host / self.host.cores + d + l + h);
        }
        self.longest(counts, &need, path)
    }

    fn longest(&self, counts: Counts, need: &Need, path: f64) -> (f64, Resource) {
        let (drive, host) = (&self.drive, &self.host);
        let scheduled = drive.schedule([counts[0], counts[1]], [self.stages[0].drive_ns, self.stages[1].drive_ns]);
        // One carrier takes one slice after the other.
        let new = |level: usize| f64::from(counts[level] - counts[level].min(self.resident)) * self.stages[level].drive_ns;
        let carrying = (new(CARRIED) + new(CARRIED + 1)) / drive.speed;
        let scheduled = scheduled.max(carrying);
        let drive_ns = (drive.ahead + need.drive / drive.cores).max(scheduled) + gap(need.after_drive);
        let link_ns = if need.link > 0.0 {
            self.link_ahead.max(gap(need.before_link)) + need.link + gap(need.after_link)
        } else {
            self.link_ahead
        };
        let carried = carried(counts);
        let scheduled = host.schedule([counts[carried], counts[1]], [self.stages[carried].host_ns, self.stages[1].host_ns]);
        let host_ns = if need.host > 0.0 {
            host.ahead.max(gap(need.before_host)) + (need.host / host.cores).max(scheduled)
        } else {
            host.ahead
        };
        let resource = if drive_ns >= link_ns && drive_ns >= host_ns {
            Resource::Drive
        } else if link_ns >= host_ns {
            Resource::Link
        } else {
            Resource::Host
        };
        (drive_ns.max(link_ns).max(host_ns).max(path), resource)
    }
}

/// The carrier's level in a division.
fn carried(counts: Counts) -> usize {
    if counts[CARRIED] > 0 { CARRIED } else { CARRIED + 1 }
}

/// The work of each resource, and the shortest times to reach the resource and to finish after it.
struct Need {
    drive: f64,
    link: f64,
    host: f64,
    after_drive: f64,
    before_link: f64,
    after_link: f64,
    before_host: f64,
}

impl Default for Need {
    fn default() -> Need {
        let none = f64::INFINITY;
        Need { drive: 0.0, link: 0.0, host: 0.0, after_drive: none, before_link: none, after_link: none, before_host: none }
    }
}

/// The shortest of these times, or zero where no slice takes this way.
fn gap(shortest: f64) -> f64 {
    if shortest.is_finite() { shortest } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hands slices out one by one, the longer ones first.
    fn one_by_one(lanes: u32, speed: f64, jobs: [(u32, f64); 2]) -> f64 {
        let mut free = vec![0.0f64; lanes as usize];
        let mut jobs = jobs;
        jobs.sort_by(|a, b| b.1.total_cmp(&a.1));
        for (count, ns) in jobs {
            for _ in 0..count {
                if let Some(first) = free.iter_mut().min_by(|a, b| a.total_cmp(b)) {
                    *first += ns / speed;
                }
            }
        }
        free.into_iter().fold(0.0, f64::max)
    }

    #[test]
    fn a_schedule_ends_when_it_does_slice_by_slice() {
        for cores in [0.3, 1.0, 1.5, 2.0, 5.0] {
            let cpu = Cpu::new(cores, 0.0);
            for a in 0..12 {
                for b in 0..12 {
                    for (a_ns, b_ns) in [(7.0, 3.0), (1.0, 1.0), (2.0, 11.0), (5.0, 0.0), (10.0, 9.5)] {
                        let expected = one_by_one(cpu.lanes, cpu.speed, [(a, a_ns), (b, b_ns)]);
                        let found = cpu.schedule([a, b], [a_ns, b_ns]);
                        assert!(
                            (found - expected).abs() < 1e-6,
                            "{cores} cores, {a} of {a_ns}, {b} of {b_ns}: {found} {expected}"
                        );
                    }
                }
            }
        }
    }
}
