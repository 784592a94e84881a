//! One cell, measured: its query at each fixed level and adaptively, in turns.

use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use futures::TryStreamExt;
use pithead_host::{QueryProfile, Session};
use pithead_model::{Blame, ByLevel, Fault, Level, LevelRule};
use serde::Serialize;

use super::answer::Answer;
use super::background::Background;
use super::cell::{Cell, WAYS, setting};
use super::place::{Served, TableDirectory};
use crate::timing::Spread;

/// Longest that one run may take.
const RUN_LIMIT: Duration = Duration::from_secs(120);

/// What a cell gave.
#[derive(Debug, Serialize)]
pub(super) struct Measured {
    pub(super) name: String,
    #[serde(flatten)]
    pub(super) cell: Cell,
    pub(super) rows: usize,
    pub(super) level_3_s: Spread,
    pub(super) level_2_s: Spread,
    pub(super) level_1_s: Spread,
    pub(super) level_0_s: Spread,
    pub(super) auto_s: Spread,
    /// The first adaptive run, before anything was measured.
    pub(super) auto_first_s: f64,
    /// Slices that the adaptive runs took to each level, in the mean.
    pub(super) auto_slices: ByLevel<f64>,
    /// The level whose median is the least.
    pub(super) best_fixed: String,
    /// The adaptive median over the best fixed level's.
    pub(super) regret: f64,
    /// The same of the first adaptive run.
    pub(super) regret_first: f64,
    /// All runs in the order in which they ran.
    pub(super) runs_s: ByWay,
}

/// Seconds of all runs.
#[derive(Debug, Default, Serialize)]
pub(super) struct ByWay {
    level_3: Vec<f64>,
    level_2: Vec<f64>,
    level_1: Vec<f64>,
    level_0: Vec<f64>,
    auto: Vec<f64>,
}

/// One run.
pub(super) struct Ran {
    pub(super) batches: Vec<RecordBatch>,
    pub(super) seconds: f64,
    slices: ByLevel<u32>,
}

/// Measures a cell on a drive of its own. Another answer than that of level 3 is an error.
pub(super) async fn measure(place: &TableDirectory, cell: Cell, runs: usize) -> Result<Measured, Fault> {
    let served = place.serve(cell.drive_cpu, Some(cell.link)).await?;
    let mut background = Background::start(&cell, place.cores, &served.target).await?;
    let measured = in_turns(&served, cell, runs.max(1)).await;
    let alive = background.is_alive();
    background.stop().await;
    served.stop().await?;
    let measured = measured.map_err(|fault| fault.at(cell.name()))?;
    if !alive {
        return Err(Fault::new(Blame::Device, "the background load ended early").at(cell.name()));
    }
    println!("{}", measured.line());
    Ok(measured)
}

async fn in_turns(served: &Served, cell: Cell, runs: usize) -> Result<Measured, Fault> {
    let sql = cell.sql();
    let mut sessions = Vec::new();
    for way in WAYS {
        sessions.push((way, served.session(&setting(way)).await?));
    }
    let mut seconds = ByWay::default();
    let mut slices = ByLevel::<f64>::default();
    let (mut expected, mut first): (Option<Answer>, f64) = (None, 0.0);
    // The first turn warms up; adaptively, it is the first run of this sub-plan.
    for turn in 0..=runs {
        for at in 0..sessions.len() {
            // Nobody always follows the same one; the first turn begins with the fixed levels.
            let Some((way, session)) = sessions.get((at + turn) % WAYS.len()) else { continue };
            let ran = run(session, &sql).await?;
            let answer = Answer::of(ran.batches)?;
            match &expected {
                None => expected = Some(answer),
                Some(expected) => expected.check(&answer).map_err(|fault| fault.at(format!("level {}", setting(*way))))?,
            }
            if turn > 0 {
                seconds.of(*way).push(ran.seconds);
            }
            if *way == LevelRule::Auto {
                if turn == 0 {
                    first = ran.seconds;
                } else {
                    slices = ByLevel::from_fn(|level| slices.get(level) + f64::from(*ran.slices.get(level)) / runs as f64);
                }
            }
        }
    }
    let rows = expected.map_or(0, |answer| answer.rows());
    Ok(Measured::new(cell, rows, seconds, first, slices))
}

impl Measured {
    fn new(cell: Cell, rows: usize, seconds: ByWay, first: f64, auto_slices: ByLevel<f64>) -> Measured {
        let spread = |seconds: &[f64]| Spread::of(seconds.to_vec());
        let (whole, filtered) = (spread(&seconds.level_3), spread(&seconds.level_2));
        let (hints, bytes, auto) = (spread(&seconds.level_1), spread(&seconds.level_0), spread(&seconds.auto));
        let mut best = ("3", whole.median);
        for (level, spread) in [("2", filtered), ("1", hints), ("0", bytes)] {
            if spread.median < best.1 {
                best = (level, spread.median);
            }
        }
        Measured {
            name: cell.name(),
            cell,
            rows,
            level_3_s: whole,
            level_2_s: filtered,
            level_1_s: hints,
            level_0_s: bytes,
            auto_s: auto,
            auto_first_s: first,
            auto_slices,
            best_fixed: best.0.to_owned(),
            regret: auto.median / best.1,
            regret_first: first / best.1,
            runs_s: seconds,
        }
    }

    /// While it runs.
    fn line(&self) -> String {
        let ByLevel { whole, filtered, hints, bytes } = self.auto_slices;
        format!(
            "{}: levels 3, 2, 1, 0 take {:.0}, {:.0}, {:.0}, {:.0} ms; auto {:.0} ({:.0} at first) with {whole:.0}, {filtered:.0}, {hints:.0}, {bytes:.0} slices: {:.2}",
            self.name,
            self.level_3_s.median * 1e3,
            self.level_2_s.median * 1e3,
            self.level_1_s.median * 1e3,
            self.level_0_s.median * 1e3,
            self.auto_s.median * 1e3,
            self.auto_first_s * 1e3,
            self.regret,
        )
    }
}

impl ByWay {
    fn of(&mut self, way: LevelRule) -> &mut Vec<f64> {
        match way {
            LevelRule::Only(Level::Whole) => &mut self.level_3,
            LevelRule::Only(Level::Filtered) => &mut self.level_2,
            LevelRule::Only(Level::Hints) => &mut self.level_1,
            LevelRule::Only(Level::Bytes) => &mut self.level_0,
            LevelRule::Auto | LevelRule::Random(_) => &mut self.auto,
        }
    }
}

/// Runs a statement to its last row, within a limit.
pub(super) async fn run(session: &Session, sql: &str) -> Result<Ran, Fault> {
    let started = Instant::now();
    let whole = async {
        let answer = session.run(sql).await?;
        let batches: Vec<RecordBatch> = answer.rows.try_collect().await?;
        Ok::<_, Fault>((answer.profile, batches, started.elapsed().as_secs_f64()))
    };
    let late = |_| Fault::new(Blame::Device, format!("no answer within {} s: {sql}", RUN_LIMIT.as_secs()));
    let (profile, batches, seconds) = tokio::time::timeout(RUN_LIMIT, whole).await.map_err(late)??;
    Ok(Ran { batches, seconds, slices: slices_by_level(&profile) })
}

/// Slices that were answered for, by the level that they were taken to.
fn slices_by_level(profile: &QueryProfile) -> ByLevel<u32> {
    let mut slices = ByLevel::<u32>::default();
    let sub_plans = profile.sub_plans();
    let sessions = sub_plans.iter().flat_map(|sub_plan| sub_plan.sessions());
    for annotation in sessions.flat_map(|session| session.annotations) {
        *slices.get_mut(annotation.level) += annotation.slices.iter().map(|span| span.count).sum::<u32>();
    }
    slices
}
