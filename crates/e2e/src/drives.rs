//! Drives as processes that can be killed.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use crate::places::pithead;

const START_LIMIT: Duration = Duration::from_secs(30);

/// A `pithead drive serve`, or a `pithead array serve`. Dropping it kills it.
pub struct DriveProcess {
    child: Child,
    address: String,
    data: PathBuf,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    /// What it says, a line each.
    lines: Mutex<Receiver<String>>,
}

impl DriveProcess {
    /// Serves a directory at a free port of this machine, and waits until it listens. It keeps no versions unless it is told to.
    pub fn start(data: &Path, arguments: &[&str]) -> DriveProcess {
        Self::start_with(data, arguments, vec![])
    }

    /// The same with more variables in its environment.
    pub fn start_with(data: &Path, arguments: &[&str], environment: Vec<(String, String)>) -> DriveProcess {
        let mut command = Command::new(pithead());
        let arguments: Vec<&str> = match arguments.contains(&"--history") {
            true => arguments.to_vec(),
            false => arguments.iter().copied().chain(["--history", "0"]).collect(),
        };
        command.args(["drive", "serve", "--listen", "127.0.0.1:0", "--data"]).arg(data).args(&arguments);
        command.envs(environment.iter().map(|(name, value)| (name, value)));
        let arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        let mut process = Self::spawn(command, data);
        (process.arguments, process.environment) = (arguments, environment);
        process
    }

    /// The same for an array in front of other processes.
    pub fn start_array(data: &Path, drives: &[DriveProcess], arguments: &[&str]) -> DriveProcess {
        let drives: Vec<&str> = drives.iter().map(DriveProcess::address).collect();
        let mut command = Command::new(pithead());
        command.args(["array", "serve", "--listen", "127.0.0.1:0", "--drives", &drives.join(","), "--data"]);
        command.arg(data).args(arguments);
        Self::spawn(command, data)
    }

    /// Serves its directory again, where and how it was served before. Kills it first if it still runs.
    pub fn restart(&mut self) {
        if self.is_running() {
            self.kill();
        }
        let mut command = Command::new(pithead());
        command.args(["drive", "serve", "--listen", &self.address, "--data"]).arg(&self.data).args(&self.arguments);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        let (arguments, environment) = (std::mem::take(&mut self.arguments), std::mem::take(&mut self.environment));
        *self = Self::spawn(command, &self.data.clone());
        (self.arguments, self.environment) = (arguments, environment);
    }

    /// The same with other arguments from now on.
    pub fn restart_as(&mut self, arguments: &[&str]) {
        self.arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        self.restart();
    }

    /// The same through `sh`, so that limits can be set first: `$PITHEAD` is the program, `$DATA` the directory.
    pub fn start_limited(data: &Path, script: &str) -> DriveProcess {
        let mut command = Command::new("sh");
        command.args(["-c", script]).env("PITHEAD", pithead()).env("DATA", data);
        Self::spawn(command, data)
    }

    fn spawn(mut command: Command, data: &Path) -> DriveProcess {
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the program starts");
        let lines = follow(&mut child);
        let address = wait_for_word(&lines, "listening on ");
        DriveProcess { child, address, data: data.to_owned(), arguments: vec![], environment: vec![], lines: Mutex::new(lines) }
    }

    /// Several in new directories `drive-0`, `drive-1`, … of a directory.
    pub fn start_many(directory: &Path, count: usize, arguments: &[&str]) -> Vec<DriveProcess> {
        (0..count).map(|number| Self::start(&directory.join(format!("drive-{number}")), arguments)).collect()
    }

    /// Where it listens.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Where it serves Kinetic clients, if it does: known once, after each start.
    pub fn kinetic(&self) -> String {
        wait_for_word(&self.lines.lock().expect("nobody panicked with it"), "kinetic at ").trim_end_matches(',').to_owned()
    }

    /// Its directory.
    pub fn data(&self) -> &Path {
        &self.data
    }

    /// Ends it as a power cut would, and waits until it is gone.
    pub fn kill(&mut self) {
        self.signal(libc::SIGKILL);
        assert_eq!(self.wait().signal(), Some(libc::SIGKILL));
    }

    /// Stops it from running, without ending it; its connections stay open.
    pub fn freeze(&self) {
        self.signal(libc::SIGSTOP);
    }

    /// Lets it run again.
    pub fn thaw(&self) {
        self.signal(libc::SIGCONT);
    }

    /// Asks it to end, and waits until it has.
    pub fn terminate(&mut self) -> ExitStatus {
        self.signal(libc::SIGTERM);
        self.wait()
    }

    /// The most memory that it has had, bytes.
    pub fn memory_peak(&self) -> u64 {
        let path = format!("/proc/{}/status", self.child.id());
        let status = std::fs::read_to_string(path).expect("a process has a status");
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("it has memory");
        line.trim().trim_end_matches(" kB").parse::<u64>().expect("it is a number") << 10
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    fn wait(&mut self) -> ExitStatus {
        let start = Instant::now();
        while start.elapsed() < START_LIMIT {
            if let Some(status) = self.child.try_wait().expect("a child can be waited for") {
                return status;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("the drive at {} did not end", self.address)
    }

    fn signal(&self, signal: i32) {
        let process = i32::try_from(self.child.id()).expect("a process id is an i32");
        // SAFETY: the process is our child and not yet waited for, so the id is still its own.
        assert_eq!(unsafe { libc::kill(process, signal) }, 0, "the drive at {} is gone", self.address);
    }
}

impl Drop for DriveProcess {
    fn drop(&mut self) {
        // It may be gone already; nothing is left to do about it either way.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What the process says on stderr, a line each, until it ends. Lines are read to the end so that it never blocks.
fn follow(child: &mut Child) -> Receiver<String> {
    let stderr = child.stderr.take().expect("stderr is piped");
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stderr).lines().map_while(Result::ok) {
            // After the address is known, nobody listens any more.
            let _ = sender.send(line);
        }
    });
    lines
}

/// The word that follows a text in one of the lines that are still to come.
fn wait_for_word(lines: &Receiver<String>, text: &str) -> String {
    let mut said = Vec::new();
    while let Ok(line) = lines.recv_timeout(START_LIMIT) {
        if let Some((_, after)) = line.split_once(text) {
            return after.split_whitespace().next().unwrap_or_default().to_owned();
        }
        said.push(line);
    }
    panic!("the drive did not say {text:?}; it said:\n{}", said.join("\n"))
}

/// Changes, in a drive's folder, a byte of a value in each segment file. A drive that runs is told nothing of it.
pub fn damage(data: &Path) {
    for entry in std::fs::read_dir(data.join("segments")).unwrap() {
        let file = std::fs::File::options().read(true).write(true).open(entry.unwrap().path()).unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, 1_000).unwrap();
        byte[0] ^= 0x10;
        file.write_all_at(&byte, 1_000).unwrap();
    }
}
