//! Gu et al. 2016: the PM1725 with Biscuit beside the same drive without it.

use pithead_emulate::{ComputeSite, Load, Outcome, PageWork, Profile, Work, find, run as model};

use crate::ReproError;
use crate::figure::{FigureKind, How, Report};
use crate::random::Random;
use crate::table::blank;

mod lineitem;

const INSIDE: &[&str] = &["pm1725-biscuit"];
const OUTSIDE: &[&str] = &["pm1725"];
const BOTH: &[&str] = &["pm1725", "pm1725-biscuit"];
const PAGE_BYTES: u64 = 4096;
/// Pages of the graph that is walked.
const GRAPH_PAGES: usize = 4096;
/// Neighbours in a page: 64 nodes with 16 each, 4 bytes a neighbour.
const NODES_A_PAGE: u32 = 64;
const NEIGHBOURS: u32 = 16;
/// Hops of all walks together, over the scale.
const HOPS: u64 = 2_000_000;
const STARTS: u64 = 100;

struct Lab {
    plain: Profile,
    biscuit: Profile,
    virtual_s: f64,
}

impl Lab {
    fn on(&mut self, place: ComputeSite, work: &Work, load: Load) -> Result<Outcome, ReproError> {
        let profile = if place == ComputeSite::Host { &self.plain } else { &self.biscuit };
        let outcome = model(profile, work, load)?;
        self.virtual_s += outcome.elapsed_s;
        Ok(outcome)
    }
}

pub(crate) fn run(scale: u64) -> Result<Report, ReproError> {
    let mut lab = Lab { plain: find("pm1725")?, biscuit: find("pm1725-biscuit")?, virtual_s: 0.0 };
    let mut report = Report::new("biscuit", scale);
    latency(&mut lab, &mut report)?;
    bandwidth(&mut lab, &mut report)?;
    chasing(&mut lab, &mut report)?;
    filter(&mut lab, &mut report)?;
    report.missing("latencies of ports", "the slides at hand have no numbers of it");
    report.missing("string search", "the slides at hand name the experiment and have no numbers of it");
    report.missing(
        "TPC-H, 3.6 times in total",
        "most of it is joins by index in MariaDB; there is no engine here that joins row by row by index",
    );
    report.virtual_s = lab.virtual_s;
    Ok(report)
}

/// Each read waits for the one before.
fn one_by_one(place: ComputeSite) -> Load {
    Load { pages_in_flight: Some(1), ..Load::at(place) }
}

fn latency(lab: &mut Lab, report: &mut Report) -> Result<(), ReproError> {
    const READS: usize = 1000;
    let place = "slide on read latency";
    let work = blank(PAGE_BYTES, READS);
    let outside = lab.on(ComputeSite::Host, &work, one_by_one(ComputeSite::Host))?.elapsed_s / READS as f64 * 1e6;
    let inside = lab.on(ComputeSite::Device, &work, one_by_one(ComputeSite::Device))?.elapsed_s / READS as f64 * 1e6;
    report.figure("read of 4 KiB by the host", place, "µs", (90.0, outside), How(FigureKind::Calibrated, OUTSIDE));
    report.figure("read of 4 KiB inside", place, "µs", (75.9, inside), How(FigureKind::Calibrated, INSIDE));
    Ok(())
}

fn bandwidth(lab: &mut Lab, report: &mut Report) -> Result<(), ReproError> {
    let work = blank(131_072, 8192);
    let rate = |outcome: &Outcome| outcome.bytes.medium as f64 / outcome.elapsed_s / 1e9;
    let outside = rate(&lab.on(ComputeSite::Host, &work, Load::reading(ComputeSite::Host))?);
    let inside = rate(&lab.on(ComputeSite::Device, &work, Load::reading(ComputeSite::Device))?);
    let place = "slide on read bandwidth";
    let ours = format!("{inside:.2} GB/s inside, {outside:.2} GB/s to the host; both are assumed in the profile");
    report.claim("the drive reads faster inside than to the host", place, inside > outside, ours);
    report.missing("read bandwidth by size of the read", "the slide's chart has no numbers");
    Ok(())
}

/// Pages of nodes, each with its neighbours.
fn graph(random: &mut Random) -> Vec<u8> {
    let nodes = GRAPH_PAGES as u32 * NODES_A_PAGE;
    (0..nodes * NEIGHBOURS).flat_map(|_| random.below(nodes).to_le_bytes()).collect()
}

/// Walks of so many hops, each along a neighbour that chance picks: every hop reads the page of the node.
fn walk(hops: u64) -> Work {
    let mut random = Random::new(2016);
    let graph = graph(&mut random);
    let nodes = GRAPH_PAGES as u32 * NODES_A_PAGE;
    let mut work = Work { page_bytes: PAGE_BYTES, ..Work::default() };
    for _ in 0..STARTS {
        let mut node = random.below(nodes);
        for _ in 0..hops / STARTS {
            let at = ((node * NEIGHBOURS + random.below(NEIGHBOURS)) * 4) as usize;
            node = graph[at..at + 4].iter().rev().fold(0, |value, byte| value << 8 | u32::from(*byte));
            // One access to the neighbour, and a look whether the walk is at its end.
            work.pages.push(PageWork { compares: 1, accesses: 1, words: 1, ..PageWork::default() });
        }
    }
    work
}

fn chasing(lab: &mut Lab, report: &mut Report) -> Result<(), ReproError> {
    const PAPER_HOST_S: f64 = 138.6;
    const PAPER_INSIDE_S: f64 = 124.4;
    let place = "slide on pointer chasing";
    let work = walk((HOPS / report.scale).max(STARTS));
    let hops = work.pages.len() as f64;
    let outside = lab.on(ComputeSite::Host, &work, one_by_one(ComputeSite::Host))?.elapsed_s / hops;
    let inside = lab.on(ComputeSite::Device, &work, one_by_one(ComputeSite::Device))?.elapsed_s / hops;
    // The slides do not say how many hops there were: as many as the host's time allows.
    let paper_hops = PAPER_HOST_S / outside;
    let how = How(FigureKind::Calibrated, OUTSIDE);
    report.figure("pointer chasing by the host", place, "s", (PAPER_HOST_S, outside * paper_hops), how);
    // A hop is a read, and a core's look at it is short: the ratio is that of the two calibrated latencies.
    let how = How(FigureKind::Follows, BOTH);
    report.figure("pointer chasing inside", place, "s", (PAPER_INSIDE_S, inside * paper_hops), how);
    Ok(())
}

fn filter(lab: &mut Lab, report: &mut Report) -> Result<(), ReproError> {
    let counted = lineitem::count(100.0 / report.scale as f64);
    let outside = lab.on(ComputeSite::Host, &counted.host, Load::at(ComputeSite::Host))?;
    let inside = lab.on(ComputeSite::Device, &counted.device, Load { matcher: true, ..Load::at(ComputeSite::Device) })?;
    let what = "filter of one day of lineitem: time, host over Biscuit";
    let times = outside.elapsed_s / inside.elapsed_s;
    report.figure(what, "slide on scan and filter", "×", (11.0, times), How(FigureKind::Predicted, BOTH));
    let what = "filter of one day of lineitem: energy, host over Biscuit";
    let energy = outside.energy.system_j() / inside.energy.system_j();
    report.figure(what, "slide on power", "×", (60.5 / 12.2, energy), How(FigureKind::Predicted, BOTH));
    other_filters(lab, &counted, &outside, &inside, report)?;
    let ours = format!(
        "{} of {} pages have the date's bytes; {} of {} rows match",
        counted.pages_found,
        counted.device.pages.len(),
        counted.rows_found,
        counted.rows
    );
    let saved = counted.pages_found * 2 < counted.device.pages.len() as u64;
    report.claim("the pattern matcher keeps most pages from the host", "slide on scan and filter", saved, ours);
    let power = |outcome: &Outcome| outcome.energy.system_j() / outcome.elapsed_s;
    let (before, after) = (power(&outside), power(&inside));
    let ours = format!("{after:.0} W, {before:.0} W by the host");
    report.claim("Biscuit takes more power while it runs", "slide on power", after > before, ours);
    Ok(())
}

/// What the slides leave open: whether a host waits for each page that it reads, and whether cores of the drive look at the rows of
/// pages that the matcher has found. None of these counts.
fn other_filters(
    lab: &mut Lab,
    counted: &lineitem::Counted,
    outside: &Outcome,
    inside: &Outcome,
    report: &mut Report,
) -> Result<(), ReproError> {
    let waits = one_by_one(ComputeSite::Host);
    let slow = lab.on(ComputeSite::Host, &counted.host, waits)?.elapsed_s;
    // The search and the reads of what it has named go on side by side.
    let named = lab.on(ComputeSite::Host, &counted.named, waits)?.elapsed_s;
    let search = Load { matcher: true, ..Load::reading(ComputeSite::Device) };
    let both = named.max(lab.on(ComputeSite::Device, &counted.device, search)?.elapsed_s);
    let rows = Load { matcher: true, ..Load::at(ComputeSite::Device) };
    let filtered = lab.on(ComputeSite::Device, &counted.filtered, rows)?.elapsed_s;
    let variants = [
        ("the host without Biscuit waits for each page", slow / inside.elapsed_s),
        ("both hosts wait for each page that they read", slow / both),
        ("cores of the drive filter the rows of found pages", outside.elapsed_s / filtered),
    ];
    for (how, times) in variants {
        let what = format!("filter of one day of lineitem: time, where {how}");
        report.figure(&what, "slide on scan and filter", "×", (11.0, times), How(FigureKind::Variant, BOTH));
    }
    Ok(())
}
