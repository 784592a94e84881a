//! [`Client`]: a small client of the protocol, for pushes to other drives, for the command line and for measurements.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use pithead_entry::ClientTlsFiles;
use pithead_model::{Fault, boxed};
use prost::Message as _;
use tokio::io::{AsyncRead, AsyncWrite, BufReader};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::{ClientConfig, DigitallySignedStruct, Error as TlsError, SignatureScheme};

use crate::code::{Code, RequestKind};
use crate::frame::{FrameError, read_frame, write_frame};
use crate::limits::Limits;
use crate::proto::{Body, Command, CommandError, Header, HmacAuth, Message, PinAuth, PinOperation, auth};
use crate::server::PROTOCOL;
use crate::sign::{sign, verify};

/// Which drives are believed over TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Every one: drives sign their certificates themselves. Bytes are secret, but whose they are is not known.
    Anyone,
    /// Those whose certificate a CA signed.
    Ca(ClientTlsFiles),
}

/// Whom to call, and as whom.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// The drive's name or address.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// TLS; none: in clear.
    pub tls: Option<Trust>,
    /// Who signs requests.
    pub identity: i64,
    /// The key of the signatures.
    pub key: Vec<u8>,
    /// How long the drive may take for a connection or an answer.
    pub wait: Duration,
    /// Bounds on answers.
    pub limits: Limits,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The connection failed.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// What came is no answer.
    #[error("{0}")]
    Frame(#[from] FrameError),
    /// What came has no command.
    #[error("not a command: {0}")]
    Command(#[from] CommandError),
    /// The drive's certificate is not believed: it is of other names or another issuer, or its time is over.
    #[error("{0}")]
    Certificate(String),
    /// Files of TLS cannot be used.
    #[error("{0}")]
    Tls(Fault),
    /// The drive did not answer in time.
    #[error("no answer within {0:?}")]
    Late(Duration),
    /// The drive ended the connection or did not begin one, and said why.
    #[error("the drive ended the connection: {0}")]
    Ended(String),
    /// A request was signed, and its answer is not.
    #[error("the answer is not signed: it may be anybody's")]
    Unsigned,
    /// The answer is not signed with the key.
    #[error("the answer is not signed with this identity's key: the drive does not know it")]
    Signature,
}

impl ClientError {
    /// Why a handshake failed.
    fn of_tls(error: std::io::Error) -> ClientError {
        match error.get_ref().and_then(|inner| inner.downcast_ref::<TlsError>()) {
            Some(refused @ TlsError::InvalidCertificate(_)) => ClientError::Certificate(refused.to_string()),
            _ => ClientError::Io(error),
        }
    }

    fn ended(code: Code, what: &str) -> ClientError {
        ClientError::Ended(format!("{} {what}", code.name()))
    }
}

/// An answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    /// How it went.
    pub code: Code,
    /// The same for people.
    pub what: String,
    /// What the answer says.
    pub body: Body,
    /// The frame's value.
    pub value: Bytes,
    /// The answer's header.
    pub header: Header,
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// A connection to a drive.
pub struct Client {
    stream: BufReader<Box<dyn Stream>>,
    options: ClientOptions,
    greeting: Command,
    connection_id: i64,
    /// The cluster version that requests name; the greeting's unless it is set.
    pub cluster_version: i64,
    /// The priority of requests; none: the drive's default.
    pub priority: Option<i32>,
    sequence: i64,
}

impl Client {
    /// Connects, and waits for the greeting.
    #[boxed]
    pub async fn connect(options: &ClientOptions) -> Result<Client, ClientError> {
        let late = |_| ClientError::Late(options.wait);
        tokio::time::timeout(options.wait, Client::begin(options.clone())).await.map_err(late)?
    }

    async fn begin(options: ClientOptions) -> Result<Client, ClientError> {
        let socket = TcpStream::connect((options.host.as_str(), options.port)).await?;
        socket.set_nodelay(true)?;
        let stream: Box<dyn Stream> = match &options.tls {
            None => Box::new(socket),
            Some(trust) => {
                let name = ServerName::try_from(options.host.clone()).map_err(std::io::Error::other)?;
                Box::new(TlsConnector::from(trust.config()?).connect(name, socket).await.map_err(ClientError::of_tls)?)
            }
        };
        let mut stream = BufReader::new(stream);
        let frame = read_frame(&mut stream, &options.limits).await?;
        let greeting = command_of(&frame.message)?;
        let (code, what) = status_of(&greeting);
        if code != Code::Success {
            return Err(ClientError::ended(code, &what));
        }
        let header = greeting.header.clone().unwrap_or_default();
        Ok(Client {
            stream,
            options,
            greeting,
            connection_id: header.connection_id.unwrap_or(0),
            cluster_version: header.cluster_version.unwrap_or(0),
            priority: None,
            sequence: 0,
        })
    }

    /// What the drive said first.
    pub fn greeting(&self) -> &Command {
        &self.greeting
    }

    /// Sends a request and waits for its answer.
    #[boxed]
    pub async fn call(&mut self, kind: RequestKind, body: Body, value: Bytes) -> Result<Reply, ClientError> {
        self.call_with(Header { message_type: Some(kind as i32), ..Header::default() }, body, value).await
    }

    /// The same with more in the header; what identifies the connection and the request is filled in.
    #[boxed]
    pub async fn call_with(&mut self, header: Header, body: Body, value: Bytes) -> Result<Reply, ClientError> {
        self.send(header, body, value).await?;
        self.receive().await
    }

    /// Sends a request for which no answer is expected now, as within a batch.
    pub async fn send(&mut self, header: Header, body: Body, value: Bytes) -> Result<(), ClientError> {
        let command = self.command(header, body);
        let hmac = sign(&self.options.key, &command);
        let hmac_auth = HmacAuth { identity: Some(self.options.identity), hmac: Some(Bytes::copy_from_slice(&hmac)) };
        let message = Message {
            auth_type: Some(auth::HMAC),
            hmac_auth: Some(hmac_auth),
            command_bytes: Some(command.into()),
            ..Message::default()
        };
        self.write(&message, &value).await
    }

    /// Sends an operation that a PIN allows.
    #[boxed]
    pub async fn pin(&mut self, operation: i32, pin: &[u8]) -> Result<Reply, ClientError> {
        let header = Header { message_type: Some(RequestKind::PinOp as i32), ..Header::default() };
        let operation = PinOperation { pin_op_type: Some(operation) };
        let command = self.command(header, Body { pin_op: Some(operation), ..Body::default() });
        let message = Message {
            auth_type: Some(auth::PIN),
            pin_auth: Some(PinAuth { pin: Some(Bytes::copy_from_slice(pin)) }),
            command_bytes: Some(command.into()),
            ..Message::default()
        };
        self.write(&message, b"").await?;
        self.answer(auth::PIN).await
    }

    fn command(&mut self, header: Header, body: Body) -> Vec<u8> {
        self.sequence += 1;
        let header = Header {
            cluster_version: Some(self.cluster_version),
            connection_id: Some(self.connection_id),
            sequence: Some(self.sequence),
            priority: header.priority.or(self.priority),
            ..header
        };
        let body = (body != Body::default()).then(|| Box::new(body));
        Command { header: Some(header), body, status: None }.encode_to_vec()
    }

    async fn write(&mut self, message: &Message, value: &[u8]) -> Result<(), ClientError> {
        let wait = self.options.wait;
        let written = tokio::time::timeout(wait, write_frame(&mut self.stream, message, value)).await;
        Ok(written.map_err(|_| ClientError::Late(wait))??)
    }

    /// Waits for the answer to a request that was signed, and checks who signed it.
    pub async fn receive(&mut self) -> Result<Reply, ClientError> {
        self.answer(auth::HMAC).await
    }

    /// `asked`: how the request showed who sent it.
    async fn answer(&mut self, asked: i32) -> Result<Reply, ClientError> {
        let wait = self.options.wait;
        let read = tokio::time::timeout(wait, read_frame(&mut self.stream, &self.options.limits)).await;
        let frame = read.map_err(|_| ClientError::Late(wait))??;
        let bytes = frame.message.command_bytes.clone().unwrap_or_default();
        match frame.message.auth_type {
            Some(auth::HMAC) => {
                let signature = frame.message.hmac_auth.as_ref().and_then(|auth| auth.hmac.clone()).unwrap_or_default();
                if !verify(&self.options.key, &bytes, &signature) {
                    return Err(ClientError::Signature);
                }
            }
            Some(auth::UNSOLICITED) => {}
            _ if asked == auth::HMAC => return Err(ClientError::Unsigned),
            _ => {}
        }
        let command = command_of(&frame.message)?;
        let (code, what) = status_of(&command);
        if frame.message.auth_type == Some(auth::UNSOLICITED) {
            return Err(ClientError::ended(code, &what));
        }
        let body = command.body.map(|body| *body).unwrap_or_default();
        Ok(Reply { code, what, body, value: frame.value, header: command.header.unwrap_or_default() })
    }
}

fn command_of(message: &Message) -> Result<Command, ClientError> {
    let bytes = message.command_bytes.clone().unwrap_or_default();
    Ok(Command::read(&bytes)?)
}

/// How a request went, and the same for people.
fn status_of(command: &Command) -> (Code, String) {
    let status = command.status.clone().unwrap_or_default();
    (status.code.and_then(Code::of).unwrap_or(Code::InternalError), status.status_message.unwrap_or_default())
}

impl Trust {
    fn config(&self) -> Result<Arc<ClientConfig>, ClientError> {
        match self {
            Trust::Ca(files) => files.read(PROTOCOL.alpn).map_err(ClientError::Tls),
            Trust::Anyone => {
                let provider = Arc::new(ring::default_provider());
                let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
                    .with_safe_default_protocol_versions()
                    .map_err(|error| ClientError::Tls(Fault::bug(error)))?;
                let verifier = Arc::new(Unverified(provider));
                Ok(Arc::new(builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth()))
            }
        }
    }
}

/// Takes every certificate, but sees to it that the other end has its key.
#[derive(Debug)]
struct Unverified(Arc<CryptoProvider>);

impl ServerCertVerifier for Unverified {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, TlsError> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        verify_tls12_signature(message, cert, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        verify_tls13_signature(message, cert, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
