//! Sessions of Flight, which clients know by a cookie: options that hold for all calls of a connection, as its headers would.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use arrow_flight::Action;
use bytes::Bytes;
use parking_lot::Mutex;
use pithead_host::Parameters;
use prost::Message;

use crate::action::malformed;
use crate::caller::{Caller, Options, SETTING, setting_name};
use crate::cookies::{cookie, no_cookie};
use crate::error::Refused;
use crate::flight::{CATALOG, FlightSql};
use crate::session_messages::{
    ErrorValue, GetSessionOptionsResult, OptionError, OptionValue, SessionOptionValue, SetSessionOptionsRequest,
    SetSessionOptionsResult,
};

/// The option that names the one catalog that there is.
const CATALOG_OPTION: &str = "catalog";
/// The option that names the domain of bare names.
const SCHEMA_OPTION: &str = "schema";
/// The same as a setting.
const DOMAIN: &str = "pithead.domain";
/// Most bytes of a value.
const VALUE_BYTES_MAX: usize = 4 << 10;
/// CloseSessionResult whose status is CLOSED.
const CLOSED: [u8; 2] = [8, 1];

/// What an action about a session gives: its result, and the cookie that the client is to have from now on.
pub(crate) struct SessionAnswer {
    pub(crate) body: Bytes,
    pub(crate) cookie: Option<String>,
}

/// Whether an action is about the session itself, so that it is not done within one.
pub(crate) fn is_about_session(action: &str) -> bool {
    matches!(action, "SetSessionOptions" | "GetSessionOptions" | "CloseSession")
}

impl FlightSql {
    /// Puts a caller into the session that its call belongs to, if it does: its settings are those of the session, unless the call has
    /// others.
    pub(crate) fn in_session(&self, caller: Caller) -> Result<Caller, Refused> {
        let Some(handle) = &caller.session else { return Ok(caller) };
        let options = self.open.get(caller.owner(), handle)?.lock().clone();
        Ok(within(&caller, &options))
    }

    /// Does an action about a session.
    pub(crate) async fn session_action(&self, caller: &Caller, action: &Action) -> Result<SessionAnswer, Refused> {
        match action.r#type.as_str() {
            "SetSessionOptions" => {
                let request = SetSessionOptionsRequest::decode(&*action.body).map_err(|error| malformed(action, &error))?;
                self.set_options(caller, request.session_options).await
            }
            "GetSessionOptions" => {
                let options = match &caller.session {
                    Some(handle) => self.open.get(caller.owner(), handle)?.lock().clone(),
                    None => Options::default(),
                };
                let body = self.options(caller, &options).await?.encode_to_vec().into();
                Ok(SessionAnswer { body, cookie: None })
            }
            // Drivers close whatever they have when a connection ends, whether or not it is a session.
            _ => {
                if let Some(handle) = &caller.session {
                    // One that has ended by itself is closed, too.
                    let _ = self.open.take(caller.owner(), handle);
                }
                let cookie = caller.session.as_deref().map(no_cookie);
                Ok(SessionAnswer { body: Bytes::from_static(&CLOSED), cookie })
            }
        }
    }

    /// Sets options, each that can be set. A client without a session, or whose session has ended, gets a new one.
    async fn set_options(
        &self,
        caller: &Caller,
        wanted: HashMap<String, SessionOptionValue>,
    ) -> Result<SessionAnswer, Refused> {
        let known = caller.session.as_ref().and_then(|handle| Some((handle, self.open.get(caller.owner(), handle).ok()?)));
        let (handle, open, fresh) = match known {
            Some((handle, open)) => (handle.clone(), open, None),
            None => {
                let open = Arc::<Mutex<Options>>::default();
                let handle = self.open.keep(caller.owner(), 0, Arc::clone(&open))?;
                (handle.clone(), open, Some(cookie(&handle)))
            }
        };
        let mut errors = HashMap::new();
        // In one order, whatever the map's is.
        for (name, value) in wanted.into_iter().collect::<BTreeMap<_, _>>() {
            let mut options = open.lock().clone();
            let set = match changed(&mut options, &name, value.value.clone()) {
                Ok(()) => self.check(caller, &name, &options).await,
                Err(why) => Err(why),
            };
            let set = set.and_then(|()| {
                // Another call may have set another option meanwhile.
                let mut now = open.lock();
                let mut next = now.clone();
                changed(&mut next, &name, value.value)?;
                let bytes = next.iter().map(|(name, value)| name.len() + value.len()).sum();
                self.open.recount(caller.owner(), &handle, bytes).map_err(|_| ErrorValue::Error)?;
                *now = next;
                Ok(())
            });
            if let Err(why) = set {
                errors.insert(name, OptionError { value: why.into() });
            }
        }
        Ok(SessionAnswer { body: SetSessionOptionsResult { errors }.encode_to_vec().into(), cookie: fresh })
    }

    /// Whether the host takes options, of which one is new.
    async fn check(&self, caller: &Caller, name: &str, options: &Options) -> Result<(), ErrorValue> {
        if name.starts_with(SETTING) {
            // Names have been looked at: this one is no SQL.
            let plain = self.session(&within(caller, &Options::default())).await.map_err(|_| ErrorValue::Error)?;
            let show = plain.prepare(&format!("SHOW {}", setting_name(name)), &Parameters::default()).await;
            show.map_err(|_| ErrorValue::InvalidName)?;
        }
        self.session(&within(caller, options)).await.map(drop).map_err(|_| ErrorValue::InvalidValue)
    }

    /// All options of a session: those that it has set, and what says where names are looked up.
    async fn options(&self, caller: &Caller, options: &Options) -> Result<GetSessionOptionsResult, Refused> {
        let domain = self.session(&within(caller, options)).await?.domain();
        let set = options.iter().map(|(name, value)| (name.clone(), SessionOptionValue::text(value)));
        let always = [(CATALOG_OPTION, CATALOG.to_owned()), (SCHEMA_OPTION, domain)];
        let always = always.map(|(name, value)| (name.to_owned(), SessionOptionValue::text(value)));
        Ok(GetSessionOptionsResult { session_options: set.chain(always).collect() })
    }
}

/// Sets or resets an option. Whether the host takes its value is another question.
fn changed(options: &mut Options, name: &str, value: Option<OptionValue>) -> Result<(), ErrorValue> {
    let name = if name == DOMAIN { SCHEMA_OPTION } else { name };
    let is_setting = name.strip_prefix(SETTING).is_some_and(|rest| {
        !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
    });
    if name != CATALOG_OPTION && name != SCHEMA_OPTION && !is_setting {
        return Err(ErrorValue::InvalidName);
    }
    let text = match value {
        None => None,
        Some(OptionValue::Text(text)) => Some(text),
        Some(OptionValue::Truth(truth)) => Some(truth.to_string()),
        Some(OptionValue::Whole(number)) => Some(number.to_string()),
        Some(OptionValue::Real(number)) => Some(number.to_string()),
        Some(OptionValue::Texts(_)) => return Err(ErrorValue::InvalidValue),
    };
    let is_catalog = name == CATALOG_OPTION;
    match text.filter(|text| !text.is_empty()) {
        Some(text) if text.len() > VALUE_BYTES_MAX || is_catalog && text != CATALOG => return Err(ErrorValue::InvalidValue),
        Some(text) if !is_catalog => options.insert(name.to_owned(), text),
        _ => options.remove(name),
    };
    Ok(())
}

/// A caller with the settings of a session beside those of its call.
fn within(caller: &Caller, options: &Options) -> Caller {
    let setting = |(name, value): (&String, &String)| {
        let name = if name == SCHEMA_OPTION { DOMAIN } else { name };
        (setting_name(name).to_owned(), value.clone())
    };
    caller.with_settings(options.iter().map(setting))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_those_that_there_are() {
        let mut options = Options::default();
        let mut set = |name: &str, value| {
            let done = changed(&mut options, name, value);
            (done, options.get(name).cloned())
        };
        let text = |text: &str| Some(OptionValue::Text(text.to_owned()));
        assert_eq!(set("schema", text("lab")), (Ok(()), Some("lab".to_owned())));
        assert_eq!(set("pithead.pushdown", Some(OptionValue::Truth(false))), (Ok(()), Some("false".to_owned())));
        assert_eq!(set("pithead.sample_ms", Some(OptionValue::Whole(7))), (Ok(()), Some("7".to_owned())));
        assert_eq!(set("pithead.sample_ms", None), (Ok(()), None));
        assert_eq!(set("pithead.domain", text("")), (Ok(()), None));
        assert_eq!(set("schema", None), (Ok(()), None), "they are one option");
        assert_eq!(set("catalog", text(CATALOG)), (Ok(()), None));
        assert_eq!(set("catalog", text("other")).0, Err(ErrorValue::InvalidValue));
        assert_eq!(set("schema", Some(OptionValue::Texts(Default::default()))).0, Err(ErrorValue::InvalidValue));
        assert_eq!(set("schema", text(&"x".repeat(VALUE_BYTES_MAX + 1))).0, Err(ErrorValue::InvalidValue));
        for name in ["", "pithead.", "pithead.a b", "pithead.a;b", "datafusion.catalog.default_schema", "Schema"] {
            assert_eq!(set(name, text("x")).0, Err(ErrorValue::InvalidName), "{name}");
        }
    }

    #[test]
    fn messages_are_those_of_flight() {
        // As protoc writes them: a map's entry with its key and its value.
        let sent = [10, 15, 10, 6, b's', b'c', b'h', b'e', b'm', b'a', 18, 5, 10, 3, b'l', b'a', b'b'];
        let request = SetSessionOptionsRequest::decode(&sent[..]).unwrap();
        assert_eq!(request.session_options["schema"], SessionOptionValue::text("lab"));
        let errors = HashMap::from([("a".to_owned(), OptionError { value: ErrorValue::InvalidValue.into() })]);
        assert_eq!(SetSessionOptionsResult { errors }.encode_to_vec(), [10, 7, 10, 1, b'a', 18, 2, 8, 2]);
    }
}
