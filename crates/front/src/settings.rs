//! [`ClientSettings`]: what a client has set, as far as it is not the host's.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::timezone::Tz;
use parking_lot::Mutex;
use pithead_pg_catalog::{BLOCK_WRITES, SETTINGS, Shown, setting};

use crate::error::{Complaint, FIXED_SETTING, UNKNOWN_SETTING, WRONG_SETTING};

/// Longest value of a setting.
const VALUE_BYTES_MAX: usize = 16 << 10;

/// A client's settings, by their names in small letters.
#[derive(Debug)]
pub(crate) struct ClientSettings {
    values: Mutex<BTreeMap<String, String>>,
    /// What the values were at the beginning: RESET brings them back.
    first: Mutex<BTreeMap<String, String>>,
    user: String,
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
}

/// Whether a setting is the host's: its name has a point, and it is none of those that are kept here.
pub(crate) fn is_of_host(name: &str) -> bool {
    name.contains('.') && setting(name).is_none()
}

impl ClientSettings {
    pub(crate) fn new(user: &str) -> Arc<ClientSettings> {
        let first = BTreeMap::from([
            ("timezone".to_owned(), "UTC".to_owned()),
            ("search_path".to_owned(), "\"$user\", public".to_owned()),
            ("statement_timeout".to_owned(), "0".to_owned()),
        ]);
        Arc::new(ClientSettings { values: Mutex::new(first.clone()), first: Mutex::new(first), user: user.to_owned() })
    }

    /// The value of a setting; none: there is no such setting.
    pub(crate) fn show(&self, name: &str) -> Option<String> {
        let name = name.to_lowercase();
        if matches!(name.as_str(), "session_authorization" | "role") {
            return Some(self.user.clone());
        }
        let set = self.values.lock().get(&name).cloned();
        set.or_else(|| setting(&name).map(|known| known.default.to_owned()))
    }

    /// The same as a function.
    pub(crate) fn shown(self: &Arc<Self>) -> Shown {
        let settings = Arc::clone(self);
        Arc::new(move |name| settings.show(name))
    }

    /// Whether a block may have several statements that write, each committed when it ends.
    pub(crate) fn many_writes(&self) -> bool {
        self.show(BLOCK_WRITES).is_some_and(|value| value.eq_ignore_ascii_case("many"))
    }

    /// Whether transactions are read-only where they do not say it.
    pub(crate) fn is_read_only(&self) -> bool {
        self.show("default_transaction_read_only")
            .is_some_and(|value| ["on", "true", "yes", "1"].contains(&value.to_lowercase().as_str()))
    }

    /// Sets one; those of the host do not come here.
    pub(crate) fn set(&self, name: &str, value: &str) -> Result<Effect, Complaint> {
        let name = name.to_lowercase();
        if value.len() > VALUE_BYTES_MAX {
            return Err(Complaint::error(WRONG_SETTING, format!("a value of {} bytes is too long for {name}", value.len())));
        }
        let default = value.eq_ignore_ascii_case("default");
        let value = if default {
            self.first.lock().get(&name).cloned().or_else(|| setting(&name).map(|known| known.default.to_owned()))
        } else {
            Some(value.to_owned())
        };
        let Some(value) = value else { return Err(unknown(&name)) };
        let effect = match name.as_str() {
            "timezone" => Effect::SessionAndTold("datafusion.execution.time_zone", zone(&value)?, "TimeZone"),
            "search_path" => Effect::Session("datafusion.catalog.default_schema", first_schema(&value)),
            "statement_timeout" => Effect::Session("pithead.statement_timeout", value.clone()),
            "session_authorization" | "role"
                if value.eq_ignore_ascii_case(&self.user) || value.eq_ignore_ascii_case("none") =>
            {
                return Ok(Effect::None);
            }
            "session_authorization" | "role" => {
                return Err(Complaint::error("42501", format!("who connects as {} cannot become {value}", self.user)));
            }
            _ => known(&name, &value)?,
        };
        // Names of encodings have other forms that mean the same.
        let kept = if name == "client_encoding" { "UTF8".to_owned() } else { value };
        let kept = if name == "datestyle" { "ISO, MDY".to_owned() } else { kept };
        self.values.lock().insert(name, kept);
        Ok(effect)
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
        let known = SETTINGS.iter().filter(|known| {
            known.is_told
                || known.name == "server_version"
                || known.name == "server_encoding"
                || known.name == "standard_conforming_strings"
        });
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
    Complaint::error(UNKNOWN_SETTING, format!("unrecognized configuration parameter {name:?}"))
        .hint("SELECT name FROM pg_settings lists those of PostgreSQL that are known, SHOW ALL those of the host")
}

/// A time zone under a name that the engine knows.
fn zone(value: &str) -> Result<String, Complaint> {
    let value = value.trim();
    let known = match value.to_ascii_lowercase().as_str() {
        "utc" | "gmt" | "z" | "zulu" | "etc/utc" | "localtime" | "local" | "default" => "UTC",
        _ => value,
    };
    let hours = known.parse::<i32>().ok().filter(|hours| (-15..=15).contains(hours)).map(|hours| format!("{hours:+03}:00"));
    let known = hours.unwrap_or_else(|| known.to_owned());
    match known.parse::<Tz>() {
        Ok(_) => Ok(known),
        Err(_) => Err(Complaint::error(WRONG_SETTING, format!("invalid value for TimeZone: {value:?}"))
            .hint("a name such as 'Europe/Berlin', or an offset such as '+02:00'")),
    }
}

/// The first domain of a search path; PostgreSQL's usual names are no domains.
fn first_schema(path: &str) -> String {
    let names = path.split(',').map(|name| name.trim().trim_matches('"').trim_matches('\''));
    let mut names =
        names.filter(|name| !name.is_empty() && !["$user", "public", "pg_catalog", "information_schema"].contains(name));
    names.next().unwrap_or("main").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_checked_and_kept() {
        let settings = ClientSettings::new("me");
        assert_eq!(settings.set("DateStyle", "ISO, DMY").unwrap(), Effect::Told("DateStyle"));
        assert_eq!(settings.set("datestyle", "German").unwrap_err().code, WRONG_SETTING);
        // As asyncpg writes it.
        assert!(settings.set("client_encoding", "'utf-8'").is_ok());
        assert_eq!(settings.set("client_encoding", "latin1").unwrap_err().code, WRONG_SETTING);
        assert_eq!(settings.set("nothing", "1").unwrap_err().code, UNKNOWN_SETTING);
        assert_eq!(settings.set("server_version", "9").unwrap_err().code, FIXED_SETTING);
        assert_eq!(settings.set("application_name", "x").unwrap(), Effect::Told("application_name"));
        assert_eq!(settings.show("Application_Name").as_deref(), Some("x"));
        assert_eq!(settings.changed(), ["application_name", "client_encoding", "datestyle"]);
        assert_eq!(
            settings.set("search_path", "\"$user\", lab, public").unwrap(),
            Effect::Session("datafusion.catalog.default_schema", "lab".into())
        );
        assert!(settings.set("timezone", "Nowhere").is_err());
        settings.set("timezone", "2").unwrap();
        assert_eq!(settings.zone().0, "+02:00");
    }

    #[test]
    fn blocks_have_one_write_unless_the_client_asks_for_many() {
        let settings = ClientSettings::new("me");
        assert!(!settings.many_writes() && is_of_host("pithead.statement_timeout") && !is_of_host(BLOCK_WRITES));
        assert_eq!(settings.set(BLOCK_WRITES, "two").unwrap_err().code, WRONG_SETTING);
        settings.set(BLOCK_WRITES, "many").unwrap();
        assert!(settings.many_writes());
        settings.set(BLOCK_WRITES, "default").unwrap();
        assert!(!settings.many_writes());
    }
}
