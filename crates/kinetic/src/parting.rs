//! The end of a connection over which something was said last.

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, copy, sink};
use tokio::time::timeout;

/// How long a client whose connection ends has to take what was said last.
const LINGER: Duration = Duration::from_millis(500);

/// Closes a connection so that what was sent last arrives. A socket that is closed while bytes of the client's are unread is
/// reset, and the client may lose what it has not read yet. So what it still sends is read and thrown away, for a short time.
pub(crate) async fn part(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) {
    let parted = async {
        let _ = stream.shutdown().await;
        let _ = copy(stream, &mut sink()).await;
    };
    let _ = timeout(LINGER, parted).await;
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;
    use tokio::net::{TcpListener, TcpStream};
    use tokio::time::Instant;

    use super::*;

    #[tokio::test]
    async fn what_was_said_last_arrives_however_much_the_client_sends() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (mut server, _) = listener.accept().await.unwrap();
        client.write_all(&[7; 100_000]).await.unwrap();
        server.write_all(b"last").await.unwrap();
        let parting = tokio::spawn(async move { part(&mut server).await });
        // More comes when the server has closed its side already.
        tokio::time::sleep(Duration::from_millis(50)).await;
        client.write_all(&[7; 100_000]).await.unwrap();
        let mut told = Vec::new();
        client.read_to_end(&mut told).await.unwrap();
        assert_eq!(told, b"last");
        drop(client);
        parting.await.unwrap();
    }

    #[tokio::test]
    async fn a_client_that_does_not_go_is_waited_for_a_short_time_only() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (mut server, _) = listener.accept().await.unwrap();
        let began = Instant::now();
        timeout(Duration::from_secs(10), part(&mut server)).await.unwrap();
        assert!(began.elapsed() >= LINGER);
        drop(client);
    }
}
