//! Drives as processes of this program, each with a directory of its own.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use pithead_model::{Blame, Fault};

use crate::tables::io;

const STOP_LIMIT: Duration = Duration::from_secs(20);

/// A `pithead drive serve` at a free port of this machine. Dropping it kills it.
#[derive(Debug)]
pub struct DriveProcess {
    child: Child,
    address: String,
}

impl DriveProcess {
    /// Starts one on `directory` and waits until it listens.
    pub fn start(program: &Path, directory: &Path, arguments: &[&str]) -> Result<Self, Fault> {
        Self::start_through(&[], "127.0.0.1:0", program, directory, arguments)
    }

    /// The same, with all of its threads on one core.
    pub(crate) fn start_on(core: usize, program: &Path, directory: &Path, arguments: &[&str]) -> Result<Self, Fault> {
        let pinned = ["taskset".to_owned(), "-c".to_owned(), core.to_string()];
        Self::start_through(&pinned, "127.0.0.1:0", program, directory, arguments)
    }

    /// The same through a command that runs another, such as `ip netns exec`, and listening at another address.
    pub(crate) fn start_through(
        prefix: &[String],
        listen: &str,
        program: &Path,
        directory: &Path,
        arguments: &[&str],
    ) -> Result<Self, Fault> {
        let mut child = through(prefix, program)
            .args(["drive", "serve", "--listen", listen, "--data"])
            .arg(directory)
            .args(arguments)
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| io(program, &error))?;
        let stderr = child.stderr.take().ok_or_else(|| Fault::new(Blame::Bug, "a drive without stderr"))?;
        let mut lines = BufReader::new(stderr).lines().map_while(Result::ok);
        let mut said = Vec::new();
        for line in lines.by_ref() {
            if let Some(address) = address(&line) {
                // Read to the end, so that the drive never blocks on what it says.
                std::thread::spawn(move || lines.for_each(|line| eprintln!("{line}")));
                return Ok(Self { child, address });
            }
            said.push(line);
        }
        let _ = child.wait();
        Err(Fault::new(Blame::Device, format!("the drive on {} did not start: {}", directory.display(), said.join(" "))))
    }

    /// Where it listens.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Its process number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Asks it to end, and waits until it has.
    pub fn stop(mut self) -> Result<(), Fault> {
        let id = self.child.id().to_string();
        let asked = Command::new("kill").args(["-TERM", &id]).status();
        let started = Instant::now();
        while asked.is_ok() && started.elapsed() < STOP_LIMIT {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Err(Fault::new(Blame::Device, format!("the drive at {} did not end", self.address)))
    }
}

impl Drop for DriveProcess {
    fn drop(&mut self) {
        // It may be gone already; nothing is left to do about it either way.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Several drives, on `drive-0`, `drive-1`, … of a directory.
#[derive(Debug)]
pub struct DriveProcesses(Vec<DriveProcess>);

impl DriveProcesses {
    /// Starts `count` of them.
    pub fn start(directory: &Path, count: usize, arguments: &[&str]) -> Result<Self, Fault> {
        Self::start_through(&[], "127.0.0.1:0", directory, count, arguments)
    }

    /// The same through a command that runs another, all listening at free ports of one address.
    pub(crate) fn start_through(
        prefix: &[String],
        listen: &str,
        directory: &Path,
        count: usize,
        arguments: &[&str],
    ) -> Result<Self, Fault> {
        let program = std::env::current_exe().map_err(|error| io(&PathBuf::from("pithead"), &error))?;
        let place = |number: usize| directory.join(format!("drive-{number}"));
        let start = |number: usize| DriveProcess::start_through(prefix, listen, &program, &place(number), arguments);
        (0..count).map(start).collect::<Result<_, _>>().map(Self)
    }

    /// Where they listen.
    pub fn addresses(&self) -> Vec<String> {
        self.0.iter().map(|drive| drive.address().to_owned()).collect()
    }

    /// Their process numbers.
    pub fn ids(&self) -> Vec<u32> {
        self.0.iter().map(DriveProcess::id).collect()
    }

    /// Ends them all.
    pub fn stop(self) -> Result<(), Fault> {
        self.0.into_iter().try_for_each(DriveProcess::stop)
    }
}

/// A command that is run by another one, which becomes it; no prefix: by itself.
pub(crate) fn through(prefix: &[String], program: &Path) -> Command {
    match prefix {
        [] => Command::new(program),
        [first, rest @ ..] => {
            let mut command = Command::new(first);
            command.args(rest).arg(program);
            command
        }
    }
}

/// The address in `drive … listening on 127.0.0.1:4711 (…)`.
fn address(line: &str) -> Option<String> {
    let (_, rest) = line.split_once(" listening on ")?;
    rest.split_whitespace().next().map(str::to_owned)
}
