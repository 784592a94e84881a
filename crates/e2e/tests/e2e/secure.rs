//! Drives that other machines reach: TLS, identities and rights through the program, and hostile callers.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use pithead_e2e::tpch::{parquet, spec};
use pithead_e2e::{DriveProcess, FrontProcess, block_on, collect, load, pithead};
use pithead_embed::{ClientTlsFiles, ConnectOptions, EmbedOptions, Target, connect};
use tempfile::TempDir;

/// A folder with a CA, an access file, tokens, and drives that use them.
struct Site {
    folder: TempDir,
}

impl Site {
    /// Made as the guide says.
    fn new() -> Site {
        let site = Site { folder: TempDir::new().unwrap() };
        site.done(&["cert", "ca"]);
        site.done(&["cert", "drive", "127.0.0.1", "localhost"]);
        site.done(&["cert", "client", "reports"]);
        site.done(&["token", "reports", "--read", "main"]);
        site.done(&["token", "loader", "--write", "main"]);
        site.done(&["token", "ops", "--administer", "*"]);
        site.done(&["token", "other", "--administer", "other"]);
        site
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(pithead());
        command.current_dir(self.folder.path()).args(arguments).stdin(Stdio::null()).env("NO_COLOR", "1");
        for variable in ["PITHEAD_DATA", "PITHEAD_DRIVES"] {
            command.env_remove(variable);
        }
        command
    }

    fn done(&self, arguments: &[&str]) -> String {
        succeeded(&self.command(arguments).output().unwrap(), arguments)
    }

    /// A drive that all machines reach, and its address on this one.
    fn drive(&self, name: &str, flags: &str) -> (DriveProcess, String) {
        let script = format!(
            "cd {} && exec \"$PITHEAD\" drive serve --data \"$DATA\" --listen 0.0.0.0:0 {flags}",
            self.folder.path().display()
        );
        let process = DriveProcess::start_limited(&self.path(name), &script);
        let address = process.address().replace("0.0.0.0", "127.0.0.1");
        (process, address)
    }

    fn secure_drive(&self, name: &str) -> (DriveProcess, String) {
        self.drive(name, "--tls-cert certs/127.0.0.1.pem --tls-key certs/127.0.0.1.key --access access.toml")
    }

    /// A command to drives as an identity with a token.
    fn as_identity(&self, name: &str, drives: &str, arguments: &[&str]) -> Output {
        let mut command = self.command(arguments);
        command.env("PITHEAD_DRIVES", drives).env("PITHEAD_TLS_CA", "certs/ca.pem");
        command.env("PITHEAD_TOKEN_FILE", format!("{name}.token"));
        command.output().unwrap()
    }
}

fn succeeded(output: &Output, what: &[&str]) -> String {
    assert_eq!(output.status.code(), Some(0), "{what:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Not allowed: exit code 5, with these words.
fn not_allowed(output: &Output, words: &[&str]) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(5), "{said}");
    words.iter().for_each(|word| assert!(said.contains(word), "{word:?} is not in: {said}"));
    assert!(output.stdout.is_empty(), "rows were written: {said}");
}

fn file(name: &str) -> String {
    // The first use of TPC-H makes its files.
    pithead_e2e::tpch::answers();
    parquet(name).display().to_string()
}

#[test]
fn a_drive_that_others_reach_needs_tls_and_known_callers() {
    let site = Site::new();
    let serve = |flags: &[&str]| {
        let arguments = [&["drive", "serve", "--data", "d", "--listen", "0.0.0.0:0"], flags].concat();
        let output = site.command(&arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(3), "{flags:?}: {said}");
        assert!(!site.path("d").exists(), "it must not have begun");
        said
    };
    let said = serve(&[]);
    assert!(["--tls-cert", "--access", "--insecure"].iter().all(|flag| said.contains(flag)), "{said}");
    assert!(serve(&["--access", "access.toml"]).contains("--tls-cert"));
    assert!(serve(&["--tls-cert", "certs/127.0.0.1.pem", "--tls-key", "certs/127.0.0.1.key"]).contains("--client-ca"));
    let (_drive, address) = site.drive("insecure", "--insecure");
    succeeded(&site.command(&["status", "--drives", &address]).output().unwrap(), &["status"]);
}

#[test]
fn each_identity_does_what_it_may_and_no_more() {
    let site = Site::new();
    let ((_one, first), (_two, second)) = (site.secure_drive("drive-0"), site.secure_drive("drive-1"));
    let drives = format!("{first},{second}");
    let run = |name: &str, arguments: &[&str]| site.as_identity(name, &drives, arguments);
    let nation = file("nation");
    let count = ["sql", "-q", "--format", "csv", "-c", "SELECT count(*) FROM nation"];

    not_allowed(&run("reports", &["load", "nation", &nation]), &["reports", "write", "main"]);
    succeeded(&run("loader", &["load", "nation", &nation]), &["load"]);
    assert!(succeeded(&run("reports", &count), &count).ends_with("25\n"));
    assert!(succeeded(&run("loader", &count), &count).ends_with("25\n"));
    succeeded(&run("loader", &["load", "nation", &nation, "--append"]), &["append"]);
    assert!(succeeded(&run("reports", &["status"]), &["status"]).contains("main.nation"));
    assert!(succeeded(&run("reports", &["ls"]), &["ls"]).contains("nation"));
    not_allowed(&run("reports", &["drop", "nation"]), &["write"]);

    // Who has no right to a domain does not see it.
    let unseen = run("other", &count);
    assert_eq!(unseen.status.code(), Some(3), "{}", String::from_utf8_lossy(&unseen.stderr));
    assert!(!succeeded(&run("other", &["status"]), &["status"]).contains("nation"));
    not_allowed(&run("other", &["load", "main.nation2", &nation]), &["main"]);

    not_allowed(&run("loader", &["drive", "drain", "-q", &second]), &["loader", "administer"]);
    assert!(succeeded(&run("reports", &count), &count).ends_with("50\n"), "the drain changed nothing");
    succeeded(&run("ops", &["drive", "drain", "-q", &second]), &["drain"]);
    succeeded(&run("ops", &["drive", "rm", &second]), &["rm"]);
    let one = |name: &str, arguments: &[&str]| site.as_identity(name, &first, arguments);
    assert!(succeeded(&one("reports", &count), &count).ends_with("50\n"));
    succeeded(&one("ops", &["drive", "add", "-q", &second]), &["add"]);
    succeeded(&run("ops", &["repair", "-q"]), &["repair"]);
    succeeded(&run("loader", &["drop", "nation"]), &["drop"]);
}

#[test]
fn services_are_told_what_to_do_by_those_who_administer_everything() {
    let site = Site::new();
    let (_drive, address) = site.secure_drive("drive-0");
    let run = |name: &str, arguments: &[&str]| site.as_identity(name, &address, arguments);
    for name in ["reports", "loader", "other"] {
        assert!(succeeded(&run(name, &["service", "ls"]), &["ls"]).contains("compaction"));
        for refused in
            [&["service", "pause", "scrub"][..], &["service", "policy", "none"], &["service", "limit", "scrub", "1MB"]]
        {
            not_allowed(&run(name, refused), &[name, "administer all domains"]);
        }
    }
    succeeded(&run("ops", &["service", "pause", "scrub"]), &["pause"]);
    assert!(succeeded(&run("reports", &["service", "ls"]), &["ls"]).contains("paused"));
}

#[test]
fn who_is_not_known_or_not_trusted_is_told_so() {
    let site = Site::new();
    let (_drive, address) = site.secure_drive("drive-0");
    let run = |environment: &[(&str, &str)]| {
        let mut command = site.command(&["ls"]);
        command.env("PITHEAD_DRIVES", &address).envs(environment.iter().copied());
        command.output().unwrap()
    };
    let token = ("PITHEAD_TOKEN_FILE", "reports.token");
    let ca = ("PITHEAD_TLS_CA", "certs/ca.pem");
    succeeded(&run(&[ca, token]), &["sql"]);
    not_allowed(&run(&[ca]), &["token", "--token-file", &address]);
    not_allowed(&run(&[ca, ("PITHEAD_TOKEN", &"x".repeat(64))]), &["not one that this drive knows"]);
    not_allowed(&run(&[token]), &["TLS", "--tls-ca", &address]);
    site.done(&["cert", "ca", "--dir", "elsewhere"]);
    not_allowed(&run(&[("PITHEAD_TLS_CA", "elsewhere/ca.pem"), token]), &["not trusted", "--tls-ca"]);
    let away = site.command(&["status", "--drives", "192.0.2.1:7433"]).output().unwrap();
    assert!(String::from_utf8_lossy(&away.stderr).contains("--insecure"), "{away:?}");

    // Who is taken out of the file is not known any more.
    std::fs::write(site.path("access.toml"), "[[identity]]\nname = \"x\"\ncertificate = \"x\"\nread = [\"*\"]\n").unwrap();
    let started = Instant::now();
    while run(&[ca, token]).status.success() {
        assert!(started.elapsed() < Duration::from_secs(30), "the token is still good");
        std::thread::sleep(Duration::from_millis(100));
    }
    not_allowed(&run(&[ca, token]), &["not one that this drive knows"]);
}

#[test]
fn hosts_are_known_by_certificates() {
    let site = Site::new();
    let (_drive, address) =
        site.drive("drive-0", "--tls-cert certs/127.0.0.1.pem --tls-key certs/127.0.0.1.key --client-ca certs/ca.pem");
    let run = |arguments: &[&str]| {
        let arguments = [&["ls", "--drives", address.as_str(), "--tls-ca", "certs/ca.pem"], arguments].concat();
        site.command(&arguments).output().unwrap()
    };
    succeeded(&run(&["--tls-cert", "certs/reports.pem", "--tls-key", "certs/reports.key"]), &["ls"]);
    not_allowed(&run(&[]), &["asks for a client certificate"]);
    site.done(&["cert", "ca", "--dir", "elsewhere"]);
    site.done(&["cert", "client", "reports", "--dir", "elsewhere"]);
    let foreign = ["--tls-cert", "elsewhere/reports.pem", "--tls-key", "elsewhere/reports.key"];
    not_allowed(&run(&foreign), &["does not accept"]);
}

#[test]
fn workers_are_servers_and_clients_of_tls() {
    let site = Site::new();
    site.done(&["token", "worker", "--read", "*"]);
    let ((_one, first), (_two, second)) = (site.secure_drive("drive-0"), site.secure_drive("drive-1"));
    let drives = format!("{first},{second}");
    for table in ["orders", "lineitem"] {
        let loaded = ["load", table, &file(table)];
        succeeded(&site.as_identity("loader", &drives, &loaded), &loaded);
    }
    let worker = |certificate: &str, more: &[&str]| {
        let (cert, key) = (format!("{certificate}.pem"), format!("{certificate}.key"));
        let link = ["--worker", "--threads", "1", "--drives", &drives, "--drives-tls-ca", "certs/ca.pem"];
        let tls = ["--tls-cert", &cert, "--tls-key", &key, "--access", "access.toml"];
        FrontProcess::start(site.folder.path(), &[&link[..], &tls[..], more].concat())
    };
    let good = ["--drives-token-file", "worker.token"];
    let workers = [worker("certs/127.0.0.1", &good), worker("certs/127.0.0.1", &good)];
    let both = format!("{},{}", workers[0].address(), workers[1].address());
    let query = "SELECT o_orderpriority, count(*), sum(l_quantity) FROM orders JOIN lineitem ON o_orderkey = l_orderkey \
                 GROUP BY o_orderpriority ORDER BY 1";
    let left = "SET pithead.pushdown = off; SET pithead.join_filters = off; ";
    let sql = |name: &str, workers: &str, text: &str| {
        let text = format!("{left}{text}");
        let mut arguments = vec!["sql", "-q", "--format", "csv", "-c", &text];
        if !workers.is_empty() {
            arguments.extend(["--workers", workers]);
        }
        site.as_identity(name, &drives, &arguments)
    };
    let rows = |workers: &str| succeeded(&sql("ops", workers, query), &["sql"]);
    let plan = succeeded(&sql("ops", &both, &format!("EXPLAIN ANALYZE {query}")), &["explain"]);
    assert!(plan.contains("among 2 workers") && !plan.contains("run again"), "{plan}");
    assert_eq!(rows(&both), rows(""));
    assert!(rows(&both).lines().count() > 5);

    // Who may not read every domain gives no worker tasks, and who is not known or not trusted is no worker.
    not_allowed(&sql("reports", &both, query), &["may not read every domain", workers[0].address()]);
    site.done(&["cert", "ca", "--dir", "elsewhere"]);
    site.done(&["cert", "drive", "127.0.0.1", "localhost", "--dir", "elsewhere"]);
    let foreign = worker("elsewhere/127.0.0.1", &good);
    not_allowed(&sql("ops", foreign.address(), query), &["worker", foreign.address(), "not trusted", "--tls-ca"]);
    let plain = ["--worker", "--threads", "1", "--drives", &drives, "--drives-tls-ca", "certs/ca.pem"];
    let plain = FrontProcess::start(site.folder.path(), &[&plain[..], &good[..]].concat());
    let output = sql("ops", plain.address(), query);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("no TLS connection") && said.contains(plain.address()) && said.contains("alone"), "{said}");
    assert_eq!(succeeded(&output, &["sql"]), rows(""));

    // A worker's own token is for drives alone: other workers, which would not take tasks from it, hear who has given the task.
    let narrow = worker("certs/127.0.0.1", &["--drives-token-file", "reports.token"]);
    let mixed = format!("{},{}", workers[0].address(), narrow.address());
    let plan = succeeded(&sql("ops", &mixed, &format!("EXPLAIN ANALYZE {query}")), &["explain"]);
    assert!(plan.contains("among 2 workers") && !plan.contains("run again"), "{plan}");
    assert_eq!(rows(&mixed), rows(""));
}

/// Connections that come to nothing: some say nothing, some begin a handshake, some begin HTTP/2 and go on byte by byte.
fn hostile(address: &str, count: usize) -> Vec<TcpStream> {
    let begun: [&[u8]; 4] = [
        b"",
        &[0x16, 3, 1, 2, 0, 1],
        b"PRI * HTTP/2.0\r\n\r\nSM",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0\0\x03\xe8\x01\x04\0\0\0\x01",
    ];
    let open = |number: usize| {
        let mut socket = TcpStream::connect(address).expect("the drive accepts");
        // The drive may hang up at once.
        let _ = socket.write_all(begun[number % begun.len()]);
        socket
    };
    (0..count).map(open).collect()
}

fn hung_up(socket: &mut TcpStream) -> bool {
    socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    // What the drive said before does not matter.
    loop {
        match socket.read(&mut [0; 4_096]) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return !matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut),
        }
    }
}

fn keeps_answering(address: &str, options: ConnectOptions) {
    block_on(async {
        let target = Target::Drives(vec![address.to_owned()]);
        let options = EmbedOptions { connect: options, ..EmbedOptions::default() };
        let engine = connect(&target, &options).await.unwrap_or_else(|fault| panic!("connecting: {fault}"));
        load(&engine, spec("nation", "vortex")).await.unwrap();
        let mut sockets = Vec::new();
        for round in 0..10 {
            sockets.extend(tokio::task::block_in_place(|| hostile(address, 100)));
            let table = collect(&engine.host.session(), "SELECT count(*) FROM nation").await;
            assert_eq!(table.unwrap_or_else(|fault| panic!("round {round}: {fault}")).rows, [["25"]]);
            let newcomer =
                connect(&target, &options).await.unwrap_or_else(|fault| panic!("round {round}, another host: {fault}"));
            newcomer.shutdown().await;
        }
        let left = tokio::task::block_in_place(|| sockets.iter_mut().map(hung_up).filter(|gone| !gone).count());
        assert!(left <= 100, "{left} of 1,000 connections are still open");
        engine.shutdown().await;
    });
}

#[test]
fn a_thousand_hostile_connections_do_not_hold_up_a_host() {
    let directory = TempDir::new().unwrap();
    let process = DriveProcess::start_limited(
        &directory.path().join("d"),
        // Fewer files than connections that come.
        "ulimit -n 512; exec \"$PITHEAD\" drive serve --data \"$DATA\" --listen 127.0.0.1:0",
    );
    keeps_answering(process.address(), ConnectOptions::default());
}

#[test]
fn nor_do_they_with_tls() {
    let site = Site::new();
    let (_drive, address) = site.secure_drive("drive-0");
    let token = pithead_embed::Token::from_file(&site.path("loader.token")).unwrap();
    let tls = ClientTlsFiles { ca: site.path("certs/ca.pem"), identity: None };
    keeps_answering(&address, ConnectOptions { tls: Some(tls), token: Some(token), insecure: false });
}
