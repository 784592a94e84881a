//! The calls that go both ways, each a DoExchange: applications of SSDlets, and OPEN with its GET.

use std::sync::Arc;

use arrow_flight::FlightData;
use futures::future::ready;
use futures::stream::{self, BoxStream, StreamExt};
use pithead_door::{Door, Event, Events, Granted, LinkGauge, OpenRequest, RunApplication, check_application};
use pithead_model::{Fault, Reply, SessionId};
use serde::{Deserialize, Serialize};

use crate::error::WireError;
use crate::event::event_messages;
use crate::json::{from_json, json};
use crate::packing::Packer;
use crate::put::{OpenHeader, check_open};
use crate::rights::CheckedDoor;

/// The command in the descriptor of the first message in.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ExchangeCommand {
    /// Runs an application.
    Run(RunApplication),
    /// OPEN, as it is put, and GET at once where it is granted.
    Open(Box<OpenHeader>),
}

/// Reads the first message in.
pub(crate) fn parse_exchange(first: &FlightData) -> Result<ExchangeCommand, WireError> {
    let descriptor = first.flight_descriptor.as_ref();
    let descriptor = descriptor.ok_or_else(|| WireError::malformed("exchange", "its first message has no descriptor"))?;
    let command: ExchangeCommand = from_json("exchange", &descriptor.cmd)?;
    match &command {
        ExchangeCommand::Run(request) => check_application(request)?,
        ExchangeCommand::Open(header) => check_open(header)?,
    }
    Ok(command)
}

/// OPEN, and the messages of the answer: the reply and, where a session was granted, what GET yields of it. The session ends
/// with them.
pub(crate) async fn open_and_get(
    door: CheckedDoor,
    request: OpenRequest,
    link: Arc<dyn LinkGauge>,
    packer: Packer,
) -> Result<BoxStream<'static, Result<FlightData, Fault>>, Fault> {
    let reply = door.open(request).await?.reply;
    let first = FlightData::new().with_app_metadata(json(&reply)?);
    let events = match reply {
        Reply::Granted(Granted { session, .. }) => {
            let own = OwnSession { door: Arc::new(door), session, is_closed: false };
            let events = own.door.get_over(session, link).await?;
            event_messages(closing(events, own), packer)
        }
        Reply::Busy { .. } => stream::empty().boxed(),
    };
    Ok(stream::once(ready(Ok(first))).chain(events).boxed())
}

/// The same events. The session is closed before the last one is handed on, and when they are dropped.
fn closing(events: Events, own: OwnSession) -> Events {
    stream::unfold(Some((events, own)), |state| async move {
        let (mut events, mut own) = state?;
        match events.next().await? {
            event @ (Ok(Event::Finished { .. }) | Err(_)) => {
                own.close().await;
                Some((event, None))
            }
            event => Some((event, Some((events, own)))),
        }
    })
    .boxed()
}

/// A session that nobody else closes.
struct OwnSession {
    door: Arc<CheckedDoor>,
    session: SessionId,
    is_closed: bool,
}

impl OwnSession {
    async fn close(&mut self) {
        close(&self.door, self.session).await;
        self.is_closed = true;
    }
}

impl Drop for OwnSession {
    fn drop(&mut self) {
        if !self.is_closed
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let (door, session) = (Arc::clone(&self.door), self.session);
            runtime.spawn(async move { close(&door, session).await });
        }
    }
}

async fn close(door: &CheckedDoor, session: SessionId) {
    if let Err(fault) = door.close(session).await {
        tracing::debug!(%session, %fault, "a session could not be closed; its idle limit will");
    }
}
