//! Redis with an append-only file, and as much of its protocol as is needed here.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use pithead_model::{Blame, Fault};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

use crate::tables::io;

const PROGRAM: &str = "redis-server";
const START_LIMIT: Duration = Duration::from_secs(10);

/// A Redis on a folder of its own. Dropping it kills it.
#[derive(Debug)]
pub(super) struct Redis {
    child: Child,
    port: u16,
    pub(super) version: String,
}

impl Redis {
    /// Starts one, and waits until it answers. None: the program is not there.
    pub(super) fn start(folder: &Path, port: u16) -> Result<Option<Redis>, Fault> {
        let Ok(said) = Command::new(PROGRAM).arg("--version").output() else { return Ok(None) };
        let version = String::from_utf8_lossy(&said.stdout).trim().to_owned();
        std::fs::create_dir_all(folder).map_err(|error| io(folder, &error))?;
        let child = Command::new(PROGRAM)
            .args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--appendonly", "yes", "--save", "", "--dir"])
            .arg(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .map_err(|error| io(Path::new(PROGRAM), &error))?;
        let redis = Redis { child, port, version };
        let started = Instant::now();
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            if started.elapsed() > START_LIMIT {
                return Err(Fault::new(Blame::Device, "redis-server did not start"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(Some(redis))
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    pub(super) fn process(&self) -> u32 {
        self.child.id()
    }

    /// Whether each write is flushed before it is answered; otherwise once a second.
    pub(super) async fn durable(&self, durable: bool) -> Result<(), Fault> {
        let when: &[u8] = if durable { b"always" } else { b"everysec" };
        let mut connection = Connection::open(self.port).await?;
        connection.send(&[b"CONFIG", b"SET", b"appendfsync", when]).await?;
        connection.receive().await.map(drop)
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        // It may be gone already; nothing is left to do about it either way.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A connection to Redis.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: BufReader<TcpStream>,
    /// What was received last.
    value: Vec<u8>,
}

impl Connection {
    pub(super) async fn open(port: u16) -> Result<Connection, Fault> {
        let opened = TcpStream::connect(("127.0.0.1", port)).await.and_then(|socket| {
            socket.set_nodelay(true)?;
            Ok(socket)
        });
        let stream = BufReader::with_capacity(64 << 10, opened.map_err(failed)?);
        Ok(Connection { stream, value: Vec::new() })
    }

    pub(super) async fn set(&mut self, key: &str, value: &[u8]) -> Result<(), Fault> {
        self.send(&[b"SET", key.as_bytes(), value]).await?;
        self.receive().await.map(drop)
    }

    /// Bytes of the value.
    pub(super) async fn get(&mut self, key: &str) -> Result<usize, Fault> {
        self.send(&[b"GET", key.as_bytes()]).await?;
        self.receive().await
    }

    /// A command: an array of strings, each after its length.
    async fn send(&mut self, words: &[&[u8]]) -> Result<(), Fault> {
        let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            bytes.extend_from_slice(word);
            bytes.extend_from_slice(b"\r\n");
        }
        self.stream.write_all(&bytes).await.map_err(failed)
    }

    /// Bytes of an answer: those of a string after its length, or none for a line. An error is one here, too.
    async fn receive(&mut self) -> Result<usize, Fault> {
        let mut line = String::new();
        self.stream.read_line(&mut line).await.map_err(failed)?;
        let line = line.trim_end();
        match line.split_at_checked(1) {
            Some(("+", _)) => Ok(0),
            Some(("$", bytes)) => {
                let bytes: usize = bytes.parse().map_err(|_| unexpected(line))?;
                self.value.resize(bytes + 2, 0);
                self.stream.read_exact(&mut self.value).await.map_err(failed)?;
                Ok(bytes)
            }
            _ => Err(unexpected(line)),
        }
    }
}

fn unexpected(line: &str) -> Fault {
    Fault::new(Blame::Device, format!("Redis answered {line:?}"))
}

fn failed(error: std::io::Error) -> Fault {
    Fault::new(Blame::Device, format!("Redis: {error}"))
}
