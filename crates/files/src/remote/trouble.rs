//! [`Trouble`]: what went wrong with a request, and [`Tries`]: whether it is made again.

use std::io;
use std::thread::sleep;
use std::time::Duration;

use pithead_model::{Blame, Fault};

/// The longest wait that a server can ask for.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// How long and how often a server is waited for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// Until there is a connection, with TLS.
    pub(crate) connect: Duration,
    /// Until there is an answer, or more of it.
    pub(crate) idle: Duration,
    /// For one piece of a file.
    pub(crate) piece: Duration,
    /// Tries in a row.
    pub(crate) tries: u32,
    /// Half of the time before the second try; before each next one it is twice as long.
    pub(crate) pause: Duration,
}

impl Default for Patience {
    fn default() -> Patience {
        Patience {
            connect: Duration::from_secs(10),
            idle: Duration::from_secs(30),
            piece: Duration::from_secs(120),
            tries: 5,
            pause: Duration::from_millis(200),
        }
    }
}

/// Why a request gave nothing.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// It may be over soon: what happened, and when the server wants to be asked again.
    Passing(String, Option<Duration>),
    /// Asking again would not help.
    Lasting(Fault),
}

impl Trouble {
    /// Of a request to a file with a name.
    pub(crate) fn of(name: &str, error: &ureq::Error) -> Trouble {
        use ureq::Error;
        let lasting = |fault: Fault| Trouble::Lasting(fault.at(name));
        match error {
            Error::Timeout(_) => Trouble::Passing("the server does not answer in time".to_owned(), None),
            Error::ConnectionFailed => Trouble::Passing("there is no connection to the server".to_owned(), None),
            Error::Io(error) if is_tls(error) => lasting(untrusted(&error.to_string())),
            Error::Io(error) => Trouble::Passing(error.to_string(), None),
            Error::HostNotFound => {
                let fault = Fault::invalid("no server of this name is known");
                lasting(fault.hint("look at the name in the URL, or in AWS_ENDPOINT_URL"))
            }
            Error::Rustls(error) => lasting(untrusted(&error.to_string())),
            Error::Tls(what) => lasting(untrusted(what)),
            Error::TooManyRedirects | Error::RedirectFailed => {
                lasting(Fault::new(Blame::Device, "the server sends from place to place"))
            }
            Error::RequireHttpsOnly(_) => {
                let fault = Fault::new(Blame::Access, "the server sends to a place without TLS");
                lasting(fault.hint("name that place with http:// if whoever sees that network may see the data"))
            }
            // Its text may have the URL in it.
            _ => lasting(Fault::new(Blame::Device, "the server does not answer as HTTP/1.1 servers do")),
        }
    }

    /// Of the bytes of an answer.
    pub(crate) fn in_body(error: &io::Error) -> Trouble {
        let is_timeout = error.kind() == io::ErrorKind::TimedOut
            || error
                .get_ref()
                .and_then(|inner| inner.downcast_ref())
                .is_some_and(|error| matches!(error, ureq::Error::Timeout(_)));
        let what = match (is_timeout, error.kind()) {
            (true, _) => "the server sends nothing more".to_owned(),
            (_, io::ErrorKind::UnexpectedEof) => "the answer broke off".to_owned(),
            _ => format!("the answer broke off: {error}"),
        };
        Trouble::Passing(what, None)
    }
}

fn is_tls(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::InvalidData
}

fn untrusted(what: &str) -> Fault {
    let fault = Fault::new(Blame::Access, format!("no TLS connection: {what}"));
    fault.hint("SSL_CERT_FILE names a PEM file of the CAs that servers are trusted by")
}

/// The tries of one piece of work.
#[derive(Debug)]
pub(crate) struct Tries<'a> {
    name: &'a str,
    patience: Patience,
    failures: u32,
}

impl<'a> Tries<'a> {
    pub(crate) fn new(name: &'a str, patience: Patience) -> Tries<'a> {
        Tries { name, patience, failures: 0 }
    }

    /// From here on, tries are counted anew.
    pub(crate) fn reset(&mut self) {
        self.failures = 0;
    }

    /// Waits until the next try, if there is to be one.
    pub(crate) fn again(&mut self, trouble: Trouble) -> Result<(), Fault> {
        let (what, wait) = match trouble {
            Trouble::Lasting(fault) => return Err(fault),
            Trouble::Passing(what, wait) => (what, wait),
        };
        self.failures += 1;
        let doubled = self.patience.pause.saturating_mul(1 << self.failures.min(10));
        if self.failures >= self.patience.tries {
            let fault = Fault::new(Blame::Device, format!("{}: {what}, {} times in a row", self.name, self.failures));
            return Err(fault.hint("try again later"));
        }
        let wait = wait.unwrap_or(doubled).min(WAIT_MAX).max(self.patience.pause);
        tracing::debug!(file = self.name, what, ?wait, "a server is asked again");
        sleep(wait);
        Ok(())
    }
}

/// A fault of what a server sent for a file with a name.
pub(crate) fn odd(name: &str, what: impl std::fmt::Display) -> Fault {
    Fault::new(Blame::Device, format!("{name}: {what}"))
}
