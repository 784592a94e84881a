//! [`Finder`] and [`Input`]: files that are found and read, here or at servers.

use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pithead_model::Fault;

use crate::remote::{Address, Client, RemoteFile};
use crate::source::{open_file, unreadable};
use crate::spool::{At, Spool, Spooling};

/// A file that is read.
#[derive(Clone, Debug)]
pub(crate) enum Input {
    /// One of this machine.
    Local(PathBuf),
    /// One at a server.
    Remote(Arc<RemoteFile>),
}

/// Finds files, and asks servers only where one is named.
#[derive(Debug, Default)]
pub(crate) struct Finder {
    client: Option<Arc<Client>>,
}

impl Finder {
    /// With a client of its own.
    #[cfg(test)]
    pub(crate) fn with(client: Client) -> Finder {
        Finder { client: Some(Arc::new(client)) }
    }

    /// The files that a source names: itself, or those that match it as a pattern, sorted.
    pub(crate) fn find(&mut self, source: &str) -> Result<Vec<FoundFile>, Fault> {
        let is_here = Path::new(source).exists();
        match if is_here { None } else { Address::parse(source)? } {
            Some(address) => {
                let client = self.client.get_or_insert_with(|| Arc::new(Client::from_env()));
                let found = RemoteFile::find(client, address)?.into_iter();
                Ok(found.map(|address| FoundFile::Remote(Arc::clone(client), address)).collect())
            }
            None => Ok(find_here(source)?.into_iter().map(FoundFile::Local).collect()),
        }
    }
}

/// A file that was found.
#[derive(Debug)]
pub(crate) enum FoundFile {
    /// One of this machine.
    Local(PathBuf),
    /// One at a server, which is not asked for it yet.
    Remote(Arc<Client>, Address),
}

impl FoundFile {
    /// Whether a server is asked for it.
    pub(crate) fn is_remote(&self) -> bool {
        matches!(self, FoundFile::Remote(..))
    }

    /// The file, of which one at a server is asked for.
    pub(crate) fn input(&self) -> Result<Input, Fault> {
        match self {
            FoundFile::Local(path) => Ok(Input::Local(path.clone())),
            FoundFile::Remote(client, address) => Ok(Input::Remote(Arc::new(RemoteFile::open(client, address.clone())?))),
        }
    }
}

/// The files of this machine that a source names.
fn find_here(source: &str) -> Result<Vec<PathBuf>, Fault> {
    let path = Path::new(source);
    if path.is_dir() {
        let hint = format!("name its files, as in '{}'", path.join("*.parquet").display());
        return Err(Fault::invalid(format!("{source} is a directory")).hint(hint));
    }
    if path.exists() || !source.contains(['*', '?', '[']) {
        return Ok(vec![path.to_owned()]);
    }
    let matches =
        glob::glob(source).map_err(|error| Fault::invalid(format!("{source} is not a pattern for files: {error}")))?;
    let mut files = Vec::new();
    for file in matches {
        let file = file.map_err(|error| unreadable(error.path(), error.error()))?;
        if file.is_file() {
            files.push(file);
        }
    }
    if files.is_empty() {
        return Err(Fault::invalid(format!("no file matches {source}")));
    }
    Ok(files)
}

impl Input {
    /// What errors call it.
    pub(crate) fn name(&self) -> &Path {
        match self {
            Input::Local(path) => path,
            Input::Remote(file) => file.name(),
        }
    }

    /// Its bytes; 0 where a server does not say.
    pub(crate) fn bytes(&self) -> Result<u64, Fault> {
        match self {
            Input::Local(path) => Ok(open_file(path)?.metadata().map_err(|error| unreadable(path, &error))?.len()),
            Input::Remote(file) => Ok(file.bytes()),
        }
    }

    /// At most so many of its first bytes.
    pub(crate) fn head(&self, bytes: usize) -> Result<Vec<u8>, Fault> {
        match self {
            Input::Local(path) => {
                let mut head = Vec::new();
                let read = open_file(path)?.take(bytes as u64).read_to_end(&mut head);
                read.map_err(|error| unreadable(path, &error)).map(|_| head)
            }
            Input::Remote(file) => Ok(file.head().iter().copied().take(bytes).collect()),
        }
    }

    /// From its first byte to its last.
    pub(crate) fn stream(&self) -> Result<Stream, Fault> {
        match self {
            Input::Local(path) => Ok(Stream::File(open_file(path)?)),
            Input::Remote(file) => Ok(Stream::Remote(file.stream()?)),
        }
    }

    /// To be read from any place on. One at a server is fetched as a whole.
    pub(crate) fn whole(&self) -> Result<At, Fault> {
        match self {
            Input::Local(path) => At::file(open_file(path)?).map_err(|error| unreadable(path, &error)),
            Input::Remote(file) => Ok(At::spool(fetch_all(file)?, 0)),
        }
    }
}

/// All bytes of a file at a server.
pub(crate) fn fetch_all(file: &RemoteFile) -> Result<Arc<Spool>, Fault> {
    let mut spooling = Spooling::default();
    file.read_all(&mut |piece| spooling.add(file.name(), &piece))?;
    let bytes = spooling.bytes();
    Ok(Arc::new(spooling.finish(std::iter::once(0..bytes).collect())))
}

/// Ranges of a file at a server, which ascend.
pub(crate) fn fetch(file: &RemoteFile, ranges: Vec<Range<u64>>) -> Result<Arc<Spool>, Fault> {
    let mut spooling = Spooling::default();
    for range in &ranges {
        file.read(range.clone(), &mut |piece| spooling.add(file.name(), &piece))?;
    }
    Ok(Arc::new(spooling.finish(ranges)))
}

/// The bytes of a file in order.
#[derive(Debug)]
pub(crate) enum Stream {
    File(File),
    Remote(crate::remote::RemoteStream),
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Stream::File(file) => file.read(into),
            Stream::Remote(stream) => stream.read(into),
        }
    }
}
