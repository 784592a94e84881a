//! [`FlightDoor`]: a drive elsewhere, as a [`Door`].

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arrow_flight::flight_service_client::FlightServiceClient;
use arrow_flight::{FlightData, PutResult};
use bytes::Bytes;
use futures::stream::{self, Stream, StreamExt};
use http::HeaderValue;
use http::header::AUTHORIZATION;
use pithead_door::{
    ApplicationRun, Attachments, BackgroundOrder, BackgroundStatus, Batches, Claim, Discard, Door, DriveStatus, Event, Events,
    FunctionAsk, FunctionModule, Granted, Hello, HistoryAsk, LoadModule, LoadRequest, ManifestReceipt, MarkRun, Marked,
    MergeRuns, OpenRequest, OpenSession, Opened, Pieces, PortInputs, Reads, RunApplication, StoredModule, ToldVersion, Welcome,
};
use pithead_door::{check_attachments, check_columns};
use pithead_entry::ConnectOptions;
use pithead_entry::Token;
use pithead_model::{
    Blame, Directory, DriveId, Fault, HostState, Loaded, MESSAGE_BYTES_MAX, Manifest, Reply, SessionId, SessionProfile,
    SliceKey, boxed,
};
use serde::de::DeserializeOwned;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Response, Status, Streaming};

use crate::application::{application_run, parse_started, run_messages};
use crate::call::{Call, Commit, DomainVersion, Tell, check_manifest, parse_welcome};
use crate::dial::{Dial, Trouble};
use crate::encode::link_bytes;
use crate::error::{WireError, from_status};
use crate::event::EventReader;
use crate::json::from_json;
use crate::link::{self, Address};
use crate::put::{encode_function, encode_module, encode_open, parse_function_answer};
use crate::run::{TicketTarget, check_run, run_pieces};
use crate::sending::{Failed, load_messages, run_put_messages};

/// How long a call may take that a drive answers from memory, or from one read or write.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a call may take that writes or deletes many values.
const WRITE_TIMEOUT: Duration = Duration::from_secs(120);
/// Longest wait for what is left of a run, which may be all of a partition.
const MARK_TIMEOUT: Duration = Duration::from_secs(1_800);

/// A drive elsewhere, behind one HTTP/2 connection that all calls share.
///
/// The connection is made when it is first needed, and again after it was lost. Streams have no time limit; a peer that
/// does not answer pings for 15 seconds fails them. Whoever is at the address then answers, unless [`Door::only_to`] has made
/// the door: its calls name the drive that they are meant for, so that no other one takes them after the link was made again.
#[derive(Clone, Debug)]
pub struct FlightDoor {
    label: String,
    client: Client,
    /// What [`FlightDoor::client`] is made of.
    channel: Channel,
    credentials: Credentials,
    trouble: Trouble,
}

type Client = FlightServiceClient<InterceptedService<Channel, Credentials>>;

/// Puts the token on every call, and the drive that it is meant for, if only one will do.
#[derive(Clone)]
struct Credentials {
    token: Option<MetadataValue<Ascii>>,
    drive: Option<MetadataValue<Ascii>>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.token.is_some() { "a token" } else { "none" })
    }
}

impl Interceptor for Credentials {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(token) = &self.token {
            request.metadata_mut().insert(AUTHORIZATION.as_str(), token.clone());
        }
        if let Some(drive) = &self.drive {
            request.metadata_mut().insert(link::DRIVE_HEADER, drive.clone());
        }
        Ok(request)
    }
}

impl Credentials {
    fn new(token: Option<&Token>) -> Result<Credentials, Fault> {
        let header = |token: &Token| {
            let mut header = MetadataValue::try_from(format!("Bearer {}", token.text()))
                .map_err(|_| Fault::new(Blame::User, "the token cannot be sent: it is not visible ASCII"))?;
            header.set_sensitive(true);
            Ok::<_, Fault>(header)
        };
        Ok(Credentials { token: token.map(header).transpose()?, drive: None })
    }
}

/// A client of what a channel leads to.
fn client(channel: Channel, credentials: Credentials) -> Client {
    FlightServiceClient::with_interceptor(channel, credentials)
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX)
}

/// A link to another server of ours, made when it is first needed: to the same addresses, by the same files and with the same refusals as
/// [`FlightDoor::connect_with`]. With it comes what says on each call who calls, if anything does, and what the link knows where a call fails. Must be called within a
/// tokio runtime.
pub fn channel(address: &str, options: &ConnectOptions) -> Result<(Channel, Option<HeaderValue>, Trouble), Fault> {
    let (_, channel, trouble) = link_to(address, options)?;
    let Credentials { token, .. } = Credentials::new(options.token.as_ref())?;
    let header = |token: MetadataValue<Ascii>| {
        let mut header = HeaderValue::from_bytes(token.as_encoded_bytes()).map_err(Fault::bug)?;
        header.set_sensitive(true);
        Ok::<_, Fault>(header)
    };
    Ok((channel, token.map(header).transpose()?, trouble))
}

fn link_to(address: &str, options: &ConnectOptions) -> Result<(String, Channel, Trouble), Fault> {
    let dial = Dial::new(Address::parse(address)?, options)?;
    let label = dial.label();
    let endpoint = Endpoint::from_shared(format!("http://{label}"))
        .map_err(|_| WireError::Address(address.to_owned()))?
        .connect_timeout(link::CONNECT_TIMEOUT)
        .initial_stream_window_size(link::STREAM_WINDOW_BYTES)
        .initial_connection_window_size(link::CONNECTION_WINDOW_BYTES)
        .max_frame_size(link::FRAME_BYTES)
        .http2_max_header_list_size(link::HEADER_BYTES_MAX)
        .http2_keep_alive_interval(link::PING_INTERVAL)
        .keep_alive_timeout(link::PING_TIMEOUT)
        .keep_alive_while_idle(true);
    let trouble = dial.trouble();
    Ok((label, endpoint.connect_with_connector_lazy(dial), trouble))
}

impl FlightDoor {
    /// A door over a plain link, with no credentials, as [`FlightDoor::connect_with`] makes it: only to a drive on this machine.
    pub fn connect(address: &str) -> Result<FlightDoor, Fault> {
        FlightDoor::connect_with(address, &ConnectOptions::default())
    }

    /// A door to the drive at `HOST`, `HOST:PORT`, `pithead://HOST:PORT` or `pithead+tls://HOST:PORT`; the port is
    /// [`crate::PORT_DEFAULT`] unless given. Checks the text and the options, and reads the files that they name: whether a drive
    /// is there shows with the first call, which should be [`Door::hello`]. Must be called within a tokio runtime, which the
    /// connection then lives on.
    ///
    /// Refuses a drive on another machine without TLS, unless the options say otherwise.
    pub fn connect_with(address: &str, options: &ConnectOptions) -> Result<FlightDoor, Fault> {
        let (label, channel, trouble) = link_to(address, options)?;
        let credentials = Credentials::new(options.token.as_ref())?;
        let client = client(channel.clone(), credentials.clone());
        Ok(FlightDoor { label, client, channel, credentials, trouble })
    }

    /// The client for a call. HELLO is there to learn who answers, so it is meant for nobody in particular.
    fn client_for(&self, call: &Call) -> Client {
        match call {
            Call::Hello(_) => client(self.channel.clone(), Credentials { drive: None, ..self.credentials.clone() }),
            _ => self.client.clone(),
        }
    }

    async fn call<T: DeserializeOwned>(&self, call: Call) -> Result<T, Fault> {
        let body = self.call_bytes(&call).await?;
        from_json("answer", &body).map_err(|error| self.foreign(error))
    }

    async fn call_bytes(&self, call: &Call) -> Result<Bytes, Fault> {
        let action = call.action()?;
        let limit = match call {
            Call::Commit(_) | Call::Keep(_) | Call::Discard(_) | Call::Merge(_) => WRITE_TIMEOUT,
            Call::Mark(_) => MARK_TIMEOUT,
            _ => CALL_TIMEOUT,
        };
        let mut client = self.client_for(call);
        let answer = async { only(client.do_action(action).await?).await };
        let answer = self.timely(call.kind(), limit, answer).await?;
        let is_own = answer.as_ref().is_err_and(is_drives_own);
        Ok(self.answered(answer).map_err(|fault| as_of_call(call, is_own, fault))?.body)
    }

    async fn within<T>(
        &self,
        call: &'static str,
        limit: Duration,
        answer: impl Future<Output = Result<T, Status>>,
    ) -> Result<T, Fault> {
        let answer = self.timely(call, limit, answer).await?;
        self.answered(answer)
    }

    async fn timely<T>(&self, call: &'static str, limit: Duration, answer: impl Future<Output = T>) -> Result<T, Fault> {
        let answer = tokio::time::timeout(limit, answer).await;
        answer.map_err(|_| WireError::Late { address: self.label.clone(), call, limit_s: limit.as_secs() }.into())
    }

    /// Streams to the drive, for as long as that takes, and waits for its one answer. A fault of what is streamed goes before
    /// what the drive says, which was only told that the stream broke off.
    async fn put<T: DeserializeOwned>(
        &self,
        what: &'static str,
        messages: impl Stream<Item = FlightData> + Send + 'static,
        failed: Failed,
    ) -> Result<T, Fault> {
        let mut client = self.client.clone();
        let answer = async { only(client.do_put(messages).await?).await }.await;
        if let Some(fault) = failed.get() {
            return Err(fault.clone());
        }
        let answer: PutResult = self.answered(answer)?;
        from_json(what, &answer.app_metadata).map_err(|error| self.foreign(error))
    }

    /// An answer, after which what was wrong with an earlier connection explains nothing any more; or the fault that it is.
    fn answered<T>(&self, answer: Result<T, Status>) -> Result<T, Fault> {
        if answer.is_ok() {
            self.trouble.take();
        }
        answer.map_err(|status| self.fault(&status))
    }

    /// The fault that a status stands for, or what the drive said of the connection before it ended it.
    fn fault(&self, status: &Status) -> Fault {
        let fault = from_status(status, &self.label);
        let of_connection = self.trouble.take().filter(|_| fault.blame == Blame::Device && !is_drives_own(status));
        of_connection.unwrap_or(fault)
    }

    /// Bytes from the drive that are no answer: its doing, not the caller's.
    fn foreign(&self, error: WireError) -> Fault {
        foreign(&self.label, error)
    }
}

/// Whether a status is a drive's answer. Others come from the link, or from what is no drive.
fn is_drives_own(status: &Status) -> bool {
    serde_json::from_slice::<Fault>(status.details()).is_ok()
}

/// The fault of a call that failed. From [`Blame::Access`] hosts conclude that a change was not made, which only the drive's own answer
/// to it can say: what is known of a connection may be of another one than that which the change went over.
fn as_of_call(call: &Call, is_own: bool, fault: Fault) -> Fault {
    let is_of_link = fault.blame == Blame::Access && !is_own;
    if is_of_link && matches!(call, Call::Commit(_)) { Fault { blame: Blame::Device, ..fault } } else { fault }
}

fn foreign(address: &str, error: WireError) -> Fault {
    match error {
        WireError::Refused(fault) if fault.blame == Blame::Unsupported => fault,
        error => WireError::Link { address: address.to_owned(), why: error.to_string() }.into(),
    }
}

/// The one message of an answer.
async fn only<T>(answer: Response<Streaming<T>>) -> Result<T, Status> {
    answer.into_inner().message().await?.ok_or_else(|| Status::internal("an empty answer"))
}

#[boxed]
impl Door for FlightDoor {
    fn label(&self) -> &str {
        &self.label
    }

    async fn hello(&self, hello: Hello) -> Result<Welcome, Fault> {
        let body = self.call_bytes(&Call::Hello(hello.clone())).await?;
        parse_welcome(&body, &hello).map_err(|error| self.foreign(error))
    }

    fn only_to(&self, drive: DriveId) -> Option<Arc<dyn Door>> {
        let drive = MetadataValue::try_from(drive.to_string()).ok()?;
        let credentials = Credentials { drive: Some(drive), ..self.credentials.clone() };
        let client = client(self.channel.clone(), credentials.clone());
        Some(Arc::new(FlightDoor { client, credentials, ..self.clone() }))
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

    async fn open_and_get(&self, request: OpenRequest) -> Result<(Opened, Option<Events>), Fault> {
        let messages = encode_open(&request)?;
        let sent: u64 = messages.iter().map(link_bytes).sum();
        let answer = exchange(self.client.clone(), stream::iter(messages));
        let (first, messages) = self.within("OPEN", CALL_TIMEOUT, answer).await?;
        let reply: Reply<Granted> = from_json("answer to OPEN", &first.app_metadata).map_err(|error| self.foreign(error))?;
        let receiver = Receiver { label: self.label.clone(), messages, reader: EventReader::default() };
        let events = matches!(reply, Reply::Granted(_)).then(|| receiver.events());
        Ok((Opened { reply, link_bytes: sent + link_bytes(&first) }, events))
    }

    async fn get(&self, session: SessionId) -> Result<Events, Fault> {
        let ticket = TicketTarget::Session(session).ticket()?;
        let mut reader = EventReader::default();
        reader.count(link_bytes(&ticket));
        let messages = self.client.clone().do_get(ticket).await.map_err(|status| self.fault(&status))?;
        let receiver = Receiver { label: self.label.clone(), messages: messages.into_inner(), reader };
        Ok(receiver.events())
    }

    async fn poll(&self, session: SessionId) -> Result<SessionProfile, Fault> {
        self.call(Call::Poll(session)).await
    }

    async fn close(&self, session: SessionId) -> Result<(), Fault> {
        self.call(Call::Close(session)).await
    }

    async fn tell(&self, session: SessionId, state: HostState) -> Result<(), Fault> {
        self.call(Call::Tell(Tell { session, state })).await
    }

    async fn load(&self, request: LoadRequest, rows: Batches) -> Result<Loaded, Fault> {
        let failed = Failed::default();
        let messages = load_messages(request, rows, Arc::clone(&failed))?;
        self.put("answer to a load", messages, failed).await
    }

    async fn merge_runs(&self, request: MergeRuns) -> Result<Loaded, Fault> {
        self.call(Call::Merge(request)).await
    }

    async fn mark_run(&self, request: MarkRun) -> Result<Marked, Fault> {
        self.call(Call::Mark(request)).await
    }

    async fn discard(&self, discard: Discard) -> Result<u64, Fault> {
        self.call(Call::Discard(discard)).await
    }

    async fn claim(&self, claim: Claim) -> Result<Vec<SliceKey>, Fault> {
        self.call(Call::Claim(claim)).await
    }

    async fn read_run(&self, run: SliceKey) -> Result<Pieces, Fault> {
        check_run(&run)?;
        let mut client = self.client.clone();
        let messages = client.do_get(TicketTarget::Run(run).ticket()?).await.map_err(|status| self.fault(&status))?;
        let (label, address) = (self.label.clone(), self.label.clone());
        let messages = messages.into_inner().map(move |message| message.map_err(|status| from_status(&status, &label)));
        Ok(run_pieces(messages, move |error| foreign(&address, error)))
    }

    async fn write_run(&self, run: SliceKey, pieces: Pieces) -> Result<(), Fault> {
        let failed = Failed::default();
        let messages = run_put_messages(run, pieces, Arc::clone(&failed))?;
        self.put("answer to a run", messages, failed).await
    }

    async fn manifest(&self, domain: String) -> Result<Option<Manifest>, Fault> {
        let manifest: Option<Manifest> = self.call(Call::Manifest(domain)).await?;
        manifest.iter().try_for_each(check_manifest).map_err(|error| self.foreign(error))?;
        Ok(manifest)
    }

    async fn has_manifest(&self, domain: String, version: u64) -> Result<bool, Fault> {
        self.call(Call::HasManifest(DomainVersion { domain, version })).await
    }

    async fn attached(&self, known: Option<u64>) -> Result<Option<Arc<Attachments>>, Fault> {
        let attachments: Option<Attachments> = self.call(Call::Attached(known)).await?;
        attachments.iter().try_for_each(check_attachments).map_err(|fault| fault.at_drive(&self.label))?;
        Ok(attachments.map(Arc::new))
    }

    async fn commit(&self, expected: u64, manifest: Manifest) -> Result<(), Fault> {
        self.call(Call::Commit(Commit { expected, manifest })).await
    }

    async fn keep_manifest(&self, manifest: Manifest) -> Result<ManifestReceipt, Fault> {
        self.call(Call::Keep(manifest)).await
    }

    async fn set_aside(&self, domain: String, after: u64) -> Result<Option<Manifest>, Fault> {
        let manifest: Option<Manifest> = self.call(Call::Aside(DomainVersion { domain, version: after })).await?;
        manifest.iter().try_for_each(check_manifest).map_err(|error| self.foreign(error))?;
        Ok(manifest)
    }

    async fn drop_aside(&self, domain: String, version: u64) -> Result<bool, Fault> {
        self.call(Call::DropAside(DomainVersion { domain, version })).await
    }

    async fn history(&self, ask: HistoryAsk) -> Result<Vec<ToldVersion>, Fault> {
        self.call(Call::History(ask)).await
    }

    async fn past_manifest(&self, domain: String, version: u64) -> Result<Option<Manifest>, Fault> {
        let manifest: Option<Manifest> = self.call(Call::PastManifest(DomainVersion { domain, version })).await?;
        manifest.iter().try_for_each(check_manifest).map_err(|error| self.foreign(error))?;
        Ok(manifest)
    }

    async fn forget_history(&self, domain: String) -> Result<u64, Fault> {
        self.call(Call::ForgetHistory(domain)).await
    }

    async fn directory(&self, key: SliceKey) -> Result<Directory, Fault> {
        let directory: Directory = self.call(Call::Directory(key)).await?;
        check_columns(&directory.schema).map_err(|fault| self.foreign(fault.into()))?;
        Ok(directory)
    }

    async fn status(&self) -> Result<DriveStatus, Fault> {
        self.call(Call::Status).await
    }

    async fn sessions(&self) -> Result<Vec<OpenSession>, Fault> {
        self.call(Call::Sessions).await
    }

    async fn kill(&self, session: SessionId) -> Result<bool, Fault> {
        self.call(Call::Kill(session)).await
    }

    async fn background(&self, order: BackgroundOrder) -> Result<BackgroundStatus, Fault> {
        self.call(Call::Background(order)).await
    }

    async fn load_module(&self, request: LoadModule) -> Result<StoredModule, Fault> {
        let message = encode_module(request)?;
        self.put("answer to a module", stream::iter([message]), Failed::default()).await
    }

    async fn modules(&self) -> Result<Vec<StoredModule>, Fault> {
        self.call(Call::Modules).await
    }

    async fn remove_module(&self, name: String) -> Result<bool, Fault> {
        self.call(Call::RemoveModule(name)).await
    }

    async fn keep_function(&self, module: FunctionModule) -> Result<String, Fault> {
        let message = encode_function(module)?;
        self.put("answer to a module", stream::iter([message]), Failed::default()).await
    }

    async fn function(&self, ask: FunctionAsk) -> Result<Option<Bytes>, Fault> {
        let answer = self.call_bytes(&Call::Function(ask)).await?;
        parse_function_answer(answer).map_err(|error| self.foreign(error))
    }

    async fn run_application(
        &self,
        request: RunApplication,
        inputs: PortInputs,
        _reads: Arc<dyn Reads>,
    ) -> Result<ApplicationRun, Fault> {
        let failed = Failed::default();
        let messages = run_messages(request, inputs, Arc::clone(&failed))?;
        let answer = exchange(self.client.clone(), messages);
        let (first, answer) = self.within("RUN", WRITE_TIMEOUT, answer).await?;
        let started = parse_started(&first).map_err(|error| self.foreign(error))?;
        let (label, address) = (self.label.clone(), self.label.clone());
        let answer = answer.map(move |message| message.map_err(|status| from_status(&status, &label)));
        Ok(application_run(started, answer, failed, move |error| foreign(&address, error)))
    }
}

/// The first message of the answer to an exchange, and the stream of the others.
async fn exchange(
    mut client: Client,
    messages: impl Stream<Item = FlightData> + Send + 'static,
) -> Result<(FlightData, Streaming<FlightData>), Status> {
    let mut answer = client.do_exchange(messages).await?.into_inner();
    let first = answer.message().await?;
    Ok((first.ok_or_else(|| Status::internal("an empty answer"))?, answer))
}

/// GET's stream on its way in.
struct Receiver {
    label: String,
    messages: Streaming<FlightData>,
    reader: EventReader,
}

impl Receiver {
    fn events(self) -> Events {
        stream::unfold(Some(self), |receiver| async move { receiver?.next().await }).boxed()
    }

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{Refused, to_status};

    #[test]
    fn only_a_drives_own_answer_refuses_a_change() {
        let commit = Call::Commit(Commit { expected: 0, manifest: Manifest::empty("main", vec![]) });
        let access = Fault::new(Blame::Access, "it asks for a client certificate");
        let blame = |call: &Call, status: &Status| as_of_call(call, is_drives_own(status), from_status(status, "a:1")).blame;
        let (own, of_link) = (to_status(&access), Status::from_error(Box::new(Refused(access))));
        assert_eq!([blame(&commit, &own), blame(&commit, &of_link)], [Blame::Access, Blame::Device]);
        assert_eq!([blame(&Call::Status, &own), blame(&Call::Status, &of_link)], [Blame::Access; 2]);
    }
}
