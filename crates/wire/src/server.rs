//! A [`Door`] on the network: an Arrow Flight service.

use std::sync::Arc;
use std::time::Duration;

use arrow_flight::flight_service_server::{FlightService, FlightServiceServer};
use arrow_flight::{
    Action, ActionType, Criteria, Empty, FlightData, FlightDescriptor, FlightInfo, HandshakeRequest, HandshakeResponse,
    PollInfo, PutResult, SchemaResult, Ticket,
};
use futures::stream::{self, BoxStream, StreamExt};
use pithead_door::{Door, Hello, OpenRequest, ReadsNothing, check_protocol};
use pithead_entry::{Identity, Peer, ServeOptions, Shutdown};
use pithead_model::{Blame, DriveId, Fault, MESSAGE_BYTES_MAX, PROTOCOL_VERSION, boxed};
use prost::Message;
use serde::Serialize;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tonic::metadata::MetadataMap;
use tonic::{Request, Response, Status, Streaming};

use crate::application::{self, port_inputs};
use crate::call::Call;
use crate::encode::link_bytes;
use crate::error::{WireError, to_status};
use crate::event::event_messages;
use crate::exchange::{ExchangeCommand, open_and_get, parse_exchange};
use crate::gauge::SocketGauge;
use crate::guard::DoorReception;
use crate::json::json;
use crate::link;
use crate::owners::Owners;
use crate::pace::Pace;
use crate::packing::Packer;
use crate::put::{OpenHeader, OpenReader, PutCommand, function_answer, parse_put};
use crate::receiving::{next_message, pieces, rows};
use crate::rights::CheckedDoor;
use crate::run::{TicketTarget, run_messages};
use crate::serving::{ServeLimits, serve_calls, until_stopped};

const LIMITS: ServeLimits = ServeLimits {
    stream_window_bytes: link::STREAM_WINDOW_BYTES,
    connection_window_bytes: link::SERVER_WINDOW_BYTES,
    frame_bytes: Some(link::FRAME_BYTES),
    calls: link::CALLS_MAX,
    header_bytes: link::HEADER_BYTES_MAX,
    ping_interval: link::PING_INTERVAL,
    ping_timeout: link::PING_TIMEOUT,
    stop_grace: Duration::from_secs(10),
};

/// Serves a door at `listener` until `shutdown` ends. Then nothing new is accepted, streams of GET end with a fault, and
/// other calls have ten seconds to finish.
///
/// Answers wait for `pace`, message by message. Fails where `options` forbid it, and where their files cannot
/// be read.
#[boxed]
pub async fn serve(
    door: Arc<dyn Door>,
    pace: Arc<dyn Pace>,
    listener: TcpListener,
    options: &ServeOptions,
    shutdown: Shutdown,
) -> Result<(), Fault> {
    let address = listener.local_addr().map_err(|error| WireError::Serve(error.to_string()))?;
    options.check(address.ip())?;
    let drive = identity(door.as_ref()).await?;
    let (stop, stopped) = watch::channel(false);
    let service = DoorService { door, drive, pace, owners: Arc::default(), stopped };
    let service = FlightServiceServer::new(service)
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX);
    serve_calls((service, DoorReception), listener, options, LIMITS, (stop, shutdown)).await
}

/// Who is behind a door.
async fn identity(door: &dyn Door) -> Result<DriveId, Fault> {
    let hello = Hello { protocol: PROTOCOL_VERSION, release: env!("CARGO_PKG_VERSION").to_owned(), extensions: vec![] };
    Ok(door.hello(hello).await?.drive)
}

struct DoorService {
    door: Arc<dyn Door>,
    /// Who is behind it.
    drive: DriveId,
    pace: Arc<dyn Pace>,
    owners: Arc<Owners>,
    stopped: watch::Receiver<bool>,
}

/// Messages of an answer that streams.
type Messages = BoxStream<'static, Result<FlightData, Fault>>;
type Answers<T> = BoxStream<'static, Result<T, Status>>;

impl DoorService {
    /// The door as the caller of a request sees it, if the request is meant for this drive.
    fn door<T>(&self, request: &Request<T>) -> Result<CheckedDoor, Fault> {
        let caller = request.extensions().get::<Arc<Identity>>().cloned();
        let caller = caller.ok_or_else(|| Fault::new(Blame::Bug, "a call came without its caller"))?;
        check_meant(request.metadata(), self.drive)?;
        Ok(CheckedDoor::new(Arc::clone(&self.door), caller, Arc::clone(&self.owners)))
    }

    async fn call(&self, request: &Request<Action>) -> Result<arrow_flight::Result, Fault> {
        let door = self.door(request)?;
        let action = request.get_ref();
        match Call::parse(action)? {
            Call::Hello(hello) => {
                let host = (hello.protocol, hello.release.clone());
                let welcome = door.hello(hello).await?;
                check_protocol((host.0, &host.1), (welcome.protocol, &welcome.release))?;
                answer(&welcome)
            }
            Call::Poll(session) => answer(&door.poll(session).await?),
            Call::Close(session) => answer(&door.close(session).await?),
            Call::Tell(tell) => answer(&door.tell(tell.session, tell.state).await?),
            Call::Status => answer(&door.status().await?),
            Call::Manifest(domain) => answer(&door.manifest(domain).await?),
            Call::HasManifest(at) => answer(&door.has_manifest(at.domain, at.version).await?),
            Call::Attached(known) => answer(&door.attached(known).await?),
            Call::Commit(commit) => answer(&door.commit(commit.expected, commit.manifest).await?),
            Call::Directory(key) => answer(&door.directory(key).await?),
            Call::Keep(manifest) => answer(&door.keep_manifest(manifest).await?),
            Call::Aside(aside) => answer(&door.set_aside(aside.domain, aside.version).await?),
            Call::History(ask) => answer(&door.history(ask).await?),
            Call::PastManifest(at) => answer(&door.past_manifest(at.domain, at.version).await?),
            Call::ForgetHistory(domain) => answer(&door.forget_history(domain).await?),
            Call::DropAside(aside) => answer(&door.drop_aside(aside.domain, aside.version).await?),
            Call::Discard(discard) => answer(&door.discard(discard).await?),
            Call::Claim(claim) => answer(&door.claim(claim).await?),
            Call::Sessions => answer(&door.sessions().await?),
            Call::Kill(session) => answer(&door.kill(session).await?),
            Call::Merge(request) => answer(&door.merge_runs(request).await?),
            Call::Mark(request) => answer(&door.mark_run(request).await?),
            Call::Modules => answer(&door.modules().await?),
            Call::RemoveModule(name) => answer(&door.remove_module(name).await?),
            Call::Background(order) => answer(&door.background(order).await?),
            Call::Function(ask) => Ok(arrow_flight::Result::new(function_answer(door.function(ask).await?))),
        }
    }

    async fn put(&self, request: Request<Streaming<FlightData>>) -> Result<PutResult, Fault> {
        let door = self.door(&request)?;
        let mut messages = request.into_inner();
        let first = next_message(&mut messages).await?;
        let body = match parse_put(&first)? {
            PutCommand::Open(header) => json(&door.open(open_request(*header, first, messages).await?).await?.reply)?,
            PutCommand::Load(request) => json(&door.load(request.clone(), rows(request, messages)).await?)?,
            PutCommand::Run(run) => json(&door.write_run(run, pieces(messages)).await?)?,
            PutCommand::Module(header) => json(&door.load_module(header.module(first)).await?)?,
            PutCommand::Function(header) => json(&door.keep_function(header.module(first)).await?)?,
        };
        Ok(PutResult { app_metadata: body })
    }

    /// Starts an application, whose messages in are read as it takes them, or opens a session, whose events follow at once.
    async fn exchange(&self, request: Request<Streaming<FlightData>>) -> Result<Messages, Fault> {
        let door = self.door(&request)?;
        let link = self.link(&request);
        let mut messages = request.into_inner();
        let first = next_message(&mut messages).await?;
        match parse_exchange(&first)? {
            ExchangeCommand::Run(application) => {
                // A host may be silent for as long as it likes: keepalive finds one that is gone.
                let inputs = port_inputs(messages.map(|message| message.map_err(|status| broken(&status))));
                door.run_application(application, inputs, Arc::new(ReadsNothing)).await.map(application::event_messages)
            }
            ExchangeCommand::Open(header) => {
                let request = open_request(*header, first, messages).await?;
                let packer = Packer::new(Arc::clone(&link), Arc::clone(&self.pace));
                open_and_get(door, request, link, packer).await
            }
        }
    }

    /// How the link to the caller of a request does.
    fn link<T>(&self, request: &Request<T>) -> Arc<SocketGauge> {
        Arc::new(SocketGauge::of(request.extensions().get::<Arc<Peer>>()))
    }

    fn sender(&self, messages: Messages) -> Answers<FlightData> {
        let sender = Sender { messages, pace: Arc::clone(&self.pace), stopped: self.stopped.clone() };
        stream::unfold(Some(sender), |sender| async move { sender?.next().await }).boxed()
    }

    /// One answer, once the link has room for it.
    async fn paced<T: Message + 'static>(&self, answer: T) -> Response<Answers<T>> {
        if let Some(wait) = self.pace.send(link_bytes(&answer)) {
            wait.await;
        }
        Response::new(stream::iter([Ok(answer)]).boxed())
    }
}

/// Refuses a call that is meant for another drive: its host has met that one at this address before.
fn check_meant(headers: &MetadataMap, here: DriveId) -> Result<(), Fault> {
    let Some(header) = headers.get(link::DRIVE_HEADER) else { return Ok(()) };
    let meant: Option<DriveId> = header.to_str().ok().and_then(|text| text.parse().ok());
    match meant {
        Some(meant) if meant == here => Ok(()),
        Some(meant) => {
            let fault = Fault::new(Blame::Device, format!("drive {here} is here now, instead of drive {meant}"));
            Err(fault.hint(format!("if drive {meant} is gone for good: `pithead repair --lost {meant}`")))
        }
        None => Err(WireError::malformed("header", format!("{} is not a drive's identity", link::DRIVE_HEADER)).into()),
    }
}

/// The rest of OPEN's messages.
async fn open_request(
    header: OpenHeader,
    first: FlightData,
    mut messages: Streaming<FlightData>,
) -> Result<OpenRequest, Fault> {
    let mut reader = OpenReader::new(header, first)?;
    while !reader.read(&next_message(&mut messages).await?)? {}
    Ok(reader.finish())
}

/// A sender whose stream failed: it is gone, or has cancelled.
fn broken(status: &Status) -> Fault {
    Fault::new(Blame::Cancelled, format!("the sender failed: {}", status.message()))
}

fn answer(value: &impl Serialize) -> Result<arrow_flight::Result, Fault> {
    Ok(arrow_flight::Result::new(json(value)?))
}

/// Sends an answer that streams: each message is made when the one before has left.
struct Sender {
    messages: Messages,
    pace: Arc<dyn Pace>,
    stopped: watch::Receiver<bool>,
}

impl Sender {
    /// The next message. After a fault there is nothing more.
    async fn next(mut self) -> Option<(Result<FlightData, Status>, Option<Self>)> {
        let message = tokio::select! {
            message = self.messages.next() => message?,
            () = until_stopped(self.stopped.clone()) => Err(WireError::Stopping.into()),
        };
        match message {
            Ok(message) => {
                if let Some(wait) = self.pace.send(link_bytes(&message)) {
                    wait.await;
                }
                Some((Ok(message), Some(self)))
            }
            Err(fault) => Some((Err(to_status(&fault)), None)),
        }
    }
}

fn not_served<T>(what: &str) -> Result<T, Status> {
    Err(Status::unimplemented(format!("pithead does not serve {what}; see ListActions, DoGet, DoPut and DoExchange")))
}

#[boxed]
impl FlightService for DoorService {
    type HandshakeStream = Answers<HandshakeResponse>;
    type ListFlightsStream = Answers<FlightInfo>;
    type DoGetStream = Answers<FlightData>;
    type DoPutStream = Answers<PutResult>;
    type DoExchangeStream = Answers<FlightData>;
    type DoActionStream = Answers<arrow_flight::Result>;
    type ListActionsStream = Answers<ActionType>;

    async fn do_action(&self, request: Request<Action>) -> Result<Response<Self::DoActionStream>, Status> {
        let answer = self.call(&request).await.map_err(|fault| to_status(&fault))?;
        Ok(self.paced(answer).await)
    }

    async fn do_put(&self, request: Request<Streaming<FlightData>>) -> Result<Response<Self::DoPutStream>, Status> {
        let answer = self.put(request).await.map_err(|fault| to_status(&fault))?;
        Ok(self.paced(answer).await)
    }

    async fn do_get(&self, request: Request<Ticket>) -> Result<Response<Self::DoGetStream>, Status> {
        let door = self.door(&request).map_err(|fault| to_status(&fault))?;
        let messages = match TicketTarget::parse(request.get_ref())? {
            TicketTarget::Session(session) => {
                let link = self.link(&request);
                let packer = Packer::new(Arc::clone(&link), Arc::clone(&self.pace));
                door.get_over(session, link).await.map(|events| event_messages(events, packer))
            }
            TicketTarget::Run(run) => door.read_run(run).await.map(run_messages),
        };
        let messages = messages.map_err(|fault| to_status(&fault))?;
        Ok(Response::new(self.sender(messages)))
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

    async fn do_exchange(&self, request: Request<Streaming<FlightData>>) -> Result<Response<Self::DoExchangeStream>, Status> {
        let messages = self.exchange(request).await.map_err(|fault| to_status(&fault))?;
        Ok(Response::new(self.sender(messages)))
    }
}
