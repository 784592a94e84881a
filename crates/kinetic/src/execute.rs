//! [`Call`] and [`Answer`], and what does which request. All that is here may block.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use tokio::time::Instant;

use crate::applets::Caller;
use crate::code::{Code, Failure, RequestKind};
use crate::identity::{Identity, Permission};
use crate::limits::Limits;
use crate::proto::{Body, Header, KeyValue};
use crate::service::Service;

/// What a request knows of the connection that it came over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    pub tls: bool,
    /// Where the other end is.
    pub peer: IpAddr,
    /// The other end is on this machine.
    pub loopback: bool,
    /// The address that the client called.
    pub local: Option<SocketAddr>,
}

/// A request whose sender is known.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub kind: RequestKind,
    pub header: Header,
    pub body: Body,
    pub value: Bytes,
    pub identity: Arc<Identity>,
    pub link: Link,
    /// When its timeout is over.
    pub until: Option<Instant>,
    /// Of a request that may take long: whether nobody waits for its answer any more.
    pub abandoned: Option<Arc<AtomicBool>>,
}

/// What a request is answered.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub code: Code,
    pub what: String,
    pub detailed: Option<Bytes>,
    pub body: Option<Body>,
    pub value: Bytes,
}

impl Answer {
    pub fn success() -> Answer {
        Answer { code: Code::Success, what: String::new(), detailed: None, body: None, value: Bytes::new() }
    }

    pub fn with(body: Body) -> Answer {
        Answer { body: Some(body), ..Answer::success() }
    }
}

impl From<Failure> for Answer {
    fn from(failure: Failure) -> Answer {
        Answer { code: failure.code, what: failure.what, ..Answer::success() }
    }
}

impl Call {
    /// Refuses what the identity may not do with a key, or, without one, at all.
    pub fn check(&self, permission: Permission, key: Option<&[u8]>) -> Result<(), Failure> {
        self.identity.check(permission, key, self.link.tls)
    }

    pub fn is_overdue(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() >= until)
    }

    pub fn is_abandoned(&self) -> bool {
        self.abandoned.as_ref().is_some_and(|abandoned| abandoned.load(Ordering::Relaxed))
    }

    /// Who asks, and what they are held to.
    pub fn caller(&self, limits: &Limits) -> Caller {
        Caller { identity: Arc::clone(&self.identity), tls: self.link.tls, limits: *limits }
    }

    /// What the request says of its key.
    pub fn key_value(&self) -> Result<&KeyValue, Failure> {
        self.body.key_value.as_ref().ok_or_else(|| Failure::invalid(format!("{} has a keyValue", self.kind.name())))
    }
}

impl Service {
    /// Does a request. Pushes to other drives wait for a network, and programs for themselves: both are done elsewhere.
    pub(crate) fn execute(&self, call: &Call) -> Answer {
        if call.is_overdue() {
            return Failure::new(Code::ServiceBusy, "the time for the request was over before its turn came").into();
        }
        let done = match call.kind {
            RequestKind::Get => self.get(call),
            RequestKind::GetVersion => self.get_version(call),
            RequestKind::GetNext => self.get_near(call, false),
            RequestKind::GetPrevious => self.get_near(call, true),
            RequestKind::Put => self.put(call),
            RequestKind::Delete => self.delete(call),
            RequestKind::GetKeyRange => self.get_key_range(call),
            RequestKind::GetLog => self.get_log(call),
            RequestKind::Setup => self.setup(call),
            RequestKind::Security => self.security(call),
            RequestKind::FlushAllData => self.store.flush().map(|()| Answer::success()).map_err(Failure::from),
            RequestKind::MediaScan => self.media_scan(call),
            RequestKind::MediaOptimize => self.media_optimize(call),
            RequestKind::SetPowerLevel => self.set_power_level(call),
            RequestKind::Noop => Ok(Answer::success()),
            RequestKind::PinOp => Err(Failure::invalid("PINOP is signed with a PIN")),
            RequestKind::Peer2PeerPush
            | RequestKind::ManageApplet
            | RequestKind::StartBatch
            | RequestKind::EndBatch
            | RequestKind::AbortBatch => Err(Failure::new(Code::InternalError, "the request went astray within the drive")),
        };
        let mut answer = done.unwrap_or_else(|failure| failure.into());
        if call.kind.has_key() && answer.body.is_none() {
            answer.body = Some(Body { key_value: Some(KeyValue::default()), ..Body::default() });
        }
        if answer.code == Code::PermDataError && call.header.early_exit == Some(true) {
            answer.code = Code::DataError;
        }
        answer
    }
}
