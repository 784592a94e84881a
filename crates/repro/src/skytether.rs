//! Montana et al. 2023: Envoy, the processor of a Kinetic drive, beside its client.

use pithead_emulate::{Bottleneck, ComputeSite, Load, Outcome, PageWork, Profile, Work, find, run as model};

use crate::ReproError;
use crate::figure::{FigureKind, How, Report};
use crate::random::Random;

const BOTH: &[&str] = &["kinetic-client", "kinetic-envoy"];
/// Drives that are tried at most.
const DRIVES_MAX: u64 = 100;
/// Values in a page of 4 KiB.
const VALUES: u64 = 512;
/// Cells and genes of the partition of section 6.2: 300 slices of 48 genes, 1600 cells each, or 30 slices of 480.
const CELLS: u64 = 1600;
const GENES: u64 = 300 * 48;
const SLICES: [u64; 2] = [300, 30];
/// How much longer all of it takes where calls count for something.
const FELT: f64 = 1.1;

/// Mean and variance of what was seen, by Welford's method.
#[derive(Debug, Default)]
struct Moments {
    count: u64,
    mean: f64,
    squares: f64,
}

impl Moments {
    fn add(&mut self, value: f64) {
        self.count += 1;
        let off = value - self.mean;
        self.mean += off / self.count as f64;
        self.squares += off * (value - self.mean);
    }
}

/// Accumulate over a matrix of 1/`scale` of the genes: pages of values, each of which is added.
fn accumulate(scale: u64) -> (Work, Moments) {
    let mut random = Random::new(2022);
    let mut moments = Moments::default();
    let mut work = Work { page_bytes: 4096, last_bytes: 24, last_rows: 1, ..Work::default() };
    let mut left = (GENES / scale).max(1) * CELLS;
    while left > 0 {
        let values = left.min(VALUES);
        left -= values;
        (0..values).for_each(|_| moments.add(f64::from(random.below(1000)) / 10.0));
        work.pages.push(taken_in(values));
    }
    (work, moments)
}

/// Values that one call of Accumulate takes in.
fn taken_in(values: u64) -> PageWork {
    PageWork { rows: values, compares: values, sums: values, ..PageWork::default() }
}

/// All of the matrix, or one drive's part of it, in pages of so many values: the work alone, since no value changes it.
fn part(drives: u64, values: u64) -> Work {
    let pages = (GENES * CELLS).div_ceil(drives).div_ceil(values) as usize;
    Work { page_bytes: values * 8, pages: vec![taken_in(values); pages], last_bytes: 24, last_rows: 1, ..Work::default() }
}

pub(crate) fn run(scale: u64) -> Result<Report, ReproError> {
    let mut report = Report::new("skytether", scale);
    let (client, envoy) = (find("kinetic-client")?, find("kinetic-envoy")?);
    let (work, moments) = accumulate(scale);
    if moments.count != work.total().sums || moments.squares <= 0.0 {
        return Err(ReproError::Differs("Accumulate".to_owned()));
    }
    let at_client = model(&client, &work, Load::at(ComputeSite::Host))?;
    let at_envoy = model(&envoy, &work, Load::at(ComputeSite::Device))?;
    let mut virtual_s = at_client.elapsed_s + at_envoy.elapsed_s;
    // The paper measures the CPU alone: work never waits for data.
    let slower = at_envoy.busy.device_cores_s / at_client.busy.host_cores_s;
    report.figure(
        "Accumulate on one core, Envoy over client",
        "section 6.3",
        "×",
        (15.0, slower),
        How(FigureKind::Calibrated, BOTH),
    );
    // The same function over other slices, so the same factor.
    report.figure("Accumulate by slice, Envoy over client", "section 6.2", "×", (13.0, slower), How(FigureKind::Follows, BOTH));
    let cores = cores(&envoy);
    // The paper's 8 are its 15 over Envoy's two cores, beside a client that computes on one thread.
    let drives = (slower / cores).ceil();
    report.figure(
        "drives that equal a single x86-64 CPU by throughput",
        "section 6.3",
        "drives",
        (8.0, drives),
        How(FigureKind::Follows, BOTH),
    );
    virtual_s += end_to_end(&client, &envoy, &mut report)?;
    virtual_s += calls(&envoy, &mut report)?;
    report.virtual_s = virtual_s;
    let clocks = clock_ratio(&client, &envoy);
    let ours = format!("{slower:.1}×, of which the clocks explain {clocks:.1}×");
    report.claim(
        "Envoy is slower than clocks explain (3 to 4 times)",
        "section 6.3",
        (3.0..=4.0).contains(&clocks) && slower > clocks,
        ours,
    );
    missing(&mut report);
    Ok(report)
}

/// Section 7: from the first command to the answer, beside a client that reads and computes by itself. Adds whether either waits
/// for data, which section 6.3 and figure 5 deny. Gives the virtual time.
fn end_to_end(client: &Profile, envoy: &Profile, report: &mut Report) -> Result<f64, ReproError> {
    let alone = model(client, &part(1, VALUES), Load::at(ComputeSite::Host))?;
    let one = model(envoy, &part(1, VALUES), Load::at(ComputeSite::Device))?;
    waits(&alone, &one, cores(envoy), report);
    let mut virtual_s = alone.elapsed_s + one.elapsed_s;
    // Accumulate runs on one thread at the client, and so it does on Envoy, where nothing divides a program between the cores.
    for (threads, each, kind) in [(1.0, "one core", FigureKind::Follows), (cores(envoy), "all cores", FigureKind::Variant)] {
        let mut drive = envoy.clone();
        drive.parts.iter_mut().flat_map(|parts| &mut parts.cpu).for_each(|cpu| cpu.cores.value = threads);
        let mut drives = 0;
        let mut took = f64::INFINITY;
        while took > alone.elapsed_s && drives < DRIVES_MAX {
            drives += 1;
            took = model(&drive, &part(drives, VALUES), Load::beside(ComputeSite::Device, drives as f64))?.elapsed_s;
            virtual_s += took;
        }
        let what = format!("drives that are as fast as a client from end to end, {each} of each");
        report.figure(&what, "section 7", "drives", (16.0, drives as f64), How(kind, BOTH));
    }
    Ok(virtual_s)
}

fn waits(client: &Outcome, envoy: &Outcome, cores: f64, report: &mut Report) {
    let computes = [(client, Bottleneck::HostCpu), (envoy, Bottleneck::DeviceCpu)].map(|(at, cpu)| at.bottleneck == cpu);
    let ours = format!(
        "the client computes for {:.0}% of the time, and Envoy's cores for {:.0}%; the client's cycles are set to the least for \
         which it is so",
        100.0 * client.busy.host_cores_s / client.elapsed_s,
        100.0 * envoy.busy.device_cores_s / envoy.elapsed_s / cores
    );
    report.claim("Accumulate never waits for data", "section 6.3, figure 5", computes == [true, true], ours);
}

/// Figure 5: the same data in slices of 48 and of 480 rows, each of which is one call. Gives the virtual time.
fn calls(envoy: &Profile, report: &mut Report) -> Result<f64, ReproError> {
    let mut took = [0.0; 2];
    let mut virtual_s = 0.0;
    for (took, slices) in took.iter_mut().zip(SLICES) {
        let outcome = model(envoy, &part(1, GENES * CELLS / slices), Load::at(ComputeSite::Device))?;
        (*took, virtual_s) = (outcome.busy.device_cores_s, virtual_s + outcome.elapsed_s);
    }
    let [many, few] = took;
    // What a call would have to take for the fewer ones to be felt at all.
    let call_s = few * (FELT - 1.0) / (SLICES[0] - SLICES[1]) as f64;
    let ours = format!(
        "{:.4} times the CPU time with {} calls as with {}; a call would have to take {:.0} ms for {FELT} times, and the text has \
         no number of it",
        many / few,
        SLICES[0],
        SLICES[1],
        call_s * 1e3
    );
    report.claim("what costs is the number of calls, and not the height of slices", "figure 5", many / few >= FELT, ours);
    Ok(virtual_s)
}

fn cores(envoy: &Profile) -> f64 {
    envoy.parts.as_ref().and_then(|parts| parts.cpu.as_ref()).map_or(1.0, |cpu| cpu.cores.value)
}

fn clock_ratio(client: &Profile, envoy: &Profile) -> f64 {
    let host = client.parts.as_ref().map_or(0.0, |parts| parts.host.clock_hz.value);
    let device = envoy.parts.as_ref().and_then(|parts| parts.cpu.as_ref()).map_or(1.0, |cpu| cpu.clock_hz.value);
    host / device
}

fn missing(report: &mut Report) {
    report.missing("latency by width and height of slices", "figure 5 has no numbers in the text but the factor of 13");
    report.missing("four execution configurations by slice", "figure 6 has no numbers in the text but the factor of 15");
    report.missing(
        "selection and projection",
        "Envoy's cycles for both are set from the factor of 15 of section 6.3, so the same factor would only be repeated",
    );
}
