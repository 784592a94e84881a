//! Peers that are not there, are not drives, or send junk.

use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, StreamExt};
use pithead_door::*;
use pithead_entry::*;
use pithead_model::*;
use pithead_wire::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

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
    let _serving = serve_at(&first.address, first.door).await;
    assert!(first.client.status().await.is_ok());
}

/// Serves a door where another one was served before, until it is told to stop.
async fn serve_at(address: &str, door: Arc<MemoryDoor>) -> (oneshot::Sender<()>, JoinHandle<Result<(), Fault>>) {
    let listener = TcpListener::bind(address).await.unwrap();
    let (stop, stopped) = oneshot::channel();
    let shutdown = Box::pin(async {
        let _ = stopped.await;
    });
    let pace = Arc::new(Counted::default());
    (stop, tokio::spawn(async move { serve(door, pace, listener, &ServeOptions::default(), shutdown).await }))
}

async fn hello(door: &dyn Door) -> DriveId {
    door.hello(Hello { protocol: PROTOCOL_VERSION, release: "0.9.9".into(), extensions: vec![] }).await.unwrap().drive
}

#[tokio::test]
async fn a_drive_that_comes_back_is_the_same_and_one_in_its_place_is_not() {
    let first = served(MemoryDoor::default()).await;
    let (drive, other) = (hello(&first.client).await, DriveId(0xb0b));
    let door = first.client.only_to(drive).unwrap();
    assert_eq!(door.status().await.unwrap(), status());
    first.stop.send(()).unwrap();
    first.serving.await.unwrap().unwrap();
    assert_eq!(door.status().await.unwrap_err().blame, Blame::Device);
    let (stop, serving) = serve_at(&first.address, first.door).await;
    assert_eq!(door.status().await.unwrap(), status());
    stop.send(()).unwrap();
    serving.await.unwrap().unwrap();
    assert_eq!(door.status().await.unwrap_err().blame, Blame::Device);

    let stranger = Arc::new(MemoryDoor { id: Some(other), ..MemoryDoor::default() });
    let _serving = serve_at(&first.address, Arc::clone(&stranger)).await;
    let manifest = Manifest { version: 1, ..Manifest::empty("main", vec![other]) };
    let piece = RunPiece { number: None, total: 1, bytes: "x".into() };
    let refused = [
        door.status().await.map(drop),
        door.commit(0, manifest.clone()).await,
        door.get(SessionId(1)).await.map(drop),
        door.read_run(run()).await.map(drop),
        door.write_run(run(), stream::iter([Ok(piece)]).boxed()).await,
    ];
    for fault in refused.map(Result::unwrap_err) {
        assert_eq!(fault.blame, Blame::Device, "{fault}");
        assert!(fault.message.contains(&format!("drive {other} is here now, instead of drive {drive}")), "{fault}");
        assert!(fault.hint.unwrap().contains(&format!("pithead repair --lost {drive}")));
    }
    assert!(stranger.manifest.lock().unwrap().is_none() && stranger.written.lock().unwrap().is_empty());
    // Who asks for whoever is there is served, and a greeting says who that is.
    assert!(first.client.status().await.is_ok());
    assert_eq!(hello(door.as_ref()).await, other);
    door.only_to(other).unwrap().commit(0, manifest).await.unwrap();
}

fn run() -> SliceKey {
    SliceKey { name: "t".parse().unwrap(), dataset: DatasetId(3), load: LoadId(4), partition: 5, number: None }
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
