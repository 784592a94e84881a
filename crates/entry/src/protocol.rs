//! [`Protocol`]: what is spoken behind an entry, as far as the entry has to know.

/// A protocol that a server speaks.
#[derive(Clone, Copy, Debug)]
pub struct Protocol {
    /// How people know it.
    pub name: &'static str,
    /// Its name in ALPN (RFC 7301), where TLS agrees on what is spoken within it.
    pub alpn: &'static [u8],
    /// What every caller begins with. One who begins otherwise is hung up on.
    pub greeting: &'static [u8],
}
