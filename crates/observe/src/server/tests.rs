use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

struct Thing {
    status: &'static str,
}

impl Observed for Thing {
    fn metrics(&self) -> BoxFuture<'_, String> {
        Box::pin(async { "# EOF\n".to_owned() })
    }

    fn health(&self) -> BoxFuture<'_, Health> {
        let reason = (self.status != "ok").then(|| "no room".to_owned());
        let health = Health {
            status: self.status,
            reason,
            id: Some("7".to_owned()),
            version: "1",
            uptime_s: 3,
            free_bytes: Some(9),
            sessions: None,
            drives: None,
        };
        Box::pin(async move { health })
    }
}

async fn served(status: &'static str) -> SocketAddr {
    let listener = bind("0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(serve(listener, Arc::new(Thing { status })));
    address
}

async fn asked(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn metrics_and_health_are_served_on_loopback() {
    let address = served("ok").await;
    assert!(address.ip().is_loopback(), "{address}");
    let metrics = asked(address, "GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert!(metrics.starts_with("HTTP/1.1 200") && metrics.contains(OPEN_METRICS) && metrics.ends_with("# EOF\n"), "{metrics}");
    let health = asked(address, "GET /health HTTP/1.1\r\nhost: x\r\n\r\n").await;
    let expected = r#"{"status":"ok","id":"7","version":"1","uptime_s":3,"free_bytes":9}"#;
    assert!(health.starts_with("HTTP/1.1 200") && health.contains(expected), "{health}");
    assert!(asked(address, "GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.starts_with("HTTP/1.1 404"));
    assert!(asked(address, "POST /metrics HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n").await.contains("405"));
}

#[tokio::test]
async fn what_cannot_serve_says_so() {
    let address = served("full").await;
    let health = asked(address, "GET /health HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert!(health.starts_with("HTTP/1.1 503") && health.contains(r#""reason":"no room""#), "{health}");
}

#[tokio::test]
async fn hostile_callers_do_not_keep_others_away() {
    let address = served("ok").await;
    let garbage = asked(address, "\u{1}\u{2}\r\n\r\n").await;
    assert!(garbage.is_empty() || garbage.starts_with("HTTP/1.1 400"), "{garbage}");
    let long = format!("GET /metrics HTTP/1.1\r\nx: {}\r\n\r\n", "y".repeat(HEAD_BYTES_MAX));
    let mut stream = TcpStream::connect(address).await.unwrap();
    // The connection may be closed before everything is written.
    let _ = stream.write_all(long.as_bytes()).await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    assert!(!answer.starts_with(b"HTTP/1.1 200"));
    // Clients that say nothing take all places, and lose them when their time is over.
    let mut silent = Vec::new();
    for _ in 0..CONNECTIONS_MAX * 2 {
        silent.push(TcpStream::connect(address).await.unwrap());
    }
    let mut answered = false;
    for _ in 0..200 {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let mut answer = String::new();
        let wrote = stream.write_all(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n").await.is_ok();
        if wrote && stream.read_to_string(&mut answer).await.is_ok() && answer.starts_with("HTTP/1.1 200") {
            answered = true;
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(answered, "the silent ones still hold all places");
    drop(silent);
}
