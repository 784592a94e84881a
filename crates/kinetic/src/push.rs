//! PEER2PEERPUSH: the drive puts entries to another drive, and has that one push them on.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use pithead_sched::TaskLost;
use pithead_store::{Entry, Value};
use tokio::time::{Instant, timeout};

use crate::client::{Client, ClientError, ClientOptions, Reply, Trust};
use crate::code::{Code, Failure, RequestKind};
use crate::execute::{Answer, Call};
use crate::identity::Permission;
use crate::limits::check_bytes;
use crate::proto::{Body, Header, KeyValue, P2pOperation, Peer, PushOperation, Status};
use crate::service::Service;

/// Entries of one request, those that are pushed on included.
const OPERATIONS_MAX: usize = 1_024;
/// How many drives a push may go through.
const DEPTH_MAX: usize = 8;
/// How long the other drive may take for a connection, or for one entry and what it pushes on.
const PEER_WAIT: Duration = Duration::from_secs(20);
/// Bytes that are kept of a text which another drive says of an entry.
const TEXT_BYTES_MAX: usize = 128;

impl Service {
    /// Pushes all entries of a request. Each has its own status in the answer, those that other drives pushed on included.
    pub(crate) async fn push(self: &Arc<Self>, call: &Call) -> Result<Answer, Failure> {
        let asked = call.body.p2p_operation.as_ref().ok_or_else(|| Failure::invalid("PEER2PEERPUSH has a p2pOperation"))?;
        call.check(Permission::Push, None)?;
        if count(asked, DEPTH_MAX).is_none_or(|count| count > OPERATIONS_MAX) {
            let what = format!("at most {OPERATIONS_MAX} entries are pushed at once, through at most {DEPTH_MAX} drives");
            return Err(Failure::invalid(what));
        }
        let options = self.peer_options(call, asked.peer.as_ref())?;
        let mut done = asked.clone();
        clear(&mut done);
        let pushed = self.push_all(call, options, &mut done.operation).await;
        let all = settle(&mut done, pushed.is_ok());
        let answer = match pushed {
            Err(failure) => failure.into(),
            Ok(()) if all => Answer::success(),
            Ok(()) => nested_errors().into(),
        };
        Ok(Answer { body: Some(Body { p2p_operation: Some(done), ..Body::default() }), ..answer })
    }

    /// To the other drive as who asks for it: the identity and its key have to be known there, too.
    fn peer_options(&self, call: &Call, peer: Option<&Peer>) -> Result<ClientOptions, Failure> {
        let peer = peer.ok_or_else(|| Failure::invalid("a push names the other drive"))?;
        let port = peer.port.and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0);
        let host = peer.hostname.as_deref().filter(|host| !host.is_empty());
        let (Some(host), Some(port)) = (host, port) else {
            return Err(Failure::invalid("a push names the other drive's host and port"));
        };
        Ok(ClientOptions {
            host: host.to_owned(),
            port,
            tls: (peer.tls == Some(true)).then_some(Trust::Anyone),
            identity: call.identity.number,
            key: call.identity.key.clone(),
            wait: PEER_WAIT,
            limits: self.options.limits,
        })
    }

    /// Pushes entries until the time is over or the connection is lost; that is the error then, and the rest have no status.
    async fn push_all(
        self: &Arc<Self>,
        call: &Call,
        options: ClientOptions,
        operations: &mut [PushOperation],
    ) -> Result<(), Failure> {
        let options = ClientOptions { wait: time_left(call)?, ..options };
        let mut client = Client::connect(&options).await.map_err(|error| lost(call, remote(&error)))?;
        for operation in operations {
            time_left(call)?;
            self.push_one(call, operation, &mut client).await?;
        }
        Ok(())
    }

    /// Pushes one entry, and has what lies within it pushed on if it arrived. An error: no other entry can be pushed.
    async fn push_one(
        self: &Arc<Self>,
        call: &Call,
        operation: &mut PushOperation,
        client: &mut Client,
    ) -> Result<(), Failure> {
        let (value, entry) = match self.read_to_push(call, operation).await {
            Ok(read) => read,
            Err(failure) => {
                operation.status = Some(status(failure.code, &failure.what));
                return Ok(());
            }
        };
        let put = Body { key_value: Some(put_of(operation, &entry)), ..Body::default() };
        let reply = match ask(call, client, RequestKind::Put, put, value).await? {
            Ok(reply) => reply,
            Err(error) => {
                operation.status = Some(status(Code::RemoteConnectionError, &error.to_string()));
                return Err(lost(call, nested_errors()));
            }
        };
        operation.status = Some(status(reply.code, &reply.what));
        match &mut operation.p2pop {
            Some(nested) if reply.code == Code::Success => push_on(call, nested, client).await,
            _ => Ok(()),
        }
    }

    async fn read_to_push(self: &Arc<Self>, call: &Call, operation: &PushOperation) -> Result<(Value, Entry), Failure> {
        let key = operation.key.clone().unwrap_or_default();
        check_bytes("key", key.len(), self.options.limits.key_bytes)?;
        call.check(Permission::Read, Some(&key))?;
        let (service, identity, tls) = (Arc::clone(self), Arc::clone(&call.identity), call.link.tls);
        let read = move || service.space(&identity, tls).get(&key);
        let turn = self.turn(call).await?;
        let read = self.pool.spawn_blocking(read).await;
        drop(turn);
        read.map_err(|lost: TaskLost| Failure::new(Code::InternalError, lost.to_string()))??.ok_or_else(Failure::not_found)
    }
}

/// Has the other drive push entries on, and takes over what it says of them. An error: no other entry can be pushed.
async fn push_on(call: &Call, nested: &mut P2pOperation, client: &mut Client) -> Result<(), Failure> {
    let asked = Body { p2p_operation: Some(nested.clone()), ..Body::default() };
    // Whether the other drive has no more time because this request has none.
    let all_time = time_left(call)? < PEER_WAIT;
    let reply = match ask(call, client, RequestKind::Peer2PeerPush, asked, Bytes::new()).await? {
        Ok(reply) => reply,
        Err(error) => {
            // Nobody knows how far it came.
            let unknown = status(Code::RemoteConnectionError, &error.to_string());
            take_over(nested, P2pOperation::default(), Some(&unknown), Some(&unknown));
            return Err(lost(call, nested_errors()));
        }
    };
    let own = status(reply.code, &reply.what);
    let (here, within) = match reply.code {
        Code::Success => (Some(&own), Some(&own)),
        Code::NestedOperationErrors | Code::Expired => (None, None),
        // All was refused.
        _ => (Some(&own), None),
    };
    take_over(nested, reply.body.p2p_operation.unwrap_or_default(), here, within);
    if reply.code == Code::Expired && all_time { Err(expired()) } else { Ok(()) }
}

/// One call of the other drive, within the time that is left. The outer error: there is none.
async fn ask(
    call: &Call,
    client: &mut Client,
    kind: RequestKind,
    body: Body,
    value: Bytes,
) -> Result<Result<Reply, ClientError>, Failure> {
    let wait = time_left(call)?;
    // The other drive has somewhat less time, so that it can say how far it came.
    let told = (wait - wait / 10).as_millis().max(1);
    let header = Header { message_type: Some(kind as i32), timeout: i64::try_from(told).ok(), ..Header::default() };
    let replied = timeout(wait, client.call_with(header, body, value)).await;
    Ok(replied.unwrap_or(Err(ClientError::Late(wait))))
}

/// How long the next call may take; a failure if the time of the request is over, or nobody waits for its answer.
fn time_left(call: &Call) -> Result<Duration, Failure> {
    if call.is_abandoned() {
        return Err(Failure::new(Code::ConnectionTerminated, "the push was ended with its connection"));
    }
    let Some(until) = call.until else { return Ok(PEER_WAIT) };
    let left = until.saturating_duration_since(Instant::now());
    Some(left).filter(|left| !left.is_zero()).map(|left| left.min(PEER_WAIT)).ok_or_else(expired)
}

fn expired() -> Failure {
    Failure::new(Code::Expired, "the time was over before all entries were pushed")
}

/// Why no more is pushed after a call failed: the time was over, or else `failure`.
fn lost(call: &Call, failure: Failure) -> Failure {
    time_left(call).err().unwrap_or(failure)
}

fn nested_errors() -> Failure {
    Failure::new(Code::NestedOperationErrors, "some entries were not pushed")
}

fn put_of(operation: &PushOperation, entry: &Entry) -> KeyValue {
    // Without a version, the other drive's value is replaced whatever it is.
    let force = operation.force == Some(true) || operation.version.is_none();
    KeyValue {
        key: operation.new_key.clone().or_else(|| operation.key.clone()),
        new_version: Some(entry.version.clone()),
        db_version: operation.version.clone().filter(|_| !force),
        tag: Some(entry.tag.bytes.clone()),
        algorithm: Some(entry.tag.algorithm).filter(|algorithm| *algorithm != 0),
        force: Some(force),
        synchronization: Some(1),
        ..KeyValue::default()
    }
}

fn status(code: Code, what: &str) -> Status {
    let status_message = (!what.is_empty()).then(|| shortened(what).to_owned());
    Status { code: Some(code as i32), status_message, detailed_message: None }
}

/// Forgets what a client says of entries that are yet to be pushed.
fn clear(push: &mut P2pOperation) {
    push.all_child_operations_succeeded = None;
    for operation in &mut push.operation {
        operation.status = None;
        if let Some(nested) = &mut operation.p2pop {
            clear(nested);
        }
    }
}

/// Takes over what another drive says of entries that it pushed on, and no more than that. Those of which it says nothing get the
/// status `here`, which also tells why others were not attempted, and those that lie within them `within`.
fn take_over(asked: &mut P2pOperation, told: P2pOperation, here: Option<&Status>, within: Option<&Status>) {
    let mut told = told.operation.into_iter();
    let refused = here.is_some_and(|here| here.code != Some(Code::Success as i32));
    for operation in &mut asked.operation {
        let told = told.next().unwrap_or_default();
        let code = told.status.as_ref().and_then(|status| status.code);
        let code = code.filter(|code| !(refused && *code == Code::NotAttempted as i32));
        operation.status = match (code, told.status) {
            (Some(code), Some(told)) => {
                let text = told.status_message.as_deref().map(|text| shortened(text).to_owned());
                Some(Status { code: Some(code), status_message: text, detailed_message: None })
            }
            _ => here.cloned(),
        };
        if let Some(nested) = &mut operation.p2pop {
            take_over(nested, told.p2pop.map(|told| *told).unwrap_or_default(), within, within);
        }
    }
}

/// What has no status by now was not attempted. Whether all entries arrived, those that were pushed on included; `all`: nothing
/// failed besides.
fn settle(push: &mut P2pOperation, mut all: bool) -> bool {
    for operation in &mut push.operation {
        let own = operation.status.get_or_insert_with(|| status(Code::NotAttempted, "what had to be before it failed"));
        let arrived = own.code == Some(Code::Success as i32);
        let nested = operation.p2pop.as_deref_mut().is_none_or(|nested| settle(nested, arrived));
        all &= arrived && nested;
    }
    push.all_child_operations_succeeded = Some(all);
    all
}

/// The beginning of a text.
fn shortened(text: &str) -> &str {
    &text[..text.floor_char_boundary(TEXT_BYTES_MAX)]
}

fn remote(error: &ClientError) -> Failure {
    Failure::new(Code::RemoteConnectionError, error.to_string())
}

/// Operations of a push, those within included; none: they lie too deep.
fn count(push: &P2pOperation, depth: usize) -> Option<usize> {
    let depth = depth.checked_sub(1)?;
    push.operation.iter().try_fold(push.operation.len(), |sum, operation| {
        let nested = operation.p2pop.as_deref().map_or(Some(0), |nested| count(nested, depth));
        Some(sum + nested?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(code: Option<Code>, within: Option<P2pOperation>) -> PushOperation {
        PushOperation { status: code.map(|code| status(code, "")), p2pop: within.map(Box::new), ..PushOperation::default() }
    }

    fn push(operation: Vec<PushOperation>) -> P2pOperation {
        P2pOperation { operation, ..P2pOperation::default() }
    }

    /// The codes of all entries, those within an entry after it.
    fn codes(push: &P2pOperation) -> Vec<Code> {
        let one = |it: &PushOperation| {
            let own = it.status.as_ref().and_then(|status| status.code).and_then(Code::of);
            own.into_iter().chain(it.p2pop.as_deref().map(codes).unwrap_or_default()).collect::<Vec<_>>()
        };
        push.operation.iter().flat_map(one).collect()
    }

    #[test]
    fn what_was_not_attempted_is_told_at_all_depths() {
        use Code::{NotAttempted, NotFound, Success};
        let deep = || push(vec![of(None, Some(push(vec![of(None, None)])))]);
        let mut asked = push(vec![of(Some(Success), None), of(Some(NotFound), Some(deep())), of(None, None)]);
        assert!(!settle(&mut asked, true));
        assert_eq!(codes(&asked), [Success, NotFound, NotAttempted, NotAttempted, NotAttempted]);
        let nested = asked.operation[1].p2pop.as_ref().unwrap();
        let deeper = nested.operation[0].p2pop.as_ref().unwrap();
        for push in [&asked, &**nested, &**deeper] {
            assert_eq!(push.all_child_operations_succeeded, Some(false));
        }
        let mut arrived = push(vec![of(Some(Success), Some(push(vec![of(Some(Success), None)])))]);
        assert!(settle(&mut arrived, true) && arrived.all_child_operations_succeeded == Some(true));
        assert!(!settle(&mut arrived, false), "the connection was lost");
    }

    #[test]
    fn another_drive_speaks_of_the_entries_that_it_was_given() {
        use Code::{NotAttempted, NotAuthorized, NotFound, Success};
        let asked = || push(vec![of(None, Some(push(vec![of(None, None)]))), of(None, None)]);
        let taken = |told: P2pOperation, here: Option<Code>, within: Option<Code>| {
            let mut asked = asked();
            let [here, within] = [here, within].map(|code| code.map(|code| status(code, "")));
            take_over(&mut asked, told, here.as_ref(), within.as_ref());
            settle(&mut asked, true);
            codes(&asked)
        };
        let some = || push(vec![of(Some(Success), Some(push(vec![of(Some(NotFound), None)])))]);
        assert_eq!(taken(some(), None, None), [Success, NotFound, NotAttempted]);
        assert_eq!(taken(push(vec![]), Some(Success), Some(Success)), [Success, Success, Success]);
        assert_eq!(taken(push(vec![]), Some(NotAuthorized), None), [NotAuthorized, NotAttempted, NotAuthorized]);
        let unattempted = push(vec![of(Some(NotAttempted), None), of(Some(NotAttempted), None), of(Some(Success), None)]);
        assert_eq!(taken(unattempted, Some(NotAuthorized), None), [NotAuthorized, NotAttempted, NotAuthorized]);
        let odd = push(vec![of(Some(NotAttempted), None), of(Some(Success), None)]);
        assert_eq!(taken(odd, Some(Success), Some(Success)), [NotAttempted, Success, Success]);
        // Texts of others are not kept at any length.
        let long =
            Status { code: Some(7), status_message: Some("\u{e9}".repeat(TEXT_BYTES_MAX)), detailed_message: Some("x".into()) };
        let mut one = push(vec![of(None, None)]);
        take_over(&mut one, push(vec![PushOperation { status: Some(long), ..PushOperation::default() }]), None, None);
        let kept = one.operation[0].status.clone().unwrap();
        assert_eq!((kept.status_message.unwrap().len(), kept.detailed_message), (TEXT_BYTES_MAX, None));
    }

    #[test]
    fn pushes_have_a_depth_and_a_number() {
        let mut push = P2pOperation { operation: vec![PushOperation::default(); 3], ..P2pOperation::default() };
        assert_eq!(count(&push, DEPTH_MAX), Some(3));
        for deeper in 2..=DEPTH_MAX {
            let operation = vec![PushOperation { p2pop: Some(Box::new(push)), ..PushOperation::default() }];
            push = P2pOperation { operation, ..P2pOperation::default() };
            assert_eq!(count(&push, DEPTH_MAX), Some(2 + deeper));
        }
        assert_eq!(count(&push, DEPTH_MAX - 1), None);
    }
}
