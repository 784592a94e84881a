//! More connections than there may be, and ones that come to nothing, while a host goes on with its work.

use std::time::{Duration, Instant};

use futures::StreamExt;
use pithead_door::*;
use pithead_entry::*;
use pithead_model::*;
use pithead_wire::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::certificates::Ca;
use crate::memory::*;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// An empty SETTINGS frame.
const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];
/// A HEADERS frame that says that a block of 1,000 bytes comes.
const HEADERS: &[u8] = &[0, 3, 232, 1, 4, 0, 0, 0, 1];

fn limited(total: usize, waiting: usize) -> ServeOptions {
    let connections = ConnectionLimits { total, per_address: total, waiting, waiting_per_address: waiting };
    ServeOptions { connections, ..ServeOptions::default() }
}

#[tokio::test]
async fn one_host_too_many_is_told_so() {
    let served = served_with(MemoryDoor::default(), limited(2, 8), &ConnectOptions::default()).await;
    assert!(served.client.status().await.is_ok());
    let connect = || FlightDoor::connect(&served.address).unwrap();
    let second = connect();
    assert!(second.status().await.is_ok());
    let third = connect();
    let fault = third.status().await.unwrap_err();
    assert!(fault.blame == Blame::Limit && fault.message.contains("2 connections"), "{fault}");
    drop(second);
    let admitted = async {
        while third.status().await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), admitted).await.expect("there is a place again");
    assert!(served.client.status().await.is_ok());
}

#[tokio::test]
async fn a_thousand_that_say_nothing_are_let_go_and_nobody_else() {
    let served = served_with(MemoryDoor::default(), limited(8, 32), &ConnectOptions::default()).await;
    let mut events = served.client.get(ENDLESS).await.unwrap();
    let mut silent = Vec::new();
    for count in 0..1_000 {
        silent.push(TcpStream::connect(&served.address).await.unwrap());
        if count % 100 == 0 {
            assert!(events.next().await.unwrap().is_ok());
            assert_eq!(served.client.status().await.unwrap(), status());
            // One that comes new gets through, too.
            assert!(FlightDoor::connect(&served.address).unwrap().status().await.is_ok());
        }
    }
    let mut hung_up = 0;
    for socket in &mut silent {
        let read = tokio::time::timeout(Duration::from_millis(5), socket.read(&mut [0; 8])).await;
        hung_up += usize::from(matches!(read, Ok(Ok(0) | Err(_))));
    }
    assert!(hung_up >= 1_000 - 32 - 8, "only {hung_up} of 1,000 were hung up on");
    assert!(events.next().await.unwrap().is_ok());
}

/// Waits until the server hangs up on a connection that sends a byte now and then, and says how long that took.
async fn hung_up_after(address: &str, first: &[u8]) -> Duration {
    let started = Instant::now();
    let mut socket = TcpStream::connect(address).await.unwrap();
    socket.write_all(first).await.unwrap();
    let mut answer = [0; 256];
    loop {
        match tokio::time::timeout(Duration::from_millis(500), socket.read(&mut answer)).await {
            Ok(Ok(0) | Err(_)) => return started.elapsed(),
            Ok(Ok(_)) => {}
            // Not quite dead.
            Err(_) if !first.is_empty() => drop(socket.write_all(&[0]).await),
            Err(_) => {}
        }
        assert!(started.elapsed() < Duration::from_secs(60), "nobody hung up on {first:?}");
    }
}

/// Takes as long as a connection may wait for its first call: 10 seconds.
#[tokio::test]
async fn who_is_slow_is_let_go() {
    let ca = Ca::new();
    let connect = ConnectOptions { tls: Some(ca.client(None)), ..ConnectOptions::default() };
    let options = ServeOptions { tls: Some(ca.server(None)), ..ServeOptions::default() };
    let secure = served_with(MemoryDoor::default(), options, &connect).await;
    let plain = served(MemoryDoor::default()).await;
    let mut events = plain.client.get(ENDLESS).await.unwrap();
    let headers = [PREFACE, SETTINGS, HEADERS].concat();
    // The start of a ClientHello that says that 512 bytes come.
    let hello = [0x16, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3];
    let slow = [
        (&plain.address, &b""[..]),
        (&plain.address, &PREFACE[..10]),
        (&plain.address, PREFACE),
        (&plain.address, &headers),
        (&secure.address, &b""[..]),
        (&secure.address, &hello),
    ];
    let let_go = futures::future::join_all(slow.map(|(address, first)| hung_up_after(address, first)));
    let working = async {
        loop {
            assert!(events.next().await.unwrap().is_ok());
            assert_eq!(secure.client.status().await.unwrap(), status());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::select! {
        took = let_go => assert!(took.iter().all(|took| *took < Duration::from_secs(30)), "{took:?}"),
        () = working => {}
    }
    assert!(events.next().await.unwrap().is_ok());
}
