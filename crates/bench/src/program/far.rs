//! Both ends of reads across a link: a plain server of a file's bytes, and a host that works on what it reads there.

use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use memchr::memmem::Finder;
use pithead_model::{Blame, Fault};
use serde::{Deserialize, Serialize};

use super::data::BATCH;
use super::kernels::{NEEDLE, STEPS, Words};
use crate::tables::io;

/// Bytes of a request: offset, length, and the nanoseconds that the answer is held back.
const REQUEST_BYTES: usize = 24;
/// Requests by which the path is measured.
const PINGS: usize = 2_000;

/// What the process does.
#[derive(Clone, Debug)]
pub struct ProgramFarOptions {
    /// Serves this file at a free port of an address, and says which on stdout.
    pub serve: Option<(PathBuf, String)>,
    /// Asks a server for its bytes, and works on them; what came of it goes to stdout.
    pub ask: Option<(String, String)>,
    /// What the path takes there and back at least, in microseconds.
    pub path_us: f64,
}

/// What a host found, and how long it took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct FarAnswer {
    pub(super) one: u64,
    pub(super) other: u64,
    pub(super) seconds: f64,
    /// The path there and back, in microseconds: as it is, and as it was made.
    pub(super) bare_path_us: f64,
    pub(super) path_us: f64,
}

/// Serves, or asks. Blocks.
pub fn program_far(options: &ProgramFarOptions) -> Result<(), Fault> {
    if let Some((file, listen)) = &options.serve {
        return serve(file, listen);
    }
    let Some((address, work)) = &options.ask else { return Ok(()) };
    let answer =
        ask(address, work, options.path_us).map_err(|error| Fault::new(Blame::Device, format!("{address}: {error}")))?;
    println!("{}", serde_json::to_string(&answer).map_err(|error| Fault::new(Blame::Bug, error.to_string()))?);
    Ok(())
}

fn serve(path: &PathBuf, listen: &str) -> Result<(), Fault> {
    let cannot = |error: std::io::Error| Fault::new(Blame::Device, format!("cannot listen on {listen}: {error}"));
    let listener = TcpListener::bind(listen).map_err(cannot)?;
    println!("{}", listener.local_addr().map_err(cannot)?);
    for stream in listener.incoming().map_while(Result::ok) {
        let file = File::open(path).map_err(|error| io(path, &error))?;
        std::thread::spawn(move || match answer_all(stream, &file) {
            Err(error) if error.kind() != ErrorKind::UnexpectedEof => eprintln!("{error}"),
            _ => {}
        });
    }
    Ok(())
}

/// Answers requests until the other side ends.
fn answer_all(mut stream: TcpStream, file: &File) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let (mut request, mut buffer) = ([0; REQUEST_BYTES], vec![0; BATCH]);
    loop {
        stream.read_exact(&mut request)?;
        let came = Instant::now();
        let number = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| request[8 * at + byte]));
        let (mut at, mut left, held) = (number(0), number(1), Duration::from_nanos(number(2)));
        while left > 0 {
            let part = buffer.len().min(left as usize);
            let length = file.read_at(&mut buffer[..part], at)?;
            if length == 0 {
                return Ok(());
            }
            while came.elapsed() < held {
                std::hint::spin_loop();
            }
            stream.write_all(&buffer[..length])?;
            (at, left) = (at + length as u64, left - length as u64);
        }
    }
}

/// A host that reads across the link.
struct Reader {
    stream: TcpStream,
    held: Duration,
}

impl Reader {
    fn request(&mut self, offset: u64, length: u64) -> std::io::Result<()> {
        let numbers = [offset, length, self.held.as_nanos() as u64];
        self.stream.write_all(&numbers.map(u64::to_le_bytes).concat())
    }

    fn number(&mut self, place: u64) -> std::io::Result<u64> {
        self.request(8 * place, 8)?;
        let mut bytes = [0; 8];
        self.stream.read_exact(&mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// The median of what a number takes, in microseconds.
    fn path_us(&mut self) -> std::io::Result<f64> {
        let mut took = Vec::with_capacity(PINGS);
        for _ in 0..PINGS {
            let asked = Instant::now();
            self.number(0)?;
            took.push(asked.elapsed().as_secs_f64() * 1e6);
        }
        took.sort_by(f64::total_cmp);
        Ok(took[PINGS / 2])
    }

    /// All bytes, as they come. The file ends when the server does.
    fn all(&mut self, mut take: impl FnMut(&[u8])) -> std::io::Result<()> {
        self.request(0, u64::MAX)?;
        let mut buffer = vec![0; BATCH];
        loop {
            match self.stream.read(&mut buffer)? {
                0 => return Ok(()),
                length => take(&buffer[..length]),
            }
        }
    }
}

fn ask(address: &str, work: &str, path_us: f64) -> std::io::Result<FarAnswer> {
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    let mut reader = Reader { stream, held: Duration::ZERO };
    let bare_path_us = reader.path_us()?;
    // What the answer of a number is held back makes the path longer by as much.
    reader.held = Duration::from_secs_f64((path_us - bare_path_us).max(0.0) / 1e6);
    let path_us = reader.path_us()?;
    let started = Instant::now();
    let (one, other) = match work {
        "words" => {
            let mut words = Words::new();
            reader.all(|bytes| words.take(bytes))?;
            words.finish()
        }
        "search" => (found(&mut reader)?, 0),
        "chase" => (chased(&mut reader)?, STEPS),
        other => return Err(std::io::Error::new(ErrorKind::InvalidInput, format!("no work is called {other:?}"))),
    };
    Ok(FarAnswer { one, other, seconds: started.elapsed().as_secs_f64(), bare_path_us, path_us })
}

/// How often the needle is in the text, also across parts.
fn found(reader: &mut Reader) -> std::io::Result<u64> {
    let finder = Finder::new(NEEDLE);
    let (mut found, mut kept) = (0, Vec::new());
    reader.all(|bytes| {
        kept.extend_from_slice(bytes);
        found += finder.find_iter(&kept).count() as u64;
        // It is found whole in what was taken, so no more than a part of it is left.
        kept.drain(..kept.len() - kept.len().min(NEEDLE.len() - 1));
    })?;
    Ok(found)
}

fn chased(reader: &mut Reader) -> std::io::Result<u64> {
    (0..STEPS).try_fold(0, |node, _| reader.number(node))
}

/// The first line that a process says.
pub(super) fn first_line(from: impl Read) -> std::io::Result<String> {
    let mut line = String::new();
    BufReader::new(from).read_line(&mut line)?;
    Ok(line.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::data::{graph, needles};
    use super::*;

    fn asked(bytes: &[u8], work: &str) -> FarAnswer {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, bytes).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let file = File::open(&path).unwrap();
        std::thread::spawn(move || answer_all(listener.accept().unwrap().0, &file));
        ask(&address, work, 0.0).unwrap()
    }

    #[test]
    fn a_host_finds_what_is_there() {
        let text = needles("some words of a text ".repeat(50_000).into_bytes());
        let expected = Finder::new(NEEDLE).find_iter(&text).count() as u64;
        assert!(expected > 2, "{expected}");
        assert_eq!(asked(&text, "search").one, expected);
        let words = asked(b"The end of the END, and more", "words");
        assert_eq!((words.one, words.other), (7, 5));
    }

    #[test]
    fn a_walk_comes_to_where_the_numbers_lead() {
        let bytes = graph(1 << 16);
        let number = |place: u64| u64::from_le_bytes(bytes[8 * place as usize..][..8].try_into().unwrap());
        let answer = asked(&bytes, "chase");
        assert_eq!(answer.one, (0..STEPS).fold(0, |node, _| number(node)));
        // All nodes are on one way.
        let mut node = 0;
        let back = (1..).find(|_| {
            node = number(node);
            node == 0
        });
        assert_eq!(back, Some(bytes.len() / 8));
    }
}
