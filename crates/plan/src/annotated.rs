//! Annotations inside plans: a sub-plan that says of itself what was executed of it, on which slices, to which level and at what
//! cost, so that any engine can go on with it (Montana et al. 2023, Skytether, sections 4.3 and 5.3; see `docs/bibliography.md`).
//!
//! The annotation is an extension of the Substrait plan. What is done is an enhancement, since who ignored it would do it again;
//! what it has cost is an optimisation. `docs/reference/annotation.proto` is the schema. An annotation is appended to the plan's
//! bytes and cut off again before anything else is done with them, so that a plan is recognised with it and without it.

mod fields;
mod messages;
mod operators;
#[cfg(test)]
mod tests;

use std::ops::Range;

use pithead_door::{OpenRequest, PlanBytes, SlicePart};
use pithead_model::{Annotation, Fault, Level, PLAN_BYTES_MAX, PushBackCause, SliceSpan};
use prost::Message;

use crate::{PlanError, SubPlan, Travelling};
use fields::Fields;
use messages::{Added, AdvancedExtension, Any};
use operators::Numbered;

pub use messages::{Executed, Progress, Round, Rounds, RunOfSlices, Span};

/// The full names of the two messages, and what stands before a name in a type URL.
const PROGRESS: &str = "pithead.annotation.v1.Progress";
const ROUNDS: &str = "pithead.annotation.v1.Rounds";
const URL_PREFIX: &str = "type.googleapis.com/";
/// Fields of `substrait.Plan`.
const ADVANCED_EXTENSIONS: u64 = 4;
const EXPECTED_TYPE_URLS: u64 = 5;
/// Bytes of a [`Progress`] that is read at most, and of [`Rounds`].
const PROGRESS_BYTES_MAX: usize = 1 << 20;
const ROUNDS_BYTES_MAX: usize = 4 << 20;

/// Writes an annotation into a sub-plan's Substrait bytes that have none.
pub fn annotate(plan: &[u8], progress: &Progress, rounds: &Rounds) -> Vec<u8> {
    let any = |name: &str, value: Vec<u8>| Any { type_url: format!("{URL_PREFIX}{name}"), value };
    let extension = AdvancedExtension {
        optimization: vec![any(ROUNDS, rounds.encode_to_vec())],
        enhancement: Some(any(PROGRESS, progress.encode_to_vec())),
    };
    let urls = [PROGRESS, ROUNDS].map(|name| format!("{URL_PREFIX}{name}"));
    let added = Added { advanced_extensions: Some(extension), expected_type_urls: urls.to_vec() };
    // Messages one after the other are one message with the fields of both.
    [plan, &added.encode_to_vec()].concat()
}

/// The annotation of a plan from outside, if it has one. An enhancement that is none of ours is an error: it must not be ignored.
pub fn annotation_of(plan: &[u8]) -> Result<Option<(Progress, Rounds)>, PlanError> {
    if plan.len() > PLAN_BYTES_MAX {
        return Err(PlanError::TooLarge { what: format!("a sub-plan of {} bytes", plan.len()), max: PLAN_BYTES_MAX });
    }
    let extended = Extended::of(plan)?;
    let Some(progress) = extended.progress()? else { return Ok(None) };
    let rounds = match extended.rounds {
        Some(rounds) => decoded(rounds, ROUNDS_BYTES_MAX)?,
        None => Rounds::default(),
    };
    Ok(Some((progress, rounds)))
}

/// Takes the annotation out of the sub-plan that a session is to run, and leaves its slices out: the same as if [`OpenRequest::done`]
/// named them. What it says of the partition must be what the request says. As with `done`, that slices are done is the caller's word.
pub fn take_annotation(request: &mut OpenRequest) -> Result<(), Fault> {
    let PlanBytes::Substrait(bytes) = &request.plan else { return Ok(()) };
    // OPEN's own bounds refuse what is larger, and what reads nothing.
    let Some(part) = request.parts.first().filter(|_| bytes.len() <= PLAN_BYTES_MAX) else { return Ok(()) };
    let extended = Extended::of(bytes)?;
    if extended.is_plain() {
        return Ok(());
    }
    let done = match extended.progress()? {
        Some(progress) => progress.done_of(part, request.whole_partition)?,
        None => vec![],
    };
    let plain = extended.plain(bytes);
    if !done.is_empty() && !request.done.is_empty() {
        let what = "names slices that are done, and so does the request: expected one of the two";
        return Err(PlanError::Annotation(what.to_owned()).into());
    }
    request.done.extend(done);
    request.plan = PlanBytes::Substrait(plain.into());
    Ok(())
}

impl Progress {
    /// How far a sub-plan is over a partition, by the rounds that are closed. `elsewhere`: slices that were answered for without a
    /// round, from what was kept.
    pub fn of(sub_plan: &SubPlan, partition: usize, closed: &[Annotation], elsewhere: &[SliceSpan]) -> Progress {
        let facts = &sub_plan.datasets[0];
        let runs = facts.dataset.partitions.get(partition).map(|partition| partition.runs.as_slice()).unwrap_or_default();
        let before = facts.rest.as_ref().and_then(|rest| rest.done.get(partition)).map(Vec::as_slice).unwrap_or_default();
        let slices: u64 = runs.iter().map(|run| u64::from(run.slices)).sum();
        let mut reached = Reached::new(slices as usize);
        before.iter().chain(elsewhere).for_each(|span| reached.put(*span, Some(None)));
        for annotation in closed {
            annotation.slices.iter().for_each(|span| reached.put(*span, Some(Some(annotation.level))));
        }
        let numbered = match &sub_plan.travelling {
            Travelling::Substrait(bytes) => Numbered::of(bytes, &facts.name),
            Travelling::Scan(_) => Numbered::default(),
        };
        Progress {
            domain: facts.name.domain.clone(),
            dataset: facts.name.dataset.clone(),
            incarnation: facts.dataset.id.0,
            manifest_version: facts.manifest_version,
            partition: partition as u32,
            runs: runs.iter().map(|run| RunOfSlices { load: run.load.0, slices: run.slices }).collect(),
            whole_partition: sub_plan.whole_partition,
            executed: reached.executed(&numbered),
            left: reached.spans(None),
        }
    }

    /// Slices of the partition; none if there are too many to be numbered.
    pub fn slices(&self) -> Option<u32> {
        self.runs.iter().try_fold(0_u32, |sum, run| sum.checked_add(run.slices))
    }

    /// The slices that are done, in rising spans, once it is sure that each slice is named exactly once.
    pub fn done(&self) -> Result<Vec<SliceSpan>, PlanError> {
        let wrong = |what: String| Err(PlanError::Annotation(what));
        let Some(slices) = self.slices() else { return wrong("has more slices than can be numbered".to_owned()) };
        let mut named = Vec::new();
        for executed in &self.executed {
            if let Some(level) = executed.level.filter(|level| !(0..=3).contains(level)) {
                return wrong(format!("has level {level}: expected one from 0 to 3"));
            }
            named.extend(executed.slices.iter().map(|span| (span, true)));
        }
        named.extend(self.left.iter().map(|span| (span, false)));
        named.sort_by_key(|(span, _)| span.first);
        let (mut done, mut next): (Vec<SliceSpan>, u32) = (Vec::new(), 0);
        for (Span { first, count }, is_done) in named {
            let end = first.checked_add(*count).filter(|end| *end <= slices && *count > 0);
            let Some(end) = end else { return wrong(format!("names {count} slices from {first} on, of {slices}")) };
            if *first < next {
                return wrong(format!("names slice {first} twice"));
            }
            if *first > next {
                break;
            }
            match done.last_mut().filter(|last| is_done && last.first + last.count == *first) {
                Some(last) => last.count += count,
                None if is_done => done.push(SliceSpan { first: *first, count: *count }),
                None => {}
            }
            next = end;
        }
        if next < slices {
            return wrong(format!("says of slice {next} neither that it is done nor that it is left"));
        }
        Ok(done)
    }

    /// The same for a session that is to read `part`: what the annotation is about must be just that.
    fn done_of(&self, part: &SlicePart, whole_partition: bool) -> Result<Vec<SliceSpan>, PlanError> {
        let other = |what: &str, its: String, asked: String| {
            Err(PlanError::Annotation(format!("is of {what} {its}, and the session is to read {asked}")))
        };
        let SlicePart { name, dataset, partition, runs, .. } = part;
        if (&self.domain, &self.dataset) != (&name.domain, &name.dataset) {
            return other("dataset", format!("{}.{}", self.domain, self.dataset), name.to_string());
        }
        if self.incarnation != dataset.0 {
            return other("incarnation", format!("{:016x}", self.incarnation), dataset.to_string());
        }
        if self.partition != *partition {
            return other("partition", self.partition.to_string(), partition.to_string());
        }
        let its = || self.runs.iter().map(|run| (run.load, run.slices));
        let asked = || runs.iter().map(|(load, slices)| (load.0, *slices));
        if !its().eq(asked()) {
            return other("runs", listed(its()), listed(asked()));
        }
        if self.whole_partition != whole_partition {
            let text = |whole: bool| if whole { "whole partitions" } else { "any of its slices" };
            return other("a plan over", text(self.whole_partition).to_owned(), text(whole_partition).to_owned());
        }
        self.done()
    }
}

impl Rounds {
    /// What rounds have cost at a CSE.
    pub fn of(cse: &str, closed: &[Annotation]) -> Rounds {
        Rounds { cse: cse.to_owned(), rounds: closed.iter().map(Round::of).collect() }
    }
}

impl Round {
    fn of(annotation: &Annotation) -> Round {
        Round {
            round: annotation.round,
            level: i32::from(u8::from(annotation.level)),
            slices: spans(&annotation.slices),
            slices_skipped: annotation.slices_skipped,
            slices_from_kept_results: annotation.summarised,
            rows_in: annotation.rows_in,
            rows_out: annotation.rows_out,
            medium_bytes: annotation.medium_bytes,
            batch_bytes: annotation.batch_bytes,
            stored_bytes: annotation.stored_bytes,
            cpu_ns: annotation.cpu_ns,
            wall_ns: annotation.wall_ns,
            cause: match annotation.cause {
                None => 0,
                Some(PushBackCause::Asked) => 1,
                Some(PushBackCause::Memory) => 2,
                Some(PushBackCause::Busy) => 3,
                Some(PushBackCause::Sooner) => 4,
                Some(PushBackCause::Held) => 5,
            },
            queue_ms: annotation.queue_ms,
            retry_after_ms: annotation.retry_after_ms,
        }
    }
}

/// Of each slice of a partition: none where it is left, else its level, which may not be known.
struct Reached(Vec<Option<Option<Level>>>);

impl Reached {
    fn new(slices: usize) -> Self {
        Self(vec![None; slices])
    }

    /// Where a partition was begun anew, the last word counts.
    fn put(&mut self, span: SliceSpan, reached: Option<Option<Level>>) {
        self.0.iter_mut().skip(span.first as usize).take(span.count as usize).for_each(|slice| *slice = reached);
    }

    fn spans(&self, wanted: Option<Option<Level>>) -> Vec<Span> {
        let slices = (0..).zip(&self.0).filter(|(_, reached)| **reached == wanted).map(|(slice, _)| slice);
        spans(&SliceSpan::cover(slices.collect()))
    }

    fn executed(&self, numbered: &Numbered) -> Vec<Executed> {
        let levels = [None, Some(Level::Bytes), Some(Level::Hints), Some(Level::Filtered), Some(Level::Whole)];
        let executed = levels.into_iter().map(|level| Executed {
            level: level.map(|level| i32::from(u8::from(level))),
            slices: self.spans(Some(level)),
            operators: match level {
                None | Some(Level::Whole) => numbered.all(),
                Some(Level::Filtered) => numbered.filtered.clone(),
                Some(Level::Bytes | Level::Hints) => vec![],
            },
        });
        executed.filter(|executed| !executed.slices.is_empty()).collect()
    }
}

fn spans(spans: &[SliceSpan]) -> Vec<Span> {
    let spans = spans.iter().filter(|span| span.count > 0);
    spans.map(|span| Span { first: span.first, count: span.count }).collect()
}

/// The first of some runs, for people.
fn listed(runs: impl Iterator<Item = (u64, u32)>) -> String {
    runs.take(8).map(|(load, slices)| format!("{load:016x} of {slices} slices")).collect::<Vec<_>>().join(", ")
}

/// A plan's bytes, and where in them its extensions are.
#[derive(Default)]
struct Extended<'a> {
    /// Everything but extensions.
    rest: Vec<Range<usize>>,
    has_extensions: bool,
    enhancement: Option<Packed<'a>>,
    rounds: Option<&'a [u8]>,
}

/// A `google.protobuf.Any` as it is written.
#[derive(Clone, Copy, Default)]
struct Packed<'a> {
    type_url: &'a [u8],
    value: &'a [u8],
}

impl<'a> Packed<'a> {
    /// Takes fields of it. Of one that comes twice, the last counts, as everywhere in protobuf.
    fn read(&mut self, bytes: &'a [u8]) -> Result<(), PlanError> {
        for field in Fields::of(bytes) {
            let field = field?;
            match field.number {
                1 => self.type_url = field.delimited()?,
                2 => self.value = field.delimited()?,
                _ => {}
            }
        }
        Ok(())
    }

    /// The name of the message in it.
    fn name(&self) -> &'a [u8] {
        self.type_url.rsplit(|byte| *byte == b'/').next().unwrap_or_default()
    }
}

impl<'a> Extended<'a> {
    fn of(plan: &'a [u8]) -> Result<Self, PlanError> {
        let mut extended = Extended::default();
        for field in Fields::of(plan) {
            let field = field?;
            match field.number {
                ADVANCED_EXTENSIONS => {
                    extended.has_extensions = true;
                    extended.read(field.delimited()?)?;
                }
                // They only tell of what there may be.
                EXPECTED_TYPE_URLS => extended.has_extensions = true,
                _ => match extended.rest.last_mut().filter(|last| last.end == field.place.start) {
                    Some(last) => last.end = field.place.end,
                    None => extended.rest.push(field.place),
                },
            }
        }
        Ok(extended)
    }

    /// Takes fields of a `substrait.extensions.AdvancedExtension`.
    fn read(&mut self, extension: &'a [u8]) -> Result<(), PlanError> {
        for field in Fields::of(extension) {
            let field = field?;
            match field.number {
                1 => {
                    let mut packed = Packed::default();
                    packed.read(field.delimited()?)?;
                    if packed.name() == ROUNDS.as_bytes() {
                        self.rounds = Some(packed.value);
                    }
                }
                2 => self.enhancement.get_or_insert_default().read(field.delimited()?)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn is_plain(&self) -> bool {
        !self.has_extensions
    }

    /// The plan's other bytes.
    fn plain(&self, plan: &[u8]) -> Vec<u8> {
        self.rest.iter().filter_map(|place| plan.get(place.clone())).collect::<Vec<_>>().concat()
    }

    fn progress(&self) -> Result<Option<Progress>, PlanError> {
        let Some(enhancement) = self.enhancement else { return Ok(None) };
        if enhancement.name() != PROGRESS.as_bytes() {
            return Err(PlanError::Enhanced { name: printable(enhancement.name()), known: PROGRESS });
        }
        decoded(enhancement.value, PROGRESS_BYTES_MAX).map(Some)
    }
}

/// A name from outside, as far as a message has room for it.
fn printable(name: &[u8]) -> String {
    let name = &name[..name.len().min(100)];
    String::from_utf8_lossy(name).escape_default().to_string()
}

/// A message of an annotation from outside.
fn decoded<M: Message + Default>(bytes: &[u8], max: usize) -> Result<M, PlanError> {
    if bytes.len() > max {
        return Err(PlanError::TooLarge { what: format!("an annotation of {} bytes", bytes.len()), max });
    }
    M::decode(bytes).map_err(|error| PlanError::Annotation(format!("cannot be read: {error}")))
}
