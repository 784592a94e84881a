//! [`Dispatch`]: who does a request whose sender is known, and the open batches of its connection.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::time::timeout_at;

use crate::batches::Batches;
use crate::code::{Code, Failure, RequestKind};
use crate::execute::{Answer, Call};
use crate::limits::Limits;
use crate::managing::Gone;
use crate::pins::SentPin;
use crate::proto::Header;
use crate::security::old_pin;
use crate::service::Service;
use crate::setup::setup_pin;
use crate::turns::Turn;

/// Hands the requests of one connection to who does them.
pub(crate) struct Dispatch {
    service: Arc<Service>,
    batches: Batches,
}

/// What came of a request.
pub(crate) enum Dispatched {
    Answer(Box<Answer>),
    /// Within a batch nothing is answered.
    Silent,
    /// The client may be guessing.
    WrongPin(Failure),
    /// The connection ends: the client believes in a batch that is not open.
    UnknownBatch(Failure),
}

impl Dispatch {
    pub fn new(service: Arc<Service>) -> Dispatch {
        Dispatch { batches: Batches::new(Arc::clone(&service)), service }
    }

    /// A failure if a request names a batch that is not open over this connection.
    pub fn check_batch(&self, header: &Header) -> Result<(), Failure> {
        match self.batch_of(header) {
            Some(id) if !self.batches.has(id) => Err(unknown(id)),
            _ => Ok(()),
        }
    }

    /// The batch that a request names. Some clients always name batch 0, which is none unless it is open.
    fn batch_of(&self, header: &Header) -> Option<u32> {
        header.batch_id.filter(|id| *id != 0 || self.batches.has(0))
    }

    /// `checked`: what has to hold of every request.
    pub async fn dispatch(&mut self, call: &Call, checked: Result<(), Failure>, gone: Gone<'_>) -> Dispatched {
        use RequestKind::{
            AbortBatch, Delete, EndBatch, Get, ManageApplet, MediaScan, Noop, Peer2PeerPush, Put, Security, Setup, StartBatch,
        };
        if call.kind != StartBatch
            && let Err(failure) = self.check_batch(&call.header)
        {
            return Dispatched::UnknownBatch(failure);
        }
        let batch = self.batch_of(&call.header);
        if let Some(id) = batch.filter(|_| matches!(call.kind, Put | Delete)) {
            self.batches.add(id, call, checked);
            return Dispatched::Silent;
        }
        if let Err(failure) = checked {
            return failure.into();
        }
        let done = match call.kind {
            StartBatch => self.batches.start(call.header.batch_id),
            EndBatch | AbortBatch => return self.finish(call).await,
            _ if batch.is_some() => {
                self.batches.spoil(batch.unwrap_or(0), call.header.sequence.unwrap_or(0));
                Err(Failure::invalid("a batch has PUT and DELETE only"))
            }
            Noop => Ok(Answer::success()),
            Peer2PeerPush => unless_abandoned(call, gone, self.service.push(call)).await,
            MediaScan => unless_abandoned(call, gone, self.execute(call)).await,
            ManageApplet => self.service.manage_applet(call, gone).await,
            Setup | Security => match self.compare_pin(call).await {
                Ok(()) => self.execute(call).await,
                Err(failure) if failure.code == Code::NotAuthorized => return Dispatched::WrongPin(failure),
                Err(busy) => Err(busy),
            },
            kind => {
                // A change of threads takes longer than all else that is done for a value in memory.
                let resident =
                    (kind == Get).then(|| self.service.resident_looks.look(|| self.service.get_resident(call))).flatten();
                match resident {
                    Some(answer) => Ok(answer),
                    None => self.execute(call).await,
                }
            }
        };
        done.unwrap_or_else(Answer::from).into()
    }

    async fn finish(&mut self, call: &Call) -> Dispatched {
        let id = call.header.batch_id.unwrap_or(0);
        if !self.batches.has(id) {
            return Dispatched::UnknownBatch(unknown(id));
        }
        if call.kind == RequestKind::AbortBatch {
            self.batches.abort(id);
            return Answer::success().into();
        }
        // A batch whose end finds no turn stays open, so that its end can be asked for again.
        let turn = match self.service.turn(call).await {
            Ok(turn) => turn,
            Err(busy) => return busy.into(),
        };
        let count = call.body.batch.as_ref().and_then(|batch| batch.count);
        let Some(ended) = self.batches.end(id, count) else { return Dispatched::UnknownBatch(unknown(id)) };
        let (service, identity) = (Arc::clone(&self.service), Arc::clone(&call.identity));
        self.block(call.kind, Some(turn), move || ended.commit(&service, &identity)).await.into()
    }

    /// Has the PIN of a request compared, if it needs one, before it waits for the store.
    async fn compare_pin(&self, call: &Call) -> Result<(), Failure> {
        match sent_pin(call, &self.service.options.limits) {
            None => Ok(()),
            Some(pin) => self.service.compare_pin(pin, call.link, call.until).await,
        }
    }

    /// Does a request that waits for the store.
    async fn execute(&self, call: &Call) -> Result<Answer, Failure> {
        let turn = match call.kind {
            // It takes long, and there is one at a time.
            RequestKind::MediaScan | RequestKind::MediaOptimize => None,
            _ => Some(self.service.turn(call).await?),
        };
        let (service, own) = (Arc::clone(&self.service), call.clone());
        Ok(self.block(call.kind, turn, move || service.execute(&own)).await)
    }

    /// Does what blocks, and then gives the turn back.
    async fn block(&self, kind: RequestKind, turn: Option<Turn>, work: impl FnOnce() -> Answer + Send + 'static) -> Answer {
        let done = self.service.pool.spawn_blocking(work).await;
        drop(turn);
        done.unwrap_or_else(|lost| {
            tracing::error!(%lost, kind = kind.name(), "a request of a Kinetic client was lost");
            Failure::new(Code::InternalError, "the request was lost within the drive").into()
        })
    }
}

impl Service {
    /// Waits for a request's turn.
    pub(crate) async fn turn(&self, call: &Call) -> Result<Turn, Failure> {
        let turn = self.turns.take(call.identity.priority(call.header.priority));
        let turn = match call.until {
            None => turn.await,
            Some(until) => timeout_at(until, turn).await.ok().flatten(),
        };
        let busy = || Failure::new(Code::ServiceBusy, "too many requests wait; try again later");
        turn.filter(|_| !call.is_overdue()).ok_or_else(busy)
    }
}

impl From<Answer> for Dispatched {
    fn from(answer: Answer) -> Dispatched {
        Dispatched::Answer(Box::new(answer))
    }
}

impl From<Failure> for Dispatched {
    fn from(failure: Failure) -> Dispatched {
        Answer::from(failure).into()
    }
}

/// Does a request that may take long, and lets it know once nobody waits for it any more. It ends by itself then.
async fn unless_abandoned(
    call: &Call,
    gone: Gone<'_>,
    work: impl Future<Output = Result<Answer, Failure>>,
) -> Result<Answer, Failure> {
    let mut work = pin!(work);
    tokio::select! {
        done = &mut work => return done,
        () = gone => {}
    }
    if let Some(abandoned) = &call.abandoned {
        abandoned.store(true, Ordering::Relaxed);
    }
    work.await
}

fn unknown(id: u32) -> Failure {
    Failure::invalid(format!("there is no batch {id}"))
}

/// The PIN that has to be right before a request is done; none: it needs none, or is refused whatever its PIN.
fn sent_pin<'a>(call: &'a Call, limits: &Limits) -> Option<SentPin<'a>> {
    match call.kind {
        RequestKind::Setup => setup_pin(call),
        RequestKind::Security => old_pin(call, limits),
        _ => None,
    }
}
