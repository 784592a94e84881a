//! A server of buckets over a directory, each of whose folders is one. It fails as it is told.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Keys of one answer.
const KEYS: usize = 20;

/// How requests are answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answers {
    /// As they should be.
    Well,
    /// With a status, and nothing else.
    Status(u16),
    /// With fewer bytes than were promised.
    Cut,
    /// With other bytes than were asked for.
    Shifted,
    /// With the whole object.
    Whole,
    /// Not at all, for ten seconds.
    Silence,
}

/// How the bucket answers, and the requests that it has had.
#[derive(Debug)]
struct BucketState {
    objects: Answers,
    lists: Answers,
    /// Requests for objects.
    requests: usize,
}

/// The server. It runs until the process ends.
#[derive(Clone, Debug)]
pub struct Bucket {
    url: String,
    directory: PathBuf,
    state: Arc<Mutex<BucketState>>,
}

impl Bucket {
    /// Over the folders of a directory.
    pub fn serve(directory: &Path) -> Bucket {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("it is bound"));
        let state = BucketState { objects: Answers::Well, lists: Answers::Well, requests: 0 };
        let bucket = Bucket { url, directory: directory.to_owned(), state: Arc::new(Mutex::new(state)) };
        let served = bucket.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let served = served.clone();
                std::thread::spawn(move || while served.answer(&stream).is_some() {});
            }
        });
        bucket
    }

    /// The environment of a program that asks it.
    pub fn environment(&self) -> Vec<(String, String)> {
        let pairs = [
            ("AWS_ENDPOINT_URL", self.url.as_str()),
            ("AWS_ALLOW_HTTP", "true"),
            ("AWS_ACCESS_KEY_ID", "the-key"),
            ("AWS_SECRET_ACCESS_KEY", "the-secret-word"),
        ];
        pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec()
    }

    /// Its address.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// How further requests for objects are answered, and those for lists.
    pub fn answers(&self, objects: Answers, lists: Answers) {
        let mut state = self.state.lock().expect("nobody panicked with it");
        (state.objects, state.lists) = (objects, lists);
    }

    /// Requests for objects so far.
    pub fn requests(&self) -> usize {
        self.state.lock().expect("nobody panicked with it").requests
    }

    /// Answers one request; none: the connection is over.
    fn answer(&self, stream: &TcpStream) -> Option<()> {
        let mut lines = Vec::new();
        let mut reader = BufReader::new(stream);
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).ok()? == 0 {
                return None;
            }
            match line.trim_end() {
                "" => break,
                line => lines.push(line.to_owned()),
            }
        }
        let target = lines.first()?.split(' ').nth(1)?;
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let is_list = query.contains("list-type=2");
        let answers = {
            let mut state = self.state.lock().ok()?;
            state.requests += usize::from(!is_list);
            if is_list { state.lists } else { state.objects }
        };
        let path = decoded(path.trim_start_matches('/'));
        let header = |name: &str| {
            let found =
                lines.iter().filter_map(|line| line.split_once(": ")).find(|(known, _)| known.eq_ignore_ascii_case(name));
            found.map(|(_, value)| value.to_owned())
        };
        let is_signed = header("authorization").is_some_and(|text| text.contains("Credential=the-key/"));
        let status = match answers {
            _ if !is_signed && !path.starts_with("open/") => Some(403),
            Answers::Status(status) => Some(status),
            Answers::Silence => {
                std::thread::sleep(Duration::from_secs(10));
                return None;
            }
            _ => None,
        };
        let (head, body) = match status {
            Some(status) => {
                (format!("HTTP/1.1 {status} Told\r\nretry-after: 0\r\n"), b"<Error><Code>Told</Code></Error>".to_vec())
            }
            None if is_list => ("HTTP/1.1 200 OK\r\n".to_owned(), self.list(&path, query)),
            None => self.object(&path, header("range"), header("if-match"), answers),
        };
        let head = format!("{head}content-length: {}\r\n\r\n", body.len());
        let cut = if answers == Answers::Cut { body.len() / 2 } else { body.len() };
        let mut stream = stream;
        stream.write_all(&[head.as_bytes(), &body[..cut]].concat()).ok()?;
        (cut == body.len()).then_some(())
    }

    fn object(&self, path: &str, range: Option<String>, same: Option<String>, answers: Answers) -> (String, Vec<u8>) {
        let Ok(mut file) = File::open(self.directory.join(path)) else {
            return ("HTTP/1.1 404 Not Found\r\n".to_owned(), b"<Error><Code>NoSuchKey</Code></Error>".to_vec());
        };
        let (etag, size) = version(&file);
        if same.is_some_and(|same| same != etag) {
            return ("HTTP/1.1 412 Precondition Failed\r\n".to_owned(), vec![]);
        }
        let range = range.as_deref().and_then(|range| range.strip_prefix("bytes=")?.split_once('-'));
        let range = range.and_then(|(first, last)| Some((first.parse::<u64>().ok()?, last.parse::<u64>().ok()?)));
        let (first, last) = range.filter(|_| answers != Answers::Whole).unwrap_or((0, size - 1));
        let last = last.min(size - 1);
        let mut body = vec![0; (last + 1 - first) as usize];
        file.seek(SeekFrom::Start(first)).and_then(|_| file.read_exact(&mut body)).expect("a file of this size");
        let first = if answers == Answers::Shifted { first + 1 } else { first };
        match range.filter(|_| answers != Answers::Whole) {
            Some(_) => {
                (format!("HTTP/1.1 206 Partial\r\netag: {etag}\r\ncontent-range: bytes {first}-{last}/{size}\r\n"), body)
            }
            None => (format!("HTTP/1.1 200 OK\r\netag: {etag}\r\n"), body),
        }
    }

    /// A few keys of a bucket.
    fn list(&self, bucket: &str, query: &str) -> Vec<u8> {
        let value = |name: &str| {
            let pair = query.split('&').find_map(|pair| pair.strip_prefix(name));
            decoded(pair.unwrap_or_default())
        };
        let (prefix, after) = (value("prefix="), value("continuation-token="));
        let mut keys = Vec::new();
        files(&self.directory.join(bucket), "", &mut keys);
        keys.retain(|(key, _)| key.starts_with(&prefix) && *key > after);
        keys.sort();
        let shown = |(key, path): &(String, PathBuf)| {
            // It may be gone by now.
            let (etag, size) = version(&File::open(path).ok()?);
            Some(format!("<Contents><Key>{}</Key><ETag>{etag}</ETag><Size>{size}</Size></Contents>", key.replace('%', "%25")))
        };
        let listed: String = keys.iter().take(KEYS).filter_map(shown).collect();
        let next = keys
            .get(KEYS - 1)
            .filter(|_| keys.len() > KEYS)
            .map(|(key, _)| format!("<IsTruncated>true</IsTruncated><NextContinuationToken>{key}</NextContinuationToken>"));
        let text = format!(
            "<ListBucketResult><EncodingType>url</EncodingType>{listed}{}</ListBucketResult>",
            next.unwrap_or_default()
        );
        text.into_bytes()
    }
}

/// What tells a file from one that takes its place, and its size.
fn version(file: &File) -> (String, u64) {
    let metadata = file.metadata().expect("an open file");
    let parts = [metadata.ino(), metadata.mtime() as u64, metadata.mtime_nsec() as u64, metadata.len()];
    (format!("\"{}\"", parts.map(|part| format!("{part:x}")).join("-")), metadata.len())
}

/// The files below a folder that are whole, by key.
fn files(folder: &Path, prefix: &str, into: &mut Vec<(String, PathBuf)>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let key = format!("{prefix}{}", entry.file_name().to_string_lossy());
        match entry.path() {
            path if path.is_dir() => files(&path, &format!("{key}/"), into),
            path if path.extension().is_some_and(|ending| ending == "partial") => {}
            path => into.push((key, path)),
        }
    }
}

fn decoded(text: &str) -> String {
    let mut out = Vec::new();
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        let hex = |digit: Option<u8>| (digit.unwrap_or(b'0') as char).to_digit(16).unwrap_or(0) as u8;
        out.push(if byte == b'%' { hex(bytes.next()) * 16 + hex(bytes.next()) } else { byte });
    }
    String::from_utf8_lossy(&out).into_owned()
}
