//! Peers that are not there, are not drives, or send junk.

use std::time::Duration;

use pithead_door::*;
use pithead_entry::*;
use pithead_model::*;
use pithead_wire::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::memory::*;

#[tokio::test]
async fn a_drive_that_is_down_is_named_with_what_to_do() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    drop(listener);
    let client = FlightDoor::connect(&format!("pithead://{address}")).unwrap();
    let fault = client.status().await.unwrap_err();
    assert_eq!(fault.blame, Blame::Device);
    assert!(fault.message.contains(&address) && fault.message.contains("refused"), "{}", fault.message);
    assert_eq!(fault.hint.unwrap(), format!("start one with `pithead drive serve --data DIR --listen {address}`"));
    assert_eq!(client.label(), address);
}

#[tokio::test]
async fn a_door_finds_its_drive_again() {
    let first = served(MemoryDoor::default()).await;
    assert!(first.client.status().await.is_ok());
    first.stop.send(()).unwrap();
    first.serving.await.unwrap().unwrap();
    assert_eq!(first.client.status().await.unwrap_err().blame, Blame::Device);
    let listener = TcpListener::bind(&first.address).await.unwrap();
    let pace = std::sync::Arc::new(Counted::default());
    tokio::spawn(
        async move { serve(first.door, pace, listener, &ServeOptions::default(), Box::pin(std::future::pending())).await },
    );
    assert!(first.client.status().await.is_ok());
}

#[tokio::test]
async fn an_address_that_is_none_is_the_users_fault() {
    let fault = FlightDoor::connect("http://x:1").unwrap_err();
    assert!(fault.blame == Blame::User && fault.message.contains("http://x:1"));
}

#[tokio::test]
async fn junk_at_the_port_does_not_hurt_the_server() {
    let served = served(MemoryDoor::default()).await;
    let junk: [&[u8]; 4] = [
        b"GET / HTTP/1.1\r\nhost: x\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff\xff\xff\xff\xff",
        &[0; 4_096],
        b"P",
    ];
    for bytes in junk {
        let mut socket = TcpStream::connect(&served.address).await.unwrap();
        let _ = socket.write_all(bytes).await;
        let _ = tokio::time::timeout(Duration::from_millis(50), socket.read(&mut [0; 64])).await;
    }
    assert_eq!(served.client.status().await.unwrap(), status());
}

#[tokio::test]
async fn what_is_not_a_drive_is_a_device_fault() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let _ = socket.write_all(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n").await;
        }
    });
    let fault = FlightDoor::connect(&address).unwrap().status().await.unwrap_err();
    assert!(fault.blame == Blame::Device && fault.message.contains(&address), "{fault:?}");
}

/// Takes as long as a peer may be silent: pings after 5 seconds, given up 10 later.
#[tokio::test]
async fn a_peer_that_is_silent_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        let mut held = Vec::new();
        while let Ok((socket, _)) = listener.accept().await {
            held.push(socket);
        }
    });
    let fault = FlightDoor::connect(&address).unwrap().get(SessionId(1)).await.err().unwrap();
    assert!(fault.blame == Blame::Device && fault.message.contains(&address), "{fault:?}");
}
