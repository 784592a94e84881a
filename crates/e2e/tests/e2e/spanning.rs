//! Applications over several drives: one graph, whose ports connect drives through the host. What fails anywhere ends it everywhere,
//! and nothing is left behind.

#[path = "../../../program/tests/build/mod.rs"]
mod build;

use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use pithead_e2e::{DriveProcess, block_on, pithead};
use pithead_embed::{ConnectOptions, Door, LoadModule, doors};
use pithead_model::{Blame, Fault};
use pithead_span::{Application, Bounds, HostReader, Ssdlet};
use tempfile::TempDir;

use crate::programs::guests::{PASS, guest};

/// More than any limit that a host or drive has for a peer that is silent.
const LIMIT: Duration = Duration::from_secs(90);

/// Sends batches of zeros to out(0), each 32 KiB, until nobody reads.
const ENDLESS: &str = r"
    (block $end (loop $again
        (local.set $count (call $put (i32.const 0) (i32.const 65536) (i32.const 32768)))
        (br_if $end (i32.eqz (local.get $count)))
        (if (i32.eq (local.get $count) (i32.const -2)) (then (call $output_wait (i32.const 0) (i32.const 32768))))
        (br $again)))
";

/// Sends 512 batches of 32 KiB, 16 MiB in all.
const MUCH: &str = r"
    (loop $again
        (if (i32.eq (i32.const -2) (call $put (i32.const 0) (i32.const 65536) (i32.const 32768)))
            (then (call $output_wait (i32.const 0) (i32.const 32768)))
            (else (local.set $at (i32.add (local.get $at) (i32.const 1)))))
        (br_if $again (i32.lt_u (local.get $at) (i32.const 512))))
";

/// Takes one batch of in(0), passes it on, and ends.
const FIRST: &str = r"
    (loop $next
        (local.set $length (call $get (i32.const 0) (i32.const 65536) (i32.const 131072)))
        (if (i32.eq (local.get $length) (i32.const -2)) (then (call $input_wait (i32.const 0)) (br $next))))
    (drop (call $put (i32.const 0) (i32.const 65536) (local.get $length)))
";

/// Takes one batch of in(0), and dies.
const DIES: &str = r"
    (loop $next
        (local.set $length (call $get (i32.const 0) (i32.const 65536) (i32.const 131072)))
        (if (i32.eq (local.get $length) (i32.const -2)) (then (call $input_wait (i32.const 0)) (br $next))))
    unreachable
";

/// Reads in(1) to its end, and only then in(0); puts out how many bytes there were.
const LAST_FIRST: &str = r"
    (local.set $at (i32.const 1))
    (block $end (loop $next
        (local.set $length (call $get (local.get $at) (i32.const 65536) (i32.const 131072)))
        (if (i32.eq (local.get $length) (i32.const -2)) (then (call $input_wait (local.get $at)) (br $next)))
        (local.set $count (i32.add (local.get $count) (local.get $length)))
        (br_if $next (local.get $length))
        (br_if $end (i32.eqz (local.get $at)))
        (local.set $at (i32.const 0))
        (br $next)))
    (i64.store (i32.const 65536) (i64.extend_i32_u (local.get $count)))
    (drop (call $put (i32.const 0) (i32.const 65536) (i32.const 8)))
";

/// Modules by their names: declarations, and what they do.
const MODULES: [(&str, &str, &str); 8] = [
    ("pass", "name idPass\ninput i64\noutput i64\n", PASS),
    ("texts", "name idTexts\ninput string\noutput string\n", PASS),
    ("batches", "name idBatches\ninput arrow\noutput arrow\n", PASS),
    ("endless", "name idEndless\noutput i64\n", ENDLESS),
    ("much", "name idMuch\noutput i64\n", MUCH),
    ("first", "name idFirst\ninput i64\noutput i64\n", FIRST),
    ("dies", "name idDies\ninput i64\noutput i64\n", DIES),
    ("lastfirst", "name idLastFirst\ninput i64\ninput i64\noutput i64\n", LAST_FIRST),
];

/// Drives with all modules.
struct Site {
    directory: TempDir,
    processes: Vec<DriveProcess>,
    doors: Vec<Arc<dyn Door>>,
}

impl Site {
    async fn new(drives: usize) -> Self {
        Self::with(drives, &["--threads", "1"]).await
    }

    async fn with(drives: usize, arguments: &[&str]) -> Self {
        let directory = TempDir::new().unwrap();
        let processes = DriveProcess::start_many(directory.path(), drives, arguments);
        let addresses: Vec<String> = processes.iter().map(|process| process.address().to_owned()).collect();
        let doors = doors(&addresses, &ConnectOptions::default()).unwrap();
        for door in &doors {
            for (name, declaration, body) in MODULES {
                let bytes = wat::parse_str(guest(&[declaration], body)).expect("a module").into();
                door.load_module(LoadModule { name: name.into(), replace: false, bytes }).await.unwrap();
            }
        }
        Self { directory, processes, doors }
    }

    fn application(&self) -> Application {
        Application::new("test", self.doors.clone(), Bounds::default()).unwrap()
    }

    /// A command for all drives.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(pithead());
        command.current_dir(self.directory.path()).args(arguments).env("NO_COLOR", "1").env_remove("PITHEAD_DATA");
        let addresses: Vec<&str> = self.processes.iter().map(DriveProcess::address).collect();
        command.env("PITHEAD_DRIVES", addresses.join(","));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs a graph with a text on standard input.
    fn fed(&self, graph: &str, text: &str) -> Output {
        std::fs::write(self.directory.path().join("graph.toml"), graph).unwrap();
        let mut child = self.command(&["program", "run", "--graph", "graph.toml"]).spawn().expect("the program starts");
        let mut input = child.stdin.take().expect("a pipe");
        let text = text.to_owned();
        // What fails early does not read all.
        let feeding = std::thread::spawn(move || drop(input.write_all(text.as_bytes())));
        let output = child.wait_with_output().expect("it ends");
        feeding.join().unwrap();
        output
    }

    /// Waits until no application is open at drives that answer.
    async fn is_clean(&self, doors: &[Arc<dyn Door>]) {
        let begun = Instant::now();
        for door in doors {
            while !door.sessions().await.unwrap().is_empty() {
                assert!(begun.elapsed() < Duration::from_secs(10), "an application is left at {}", door.label());
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }
}

async fn made(application: &Application, places: &[(usize, &str)]) -> Vec<Ssdlet> {
    let mut made = Vec::new();
    for (drive, module) in places {
        made.push(application.ssdlet(*drive, module, None, vec![]).await.unwrap());
    }
    made
}

fn rows(numbers: std::ops::Range<i64>) -> Vec<u8> {
    numbers.flat_map(i64::to_le_bytes).collect()
}

/// Reads to the end, or to the failure.
async fn drain_bytes(reader: &HostReader) -> Result<usize, Fault> {
    let mut bytes = 0;
    while let Some(batch) = reader.get().await? {
        bytes += batch.len();
    }
    Ok(bytes)
}

async fn drain(reader: &HostReader) -> Result<Vec<i64>, Fault> {
    let mut all = Vec::new();
    while let Some(batch) = reader.get().await? {
        all.extend(batch.chunks_exact(8).map(|row| i64::from_le_bytes(row.try_into().unwrap())));
    }
    Ok(all)
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn rows_pass_through_three_drives_in_their_order() {
    block_on(async {
        let site = Site::new(3).await;
        let application = site.application();
        // The second and the third lie together, so that one connection stays at its drive.
        let chain = made(&application, &[(0, "pass"), (1, "pass"), (1, "pass"), (2, "pass")]).await;
        for (one, other) in chain.iter().zip(&chain[1..]) {
            application.connect(&one.output(0), &other.input(0)).unwrap();
        }
        let writer = application.writer(&[chain[0].input(0)]).unwrap();
        let reader = application.reader(&[chain[3].output(0)]).unwrap();
        application.start().await.unwrap();
        let write = async {
            for part in 0..500 {
                assert!(writer.put(rows(part * 2000..(part + 1) * 2000)).await.unwrap(), "somebody reads");
            }
            drop(writer);
        };
        let (all, ()) = tokio::join!(drain(&reader), write);
        assert_eq!(all.unwrap(), (0..1_000_000).collect::<Vec<_>>(), "8 MB came in their order");
        assert!(application.wait().await.unwrap() > Duration::ZERO, "its time was measured");
        site.is_clean(&site.doors).await;
    });
}

#[test]
fn a_value_is_answered_through_two_drives_before_the_next_one_is_sent() {
    block_on(async {
        let site = Site::new(2).await;
        let application = site.application();
        let pair = made(&application, &[(0, "pass"), (1, "pass")]).await;
        application.connect(&pair[0].output(0), &pair[1].input(0)).unwrap();
        let writer = application.writer(&[pair[0].input(0)]).unwrap();
        let reader = application.reader(&[pair[1].output(0)]).unwrap();
        assert!(writer.put(rows(0..1)).await.unwrap(), "it waits for the start");
        application.start().await.unwrap();
        for turn in 1..20 {
            assert_eq!(reader.get().await.unwrap().unwrap(), rows(turn - 1..turn));
            assert!(writer.put(rows(turn..turn + 1)).await.unwrap());
        }
        drop(writer);
        assert_eq!(drain(&reader).await.unwrap(), [19]);
        application.wait().await.unwrap();
    });
}

#[test]
fn no_port_waits_for_another_one() {
    block_on(async {
        let site = Site::new(2).await;
        let application = site.application();
        let all = made(&application, &[(0, "much"), (0, "much"), (1, "lastfirst")]).await;
        application.connect(&all[0].output(0), &all[2].input(0)).unwrap();
        application.connect(&all[1].output(0), &all[2].input(1)).unwrap();
        let reader = application.reader(&[all[2].output(0)]).unwrap();
        application.start().await.unwrap();
        let sum = tokio::time::timeout(LIMIT, drain(&reader)).await.expect("in(1) does not wait for in(0)");
        assert_eq!(sum.unwrap(), [32 << 20]);
        application.wait().await.unwrap();
    });
}

#[test]
fn who_sends_without_end_ends_when_nobody_reads() {
    block_on(async {
        let site = Site::new(2).await;
        let application = site.application();
        let all = made(&application, &[(0, "endless"), (1, "first"), (1, "endless")]).await;
        application.connect(&all[0].output(0), &all[1].input(0)).unwrap();
        let reader = application.reader(&[all[1].output(0)]).unwrap();
        let other = application.reader(&[all[2].output(0)]).unwrap();
        application.start().await.unwrap();
        assert!(!drain(&reader).await.unwrap().is_empty());
        // The host program itself may go before the end, too.
        other.get().await.unwrap().expect("a batch");
        drop(other);
        tokio::time::timeout(LIMIT, application.wait()).await.expect("both sources end").unwrap();
        site.is_clean(&site.doors).await;
    });
}

#[test]
fn a_circle_over_drives_in_which_all_wait_is_found() {
    block_on(async {
        let site = Site::new(2).await;
        let application = site.application();
        let all = made(&application, &[(0, "pass"), (1, "pass"), (1, "much"), (0, "pass")]).await;
        application.connect(&all[0].output(0), &all[1].input(0)).unwrap();
        application.connect(&all[1].output(0), &all[0].input(0)).unwrap();
        // As long as anything else goes on, it is no such circle.
        application.connect(&all[2].output(0), &all[3].input(0)).unwrap();
        let reader = application.reader(&[all[3].output(0)]).unwrap();
        application.start().await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(drain_bytes(&reader).await.unwrap(), 16 << 20, "what was on its way came whole");
        let fault = tokio::time::timeout(LIMIT, application.wait()).await.expect("it is found").unwrap_err();
        let [one, other] =
            [0, 1].map(|drive| format!("at drive {}, idPass for rows in in(0)", site.processes[drive].address()));
        assert_eq!(fault.message, format!("all SSDlets of the application wait for each other; {one}; {other}"));
        site.is_clean(&site.doors).await;
    });
}

#[test]
fn a_failure_at_one_drive_ends_the_application_at_all() {
    block_on(async {
        let site = Site::new(3).await;
        let application = site.application();
        let all = made(&application, &[(0, "endless"), (1, "dies"), (2, "pass"), (2, "endless")]).await;
        application.connect(&all[0].output(0), &all[1].input(0)).unwrap();
        application.connect(&all[1].output(0), &all[2].input(0)).unwrap();
        let reader = application.reader(&[all[2].output(0)]).unwrap();
        // Nobody takes what this one sends: its drive waits, and is told even so.
        let _waiting = application.reader(&[all[3].output(0)]).unwrap();
        application.start().await.unwrap();
        let cause = "module dies, SSDlet idDies: it gave up (it reached an `unreachable` instruction)";
        let expected = format!("drive {}: {cause}", site.processes[1].address());
        let fault = tokio::time::timeout(LIMIT, application.wait()).await.expect("it ends").unwrap_err();
        assert_eq!((fault.blame, fault.message.as_str()), (Blame::User, expected.as_str()));
        assert_eq!(drain(&reader).await.unwrap_err().message, expected, "whoever waits is told the same");
        site.is_clean(&site.doors).await;
        // Nothing else is harmed.
        let again = site.application();
        let pass = made(&again, &[(1, "pass")]).await;
        let (writer, reader) = (again.writer(&[pass[0].input(0)]).unwrap(), again.reader(&[pass[0].output(0)]).unwrap());
        again.start().await.unwrap();
        writer.put(rows(0..3)).await.unwrap();
        drop(writer);
        assert_eq!(drain(&reader).await.unwrap(), [0, 1, 2]);
    });
}

#[test]
fn a_failure_is_told_while_the_output_of_its_drive_is_not_read() {
    block_on(async {
        let site = Site::new(2).await;
        let application = site.application();
        let all = made(&application, &[(0, "endless"), (0, "dies"), (1, "pass")]).await;
        let _unread = application.reader(&[all[0].output(0)]).unwrap();
        let writer = application.writer(&[all[1].input(0)]).unwrap();
        application.connect(&all[1].output(0), &all[2].input(0)).unwrap();
        let _reader = application.reader(&[all[2].output(0)]).unwrap();
        application.start().await.unwrap();
        // Until the window is full.
        tokio::time::sleep(Duration::from_millis(300)).await;
        writer.put(rows(0..1)).await.unwrap();
        let fault = tokio::time::timeout(LIMIT, application.wait()).await.expect("it ends").unwrap_err();
        assert!(fault.message.contains("module dies, SSDlet idDies"), "{fault}");
        site.is_clean(&site.doors).await;
    });
}

#[test]
fn a_drive_that_dies_ends_the_application_and_leaves_nothing_at_the_others() {
    block_on(async {
        let mut site = Site::new(3).await;
        let application = site.application();
        let all = made(&application, &[(0, "endless"), (1, "pass"), (2, "pass")]).await;
        application.connect(&all[0].output(0), &all[1].input(0)).unwrap();
        application.connect(&all[1].output(0), &all[2].input(0)).unwrap();
        let reader = application.reader(&[all[2].output(0)]).unwrap();
        application.start().await.unwrap();
        reader.get().await.unwrap().expect("rows come");
        site.processes[1].kill();
        let fault = tokio::time::timeout(LIMIT, drain(&reader)).await.expect("it is told").unwrap_err();
        assert!(fault.blame == Blame::Device && fault.message.contains(site.processes[1].address()), "{fault}");
        let others = [Arc::clone(&site.doors[0]), Arc::clone(&site.doors[2])];
        site.is_clean(&others).await;
    });
}

#[test]
fn an_application_ends_with_its_host() {
    block_on(async {
        let site = Site::new(2).await;
        let graph = "[[ssdlet]]\nname = \"a\"\nrun = \"endless\"\nat = 0\n[[ssdlet]]\nname = \"b\"\nrun = \"pass\"\nat = 1\n\
                     [[connect]]\nfrom = \"a\"\nto = \"b\"\n";
        std::fs::write(site.directory.path().join("graph.toml"), graph).unwrap();
        let mut host: Child = site.command(&["program", "run", "--graph", "graph.toml"]).spawn().unwrap();
        for door in &site.doors {
            while door.sessions().await.unwrap().is_empty() {
                assert!(host.try_wait().unwrap().is_none(), "it runs until it is killed");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        host.kill().unwrap();
        host.wait().unwrap();
        site.is_clean(&site.doors).await;
        // And with a host program that stops it, or lets it go.
        for stop in [true, false] {
            let application = site.application();
            let all = made(&application, &[(0, "endless"), (1, "pass")]).await;
            application.connect(&all[0].output(0), &all[1].input(0)).unwrap();
            let reader = application.reader(&[all[1].output(0)]).unwrap();
            application.start().await.unwrap();
            reader.get().await.unwrap().expect("rows come");
            if stop {
                application.stop();
                assert_eq!(application.wait().await.unwrap_err().message, "the application test was stopped");
            }
            drop(application);
            site.is_clean(&site.doors).await;
        }
    });
}

/// Sends its dataset to out(0).
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

#[test]
fn a_file_places_ssdlets_at_drives() {
    block_on(async {
        let site = Site::new(3).await;
        let run =
            |name: &str, module: &str, at: &str| format!("[[ssdlet]]\nname = \"{name}\"\nrun = \"{module}\"\nat = {at}\n");
        let link = |from: &str, to: &str| format!("[[connect]]\nfrom = \"{from}\"\nto = \"{to}\"\n");
        let lines: String = (0..20_000).map(|number| format!("line {number}\n")).collect();
        let address = format!("{:?}", site.processes[2].address());
        let chain = run("a", "texts", "0") + &run("b", "texts:idTexts", "1") + &run("c", "texts", &address);
        let output = site.fed(&(chain + &link("a", "b") + &link("b", "c")), &lines);
        assert!(output.status.success() && output.stdout == lines.as_bytes(), "{}", said(&output));

        // Dealt out to an SSDlet at each drive, through another one there, and gathered at one of them.
        let each =
            run("a", "texts", "0") + &run("b", "texts", "\"each\"") + &run("c", "texts", "\"each\"") + &run("d", "texts", "1");
        let output = site.fed(&(each + &link("a", "b") + &link("b", "c") + &link("c", "d")), &lines);
        let mut there: Vec<&str> = std::str::from_utf8(&output.stdout).unwrap().lines().collect();
        let mut expected: Vec<&str> = lines.lines().collect();
        there.sort_unstable();
        expected.sort_unstable();
        assert!(output.status.success() && there == expected, "{} lines: {}", there.len(), said(&output));

        // Arrow record batches of a dataset's part at each drive.
        let rows: String = (0..9_000).map(|number| format!("{number},{}\n", number * 7)).collect();
        std::fs::write(site.directory.path().join("t.csv"), format!("n,m\n{rows}")).unwrap();
        let loaded = site.command(&["load", "t", "t.csv", "--partitions", "3", "--slice-rows", "1000"]).output().unwrap();
        assert!(loaded.status.success(), "{}", said(&loaded));
        for door in &site.doors {
            let bytes = wat::parse_str(guest(&["name idReads\nargument string\noutput arrow\n"], READS)).unwrap().into();
            door.load_module(LoadModule { name: "reads".into(), replace: false, bytes }).await.unwrap();
        }
        let reads = run("r", "reads", "\"each\"") + "arguments = [\"main.t\"]\n" + &run("g", "batches", "2") + &link("r", "g");
        let output = site.fed(&reads, "");
        let text = String::from_utf8_lossy(&output.stdout);
        let sum: u64 =
            text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["m"].as_u64().unwrap()).sum();
        assert_eq!((text.lines().count(), sum), (9_000, (0..9_000).map(|number| number * 7).sum()), "{}", said(&output));
        site.is_clean(&site.doors).await;
    });
}

/// A host program in C++ of `sdk/examples/ssdlets`, as its users build it.
fn host_in_cpp(name: &str) -> PathBuf {
    let library = pithead().parent().expect("a folder").to_path_buf();
    assert!(library.join("libpithead_ssd.so").exists(), "libpithead_ssd.so is not beside {}", pithead().display());
    let made = build::out("cpp").join(name);
    let mut make = Command::new("make");
    make.current_dir(build::root().join("sdk/examples/ssdlets/cpp")).arg(format!("LIBRARY={}", library.display()));
    build::run(make.arg(format!("OUT={}", build::out("cpp").display())).arg(&made));
    made
}

#[test]
fn a_host_program_in_cpp_counts_words_at_all_drives() {
    block_on(async {
        let mut site = Site::with(2, &["--threads", "1", "--kinetic", "127.0.0.1:0", "--kinetic-tls", "127.0.0.1:0"]).await;
        let module = build::cpp("sdk/examples/ssdlets/cpp", "wordcount.wasm");
        let loaded = site.command(&["program", "load"]).arg(module).output().unwrap();
        assert!(loaded.status.success(), "{}", said(&loaded));
        let texts = ["to be or not\nto be\n", "that is the question\nto be\n"];
        // A drive says it once.
        let kinetic: Vec<String> = site.processes.iter().map(DriveProcess::kinetic).collect();
        for (at, text) in kinetic.iter().zip(texts) {
            let put = site.command(&["kv", "put", "play", text, "--at", at]).output().unwrap();
            assert!(put.status.success(), "{}", said(&put));
        }
        let program = host_in_cpp("wordcount_drives_host");
        let places: Vec<String> = site.processes.iter().map(|process| format!("pithead://{}", process.address())).collect();
        let run = |file: &str| Command::new(&program).arg(file).args(&places).output().unwrap();
        let output = run("play");
        let counts = "be\t3\nis\t1\nnot\t1\nor\t1\nquestion\t1\nthat\t1\nthe\t1\nto\t3\n";
        assert!(output.status.success() && String::from_utf8_lossy(&output.stdout) == counts, "{}", said(&output));
        // A file that is longer than a value, over one that was longer still.
        let long = site.directory.path().join("long.txt");
        for (at, lines) in kinetic.iter().zip([400_000, 300_000]).chain(kinetic.iter().zip([250_000, 200_000])) {
            std::fs::write(&long, "to be or not\n".repeat(lines)).unwrap();
            let put = site.command(&["kv", "put", "long", "--parts", "--at", at, "--file"]).arg(&long).output();
            assert!(put.as_ref().unwrap().status.success(), "{}", said(&put.unwrap()));
            let got = site.command(&["kv", "get", "long", "--parts", "--at", at]).output().unwrap();
            assert!(got.stdout == std::fs::read(&long).unwrap(), "{}", String::from_utf8_lossy(&got.stderr));
        }
        let output = run("long");
        let counts = "be\t450000\nnot\t450000\nor\t450000\nto\t450000\n";
        assert!(output.status.success() && String::from_utf8_lossy(&output.stdout) == counts, "{}", said(&output));
        // A part of another write.
        let other = ["kv", "put", "long/1", "to be\n", "--at", &kinetic[0]];
        assert!(site.command(&other).output().unwrap().status.success());
        let got = site.command(&["kv", "get", "long", "--parts", "--at", &kinetic[0]]).output().unwrap();
        assert!(!got.status.success() && said(&got).contains("was written while it was read"), "{}", said(&got));
        assert!(said(&run("long")).contains("\"long/1\" is of another write"), "{}", said(&run("long")));
        let cut = ["kv", "delete", "long/1", "--at", &kinetic[0]];
        assert!(site.command(&cut).output().unwrap().status.success());
        assert!(said(&run("long")).contains("the file \"long\" lacks the key-value \"long/1\""), "{}", said(&run("long")));
        let delete = ["kv", "delete", "long", "--parts", "--at", &kinetic[0]];
        assert!(site.command(&delete).output().unwrap().status.success());
        assert!(said(&run("long")).contains("there is no file \"long\""), "{}", said(&run("long")));
        let output = run("none");
        let told = said(&output);
        assert!(
            output.status.code() == Some(1)
                && told.contains("error: drive 127.0.0.1:")
                && told.contains("there is no file \"none\""),
            "{told}"
        );
        site.is_clean(&site.doors).await;
        site.processes[1].kill();
        let output = run("play");
        assert!(output.status.code() == Some(1) && said(&output).contains(site.processes[1].address()), "{}", said(&output));
    });
}

#[test]
fn what_a_file_cannot_mean_is_refused() {
    block_on(async {
        let site = Site::new(2).await;
        let graph = |first: &str, second: &str| {
            format!(
                "[[ssdlet]]\nname = \"a\"\nrun = \"texts\"\n{first}\n[[ssdlet]]\nname = \"b\"\nrun = \"texts\"\n{second}\n\
                 [[connect]]\nfrom = \"a\"\nto = \"b\"\n"
            )
        };
        let refused = |graph: &str, text: &str, words: &str| {
            let output = site.fed(graph, text);
            assert!(output.status.code() == Some(3) && said(&output).contains(words), "{graph}: {}", said(&output));
        };
        refused(&graph("at = 0", ""), "", "\"b\" does not say at which drive it lies");
        refused(&graph("at = 0", "at = 2"), "", "no drive has the number 2 among 2, counted from 0");
        refused(&graph("at = 0", "at = \"disk\""), "", "no drive is \"disk\"; the drives are 127.0.0.1:");
        let numbers = graph("at = 0", "at = 1").replacen("texts", "pass", 1);
        refused(&numbers, "", "a.out(0) puts out i64 and b.in(0) takes string; they cannot be connected");
        let both = graph("at = 0", "at = 1").replace("texts", "pass");
        refused(&both, "1\nx\n", "the line \"x\" is no row of i64");
        site.is_clean(&site.doors).await;
    });
}

#[test]
fn what_cannot_be_made_or_connected_is_refused_with_its_names() {
    block_on(async {
        let site = Site::new(2).await;
        site.doors[1].remove_module("pass".into()).await.unwrap();
        let application = site.application();
        let label = site.processes[1].address();
        let missing = application.ssdlet(1, "pass", None, vec![]).await.unwrap_err();
        assert_eq!(missing.message, format!("drive {label}: the drive has no module pass"));
        let unknown = application.ssdlet(0, "pass", Some("idNone"), vec![]).await.unwrap_err();
        assert!(unknown.message.ends_with("the module pass has no SSDlet idNone; it has idPass"), "{unknown}");
        let given = application.ssdlet(0, "pass", None, vec!["x".into()]).await.unwrap_err();
        assert!(given.message.contains("takes 0 arguments (none), not 1"), "{given}");
        assert!(application.ssdlet(2, "pass", None, vec![]).await.unwrap_err().message.contains("no drive 2 among 2"));
        let all = made(&application, &[(0, "pass"), (1, "texts"), (1, "first"), (0, "pass"), (0, "pass")]).await;
        let types = application.connect(&all[0].output(0), &all[1].input(0)).unwrap_err();
        assert_eq!(types.message, "idPass.out(0) puts out i64 and idTexts.in(0) takes string; they cannot be connected");
        let port = application.connect(&all[0].output(1), &all[2].input(0)).unwrap_err();
        assert_eq!(port.message, "idPass has no port 1 among its 1 outputs; they are counted from 0");
        application.connect(&all[0].output(0), &all[2].input(0)).unwrap();
        let twice = application.connect(&all[0].output(0), &all[2].input(0)).unwrap_err();
        assert_eq!(twice.message, "idPass.out(0) and idFirst.in(0) are connected already");
        application.connect(&all[3].output(0), &all[4].input(0)).unwrap();
        application.connect(&all[0].output(0), &all[4].input(0)).unwrap();
        let start = application.start().await.unwrap_err();
        assert_eq!(start.message, "idPass.in(0) is not connected; connect all ports before the start");
        assert_eq!(application.wait().await.unwrap_err().message, "the application test was not started");
        site.is_clean(&site.doors).await;
    });
}

#[test]
fn two_applications_are_connected_and_start_in_any_order() {
    block_on(async {
        let site = Site::new(2).await;
        for starts_first in [0, 1] {
            let (one, other) = (site.application(), site.application());
            let (from, to) = (made(&one, &[(0, "pass")]).await, made(&other, &[(1, "pass")]).await);
            one.connect(&from[0].output(0), &to[0].input(0)).unwrap();
            let (writer, reader) = (one.writer(&[from[0].input(0)]).unwrap(), other.reader(&[to[0].output(0)]).unwrap());
            let both = [&one, &other];
            both[starts_first].start().await.unwrap();
            tokio::time::sleep(Duration::from_millis(20)).await;
            both[1 - starts_first].start().await.unwrap();
            let write = async {
                for part in 0..200 {
                    assert!(writer.put(rows(part * 2000..(part + 1) * 2000)).await.unwrap(), "somebody reads");
                }
                drop(writer);
            };
            let (all, ()) = tokio::join!(drain(&reader), write);
            assert_eq!(all.unwrap(), (0..400_000).collect::<Vec<_>>());
            one.wait().await.unwrap();
            other.wait().await.unwrap();
        }
        site.is_clean(&site.doors).await;
    });
}

#[test]
fn an_application_ends_well_only_if_the_one_that_it_reads_does() {
    block_on(async {
        let site = Site::new(2).await;
        // The one that is read dies: what came is not all.
        let (one, other) = (site.application(), site.application());
        let (from, to) = (made(&one, &[(0, "endless"), (0, "dies")]).await, made(&other, &[(1, "pass")]).await);
        one.connect(&from[0].output(0), &from[1].input(0)).unwrap();
        other.connect(&from[1].output(0), &to[0].input(0)).unwrap();
        let reader = other.reader(&[to[0].output(0)]).unwrap();
        other.start().await.unwrap();
        one.start().await.unwrap();
        let fault = tokio::time::timeout(LIMIT, drain(&reader)).await.expect("it ends").unwrap_err();
        assert!(fault.message.starts_with("the application test, which it reads, has failed: drive "), "{fault}");
        assert!(other.wait().await.is_err());
        // The one that reads ends early, or is stopped: the other one is told that nobody reads, and ends well.
        for stops in [false, true] {
            let (one, other) = (site.application(), site.application());
            let (from, to) = (made(&one, &[(0, "endless")]).await, made(&other, &[(1, "first")]).await);
            one.connect(&from[0].output(0), &to[0].input(0)).unwrap();
            let reader = other.reader(&[to[0].output(0)]).unwrap();
            one.start().await.unwrap();
            match stops {
                true => other.stop(),
                false => {
                    other.start().await.unwrap();
                    assert!(drain_bytes(&reader).await.unwrap() > 0);
                }
            }
            tokio::time::timeout(LIMIT, one.wait()).await.expect("it ends").unwrap();
        }
        // One that is never started takes the one that reads it with it.
        let (one, other) = (site.application(), site.application());
        let (from, to) = (made(&one, &[(0, "much")]).await, made(&other, &[(1, "pass")]).await);
        one.connect(&from[0].output(0), &to[0].input(0)).unwrap();
        let reader = other.reader(&[to[0].output(0)]).unwrap();
        other.start().await.unwrap();
        drop(one);
        let fault = tokio::time::timeout(LIMIT, drain(&reader)).await.expect("it ends").unwrap_err();
        assert!(fault.message.contains("which it reads, has failed: the application test was stopped"), "{fault}");
        site.is_clean(&site.doors).await;
    });
}

#[test]
fn ports_of_other_applications_are_refused_where_they_are_none_of_a_connection() {
    block_on(async {
        let site = Site::new(1).await;
        let (one, other, third) = (site.application(), site.application(), site.application());
        let (from, to) = (made(&one, &[(0, "pass")]).await, made(&other, &[(0, "pass"), (0, "texts")]).await);
        let neither = third.connect(&from[0].output(0), &to[0].input(0)).unwrap_err();
        assert_eq!(neither.message, "neither idPass.out(0) nor idPass.in(0) is a port of the application test");
        let types = one.connect(&from[0].output(0), &to[1].input(0)).unwrap_err();
        assert_eq!(types.message, "idPass.out(0) puts out i64 and idTexts.in(0) takes string; they cannot be connected");
        let reader = third.reader(&[from[0].output(0)]).unwrap_err();
        assert_eq!(reader.message, "idPass is an SSDlet of another application than test");
        site.is_clean(&site.doors).await;
    });
}

#[test]
fn an_array_refuses_applications_with_a_sentence() {
    block_on(async {
        let site = Site::new(2).await;
        let array = DriveProcess::start_array(&site.directory.path().join("array"), &site.processes, &[]);
        let doors = doors(&[array.address().to_owned()], &ConnectOptions::default()).unwrap();
        let application = Application::new("test", doors, Bounds::default()).unwrap();
        let fault = application.ssdlet(0, "pass", None, vec![]).await.unwrap_err();
        assert_eq!(fault.blame, Blame::Unsupported);
        assert!(fault.message.contains("keeps no modules and runs no SSDlets"), "{fault}");
        assert!(fault.hint.unwrap().contains("name the drives themselves"));
    });
}
