//! SCRAM: tokens are proven and not sent, who is nobody cannot be told from others, and files without proofs serve as before.

use super::*;

/// Of `.tools`: two connections in clear, one within TLS that is bound to the certificate, and one that loses its identity.
const PSYCOPG: &str = r#"
import os, pathlib, time
import psycopg

def ask(port, more):
    who = f"host=127.0.0.1 port={port} user=reader dbname=x require_auth=scram-sha-256 {more}"
    return psycopg.connect(who, password=os.environ["TOKEN"], autocommit=True)

def count(connection):
    return connection.execute("SELECT count(*) FROM t").fetchone()[0]

for more in ["", "channel_binding=prefer"]:
    with ask(os.environ["CLEAR"], more) as connection:
        assert count(connection) == 5
tls = "sslmode=verify-full sslrootcert=certs/ca.pem"
for more in ["channel_binding=require", "channel_binding=prefer", "channel_binding=disable"]:
    with ask(os.environ["TLS"], f"{tls} {more}") as connection:
        assert count(connection) == 5
for wrong in ["x" * 40, os.environ["TOKEN"] + "x"]:
    try:
        psycopg.connect(f"host=127.0.0.1 port={os.environ['CLEAR']} user=reader", password=wrong)
    except psycopg.OperationalError as error:
        assert "authentication failed" in str(error), error
    else:
        raise AssertionError(wrong)
connection, held = ask(os.environ["CLEAR"], ""), ask(os.environ["CLEAR"], "")
assert count(connection) == 5
held.execute("DECLARE h CURSOR WITH HOLD FOR SELECT id FROM t")
assert len(held.execute("FETCH 1 FROM h").fetchall()) == 1
access = pathlib.Path("access.toml")
access.write_text(access.read_text().replace('"main"', '"lab"'))
time.sleep(2.5)
try:
    held.execute("FETCH 1 FROM h")
except psycopg.errors.InvalidCursorName:
    pass
else:
    raise AssertionError("rows come that it has no right to any more")
access.write_text('[[identity]]\nname = "x"\ncertificate = "x"\nread = ["*"]\n')
time.sleep(2.5)
for ask_again in [lambda: count(connection), lambda: held.execute("SHOW work_mem")]:
    try:
        ask_again()
    except psycopg.OperationalError as error:
        assert "not known any more" in str(error), error
    else:
        raise AssertionError("the token is still good")
print("all of it")
"#;

/// A connection that has said its user's name, and what it is asked then: the kind of the question, and the rest.
fn asked(front: &FrontProcess, user: &str) -> (RawClient, i32, Vec<u8>) {
    let stream = TcpStream::connect(front.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut client = RawClient { stream, key: (0, 0) };
    let body = [b"\0\x03\0\0user\0", user.as_bytes(), b"\0\0"].concat();
    client.stream.write_all(&[&(body.len() as u32 + 4).to_be_bytes()[..], &body].concat()).unwrap();
    let (kind, rest) = question(&mut client);
    (client, kind, rest)
}

fn question(client: &mut RawClient) -> (i32, Vec<u8>) {
    let reply = client.reply().unwrap();
    assert_eq!(reply.0, 'R', "{reply:?}");
    (i32::from_be_bytes(reply.1[..4].try_into().unwrap()), reply.1[4..].to_vec())
}

/// Begins an exchange; what the server says of how tokens of this user are to be hashed, and the nonce.
fn begun(front: &FrontProcess, user: &str) -> (RawClient, String, String) {
    let (mut client, kind, mechanisms) = asked(front, user);
    assert_eq!((kind, &mechanisms[..]), (10, &b"SCRAM-SHA-256\0\0"[..]), "{user}");
    client.send('p', b"SCRAM-SHA-256\0\0\0\0\x0cn,,n=,r=abcd");
    let (kind, text) = question(&mut client);
    let text = String::from_utf8(text).unwrap();
    let (nonce, how) = text.strip_prefix("r=").and_then(|text| text.split_once(',')).unwrap();
    assert!(kind == 11 && nonce.starts_with("abcd") && nonce.len() > 20, "{text}");
    (client, how.to_owned(), nonce.to_owned())
}

#[test]
fn nobody_is_asked_like_somebody() {
    let folder = five_rows();
    let path = folder.path();
    done(path, &["token", "reader", "--read", "main"]);
    let front = FrontProcess::start(path, &["--data", "data", "--access", "access.toml"]);
    let how = |user: &str| begun(&front, user).1;
    for user in ["reader", "nobody", "somebody"] {
        assert!(how(user) == how(user) && how(user).ends_with(",i=4096"), "{user} is asked the same each time");
    }
    assert!(how("reader") != how("nobody") && how("nobody") != how("somebody"));
    assert_eq!(how("reader").len(), how("nobody").len());
    let mut said = Vec::new();
    for user in ["reader", "nobody"] {
        let (mut client, _, nonce) = begun(&front, user);
        let proof = format!("{}=", "A".repeat(43));
        let start = Instant::now();
        client.send('p', format!("c=biws,r={nonce},p={proof}").as_bytes());
        let error = client.reply().unwrap();
        assert!(start.elapsed() >= Duration::from_millis(500), "who guesses waits");
        assert_eq!((error.0, error.field(b'C').as_deref()), ('E', Some("28P01")));
        said.push(error.field(b'M').unwrap().replace(user, "…"));
        assert!(client.reply().is_none(), "the connection ends");
    }
    assert_eq!(said[0], said[1]);
    // What is no exchange.
    for bytes in [&b""[..], b"\0", b"SCRAM-SHA-1\0\0\0\0\0", b"SCRAM-SHA-256\0\x7f\xff\xff\xff", b"a token\0"] {
        let (mut client, _, _) = asked(&front, "reader");
        client.send('p', bytes);
        assert_eq!(client.reply().unwrap().field(b'C').as_deref(), Some("08P01"), "{bytes:?}");
    }
    let (mut client, _, nonce) = begun(&front, "reader");
    client.send('p', format!("c=biws,r={nonce}x,p=AAAA").as_bytes());
    assert_eq!(client.reply().unwrap().field(b'C').as_deref(), Some("08P01"));
}

#[test]
fn files_without_proofs_serve_as_before() {
    let folder = five_rows();
    let path = folder.path();
    done(path, &["token", "reader", "--read", "main"]);
    let access = std::fs::read_to_string(path.join("access.toml")).unwrap();
    let old: Vec<_> = access.lines().filter(|line| !line.starts_with("scram = ")).collect();
    assert_eq!(old.len() + 1, access.lines().count());
    std::fs::write(path.join("access.toml"), old.join("\n")).unwrap();
    let front = FrontProcess::start(path, &["--data", "data", "--access", "access.toml"]);
    let token = std::fs::read_to_string(path.join("reader.token")).unwrap();
    for user in ["reader", "nobody"] {
        let (mut client, kind, _) = asked(&front, user);
        assert_eq!(kind, 3, "the token itself is asked for");
        client.send('p', format!("{}\0", token.trim()).as_bytes());
        let answer = client.reply().unwrap();
        assert_eq!(answer.0, if user == "reader" { 'R' } else { 'E' }, "{user}");
    }
}

#[test]
fn psycopg_proves_its_token() {
    let python = pithead_e2e::repository().join(".tools/bin/python");
    let has = Command::new(&python).args(["-c", "import psycopg"]).output().is_ok_and(|out| out.status.success());
    if !has {
        eprintln!("skipped: psycopg is not in .tools; run tools/setup.sh");
        return;
    }
    let folder = five_rows();
    let path = folder.path();
    for command in [&["cert", "ca"][..], &["cert", "drive", "127.0.0.1"], &["token", "reader", "--read", "main"]] {
        done(path, command);
    }
    let drive = DriveProcess::start_many(path, 1, &[]).remove(0);
    done(path, &["load", "t", "t.csv", "--drives", drive.address()]);
    let common = ["--drives", drive.address(), "--access", "access.toml"];
    let clear = FrontProcess::start(path, &common);
    let tls = [&common[..], &["--tls-cert", "certs/127.0.0.1.pem", "--tls-key", "certs/127.0.0.1.key"]].concat();
    let tls = FrontProcess::start(path, &tls);
    let token = std::fs::read_to_string(path.join("reader.token")).unwrap();
    let mut command = Command::new(&python);
    command.args(["-c", PSYCOPG]).current_dir(path).env("TOKEN", token.trim());
    let output = command.env("CLEAR", clear.port()).env("TLS", tls.port()).output().unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && said.contains("all of it"), "{said}");
}
