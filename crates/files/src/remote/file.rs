//! [`RemoteFile`]: one file at a server, whose bytes are read in pieces.

use std::io::{self, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pithead_model::{Blame, Fault};

use super::address::Address;
use super::answer::Answer;
use super::client::Client;
use super::listing;
use super::stream::{RemoteStream, Sink};
use super::trouble::{Tries, Trouble, odd};

/// Bytes that are read at first, to tell the format.
const HEAD_BYTES: u64 = 16;
/// The first piece of a file; each next one is twice as large.
const PIECE_BYTES_MIN: u64 = 256 << 10;
const PIECE_BYTES_MAX: u64 = 8 << 20;
/// So many bytes of an answer that breaks off are a step forward, so that a server that gives them is asked on.
const STEP_BYTES_MIN: usize = 64 << 10;

/// A file as it was when it was first asked for.
#[derive(Debug)]
pub(crate) struct RemoteFile {
    client: Arc<Client>,
    address: Address,
    name: PathBuf,
    head: Vec<u8>,
    total: Option<u64>,
    version: Option<String>,
    /// Whether the server gives parts of it.
    has_ranges: bool,
}

impl RemoteFile {
    /// The files that an address stands for: one, or those that its pattern matches.
    pub(crate) fn find(client: &Client, address: Address) -> Result<Vec<Address>, Fault> {
        match address {
            Address::S3(pattern) if pattern.is_pattern() => {
                Ok(listing::list(client, &pattern)?.into_iter().map(Address::S3).collect())
            }
            one => Ok(vec![one]),
        }
    }

    /// Asks for the first bytes, which tell the rest.
    pub(crate) fn open(client: &Arc<Client>, address: Address) -> Result<RemoteFile, Fault> {
        let name = match &address {
            Address::Web(web) => web.name.clone(),
            Address::S3(s3) => s3.to_string(),
        };
        let mut tries = Tries::new(&name, client.patience);
        let (answer, head) = loop {
            match client.get(&address, Some(0..HEAD_BYTES), None).and_then(with_head) {
                Ok(found) => break found,
                Err(trouble) => tries.again(trouble)?,
            }
        };
        if answer.range.as_ref().is_some_and(|range| range.start != 0) {
            return Err(odd(&name, "the server gives other bytes than it was asked for"));
        }
        let (total, version, has_ranges) = (answer.total, answer.version, answer.range.is_some());
        Ok(RemoteFile { client: Arc::clone(client), address, name: name.into(), head, total, version, has_ranges })
    }

    /// One of which a list has told, with its bytes and its version.
    pub(crate) fn known(client: &Arc<Client>, address: Address, name: &str, bytes: u64, version: &str) -> RemoteFile {
        RemoteFile {
            client: Arc::clone(client),
            address,
            name: name.into(),
            head: vec![],
            total: Some(bytes),
            version: Some(version.to_owned()),
            has_ranges: true,
        }
    }

    /// Some of its bytes, with as few requests as there can be.
    pub(crate) fn bytes_of(&self, range: Range<u64>) -> Result<Vec<u8>, Fault> {
        let mut all: Vec<u8> = Vec::new();
        self.read_by(range, PIECE_BYTES_MAX, &mut |piece| {
            match all.is_empty() {
                true => all = piece,
                false => all.extend_from_slice(&piece),
            }
            Ok(())
        })?;
        Ok(all)
    }

    /// What tells it from a file that takes its place.
    pub(crate) fn version(&self) -> Option<&str> {
        self.version.as_deref()
    }

    /// The name that errors have for it.
    pub(crate) fn name(&self) -> &Path {
        &self.name
    }

    /// Its bytes, as far as the server says how many there are.
    pub(crate) fn bytes(&self) -> u64 {
        self.total.unwrap_or(0)
    }

    /// Its first bytes.
    pub(crate) fn head(&self) -> &[u8] {
        &self.head
    }

    /// Whether parts of it can be read.
    pub(crate) fn has_ranges(&self) -> bool {
        self.has_ranges
    }

    /// All of its bytes, some of which are asked for before they are read.
    pub(crate) fn stream(self: &Arc<Self>) -> Result<RemoteStream, Fault> {
        let file = Arc::clone(self);
        RemoteStream::start(move |sink| file.read_all(sink))
    }

    /// Gives all of its bytes to a sink.
    pub(crate) fn read_all(&self, sink: Sink<'_>) -> Result<(), Fault> {
        match (self.has_ranges, self.total) {
            (true, Some(total)) => self.read(0..total, sink),
            _ => self.read_unbroken(sink),
        }
    }

    /// Gives some of its bytes to a sink.
    pub(crate) fn read(&self, range: Range<u64>, sink: Sink<'_>) -> Result<(), Fault> {
        self.read_by(range, PIECE_BYTES_MIN, sink)
    }

    /// The same, with a first piece of so many bytes.
    fn read_by(&self, range: Range<u64>, mut bytes: u64, sink: Sink<'_>) -> Result<(), Fault> {
        let mut at = range.start;
        let name = self.shown();
        let mut tries = Tries::new(&name, self.client.patience);
        while at < range.end {
            let wanted = at..range.end.min(at.saturating_add(bytes));
            let mut piece = Vec::new();
            let outcome = self.piece(&wanted, &mut piece);
            at += piece.len() as u64;
            let is_step = piece.len() >= STEP_BYTES_MIN;
            if !piece.is_empty() {
                sink(piece)?;
            }
            if outcome.is_ok() || is_step {
                tries.reset();
            }
            match outcome {
                Ok(()) => bytes = PIECE_BYTES_MAX.min(bytes * 2),
                Err(trouble) => {
                    bytes = PIECE_BYTES_MIN.max(bytes / 2);
                    tries.again(trouble)?;
                }
            }
        }
        Ok(())
    }

    /// Reads a range; where it breaks off, `piece` has what came.
    fn piece(&self, wanted: &Range<u64>, piece: &mut Vec<u8>) -> Result<(), Trouble> {
        let answer = self.client.get(&self.address, Some(wanted.clone()), self.version.as_deref())?;
        self.check(&answer)?;
        // Fewer than were asked for are welcome.
        if answer.range.is_none() {
            let fault = odd(&self.shown(), "the server gives no parts of it");
            return Err(Trouble::Lasting(fault.hint("a file that is read in place has to be at a server that answers ranges")));
        }
        let given = answer.range.filter(|given| given.start == wanted.start && given.end <= wanted.end);
        let Some(given) = given else {
            return Err(Trouble::Lasting(odd(&self.shown(), "the server gives other bytes than it was asked for")));
        };
        let bytes = given.end - given.start;
        let read = answer.body.take(bytes).read_to_end(piece);
        read.map_err(|error| Trouble::in_body(&error))?;
        match piece.len() as u64 == bytes {
            true => Ok(()),
            false => Err(Trouble::in_body(&io::ErrorKind::UnexpectedEof.into())),
        }
    }

    /// Reads all of a file that its server gives as a whole only.
    fn read_unbroken(&self, sink: Sink<'_>) -> Result<(), Fault> {
        let name = self.shown();
        let mut tries = Tries::new(&name, self.client.patience);
        let mut answer = loop {
            let answer = self
                .client
                .get(&self.address, None, self.version.as_deref())
                .and_then(|answer| self.check(&answer).map(|()| answer));
            match answer {
                Ok(answer) => break answer,
                Err(trouble) => tries.again(trouble)?,
            }
        };
        let mut at = 0_u64;
        loop {
            let mut piece = Vec::new();
            let read = (&mut answer.body).take(PIECE_BYTES_MIN).read_to_end(&mut piece);
            at += piece.len() as u64;
            let is_over = piece.is_empty();
            if !is_over {
                sink(piece)?;
            }
            match read {
                Err(error) => return Err(self.broken(at, &Trouble::in_body(&error))),
                Ok(_) if is_over && self.total.is_some_and(|total| total != at) => {
                    return Err(self.broken(at, &Trouble::in_body(&io::ErrorKind::UnexpectedEof.into())));
                }
                Ok(_) if is_over => return Ok(()),
                Ok(_) => {}
            }
        }
    }

    fn broken(&self, at: u64, trouble: &Trouble) -> Fault {
        let what = match trouble {
            Trouble::Passing(what, _) => what,
            Trouble::Lasting(fault) => &fault.message,
        };
        let fault = Fault::new(Blame::Device, format!("{}: {what}, after {at} bytes", self.shown()));
        fault.hint("this server gives no parts of a file, so a reader cannot go on: fetch the file first, and load that")
    }

    /// Whether an answer is of the file that was opened.
    fn check(&self, answer: &Answer) -> Result<(), Trouble> {
        let is_same = answer.version == self.version && (answer.range.is_none() || answer.total == self.total);
        match is_same {
            true => Ok(()),
            false => {
                let fault = Fault::new(Blame::Conflict, format!("{} was changed while it was read", self.shown()));
                Err(Trouble::Lasting(fault.hint("load it again")))
            }
        }
    }

    fn shown(&self) -> String {
        self.name.display().to_string()
    }
}

fn with_head(mut answer: Answer) -> Result<(Answer, Vec<u8>), Trouble> {
    let mut head = Vec::new();
    let read = (&mut answer.body).take(HEAD_BYTES).read_to_end(&mut head);
    read.map_err(|error| Trouble::in_body(&error))?;
    Ok((answer, head))
}
