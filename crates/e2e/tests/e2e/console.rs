//! The console as browsers talk to it, and as others do: rights, limits, and callers that lie. What its page makes of it is in
//! `python/tests/test_console.py`.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use pithead_e2e::front::{ENDLESS, done, five_rows};
use pithead_e2e::{DriveProcess, FrontProcess, RawClient};
use serde_json::{Value as Json, json};

/// What is said of a request: status, headers and body.
struct Answer {
    status: u16,
    headers: String,
    body: String,
}

impl Answer {
    fn json(&self) -> Json {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }
}

fn open(address: &str) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream
}

/// The answer on a connection that ends with it.
fn answer(mut stream: TcpStream) -> Answer {
    let mut bytes = Vec::new();
    // A server that has said no before all of a body has come may cut the rest off.
    let _ = stream.read_to_end(&mut bytes);
    let text = String::from_utf8_lossy(&bytes);
    let (headers, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text:?}"));
    let status = headers.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    Answer { status, headers: headers.to_ascii_lowercase(), body: body.to_owned() }
}

/// Sends a request with more headers than it has to have.
fn send(address: &str, method: &str, path: &str, headers: &[&str], body: &str) -> TcpStream {
    let mut stream = open(address);
    let mut head = format!("{method} {path} HTTP/1.1\r\nconnection: close\r\n");
    if !headers.iter().any(|header| header.starts_with("host:")) {
        head += &format!("host: {address}\r\n");
    }
    if method == "POST" {
        head += &format!("content-length: {}\r\n", body.len());
        if !headers.iter().any(|header| header.starts_with("content-type:")) {
            head += "content-type: application/json\r\n";
        }
    }
    headers.iter().for_each(|header| head += &format!("{header}\r\n"));
    stream.write_all(format!("{head}\r\n{body}").as_bytes()).unwrap();
    stream
}

fn get(address: &str, path: &str, headers: &[&str]) -> Answer {
    answer(send(address, "GET", path, headers, ""))
}

fn post(address: &str, path: &str, headers: &[&str], body: &str) -> Answer {
    answer(send(address, "POST", path, headers, body))
}

fn query(address: &str, sql: &str, headers: &[&str]) -> Json {
    let answer = post(address, "/api/query", headers, &json!({ "sql": sql }).to_string());
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.json()
}

/// Waits until the state is as it is wanted, and returns what was found.
fn until<T>(address: &str, headers: &[&str], find: impl Fn(&Json) -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        let state = get(address, "/api/state", headers).json();
        if let Some(found) = find(&state) {
            return found;
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "{state:#}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn running(state: &Json) -> Option<Json> {
    state["running"].as_array().and_then(|running| running.first()).cloned()
}

#[test]
fn statements_run_as_over_the_wire_and_are_shown_with_their_cut() {
    let folder = five_rows();
    let drives = DriveProcess::start_many(folder.path(), 2, &[]);
    let addresses: Vec<&str> = drives.iter().map(DriveProcess::address).collect();
    let addresses = addresses.join(",");
    done(folder.path(), &["load", "t", "t.csv", "--drives", &addresses]);
    let mut front = FrontProcess::start(folder.path(), &["--drives", &addresses, "--console", "0"]);
    let address = front.console().to_owned();

    let answer = query(&address, "SELECT id, name, price FROM t WHERE id < 4 ORDER BY id", &[]);
    let result = &answer["results"][0];
    assert_eq!(result["rows"], json!([["1", "one", 1.5], ["2", "two", 2.5], ["3", null, 3.5]]));
    assert_eq!(result["columns"][0], json!({ "name": "id", "type": "Int64", "is_number": true }));
    let whole = get(&address, &format!("/api/statements/{}", result["id"]), &[]).json();
    assert_eq!((&whole["outcome"], &whole["kind"], &whole["rows"]), (&json!("ok"), &json!("query"), &json!(3)), "{whole:#}");
    let plan = whole["plan"].as_array().unwrap();
    let sub_plan = plan.iter().find(|line| line["figures"].is_object()).unwrap_or_else(|| panic!("{whole:#}"));
    assert_eq!((&sub_plan["site"], &sub_plan["figures"]["dataset"]), (&json!("link"), &json!("main.t")));
    assert!(sub_plan["figures"]["link_bytes"].as_u64() > Some(0), "{sub_plan:#}");
    assert!(plan.iter().any(|line| line["site"] == "drive") && plan.iter().any(|line| line["site"] == "host"), "{whole:#}");

    // Statements of other clients are shown, too.
    let mut client = RawClient::connect(front.address());
    client.query("SELECT count(*) FROM t WHERE price > 2");
    let recent = get(&address, "/api/state", &[]).json()["recent"].clone();
    assert_eq!((&recent[0]["user"], &recent[0]["rows"]), (&json!("me"), &json!(1)), "{recent:#}");
    let state = get(&address, "/api/state", &[]).json();
    assert_eq!((state["drives"].as_array().unwrap().len(), &state["is_in_process"]), (2, &json!(false)));
    assert!(state["drives"][0]["cores"].as_array().is_some_and(|cores| !cores.is_empty()), "{state:#}");
    assert!(state["totals"]["read_bytes"].as_u64() > Some(0), "{state:#}");

    // Several statements, of which the second fails; where it does so is told from the beginning of its text.
    let answer = query(&address, "SELECT 1;\nSELEC 2", &[]);
    assert_eq!((answer["results"].as_array().unwrap().len(), &answer["error"]["begins"]), (1, &json!(10)), "{answer:#}");
    // SET holds for one page alone, and not for settings that all clients share.
    let (one, other) = (["x-pithead-page: one"], ["x-pithead-page: other"]);
    query(&address, "SET pithead.device = 'smart-ssd'; SET pithead.pushdown = on", &one);
    for (page, expected) in [(one, true), (other, false)] {
        let answer = query(&address, "SELECT sum(price) FROM t WHERE id > 1", &page);
        let whole = get(&address, &format!("/api/statements/{}", answer["results"][0]["id"]), &page).json();
        assert_eq!(whole["joules"].as_f64().is_some_and(|joules| joules > 0.0), expected, "{whole:#}");
    }
    let refused = query(&address, "SET datafusion.execution.batch_size = 1", &one);
    assert_eq!(refused["error"]["blame"], "not allowed", "{refused:#}");
    assert!(query(&address, "COPY (SELECT 1) TO 'here.csv'", &[])["error"].is_object(), "files are the host's");
    assert!(front.terminate());
}

#[test]
fn what_runs_is_cancelled_from_the_page_or_with_its_client() {
    let folder = five_rows();
    let mut front = FrontProcess::start(folder.path(), &["--data", "data", "--console", "0"]);
    let address = front.console().to_owned();
    // A client of PostgreSQL is told.
    let mut client = RawClient::connect(front.address());
    client.send('Q', format!("{ENDLESS}\0").as_bytes());
    let statement = until(&address, &[], running);
    assert_eq!((&statement["user"], &statement["may_cancel"]), (&json!("me"), &json!(true)), "{statement:#}");
    let cancelled = post(&address, "/api/cancel", &[], &json!({ "id": statement["id"] }).to_string()).json();
    assert_eq!(cancelled, json!({ "cancelled": true }));
    let replies = client.until('Z');
    let error = replies.iter().find(|reply| reply.0 == 'E').expect("the client is told");
    assert_eq!(error.field(b'C').as_deref(), Some("57014"));
    until(&address, &[], |state| running(state).is_none().then_some(()));
    assert_eq!(post(&address, "/api/cancel", &[], &json!({ "id": statement["id"] }).to_string()).json()["cancelled"], false);
    assert_eq!(post(&address, "/api/cancel", &[], r#"{"id":999}"#).status, 404);
    // A page that goes ends what it had asked for.
    let page = send(&address, "POST", "/api/query", &[], &json!({ "sql": ENDLESS }).to_string());
    until(&address, &[], running);
    drop(page);
    until(&address, &[], |state| running(state).is_none().then_some(()));
    // A client that takes no rows keeps nothing once its statement is cancelled.
    client.send('Q', b"SELECT value, repeat('x', 1000) FROM range(20000000)\0");
    let statement = until(&address, &[], |state| running(state).filter(|statement| statement["rows"].as_u64() > Some(0)));
    post(&address, "/api/cancel", &[], &json!({ "id": statement["id"] }).to_string());
    assert!(client.until('Z').iter().any(|reply| reply.0 == 'E'));
    assert!(front.terminate());
}

#[test]
fn callers_see_and_do_what_their_rights_let_them() {
    let folder = five_rows();
    let path = folder.path();
    for (name, rights) in [("ann", ["--read", "main"]), ("bob", ["--read", "lab"]), ("boss", ["--administer", "*"])] {
        done(path, &[&["token", name][..], &rights].concat());
    }
    let front = FrontProcess::start(path, &["--data", "data", "--access", "access.toml", "--console", "0"]);
    let address = front.console().to_owned();
    let bearer = |name: &str| {
        let token = std::fs::read_to_string(path.join(format!("{name}.token"))).unwrap();
        format!("authorization: Bearer {}", token.trim())
    };
    let (ann, bob, boss) = (bearer("ann"), bearer("bob"), bearer("boss"));
    // The page itself is for everybody; what it asks for is not.
    assert_eq!(get(&address, "/", &[]).status, 200);
    for path in ["/api/state", "/api/statements/1"] {
        assert_eq!(get(&address, path, &[]).status, 401, "{path}");
    }
    for path in ["/api/query", "/api/cancel"] {
        assert_eq!(post(&address, path, &[], "{}").status, 401, "{path}");
    }
    let begun = Instant::now();
    let wrong = get(&address, "/api/state", &["authorization: Bearer wrong"]);
    assert!(wrong.status == 401 && begun.elapsed() > Duration::from_millis(400), "{}", wrong.body);
    assert!(wrong.headers.contains("www-authenticate: bearer"), "{}", wrong.headers);
    // Statements do what their caller may.
    let answer = query(&address, "SELECT count(*) FROM t", &[&ann]);
    assert_eq!(answer["results"][0]["rows"], json!([["5"]]), "{answer:#}");
    assert!(query(&address, "SELECT count(*) FROM t", &[&bob])["error"].is_object());
    assert_eq!(query(&address, "DROP TABLE t", &[&ann])["error"]["blame"], "not allowed");
    // Callers see their own statements, and who administers all domains those of all.
    let id = answer["results"][0]["id"].as_u64().unwrap();
    let one = format!("/api/statements/{id}");
    assert_eq!([&ann, &bob, &boss].map(|caller| get(&address, &one, &[caller]).status), [200, 404, 200]);
    let users = |caller: &String| -> Vec<String> {
        let state = get(&address, "/api/state", &[caller]).json();
        let names = state["recent"].as_array().unwrap().iter().map(|statement| statement["user"].as_str().unwrap().to_owned());
        let mut names: Vec<_> = names.collect();
        names.sort();
        names.dedup();
        names
    };
    assert_eq!((users(&ann), users(&bob)), (vec!["ann".to_owned()], vec!["bob".to_owned()]));
    assert_eq!(users(&boss), ["ann", "bob"]);
    // Nor do they end those of others.
    let page = send(&address, "POST", "/api/query", &[&ann], &json!({ "sql": ENDLESS }).to_string());
    let running = until(&address, &[&boss], running);
    let body = json!({ "id": running["id"] }).to_string();
    assert_eq!(post(&address, "/api/cancel", &[&bob], &body).status, 404);
    assert_eq!(post(&address, "/api/cancel", &[&boss], &body).json()["cancelled"], true);
    assert!(answer_of(page)["error"]["message"].as_str().unwrap().contains("cancelled"));
}

fn answer_of(stream: TcpStream) -> Json {
    answer(stream).json()
}

#[test]
fn pages_of_others_and_other_names_are_refused() {
    let folder = five_rows();
    let front = FrontProcess::start(folder.path(), &["--data", "data", "--console", "0"]);
    let address = front.console().to_owned();
    let sql = r#"{"sql":"SELECT 1"}"#;
    let page = get(&address, "/", &[]);
    for header in ["content-security-policy: default-src 'none'", "x-content-type-options: nosniff", "x-frame-options: deny"] {
        assert!(page.headers.contains(header), "{}", page.headers);
    }
    assert!(!page.headers.contains("access-control"), "{}", page.headers);
    // Another name for this machine, as DNS of somebody else's may give one.
    assert_eq!(get(&address, "/", &["host: evil.example"]).status, 403);
    assert_eq!(get(&address, "/api/state", &["host: localhost:1"]).status, 200);
    // What a page of another site sends.
    for header in ["origin: http://evil.example", "origin: null", "sec-fetch-site: cross-site", "sec-fetch-site: same-site"] {
        assert_eq!(post(&address, "/api/query", &[header], sql).status, 403, "{header}");
    }
    assert_eq!(post(&address, "/api/query", &["content-type: text/plain"], sql).status, 400);
    let own = format!("origin: http://{address}");
    assert_eq!(post(&address, "/api/query", &[&own, "sec-fetch-site: same-origin"], sql).status, 200);
    // Other methods, other paths, other words.
    assert_eq!(get(&address, "/api/query", &[]).status, 405);
    assert_eq!(post(&address, "/", &[], sql).status, 405);
    assert_eq!([get(&address, "/nothing", &[]).status, get(&address, "/api/statements/x", &[]).status], [404, 404]);
    for wrong in ["", "{", "[]", r#"{"sql":1}"#, r#"{"sql":"SELECT 1","more":1}"#, "\u{0}", &"[".repeat(100_000)] {
        assert_eq!(post(&address, "/api/query", &[], wrong).status, 400, "{wrong:.20}");
    }
    assert_eq!(post(&address, "/api/query", &["x-pithead-page: a/b"], sql).status, 400);
}

#[test]
fn a_console_outlasts_callers_that_misuse_it() {
    let folder = five_rows();
    let mut front = FrontProcess::start(folder.path(), &["--data", "data", "--console", "0"]);
    let address = front.console().to_owned();
    let before = front.resident();
    // A statement of 100 MB: it is refused before it is read, with its length said or not.
    let mut stream = open(&address);
    let head = format!("POST /api/query HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n");
    stream.write_all(format!("{head}content-length: 100000000\r\n\r\n{{\"sql\":\"").as_bytes()).unwrap();
    assert_eq!(answer(stream).status, 413);
    let mut stream = open(&address);
    stream.write_all(format!("{head}transfer-encoding: chunked\r\n\r\n").as_bytes()).unwrap();
    let chunk = format!("10000\r\n{}\r\n", "x".repeat(0x10000));
    for _ in 0..1_600 {
        if stream.write_all(chunk.as_bytes()).is_err() {
            break;
        }
    }
    assert_eq!(get(&address, "/api/state", &[]).status, 200);
    // A thousand connections that say nothing, and a head without an end.
    let mut idle: Vec<TcpStream> = (0..1_000).filter_map(|_| TcpStream::connect(&address).ok()).collect();
    assert_eq!(get(&address, "/api/state", &[]).status, 200);
    let last = idle.last_mut().expect("a connection");
    let _ = last.write_all(&b"GET / HTTP/1.1\r\nx: ".repeat(1_000));
    // Clients that ask for much and read nothing: answers have a bound, and so has what runs.
    let sql = json!({ "sql": "SELECT value, repeat('x', 4000) FROM range(20000000)", "rows": 10_000 }).to_string();
    let unread: Vec<TcpStream> = (0..40).map(|_| send(&address, "POST", "/api/query", &[], &sql)).collect();
    let answer = query(&address, "SELECT value FROM range(20000000)", &[]);
    assert_eq!(
        (answer["results"][0]["rows"].as_array().unwrap().len(), &answer["results"][0]["has_more"]),
        (1_000, &json!(true))
    );
    until(&address, &[], |state| running(state).is_none().then_some(()));
    assert!(front.resident() < before + (600 << 20), "{} MiB more", (front.resident() - before) >> 20);
    drop((idle, unread));
    assert!(query(&address, "SELECT 1", &[])["error"].is_null());
    assert!(front.terminate());
}
