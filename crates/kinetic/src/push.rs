//! PEER2PEERPUSH: the drive puts entries to another drive, and has that one push them on.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use pithead_sched::TaskLost;
use pithead_store::{Entry, Value};
use tokio::time::Instant;

use crate::client::{Client, ClientError, ClientOptions, Reply, Trust};
use crate::code::{Code, Failure, RequestKind};
use crate::execute::{Answer, Call};
use crate::identity::Permission;
use crate::limits::check_bytes;
use crate::proto::{Body, KeyValue, P2pOperation, Peer, PushOperation, Status};
use crate::service::Service;

/// Entries of one request, those that are pushed on included.
const OPERATIONS_MAX: usize = 1_024;
/// How many drives a push may go through.
const DEPTH_MAX: usize = 8;
/// How long the other drive may take for a connection, or for one entry.
const PEER_WAIT: Duration = Duration::from_secs(20);

impl Service {
    /// Pushes all entries of a request. Each has its own status in the answer.
    pub(crate) async fn push(self: &Arc<Self>, call: &Call) -> Result<Answer, Failure> {
        let asked = call.body.p2p_operation.as_ref().ok_or_else(|| Failure::invalid("PEER2PEERPUSH has a p2pOperation"))?;
        call.check(Permission::Push, None)?;
        if count(asked, DEPTH_MAX).is_none_or(|count| count > OPERATIONS_MAX) {
            let what = format!("at most {OPERATIONS_MAX} entries are pushed at once, through at most {DEPTH_MAX} drives");
            return Err(Failure::invalid(what));
        }
        let options = self.peer_options(call, asked.peer.as_ref())?;
        let mut done = asked.clone();
        let mut failed = None;
        match Client::connect(&options).await {
            Err(error) => failed = Some(remote(&error)),
            Ok(mut client) => {
                for operation in &mut done.operation {
                    let (status, lost) = self.push_one(call, operation, &mut client).await;
                    operation.status = Some(status);
                    if lost {
                        break;
                    }
                }
            }
        }
        for operation in &mut done.operation {
            operation.status.get_or_insert_with(|| status(Code::NotAttempted, "the connection to the other drive was lost"));
        }
        let all = failed.is_none() && done.operation.iter().all(succeeded);
        done.all_child_operations_succeeded = Some(all);
        let answer = match (failed, all) {
            (Some(failure), _) => failure.into(),
            (None, true) => Answer::success(),
            (None, false) => Failure::new(Code::NestedOperationErrors, "some entries were not pushed").into(),
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
        let left = call.until.map_or(PEER_WAIT, |until| until.saturating_duration_since(Instant::now()).min(PEER_WAIT));
        Ok(ClientOptions {
            host: host.to_owned(),
            port,
            tls: (peer.tls == Some(true)).then_some(Trust::Anyone),
            identity: call.identity.number,
            key: call.identity.key.clone(),
            wait: left,
            limits: self.options.limits,
        })
    }

    /// Pushes one entry, and says whether the connection was lost.
    async fn push_one(self: &Arc<Self>, call: &Call, operation: &mut PushOperation, client: &mut Client) -> (Status, bool) {
        let (value, entry) = match self.read_to_push(call, operation).await {
            Ok(read) => read,
            Err(failure) => return (status(failure.code, &failure.what), false),
        };
        let put = put_of(operation, &entry);
        let reply = client.call(RequestKind::Put, Body { key_value: Some(put), ..Body::default() }, value).await;
        let reply = match (reply, operation.p2pop.take()) {
            (Ok(Reply { code: Code::Success, .. }), Some(nested)) => {
                let asked = Body { p2p_operation: Some((*nested).clone()), ..Body::default() };
                let reply = client.call(RequestKind::Peer2PeerPush, asked, Bytes::new()).await;
                operation.p2pop = Some(nested);
                reply
            }
            (reply, nested) => {
                operation.p2pop = nested;
                reply
            }
        };
        match reply {
            Err(error) => (status(Code::RemoteConnectionError, &error.to_string()), true),
            Ok(reply) => {
                if let Some(nested) = reply.body.p2p_operation {
                    operation.p2pop = Some(Box::new(nested));
                }
                // That something further on failed is told where it failed: this entry arrived.
                let code = if reply.code == Code::NestedOperationErrors { Code::Success } else { reply.code };
                (status(code, &reply.what), false)
            }
        }
    }

    async fn read_to_push(self: &Arc<Self>, call: &Call, operation: &PushOperation) -> Result<(Value, Entry), Failure> {
        let key = operation.key.clone().unwrap_or_default();
        check_bytes("key", key.len(), self.options.limits.key_bytes)?;
        call.check(Permission::Read, Some(&key))?;
        let (service, identity) = (Arc::clone(self), Arc::clone(&call.identity));
        let read = move || service.space(&identity).get(&key);
        let read = self
            .pool
            .spawn_blocking(read)
            .await
            .map_err(|lost: TaskLost| Failure::new(Code::InternalError, lost.to_string()))?;
        read?.ok_or_else(Failure::not_found)
    }
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
    let status_message = (!what.is_empty()).then(|| what.to_owned());
    Status { code: Some(code as i32), status_message, detailed_message: None }
}

fn succeeded(operation: &PushOperation) -> bool {
    let own = operation.status.as_ref().and_then(|status| status.code) == Some(Code::Success as i32);
    own && operation.p2pop.as_ref().is_none_or(|nested| nested.all_child_operations_succeeded != Some(false))
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
