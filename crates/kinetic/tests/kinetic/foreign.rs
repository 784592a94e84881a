//! A client that shares no code with the server: `foreign.py`, written from the table of fields in `docs/reference/kinetic.md`.

use std::process::Stdio;

use tokio::process::Command;

use crate::server::Server;

#[tokio::test]
async fn a_client_in_another_language_gets_the_same() {
    let server = Server::start().await;
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kinetic/foreign.py");
    let ports = [server.plain.port(), server.tls.port()].map(|port| port.to_string());
    let run = Command::new("python3").arg(script).args(ports).stdin(Stdio::null()).output();
    let output = tokio::time::timeout(std::time::Duration::from_secs(120), run).await.unwrap().unwrap();
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}\n{errors}");
    assert_eq!(said.lines().last(), Some("all as expected"), "{errors}");
}
