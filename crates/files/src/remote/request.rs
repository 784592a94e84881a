//! [`Request`]: a GET that is ready to be sent.

/// Where it goes, and with what.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) url: String,
    pub(crate) headers: Vec<(&'static str, String)>,
    /// Whether it may go over connections with TLS only.
    pub(crate) is_tls: bool,
    /// Hops that are followed where a server sends elsewhere.
    pub(crate) redirects: u32,
}
