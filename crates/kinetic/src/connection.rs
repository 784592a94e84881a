//! One connection: greeting, then a request and its answer, one after the other.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use crate::code::{Code, Failure, RequestKind};
use crate::crowd::CrowdPlace;
use crate::dispatch::{Dispatch, Dispatched};
use crate::execute::{Answer, Call, Link};
use crate::frame::Frame;
use crate::identity::Identity;
use crate::listening::{Idle, gone, next_frame, told};
use crate::managing::Gone;
use crate::parting::part;
use crate::pins::pin_of;
use crate::proto::{Body, Command, GetLog, Header, Message, PinOperation, auth};
use crate::receiving::Held;
use crate::reply::{FRAME_WAIT, Reply, Signer, message_unsolicited, respond, send, status, unsolicited};
use crate::service::Service;
use crate::sign::verify;

/// How long a caller who is not known yet may say nothing.
const STRANGER_IDLE: Duration = Duration::from_secs(60);
/// How long a caller who is known may say nothing.
const IDLE: Duration = Duration::from_secs(6 * 3_600);
/// How long a stranger may take for what is said last: less than another one waits for its place.
const LAST_WAIT: Duration = Duration::from_secs(1);
/// Wrong PINs after which the connection is closed.
const WRONG_PINS_MAX: u32 = 16;
/// Wrong signatures, one after the other, after which it is closed.
const WRONG_SIGNATURES_MAX: u32 = 16;
/// Bytes of a command that a PIN allows.
const PIN_COMMAND_BYTES: usize = 8 << 10;
/// Bytes that are read from the connection at once.
const READ_BYTES: usize = 32 << 10;

/// Talks to a client until one of both has enough. Open batches end with it.
pub(crate) async fn talk(
    service: Arc<Service>,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send,
    link: Link,
    place: CrowdPlace,
    mut stop: watch::Receiver<bool>,
) {
    let mut stream = BufReader::with_capacity(READ_BYTES, stream);
    let limits = service.options.limits;
    let mut talk = Talk::new(service, link, place);
    if !send(&mut stream, talk.greeting()).await {
        return;
    }
    let wanted = talk.place.wish();
    // Waits that each request shares: begun and ended with each, they would take three locks of the runtime a time.
    let mut stop_told = stop.clone();
    let (mut stopped, mut place_wish) = (pin!(told(&mut stop_told)), pin!(wanted.notified()));
    let mut idle = pin!(Idle::new(STRANGER_IDLE));
    loop {
        idle.as_mut().renew(if talk.known { IDLE } else { STRANGER_IDLE });
        let mut held = Held::new(&talk.service.receiving, talk.known);
        let is_kept = |message: &Message| talk.known || talk.service.is_signed(message);
        let next = tokio::select! {
            frame = next_frame(&mut stream, idle.as_mut(), &limits, &mut held, is_kept) => frame,
            () = &mut stopped => Err(Some(Failure::new(Code::ConnectionTerminated, "the drive stops"))),
            () = &mut place_wish => Err(Some(place_wanted())),
        };
        let next = match next {
            Ok(frame) => {
                let is_stranger = !talk.known;
                // Of a stranger it counts until the answer.
                let _held = is_stranger.then_some(held);
                let gone = pin!(gone(&mut stream, &mut stop));
                tokio::select! {
                    next = talk.answer(frame, gone) => next,
                    () = &mut place_wish, if is_stranger => Next::Last(unsolicited(&place_wanted())),
                }
            }
            Err(Some(failure)) => Next::Last(unsolicited(&failure)),
            Err(None) => break,
        };
        match next {
            Next::Silent => {}
            Next::Answer(reply) => {
                let sent = tokio::select! {
                    sent = send(&mut stream, reply) => sent,
                    // Half of an answer may be on its way: nothing more is said.
                    () = &mut place_wish, if !talk.known => return,
                };
                if !sent {
                    break;
                }
            }
            Next::Last(reply) => {
                let wait = if talk.known { FRAME_WAIT } else { LAST_WAIT };
                if matches!(timeout(wait, send(&mut stream, reply)).await, Ok(true)) {
                    part(&mut stream).await;
                }
                return;
            }
        }
    }
    // What the client was sent would be lost if the connection were only dropped.
    let _ = timeout(Duration::from_secs(1), stream.shutdown()).await;
}

/// What a frame leads to.
enum Next {
    /// Nothing is sent, as within a batch.
    Silent,
    Answer(Reply),
    /// The connection ends with it.
    Last(Reply),
}

struct Talk {
    service: Arc<Service>,
    link: Link,
    place: CrowdPlace,
    id: i64,
    /// The sequence of the last request.
    last: Option<i64>,
    /// A request of the caller was signed rightly.
    known: bool,
    wrong_pins: u32,
    /// Since the last right one.
    wrong_signatures: u32,
    work: Dispatch,
}

impl Talk {
    fn new(service: Arc<Service>, link: Link, place: CrowdPlace) -> Talk {
        let (id, work) = (service.next_connection(), Dispatch::new(Arc::clone(&service)));
        Talk { service, link, place, id, last: None, known: false, wrong_pins: 0, wrong_signatures: 0, work }
    }

    fn greeting(&self) -> Reply {
        let log = GetLog {
            configuration: Some(self.service.configuration(self.link)),
            limits: Some(self.service.options.told()),
            ..GetLog::default()
        };
        let header = Header {
            cluster_version: Some(self.service.states.get().cluster_version),
            connection_id: Some(self.id),
            ..Header::default()
        };
        let body = Some(Box::new(Body { get_log: Some(log), ..Body::default() }));
        let command = Command { header: Some(header), body, status: Some(status(&Answer::success())) };
        (message_unsolicited(&command), Bytes::new())
    }

    async fn answer(&mut self, frame: Frame, gone: Gone<'_>) -> Next {
        let arrived = Instant::now();
        match frame.message.auth_type {
            Some(auth::HMAC) => self.answer_signed(frame, arrived, gone).await,
            Some(auth::PIN) => self.answer_pin(frame).await,
            _ => Next::Last(unsolicited(&Failure::invalid("a request is signed by HMACAUTH (1) or PINAUTH (2)"))),
        }
    }

    async fn answer_signed(&mut self, frame: Frame, arrived: Instant, gone: Gone<'_>) -> Next {
        let sent = frame.message.hmac_auth.clone().unwrap_or_default();
        let bytes = frame.message.command_bytes.clone().unwrap_or_default();
        let number = sent.identity.unwrap_or(0);
        let Some(identity) = self.service.states.get().identities.get(&number).cloned() else {
            return self.turn_away(&bytes, Signer::Identity(number, b""), "there is no such identity");
        };
        let signer = Signer::Identity(number, &identity.key);
        if !verify(&identity.key, &bytes, sent.hmac.as_deref().unwrap_or_default()) {
            return self.turn_away(&bytes, signer, "the signature is wrong");
        }
        if identity.is_factory() && !self.link.loopback && !self.service.options.default_credentials {
            let what = "everybody knows the key of this identity: it may call from the drive's own machine only";
            return Next::Answer(respond(&signer, &Header::of(&bytes), Failure::not_authorized(what).into(), None));
        }
        if !self.known {
            self.known = true;
            self.place.keep();
        }
        self.wrong_signatures = 0;
        let command = match Command::read(&bytes) {
            Ok(command) => command,
            Err(error) => {
                let failure = Failure::invalid(format!("not a command: {error}"));
                return Next::Answer(respond(&signer, &Header::of(&bytes), failure.into(), None));
            }
        };
        let Some(header) = command.header.clone() else {
            let failure = Failure::new(Code::HeaderRequired, "a command has a header");
            return Next::Answer(respond(&signer, &Header::default(), failure.into(), None));
        };
        let body = command.body.map(|body| *body).unwrap_or_default();
        let checked = self.check(&header, &identity, &frame);
        let kind = header.message_type.and_then(RequestKind::of);
        let Some(kind) = kind else {
            let failure = Failure::invalid("there is no such kind of request");
            return Next::Answer(respond(&signer, &header, failure.into(), None));
        };
        let until = header.timeout.and_then(|ms| u64::try_from(ms).ok()).filter(|ms| *ms > 0);
        let until = until.and_then(|ms| arrived.checked_add(Duration::from_millis(ms)));
        let abandoned = matches!(kind, RequestKind::MediaScan | RequestKind::Peer2PeerPush).then(Arc::default);
        let (link, value) = (self.link, frame.value);
        let call = Call { kind, header, body, value, identity: Arc::clone(&identity), link, until, abandoned };
        let value_bytes = frame.value_bytes;
        let answer = match self.work.dispatch(&call, checked, gone).await {
            Dispatched::Answer(answer) => *answer,
            Dispatched::Silent => {
                self.service.metrics.count(kind, Code::Success, value_bytes);
                return Next::Silent;
            }
            Dispatched::WrongPin(failure) => return self.turn_away_pin(&signer, &call.header, kind, failure.into()),
            Dispatched::UnknownBatch(failure) => return Next::Last(unsolicited(&failure)),
        };
        let sent_bytes = answer.value.len() as u64;
        self.service.metrics.count(kind, answer.code, value_bytes + sent_bytes);
        self.service.metrics.seconds.observe(arrived.elapsed().as_secs_f64());
        self.pace(sent_bytes).await;
        let version = (answer.code == Code::VersionFailure).then(|| self.service.states.get().cluster_version);
        Next::Answer(respond(&signer, &call.header, answer, version))
    }

    /// What has to hold of every request of somebody who is known. The sequence counts whether or not the rest holds.
    fn check(&mut self, header: &Header, identity: &Identity, frame: &Frame) -> Result<(), Failure> {
        self.check_sequence(header)?;
        let state = self.service.states.get();
        if state.locked {
            return Err(Failure::new(Code::DeviceLocked, "the device is locked"));
        }
        check_cluster(header, state.cluster_version)?;
        if header.message_type != Some(RequestKind::SetPowerLevel as i32) {
            self.service.check_power()?;
        }
        identity.check_priority(identity.priority(header.priority))?;
        let most = self.service.options.limits.value_bytes as u64;
        match frame.value_bytes <= most {
            true => Ok(()),
            false => Err(Failure::invalid(format!("a value of {} bytes; at most {most} are allowed", frame.value_bytes))),
        }
    }

    fn check_sequence(&mut self, header: &Header) -> Result<(), Failure> {
        let sequence = header.sequence.unwrap_or(0);
        if self.last.is_some_and(|last| sequence <= last) || sequence < 0 {
            return Err(Failure::invalid(format!("sequence {sequence} is not above the one before")));
        }
        self.last = Some(sequence);
        Ok(())
    }

    async fn answer_pin(&mut self, frame: Frame) -> Next {
        let bytes = frame.message.command_bytes.clone().unwrap_or_default();
        let small = bytes.len() <= PIN_COMMAND_BYTES;
        let Some(command) = small.then(|| Command::read(&bytes).ok()).flatten() else {
            let failure = Failure::invalid("not a command that a PIN allows");
            return Next::Last(respond(&Signer::Pin, &Header::of(&bytes), failure.into(), None));
        };
        let Some(header) = command.header else {
            let failure = Failure::new(Code::HeaderRequired, "a command has a header");
            return Next::Answer(respond(&Signer::Pin, &Header::default(), failure.into(), None));
        };
        if let Err(failure) = self.work.check_batch(&header) {
            return Next::Last(unsolicited(&failure));
        }
        let answer = match self.check_pin_request(&header) {
            Err(failure) => failure.into(),
            Ok(()) => {
                let pin = frame.message.pin_auth.and_then(|auth| auth.pin).unwrap_or_default();
                let operation = command.body.and_then(|body| body.pin_op);
                self.pin_operation(operation, pin).await.unwrap_or_else(Answer::from)
            }
        };
        // A stranger whose requests cannot be done has no more of them than one who guesses.
        let is_refused = !self.known && !self.link.tls;
        if answer.code == Code::NotAuthorized || is_refused {
            return self.turn_away_pin(&Signer::Pin, &header, RequestKind::PinOp, answer);
        }
        self.service.metrics.count(RequestKind::PinOp, answer.code, 0);
        Next::Answer(respond(&Signer::Pin, &header, answer, None))
    }

    async fn pin_operation(&self, operation: Option<PinOperation>, pin: Bytes) -> Result<Answer, Failure> {
        self.service.compare_pin(pin_of(operation.as_ref(), &pin)?, self.link, None).await?;
        // Whoever knows the PIN is told how it went.
        self.place.keep();
        let (service, link) = (Arc::clone(&self.service), self.link);
        let done = self.service.pool.spawn_blocking(move || service.pin_operation(operation.as_ref(), &pin, link)).await;
        done.unwrap_or_else(|lost| Err(Failure::new(Code::InternalError, lost.to_string())))
    }

    /// The cluster version is not looked at: whoever knows a PIN may not know that.
    fn check_pin_request(&mut self, header: &Header) -> Result<(), Failure> {
        self.check_sequence(header)?;
        if header.message_type != Some(RequestKind::PinOp as i32) {
            return Err(Failure::invalid("a PIN allows PINOP only"));
        }
        if !self.link.tls {
            return Err(Failure::invalid("PINOP is sent over TLS only"));
        }
        self.service.check_power()
    }

    fn turn_away(&mut self, command: &[u8], signer: Signer<'_>, what: &str) -> Next {
        self.wrong_signatures += 1;
        let reply = respond(&signer, &Header::of(command), Failure::new(Code::HmacFailure, what).into(), None);
        self.refuse(reply, self.wrong_signatures >= WRONG_SIGNATURES_MAX)
    }

    fn turn_away_pin(&mut self, signer: &Signer<'_>, header: &Header, kind: RequestKind, answer: Answer) -> Next {
        self.service.metrics.count(kind, answer.code, 0);
        self.wrong_pins += 1;
        self.refuse(respond(signer, header, answer, None), self.wrong_pins >= WRONG_PINS_MAX)
    }

    /// Answers somebody who is not who they say. `last`: they said so too often.
    fn refuse(&self, reply: Reply, last: bool) -> Next {
        self.service.metrics.turned_away.inc();
        if last { Next::Last(reply) } else { Next::Answer(reply) }
    }

    /// Sends wait as the drive's link says.
    async fn pace(&self, bytes: u64) {
        if let Some(wait) = self.service.device.send(bytes) {
            wait.await;
        }
    }
}

fn place_wanted() -> Failure {
    Failure::new(Code::ServiceBusy, "other clients need this connection's place")
}

fn check_cluster(header: &Header, version: i64) -> Result<(), Failure> {
    let named = header.cluster_version.unwrap_or(0);
    match named == version {
        true => Ok(()),
        false => Err(Failure::new(Code::VersionFailure, format!("the cluster version is {version}, and not {named}"))),
    }
}
