//! Messages of Flight's sessions, which arrow-flight 59 does not have.

use std::collections::HashMap;

/// A value of an option. Without any, the option is to be as it was before it was set.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct SessionOptionValue {
    #[prost(oneof = "OptionValue", tags = "1, 2, 3, 4, 5")]
    pub(crate) value: Option<OptionValue>,
}

/// What it may be.
#[derive(Clone, PartialEq, prost::Oneof)]
pub(crate) enum OptionValue {
    #[prost(string, tag = "1")]
    Text(String),
    #[prost(bool, tag = "2")]
    Truth(bool),
    #[prost(sfixed64, tag = "3")]
    Whole(i64),
    #[prost(double, tag = "4")]
    Real(f64),
    #[prost(message, tag = "5")]
    Texts(TextList),
}

/// Several texts.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct TextList {
    #[prost(string, repeated, tag = "1")]
    pub(crate) values: Vec<String>,
}

/// Sets options of a session, or begins one.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct SetSessionOptionsRequest {
    #[prost(map = "string, message", tag = "1")]
    pub(crate) session_options: HashMap<String, SessionOptionValue>,
}

/// The options that were not set.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct SetSessionOptionsResult {
    #[prost(map = "string, message", tag = "1")]
    pub(crate) errors: HashMap<String, OptionError>,
}

/// Why one was not set.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub(crate) struct OptionError {
    #[prost(enumeration = "ErrorValue", tag = "1")]
    pub(crate) value: i32,
}

/// The reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub(crate) enum ErrorValue {
    Unspecified = 0,
    InvalidName = 1,
    InvalidValue = 2,
    Error = 3,
}

/// The options of a session.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct GetSessionOptionsResult {
    #[prost(map = "string, message", tag = "1")]
    pub(crate) session_options: HashMap<String, SessionOptionValue>,
}

impl SessionOptionValue {
    pub(crate) fn text(value: impl Into<String>) -> SessionOptionValue {
        SessionOptionValue { value: Some(OptionValue::Text(value.into())) }
    }
}
