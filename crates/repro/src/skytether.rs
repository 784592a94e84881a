//! Montana et al. 2023: Envoy, the processor of a Kinetic drive, beside its client.

use pithead_emulate::{ComputeSite, Load, PageWork, Profile, Work, find, run as model};

use crate::ReproError;
use crate::figure::{FigureKind, How, Report};
use crate::random::Random;

const BOTH: &[&str] = &["kinetic-client", "kinetic-envoy"];
/// Values in a page of 4 KiB.
const VALUES: usize = 512;
/// Cells and genes of the partition of section 6.2: 300 slices of 48 genes, 1600 cells each.
const CELLS: u64 = 1600;
const GENES: u64 = 300 * 48;

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
        let values = left.min(VALUES as u64);
        left -= values;
        (0..values).for_each(|_| moments.add(f64::from(random.below(1000)) / 10.0));
        work.pages.push(PageWork { rows: values, sums: values, ..PageWork::default() });
    }
    (work, moments)
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
    report.virtual_s = at_client.elapsed_s + at_envoy.elapsed_s;
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
    let cores = envoy.parts.as_ref().and_then(|parts| parts.cpu.as_ref()).map_or(1.0, |cpu| cpu.cores.value);
    // The paper's 8 are its 15 over Envoy's two cores, beside a client that computes on one thread.
    let drives = (slower / cores).ceil();
    report.figure(
        "drives that equal a single x86-64 CPU by throughput",
        "section 6.3",
        "drives",
        (8.0, drives),
        How(FigureKind::Follows, BOTH),
    );
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
    report.missing("16 drives as fast as a client from end to end", "the paper expects it (section 7), and did not measure it");
}
