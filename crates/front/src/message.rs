//! What clients send, read from bytes that may be anything.

use std::fmt;

/// A message after the connection has begun.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// One or several statements to run at once.
    Query(String),
    /// A statement to prepare.
    Parse { name: String, sql: String, types: Vec<u32> },
    /// Values for a statement's parameters.
    Bind { portal: String, statement: String, formats: Vec<i16>, values: Vec<Option<Vec<u8>>>, results: Vec<i16> },
    /// What a statement or portal gives.
    Describe(Target),
    /// Runs a portal: at most so many rows, all where it is 0.
    Execute { portal: String, rows: u32 },
    /// Forgets a statement or portal.
    Close(Target),
    /// Sends what waits.
    Flush,
    /// Ends a run of messages, and what failed in it.
    Sync,
    /// A part of what COPY FROM STDIN reads.
    CopyData(Vec<u8>),
    /// Its end.
    CopyDone,
    /// The client gave up.
    CopyFail(String),
    /// A password.
    Password(Vec<u8>),
    /// A call of a function by number.
    FunctionCall,
    /// The client leaves.
    Terminate,
}

/// What Describe and Close name.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Statement(String),
    Portal(String),
}

/// Why bytes are no message.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Malformed {
    /// Where it ends cannot be relied on.
    Bytes(String),
    /// It is a message with a text that is not UTF-8.
    Text(String),
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Malformed::Bytes(what) | Malformed::Text(what) => f.write_str(what),
        }
    }
}

fn malformed(what: impl Into<String>) -> Malformed {
    Malformed::Bytes(what.into())
}

/// Most bytes of the body of a message of this kind, where large ones may have `large`.
pub(crate) fn bytes_max(tag: u8, large: usize) -> usize {
    match tag {
        b'Q' | b'P' | b'B' | b'd' => large,
        _ => 64 << 10,
    }
}

impl Message {
    /// Reads a message's body.
    pub(crate) fn read(tag: u8, body: Vec<u8>) -> Result<Message, Malformed> {
        if tag == b'd' {
            return Ok(Message::CopyData(body));
        }
        if tag == b'p' {
            return Ok(Message::Password(body));
        }
        let mut fields = Fields { rest: &body };
        let message = match tag {
            b'Q' => Message::Query(fields.text()?),
            b'P' => Message::Parse {
                name: fields.text()?,
                sql: fields.text()?,
                types: fields.numbers(|fields| fields.int().map(|oid| oid as u32))?,
            },
            b'B' => Message::Bind {
                portal: fields.text()?,
                statement: fields.text()?,
                formats: fields.numbers(Fields::short)?,
                values: fields.numbers(Fields::value)?,
                results: fields.numbers(Fields::short)?,
            },
            b'D' => Message::Describe(fields.target()?),
            b'C' => Message::Close(fields.target()?),
            b'E' => Message::Execute { portal: fields.text()?, rows: u32::try_from(fields.int()?).unwrap_or(0) },
            b'H' => Message::Flush,
            b'S' => Message::Sync,
            b'c' => Message::CopyDone,
            b'f' => Message::CopyFail(fields.text()?),
            b'F' => return Ok(Message::FunctionCall),
            b'X' => Message::Terminate,
            other => return Err(malformed(format!("there is no message of the kind {:?}", char::from(other)))),
        };
        match fields.rest {
            [] => Ok(message),
            rest => Err(malformed(format!("a message has {} bytes too many", rest.len()))),
        }
    }
}

/// Reads a body from its front.
pub(crate) struct Fields<'a> {
    pub(crate) rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(crate) fn bytes(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (bytes, rest) = self.rest.split_at_checked(count).ok_or_else(|| malformed("a message ends too early"))?;
        self.rest = rest;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        self.bytes(N)?.try_into().map_err(|_| malformed("a message ends too early"))
    }

    pub(crate) fn int(&mut self) -> Result<i32, Malformed> {
        self.array().map(i32::from_be_bytes)
    }

    pub(crate) fn short(&mut self) -> Result<i16, Malformed> {
        self.array().map(i16::from_be_bytes)
    }

    /// A text up to a zero byte.
    pub(crate) fn text(&mut self) -> Result<String, Malformed> {
        let end = self.rest.iter().position(|byte| *byte == 0).ok_or_else(|| malformed("a text in a message has no end"))?;
        let text = self.bytes(end)?;
        self.bytes(1)?;
        let text = std::str::from_utf8(text)
            .map_err(|error| Malformed::Text(format!("invalid byte sequence for encoding \"UTF8\": {error}")))?;
        Ok(text.to_owned())
    }

    /// A count, and so many of something.
    fn numbers<T>(&mut self, mut one: impl FnMut(&mut Self) -> Result<T, Malformed>) -> Result<Vec<T>, Malformed> {
        let count = usize::from(self.short()? as u16);
        let mut all = Vec::with_capacity(count.min(self.rest.len()));
        for _ in 0..count {
            all.push(one(self)?);
        }
        Ok(all)
    }

    /// A length, and so many bytes; none where the length is -1.
    pub(crate) fn bytes_of_value(&mut self) -> Result<Option<&'a [u8]>, Malformed> {
        match self.int()? {
            -1 => Ok(None),
            length => {
                let length = usize::try_from(length).map_err(|_| malformed("a value's length is negative"))?;
                self.bytes(length).map(Some)
            }
        }
    }

    /// The same, for who keeps it.
    pub(crate) fn value(&mut self) -> Result<Option<Vec<u8>>, Malformed> {
        Ok(self.bytes_of_value()?.map(<[u8]>::to_vec))
    }

    fn target(&mut self) -> Result<Target, Malformed> {
        match self.array::<1>()? {
            [b'S'] => self.text().map(Target::Statement),
            [b'P'] => self.text().map(Target::Portal),
            [other] => Err(malformed(format!("expected S or P, got {:?}", char::from(other)))),
        }
    }
}

/// What a connection begins with.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Startup {
    /// Asks for TLS.
    Tls,
    /// Asks for encryption by GSSAPI.
    Gss,
    /// Cancels what runs over another connection.
    Cancel { process: i32, secret: i32 },
    /// Begins a session, by pairs of names and values.
    Session { minor: u16, parameters: Vec<(String, String)> },
}

/// Most bytes of what a connection begins with.
pub(crate) const STARTUP_BYTES_MAX: usize = 10_000;
/// Most parameters in it.
const PARAMETERS_MAX: usize = 200;

impl Startup {
    /// Reads what follows the length.
    pub(crate) fn read(body: &[u8]) -> Result<Startup, Malformed> {
        let mut fields = Fields { rest: body };
        let code = fields.int()? as u32;
        match code {
            80_877_103 => Ok(Startup::Tls),
            80_877_104 => Ok(Startup::Gss),
            80_877_102 => Ok(Startup::Cancel { process: fields.int()?, secret: fields.int()? }),
            code if code >> 16 == 3 => {
                let mut parameters = Vec::new();
                loop {
                    let name = fields.text()?;
                    if name.is_empty() {
                        break;
                    }
                    if parameters.len() >= PARAMETERS_MAX {
                        return Err(malformed("a connection begins with too many parameters"));
                    }
                    parameters.push((name, fields.text()?));
                }
                Ok(Startup::Session { minor: code as u16, parameters })
            }
            code => {
                Err(malformed(format!("version {}.{} of the protocol is not spoken here; 3.0 is", code >> 16, code & 0xffff)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_and_their_ends_are_checked() {
        let body = b"s\0SELECT $1\0\0\x01\0\0\0\x17".to_vec();
        let parse = Message::Parse { name: "s".into(), sql: "SELECT $1".into(), types: vec![23] };
        assert_eq!(Message::read(b'P', body.clone()).unwrap(), parse);
        for cut in 0..body.len() {
            assert!(Message::read(b'P', body[..cut].to_vec()).is_err(), "{cut}");
        }
        assert!(Message::read(b'P', [body, vec![0]].concat()).is_err());
        let bind = Message::read(b'B', b"\0\0\0\0\0\x02\0\0\0\x01x\xff\xff\xff\xff\0\0".to_vec()).unwrap();
        let Message::Bind { values, .. } = bind else { panic!("{bind:?}") };
        assert_eq!(values, [Some(b"x".to_vec()), None]);
        assert!(Message::read(b'B', b"\0\0\0\0\0\x01\x80\0\0\0\0\0".to_vec()).is_err());
        assert!(Message::read(b'?', vec![]).is_err());
    }

    #[test]
    fn connections_begin_in_four_ways() {
        assert_eq!(Startup::read(&80_877_103_u32.to_be_bytes()).unwrap(), Startup::Tls);
        let session = Startup::read(b"\0\x03\0\0user\0me\0\0").unwrap();
        assert_eq!(session, Startup::Session { minor: 0, parameters: vec![("user".into(), "me".into())] });
        assert!(Startup::read(b"\0\x03\0\0user\0me\0").is_err());
        assert!(Startup::read(b"\0\x02\0\0").unwrap_err().to_string().contains("2.0"));
        assert!(Startup::read(b"GET ").is_err());
    }
}
