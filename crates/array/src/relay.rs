//! [`Relay`]: what sessions below yield, as one session's events: rounds renumbered, slices as the host counts them.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use futures::stream::{self, StreamExt, select_all};
use pithead_door::{Event, Events};
use pithead_model::{Annotation, Blame, CallShare, Fault, Level, PushBackCause, SessionProfile, SessionState, total};

use crate::lower::{LowerSession, broken};
use crate::ordinals::Ordinals;
use crate::sessions::empty_profile;

/// One session's way up.
pub(crate) struct Relay {
    pub(crate) lower: Arc<Vec<LowerSession>>,
    pub(crate) ordinals: Arc<Ordinals>,
    /// The array hands back what it would have merged.
    pub(crate) busy: bool,
    /// Rounds that are open, by drive and its own number.
    rounds: HashMap<(usize, u32), u32>,
    rounds_begun: u32,
    /// What each session below said at its end.
    finished: Vec<Option<SessionProfile>>,
}

impl Relay {
    pub(crate) fn new(lower: Arc<Vec<LowerSession>>, ordinals: Arc<Ordinals>, busy: bool) -> Relay {
        let finished = vec![None; lower.len()];
        Relay { lower, ordinals, busy, rounds: HashMap::new(), rounds_begun: 0, finished }
    }

    /// GET at all drives at once; their events as they come.
    pub(crate) fn events(self) -> Events {
        let asked = (0..self.lower.len()).map(|index| {
            let lower = Arc::clone(&self.lower);
            stream::once(async move { (index, get(&lower[index]).await) })
                .flat_map(|(index, got)| match got {
                    Ok(events) => events.map(move |event| (index, Some(event))).chain(stream::iter([(index, None)])).boxed(),
                    Err(fault) => stream::iter([(index, Some(Err(fault)))]).boxed(),
                })
                .boxed()
        });
        let events = select_all(asked);
        stream::unfold(Some((self, events)), |state| async move {
            let (mut relay, mut events) = state?;
            loop {
                let (index, event) = events.next().await?;
                match relay.raise(index, event) {
                    Ok(None) => {}
                    Ok(Some(event)) => {
                        let more = (!matches!(event, Event::Finished { .. })).then_some((relay, events));
                        return Some((Ok(event), more));
                    }
                    Err(fault) => return Some((Err(fault), None)),
                }
            }
        })
        .boxed()
    }

    /// An event of the `index`th session as the host is to see it; no event where the end of others is waited for.
    fn raise(&mut self, index: usize, event: Option<Result<Event, Fault>>) -> Result<Option<Event>, Fault> {
        let Some(session) = self.lower.get(index) else { return Ok(None) };
        let (drive, label) = (session.drive, session.label.clone());
        let event = match event {
            Some(event) => event.map_err(|fault| fault.at_drive(&label))?,
            None if self.finished.get(index).is_some_and(Option::is_some) => return Ok(None),
            None => return Err(Fault::new(Blame::Device, "the session ended before its work was done").at_drive(&label)),
        };
        Ok(Some(match event {
            Event::Rows { round, batch, .. } => Event::Rows { round: self.round(drive, round), batch, link_bytes: 0 },
            Event::Filtered { round, batch, .. } => Event::Filtered { round: self.round(drive, round), batch, link_bytes: 0 },
            Event::Stored { round, slice, total, bytes, .. } => {
                let above = self.ordinals.above(drive, slice);
                let slice = above.ok_or_else(|| broken(&label, format!("it has no slice {slice}")))?;
                Event::Stored { round: self.round(drive, round), slice, total, bytes, link_bytes: 0 }
            }
            Event::Hints { round, slice, pages, parts, .. } => {
                let above = self.ordinals.above(drive, slice);
                let slice = above.ok_or_else(|| broken(&label, format!("it has no slice {slice}")))?;
                Event::Hints { round: self.round(drive, round), slice, pages, parts, link_bytes: 0 }
            }
            Event::Closed { annotation, .. } => {
                Event::Closed { annotation: self.annotation(drive, &label, annotation)?, link_bytes: 0 }
            }
            Event::Finished { profile, .. } => {
                if let Some(finished) = self.finished.get_mut(index) {
                    *finished = Some(profile);
                }
                if self.finished.iter().any(Option::is_none) {
                    return Ok(None);
                }
                Event::Finished { profile: self.profile(), link_bytes: 0 }
            }
        }))
    }

    fn round(&mut self, drive: usize, round: u32) -> u32 {
        *self.rounds.entry((drive, round)).or_insert_with(|| {
            self.rounds_begun += 1;
            self.rounds_begun - 1
        })
    }

    fn annotation(&mut self, drive: usize, label: &str, annotation: Annotation) -> Result<Annotation, Fault> {
        let round = self.round(drive, annotation.round);
        self.rounds.remove(&(drive, annotation.round));
        let slices = self.ordinals.spans_above(drive, &annotation.slices);
        let slices = slices.ok_or_else(|| broken(label, format!("it has not all slices of {:?}", annotation.slices)))?;
        let cause = match annotation.cause {
            Some(_) if self.busy && annotation.level < Level::Whole => Some(PushBackCause::Busy),
            cause => cause,
        };
        Ok(Annotation { round, slices, cause, ..annotation })
    }

    fn profile(&self) -> SessionProfile {
        let sum = |of: fn(&SessionProfile) -> u64| total(self.finished.iter().flatten().map(of));
        let first =
            |of: fn(&SessionProfile) -> &Option<_>| self.finished.iter().flatten().find_map(|profile| of(profile).clone());
        SessionProfile {
            state: SessionState::Finished,
            rounds: self.rounds_begun,
            slices_total: self.ordinals.total(),
            slices_done: self.ordinals.total(),
            memory_peak: sum(|profile| profile.memory_peak),
            spilled_bytes: sum(|profile| profile.spilled_bytes),
            // Slices of one partition are alike wherever they lie.
            predicted: first(|profile| &profile.predicted),
            settled: first(|profile| &profile.settled),
            link_bytes_per_s: self.finished.iter().flatten().filter_map(|profile| profile.link_bytes_per_s).reduce(f64::min),
            calls: self.calls(),
            ..empty_profile()
        }
    }

    /// What users' functions took at all drives below.
    fn calls(&self) -> Vec<CallShare> {
        let mut sums: BTreeMap<&str, CallShare> = BTreeMap::new();
        for call in self.finished.iter().flatten().flat_map(|profile| &profile.calls) {
            let sum = sums.entry(&call.function).or_insert_with(|| CallShare { rows: 0, cpu_ns: 0, ..call.clone() });
            (sum.rows, sum.cpu_ns) = (sum.rows.saturating_add(call.rows), sum.cpu_ns.saturating_add(call.cpu_ns));
        }
        sums.into_values().collect()
    }
}

async fn get(session: &LowerSession) -> Result<Events, Fault> {
    session.door.get(session.id).await.map_err(|fault| match fault.blame {
        // Granted just now and not there: the drive has started anew in between.
        Blame::User => Fault { blame: Blame::Device, ..fault },
        _ => fault,
    })
}
