//! Biscuit's applications (Gu et al. 2016; see `docs/bibliography.md`): word count, string search and pointer chasing at a drive,
//! beside the same at a host that reads the drive's bytes across a link.
//!
//! The host and the drive are in network namespaces, as for `pithead bench neardata`. At the drive, an SSDlet works on a key-value; what
//! counts is the time of the whole command `pithead program run` at the host. The host reads from a plain server of the same bytes,
//! which is less than any file system across a network does; what counts is its reads and its work.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use pithead_model::{Blame, Fault, Rate, parse_rate};
use pithead_store::{DiskStore, Durability, Store, StoreOptions, Write};
use serde::Serialize;

use super::data::{graph, needles};
use super::far::{FarAnswer, first_line};
use crate::drives::{DriveProcess, through};
use crate::neardata::namespaces::{DRIVES_ADDRESS, Namespaces};
use crate::report::table;
use crate::tables::io;
use crate::timing::Spread;

/// The link, and what the path takes there and back, in microseconds.
const RATE: &str = "1gbit";
const PATH_US: f64 = 90.0;
/// What is done, over which file.
const WORKS: [(&str, &str, &str); 3] =
    [("word count", "words", "text"), ("string search", "search", "text"), ("pointer chasing", "chase", "graph")];
/// A value of a drive has 64 MiB at most.
const FILE_BYTES_MAX: usize = 60 << 20;
/// Files of SSDlets are the values of Kinetic clients.
const FILE_PREFIX: &str = "kinetic/key/";

/// What was measured.
#[derive(Debug, Serialize)]
pub(super) struct OverLink {
    rate: String,
    /// Of the path there and back: what it takes by itself, and what it was made to take by holding answers back.
    bare_path_us: f64,
    path_us: f64,
    works: Vec<FarWork>,
}

/// The same work at both ends, in seconds.
#[derive(Debug, Serialize)]
struct FarWork {
    work: &'static str,
    at_drive: Spread,
    at_host: Spread,
    /// The host's time over the drive's, by medians.
    gain: f64,
}

/// Everything that runs. Fields are dropped in this order: processes before the namespaces that they are in.
struct Stage {
    servers: Vec<(&'static str, FileServer)>,
    drive: DriveProcess,
    program: PathBuf,
    namespaces: Namespaces,
}

struct FileServer {
    child: Child,
    address: String,
}

impl Drop for FileServer {
    fn drop(&mut self) {
        // It may be gone already; nothing is left to do about it either way.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl OverLink {
    pub(super) fn gain(&self, work: &str) -> Option<f64> {
        self.works.iter().find(|it| it.work == work).map(|it| it.gain)
    }

    pub(super) fn print(&self) {
        let row = |it: &FarWork| {
            let seconds = |spread: &Spread| format!("{:.3}", spread.median);
            vec![it.work.to_owned(), seconds(&it.at_drive), seconds(&it.at_host), format!("{:.1}", it.gain)]
        };
        println!(
            "across a link of {}, whose path there and back takes {:.0} µs ({:.0} by itself)\n\n{}\n",
            self.rate,
            self.path_us,
            self.bare_path_us,
            table(&["work", "at the drive s", "at the host s", "gain"], &self.works.iter().map(row).collect::<Vec<_>>())
        );
    }
}

/// Measures both ends in turns. `folder` has the module and the text, and room for the drive.
pub(super) fn over_link(folder: &Path, bytes: usize, runs: usize) -> Result<OverLink, Fault> {
    let rate = parse_rate(RATE)?;
    let stage = Stage::set(folder, bytes)?;
    stage.namespaces.shape(rate)?;
    let (mut works, mut last) = (Vec::new(), FarAnswer::default());
    for (work, ssdlet, file) in WORKS {
        let (mut at_drive, mut at_host) = (Vec::new(), Vec::new());
        // The first run of each reads what the others find in a cache.
        for run in 0..=runs {
            let (one, took) = stage.at_drive(ssdlet, file)?;
            last = stage.at_host(ssdlet, file)?;
            if one != last.one {
                let what = format!("{work}: the SSDlet found {one}, and the host {}", last.one);
                return Err(Fault::new(Blame::Bug, what));
            }
            if run > 0 {
                at_drive.push(took);
                at_host.push(last.seconds);
            }
        }
        let (at_drive, at_host) = (Spread::of(at_drive), Spread::of(at_host));
        works.push(FarWork { work, at_drive, at_host, gain: at_host.median / at_drive.median });
    }
    Ok(OverLink { rate: Rate::to_string(&rate), bare_path_us: last.bare_path_us, path_us: last.path_us, works })
}

impl Stage {
    fn set(folder: &Path, bytes: usize) -> Result<Stage, Fault> {
        let text = folder.join("text");
        let mut words = std::fs::read(&text).map_err(|error| io(&text, &error))?;
        words.truncate(FILE_BYTES_MAX);
        std::fs::write(&text, needles(words)).map_err(|error| io(&text, &error))?;
        let graph_file = folder.join("graph");
        std::fs::write(&graph_file, graph(bytes.min(FILE_BYTES_MAX))).map_err(|error| io(&graph_file, &error))?;
        let data = folder.join("far-drive");
        fill(&data, folder)?;
        let namespaces = Namespaces::make()?;
        let (at_host, at_drives) = (namespaces.at_host(None), namespaces.at_drives(None));
        let program = std::env::current_exe().map_err(|error| io(Path::new("pithead"), &error))?;
        let listen = format!("{DRIVES_ADDRESS}:0");
        // Nobody else reaches the namespace, so clear text is safe in it.
        let drive =
            DriveProcess::start_through(&at_drives, &listen, &program, &data, &["--insecure", "--slow-session-ms", "0"])?;
        let module = folder.join("guest.wasm").display().to_string();
        said(through(&at_host, &program).args(["program", "load", &module, "--insecure", "--drives", drive.address()]))?;
        let mut servers = Vec::new();
        for (name, path) in [("text", &text), ("graph", &graph_file)] {
            let mut command = through(&at_drives, &program);
            command.args(["bench", "program-far", "--listen", &listen, "--serve"]).arg(path);
            let mut child =
                command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().map_err(|error| io(&program, &error))?;
            let line = child.stdout.take().map(first_line).transpose().map_err(|error| io(&program, &error))?;
            servers.push((name, FileServer { child, address: line.unwrap_or_default() }));
        }
        Ok(Stage { servers, drive, program, namespaces })
    }

    /// What an SSDlet over a file of the drive put out first, and the seconds of the command.
    fn at_drive(&self, ssdlet: &str, file: &str) -> Result<(u64, f64), Fault> {
        let mut command = through(&self.namespaces.at_host(None), &self.program);
        let module = format!("guest:{ssdlet}");
        command.args(["program", "run", &module, file, "--format", "json", "--insecure", "--drives", self.drive.address()]);
        let started = Instant::now();
        let line = said(&mut command)?;
        let took = started.elapsed().as_secs_f64();
        let row: Vec<u64> = serde_json::from_str(&line).map_err(|error| unreadable(&line, &error))?;
        row.first().map(|one| (*one, took)).ok_or_else(|| Fault::new(Blame::Bug, "an SSDlet put out an empty row"))
    }

    fn at_host(&self, work: &str, file: &str) -> Result<FarAnswer, Fault> {
        let server = self.servers.iter().find(|(name, _)| *name == file);
        let (_, server) = server.ok_or_else(|| Fault::new(Blame::Bug, format!("nobody serves {file}")))?;
        let mut command = through(&self.namespaces.at_host(None), &self.program);
        command.args(["bench", "program-far", "--ask", &server.address, "--work", work, "--path-us", &PATH_US.to_string()]);
        let line = said(&mut command)?;
        serde_json::from_str(&line).map_err(|error| unreadable(&line, &error))
    }
}

/// Gives a drive that does not run yet its files.
fn fill(data: &Path, folder: &Path) -> Result<(), Fault> {
    let store = DiskStore::open(data, StoreOptions::default())?;
    for name in ["text", "graph"] {
        let path = folder.join(name);
        let bytes = std::fs::read(&path).map_err(|error| io(&path, &error))?;
        store.write(vec![Write::put(format!("{FILE_PREFIX}{name}"), bytes)], Durability::Through)?;
    }
    Ok(())
}

fn said(command: &mut Command) -> Result<String, Fault> {
    let output = command.stdin(Stdio::null()).env_remove("PITHEAD_DATA").env("NO_COLOR", "1").output();
    let output = output.map_err(|error| Fault::new(Blame::Device, format!("{command:?}: {error}")))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(Fault::new(Blame::Device, format!("{command:?}: {}", said.trim())));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn unreadable(line: &str, error: &serde_json::Error) -> Fault {
    Fault::new(Blame::Bug, format!("expected what was found, got {line:?}: {error}"))
}
