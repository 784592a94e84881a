//! [`Servers`]: files at servers that stay there, and are read in part whenever somebody wants some of their bytes.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use pithead_model::{Blame, Fault};

use super::address::{Address, S3Address, WebAddress};
use super::client::Client;
use super::file::RemoteFile;
use super::listing::objects;
use super::s3::S3Settings;
use super::trouble::{Patience, odd};

/// Somebody waits for an answer to a query, so a server is given up sooner than one that a load reads of.
const PATIENCE: Patience = Patience {
    connect: Duration::from_secs(5),
    idle: Duration::from_secs(10),
    piece: Duration::from_secs(60),
    tries: 3,
    pause: Duration::from_millis(200),
};

/// Asks servers for lists of objects, and for some of their bytes. A clone is cheap.
#[derive(Clone, Debug)]
pub struct Servers(Arc<Client>);

/// Where objects are: a bucket, a folder or an object of one, or one file at a web server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemotePlace(Address);

/// A file at a server, as it was when it was listed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RemoteObject {
    address: Address,
    /// The name that errors have for it, without anything secret.
    name: String,
    /// Its path below the place; none: it is the place itself.
    path: Option<String>,
    bytes: u64,
    version: String,
    changed: String,
}

impl RemotePlace {
    /// Takes `s3://BUCKET`, `s3://BUCKET/FOLDER` or `https://HOST/FILE` apart; none: it is a path of this machine.
    pub fn parse(text: &str) -> Result<Option<RemotePlace>, Fault> {
        Ok(Address::parse_place(text)?.map(RemotePlace))
    }
}

impl fmt::Display for RemotePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Address::Web(web) => f.write_str(&web.name),
            Address::S3(s3) if s3.key.is_empty() => write!(f, "s3://{}", s3.bucket),
            Address::S3(s3) => s3.fmt(f),
        }
    }
}

impl RemoteObject {
    /// The name that errors have for it, without anything secret.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its path below the place that was listed; none: it is that place.
    pub fn path(&self) -> Option<&str> {
        self.path.as_deref()
    }

    /// Its bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Where it lies, in whole. There may be secrets in it: it tells an object from others, and is not for people.
    pub fn address(&self) -> &str {
        match &self.address {
            Address::Web(web) => &web.url,
            // Which has none.
            Address::S3(_) => &self.name,
        }
    }

    /// What tells it from another one that takes its place: its version at the server, and when it was changed.
    pub fn version(&self) -> (&str, &str) {
        (&self.version, &self.changed)
    }
}

impl Servers {
    /// With the settings and the credentials of this process's environment, by the variables that AWS's own tools read.
    pub fn from_env() -> Servers {
        Servers(Arc::new(Client::new(PATIENCE, S3Settings::from_env())))
    }

    #[cfg(test)]
    fn with(client: Client) -> Servers {
        Servers(Arc::new(client))
    }

    /// All objects of a place, by path. Blocks. [`Blame::User`] where nothing can be there, [`Blame::Access`] where the server
    /// lets nobody in, [`Blame::Device`] where it does not answer, and does not tell what it has to.
    pub fn list(&self, place: &RemotePlace) -> Result<Vec<RemoteObject>, Fault> {
        match &place.0 {
            Address::Web(web) => Ok(vec![self.file(web)?]),
            Address::S3(s3) => self.folder(s3),
        }
    }

    fn file(&self, web: &WebAddress) -> Result<RemoteObject, Fault> {
        let address = Address::Web(web.clone());
        let file = RemoteFile::open(&self.0, address.clone())?;
        // A weak ETag or a time may be those of another file, too.
        let version = file.version().filter(|version| version.starts_with('"'));
        let (Some(version), true) = (version, file.has_ranges()) else {
            let fault = odd(&web.name, "the server gives no parts of it, or does not tell when it is another file");
            let hint = "a file that is read in place has to be at a server that answers ranges and gives strong ETags";
            return Err(fault.hint(hint));
        };
        let (name, version, bytes) = (web.name.clone(), version.to_owned(), file.bytes());
        Ok(RemoteObject { address, name, path: None, bytes, version, changed: String::new() })
    }

    fn folder(&self, folder: &S3Address) -> Result<Vec<RemoteObject>, Fault> {
        let prefix = if folder.key.is_empty() { String::new() } else { format!("{}/", folder.key) };
        let (mut found, mut odd_one) = (Vec::new(), None);
        let mut take = |key: String, bytes: Option<u64>, etag: Option<String>, changed: String| {
            let path = key.strip_prefix(&prefix).filter(|path| !path.is_empty()).map(str::to_owned);
            let s3 = S3Address { bucket: folder.bucket.clone(), key };
            let name = s3.to_string();
            match bytes.zip(etag) {
                Some((bytes, version)) => {
                    found.push(RemoteObject { address: Address::S3(s3), name, path, bytes, version, changed });
                    true
                }
                None => {
                    odd_one = Some(odd(&name, "the server does not list its size and its ETag"));
                    false
                }
            }
        };
        objects(&self.0, &folder.bucket, &prefix, &mut |o| take(o.key, o.bytes, o.etag, o.changed))?;
        if !folder.key.is_empty() {
            // An object of this very name comes before all others that begin with it.
            objects(&self.0, &folder.bucket, &folder.key, &mut |o| {
                if o.key == folder.key {
                    take(o.key, o.bytes, o.etag, o.changed);
                }
                false
            })?;
        }
        if let Some(fault) = odd_one {
            return Err(fault);
        }
        if found.is_empty() {
            let fault = Fault::new(Blame::User, format!("nothing lies at {}", RemotePlace(Address::S3(folder.clone()))));
            return Err(fault.hint("name a bucket or a folder of it that has files, and look at AWS_ENDPOINT_URL"));
        }
        found.sort_by(|a, b| a.name.cmp(&b.name));
        found.dedup_by(|a, b| a.name == b.name);
        Ok(found)
    }

    /// Exactly these bytes of an object. Blocks, for a time that has a limit. [`Blame::Conflict`]: it is no longer what it was
    /// when it was listed. Everything else names it, and says why the server gives nothing.
    pub fn read(&self, object: &RemoteObject, range: Range<u64>) -> Result<Vec<u8>, Fault> {
        if range.start > range.end || range.end > object.bytes {
            return Err(odd(&object.name, format!("bytes {} to {} lie beyond it", range.start, range.end)));
        }
        RemoteFile::known(&self.0, object.address.clone(), &object.name, object.bytes, &object.version).bytes_of(range)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remote::fake::{Failure, Fake};

    fn place(text: &str) -> RemotePlace {
        RemotePlace::parse(text).unwrap().unwrap()
    }

    fn paths(objects: &[RemoteObject]) -> Vec<Option<&str>> {
        objects.iter().map(RemoteObject::path).collect()
    }

    #[test]
    fn places_are_told_from_paths() {
        for (text, shown) in [("s3://lake", "s3://lake"), ("s3://lake/", "s3://lake"), ("s3://lake/a/b/", "s3://lake/a/b")] {
            assert_eq!(place(text).to_string(), shown);
        }
        assert_eq!(place("https://me:word@host/a?token=x").to_string(), "https://host/a");
        assert!(!format!("{:?}", place("https://me:word@host/a?token=x")).contains("word"));
        assert_eq!(RemotePlace::parse("./lake").unwrap(), None);
        for wrong in ["s3://", "s3://lake/*.parquet", "gs://lake"] {
            assert!(RemotePlace::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_folder_is_listed_page_by_page() {
        let files: [(&str, &[u8]); 6] = [
            ("lake/a/1", b"1"),
            ("lake/a/b/2", b"22"),
            ("lake/a/c", b"333"),
            ("lake/ab", b"4"),
            ("lake/z", b"5"),
            ("sea/a/1", b"6"),
        ];
        let fake = Fake::serve(&files);
        let servers = Servers::with(fake.client(&[]));
        let found = servers.list(&place("s3://lake/a/")).unwrap();
        assert_eq!(paths(&found), [Some("1"), Some("b/2"), Some("c")]);
        assert_eq!((found[1].name(), found[1].bytes()), ("s3://lake/a/b/2", 2));
        assert_eq!(servers.list(&place("s3://lake")).unwrap().len(), 5);
        assert_eq!(paths(&servers.list(&place("s3://lake/ab")).unwrap()), [None], "an object by itself");
        assert_eq!(servers.list(&place("s3://lake/nothing")).unwrap_err().blame, Blame::User);
        let web = servers.list(&place(&format!("{}/lake/a/c?token=word", fake.url))).unwrap();
        assert_eq!((paths(&web), web[0].bytes()), (vec![None], 3));
        assert!(!web[0].name().contains("word"));
        assert_eq!(servers.read(&web[0], 1..3).unwrap(), b"33");
        for weak in ["etag: W/\"v0\"\r\n", "last-modified: Wed, 25 Nov 2026 12:00:00 GMT\r\n", ""] {
            fake.always(Failure::Status(206, format!("{weak}content-range: bytes 0-0/10\r\n").leak(), "0"));
            let fault = servers.list(&place(&format!("{}/lake/a/c", fake.url))).unwrap_err();
            assert!(fault.hint.as_ref().is_some_and(|hint| hint.contains("strong ETags")), "{weak}: {fault}");
        }
    }

    #[test]
    fn an_object_is_read_until_it_is_another_one() {
        let fake = Fake::serve(&[("lake/a", b"0123456789"), ("lake/b", b"9876543210")]);
        let servers = Servers::with(fake.client(&[]));
        let found = servers.list(&place("s3://lake")).unwrap();
        assert_eq!(servers.read(&found[0], 2..5).unwrap(), b"234");
        assert!(servers.read(&found[0], 5..5).unwrap().is_empty());
        assert!(servers.read(&found[0], 5..11).is_err());
        fake.put("lake/a", b"0123456789");
        let fault = servers.read(&found[0], 2..5).unwrap_err();
        assert_eq!(fault.blame, Blame::Conflict, "{fault}");
        assert!(fault.message.contains("s3://lake/a was changed"), "{fault}");
        assert_ne!(servers.list(&place("s3://lake")).unwrap()[0], found[0]);
        fake.remove("lake/b");
        let fault = servers.read(&found[1], 0..1).unwrap_err();
        assert!(fault.blame == Blame::Conflict && fault.message.contains("s3://lake/b was removed"), "{fault}");
    }

    #[test]
    fn what_fails_is_tried_again_or_named() {
        let fake = Fake::serve(&[("lake/a", b"0123456789")]);
        let servers = Servers::with(fake.client(&[]));
        let object = servers.list(&place("s3://lake")).unwrap().remove(0);
        let passing = Failure::Status(503, "retry-after: 0\r\n", "");
        for failures in [vec![passing.clone(), passing], vec![Failure::Cut(3)], vec![Failure::Silence, Failure::Stall(3)]] {
            fake.next(&failures);
            assert_eq!(servers.read(&object, 1..9).unwrap(), b"12345678", "{failures:?}");
        }
        fake.next(&[Failure::Noise]);
        let fault = servers.read(&object, 1..9).unwrap_err();
        assert!(fault.message.contains("s3://lake/a"), "{fault}");
        let lying = "etag: \"v0\"\r\ncontent-range: bytes 0-7/10\r\n";
        let longer = "etag: \"v0\"\r\ncontent-range: bytes 1-9/10\r\n";
        for (status, headers, blame, expected) in [
            (403, "", Blame::Access, "403"),
            (503, "retry-after: 0\r\n", Blame::Device, "503"),
            (206, lying, Blame::Device, "other bytes"),
            (206, longer, Blame::Device, "other bytes"),
            (206, "etag: \"v0\"\r\n", Blame::Device, "does not say which"),
            (206, "content-range: bytes 1-8/10\r\n", Blame::Conflict, "changed"),
            (206, "etag: \"v0\"\r\ncontent-range: bytes 1-8/11\r\n", Blame::Conflict, "changed"),
            (200, "etag: \"v0\"\r\n", Blame::Device, "no parts"),
        ] {
            fake.always(Failure::Status(status, headers, "01234567"));
            let fault = servers.read(&object, 1..9).unwrap_err();
            assert!(fault.blame == blame && fault.message.contains("s3://lake/a"), "{status} {headers}: {fault}");
            assert!(fault.message.contains(expected), "{status} {headers}: {fault}");
        }
    }

    #[test]
    fn a_server_that_breaks_off_again_and_again_is_asked_as_long_as_bytes_come() {
        let fake = Fake::serve(&[("lake/long", &[7; 1 << 20])]);
        let servers = Servers::with(fake.client(&[]));
        let object = servers.list(&place("s3://lake")).unwrap().remove(0);
        for (bytes, comes) in [(70_000, true), (1_000, false)] {
            fake.always(Failure::Cut(bytes));
            let read = servers.read(&object, 0..1 << 20);
            assert_eq!(read.map(|bytes| bytes.len()).ok(), comes.then_some(1 << 20), "{bytes} bytes at a time");
        }
    }
}
