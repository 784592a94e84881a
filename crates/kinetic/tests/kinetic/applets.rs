//! MANAGE_APPLET with programs that never end: they cost their own clients time, and nobody else.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use pithead_kinetic::client::Client;
use pithead_kinetic::proto::{Body, Header, ManageApplet};
use pithead_kinetic::{Applets, Caller, Code, KineticOptions, Managing, NoSlices, Output, RequestKind};
use pithead_store::MemoryStore;

use crate::server::{Server, call, get, header_of, put};

/// Programs that run at one time.
const RUNNING_MAX: usize = 8;

/// Runs each program for ever, but for one whose key is `ends`, and one that puts its key to its output key.
#[derive(Debug, Default)]
struct Endless {
    running: AtomicUsize,
}

struct Run<'a>(&'a Endless);

impl Drop for Run<'_> {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Applets for Endless {
    fn manage<'a>(&'a self, request: &'a ManageApplet, caller: &'a Caller) -> Managing<'a> {
        self.running.fetch_add(1, Ordering::AcqRel);
        let run = Run(self);
        Box::pin(async move {
            let _run = run;
            if let Some(key) = &request.output_key {
                let put = Some(caller.put(key, Bytes::from_static(b"output"))?);
                return Ok(Output { message: "0:0::".to_owned(), put, ..Output::default() });
            }
            if request.program_key[0] != "ends" {
                std::future::pending::<()>().await;
            }
            Ok(Output { message: "0:0::".to_owned(), ..Output::default() })
        })
    }
}

async fn serve() -> (Arc<Endless>, Server) {
    let applets = Arc::new(Endless::default());
    let running = Arc::clone(&applets) as Arc<dyn Applets>;
    let server = Server::running(running, Arc::new(MemoryStore::new()), Arc::new(NoSlices), KineticOptions::default()).await;
    (applets, server)
}

fn program(key: &str) -> Body {
    let program_key = vec![Bytes::copy_from_slice(key.as_bytes())];
    Body { manage_applet: Some(ManageApplet { program_key, ..ManageApplet::default() }), ..Body::default() }
}

async fn run(client: &mut Client, key: &str) -> Code {
    call(client, RequestKind::ManageApplet, program(key)).await.code
}

async fn until_running(applets: &Endless, count: usize) {
    let waited = async {
        while applets.running.load(Ordering::Acquire) != count {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), waited).await.expect("so many run");
}

/// Programs had turns of the store: as many as there are, which slept, and no PUT of anybody was answered any more.
#[tokio::test]
async fn programs_that_do_not_end_hold_up_no_other_request() {
    let (applets, server) = serve().await;
    let mut clients = Vec::new();
    for _ in 0..RUNNING_MAX {
        let mut client = server.client().await;
        client.send(header_of(RequestKind::ManageApplet), program("sleeps"), Bytes::new()).await.unwrap();
        clients.push(client);
    }
    until_running(&applets, RUNNING_MAX).await;
    let mut other = server.client().await;
    assert_eq!(put(&mut other, b"k", "1", b"v").await, Code::Success);
    assert_eq!(get(&mut other, b"k").await.value, "v");
    assert_eq!(call(&mut other, RequestKind::FlushAllData, Body::default()).await.code, Code::Success);
    assert_eq!(run(&mut other, "ends").await, Code::ServiceBusy, "as many run as may");
    // Whose clients have gone ends, and makes room.
    drop(clients);
    until_running(&applets, 0).await;
    assert_eq!(run(&mut other, "ends").await, Code::ExecuteComplete);
}

#[tokio::test]
async fn a_program_ends_with_its_time() {
    let (applets, server) = serve().await;
    let mut client = server.client().await;
    let header = Header { timeout: Some(100), ..header_of(RequestKind::ManageApplet) };
    let reply = client.call_with(header, program("sleeps"), Bytes::new()).await.unwrap();
    assert_eq!((reply.code, applets.running.load(Ordering::Acquire)), (Code::Expired, 0), "{}", reply.what);
    assert_eq!(run(&mut client, "ends").await, Code::ExecuteComplete, "the connection goes on");
}

#[tokio::test]
async fn a_program_ends_with_the_drive() {
    let (applets, server) = serve().await;
    let mut client = server.client().await;
    client.send(header_of(RequestKind::ManageApplet), program("sleeps"), Bytes::new()).await.unwrap();
    until_running(&applets, 1).await;
    tokio::time::timeout(Duration::from_secs(4), server.stop()).await.expect("the drive waits for no program");
    assert_eq!(applets.running.load(Ordering::Acquire), 0);
}

/// An output was written to names that PUT refuses: one of a slice, and one that no GET or DELETE may name.
#[tokio::test]
async fn output_goes_where_a_put_may_go() {
    let (_, server) = serve().await;
    let mut client = server.client().await;
    for (key, code) in [
        (&b"k"[..], Code::ExecuteComplete),
        (b"pithead/slice/x", Code::NotAuthorized),
        (&[b'k'; 4_096], Code::ExecuteComplete),
        (&[b'k'; 4_097], Code::InvalidRequest),
    ] {
        let mut body = program("writes");
        body.manage_applet.as_mut().unwrap().output_key = Some(Bytes::copy_from_slice(key));
        let reply = call(&mut client, RequestKind::ManageApplet, body).await;
        assert_eq!(reply.code, code, "{}: {}", key.escape_ascii(), reply.what);
        if code == Code::ExecuteComplete {
            assert_eq!(get(&mut client, key).await.value, "output");
        }
    }
}
