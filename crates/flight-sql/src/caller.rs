//! [`Caller`]: who calls, and with which settings; and [`Sessions`], the host's sessions that their statements go through.
//!
//! Calls of Flight SQL have no connection that settings could belong to. So settings are headers of the call, or options of a session of
//! Flight's that the call names, and a session of the host's is shared by all calls of one identity with the same settings. Nothing that a
//! statement does changes it.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use parking_lot::Mutex;
use pithead_entry::Identity;
use pithead_host::{Client, Host, Session, is_set};
use pithead_model::{Blame, Fault};
use tonic::Request;
use tonic::metadata::{KeyAndValueRef, MetadataMap};

use crate::cookies::session_of;
use crate::handle_store::Owner;
use crate::reception::Credentials;

/// What the names of headers begin with that are settings.
pub(crate) const SETTING: &str = "pithead.";
/// Settings of the engine's, under names that are ours.
const OF_ENGINE: [(&str, &str); 2] =
    [("pithead.domain", "datafusion.catalog.default_schema"), ("pithead.time_zone", "datafusion.execution.time_zone")];
/// Sessions that are there at a time. Others are made anew when they are needed.
const SESSIONS_MAX: usize = 256;

/// What a session of Flight's has set, by the names of its options.
pub(crate) type Options = BTreeMap<String, String>;

/// Who calls.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) identity: Arc<Identity>,
    /// The session of Flight's that its call names.
    pub(crate) session: Option<Bytes>,
    user: String,
    /// Names and values, sorted.
    settings: Vec<(String, String)>,
}

impl Caller {
    /// The caller of a request that the guard let in.
    pub(crate) fn of<T>(request: &Request<T>) -> Result<Caller, Fault> {
        let identity = request.extensions().get::<Arc<Identity>>().cloned();
        let identity = identity.ok_or_else(|| Fault::bug("a call came without its caller"))?;
        let credentials = request.extensions().get::<Credentials>().cloned().unwrap_or_default();
        let user = credentials.user.unwrap_or_else(|| identity.name.clone());
        let session = session_of(request.metadata());
        Ok(Caller { identity, session, user, settings: settings(request.metadata())? })
    }

    /// The same caller with more settings, where its call does not have them itself.
    pub(crate) fn with_settings(&self, more: impl Iterator<Item = (String, String)>) -> Caller {
        let mut caller = self.clone();
        caller.settings.extend(more.filter(|(name, _)| !self.settings.iter().any(|(own, _)| own == name)));
        caller.settings.sort();
        caller
    }

    /// Whose tickets and statements are its own.
    pub(crate) fn owner(&self) -> Owner {
        self.identity.number()
    }
}

/// The settings among a call's headers.
fn settings(headers: &MetadataMap) -> Result<Vec<(String, String)>, Fault> {
    let mut settings = Vec::new();
    for header in headers.iter() {
        let KeyAndValueRef::Ascii(name, value) = header else { continue };
        let name = name.as_str();
        if !name.starts_with(SETTING) {
            continue;
        }
        let value = value.to_str().map_err(|_| Fault::invalid(format!("the header {name} has a value that is no text")))?;
        if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'.' || byte == b'_') {
            return Err(Fault::invalid(format!("the header {name} names no setting")).hint("SHOW ALL lists the settings"));
        }
        settings.push((setting_name(name).to_owned(), value.to_owned()));
    }
    settings.sort();
    Ok(settings)
}

/// The host's name of a setting.
pub(crate) fn setting_name(name: &str) -> &str {
    OF_ENGINE.iter().find(|(ours, _)| *ours == name).map_or(name, |(_, theirs)| theirs)
}

/// What tells sessions apart.
type Key = (Owner, String, Vec<(String, String)>);

/// The sessions that there are.
#[derive(Default)]
pub(crate) struct Sessions(Mutex<HashMap<Key, (Arc<Session>, Instant)>>);

impl Sessions {
    /// The session for a caller, who may have other rights than when it was made.
    pub(crate) async fn session(&self, host: &Host, caller: &Caller) -> Result<Arc<Session>, Fault> {
        let key = (caller.owner(), caller.user.clone(), caller.settings.clone());
        if let Some((session, used)) = self.0.lock().get_mut(&key) {
            *used = Instant::now();
            session.set_caller(Arc::clone(&caller.identity));
            return Ok(Arc::clone(session));
        }
        let session = Arc::new(made(host, caller).await?);
        let mut sessions = self.0.lock();
        if sessions.len() >= SESSIONS_MAX {
            let oldest = sessions.iter().min_by_key(|(_, (_, used))| *used).map(|(key, _)| key.clone());
            oldest.and_then(|key| sessions.remove(&key));
        }
        sessions.insert(key, (Arc::clone(&session), Instant::now()));
        Ok(session)
    }
}

async fn made(host: &Host, caller: &Caller) -> Result<Session, Fault> {
    let shown = Arc::new(|_: &str| None);
    let client = Client { caller: Arc::clone(&caller.identity), user: caller.user.clone(), process: 0, shown };
    let session = host.session_for(client);
    for (name, value) in &caller.settings {
        let done = session.run(&format!("SET {name} = '{}'", value.replace('\'', "''"))).await;
        done.map_err(|fault| fault.at(format_args!("the setting {name}")))?;
    }
    Ok(session)
}

/// Refuses SET, as the host tells it: it would change a session that other calls share.
pub(crate) fn refuse_set(sql: &str) -> Result<(), Fault> {
    if !is_set(sql) {
        return Ok(());
    }
    let fault = Fault::new(Blame::Unsupported, "SET changes nothing over Flight SQL, whose calls need not be of one session");
    Err(fault.hint(
        "settings are headers of the calls, such as `pithead.pushdown: off`, or options of a session; with ADBC, the option \
         adbc.flight.sql.rpc.call_header.pithead.pushdown",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_the_headers_of_that_name() {
        let mut headers = MetadataMap::new();
        headers.insert("pithead.pushdown", "off".parse().unwrap());
        headers.insert("pithead.domain", "lab".parse().unwrap());
        headers.insert("user-agent", "x".parse().unwrap());
        let expected = [("datafusion.catalog.default_schema", "lab"), ("pithead.pushdown", "off")];
        assert_eq!(settings(&headers).unwrap(), expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
        headers.insert("pithead.a-b", "1".parse().unwrap());
        assert!(settings(&headers).is_err());
    }

    #[test]
    fn set_is_refused_and_nothing_else() {
        for set in ["SET a = 1", " \n set time zone 'UTC'", "set\ta to b", "-- why\n/* because */ SET a = 1;"] {
            assert!(refuse_set(set).is_err(), "{set}");
        }
        for other in ["SELECT 1", "settle", "", "SHOW ALL", "UPDATE t SET a = 1", "-- set a\nSELECT 1"] {
            assert!(refuse_set(other).is_ok(), "{other}");
        }
    }
}
