//! [`Refused`]: why a request is not answered as it was meant, with the status of HTTP that says so.

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{CONNECTION, CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE};
use hyper::{Response, StatusCode};
use pithead_model::{Blame, Fault};
use serde_json::{Value as Json, json};

/// What is sent for a request.
pub(crate) type Reply = Response<Full<Bytes>>;

/// A request that is refused.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) status: StatusCode,
    pub(crate) fault: Fault,
}

impl Refused {
    /// A request that cannot be meant so.
    pub(crate) fn malformed(what: impl Into<String>) -> Refused {
        Refused { status: StatusCode::BAD_REQUEST, fault: Fault::invalid(what) }
    }

    /// One that is not for this caller, or not from where it comes.
    pub(crate) fn forbidden(fault: Fault) -> Refused {
        Refused { status: StatusCode::FORBIDDEN, fault }
    }

    pub(crate) fn with(status: StatusCode, blame: Blame, what: impl Into<String>) -> Refused {
        Refused { status, fault: Fault::new(blame, what) }
    }

    /// The answer. What the client still sends is not waited for.
    pub(crate) fn reply(&self) -> Reply {
        let mut reply = json_reply(self.status, &json!({ "error": fault_json(&self.fault) }));
        if self.status == StatusCode::UNAUTHORIZED {
            reply.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if self.status == StatusCode::PAYLOAD_TOO_LARGE {
            reply.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        reply
    }
}

/// A fault for the page.
pub(crate) fn fault_json(fault: &Fault) -> Json {
    json!({ "blame": fault.blame.to_string(), "message": fault.message, "hint": fault.hint })
}

/// A document of JSON.
pub(crate) fn json_reply(status: StatusCode, document: &Json) -> Reply {
    reply(status, "application/json", document.to_string())
}

pub(crate) fn reply(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Reply {
    let mut reply = Response::new(Full::new(body.into()));
    *reply.status_mut() = status;
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    reply
}
