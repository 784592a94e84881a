//! [`FlightDoor`]: a drive elsewhere, as a [`Door`].

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arrow_flight::flight_service_client::FlightServiceClient;
use arrow_flight::{FlightData, PutResult, Ticket};
use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{self, StreamExt};
use pithead_model::{
    Blame, DatasetId, DatasetName, Directory, Fault, LoadId, MESSAGE_BYTES_MAX, Manifest, Reply, Run, SessionId,
    SessionProfile, SliceKey,
};
use serde::de::DeserializeOwned;
use tonic::transport::{Channel, Endpoint};
use tonic::{Response, Status, Streaming};

use crate::call::{Call, Commit, Discard, parse_welcome};
use crate::check::check_schema;
use crate::door::{Batches, Door, DriveStatus, Event, Events, Granted, Hello, LoadRequest, OpenRequest, Opened, Welcome};
use crate::encode::{BatchEncoder, link_bytes};
use crate::error::{WireError, from_status};
use crate::event::EventReader;
use crate::json::from_json;
use crate::link;
use crate::put::{PutCommand, PutMark, encode_open, put_command, put_end};

/// How long a call may take that a drive answers from memory, or from one read or write.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a call may take that writes or deletes many values.
const WRITE_TIMEOUT: Duration = Duration::from_secs(120);

/// A drive elsewhere, behind one HTTP/2 connection that all calls share.
///
/// The connection is made when it is first needed, and again after it was lost. Streams have no time limit; a peer that
/// does not answer pings for 15 seconds fails them.
#[derive(Clone, Debug)]
pub struct FlightDoor {
    label: String,
    client: FlightServiceClient<Channel>,
}

impl FlightDoor {
    /// A door to the drive at `HOST`, `HOST:PORT` or `pithead://HOST:PORT`; the port is [`crate::PORT_DEFAULT`] unless
    /// given. Checks the text only: whether a drive is there shows with the first call, which should be
    /// [`Door::hello`]. Must be called within a tokio runtime, which the connection then lives on.
    pub fn connect(address: &str) -> Result<FlightDoor, Fault> {
        let label = link::authority(address)?;
        let endpoint = Endpoint::from_shared(format!("http://{label}"))
            .map_err(|_| WireError::Address(address.to_owned()))?
            .connect_timeout(link::CONNECT_TIMEOUT)
            .tcp_nodelay(true)
            .initial_stream_window_size(link::STREAM_WINDOW_BYTES)
            .initial_connection_window_size(link::CONNECTION_WINDOW_BYTES)
            .max_frame_size(link::FRAME_BYTES)
            .http2_max_header_list_size(link::HEADER_BYTES_MAX)
            .http2_keep_alive_interval(link::PING_INTERVAL)
            .keep_alive_timeout(link::PING_TIMEOUT)
            .keep_alive_while_idle(true);
        let client = FlightServiceClient::new(endpoint.connect_lazy())
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX);
        Ok(FlightDoor { label, client })
    }

    async fn call<T: DeserializeOwned>(&self, call: Call) -> Result<T, Fault> {
        let body = self.call_bytes(&call).await?;
        from_json("answer", &body).map_err(|error| self.foreign(error))
    }

    async fn call_bytes(&self, call: &Call) -> Result<Bytes, Fault> {
        let action = call.action()?;
        let limit = match call {
            Call::Commit(_) | Call::Discard(_) => WRITE_TIMEOUT,
            _ => CALL_TIMEOUT,
        };
        let mut client = self.client.clone();
        let answer = async { only(client.do_action(action).await?).await };
        Ok(self.within(call.kind(), limit, answer).await?.body)
    }

    async fn within<T>(
        &self,
        call: &'static str,
        limit: Duration,
        answer: impl Future<Output = Result<T, Status>>,
    ) -> Result<T, Fault> {
        match tokio::time::timeout(limit, answer).await {
            Ok(answer) => answer.map_err(|status| from_status(&status, &self.label)),
            Err(_) => Err(WireError::Late { address: self.label.clone(), call, limit_s: limit.as_secs() }.into()),
        }
    }

    /// Bytes from the drive that are no answer: its doing, not the caller's.
    fn foreign(&self, error: WireError) -> Fault {
        foreign(&self.label, error)
    }
}

fn foreign(address: &str, error: WireError) -> Fault {
    match error {
        error @ WireError::Protocol { .. } => Fault::from(error),
        error => WireError::Link { address: address.to_owned(), why: error.to_string() }.into(),
    }
}

/// The one message of an answer.
async fn only<T>(answer: Response<Streaming<T>>) -> Result<T, Status> {
    answer.into_inner().message().await?.ok_or_else(|| Status::internal("an empty answer"))
}

#[async_trait]
impl Door for FlightDoor {
    fn label(&self) -> &str {
        &self.label
    }

    async fn hello(&self, hello: Hello) -> Result<Welcome, Fault> {
        let body = self.call_bytes(&Call::Hello(hello.clone())).await?;
        parse_welcome(&body, &hello).map_err(|error| self.foreign(error))
    }

    async fn open(&self, request: OpenRequest) -> Result<Opened, Fault> {
        let messages = encode_open(&request)?;
        let sent: u64 = messages.iter().map(link_bytes).sum();
        let mut client = self.client.clone();
        let answer = async { only(client.do_put(stream::iter(messages)).await?).await };
        let answer: PutResult = self.within("OPEN", CALL_TIMEOUT, answer).await?;
        let reply: Reply<Granted> = from_json("answer to OPEN", &answer.app_metadata).map_err(|error| self.foreign(error))?;
        Ok(Opened { reply, link_bytes: sent + link_bytes(&answer) })
    }

    async fn get(&self, session: SessionId) -> Result<Events, Fault> {
        let ticket = Ticket::new(session.to_string());
        let mut reader = EventReader::default();
        reader.count(link_bytes(&ticket));
        let messages = self.client.clone().do_get(ticket).await.map_err(|status| from_status(&status, &self.label))?;
        let receiver = Receiver { label: self.label.clone(), messages: messages.into_inner(), reader };
        Ok(stream::unfold(Some(receiver), |receiver| async move { receiver?.next().await }).boxed())
    }

    async fn poll(&self, session: SessionId) -> Result<SessionProfile, Fault> {
        self.call(Call::Poll(session)).await
    }

    async fn close(&self, session: SessionId) -> Result<(), Fault> {
        self.call(Call::Close(session)).await
    }

    async fn load(&self, request: LoadRequest, rows: Batches) -> Result<Run, Fault> {
        let failed = Arc::new(OnceLock::new());
        let messages = load_messages(request, rows, Arc::clone(&failed))?;
        let mut client = self.client.clone();
        let answer = async { only(client.do_put(messages).await?).await }.await;
        if let Some(fault) = failed.get() {
            // The drive was only told that the stream broke off.
            return Err(fault.clone());
        }
        let answer = answer.map_err(|status| from_status(&status, &self.label))?;
        from_json("answer to a load", &answer.app_metadata).map_err(|error| self.foreign(error))
    }

    async fn discard(&self, name: DatasetName, dataset: DatasetId, keep: Vec<LoadId>) -> Result<u64, Fault> {
        self.call(Call::Discard(Discard { name, dataset, keep })).await
    }

    async fn manifest(&self, domain: String) -> Result<Option<Manifest>, Fault> {
        let manifest: Option<Manifest> = self.call(Call::Manifest(domain)).await?;
        for dataset in manifest.iter().flat_map(|manifest| manifest.datasets.values()) {
            check_schema(&dataset.schema).map_err(|error| self.foreign(error))?;
        }
        Ok(manifest)
    }

    async fn commit(&self, expected: u64, manifest: Manifest) -> Result<(), Fault> {
        self.call(Call::Commit(Commit { expected, manifest })).await
    }

    async fn directory(&self, key: SliceKey) -> Result<Directory, Fault> {
        let directory: Directory = self.call(Call::Directory(key)).await?;
        check_schema(&directory.schema).map_err(|error| self.foreign(error))?;
        Ok(directory)
    }

    async fn status(&self) -> Result<DriveStatus, Fault> {
        self.call(Call::Status).await
    }
}

/// GET's stream on its way in.
struct Receiver {
    label: String,
    messages: Streaming<FlightData>,
    reader: EventReader,
}

impl Receiver {
    /// The next event. After a fault there is nothing more.
    async fn next(mut self) -> Option<(Result<Event, Fault>, Option<Self>)> {
        match self.event().await.transpose()? {
            Ok(event) => Some((Ok(event), Some(self))),
            Err(fault) => Some((Err(fault), None)),
        }
    }

    async fn event(&mut self) -> Result<Option<Event>, Fault> {
        loop {
            match self.messages.message().await.map_err(|status| from_status(&status, &self.label))? {
                Some(message) => {
                    if let Some(event) = self.reader.read(&message).map_err(|error| foreign(&self.label, error))? {
                        return Ok(Some(event));
                    }
                }
                None if self.reader.finished() => return Ok(None),
                None => {
                    return Err(Fault::new(
                        Blame::Device,
                        format!("drive {}: the answer ended before the session did", self.label),
                    ));
                }
            }
        }
    }
}

/// A load's messages. A fault among the rows goes to `failed` and ends the stream without its end mark.
fn load_messages(
    request: LoadRequest,
    rows: Batches,
    failed: Arc<OnceLock<Fault>>,
) -> Result<impl stream::Stream<Item = FlightData> + Send + 'static, Fault> {
    let first = put_command(&PutCommand::Load(request), Bytes::new())?;
    let sender = LoadSender { rows: Some(rows), encoder: BatchEncoder::new(), queue: VecDeque::from([first]), failed };
    Ok(stream::unfold(sender, |mut sender| async move { sender.next().await.map(|message| (message, sender)) }))
}

struct LoadSender {
    rows: Option<Batches>,
    encoder: BatchEncoder,
    queue: VecDeque<FlightData>,
    failed: Arc<OnceLock<Fault>>,
}

impl LoadSender {
    async fn next(&mut self) -> Option<FlightData> {
        while self.queue.is_empty() {
            let batch = self.rows.as_mut()?.next().await;
            let encoded = match batch {
                None => {
                    self.rows = None;
                    self.queue.push_back(put_end());
                    Ok(())
                }
                Some(Ok(batch)) => self.encoder.encode(&batch, &PutMark::Rows.bytes(), &mut self.queue).map_err(Fault::from),
                Some(Err(fault)) => Err(fault),
            };
            if let Err(fault) = encoded {
                self.rows = None;
                self.queue.clear();
                let _ = self.failed.set(fault);
            }
        }
        self.queue.pop_front()
    }
}
