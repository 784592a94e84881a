//! A [`Door`] on the network: an Arrow Flight service.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow_flight::flight_service_server::{FlightService, FlightServiceServer};
use arrow_flight::{
    Action, ActionType, Criteria, Empty, FlightData, FlightDescriptor, FlightInfo, HandshakeRequest, HandshakeResponse,
    PollInfo, PutResult, SchemaResult, Ticket,
};
use async_trait::async_trait;
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream, StreamExt};
use pithead_model::{Blame, Fault, MESSAGE_BYTES_MAX, Reply, SessionId};
use prost::Message;
use serde::Serialize;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status, Streaming};

use crate::call::{Call, check_protocol};
use crate::decode::{BatchDecoder, Decoded};
use crate::door::{Batches, Door, Events, Granted, LoadRequest};
use crate::encode::link_bytes;
use crate::error::{WireError, to_status};
use crate::event::EventWriter;
use crate::json::json;
use crate::link;
use crate::put::{OpenHeader, OpenReader, PutCommand, PutMark, parse_put, parse_put_mark, with_schema};

/// How long calls may go on once the server is told to stop.
const STOP_GRACE: Duration = Duration::from_secs(10);
/// How long the sender of rows may pause. One that is gone is found sooner, by keepalive.
const PUT_IDLE_MAX: Duration = Duration::from_secs(300);

/// Asked before bytes go onto the link. What paces sends, if anything does, is above this crate.
pub trait Pace: Send + Sync {
    /// Books `bytes`; the send waits for the future. None: no wait.
    fn send(&self, bytes: u64) -> Option<BoxFuture<'static, ()>>;
}

/// Serves a door at `listener` until `shutdown` ends. Then nothing new is accepted, streams of GET end with a fault, and
/// other calls have ten seconds to finish.
///
/// Answers wait for `pace`, message by message. Fails where the listener does.
pub async fn serve(
    door: Arc<dyn Door>,
    pace: Arc<dyn Pace>,
    listener: TcpListener,
    shutdown: impl Future<Output = ()>,
) -> Result<(), Fault> {
    let (stop, stopped) = watch::channel(false);
    let service = FlightServiceServer::new(DoorService { door, pace, stopped: stopped.clone() })
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX);
    let told = async {
        shutdown.await;
        stop.send_replace(true);
    };
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    let serving = Server::builder()
        .initial_stream_window_size(link::STREAM_WINDOW_BYTES)
        .initial_connection_window_size(link::CONNECTION_WINDOW_BYTES)
        .max_frame_size(link::FRAME_BYTES)
        .max_concurrent_streams(link::CALLS_MAX)
        .http2_max_header_list_size(link::HEADER_BYTES_MAX)
        .http2_keepalive_interval(Some(link::PING_INTERVAL))
        .http2_keepalive_timeout(Some(link::PING_TIMEOUT))
        .add_service(service)
        .serve_with_incoming_shutdown(incoming, told);
    let overdue = async {
        until_stopped(stopped).await;
        tokio::time::sleep(STOP_GRACE).await;
    };
    tokio::select! {
        result = serving => result.map_err(|error| WireError::Serve(error.to_string()).into()),
        () = overdue => Ok(()),
    }
}

async fn until_stopped(mut stopped: watch::Receiver<bool>) {
    // An error says that the server is gone, which stops its calls as well.
    let _ = stopped.wait_for(|stopped| *stopped).await;
}

struct DoorService {
    door: Arc<dyn Door>,
    pace: Arc<dyn Pace>,
    stopped: watch::Receiver<bool>,
}

type Answers<T> = BoxStream<'static, Result<T, Status>>;

impl DoorService {
    async fn call(&self, action: &Action) -> Result<arrow_flight::Result, Fault> {
        let door = &self.door;
        match Call::parse(action)? {
            Call::Hello(hello) => {
                let host = (hello.protocol, hello.release.clone());
                let welcome = door.hello(hello).await?;
                check_protocol((host.0, &host.1), (welcome.protocol, &welcome.release))?;
                answer(&welcome)
            }
            Call::Poll(session) => answer(&door.poll(session).await?),
            Call::Close(session) => answer(&door.close(session).await?),
            Call::Status => answer(&door.status().await?),
            Call::Manifest(domain) => answer(&door.manifest(domain).await?),
            Call::Commit(commit) => answer(&door.commit(commit.expected, commit.manifest).await?),
            Call::Directory(key) => answer(&door.directory(key).await?),
            Call::Discard(discard) => answer(&door.discard(discard.name, discard.dataset, discard.keep).await?),
        }
    }

    async fn put(&self, mut messages: Streaming<FlightData>) -> Result<PutResult, Fault> {
        let first = next_message(&mut messages).await?;
        let body = match parse_put(&first)? {
            PutCommand::Open(header) => json(&self.open(*header, first, messages).await?)?,
            PutCommand::Load(request) => json(&self.door.load(request.clone(), rows(request, messages)).await?)?,
        };
        Ok(PutResult { app_metadata: body })
    }

    async fn open(
        &self,
        header: OpenHeader,
        first: FlightData,
        mut messages: Streaming<FlightData>,
    ) -> Result<Reply<Granted>, Fault> {
        let mut reader = OpenReader::new(header, first)?;
        while !reader.read(&next_message(&mut messages).await?)? {}
        Ok(self.door.open(reader.finish()).await?.reply)
    }

    /// One answer, once the link has room for it.
    async fn paced<T: Message + 'static>(&self, answer: T) -> Response<Answers<T>> {
        if let Some(wait) = self.pace.send(link_bytes(&answer)) {
            wait.await;
        }
        Response::new(stream::iter([Ok(answer)]).boxed())
    }
}

fn answer(value: &impl Serialize) -> Result<arrow_flight::Result, Fault> {
    Ok(arrow_flight::Result::new(json(value)?))
}

/// The next message of a put. A client that is gone ends its stream as one that is done does, so the end is no message.
async fn next_message(messages: &mut Streaming<FlightData>) -> Result<FlightData, Fault> {
    match tokio::time::timeout(PUT_IDLE_MAX, messages.message()).await {
        Ok(Ok(Some(message))) => Ok(message),
        Ok(Ok(None)) => Err(WireError::BrokenOff.into()),
        Ok(Err(status)) => Err(Fault::new(Blame::User, format!("the sender failed: {}", status.message()))),
        Err(_) => Err(Fault::new(Blame::Limit, format!("the sender paused for more than {} s", PUT_IDLE_MAX.as_secs()))),
    }
}

/// The rows of a load. They end with a fault unless the stream says that it is whole.
fn rows(request: LoadRequest, messages: Streaming<FlightData>) -> Batches {
    let state = Some((request, messages, BatchDecoder::default()));
    stream::unfold(state, |state| async move {
        let (request, mut messages, mut decoder) = state?;
        match next_rows(&request, &mut messages, &mut decoder).await.transpose()? {
            Ok(batch) => Some((Ok(batch), Some((request, messages, decoder)))),
            Err(fault) => Some((Err(fault), None)),
        }
    })
    .boxed()
}

async fn next_rows(
    request: &LoadRequest,
    messages: &mut Streaming<FlightData>,
    decoder: &mut BatchDecoder,
) -> Result<Option<RecordBatch>, Fault> {
    loop {
        let message = next_message(messages).await?;
        let mark = parse_put_mark(&message)?;
        if mark == Some(PutMark::End) {
            return Ok(None);
        }
        match (mark, decoder.decode(&message)?) {
            (None, Decoded::Context) => {}
            (Some(PutMark::Rows), Decoded::Batch(batch)) => return Ok(Some(with_schema(batch, &request.schema)?)),
            _ => return Err(WireError::malformed("load", "expected rows").into()),
        }
    }
}

/// GET's messages: each event is encoded when the one before has left.
struct Sender {
    events: Events,
    writer: EventWriter,
    queue: VecDeque<FlightData>,
    pace: Arc<dyn Pace>,
    stopped: watch::Receiver<bool>,
    ended: bool,
}

impl Sender {
    async fn next(mut self) -> Option<(Result<FlightData, Status>, Self)> {
        while self.queue.is_empty() {
            if self.ended {
                return None;
            }
            if let Err(fault) = self.fill().await {
                self.ended = true;
                return Some((Err(to_status(&fault)), self));
            }
        }
        let message = self.queue.pop_front()?;
        if let Some(wait) = self.pace.send(link_bytes(&message)) {
            wait.await;
        }
        Some((Ok(message), self))
    }

    async fn fill(&mut self) -> Result<(), Fault> {
        let event = tokio::select! {
            event = self.events.next() => event,
            () = until_stopped(self.stopped.clone()) => return Err(WireError::Stopping.into()),
        };
        match event {
            Some(event) => Ok(self.writer.write(event?, &mut self.queue)?),
            None => {
                self.ended = true;
                Ok(())
            }
        }
    }
}

fn not_served<T>(what: &str) -> Result<T, Status> {
    Err(Status::unimplemented(format!("pithead does not serve {what}; see ListActions, DoGet and DoPut")))
}

#[async_trait]
impl FlightService for DoorService {
    type HandshakeStream = Answers<HandshakeResponse>;
    type ListFlightsStream = Answers<FlightInfo>;
    type DoGetStream = Answers<FlightData>;
    type DoPutStream = Answers<PutResult>;
    type DoExchangeStream = Answers<FlightData>;
    type DoActionStream = Answers<arrow_flight::Result>;
    type ListActionsStream = Answers<ActionType>;

    async fn do_action(&self, request: Request<Action>) -> Result<Response<Self::DoActionStream>, Status> {
        let answer = self.call(request.get_ref()).await.map_err(|fault| to_status(&fault))?;
        Ok(self.paced(answer).await)
    }

    async fn do_put(&self, request: Request<Streaming<FlightData>>) -> Result<Response<Self::DoPutStream>, Status> {
        let answer = self.put(request.into_inner()).await.map_err(|fault| to_status(&fault))?;
        Ok(self.paced(answer).await)
    }

    async fn do_get(&self, request: Request<Ticket>) -> Result<Response<Self::DoGetStream>, Status> {
        let session = parse_ticket(request.get_ref())?;
        let events = self.door.get(session).await.map_err(|fault| to_status(&fault))?;
        let (pace, stopped) = (Arc::clone(&self.pace), self.stopped.clone());
        let sender = Sender { events, writer: EventWriter::new(), queue: VecDeque::new(), pace, stopped, ended: false };
        Ok(Response::new(stream::unfold(sender, Sender::next).boxed()))
    }

    async fn list_actions(&self, _request: Request<Empty>) -> Result<Response<Self::ListActionsStream>, Status> {
        let kinds = Call::KINDS.map(|(kind, what)| Ok(ActionType { r#type: kind.to_owned(), description: what.to_owned() }));
        Ok(Response::new(stream::iter(kinds).boxed()))
    }

    async fn handshake(
        &self,
        _request: Request<Streaming<HandshakeRequest>>,
    ) -> Result<Response<Self::HandshakeStream>, Status> {
        not_served("Handshake")
    }

    async fn list_flights(&self, _request: Request<Criteria>) -> Result<Response<Self::ListFlightsStream>, Status> {
        not_served("ListFlights")
    }

    async fn get_flight_info(&self, _request: Request<FlightDescriptor>) -> Result<Response<FlightInfo>, Status> {
        not_served("GetFlightInfo")
    }

    async fn poll_flight_info(&self, _request: Request<FlightDescriptor>) -> Result<Response<PollInfo>, Status> {
        not_served("PollFlightInfo")
    }

    async fn get_schema(&self, _request: Request<FlightDescriptor>) -> Result<Response<SchemaResult>, Status> {
        not_served("GetSchema")
    }

    async fn do_exchange(&self, _request: Request<Streaming<FlightData>>) -> Result<Response<Self::DoExchangeStream>, Status> {
        not_served("DoExchange")
    }
}

fn parse_ticket(ticket: &Ticket) -> Result<SessionId, WireError> {
    let text = std::str::from_utf8(&ticket.ticket).map_err(|error| WireError::malformed("ticket", error))?;
    text.parse().map_err(|fault: Fault| WireError::malformed("ticket", fault.message))
}
