//! Do et al. 2013: selection and aggregation in a Smart SSD, beside the same machine's SSD and hard drive.

use pithead_emulate::{Answer, Bottleneck, ComputeSite, Layout, Load, Outcome, Profile, Scan, Work, find, run as model};

use crate::ReproError;
use crate::figure::{Chart, FigureKind, How, Line, Report};
use crate::table::{ROWS, Synthetic, blank, question};

/// The shares of rows that pass, in the curves.
const SHARES: [f64; 5] = [0.001, 0.01, 0.1, 0.5, 1.0];
const BEST: usize = 0;
const TENTH: usize = 2;
const ALL: usize = 4;

const SMART: &[&str] = &["smart-ssd"];
const WITH_SSD: &[&str] = &["smart-ssd", "sas-ssd"];
const WITH_HDD: &[&str] = &["smart-ssd", "sas-hdd"];
const EVERY: &[&str] = &["smart-ssd", "sas-ssd", "sas-hdd"];

/// Who does the work, on what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Hdd,
    Ssd,
    SmartNsm,
    SmartPax,
}

impl Way {
    const ALL: [Way; 4] = [Way::Hdd, Way::Ssd, Way::SmartNsm, Way::SmartPax];

    fn name(self) -> &'static str {
        match self {
            Way::Hdd => "SAS HDD",
            Way::Ssd => "SAS SSD",
            Way::SmartNsm => "Smart SSD (NSM)",
            Way::SmartPax => "Smart SSD (PAX)",
        }
    }
}

/// What a query took, for all rows of the paper.
#[derive(Clone, Copy, Debug)]
struct Took {
    seconds: f64,
    system_j: f64,
    io_j: f64,
    bottleneck: Bottleneck,
}

struct Lab {
    hdd: Profile,
    ssd: Profile,
    smart: Profile,
    scale: u64,
    virtual_s: f64,
}

impl Lab {
    fn new(scale: u64) -> Result<Self, ReproError> {
        let mut smart = find("smart-ssd")?;
        if let Some(parts) = &mut smart.parts {
            // Against a smaller table, the host's interval would weigh more than it did in the paper.
            parts.link.poll_s.value /= scale as f64;
            parts.link.poll_least_s.value /= scale as f64;
        }
        Ok(Self { hdd: find("sas-hdd")?, ssd: find("sas-ssd")?, smart, scale, virtual_s: 0.0 })
    }

    fn table(&self, columns: usize) -> Synthetic {
        Synthetic { columns, rows: (ROWS / self.scale).max(1) }
    }

    fn outcome(&mut self, way: Way, work: &Work, load: Load) -> Result<Outcome, ReproError> {
        let profile = match way {
            Way::Hdd => &self.hdd,
            Way::Ssd => &self.ssd,
            Way::SmartNsm | Way::SmartPax => &self.smart,
        };
        let outcome = model(profile, work, load)?;
        self.virtual_s += outcome.elapsed_s;
        Ok(outcome)
    }

    fn took(&mut self, way: Way, work: &Work) -> Result<Took, ReproError> {
        let place = if matches!(way, Way::Hdd | Way::Ssd) { ComputeSite::Host } else { ComputeSite::Device };
        let outcome = self.outcome(way, work, Load::at(place))?;
        let scale = self.scale as f64;
        Ok(Took {
            seconds: outcome.elapsed_s * scale,
            system_j: outcome.energy.system_j() * scale,
            io_j: outcome.energy.io_j() * scale,
            bottleneck: outcome.bottleneck,
        })
    }

    /// A scan of Synthetic64 in every way, for every share.
    fn curves(&mut self, scan: Scan) -> Result<Curves, ReproError> {
        let questions = SHARES.map(|share| question(share, scan));
        let table = self.table(64);
        let mut took = Vec::new();
        let mut answers: Vec<Vec<Answer>> = Vec::new();
        for (layout, ways) in [(Layout::Nsm, &Way::ALL[..3]), (Layout::Pax, &Way::ALL[3..])] {
            let counted = table.count(layout, &questions)?;
            for way in ways {
                took.push(counted.iter().map(|(work, _)| self.took(*way, work)).collect::<Result<Vec<_>, _>>()?);
            }
            answers.push(counted.into_iter().map(|(_, answer)| answer).collect());
        }
        if answers[0] != answers[1] {
            return Err(ReproError::Differs("Synthetic64".to_owned()));
        }
        Ok(Curves { took })
    }

    /// A selection of 0.1% of each table, on the SSD and in the Smart SSD with PAX.
    fn tables(&mut self) -> Result<Vec<(usize, Took, Took)>, ReproError> {
        let questions = [question(0.001, Scan::Select)];
        let mut rows = Vec::new();
        for columns in [4, 16, 64] {
            let table = self.table(columns);
            let nsm = table.count(Layout::Nsm, &questions)?;
            let pax = table.count(Layout::Pax, &questions)?;
            if nsm[0].1 != pax[0].1 {
                return Err(ReproError::Differs(format!("Synthetic{columns}")));
            }
            rows.push((columns, self.took(Way::Ssd, &nsm[0].0)?, self.took(Way::SmartPax, &pax[0].0)?));
        }
        Ok(rows)
    }
}

/// What each way took for each share.
struct Curves {
    took: Vec<Vec<Took>>,
}

impl Curves {
    fn at(&self, way: Way, share: usize) -> Took {
        self.took[way as usize][share]
    }

    /// How many times as much as the Smart SSD with PAX.
    fn times(&self, way: Way, share: usize, of: fn(&Took) -> f64) -> f64 {
        of(&self.at(way, share)) / of(&self.at(Way::SmartPax, share))
    }

    fn chart(&self, title: String, y: &'static str, of: fn(&Took) -> f64) -> Chart {
        let line = |way: Way| Line {
            name: way.name().to_owned(),
            points: SHARES.iter().zip(&self.took[way as usize]).map(|(share, took)| (share * 100.0, of(took))).collect(),
        };
        Chart { title, profiles: EVERY.to_vec(), x: "rows that match (%)", y, lines: Way::ALL.map(line).to_vec() }
    }
}

fn seconds(took: &Took) -> f64 {
    took.seconds
}

fn system_j(took: &Took) -> f64 {
    took.system_j
}

fn io_j(took: &Took) -> f64 {
    took.io_j
}

pub(crate) fn run(scale: u64) -> Result<Report, ReproError> {
    let mut lab = Lab::new(scale)?;
    let mut report = Report::new("smart-ssd", scale);
    bandwidth(&mut lab, &mut report)?;
    layouts(&mut report);
    let tables = lab.tables()?;
    sizes(&tables, &mut report);
    let select = lab.curves(Scan::Select)?;
    selection(&select, &mut report);
    let average = lab.curves(Scan::Average)?;
    aggregation(&average, &mut report);
    both(&select, &average, &mut report);
    intervals(&mut lab, &select, &mut report)?;
    report.missing(
        "selection and aggregation over LINEITEM of TPC-H",
        "the sources at hand describe the table, and have no figure of it",
    );
    report.virtual_s = lab.virtual_s;
    Ok(report)
}

/// Table 1: reads of 32 pages, and what the device reads inside.
fn bandwidth(lab: &mut Lab, report: &mut Report) -> Result<(), ReproError> {
    const PAGES: usize = 65_536;
    let work = blank(8192, PAGES);
    let place = "table 1";
    let mut rates = Vec::new();
    for (way, place_of_work) in
        [(Way::Hdd, ComputeSite::Host), (Way::Ssd, ComputeSite::Host), (Way::SmartPax, ComputeSite::Device)]
    {
        let outcome = lab.outcome(way, &work, Load::reading(place_of_work))?;
        rates.push(outcome.bytes.medium as f64 / outcome.elapsed_s / 1e6);
    }
    let rows: [(&str, f64, &'static [&'static str]); 3] = [
        ("sequential read, HDD", 80.0, &["sas-hdd"]),
        ("sequential read, SSD", 550.0, &["sas-ssd"]),
        ("sequential read inside the Smart SSD", 1560.0, SMART),
    ];
    for ((what, paper, profiles), rate) in rows.into_iter().zip(&rates) {
        report.figure(what, place, "MB/s", (paper, *rate), How(FigureKind::Input, profiles));
    }
    report.figure("inside over HDD", place, "×", (19.5, rates[2] / rates[0]), How(FigureKind::Input, WITH_HDD));
    report.figure("inside over SSD", place, "×", (2.8, rates[2] / rates[1]), How(FigureKind::Input, WITH_SSD));
    Ok(())
}

/// What fits a page, and what a table takes.
fn layouts(report: &mut Report) {
    for (columns, rows, gigabytes) in [(4, 323.0, 10.0), (16, 109.0, 30.0), (64, 29.0, 110.0)] {
        let place = "slide 14";
        let table = Synthetic { columns, rows: ROWS };
        let what = format!("rows a page, Synthetic{columns}");
        report.figure(&what, place, "rows", (rows, Layout::rows_max(columns) as f64), How(FigureKind::Counted, &[]));
        let size = (table.pages() * 8192) as f64 / 1e9;
        report.figure(&format!("size of Synthetic{columns}"), place, "GB", (gigabytes, size), How(FigureKind::Counted, &[]));
    }
}

/// Figure 4: the more rows a page has, the more work it is.
fn sizes(tables: &[(usize, Took, Took)], report: &mut Report) {
    let place = "figure 4";
    for (columns, ssd, smart) in tables {
        let times = ssd.seconds / smart.seconds;
        let ours = format!("{times:.2}×: SSD {:.1} s, Smart SSD {:.1} s", ssd.seconds, smart.seconds);
        match columns {
            4 => {
                report.claim("Synthetic4 is slower in the Smart SSD than on the SSD", place, times < 1.0, ours);
                let ours = format!("the {} is", smart.bottleneck.name());
                report.claim(
                    "for Synthetic4 the device CPU is the bottleneck",
                    place,
                    smart.bottleneck == Bottleneck::DeviceCpu,
                    ours,
                );
            }
            64 => report.claim("Synthetic64 is faster in the Smart SSD than on the SSD", place, times > 1.0, ours),
            _ => {}
        }
    }
    let line = |name: &str, of: fn(&(usize, Took, Took)) -> f64| Line {
        name: name.to_owned(),
        points: tables.iter().map(|row| (row.0 as f64, of(row))).collect(),
    };
    report.charts.push(Chart {
        title: "Figure 4: selection of 0.1%, seconds".to_owned(),
        profiles: WITH_SSD.to_vec(),
        x: "columns of the table",
        y: "seconds",
        lines: vec![line("SAS SSD", |row| row.1.seconds), line("Smart SSD (PAX)", |row| row.2.seconds)],
    });
}

/// Figure 5, and slides 16 to 19.
fn selection(curves: &Curves, report: &mut Report) {
    use FigureKind::{Calibrated, Follows};
    // Both hosts wait for their disk, so the SSD's time follows from the HDD's and the two bandwidths.
    let rows: [(&str, &'static str, f64, f64, How); 6] = [
        ("time, HDD", "slide 16", 16.0, curves.times(Way::Hdd, TENTH, seconds), How(Calibrated, WITH_HDD)),
        ("system energy, HDD", "slide 16", 15.5, curves.times(Way::Hdd, TENTH, system_j), How(Calibrated, WITH_HDD)),
        ("I/O energy, HDD", "slide 18", 23.0, curves.times(Way::Hdd, TENTH, io_j), How(Calibrated, WITH_HDD)),
        ("time, SSD", "slide 17", 2.3, curves.times(Way::Ssd, TENTH, seconds), How(Follows, WITH_SSD)),
        ("system energy, SSD", "slide 17", 2.4, curves.times(Way::Ssd, TENTH, system_j), How(Calibrated, WITH_SSD)),
        ("I/O energy, SSD", "slide 19", 1.8, curves.times(Way::Ssd, TENTH, io_j), How(Calibrated, WITH_SSD)),
    ];
    for (what, place, paper, ours, how) in rows {
        report.figure(&format!("selection of 10%: {what} over Smart SSD"), place, "×", (paper, ours), how);
    }
    push_charts(curves, "Figure 5: selection", report);
}

/// Figure 6, and slides 21 to 24.
fn aggregation(curves: &Curves, report: &mut Report) {
    use FigureKind::{Calibrated, Follows, Predicted};
    let rows: [(&str, &'static str, f64, f64, How); 6] = [
        ("time, HDD", "slide 21", 16.9, curves.times(Way::Hdd, TENTH, seconds), How(Calibrated, WITH_HDD)),
        ("system energy, HDD", "slide 21", 16.4, curves.times(Way::Hdd, TENTH, system_j), How(Predicted, WITH_HDD)),
        ("I/O energy, HDD", "slide 23", 20.9, curves.times(Way::Hdd, TENTH, io_j), How(Predicted, WITH_HDD)),
        ("time, SSD", "slide 22", 2.4, curves.times(Way::Ssd, TENTH, seconds), How(Follows, WITH_SSD)),
        ("system energy, SSD", "slide 22", 2.6, curves.times(Way::Ssd, TENTH, system_j), How(Predicted, WITH_SSD)),
        ("I/O energy, SSD", "slide 24", 1.8, curves.times(Way::Ssd, TENTH, io_j), How(Predicted, WITH_SSD)),
    ];
    for (what, place, paper, ours, how) in rows {
        report.figure(&format!("aggregation of 10%: {what} over Smart SSD"), place, "×", (paper, ours), how);
    }
    for (way, name) in [(Way::Hdd, "HDD"), (Way::Ssd, "SSD")] {
        let times = curves.times(way, ALL, seconds);
        let what = format!("aggregation of all rows is faster in the Smart SSD than on the {name}");
        report.claim(&what, "figure 6", times > 1.0, format!("{times:.2}×"));
    }
    push_charts(curves, "Figure 6: aggregation", report);
}

/// What is said of all queries together.
fn both(select: &Curves, average: &Curves, report: &mut Report) {
    let best = |of: fn(&Took) -> f64| select.times(Way::Ssd, BEST, of).max(average.times(Way::Ssd, BEST, of));
    report.figure(
        "best: time, SSD over Smart SSD",
        "abstract",
        "×",
        (2.7, best(seconds)),
        How(FigureKind::Calibrated, WITH_SSD),
    );
    report.figure(
        "best: system energy, SSD over Smart SSD",
        "abstract",
        "×",
        (3.0, best(system_j)),
        How(FigureKind::Predicted, WITH_SSD),
    );
    let saved = |share: usize| 100.0 * (1.0 - 1.0 / select.times(Way::SmartNsm, share, seconds));
    let most = (0..SHARES.len()).map(saved).fold(0.0, f64::max);
    report.figure(
        "selection: time that PAX saves against NSM, at most",
        "figure 5",
        "%",
        (32.0, most),
        How(FigureKind::Predicted, SMART),
    );
    let gains = (select.times(Way::Ssd, ALL, seconds), average.times(Way::Ssd, ALL, seconds));
    let ours = format!("{:.2}× and {:.2}×", gains.0, gains.1);
    report.claim("where all rows match, aggregation gains more than selection", "figure 6", gains.1 > gains.0, ours);
}

/// Section 3.1: how a host may learn of what the device has. The paper's experiments have a fixed interval, and no figure of another.
fn intervals(lab: &mut Lab, curves: &Curves, report: &mut Report) -> Result<(), ReproError> {
    /// The shortest interval of one that adapts, as a share of the longest.
    const SHORTEST: f64 = 1.0 / 64.0;
    let work = lab.table(64).count(Layout::Pax, &[question(SHARES[TENTH], Scan::Select)])?.remove(0).0;
    let fixed = lab.smart.clone();
    for (how, least, most) in [("GET adapts", SHORTEST, 1.0), ("the device begins", 0.0, 0.0)] {
        if let Some(parts) = &mut lab.smart.parts {
            parts.link.poll_least_s.value *= least;
            parts.link.poll_s.value *= most;
        }
        let times = curves.at(Way::Ssd, TENTH).seconds / lab.took(Way::SmartPax, &work)?.seconds;
        lab.smart = fixed.clone();
        let what = format!("selection of 10%: time where {how}");
        report.figure(&what, "section 3.1", "×", (2.3, times), How(FigureKind::Variant, WITH_SSD));
    }
    Ok(())
}

fn push_charts(curves: &Curves, title: &str, report: &mut Report) {
    report.charts.push(curves.chart(format!("{title}, seconds"), "seconds", seconds));
    report.charts.push(curves.chart(format!("{title}, entire system"), "kJ", |took| took.system_j / 1e3));
    report.charts.push(curves.chart(format!("{title}, I/O subsystem"), "kJ", |took| took.io_j / 1e3));
}
