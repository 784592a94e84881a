//! OPEN and GET, with patience for drives that are busy.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pithead_door::OpenRequest;
use pithead_fleet::{ConnectedDrive, no_answer};
use pithead_model::{Blame, Fault, FaultKind, LevelRule, Reply};

use super::{Reading, Session, Stop};
use crate::choice::Choice;
use crate::closer::Begun;
use crate::idle::OpenSession;

/// How long OPEN may take while there is another copy that may well answer.
const OPEN_WAIT: Duration = Duration::from_secs(2);

impl Session {
    /// OPEN and GET at the copy that is chosen, or at another one that is less busy.
    pub(super) async fn open(&mut self) -> Result<Reading, Stop> {
        let started = Instant::now();
        loop {
            let Some(drive) = self.choice.as_ref().and_then(Choice::drive).cloned() else {
                return Err(Fault::bug("a session without a drive").into());
            };
            let label = drive.label().to_owned();
            let at = |fault: Fault| fault.at_drive(&label);
            let opening = Begun::open(&drive.door, self.request(&drive));
            let (opened, begun) = match self.choice.as_ref().is_some_and(Choice::has_other) {
                true => tokio::time::timeout(OPEN_WAIT, opening).await.unwrap_or_else(|_| Err(no_answer(OPEN_WAIT))),
                false => opening.await,
            }
            .map_err(at)?;
            self.profile.update(self.partition, |session| {
                session.label.clone_from(&label);
                session.link_bytes += opened.link_bytes;
            });
            match (opened.reply, begun) {
                (Reply::Granted(_), Some(begun)) => {
                    let open_us = started.elapsed().as_micros() as u64;
                    self.profile.update(self.partition, |session| session.open_us = session.open_us.max(open_us));
                    let Begun { session, events, closer } = begun;
                    let events = match events {
                        Some(events) => events,
                        None => drive.door.get(session).await.map_err(|fault| lost_session(at(fault)))?,
                    };
                    let open = OpenSession::new(&drive, session, &self.attention, events, closer);
                    self.target.context.idle_sessions.add(&open);
                    return Ok(Reading { open, label, started, door: Arc::clone(&drive.door) });
                }
                (Reply::Granted(_), None) => return Err(Fault::bug("a session was granted and is not there").into()),
                (Reply::Busy { why, retry_after_ms }, _) => self.wait(started, &label, &why, retry_after_ms).await?,
            }
        }
    }

    /// The drive is busy: another one is asked, or after a while all again, up to a limit.
    async fn wait(&mut self, started: Instant, label: &str, why: &str, retry_after_ms: u64) -> Result<(), Fault> {
        self.profile.update(self.partition, |session| session.busy += 1);
        let Some(choice) = &mut self.choice else { return Err(Fault::bug("a session without a drive")) };
        if choice.try_less_busy() {
            return Ok(());
        }
        if started.elapsed() > self.busy_wait {
            let message = format!("drive {label}: busy for {} s: {why}", self.busy_wait.as_secs());
            let hint = "try again later, or SET pithead.busy_wait_s to wait longer";
            return Err(Fault::new(Blame::Limit, message).of_kind(FaultKind::Busy).hint(hint));
        }
        if let Some(drive) = choice.drive() {
            self.target.context.idle_sessions.make_room(drive.id());
        }
        choice.ask_all_again();
        let wait = Duration::from_millis(retry_after_ms.clamp(1, 1000));
        self.profile.update(self.partition, |session| session.busy_us += wait.as_micros() as u64);
        tokio::time::sleep(wait).await;
        Ok(())
    }

    fn request(&self, drive: &ConnectedDrive) -> OpenRequest {
        let mut request = self.target.request.clone();
        request.done = self.admission.done();
        let adapt = &mut request.options.adapt;
        if adapt.level != LevelRule::default() {
            adapt.held = self.finisher.held();
            adapt.host = self.finisher.state();
        }
        if request.options.threads == 0 {
            request.options.threads = drive.welcome.threads;
        }
        request
    }
}

/// A session that was granted just now and is not there: the drive has started anew in between.
fn lost_session(fault: Fault) -> Fault {
    match fault.blame {
        Blame::User => Fault { blame: Blame::Device, ..fault },
        _ => fault,
    }
}
