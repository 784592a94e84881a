//! Runs targets: the corpus first, then mutants.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rand::SeedableRng;
use rand::rngs::StdRng;

use crate::{Failure, Judge, Outcome, Seed, Target, mutant, shrink};

/// How long to go on, and from which seed.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// Time for mutants.
    pub time: Duration,
    /// Mutants at most.
    pub cases: u64,
    /// Each number gives other mutants.
    pub seed: u64,
}

/// What was run.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// Mutants.
    pub cases: u64,
    /// Of them, those that decoded.
    pub accepted: u64,
    /// The largest peak of memory, bytes.
    pub peak: usize,
    /// What fails: the file that it was written to, and why.
    pub failures: Vec<(PathBuf, Failure)>,
}

/// Judges all seeds of a target and what the corpus has of it, then mutants of both until the budget is used up or one fails. What
/// fails is made smaller and written to `failed`.
pub fn run(target: &Target, corpus: &[Seed], judge: &mut Judge, budget: Budget, failed: &Path) -> io::Result<Totals> {
    let mut totals = Totals::default();
    let seeds: Vec<&Seed> = target.seeds.iter().chain(corpus).collect();
    for seed in &seeds {
        let judged = judge.judge(target, &seed.bytes);
        totals.peak = totals.peak.max(judged.peak);
        let refused = seed.valid && judged.outcome != Some(Outcome::Accepted);
        if let Some(failure) = judged.failure.or(refused.then_some(Failure::RefusedSeed)) {
            let name = format!("{}-seed-{}", target.name, seed.name);
            totals.failures.push((keep(failed, &name, &seed.bytes)?, failure));
        }
    }
    // Large ones are slow, and their mutants alike.
    let inputs: Vec<&[u8]> = seeds.iter().map(|seed| seed.bytes.as_slice()).filter(|bytes| bytes.len() < 1 << 20).collect();
    let started = Instant::now();
    while totals.failures.is_empty() && totals.cases < budget.cases && started.elapsed() < budget.time {
        // Each case has a generator of its own, so that it is the same whatever came before it.
        let mut random = StdRng::seed_from_u64(budget.seed ^ totals.cases.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let input = mutant(target, &inputs, &mut random);
        let judged = judge.judge(target, &input);
        totals.cases += 1;
        totals.accepted += u64::from(judged.outcome == Some(Outcome::Accepted));
        totals.peak = totals.peak.max(judged.peak);
        if let Some(failure) = judged.failure {
            let name = format!("{}-{}-{}", target.name, budget.seed, totals.cases);
            // As it was, in case that shrinking ends the process.
            keep(failed, &name, &input)?;
            let alike = |input: &[u8]| judge.judge(target, input).failure.is_some_and(|other| other.is_like(&failure));
            let small = shrink(target, &input, alike);
            totals.failures.push((keep(failed, &name, &small)?, failure));
        }
    }
    Ok(totals)
}

/// Judges the inputs in these files.
pub fn replay(target: &Target, files: &[PathBuf], judge: &mut Judge) -> io::Result<Totals> {
    let mut totals = Totals::default();
    for file in files {
        let judged = judge.judge(target, &fs::read(file)?);
        totals.cases += 1;
        totals.accepted += u64::from(judged.outcome == Some(Outcome::Accepted));
        totals.peak = totals.peak.max(judged.peak);
        totals.failures.extend(judged.failure.map(|failure| (file.clone(), failure)));
    }
    Ok(totals)
}

fn keep(folder: &Path, name: &str, input: &[u8]) -> io::Result<PathBuf> {
    fs::create_dir_all(folder)?;
    let file = folder.join(name.replace(['/', ' '], "-"));
    fs::write(&file, input)?;
    Ok(file)
}
