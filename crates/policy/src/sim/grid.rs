//! The scenarios that `pithead bench adaptive` simulates.

use crate::cost::{CostModel, Features};
use crate::sim::{Load, Scenario};
use crate::snapshot::{Allowed, ByLevel, DriveState, HostState, LinkState, Setup, SliceCosts, Snapshot};
use crate::split::split;

const SLICES: u32 = 64;
const ROWS: f64 = 500_000.0;
const CORES: u32 = 2;
/// The share that a busy neighbour uses.
const BUSY: f64 = 0.75;

/// The work that a query asks of the slices.
#[derive(Clone, Copy)]
enum Query {
    Scan,
    Aggregate,
    Join,
}

/// What others do at the same time.
#[derive(Clone, Copy)]
enum Background {
    None,
    Drive,
    Link,
    Host,
    DriveFromHalf,
}

/// A scan, an aggregate and a join, over a range of selectivities, drive CPUs, links and background loads: 900
/// scenarios of 64 slices each. Costs are noisy, the first slices at weak drives are slow, and the cost model errs by
/// up to a factor of two.
pub fn grid() -> Vec<Scenario> {
    let queries = [("scan", Query::Scan), ("aggregate", Query::Aggregate), ("join", Query::Join)];
    let cpus = [("1", 1.0), ("1/4", 4.0), ("1/15", 15.0)];
    let links = [("100M", 12.5e6), ("1G", 125e6), ("10G", 1.25e9), ("process", f64::INFINITY)];
    let backgrounds = [
        ("none", Background::None),
        ("drive", Background::Drive),
        ("link", Background::Link),
        ("host", Background::Host),
        ("drive from half", Background::DriveFromHalf),
    ];
    let mut all = Vec::new();
    for (query_name, query) in queries {
        for pass in [0.001, 0.01, 0.1, 0.5, 1.0] {
            for (cpu_name, slower) in cpus {
                for (link_name, rate) in links {
                    for (background_name, background) in backgrounds {
                        let name =
                            format!("{query_name}, {pass} pass, CPU {cpu_name}, link {link_name}, busy: {background_name}");
                        let seed = all.len() as u64;
                        all.push(scenario(name, seed, query, pass, slower, rate, background));
                    }
                }
            }
        }
    }
    all
}

fn scenario(name: String, seed: u64, query: Query, pass: f64, slower: f64, rate: f64, background: Background) -> Scenario {
    // In a third of the scenarios rows that pass lie together, in a third they are spread over all pages but few columns are
    // needed, and in a third nothing of a slice can be left out.
    let hinted = match seed % 3 {
        0 => (pass * 2.0).min(1.0),
        1 => 0.4,
        _ => 1.0,
    };
    let mut costs = CostModel::new(CostModel::REFERENCE_NS_PER_UNIT).predict(&features(query, pass, hinted)).costs(1.0);
    costs.drive_ns = ByLevel::from_fn(|level| costs.drive_ns.get(level) * slower);
    let weak = slower > 1.0;
    let errors = [0.5, 0.7, 1.0, 1.4, 2.0];
    let error = |step: u64| errors.get((seed / step % 5) as usize).copied().unwrap_or(1.0);
    let mut scenario = Scenario {
        name,
        seed,
        slices: SLICES,
        resident: 0,
        costs,
        setup: setup(query),
        drive_cores: CORES,
        host_cores: CORES,
        link_bytes_per_s: rate,
        drive_load: Load::NONE,
        link_load: Load::NONE,
        host_load: Load::NONE,
        noise: 0.2,
        slow_first: if weak { 5 } else { 0 },
        slow_factor: 5.0,
        time_error: error(7),
        size_error: error(3),
        notice_ns: 1e6,
        lies: Vec::new(),
        allowed: Allowed::ALL,
        whole_is_all_or_none: false,
    };
    match background {
        Background::None => {}
        Background::Drive => scenario.drive_load = Load::steady(BUSY),
        Background::Link => scenario.link_load = Load::steady(BUSY),
        Background::Host => scenario.host_load = Load::steady(BUSY),
        Background::DriveFromHalf => {
            scenario.drive_load = Load { share: BUSY, from_ns: expected_ns(&scenario) / 2.0, period_ns: 0.0 }
        }
    }
    scenario
}

/// `hinted`: the share of a slice's bytes that its columns and pages need which may match.
fn features(query: Query, pass: f64, hinted: f64) -> Features {
    let common = Features {
        encoding: "vortex".to_owned(),
        rows: ROWS,
        stored_bytes: ROWS * 5.0,
        hint_bytes: ROWS * 5.0 * hinted,
        decoded_bytes: ROWS * 16.0,
        predicates: 1.0,
        pass,
        out_bytes_per_row: 16.0,
        ..Features::default()
    };
    match query {
        Query::Scan => Features { result_rows: ROWS * pass, result_bytes: ROWS * pass * 16.0, ..common },
        Query::Aggregate => Features { groups: 100.0, functions: 3.0, result_rows: 100.0, result_bytes: 4_000.0, ..common },
        Query::Join => {
            Features { joins: 1.0, result_rows: ROWS * pass * 0.5, result_bytes: ROWS * pass * 0.5 * 24.0, ..common }
        }
    }
}

/// A join's other input is on the drive. The host needs it, too, before it can finish a slice.
fn setup(query: Query) -> ByLevel<Setup> {
    match query {
        Query::Join => {
            let host = Setup { link_bytes: 500_000.0, host_ns: 2e6, drive_ns: 0.0 };
            ByLevel { whole: Setup::default(), filtered: host, hints: host, bytes: host }
        }
        Query::Scan | Query::Aggregate => ByLevel::default(),
    }
}

/// How long the best division would take undisturbed.
fn expected_ns(scenario: &Scenario) -> f64 {
    let best = split(&Snapshot {
        left: scenario.slices,
        resident: scenario.resident,
        costs: SliceCosts { ..scenario.costs.clone() },
        setup: scenario.setup,
        drive: DriveState { cores: f64::from(scenario.drive_cores), busy_ns: 0.0 },
        link: LinkState { bytes_per_s: scenario.link_bytes_per_s, backlog_bytes: 0.0 },
        host: HostState { cores: f64::from(scenario.host_cores), backlog_ns: 0.0 },
        allowed: scenario.allowed,
        whole_is_all_or_none: scenario.whole_is_all_or_none,
    });
    best.finish_ns
}
