//! How a host reaches a drive: TCP, and TLS where it is asked for.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use futures::future::BoxFuture;
use http::Uri;
use hyper_util::rt::TokioIo;
use pithead_entry::{ConnectOptions, is_loopback};
use pithead_model::{Blame, Fault};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, lookup_host};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{AlertDescription, CertificateError, ClientConfig, Error as TlsError};
use tower_service::Service;

use crate::connection::HTTP_2;
use crate::error::Refused;
use crate::link::Address;

/// Makes connections to one drive.
#[derive(Clone)]
pub(crate) struct Dial {
    address: Arc<Address>,
    tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
    /// Only an address of this machine will do.
    only_loopback: bool,
    trouble: Trouble,
}

/// What a drive said at the end of a connection that HTTP/2 cannot tell: a TLS alert.
#[derive(Clone, Debug, Default)]
pub struct Trouble(Arc<Mutex<Option<Fault>>>);

impl Trouble {
    /// Takes it, if there was any since the last time.
    pub fn take(&self) -> Option<Fault> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn note(&self, fault: Fault) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(fault);
    }
}

impl Dial {
    /// Refuses a link in clear beyond loopback, unless it is asked for. Reads the files of TLS.
    pub(crate) fn new(address: Address, options: &ConnectOptions) -> Result<Dial, Fault> {
        let tls = match &options.tls {
            Some(files) => Some((files.read(HTTP_2.alpn)?, server_name(&address)?)),
            None if address.must_be_tls => {
                let message = format!("the address of {address} asks for TLS, and no CA is named that it could be trusted by");
                return Err(Fault::new(Blame::User, message).hint("name the CA's certificate: --tls-ca FILE"));
            }
            None => None,
        };
        let only_loopback = tls.is_none() && !options.insecure;
        if only_loopback && !address.is_loopback() {
            let what = if options.token.is_some() { "the token and all data" } else { "all data" };
            let message = format!("{address} is another machine, and without TLS {what} would travel in clear");
            return Err(Fault::new(Blame::User, message).hint(
                "name the CA that signed the drive's certificate: --tls-ca FILE; --insecure connects without TLS all the same",
            ));
        }
        Ok(Dial { address: Arc::new(address), tls, only_loopback, trouble: Trouble::default() })
    }

    /// How people know the drive: its address.
    pub(crate) fn label(&self) -> String {
        self.address.to_string()
    }

    pub(crate) fn trouble(&self) -> Trouble {
        self.trouble.clone()
    }

    async fn connect(self) -> Result<Link, Box<dyn std::error::Error + Send + Sync>> {
        let socket = self.socket().await?;
        socket.set_nodelay(true)?;
        let stream = match self.tls {
            None => Stream::Plain(socket, false),
            Some((config, name)) => match TlsConnector::from(config).connect(name, socket).await {
                Ok(stream) => Stream::Tls(Box::new(stream)),
                Err(error) => return Err(Refused(handshake_fault(&self.address, &error)).into()),
            },
        };
        Ok(Link { stream, address: self.address, trouble: self.trouble })
    }

    async fn socket(&self) -> io::Result<TcpStream> {
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for address in lookup_host(self.address.to_string()).await? {
            if self.only_loopback && !is_loopback(address.ip()) {
                last = io::Error::other(format!("{address} is another machine"));
                continue;
            }
            match TcpStream::connect(address).await {
                Ok(socket) => return Ok(socket),
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

impl Service<Uri> for Dial {
    type Response = TokioIo<Link>;
    type Error = Box<dyn std::error::Error + Send + Sync>;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _uri: Uri) -> Self::Future {
        let dial = self.clone();
        Box::pin(async move { dial.connect().await.map(TokioIo::new) })
    }
}

fn server_name(address: &Address) -> Result<ServerName<'static>, Fault> {
    let host = address.bare_host().to_owned();
    ServerName::try_from(host).map_err(|error| Fault::new(Blame::User, format!("{address}: {error}")))
}

/// Why TLS was not agreed on: who is not trusted, where that is the reason.
fn handshake_fault(address: &Address, error: &io::Error) -> Fault {
    let tls = tls_error(error);
    if let Some(TlsError::AlertReceived(alert)) = tls {
        return alert_fault(address, *alert);
    }
    let failed = |why: String| Fault::new(Blame::Device, format!("drive {address}: no TLS connection: {why}"));
    match tls {
        Some(TlsError::InvalidCertificate(why)) => {
            let fault = Fault::new(Blame::Access, format!("drive {address} is not trusted: {why}"));
            match why {
                CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                    fault.hint("its certificate was not signed by the CA of --tls-ca")
                }
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => fault
                    .hint("connect by a name that its certificate is for, or make one for this name with `pithead cert drive`"),
                CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                    fault.hint("make a new certificate for the drive with `pithead cert drive`")
                }
                _ => fault,
            }
        }
        Some(TlsError::InvalidMessage(_)) => failed("it does not speak TLS".to_owned())
            .hint("start it with --tls-cert and --tls-key, or connect without --tls-ca"),
        _ if error.kind() == io::ErrorKind::UnexpectedEof => failed("it hung up".to_owned())
            .hint("it serves TLS if it was started with --tls-cert and --tls-key; is it full of connections?"),
        _ => failed(error.to_string()),
    }
}

/// What a drive's alert says of this host.
fn alert_fault(address: &Address, alert: AlertDescription) -> Fault {
    use AlertDescription as Alert;
    let (why, hint) = match alert {
        Alert::CertificateRequired => ("it asks for a client certificate", "name one: --tls-cert FILE --tls-key FILE"),
        Alert::CertificateExpired => ("the client certificate has expired", "make a new one with `pithead cert client`"),
        Alert::UnknownCA
        | Alert::BadCertificate
        | Alert::UnsupportedCertificate
        | Alert::CertificateUnknown
        | Alert::AccessDenied
        | Alert::DecryptError => (
            "it does not accept the client certificate",
            "name one that was signed by the CA of the drive's --client-ca: --tls-cert FILE --tls-key FILE",
        ),
        other => {
            let message = format!("drive {address}: TLS ended with the alert {other:?}");
            return Fault::new(Blame::Device, message);
        }
    };
    Fault::new(Blame::Access, format!("drive {address}: {why}")).hint(hint)
}

fn tls_error(error: &io::Error) -> Option<&TlsError> {
    error.get_ref()?.downcast_ref()
}

/// A connection to a drive.
pub(crate) struct Link {
    stream: Stream,
    address: Arc<Address>,
    trouble: Trouble,
}

enum Stream {
    /// And whether anything was read.
    Plain(TcpStream, bool),
    Tls(Box<TlsStream<TcpStream>>),
}

impl AsyncRead for Link {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        match &mut this.stream {
            Stream::Plain(stream, begun) => {
                let before = buffer.filled().len();
                ready!(Pin::new(stream).poll_read(context, buffer))?;
                let first = buffer.filled().get(before..).unwrap_or_default();
                // A TLS record with an alert. As HTTP/2 it would be a frame of another length.
                if !*begun && first.starts_with(&[0x15, 0x03]) {
                    let fault = Fault::new(Blame::Access, format!("drive {} serves TLS only", this.address));
                    this.trouble.note(fault.hint("name the CA that signed its certificate: --tls-ca FILE"));
                }
                *begun |= !first.is_empty();
                Poll::Ready(Ok(()))
            }
            Stream::Tls(stream) => {
                let read = ready!(Pin::new(stream.as_mut()).poll_read(context, buffer));
                if let Err(error) = &read
                    && let Some(TlsError::AlertReceived(alert)) = tls_error(error)
                {
                    this.trouble.note(alert_fault(&this.address, *alert));
                }
                Poll::Ready(read)
            }
        }
    }
}

impl AsyncWrite for Link {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().stream {
            Stream::Plain(stream, _) => Pin::new(stream).poll_write(context, bytes),
            Stream::Tls(stream) => Pin::new(stream.as_mut()).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().stream {
            Stream::Plain(stream, _) => Pin::new(stream).poll_flush(context),
            Stream::Tls(stream) => Pin::new(stream.as_mut()).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().stream {
            Stream::Plain(stream, _) => Pin::new(stream).poll_shutdown(context),
            Stream::Tls(stream) => Pin::new(stream.as_mut()).poll_shutdown(context),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().stream {
            Stream::Plain(stream, _) => Pin::new(stream).poll_write_vectored(context, buffers),
            Stream::Tls(stream) => Pin::new(stream.as_mut()).poll_write_vectored(context, buffers),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match &self.stream {
            Stream::Plain(stream, _) => stream.is_write_vectored(),
            Stream::Tls(stream) => stream.is_write_vectored(),
        }
    }
}
