//! Annotations inside plans.

use pithead_door::{OpenRequest, PlanBytes};
use pithead_fuzz::{Bound, Outcome, Parts, Seed, Target};
use pithead_model::Fault;
use pithead_plan::{Executed, Progress, Round, Rounds, RunOfSlices, Span, annotate, annotation_of};

use crate::refused;

pub const NAMES: [&str; 1] = ["plan_annotation"];

/// An empty message of two bytes becomes a round of all its figures, in a list that grows by doubling.
const BOUND: Bound = Bound { bytes: 1 << 20, factor: 256 };

pub fn targets() -> Vec<Target> {
    let runs = vec![RunOfSlices { load: 1, slices: 5 }, RunOfSlices { load: u64::MAX, slices: 3 }];
    let told = progress("t", 3, runs, &[0, 1, 5]);
    let round = Round { level: 3, slices: vec![span(0, 2)], rows_out: 9, queue_ms: Some(7), ..Round::default() };
    let rounds = Rounds { cse: "127.0.0.1:7433".to_owned(), rounds: vec![round; 3] };
    let many = Progress { left: vec![span(0, 1); 100_000], ..told.clone() };
    let seeds = vec![
        Seed::valid("alone", annotate(b"", &told, &rounds)),
        Seed::valid("behind a plan's version", annotate(b"\x32\x02\x10\x3f", &told, &rounds)),
        Seed::valid("nothing is done", annotate(b"", &Progress::default(), &Rounds::default())),
        Seed::hostile("many spans", annotate(b"", &many, &rounds)),
        Seed::hostile("empty rounds", annotate(b"", &told, &Rounds { rounds: vec![Round::default(); 100_000], ..rounds })),
    ];
    vec![Target { name: NAMES[0], seeds, parts: Parts::WHOLE, bound: BOUND, run: Box::new(judge) }]
}

/// What is read adds up, and is read again as it was.
fn judge(bytes: &[u8]) -> Outcome {
    let (progress, rounds) = match annotation_of(bytes) {
        Ok(Some(annotation)) => annotation,
        Ok(None) => return Outcome::Accepted,
        Err(error) => return refused(&Fault::from(error)),
    };
    let again = annotation_of(&annotate(b"", &progress, &rounds)).ok().flatten();
    if again.as_ref() != Some(&(progress.clone(), rounds)) {
        return Outcome::Wrong(format!("it is read again as {again:?}"));
    }
    let done = match progress.done() {
        Ok(done) => done,
        Err(error) => return refused(&Fault::from(error)),
    };
    let mut end = 0;
    for span in &done {
        if span.count == 0 || span.first < end || span.first.checked_add(span.count).is_none() {
            return Outcome::Wrong(format!("slices that are done: {done:?}"));
        }
        end = span.first + span.count;
    }
    match progress.slices() {
        Some(slices) if end <= slices => Outcome::Accepted,
        slices => Outcome::Wrong(format!("slices to {end} of {slices:?} are done")),
    }
}

/// The sub-plan of an OPEN that says of every second slice that it is done; none where it must see all, or is a bare scan.
pub fn half_done(open: &OpenRequest) -> Option<Vec<u8>> {
    let PlanBytes::Substrait(plan) = &open.plan else { return None };
    let part = open.parts.first().filter(|_| !open.whole_partition && open.done.is_empty())?;
    let runs: Vec<RunOfSlices> = part.runs.iter().map(|(load, slices)| RunOfSlices { load: load.0, slices: *slices }).collect();
    let slices: u32 = runs.iter().map(|run| run.slices).sum();
    let done: Vec<u32> = (0..slices).step_by(2).collect();
    let told = Progress {
        incarnation: part.dataset.0,
        domain: part.name.domain.clone(),
        ..progress(&part.name.dataset, part.partition, runs, &done)
    };
    Some(annotate(plan, &told, &Rounds::default()))
}

fn progress(dataset: &str, partition: u32, runs: Vec<RunOfSlices>, done: &[u32]) -> Progress {
    let slices: u32 = runs.iter().map(|run| run.slices).sum();
    let spans = |is_done: bool| {
        let slices = (0..slices).filter(|slice| done.contains(slice) == is_done);
        slices.map(|slice| span(slice, 1)).collect::<Vec<_>>()
    };
    Progress {
        domain: "main".to_owned(),
        dataset: dataset.to_owned(),
        incarnation: 7,
        manifest_version: 2,
        partition,
        runs,
        whole_partition: false,
        executed: vec![Executed { level: Some(3), slices: spans(true), operators: vec![0, 1] }],
        left: spans(false),
    }
}

fn span(first: u32, count: u32) -> Span {
    Span { first, count }
}
