//! [`Talk`]: a connection's messages, one after the other, until one of both has enough.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::Arc;

use pithead_entry::{Identity, Peer, TurnedAway};
use pithead_host::{Client, Commitment, Deadline, Session};
use pithead_model::{Blame, Fault};
use pithead_pg_catalog::DATABASE;
use tokio::sync::watch;

use crate::block_settings::BlockSettings;
use crate::cancel::{Cancel, ConnectionPlace, Holder};
use crate::control::unknown_setting;
use crate::deadline::{STATEMENT, in_time_of};
use crate::error::Complaint;
use crate::link::{Link, MESSAGE_BYTES_MAX, Read};
use crate::message::{Malformed, Message};
use crate::options::options;
use crate::portal::{Portal, Prepared};
use crate::savepoints::Savepoints;
use crate::serve::{Entrance, Front};
use crate::settings::{ClientSettings, Effect, is_of_host, of_later_blocks};
use crate::sql_state::{
    NOT_AUTHORIZED, NOT_SUPPORTED, PROTOCOL_VIOLATION, SHUTDOWN, TOO_LARGE, UNKNOWN_REQUEST, WRONG_ENCODING, WRONG_SETTING,
};
use crate::startup::Begun;
use crate::transaction::Transaction;

/// Why something ended before it was done.
#[derive(Debug)]
pub(crate) enum Halt {
    /// The client is told, and the connection goes on.
    Said(Complaint),
    /// The host or a drive says it of a statement.
    Fault(Fault),
    /// The client is told, and the connection ends.
    Last(Complaint),
    /// The client has gone.
    Gone,
}

impl From<Complaint> for Halt {
    fn from(complaint: Complaint) -> Halt {
        Halt::Said(complaint)
    }
}

impl From<Fault> for Halt {
    fn from(fault: Fault) -> Halt {
        Halt::Fault(fault)
    }
}

impl From<io::Error> for Halt {
    fn from(_: io::Error) -> Halt {
        Halt::Gone
    }
}

/// What a connection has and does.
pub(crate) struct Talk {
    pub(crate) front: Arc<Front>,
    pub(crate) entrance: Arc<Entrance>,
    pub(crate) link: Link,
    peer: Arc<Peer>,
    token: Option<Vec<u8>>,
    /// Who it is, as the access file had it at the last statement.
    caller: Arc<Identity>,
    pub(crate) place: ConnectionPlace,
    pub(crate) session: Arc<Session>,
    pub(crate) settings: Arc<ClientSettings>,
    pub(crate) transaction: Transaction,
    /// Of the block that is open; outside of one, what the last one left.
    pub(crate) savepoints: Savepoints,
    pub(crate) block_settings: BlockSettings,
    /// The values that settings of the host had at the beginning, of those that the client has set since.
    pub(crate) host_first: BTreeMap<String, String>,
    pub(crate) statements: HashMap<String, Arc<Prepared>>,
    pub(crate) portals: HashMap<String, Portal>,
    /// A message of a run has failed: the others of it are not looked at.
    pub(crate) skipping: bool,
    parameters: Vec<(String, String)>,
}

impl Talk {
    pub(crate) fn new(front: Arc<Front>, entrance: Arc<Entrance>, begun: Begun) -> Talk {
        let Begun { link, peer, caller, token, user, parameters } = begun;
        let named = parameters.iter().find(|(name, database)| name == "database" && !database.is_empty());
        let database = named.map_or(DATABASE, |(_, database)| database);
        let settings = ClientSettings::new(&user, database, &front.host.options().domain);
        let place = front.running.enter(Holder::from(caller.as_ref()));
        settings.is_among(place.running(), place.process);
        let shown = Arc::<ClientSettings>::clone(&settings);
        let client = Client { caller: Arc::clone(&caller), user, process: i64::from(place.process), shown };
        let session = Arc::new(front.host.session_for(client));
        Talk {
            front,
            entrance,
            link,
            peer,
            token,
            caller,
            place,
            session,
            settings,
            transaction: Transaction::None,
            savepoints: Savepoints::default(),
            block_settings: BlockSettings::default(),
            host_first: BTreeMap::new(),
            statements: HashMap::new(),
            portals: HashMap::new(),
            skipping: false,
            parameters,
        }
    }

    /// Talks to the client. What runs for it ends with this.
    pub(crate) async fn run(mut self, stop: watch::Receiver<bool>) {
        let ended = match self.welcome().await {
            Ok(()) => self.messages(stop).await,
            Err(halt) => halt,
        };
        match ended {
            Halt::Last(complaint) => {
                self.front.metrics.errors.inc();
                self.link.out.error(&complaint);
                self.link.close().await;
            }
            Halt::Said(_) | Halt::Fault(_) | Halt::Gone => self.link.close().await,
        }
    }

    /// Takes the settings that the connection began with, and says that statements are taken.
    async fn welcome(&mut self) -> Result<(), Halt> {
        // First of all: clients expect nothing before it but questions who they are.
        self.link.out.authentication(0);
        for (name, value) in std::mem::take(&mut self.parameters) {
            match name.as_str() {
                "user" | "database" | "replication" => {}
                "options" => {
                    for (name, value) in options(&value) {
                        self.begin_with(&name, &value).await?;
                    }
                }
                name if name.starts_with("_pq_.") => {}
                name => self.begin_with(name, &value).await?,
            }
        }
        self.settings.begun();
        self.host_first.clear();
        for (name, value) in self.settings.told() {
            self.link.out.parameter(name, &value);
        }
        self.link.out.key(self.place.process, self.place.secret);
        self.link.out.ready(b'I');
        Ok(self.link.flush().await?)
    }

    /// Sets what the connection begins with. No block is open yet: what is a block's is meant for all to come.
    async fn begin_with(&mut self, name: &str, value: &str) -> Result<(), Halt> {
        self.set(of_later_blocks(name), value).await.map_err(|halt| match halt {
            Halt::Said(complaint) => Halt::Last(Complaint { severity: "FATAL", ..complaint }),
            Halt::Fault(fault) => Halt::Last(Complaint::fatal(WRONG_SETTING, fault.message)),
            other => other,
        })
    }

    /// Sets a setting, here or at the host's session, and tells the client where that is usual.
    pub(crate) async fn set(&mut self, name: &str, value: &str) -> Result<(), Halt> {
        if is_of_host(name) {
            return self.set_at_host(&name.to_lowercase(), value).await;
        }
        // What the host refuses is not kept here.
        let (before, effect) = (self.settings.value(&name.to_lowercase()), self.settings.set(name, value)?);
        let done = match &effect {
            Effect::Session(at, value) | Effect::SessionAndTold(at, value, _) => self.set_at_session(at, value).await,
            Effect::Path => self.look_along().await,
            Effect::None | Effect::Told(_) => Ok(()),
        };
        if done.is_err()
            && let Some(before) = before
        {
            let _ = self.settings.set(name, &before);
        }
        done?;
        if let Effect::Told(told) | Effect::SessionAndTold(_, _, told) = effect {
            let value = self.settings.show(told).unwrap_or_default();
            self.link.out.parameter(told, &value);
        }
        Ok(())
    }

    /// Sets a setting of the host. `default` is the value that it had at the beginning.
    async fn set_at_host(&mut self, name: &str, value: &str) -> Result<(), Halt> {
        if value.eq_ignore_ascii_case("default") {
            return match self.host_first.remove(name) {
                Some(first) => self.set_at_session(name, &first).await,
                None => self.shown_by_host(name).await?.map(|_| ()).ok_or_else(|| unknown_setting(name).into()),
            };
        }
        if !self.host_first.contains_key(name) {
            let first = self.shown_by_host(name).await.unwrap_or_default();
            self.host_first.extend(first.map(|first| (name.to_owned(), first)));
        }
        self.set_at_session(name, value).await
    }

    pub(crate) async fn set_at_session(&mut self, name: &str, value: &str) -> Result<(), Halt> {
        const ENGINE: [&str; 2] = ["datafusion.execution.time_zone", "datafusion.catalog.default_schema"];
        if !name.starts_with("pithead.") && !ENGINE.contains(&name) {
            let message = format!("{name} is no setting that clients may change");
            return Err(Complaint::error("42501", message).hint("those of Pithead begin with pithead.").into());
        }
        let quoted = value.replace('\'', "''");
        self.session.run(&format!("SET {name} = '{quoted}'")).await.map_err(wrong_setting)?;
        Ok(())
    }

    async fn messages(&mut self, mut stop: watch::Receiver<bool>) -> Halt {
        loop {
            let read = tokio::select! {
                read = self.link.next() => read,
                _ = stop.wait_for(|stop| *stop) => {
                    return Halt::Last(Complaint::fatal(SHUTDOWN, "terminating connection: the server stops"));
                }
                () = self.place.cancel.last_asked() => return ended(),
            };
            let answered = match read {
                Read::Message(tag, body) => match Message::read(tag, body) {
                    Ok(message) => self.answer(message).await,
                    Err(Malformed::Text(what)) => self.refuse(tag, Complaint::error(WRONG_ENCODING, what)).await,
                    // Its end is known, whatever it says.
                    Err(Malformed::Bytes(what)) if is_of_statements(tag) => {
                        self.refuse(tag, Complaint::error(PROTOCOL_VIOLATION, what)).await
                    }
                    Err(Malformed::Bytes(what)) => Err(Halt::Last(Complaint::fatal(PROTOCOL_VIOLATION, what))),
                },
                Read::TooLarge { tag, bytes, busy } => self.refuse(tag, too_large(bytes, busy)).await,
                Read::Malformed(what) => Err(Halt::Last(Complaint::fatal(PROTOCOL_VIOLATION, what))),
                Read::Gone => Err(Halt::Gone),
            };
            if let Err(halt) = answered {
                return halt;
            }
        }
    }

    async fn answer(&mut self, message: Message) -> Result<(), Halt> {
        if self.skipping && !matches!(message, Message::Sync | Message::Terminate) {
            return Ok(());
        }
        match message {
            Message::Terminate => Err(Halt::Gone),
            Message::Query(sql) => self.simple(sql).await,
            Message::Sync => {
                self.skipping = false;
                if self.transaction == Transaction::None {
                    self.end_portals(true);
                }
                self.ready().await
            }
            Message::Flush => Ok(self.link.flush().await?),
            // COPY FROM has ended already, and the client does not know it yet.
            Message::CopyData(_) | Message::CopyDone | Message::CopyFail(_) => Ok(()),
            Message::Password(_) => Err(Halt::Last(Complaint::fatal(PROTOCOL_VIOLATION, "nobody asked for a password"))),
            Message::FunctionCall => {
                let what = "functions are not called by number here";
                self.complain(&Complaint::error(NOT_SUPPORTED, what).hint("call them in a statement"));
                self.ready().await
            }
            extended => {
                self.place.cancel.begin();
                let done = self.extended(extended).await;
                self.place.cancel.end();
                self.failed_run(done).await
            }
        }
    }

    /// What fails of the extended protocol is told, and the run's other messages are skipped.
    async fn failed_run(&mut self, done: Result<(), Halt>) -> Result<(), Halt> {
        let complaint = match done {
            Err(Halt::Said(complaint)) => complaint,
            Err(Halt::Fault(fault)) => Complaint::of(&fault, ""),
            other => return other,
        };
        self.fail(&complaint);
        self.skipping = true;
        // At once: a client may wait for it before it ends the run.
        Ok(self.link.flush().await?)
    }

    /// Refuses a message whose end is known, and goes on.
    async fn refuse(&mut self, tag: u8, complaint: Complaint) -> Result<(), Halt> {
        match tag {
            _ if self.skipping => Ok(()),
            b'Q' => {
                self.fail(&complaint);
                self.ready().await
            }
            b'd' | b'c' | b'f' => Ok(()),
            _ => self.failed_run(Err(complaint.into())).await,
        }
    }

    /// Says that the next statement is taken.
    pub(crate) async fn ready(&mut self) -> Result<(), Halt> {
        self.link.out.ready(self.transaction.status());
        Ok(self.link.flush().await?)
    }

    /// A statement has failed, and the client is told.
    pub(crate) fn fail(&mut self, complaint: &Complaint) {
        self.transaction.fail();
        // What its functions asked for fails with it.
        self.settings.take_asked();
        self.complain(complaint);
    }

    fn complain(&mut self, complaint: &Complaint) {
        self.front.metrics.errors.inc();
        self.link.out.error(complaint);
    }

    /// Tells what a person should know, unless the client does not want it.
    pub(crate) fn notice(&mut self, notice: Option<Complaint>) {
        let quiet = self
            .settings
            .show("client_min_messages")
            .is_some_and(|level| matches!(level.as_str(), "error" | "fatal" | "panic"));
        if let Some(notice) = notice.filter(|_| !quiet) {
            self.link.out.notice(&notice);
        }
    }

    /// Who calls, and what it may: the access file may be another one by now. Cursors that began by other rights end.
    pub(crate) fn admit(&mut self) -> Result<(), Halt> {
        match self.entrance.doorman.admit(&self.peer, || Ok(self.token.as_deref())) {
            Ok(caller) => {
                if self.caller != caller {
                    self.end_running();
                    self.caller = Arc::clone(&caller);
                    self.place.set_holder(Holder::from(caller.as_ref()));
                    self.session.set_caller(caller);
                }
                Ok(())
            }
            Err(TurnedAway::Unknown(_)) => {
                let what = "the credentials that this connection began with are not known any more";
                Err(Halt::Last(Complaint::fatal(NOT_AUTHORIZED, what)))
            }
            Err(TurnedAway::TooMany(fault)) => Err(Halt::Last(Complaint::fatal("53300", fault.message))),
        }
    }
}

/// What is said of a value that a setting of the host does not take.
fn wrong_setting(fault: Fault) -> Halt {
    let complaint = Complaint::of(&fault, "");
    match complaint.code == UNKNOWN_REQUEST {
        true => Halt::Said(Complaint { code: WRONG_SETTING, ..complaint }),
        false => Halt::Fault(fault),
    }
}

/// Whether a message is one of those that statements are made of, after which a connection goes on where one of them is wrong.
fn is_of_statements(tag: u8) -> bool {
    matches!(tag, b'Q' | b'P' | b'B' | b'D' | b'E' | b'C')
}

/// What is said of a message that is too large, or that came when too many large ones did.
pub(crate) fn too_large(bytes: usize, busy: bool) -> Complaint {
    match busy {
        true => Complaint::error("53200", "too many large messages of clients are in memory").hint("try again later"),
        false => Complaint::error(TOO_LARGE, format!("a message of {bytes} bytes; at most {MESSAGE_BYTES_MAX} are allowed"))
            .hint("load rows by COPY … FROM STDIN or `pithead load`"),
    }
}

/// Does work for a statement, until it is cancelled or the client has gone.
pub(crate) async fn during<T>(link: &mut Link, cancel: &Cancel, work: impl Future<Output = T>) -> Result<T, Halt> {
    tokio::select! {
        biased;
        () = cancel.asked() => Err(cancelled(cancel)),
        done = work => Ok(done),
        () = link.gone() => Err(Halt::Gone),
    }
}

/// Does the work that answers a statement, until it is cancelled, its time is over or the client has gone. Once the statement has sent
/// what it changes, all of them come too late: then its outcome is waited for.
pub(crate) async fn answering<T>(
    link: &mut Link,
    cancel: &Cancel,
    commitment: &Commitment,
    deadline: Option<Deadline>,
    work: impl Future<Output = T>,
) -> Result<T, Halt> {
    let mut work = std::pin::pin!(work);
    match in_time_of(deadline, STATEMENT, during(link, cancel, &mut work)).await {
        Ok(done) => Ok(done),
        Err(halt) => {
            let why = if let Halt::Fault(fault) = &halt { fault.clone() } else { cancelled_fault() };
            if commitment.cancel(why) { Err(halt) } else { Ok(work.await) }
        }
    }
}

/// Sends what waits, until that is cancelled. What was not sent waits on.
pub(crate) async fn flush(link: &mut Link, cancel: &Cancel) -> Result<(), Halt> {
    tokio::select! {
        biased;
        () = cancel.asked() => Err(cancelled(cancel)),
        sent = link.flush() => Ok(sent?),
    }
}

/// Why a statement that is to be cancelled ends: its connection may be to end with it.
pub(crate) fn cancelled(cancel: &Cancel) -> Halt {
    if cancel.is_last() { ended() } else { Halt::Fault(cancelled_fault()) }
}

/// Somebody has asked for the end of the connection.
fn ended() -> Halt {
    Halt::Last(Complaint::fatal(SHUTDOWN, "terminating connection due to administrator command"))
}

fn cancelled_fault() -> Fault {
    Fault::new(Blame::Cancelled, "canceling statement due to user request")
}
