//! [`ClientSettings`]: what a client has set, as far as it is not the host's.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use arrow::array::timezone::Tz;
use parking_lot::Mutex;
use pithead_pg_catalog::{
    BLOCK_WRITES, ConnectionFacts, CursorFacts, NO_SETTING, PreparedFacts, SETTINGS, SearchPath, Setting, setting,
};

use crate::cancel::Running;
use crate::error::Complaint;
use crate::search_path::{self, Wanted};
use crate::sql_state::{FIXED_SETTING, UNKNOWN_SETTING, WRONG_SETTING};
use crate::time_zone::zone;

/// Longest value of a setting.
const VALUE_BYTES_MAX: usize = 16 << 10;
/// Most settings of a client's own.
const OWN_MAX: usize = 256;
/// The setting of the block that is open, or of those to come.
const BLOCK: [(&str, &str); 2] =
    [("transaction_isolation", "default_transaction_isolation"), ("transaction_read_only", "default_transaction_read_only")];

/// A client's settings, by their names in small letters.
pub(crate) struct ClientSettings {
    values: Mutex<BTreeMap<String, String>>,
    /// What the values were at the beginning: RESET brings them back.
    first: Mutex<BTreeMap<String, String>>,
    /// What the block has that is open.
    block: Mutex<BTreeMap<&'static str, String>>,
    /// What functions of the statement that runs have asked for.
    asked: Mutex<Vec<Asked>>,
    /// Where bare names are looked up, as it was found last.
    path: Mutex<Arc<SearchPath>>,
    /// What is prepared and which cursors there are, as the catalogue was told last.
    pub(crate) listed: Mutex<(Vec<PreparedFacts>, Vec<CursorFacts>)>,
    /// All connections, and the number of this one.
    among: OnceLock<(Arc<Running>, i32)>,
    pub(crate) user: String,
    database: String,
    /// The domain of who sets no path.
    domain: String,
}

/// A setting that a function has asked to be set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) name: String,
    pub(crate) value: String,
    pub(crate) local: bool,
}

/// What is to be done beside keeping a value.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Nothing.
    None,
    /// The client is told of the setting's new value.
    Told(&'static str),
    /// The host's session takes it under this name.
    Session(&'static str, String),
    /// The same, and the client is told.
    SessionAndTold(&'static str, String, &'static str),
    /// Names are looked up elsewhere.
    Path,
}

/// Whether a setting is the host's, and none of those that are kept here.
pub(crate) fn is_of_host(name: &str) -> bool {
    const PREFIXES: [&str; 2] = ["pithead.", "datafusion."];
    let name = name.to_ascii_lowercase();
    PREFIXES.iter().any(|prefix| name.starts_with(prefix)) && setting(&name).is_none()
}

/// Whether a setting is of the block that is open.
pub(crate) fn is_of_block(name: &str) -> bool {
    of_later_blocks(name) != name
}

/// The setting of all blocks to come, of one that is of a block.
pub(crate) fn of_later_blocks(name: &str) -> &str {
    BLOCK.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map_or(name, |(_, later)| later)
}

/// Whether a setting is a client's own: its name has a point in it.
fn is_own(name: &str) -> bool {
    let is_part = |part: &str| {
        part.starts_with(|first: char| first.is_alphabetic() || first == '_')
            && part.chars().all(|character| character.is_alphanumeric() || character == '_' || character == '$')
    };
    name.contains('.') && name.split('.').all(is_part) && setting(name).is_none()
}

impl ClientSettings {
    pub(crate) fn new(user: &str, database: &str, domain: &str) -> Arc<ClientSettings> {
        let first = BTreeMap::from([
            ("role".to_owned(), "none".to_owned()),
            ("session_authorization".to_owned(), user.to_owned()),
            ("timezone".to_owned(), "UTC".to_owned()),
            ("search_path".to_owned(), pithead_pg_catalog::quoted(domain)),
            ("statement_timeout".to_owned(), "0".to_owned()),
        ]);
        Arc::new(ClientSettings {
            values: Mutex::new(first.clone()),
            first: Mutex::new(first),
            block: Mutex::default(),
            asked: Mutex::default(),
            path: Mutex::default(),
            listed: Mutex::default(),
            among: OnceLock::new(),
            user: user.to_owned(),
            database: database.to_owned(),
            domain: domain.to_owned(),
        })
    }

    /// Tells the connections that there are, and the number of this one.
    pub(crate) fn is_among(&self, running: Arc<Running>, process: i32) {
        let _ = self.among.set((running, process));
    }

    /// The value of a setting, as SHOW gives it; none: there is no such setting.
    pub(crate) fn show(&self, name: &str) -> Option<String> {
        let name = name.to_lowercase();
        if let Some((_, later)) = BLOCK.iter().find(|(known, _)| *known == name) {
            let own = self.block.lock().get(name.as_str()).cloned();
            return own.or_else(|| self.value(later)).map(|value| switched(&name, value));
        }
        let value = self.value(&name)?;
        match name.as_str() {
            "search_path" => Some(search_path::shown(&value, &self.user, &self.path.lock(), &self.domain)),
            _ => Some(value),
        }
    }

    /// The value as it was set.
    pub(crate) fn value(&self, name: &str) -> Option<String> {
        let set = self.values.lock().get(name).cloned();
        set.or_else(|| setting(name).map(|known| known.default.to_owned()))
    }

    /// Whether a block may have several statements that write, each committed when it ends.
    pub(crate) fn many_writes(&self) -> bool {
        self.show(BLOCK_WRITES).is_some_and(|value| value.eq_ignore_ascii_case("many"))
    }

    /// Whether transactions are read-only where they do not say it.
    pub(crate) fn is_read_only(&self) -> bool {
        self.value("default_transaction_read_only").is_some_and(|value| is_on(&value))
    }

    /// What the block that is open has; none: what it had before.
    pub(crate) fn set_block(&self, isolation: Option<&str>, read_only: Option<bool>) {
        let mut block = self.block.lock();
        block.extend(isolation.map(|isolation| (BLOCK[0].0, isolation.to_owned())));
        block.extend(read_only.map(|read_only| (BLOCK[1].0, if read_only { "on" } else { "off" }.to_owned())));
    }

    /// The block has ended.
    pub(crate) fn end_block(&self) {
        self.block.lock().clear();
    }

    /// Sets one; those of the host do not come here.
    pub(crate) fn set(&self, name: &str, value: &str) -> Result<Effect, Complaint> {
        let name = name.to_lowercase();
        let (kept, effect) = self.judged(&name, value)?;
        self.values.lock().insert(name, kept);
        Ok(effect)
    }

    /// The value that is kept of one, and what is to be done beside it.
    fn judged(&self, name: &str, value: &str) -> Result<(String, Effect), Complaint> {
        if value.len() > VALUE_BYTES_MAX {
            return Err(Complaint::error(WRONG_SETTING, format!("a value of {} bytes is too long for {name}", value.len())));
        }
        let first = || self.first.lock().get(name).cloned();
        let default = || first().or_else(|| setting(name).map(|known| known.default.to_owned()));
        let value = match (value.eq_ignore_ascii_case("default"), is_own(name)) {
            (true, is_own) => default().or_else(|| is_own.then(String::new)).ok_or_else(|| unknown(name))?,
            (false, _) => value.to_owned(),
        };
        let effect = match name {
            "timezone" => Effect::SessionAndTold("datafusion.execution.time_zone", zone(&value)?, "TimeZone"),
            "search_path" => Effect::Path,
            "statement_timeout" => Effect::Session("pithead.statement_timeout", value.clone()),
            "session_authorization" | "role" => return self.role(name, &value),
            _ if is_own(name) => self.has_room(name).map(|()| Effect::None)?,
            _ => known(name, &value)?,
        };
        // Names of encodings have other forms that mean the same.
        let kept = match name {
            "client_encoding" => "UTF8".to_owned(),
            "datestyle" => "ISO, MDY".to_owned(),
            name => switched(name, value),
        };
        Ok((kept, effect))
    }

    /// Nobody becomes somebody else.
    fn role(&self, name: &str, value: &str) -> Result<(String, Effect), Complaint> {
        let is_none = value.eq_ignore_ascii_case("none");
        if value == self.user || is_none && name == "role" {
            return Ok((if is_none { "none".to_owned() } else { value.to_owned() }, Effect::None));
        }
        Err(Complaint::error("42501", format!("who connects as {} cannot become {value}", self.user)))
    }

    fn has_room(&self, name: &str) -> Result<(), Complaint> {
        let values = self.values.lock();
        let own = values.keys().filter(|known| is_own(known)).count();
        match own < OWN_MAX || values.contains_key(name) {
            true => Ok(()),
            false => Err(Complaint::error(WRONG_SETTING, format!("a connection has {OWN_MAX} settings of its own, at most"))),
        }
    }

    /// What functions have asked for since this was asked last.
    pub(crate) fn take_asked(&self) -> Vec<Asked> {
        std::mem::take(&mut *self.asked.lock())
    }

    /// The domains that bare names are to be looked up in.
    pub(crate) fn wanted(&self) -> Vec<Wanted> {
        search_path::wanted(&self.value("search_path").unwrap_or_default(), &self.user)
    }

    /// Where they are looked up. What has not changed stays the same one.
    pub(crate) fn found(&self, path: SearchPath) {
        let mut known = self.path.lock();
        if **known != path {
            *known = Arc::new(path);
        }
    }

    /// What is set now is what RESET brings back.
    pub(crate) fn begun(&self) {
        *self.first.lock() = self.values.lock().clone();
    }

    /// The names and values that are set otherwise than at the beginning.
    pub(crate) fn changed(&self) -> Vec<String> {
        let first = self.first.lock();
        self.values
            .lock()
            .iter()
            .filter(|(name, value)| first.get(*name) != Some(value))
            .map(|(name, _)| name.clone())
            .collect()
    }

    /// What a client is told when it begins.
    pub(crate) fn told(&self) -> Vec<(&'static str, String)> {
        const ALSO: [&str; 3] = ["server_version", "server_encoding", "standard_conforming_strings"];
        let known = SETTINGS.iter().filter(|known| known.is_told || ALSO.contains(&known.name));
        let mut told: Vec<_> = known.map(|known| (known.name, self.show(known.name).unwrap_or_default())).collect();
        told.push(("TimeZone", self.show("timezone").unwrap_or_default()));
        told.push(("session_authorization", self.user.clone()));
        told
    }

    /// The session's time zone, for moments in text.
    pub(crate) fn zone(&self) -> (String, Tz) {
        let name = self.show("timezone").unwrap_or_else(|| "UTC".to_owned());
        let name = zone(&name).unwrap_or_else(|_| "UTC".to_owned());
        let utc = || "+00:00".parse().unwrap_or_else(|_| unreachable!("an offset of nothing"));
        let parsed = name.parse::<Tz>().unwrap_or_else(|_| utc());
        (name, parsed)
    }
}

impl ConnectionFacts for ClientSettings {
    fn show(&self, name: &str) -> Option<String> {
        let asked = self.asked.lock().iter().rev().find(|asked| asked.name.eq_ignore_ascii_case(name)).cloned();
        asked.map(|asked| asked.value).or_else(|| ClientSettings::show(self, name))
    }

    fn set(&self, name: &str, value: &str, local: bool) -> Result<String, String> {
        let name = name.to_lowercase();
        let kept = match is_of_host(&name) {
            true => value.to_owned(),
            false => self.judged(&name, value).map_err(|complaint| complaint.message)?.0,
        };
        let mut asked = self.asked.lock();
        // A row of many asks for the same again.
        asked.retain(|known| known.name != name);
        if asked.len() >= OWN_MAX {
            return Err("too many settings are set by one statement".to_owned());
        }
        asked.push(Asked { name, value: kept.clone(), local });
        Ok(kept)
    }

    fn end(&self, process: i64, with_connection: bool) -> Result<bool, String> {
        self.among.get().map_or(Ok(false), |(running, own)| running.end(*own, process, with_connection))
    }

    fn database(&self) -> String {
        self.database.clone()
    }

    fn domain(&self) -> String {
        self.domain.clone()
    }

    fn path(&self) -> Arc<SearchPath> {
        Arc::clone(&self.path.lock())
    }

    fn names_results(&self) -> bool {
        true
    }

    fn prepared(&self) -> Vec<PreparedFacts> {
        self.listed.lock().0.clone()
    }

    fn cursors(&self) -> Vec<CursorFacts> {
        self.listed.lock().1.clone()
    }
}

/// The value of a setting that is on or off; none: it is something else.
pub(crate) fn truth(value: &str) -> Option<bool> {
    match value.to_lowercase().as_str() {
        "on" | "true" | "yes" | "1" => Some(true),
        "off" | "false" | "no" | "0" => Some(false),
        _ => None,
    }
}

fn is_on(value: &str) -> bool {
    truth(value) == Some(true)
}

/// A value of one that is on or off, as SHOW gives it.
fn switched(name: &str, value: String) -> String {
    let is_switch = |known: &Setting| known.values.contains(&"yes") && known.values.contains(&"off");
    match setting(name) {
        Some(known) if is_switch(known) => if is_on(&value) { "on" } else { "off" }.to_owned(),
        _ => value,
    }
}

fn known(name: &str, value: &str) -> Result<Effect, Complaint> {
    let known = setting(name).ok_or_else(|| unknown(name))?;
    if known.is_fixed && !known.default.eq_ignore_ascii_case(value) {
        return Err(Complaint::error(FIXED_SETTING, format!("{} cannot be changed; it is {}", known.name, known.default)));
    }
    if !known.values.is_empty() && !known.values.contains(&value.trim().trim_matches('\'').to_lowercase().as_str()) {
        let message = format!("invalid value for {}: {value:?}; what is supported is {}", known.name, known.default);
        return Err(Complaint::error(WRONG_SETTING, message));
    }
    Ok(if known.is_told { Effect::Told(known.name) } else { Effect::None })
}

fn unknown(name: &str) -> Complaint {
    Complaint::error(UNKNOWN_SETTING, format!("{NO_SETTING} {name:?}"))
        .hint("SELECT name FROM pg_settings lists those of PostgreSQL that are known, SHOW ALL those of the host")
}

#[cfg(test)]
mod tests;
