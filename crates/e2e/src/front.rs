//! `pithead serve` as a process, and a client of PostgreSQL's protocol that sends what it is told.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use crate::places::pithead;

/// A statement that runs until it is ended, and needs no table.
pub const ENDLESS: &str = "SELECT count(*) FROM range(100000000) a, range(100000000) b WHERE a.value + b.value < 0";

/// What the program says to these arguments in this folder.
pub fn run(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(pithead());
    command.current_dir(folder).args(arguments).stdin(Stdio::null()).env("NO_COLOR", "1");
    for variable in ["PITHEAD_DATA", "PITHEAD_DRIVES"] {
        command.env_remove(variable);
    }
    command.output().unwrap()
}

/// What it prints where it succeeds, as it has to.
pub fn done(folder: &Path, arguments: &[&str]) -> Vec<u8> {
    let output = run(folder, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// A folder with a table `t` of five rows on two drives in it.
pub fn five_rows() -> TempDir {
    let folder = TempDir::new().unwrap();
    let csv = "id,name,price\n1,one,1.5\n2,two,2.5\n3,,3.5\n4,four,4.5\n5,five,5.5\n";
    std::fs::write(folder.path().join("t.csv"), csv).unwrap();
    done(folder.path(), &["load", "t", "t.csv", "--data", "data"]);
    folder
}

/// A `pithead serve`. Dropping it kills it.
pub struct FrontProcess {
    child: Child,
    address: String,
    metrics: Option<String>,
    flight: Option<String>,
    console: Option<String>,
}

impl FrontProcess {
    /// Serves at a free port of this machine, and waits until it listens.
    pub fn start(folder: &Path, arguments: &[&str]) -> FrontProcess {
        let mut command = Command::new(pithead());
        command.args(["serve", "--listen", "127.0.0.1:0"]).args(arguments).current_dir(folder);
        for variable in ["PITHEAD_DATA", "PITHEAD_DRIVES"] {
            command.env_remove(variable);
        }
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the program starts");
        let mut lines = BufReader::new(child.stderr.take().expect("it is piped")).lines();
        let mut word = |before: &str| {
            let line =
                lines.by_ref().map_while(Result::ok).find(|line| line.contains(before)).expect("the server says where it is");
            let after = &line[line.find(before).unwrap() + before.len()..];
            after.split([' ', '/', ',']).next().unwrap().to_owned()
        };
        let flight = arguments.contains(&"--flight").then(|| word("Flight SQL at "));
        let console = arguments.contains(&"--console").then(|| word("console at http://"));
        let address = word("listening on ");
        let metrics = arguments.contains(&"--metrics").then(|| word("metrics at http://"));
        std::thread::spawn(move || lines.for_each(drop));
        FrontProcess { child, address, metrics, flight, console }
    }

    /// Where it listens.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The port of that.
    pub fn port(&self) -> &str {
        self.address.rsplit(':').next().unwrap()
    }

    /// Where its metrics are.
    pub fn metrics(&self) -> &str {
        self.metrics.as_deref().expect("it was started with --metrics")
    }

    /// Where it serves the console.
    pub fn console(&self) -> &str {
        self.console.as_deref().expect("it was started with --console")
    }

    /// Where it serves Flight SQL.
    pub fn flight(&self) -> &str {
        self.flight.as_deref().expect("it was started with --flight")
    }

    /// Bytes of memory that it has.
    pub fn resident(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
    }

    /// Asks it to end; whether it did so well.
    pub fn terminate(&mut self) -> bool {
        // SAFETY: the process is a child that was not waited for.
        unsafe { libc::kill(self.child.id() as i32, libc::SIGTERM) };
        self.child.wait().unwrap().success()
    }
}

impl Drop for FrontProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A message that came: its kind and its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply(pub char, pub Vec<u8>);

impl Reply {
    /// The fields of an error or a notice, by their letters.
    pub fn field(&self, letter: u8) -> Option<String> {
        let mut fields = self.1.split(|byte| *byte == 0);
        fields.find(|field| field.first() == Some(&letter)).map(|field| String::from_utf8_lossy(&field[1..]).into_owned())
    }

    /// The values of a row, in text.
    pub fn row(&self) -> Vec<Option<String>> {
        let (mut rest, mut values) = (&self.1[2..], Vec::new());
        while !rest.is_empty() {
            let length = i32::from_be_bytes(rest[..4].try_into().unwrap());
            rest = &rest[4..];
            match usize::try_from(length) {
                Ok(length) => {
                    values.push(Some(String::from_utf8_lossy(&rest[..length]).into_owned()));
                    rest = &rest[length..];
                }
                Err(_) => values.push(None),
            }
        }
        values
    }
}

/// A connection that was begun as `me`.
pub struct RawClient {
    /// The connection itself, to send what no client would.
    pub stream: TcpStream,
    /// Its number and its secret.
    pub key: (i32, i32),
}

impl RawClient {
    /// Connects, and waits until statements are taken.
    pub fn connect(address: &str) -> RawClient {
        let mut client = RawClient { stream: open(address), key: (0, 0) };
        let body = b"\0\x03\0\0user\0me\0\0";
        client.stream.write_all(&[&(body.len() as u32 + 4).to_be_bytes()[..], body].concat()).unwrap();
        for Reply(kind, body) in client.until('Z') {
            if kind == 'K' {
                let int = |at: usize| i32::from_be_bytes(body[at..at + 4].try_into().unwrap());
                client.key = (int(0), int(4));
            }
        }
        client
    }

    /// Sends a message.
    pub fn send(&mut self, kind: char, body: &[u8]) {
        let message = [&[kind as u8][..], &(body.len() as u32 + 4).to_be_bytes(), body].concat();
        self.stream.write_all(&message).unwrap();
    }

    /// Sends a statement by the simple protocol. All that comes until the next one is taken.
    pub fn query(&mut self, sql: &str) -> Vec<Reply> {
        self.send('Q', &[sql.as_bytes(), b"\0"].concat());
        self.until('Z')
    }

    /// The next message; none: the server has closed the connection.
    pub fn reply(&mut self) -> Option<Reply> {
        let mut head = [0; 5];
        self.stream.read_exact(&mut head).ok()?;
        let length = u32::from_be_bytes(head[1..].try_into().unwrap()) as usize - 4;
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).ok()?;
        Some(Reply(char::from(head[0]), body))
    }

    /// All messages up to one of this kind, or to the end of the connection.
    pub fn until(&mut self, kind: char) -> Vec<Reply> {
        let mut replies = Vec::new();
        while let Some(reply) = self.reply() {
            let is_last = reply.0 == kind;
            replies.push(reply);
            if is_last {
                break;
            }
        }
        replies
    }

    /// Asks another connection to cancel what runs over the one of this key.
    pub fn cancel(address: &str, (process, secret): (i32, i32)) {
        let mut stream = open(address);
        let body = [&80_877_102_u32.to_be_bytes()[..], &process.to_be_bytes(), &secret.to_be_bytes()].concat();
        stream.write_all(&[&16_u32.to_be_bytes()[..], &body].concat()).unwrap();
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
        assert!(rest.is_empty(), "a cancellation is not answered");
    }
}

fn open(address: &str) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream
}
