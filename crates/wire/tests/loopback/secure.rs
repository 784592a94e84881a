//! TLS, credentials and rights through a real socket.

use std::path::PathBuf;
use std::time::Duration;

use futures::{StreamExt, stream};
use pithead_door::*;
use pithead_entry::*;
use pithead_model::*;
use pithead_wire::*;

use crate::calls::{load_request, open_request};
use crate::certificates::Ca;
use crate::memory::*;

/// An access file, and what is written into it.
struct AccessFile {
    folder: tempfile::TempDir,
    text: String,
}

impl AccessFile {
    fn new() -> AccessFile {
        AccessFile { folder: tempfile::tempdir().unwrap(), text: String::new() }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("access.toml")
    }

    fn add(&mut self, name: &str, known_by: &str, rights: &str) {
        self.text.push_str(&format!("[[identity]]\nname = \"{name}\"\n{known_by}\n{rights}\n"));
        std::fs::write(self.path(), &self.text).unwrap();
    }

    /// Adds an identity with a token.
    fn token(&mut self, name: &str, rights: &str) -> Token {
        let token = Token::random();
        self.add(name, &format!("token = \"{}\"", token.hash()), rights);
        token
    }

    fn options(&self) -> ServeOptions {
        ServeOptions { access: Some(self.path()), ..ServeOptions::default() }
    }
}

fn with_token(token: &Token) -> ConnectOptions {
    ConnectOptions { token: Some(token.clone()), ..ConnectOptions::default() }
}

fn with_tls(tls: ClientTlsFiles) -> ConnectOptions {
    ConnectOptions { tls: Some(tls), ..ConnectOptions::default() }
}

fn access_fault(result: Result<impl std::fmt::Debug, Fault>, words: &[&str]) -> Fault {
    let fault = result.unwrap_err();
    assert_eq!(fault.blame, Blame::Access, "{fault}");
    words.iter().for_each(|word| assert!(fault.to_string().contains(word), "{word:?} is not in: {fault}"));
    fault
}

#[tokio::test]
async fn rows_of_both_directions_go_through_tls() {
    let ca = Ca::new();
    let options = ServeOptions { tls: Some(ca.server(None)), ..ServeOptions::default() };
    let served = served_with(MemoryDoor::default(), options, &with_tls(ca.client(None))).await;
    let batch = || {
        arrow::array::RecordBatch::try_from_iter([(
            "k",
            std::sync::Arc::new(arrow::array::Int64Array::from_iter(0..500_000)) as _,
        )])
    };
    let request = load_request(batch().unwrap().schema());
    assert_eq!(served.client.load(request, stream::iter([Ok(batch().unwrap())]).boxed()).await.unwrap(), loaded());
    let loaded: usize = {
        let loads = served.door.loads.lock().unwrap();
        loads[0].1.as_ref().unwrap().iter().map(|batch| batch.num_rows()).sum()
    };
    assert_eq!(loaded, 500_000);
    let mut events = served.client.get(ENDLESS).await.unwrap();
    for _ in 0..500 {
        assert!(events.next().await.unwrap().is_ok());
    }
    let named = format!("pithead+tls://{}", served.address);
    assert!(FlightDoor::connect_with(&named, &with_tls(ca.client(None))).unwrap().status().await.is_ok());
}

#[tokio::test]
async fn a_drive_that_is_not_trusted_is_told_from_one_that_is_down() {
    let (ca, other) = (Ca::new(), Ca::new());
    let options = ServeOptions { tls: Some(ca.server(None)), ..ServeOptions::default() };
    let served = served_with(MemoryDoor::default(), options, &with_tls(other.client(None))).await;
    access_fault(served.client.status().await, &[&served.address, "not trusted", "--tls-ca"]);
    let port = served.address.rsplit_once(':').unwrap().1;
    let by_name = FlightDoor::connect_with(&format!("localhost:{port}"), &with_tls(ca.client(None))).unwrap();
    access_fault(by_name.status().await, &["not trusted", "name"]);
    let plain = FlightDoor::connect(&served.address).unwrap();
    access_fault(plain.status().await, &[&served.address, "TLS", "--tls-ca"]);
    assert!(FlightDoor::connect_with(&served.address, &with_tls(ca.client(None))).unwrap().status().await.is_ok());

    let plain = crate::memory::served(MemoryDoor::default()).await;
    let tls = FlightDoor::connect_with(&plain.address, &with_tls(ca.client(None))).unwrap();
    let fault = tls.status().await.unwrap_err();
    assert!(fault.blame == Blame::Device && fault.to_string().contains("TLS"), "{fault}");
    assert!(plain.client.status().await.is_ok());
}

#[tokio::test]
async fn callers_show_a_certificate_where_the_drive_asks_for_it() {
    let (ca, other) = (Ca::new(), Ca::new());
    let options = ServeOptions { tls: Some(ca.server(Some(&ca))), ..ServeOptions::default() };
    let served = served_with(MemoryDoor::default(), options, &with_tls(ca.client(Some(ca.issue("reports", 4000))))).await;
    assert!(served.client.status().await.is_ok());
    let connect = |identity| FlightDoor::connect_with(&served.address, &with_tls(ca.client(identity))).unwrap();
    access_fault(connect(None).status().await, &[&served.address, "asks for a client certificate", "--tls-cert"]);
    access_fault(connect(Some(other.issue("reports", 4000))).status().await, &["does not accept", "--client-ca"]);
    access_fault(connect(Some(ca.issue("late", 2001))).status().await, &["expired"]);
    assert!(served.client.status().await.is_ok());
}

#[tokio::test]
async fn a_certificate_is_an_identity() {
    let ca = Ca::new();
    let mut file = AccessFile::new();
    file.add("reports", "certificate = \"reports.example\"", "read = [\"main\"]");
    let options = ServeOptions { tls: Some(ca.server(Some(&ca))), ..file.options() };
    let identity = |name| with_tls(ca.client(Some(ca.issue(name, 4000))));
    let served = served_with(MemoryDoor::default(), options, &identity("reports.example")).await;
    assert!(served.client.manifest("main".into()).await.is_ok());
    access_fault(served.client.manifest("other".into()).await, &["reports", "read", "other"]);
    let stranger = FlightDoor::connect_with(&served.address, &identity("stranger.example")).unwrap();
    access_fault(stranger.status().await, &["stranger.example", "nobody"]);
}

#[tokio::test]
async fn only_tokens_that_are_known_get_in() {
    let mut file = AccessFile::new();
    let token = file.token("reports", "read = [\"main\"]");
    let served = served_with(MemoryDoor::default(), file.options(), &with_token(&token)).await;
    assert!(served.client.status().await.is_ok());
    let connect = |options: &ConnectOptions| FlightDoor::connect_with(&served.address, options).unwrap();
    access_fault(connect(&ConnectOptions::default()).status().await, &["asks for a token", "--token-file"]);
    let wrong = connect(&with_token(&Token::random()));
    // Each connection ends after a few, and the next one is as good.
    for _ in 0..3 {
        access_fault(wrong.status().await, &["not one that this drive knows"]);
    }
    assert!(served.client.status().await.is_ok());
}

#[tokio::test]
async fn each_call_needs_its_right_to_its_domain() {
    let mut file = AccessFile::new();
    let reader = file.token("reader", "read = [\"main\"]");
    let writer = file.token("writer", "write = [\"main\"]");
    let other = file.token("other", "administer = [\"other\"]");
    let served = served_with(MemoryDoor::default(), file.options(), &with_token(&reader)).await;
    let connect = |token| FlightDoor::connect_with(&served.address, &with_token(token)).unwrap();
    let (writer, other) = (connect(&writer), connect(&other));
    let reader = &served.client;
    let scan = PlanBytes::Scan { dataset: "t".parse().unwrap(), columns: vec![] };
    let key = || SliceKey { name: "t".parse().unwrap(), dataset: DatasetId(3), load: LoadId(1), partition: 4, number: None };
    let schema = || std::sync::Arc::new(arrow::datatypes::Schema::empty());

    access_fault(other.open(open_request(scan.clone(), vec![])).await, &["other", "read", "main"]);
    access_fault(other.directory(key()).await, &["read"]);
    access_fault(other.read_run(key()).await.map(|_| ()), &["read"]);
    assert!(served.door.opened.lock().unwrap().is_empty());
    assert!(reader.open(open_request(scan, vec![])).await.is_ok());
    assert_eq!(reader.directory(key()).await.unwrap_err().blame, Blame::Corrupt, "the door itself is asked");

    let manifest = || Manifest { version: 1, ..Manifest::empty("main", vec![DriveId(7)]) };
    let discard =
        || Discard { name: "t".parse().unwrap(), dataset: DatasetId(3), loads: Loads::All, partition: None, seen: None };
    let nothing = || stream::empty().boxed();
    let piece = RunPiece { number: None, total: 1, bytes: vec![7].into() };
    access_fault(reader.load(load_request(schema()), nothing()).await, &["reader", "write", "main"]);
    let merge = || MergeRuns { into: load_request(schema()), loads: vec![LoadId(1)] };
    access_fault(reader.merge_runs(merge()).await, &["reader", "write", "main"]);
    let mark = || MarkRun { into: load_request(schema()), load: LoadId(1), plan: vec![], time_zone: None };
    access_fault(reader.mark_run(mark()).await, &["reader", "write", "main"]);
    access_fault(other.mark_run(mark()).await, &["main"]);
    access_fault(reader.discard(discard()).await, &["write"]);
    access_fault(reader.write_run(key(), stream::iter([Ok(piece)]).boxed()).await, &["write"]);
    access_fault(reader.commit(0, manifest()).await, &["write"]);
    access_fault(reader.keep_manifest(manifest()).await, &["write"]);
    access_fault(other.set_aside("main".into(), 0).await, &["read"]);
    assert!(reader.set_aside("main".into(), 0).await.unwrap().is_none());
    access_fault(other.past_manifest("main".into(), 1).await, &["read"]);
    assert!(reader.past_manifest("main".into(), 1).await.unwrap().is_none());
    let ask = || HistoryAsk { domain: "main".into(), pick: Pick::Before(9) };
    access_fault(other.history(ask()).await, &["read"]);
    assert!(reader.history(ask()).await.unwrap().is_empty());
    access_fault(writer.forget_history("main".into()).await, &["writer", "administer", "main"]);
    access_fault(writer.drop_aside("main".into(), 1).await, &["writer", "administer", "main"]);
    assert!(!other.drop_aside("other".into(), 1).await.unwrap(), "there is none");
    assert!(served.door.loads.lock().unwrap().is_empty() && served.door.discards.lock().unwrap().is_empty());
    assert!(served.door.merges.lock().unwrap().is_empty());
    writer.merge_runs(merge()).await.unwrap();
    writer.load(load_request(schema()), nothing()).await.unwrap();
    writer.discard(discard()).await.unwrap();
    writer.commit(0, manifest()).await.unwrap();
    writer.keep_manifest(manifest()).await.unwrap();
    assert!(writer.manifest("main".into()).await.unwrap().is_some(), "who may write may read");

    let seen = |status: DriveStatus| (status.domains.len(), status.partitions.len());
    assert_eq!(seen(reader.status().await.unwrap()), (1, 1));
    assert_eq!(seen(other.status().await.unwrap()), (0, 0));
}

#[tokio::test]
async fn data_moves_to_other_drives_only_for_who_may_administer() {
    let mut file = AccessFile::new();
    let writer = file.token("writer", "write = [\"*\"]");
    let admin = file.token("admin", "administer = [\"*\"]");
    let served = served_with(MemoryDoor::default(), file.options(), &with_token(&writer)).await;
    let admin = FlightDoor::connect_with(&served.address, &with_token(&admin)).unwrap();
    let manifest = |version, drives: &[u64]| Manifest {
        version,
        ..Manifest::empty("main", drives.iter().copied().map(DriveId).collect())
    };
    served.client.commit(0, manifest(1, &[7, 8])).await.unwrap();
    served.client.commit(1, manifest(2, &[7, 8])).await.unwrap();
    access_fault(served.client.commit(2, manifest(3, &[7])).await, &["writer", "administer"]);
    admin.commit(2, manifest(3, &[7])).await.unwrap();
    let keeping = Manifest { history_ms: Some(7), ..manifest(4, &[7]) };
    access_fault(served.client.commit(3, keeping).await, &["writer", "administer"]);
    let conflict = served.client.commit(2, manifest(3, &[7])).await.unwrap_err();
    assert_eq!(conflict.blame, Blame::Conflict, "{conflict}");
}

#[tokio::test]
async fn functions_are_changed_only_by_who_may_administer() {
    let mut file = AccessFile::new();
    let writer = file.token("writer", "write = [\"*\"]");
    let other = file.token("other", "administer = [\"other\"]");
    let admin = file.token("admin", "administer = [\"main\"]");
    let served = served_with(MemoryDoor::default(), file.options(), &with_token(&writer)).await;
    let [other, admin] = [other, admin].map(|token| FlightDoor::connect_with(&served.address, &with_token(&token)).unwrap());
    let function = || Function {
        arguments: vec![],
        returns: FunctionType::Bigint,
        volatility: Volatility::Immutable,
        called_on_null: false,
        module: "0f".repeat(32),
        export: "one".into(),
        kind: FunctionKind::Scalar,
    };
    let manifest = |version, names: &[&str]| Manifest {
        version,
        functions: names.iter().map(|name| ((*name).to_owned(), function())).collect(),
        ..Manifest::empty("main", vec![DriveId(7)])
    };
    access_fault(served.client.commit(0, manifest(1, &["f"])).await, &["writer", "administer"]);
    admin.commit(0, manifest(1, &["f"])).await.unwrap();
    access_fault(served.client.commit(1, manifest(2, &[])).await, &["writer", "administer"]);
    served.client.commit(1, manifest(2, &["f"])).await.unwrap();
    let module = || FunctionModule { domain: "main".into(), bytes: vec![0; 9].into() };
    access_fault(served.client.keep_function(module()).await, &["writer", "administer", "main"]);
    access_fault(other.keep_function(module()).await, &["other", "administer", "main"]);
    let unsupported = admin.keep_function(module()).await.unwrap_err();
    assert_eq!(unsupported.blame, Blame::Unsupported, "the door itself is asked: {unsupported}");
    let ask = || FunctionAsk { domain: "main".into(), module: "0f".repeat(32), bytes: true };
    access_fault(other.function(ask()).await, &["other", "read", "main"]);
    assert_eq!(served.client.function(ask()).await.unwrap_err().blame, Blame::Unsupported);
    let wrong = Function { module: "short".into(), ..function() };
    let broken = Manifest { functions: [("f".to_owned(), wrong)].into(), ..manifest(3, &[]) };
    assert_eq!(admin.commit(2, broken).await.unwrap_err().blame, Blame::User);
}

#[tokio::test]
async fn a_session_is_its_openers() {
    let mut file = AccessFile::new();
    let (one, other) = (file.token("one", "read = [\"*\"]"), file.token("other", "administer = [\"*\"]"));
    let served = served_with(MemoryDoor::default(), file.options(), &with_token(&one)).await;
    let other = FlightDoor::connect_with(&served.address, &with_token(&other)).unwrap();
    let scan = PlanBytes::Scan { dataset: "t".parse().unwrap(), columns: vec![] };
    let Reply::Granted(granted) = served.client.open(open_request(scan, vec![])).await.unwrap().reply else {
        panic!("the first session is granted");
    };
    served.door.answers.lock().unwrap().insert(granted.session, vec![finished()]);
    access_fault(other.get(granted.session).await.map(|_| ()), &["other"]);
    access_fault(other.poll(granted.session).await, &["other"]);
    access_fault(other.close(granted.session).await, &["other"]);
    assert!(served.door.closed.lock().unwrap().is_empty());
    assert_eq!(served.client.get(granted.session).await.unwrap().count().await, 1);
    served.client.close(granted.session).await.unwrap();
}

#[tokio::test]
async fn sessions_are_seen_by_their_identity_and_by_who_administers() {
    let mut file = AccessFile::new();
    let one = file.token("one", "read = [\"*\"]");
    let (stranger, ops) = (file.token("stranger", "administer = [\"lab\"]"), file.token("ops", "administer = [\"*\"]"));
    let served = served_with(MemoryDoor::default(), file.options(), &with_token(&one)).await;
    let connect = |token| FlightDoor::connect_with(&served.address, &with_token(token)).unwrap();
    let (again, stranger, ops) = (connect(&one), connect(&stranger), connect(&ops));
    let scan = PlanBytes::Scan { dataset: "t".parse().unwrap(), columns: vec![] };
    for client in [&served.client, &again, &ops] {
        client.open(open_request(scan.clone(), vec![])).await.unwrap();
    }
    // Whatever number a host says: what counts is who it is.
    let hosts: Vec<u64> = served.door.opened.lock().unwrap().iter().map(|request| request.options.host).collect();
    assert!(hosts[0] == hosts[1] && hosts[0] != hosts[2] && !hosts.contains(&u64::MAX), "{hosts:?}");
    let session = open_session().session;
    let owned = OpenSession { owner: Some("one".into()), ..open_session() };
    for sees in [&again, &ops] {
        assert_eq!(sees.sessions().await.unwrap(), std::slice::from_ref(&owned));
    }
    // It may administer one of the two domains that the session reads.
    assert_eq!(stranger.sessions().await.unwrap(), []);
    assert!(!stranger.kill(session).await.unwrap());
    assert!(ops.kill(session).await.unwrap() && served.client.kill(session).await.unwrap());
    assert!(!ops.kill(SessionId(7)).await.unwrap());
}

#[tokio::test]
async fn rights_change_with_the_file() {
    let mut file = AccessFile::new();
    let token = file.token("reports", "read = [\"main\"]");
    let served = served_with(MemoryDoor::default(), file.options(), &with_token(&token)).await;
    served.client.manifest("main".into()).await.unwrap();
    // A file that cannot be read changes nothing.
    std::fs::write(file.path(), "what?").unwrap();
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    served.client.manifest("main".into()).await.unwrap();
    file.text.clear();
    file.token("another", "");
    let refused = async {
        while served.client.manifest("main".into()).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), refused).await.expect("the token is not known any more");
}

#[tokio::test]
async fn another_machine_is_not_connected_to_in_clear() {
    let token = Token::random();
    for (options, word) in [(ConnectOptions::default(), "all data"), (with_token(&token), "token")] {
        for address in ["192.0.2.1", "store.example:7433", "pithead://[2001:db8::1]"] {
            let fault = FlightDoor::connect_with(address, &options).unwrap_err();
            assert!(fault.blame == Blame::User && fault.to_string().contains(word), "{fault}");
            assert!(fault.hint.unwrap().contains("--tls-ca"));
            FlightDoor::connect_with(address, &ConnectOptions { insecure: true, ..options.clone() }).unwrap();
        }
    }
    let fault = FlightDoor::connect("pithead+tls://127.0.0.1").unwrap_err();
    assert!(fault.blame == Blame::User && fault.hint.unwrap().contains("--tls-ca"));
}

#[tokio::test]
async fn the_server_itself_refuses_to_serve_beyond_loopback() {
    let listener = tokio::net::TcpListener::bind("0.0.0.0:0").await.unwrap();
    let door = std::sync::Arc::new(MemoryDoor::default());
    let pace = std::sync::Arc::new(Counted::default());
    let fault = serve(door, pace, listener, &ServeOptions::default(), Box::pin(std::future::pending())).await.unwrap_err();
    assert!(fault.blame == Blame::User && fault.to_string().contains("--insecure"), "{fault}");
}
