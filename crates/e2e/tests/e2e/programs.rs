//! Programs at drives: loaded, listed, run, ended and removed through the program, by those who may; hostile ones harm only
//! themselves, and what is loaded while a drive is killed is there whole or not at all.

#[path = "../../../program/src/tests/guests.rs"]
pub(super) mod guests;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use guests::{PASS, guest};
use pithead_e2e::{DriveProcess, pithead};
use tempfile::TempDir;

const TEXTS: &str = "name idPass\ninput string\noutput string\n";

/// A module that is larger than its code, by bytes that mean nothing.
fn module(folder: &Path, name: &str, declaration: &str, body: &str, padding: u32) -> PathBuf {
    let mut bytes = wat::parse_str(guest(&[declaration], body)).expect("a module");
    if padding > 0 {
        // A custom section: its number, its length as five bytes of LEB128, and its name, which has one byte.
        let length = padding + 2;
        bytes.push(0);
        bytes.extend((0..5).map(|at| (length >> (7 * at)) as u8 & 0x7f | if at < 4 { 0x80 } else { 0 }));
        bytes.extend([1, b'p']);
        bytes.extend((0..padding).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8));
    }
    let path = folder.join(format!("{name}.wasm"));
    std::fs::write(&path, bytes).expect("a file");
    path
}

fn command(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(pithead());
    command.current_dir(folder).args(arguments).env("NO_COLOR", "1").stdin(Stdio::null());
    for variable in ["PITHEAD_DATA", "PITHEAD_DRIVES"] {
        command.env_remove(variable);
    }
    command
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// A folder to work in, and the drives that commands are for; without any, those of a directory in the folder.
struct Site<'a> {
    folder: &'a Path,
    drives: Option<String>,
}

impl Site<'_> {
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = command(self.folder, arguments);
        if let Some(drives) = &self.drives {
            command.env("PITHEAD_DRIVES", drives);
        }
        command
    }

    /// A command that must do what it says. Returns its stdout.
    fn done(&self, arguments: &[&str]) -> String {
        let output = self.command(arguments).output().expect("the program starts");
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", said(&output));
        String::from_utf8(output.stdout).expect("what is shown is UTF-8")
    }

    /// A command that must fail with a code, and these words.
    fn failed(&self, arguments: &[&str], code: i32, words: &str) {
        let output = self.command(arguments).output().expect("the program starts");
        let said = said(&output);
        assert!(output.status.code() == Some(code) && said.contains(words), "{arguments:?}: {:?}: {said}", output.status);
    }

    fn spawned(&self, arguments: &[&str]) -> Child {
        let mut command = self.command(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts")
    }

    /// Runs a program with a text on standard input. Returns its lines in order of the alphabet.
    fn fed(&self, arguments: &[&str], text: &str) -> Vec<String> {
        let mut child = self.spawned(&[&["program", "run"], arguments].concat());
        child.stdin.take().expect("a pipe").write_all(text.as_bytes()).expect("it reads");
        let output = child.wait_with_output().expect("it ends");
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", said(&output));
        let mut lines: Vec<String> = String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect();
        lines.sort();
        lines
    }
}

fn addresses(processes: &[DriveProcess]) -> Option<String> {
    Some(processes.iter().map(DriveProcess::address).collect::<Vec<_>>().join(","))
}

#[test]
fn programs_are_loaded_run_and_removed() {
    let directory = TempDir::new().unwrap();
    let mut processes = DriveProcess::start_many(directory.path(), 2, &[]);
    let site = Site { folder: directory.path(), drives: addresses(&processes) };
    module(site.folder, "pass", TEXTS, PASS, 0);
    site.done(&["program", "load", "pass.wasm"]);
    // The same bytes again are no other module.
    site.done(&["program", "load", "pass.wasm"]);
    let listed = site.done(&["program", "ls"]);
    assert!(listed.contains("2 of 2") && listed.contains("idPass") && listed.contains("string -> string"), "{listed}");
    assert_eq!(site.fed(&["pass"], "one\ntwo\nthree\n"), ["one", "one", "three", "three", "two", "two"]);
    let single = ["pass", "--at", processes[0].address(), "--format", "json"];
    assert_eq!(site.fed(&single, "[\"a\\nb\"]\n"), ["[\"a\\nb\"]"]);
    // What was acknowledged survives, and is run by a process that never saw it loaded.
    processes.iter_mut().for_each(DriveProcess::restart);
    assert_eq!(site.fed(&["pass"], "again\n"), ["again", "again"]);

    module(site.folder, "other", TEXTS, &format!("(drop (i32.const 7)) {PASS}"), 0);
    site.failed(&["program", "load", "other.wasm", "--name", "pass"], 4, "--replace");
    site.done(&["program", "load", "other.wasm", "--name", "pass", "--replace"]);
    let json = site.done(&["program", "ls", "--json"]);
    let modules: Vec<serde_json::Value> = json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(modules.len() == 2 && modules.iter().all(|module| module["version"] == 2), "{json}");

    site.done(&["program", "rm", "pass"]);
    assert_eq!(site.done(&["program", "ls", "--json"]), "");
    site.failed(&["program", "run", "pass"], 3, "the drive has no module pass");
}

#[test]
fn graphs_run_in_drives_of_a_directory() {
    let directory = TempDir::new().unwrap();
    let site = Site { folder: directory.path(), drives: None };
    module(site.folder, "pass", TEXTS, PASS, 0);
    site.done(&["program", "load", "pass.wasm"]);
    let graph = "[[ssdlet]]\nname = \"first\"\nrun = \"pass\"\n[[ssdlet]]\nname = \"second\"\nrun = \"pass:idPass\"\n\
                 [[connect]]\nfrom = \"first.0\"\nto = \"second\"\n";
    std::fs::write(site.folder.join("graph.toml"), graph).unwrap();
    let lines: String = (0..5_000).map(|number| format!("line {number}\n")).collect();
    let drives = std::fs::read_dir(site.folder.join("pithead-data")).unwrap().count();
    let output = site.fed(&["--graph", "graph.toml"], &lines);
    assert!(output.len() == 5_000 * drives && output.iter().all(|line| line.starts_with("line ")));
    let wrong = "idPass of the module pass takes 0 arguments (none), not 1";
    site.failed(&["program", "run", "pass", "too many"], 3, wrong);
    std::fs::write(site.folder.join("text.wasm"), "no module").unwrap();
    site.failed(&["program", "load", "text.wasm"], 3, "it is no WebAssembly module");
}

/// Sends its dataset, whose name is its argument, to out(0), at address 65536.
const READS: &str = r"
    (local.set $length (call $arguments (i32.const 0) (i32.const 1024)))
    (local.set $count (call $dataset_open (i32.const 4) (i32.sub (local.get $length) (i32.const 4)) (i32.const 0) (i32.const 0)))
    (if (i32.lt_s (local.get $count) (i32.const 0)) (then (return (i32.const 9))))
    (block $end (loop $next
        (local.set $length (call $dataset_get (local.get $count) (i32.const 65536) (i32.const 131072)))
        (br_if $end (i32.eqz (local.get $length)))
        (block $done (loop $again
            (br_if $done (i32.ne (i32.const -2) (call $put (i32.const 0) (i32.const 65536) (local.get $length))))
            (call $output_wait (i32.const 0) (local.get $length))
            (br $again)))
        (br $next)))
";

/// Makes an access file, and tokens beside it.
fn identities(site: &Site<'_>) {
    site.done(&["token", "owner", "--administer", "*", "--load-programs", "*"]);
    site.done(&["token", "runner", "--run-programs", "pass,reads"]);
    site.done(&["token", "reader", "--read", "main", "--run-programs", "reads"]);
}

#[test]
fn rights_say_who_loads_and_who_runs_what() {
    let directory = TempDir::new().unwrap();
    let folder = directory.path();
    identities(&Site { folder, drives: None });
    let access = folder.join("access.toml").display().to_string();
    let processes = [DriveProcess::start(&folder.join("drive-0"), &["--access", &access])];
    let site = Site { folder, drives: addresses(&processes) };
    let output = |name: &str, arguments: &[&str]| {
        site.command(arguments).env("PITHEAD_TOKEN_FILE", format!("{name}.token")).output().expect("the program starts")
    };
    let allowed = |name: &str, arguments: &[&str]| {
        let output = output(name, arguments);
        assert_eq!(output.status.code(), Some(0), "{name}: {arguments:?}: {}", said(&output));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let refused = |name: &str, arguments: &[&str], code: i32, words: &str| {
        let output = output(name, arguments);
        let said = said(&output);
        assert!(output.status.code() == Some(code) && said.contains(words), "{name}: {arguments:?}: {said}");
    };
    module(folder, "pass", TEXTS, PASS, 0);
    module(folder, "reads", "name idReads\nargument string\noutput arrow\n", READS, 0);
    module(folder, "hidden", TEXTS, PASS, 9);
    std::fs::write(folder.join("t.csv"), "city,fare\nOslo,18.5\nLima,4.25\n").unwrap();
    refused("runner", &["program", "load", "pass.wasm"], 5, "\"runner\" has no right to load the module \"pass\"");
    for name in ["pass", "reads", "hidden"] {
        allowed("owner", &["program", "load", &format!("{name}.wasm")]);
    }
    allowed("owner", &["load", "t", "t.csv"]);
    let listed = allowed("runner", &["program", "ls"]);
    assert!(listed.contains("pass") && listed.contains("reads") && !listed.contains("hidden"), "{listed}");
    allowed("runner", &["program", "run", "pass"]);
    refused("runner", &["program", "run", "hidden"], 5, "\"runner\" has no right to run the module \"hidden\"");
    refused("reader", &["program", "run", "pass"], 5, "has no right to run");
    refused("runner", &["program", "rm", "pass"], 5, "has no right to load");
    // An SSDlet reads what its caller may read, and not what the drive has.
    let rows = allowed("reader", &["program", "run", "reads", "main.t"]);
    assert!(rows.lines().count() == 2 && rows.contains("{\"city\":\"Oslo\",\"fare\":18.5}"), "{rows}");
    refused("runner", &["program", "run", "reads", "main.t"], 3, "may not read the domain \"main\"");
    refused("reader", &["program", "run", "reads", "main.none"], 3, "it ended with the code 9");
}

/// Waits until an application is open, and returns its session.
fn session(site: &Site<'_>, running: &mut Child) -> String {
    loop {
        let open = site.done(&["session", "ls", "--json"]);
        if let Some(line) = open.lines().next() {
            let session: serde_json::Value = serde_json::from_str(line).unwrap();
            assert!(session["programs"] == serde_json::json!(["loops"]) && session["state"] == "running", "{line}");
            assert!(session["memory"].as_u64() > Some(0), "{line}");
            return session["session"].as_str().unwrap().to_owned();
        }
        assert!(running.try_wait().unwrap().is_none(), "it runs until it is ended");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn hostile_programs_harm_only_themselves() {
    let directory = TempDir::new().unwrap();
    let processes = DriveProcess::start_many(directory.path(), 1, &["--threads", "1", "--memory", "128MiB"]);
    let site = Site { folder: directory.path(), drives: addresses(&processes) };
    let eats = "(loop $again (br_if $again (i32.ge_s (memory.grow (i32.const 16)) (i32.const 0))))";
    let floods = "(loop $again (call $log (i32.const 1) (i32.const 1024) (i32.const 11)) (br $again))";
    module(site.folder, "pass", TEXTS, PASS, 0);
    for (name, body) in [("loops", "(loop $again (br $again))"), ("eats", eats), ("dies", "unreachable"), ("floods", floods)] {
        module(site.folder, name, "name idBad\n", body, 0);
    }
    for name in ["pass", "loops", "eats", "dies", "floods"] {
        site.done(&["program", "load", &format!("{name}.wasm")]);
    }
    std::fs::write(site.folder.join("t.csv"), "n\n1\n2\n3\n").unwrap();
    site.done(&["load", "t", "t.csv"]);

    // One that would never end, on the drive's only thread: others go on.
    let mut looping = site.spawned(&["program", "run", "loops"]);
    let session = session(&site, &mut looping);
    assert!(site.done(&["session", "ls"]).contains("program loops"));
    let sum = || site.done(&["sql", "-q", "--format", "csv", "-c", "SELECT sum(n) AS s FROM t"]);
    assert_eq!(sum(), "s\n6\n");
    assert_eq!(site.fed(&["pass"], "still here\n"), ["still here"]);
    site.done(&["session", "kill", &session]);
    let ended = looping.wait_with_output().unwrap();
    let words = said(&ended);
    assert!(ended.status.code() == Some(4) && words.contains("an operator of the drive has ended"), "{words}");

    let long = "module loops, SSDlet idBad: its application has run for longer";
    site.failed(&["program", "run", "loops", "--limit", "0.2"], 3, long);
    site.failed(&["program", "run", "eats"], 3, "module eats, SSDlet idBad: it asked for more memory than the ");
    site.failed(&["program", "run", "dies"], 3, "module dies, SSDlet idBad: it gave up");
    site.failed(&["program", "run", "floods"], 3, "module floods, SSDlet idBad: it flooded the log");
    assert_eq!(site.done(&["session", "ls", "--json"]), "");
    assert_eq!(sum(), "s\n6\n");
}

#[test]
fn what_is_loaded_under_kills_is_whole_or_absent() {
    let directory = TempDir::new().unwrap();
    let mut processes = DriveProcess::start_many(directory.path(), 1, &[]);
    let site = Site { folder: directory.path(), drives: addresses(&processes) };
    let mut loaded = 0;
    for attempt in 0..8_u64 {
        let name = format!("m{attempt}");
        module(site.folder, &name, TEXTS, PASS, 12 << 20);
        let loading = site.spawned(&["program", "load", &format!("{name}.wasm")]);
        std::thread::sleep(Duration::from_millis(80 * attempt));
        processes[0].restart();
        let acknowledged = loading.wait_with_output().unwrap().status.success();
        let listed = site.done(&["program", "ls", "--json"]);
        let there = listed.lines().any(|line| {
            let module: serde_json::Value = serde_json::from_str(line).unwrap();
            module["name"] == name.as_str() && module["bytes"].as_u64() > Some(12 << 20)
        });
        assert!(there || !acknowledged, "{name} was acknowledged and is lost");
        if there {
            loaded += 1;
            assert_eq!(site.fed(&[&name], "whole\n"), ["whole"]);
        } else {
            site.failed(&["program", "run", &name], 3, "has no module");
        }
    }
    println!("{loaded} of 8 modules were loaded before the drive was killed");
    drop(processes);
    site.done(&["check", "drive-0"]);
}
