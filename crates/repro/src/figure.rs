//! Figures beside those of the papers.

use serde::Serialize;

/// How a figure of ours came to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FigureKind {
    /// The profile has the paper's number; the model hands it through.
    Input,
    /// A number of the profile was chosen so that this figure comes out.
    Calibrated,
    /// Counted on our own pages; no time is involved.
    Counted,
    /// Arithmetic on input and calibrated figures gives it, without the model: it says nothing of the model.
    Follows,
    /// Another way to run an experiment that the paper does not say so, beside the one that counts.
    Variant,
    /// The model's own, from the rest.
    Predicted,
}

impl FigureKind {
    /// Its word.
    pub fn name(self) -> &'static str {
        match self {
            FigureKind::Input => "input",
            FigureKind::Calibrated => "calibrated",
            FigureKind::Counted => "counted",
            FigureKind::Follows => "follows",
            FigureKind::Variant => "variant",
            FigureKind::Predicted => "predicted",
        }
    }
}

/// A figure of a paper, and ours.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// What it is.
    pub what: String,
    /// Where the paper has it.
    pub place: &'static str,
    /// Its unit; `×` for a ratio.
    pub unit: &'static str,
    /// The paper's value.
    pub paper: f64,
    /// Ours.
    pub ours: f64,
    /// Ours over the paper's.
    pub ratio: f64,
    /// How ours came to be.
    pub kind: FigureKind,
    /// Whose time it is in.
    pub clock: &'static str,
    /// The profiles that it was computed on.
    pub profiles: Vec<&'static str>,
}

impl Figure {
    /// Whether it is as close as predictions are meant to be.
    pub fn is_within_20(&self) -> bool {
        (0.8..=1.2).contains(&self.ratio)
    }
}

/// What a paper says without a number.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Claim {
    /// What it says.
    pub what: String,
    /// Where.
    pub place: &'static str,
    /// Whether it is so here.
    pub holds: bool,
    /// What was found.
    pub ours: String,
}

/// A figure that is not reproduced.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Missing {
    /// What it is.
    pub what: &'static str,
    /// Why it is not.
    pub reason: &'static str,
}

/// A line of a chart.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Line {
    /// What it stands for.
    pub name: String,
    /// Its points.
    pub points: Vec<(f64, f64)>,
}

/// A chart, with logarithmic axes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Chart {
    /// What it shows.
    pub title: String,
    /// The profiles that it was computed on.
    pub profiles: Vec<&'static str>,
    /// What x is.
    pub x: &'static str,
    /// What y is.
    pub y: &'static str,
    /// The lines.
    pub lines: Vec<Line>,
}

/// What became of one paper's experiments.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Report {
    /// Its name in the list.
    pub name: &'static str,
    /// Whose time it is in.
    pub clock: &'static str,
    /// Tables have 1/`scale` of the paper's rows. Times and energies are those of all rows.
    pub scale: u64,
    /// Figures with numbers.
    pub figures: Vec<Figure>,
    /// What the paper says without numbers.
    pub claims: Vec<Claim>,
    /// What is not reproduced.
    pub not_reproduced: Vec<Missing>,
    /// Curves.
    pub charts: Vec<Chart>,
    /// Seconds of virtual time that the model ran through.
    pub virtual_s: f64,
    /// Seconds that a simulator of a drive's cores ran through, which is not the model.
    pub simulated_s: f64,
}

/// What stands on every report.
pub(crate) const CLOCK: &str = "emulated, virtual time";

impl Report {
    pub(crate) fn new(name: &'static str, scale: u64) -> Self {
        Self { name, clock: CLOCK, scale, ..Self::default() }
    }

    pub(crate) fn figure(&mut self, what: &str, place: &'static str, unit: &'static str, values: (f64, f64), how: How) {
        let (paper, ours) = values;
        let How(kind, profiles) = how;
        let profiles = profiles.to_vec();
        self.figures.push(Figure {
            what: what.to_owned(),
            place,
            unit,
            paper,
            ours,
            ratio: ours / paper,
            kind,
            clock: self.clock,
            profiles,
        });
    }

    pub(crate) fn claim(&mut self, what: &str, place: &'static str, holds: bool, ours: String) {
        self.claims.push(Claim { what: what.to_owned(), place, holds, ours });
    }

    pub(crate) fn missing(&mut self, what: &'static str, reason: &'static str) {
        self.not_reproduced.push(Missing { what, reason });
    }
}

/// How a figure came to be, and on which profiles.
#[derive(Clone, Copy)]
pub(crate) struct How(pub(crate) FigureKind, pub(crate) &'static [&'static str]);

/// All reports in a few numbers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ReproSummary {
    /// The share of the predicted figures that are within 20% of the paper's.
    pub repro_within_20: f64,
    /// Predicted figures.
    pub repro_figures: usize,
    /// Figures that a number of a profile was chosen for.
    pub repro_calibrated: usize,
    /// What the papers say without numbers, and how much of it is so here.
    pub repro_claims: usize,
    /// See `repro_claims`.
    pub repro_claims_held: usize,
    /// Figures of the papers that are not reproduced.
    pub repro_not_reproduced: usize,
}

impl ReproSummary {
    /// Of these reports.
    pub fn of(reports: &[Report]) -> Self {
        let figures = || reports.iter().flat_map(|report| &report.figures);
        let predicted = figures().filter(|figure| figure.kind == FigureKind::Predicted);
        let repro_figures = predicted.clone().count();
        let within = predicted.filter(|figure| figure.is_within_20()).count();
        let claims = || reports.iter().flat_map(|report| &report.claims);
        Self {
            repro_within_20: if repro_figures == 0 { 0.0 } else { within as f64 / repro_figures as f64 },
            repro_figures,
            repro_calibrated: figures().filter(|figure| figure.kind == FigureKind::Calibrated).count(),
            repro_claims: claims().count(),
            repro_claims_held: claims().filter(|claim| claim.holds).count(),
            repro_not_reproduced: reports.iter().map(|report| report.not_reproduced.len()).sum(),
        }
    }
}
