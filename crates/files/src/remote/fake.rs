//! A server of files and buckets for tests, which fails as it is told.

use std::collections::{BTreeMap, VecDeque};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use super::{Client, Patience, S3Settings};

/// What happens to one request.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    /// None of these.
    Well,
    /// An answer with this status, these headers and this body.
    Status(u16, &'static str, &'static str),
    /// The body ends after so many bytes.
    Cut(usize),
    /// After so many bytes of the body nothing more comes.
    Stall(usize),
    /// No answer at all.
    Silence,
    /// Something that is no HTTP.
    Noise,
}

/// The files of the server, and how it answers.
#[derive(Debug, Default)]
struct FakeServerState {
    files: BTreeMap<String, (Vec<u8>, u64)>,
    /// What happens to the next requests.
    next: VecDeque<Failure>,
    /// What happens when those are over; none: nothing.
    then: Option<Failure>,
    no_ranges: bool,
    no_lengths: bool,
    /// Requests, each with its lines.
    seen: Vec<Vec<String>>,
    version: u64,
    /// Keys of one answer.
    keys: usize,
}

/// The server.
#[derive(Clone, Debug)]
pub(crate) struct Fake {
    pub(crate) url: String,
    state: Arc<Mutex<FakeServerState>>,
}

impl Fake {
    /// With these files, by path without the first `/`.
    pub(crate) fn serve(files: &[(&str, &[u8])]) -> Fake {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let files = files.iter().map(|(path, bytes)| ((*path).to_owned(), (bytes.to_vec(), 0))).collect();
        let state = Arc::new(Mutex::new(FakeServerState { files, keys: 2, ..FakeServerState::default() }));
        let fake = Fake { url, state };
        let served = fake.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let served = served.clone();
                std::thread::spawn(move || while served.answer(&stream).is_some() {});
            }
        });
        fake
    }

    /// A client that gives up soon.
    pub(crate) fn client(&self, variables: &[(&str, &str)]) -> Client {
        let short = Duration::from_millis(300);
        let patience =
            Patience { connect: short, idle: short, piece: Duration::from_secs(3), tries: 3, pause: Duration::from_millis(5) };
        let own = [("AWS_ENDPOINT_URL", self.url.as_str()), ("AWS_ALLOW_HTTP", "true")];
        let s3 = S3Settings::of(|name| {
            own.iter().chain(variables).find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        });
        Client::new(patience, s3)
    }

    /// What is to happen to the next requests.
    pub(crate) fn next(&self, failures: &[Failure]) {
        self.state.lock().unwrap().next.extend(failures.iter().cloned());
    }

    /// What is to happen to all further requests.
    pub(crate) fn always(&self, failure: Failure) {
        self.state.lock().unwrap().then = Some(failure);
    }

    /// Gives files as a whole only; without saying how long they are.
    pub(crate) fn as_a_whole(&self, no_lengths: bool) {
        let mut state = self.state.lock().unwrap();
        (state.no_ranges, state.no_lengths) = (true, no_lengths);
    }

    /// Replaces a file.
    pub(crate) fn put(&self, path: &str, bytes: &[u8]) {
        let mut state = self.state.lock().unwrap();
        state.version += 1;
        let version = state.version;
        state.files.insert(path.to_owned(), (bytes.to_vec(), version));
    }

    /// Removes a file.
    pub(crate) fn remove(&self, path: &str) {
        self.state.lock().unwrap().files.remove(path);
    }

    /// The requests so far.
    pub(crate) fn seen(&self) -> Vec<Vec<String>> {
        self.state.lock().unwrap().seen.clone()
    }

    /// Answers one request; none: the connection is over.
    fn answer(&self, stream: &TcpStream) -> Option<()> {
        let mut reader = BufReader::new(stream);
        let mut lines = Vec::new();
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
        let (failure, response) = {
            let mut state = self.state.lock().unwrap();
            state.seen.push(lines.clone());
            let failure = state.next.pop_front().or_else(|| state.then.clone()).unwrap_or(Failure::Well);
            (failure, state.respond(&lines))
        };
        send(stream, failure, response)
    }
}

fn send(mut stream: &TcpStream, failure: Failure, (head, body): (String, Vec<u8>)) -> Option<()> {
    match failure {
        Failure::Well => stream.write_all(&[head.as_bytes(), &body].concat()).ok(),
        Failure::Status(status, headers, body) => {
            let head = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\n{headers}\r\n", body.len());
            stream.write_all(&[head.as_bytes(), body.as_bytes()].concat()).ok()
        }
        Failure::Cut(bytes) => {
            let _ = stream.write_all(&[head.as_bytes(), body.get(..bytes).unwrap_or(&body)].concat());
            let _ = stream.shutdown(std::net::Shutdown::Both);
            None
        }
        Failure::Stall(bytes) => {
            let _ = stream.write_all(&[head.as_bytes(), body.get(..bytes).unwrap_or(&body)].concat());
            std::thread::sleep(Duration::from_secs(2));
            None
        }
        Failure::Silence => {
            std::thread::sleep(Duration::from_secs(2));
            None
        }
        Failure::Noise => {
            let _ = stream.write_all(b"\x16\x03 what?\r\n\r\n");
            None
        }
    }
}

impl FakeServerState {
    fn respond(&self, lines: &[String]) -> (String, Vec<u8>) {
        let target = lines.first().and_then(|line| line.split(' ').nth(1)).unwrap_or("/");
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let path = path.trim_start_matches('/');
        if query.contains("list-type=2") {
            return self.list(path, query);
        }
        let Some((bytes, version)) = self.files.get(path) else {
            let body = "<Error><Code>NoSuchKey</Code><Message>secret</Message></Error>";
            return (format!("HTTP/1.1 404 Not Found\r\ncontent-length: {}\r\n\r\n", body.len()), body.into());
        };
        let condition = lines.iter().find_map(|line| line.to_lowercase().strip_prefix("if-match: ").map(str::to_owned));
        if condition.is_some_and(|condition| condition != format!("\"v{version}\"")) {
            return ("HTTP/1.1 412 X\r\ncontent-length: 0\r\n\r\n".to_owned(), vec![]);
        }
        let version = format!("etag: \"v{version}\"\r\n");
        let range = lines.iter().find_map(|line| line.to_lowercase().strip_prefix("range: bytes=").map(str::to_owned));
        match range.filter(|_| !self.no_ranges) {
            Some(range) => {
                let (first, last) = range.split_once('-').unwrap();
                let (first, last): (usize, usize) = (first.parse().unwrap(), last.parse().unwrap());
                if first >= bytes.len() {
                    let head = format!("HTTP/1.1 416 X\r\ncontent-length: 0\r\ncontent-range: bytes */{}\r\n\r\n", bytes.len());
                    return (head, vec![]);
                }
                let last = last.min(bytes.len() - 1);
                let body = bytes[first..=last].to_vec();
                let range = format!("content-range: bytes {first}-{last}/{}", bytes.len());
                (format!("HTTP/1.1 206 Partial\r\ncontent-length: {}\r\n{range}\r\n{version}\r\n", body.len()), body)
            }
            None if self.no_lengths => {
                let chunk = [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n0\r\n\r\n"].concat();
                (format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n{version}\r\n"), chunk)
            }
            None => (format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n{version}\r\n", bytes.len()), bytes.clone()),
        }
    }

    /// Keys of a bucket, a few at a time.
    fn list(&self, bucket: &str, query: &str) -> (String, Vec<u8>) {
        let value =
            |name: &str| query.split('&').find_map(|pair| pair.strip_prefix(name)).unwrap_or_default().replace("%2F", "/");
        let (prefix, from) = (value("prefix="), value("continuation-token="));
        let inside = format!("{bucket}/");
        let keys = self.files.iter().filter_map(|(path, file)| Some((path.strip_prefix(&inside)?, file)));
        let keys: Vec<_> = keys.filter(|(key, _)| key.starts_with(&prefix) && *key >= from.as_str()).collect();
        let shown = |(key, (bytes, version)): &(&str, &(Vec<u8>, u64))| {
            let bytes = bytes.len();
            format!("<Contents><Key>{key}</Key><Size>{bytes}</Size><ETag>&quot;v{version}&quot;</ETag></Contents>")
        };
        let listed: String = keys.iter().take(self.keys).map(shown).collect();
        let next = keys
            .get(self.keys)
            .map(|(key, _)| format!("<IsTruncated>true</IsTruncated><NextContinuationToken>{key}</NextContinuationToken>"));
        let body = format!("<ListBucketResult xmlns=\"x\">{listed}{}</ListBucketResult>", next.unwrap_or_default());
        (format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len()), body.into())
    }
}
