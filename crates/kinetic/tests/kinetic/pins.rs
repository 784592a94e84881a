//! PINs: lock, unlock, erase; and that what they did is kept.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use pithead_kinetic::client::{Client, ClientError};
use pithead_kinetic::proto::{Acl, Body, Header, Security, Setup};
use pithead_kinetic::{Code, Permission, RequestKind};
use pithead_store::{Durability, Write};

use crate::rights::{acl, scope, set};
use crate::server::{Server, call, disk, get, header_of, put};

const UNLOCK: i32 = 1;
const LOCK: i32 = 2;
const ERASE: i32 = 3;
const SECURE_ERASE: i32 = 4;

fn pins(old: [Option<&str>; 2], new: [Option<&str>; 2]) -> Body {
    let bytes = |pin: Option<&str>| pin.map(|pin| Bytes::from(pin.to_owned()));
    let security = Security {
        old_lock_pin: bytes(old[0]),
        old_erase_pin: bytes(old[1]),
        new_lock_pin: bytes(new[0]),
        new_erase_pin: bytes(new[1]),
        ..Security::default()
    };
    Body { security: Some(security), ..Body::default() }
}

#[tokio::test]
async fn a_locked_device_stays_locked_until_its_pin_comes() {
    let folder = tempfile::tempdir().unwrap();
    {
        let server = Server::over(disk(folder.path())).await;
        let mut client = server.tls_client().await;
        put(&mut client, b"k", "1", b"v").await;
        assert_eq!(call(&mut client, RequestKind::Security, pins([None; 2], [Some("lock"), None])).await.code, Code::Success);
        assert_eq!(
            call(&mut client, RequestKind::Security, pins([Some("no"), None], [Some("x"), None])).await.code,
            Code::NotAuthorized
        );
        assert_eq!(client.pin(UNLOCK, b"lock").await.unwrap().code, Code::DeviceAlreadyUnlocked);
        assert_eq!(client.pin(LOCK, b"wrong").await.unwrap().code, Code::NotAuthorized);
        assert_eq!(client.pin(LOCK, b"lock").await.unwrap().code, Code::Success);
        for kind in
            [RequestKind::Noop, RequestKind::GetLog, RequestKind::FlushAllData, RequestKind::Security, RequestKind::StartBatch]
        {
            assert_eq!(call(&mut client, kind, Body::default()).await.code, Code::DeviceLocked, "{kind:?}");
        }
        assert_eq!(get(&mut server.client().await, b"k").await.code, Code::DeviceLocked);
        server.stop().await;
    }
    let server = Server::over(disk(folder.path())).await;
    let mut client = server.tls_client().await;
    assert_eq!(get(&mut client, b"k").await.code, Code::DeviceLocked);
    assert_eq!(client.pin(UNLOCK, b"wrong").await.unwrap().code, Code::NotAuthorized);
    assert_eq!(client.pin(UNLOCK, b"lock").await.unwrap().code, Code::Success);
    assert_eq!(get(&mut client, b"k").await.value, "v");
}

#[tokio::test]
async fn an_erased_device_is_new_and_what_is_not_clients_stays() {
    for kind in [ERASE, SECURE_ERASE] {
        let folder = tempfile::tempdir().unwrap();
        let store = disk(folder.path());
        store.write(vec![Write::put("slice/main/t", "ours")], Durability::Through).unwrap();
        let server = Server::over(Arc::clone(&store)).await;
        let mut client = server.tls_client().await;
        put(&mut client, b"k", "1", &[1; 100_000]).await;
        set(&mut client, vec![Acl { key: Some("secret".into()), ..acl(1, vec![scope(b"", &Permission::ALL)]) }]).await;
        let mut client = server.client_as(1, b"secret", true).await;
        for new in [[Some("lock"), None], [None, Some("erase")]] {
            assert_eq!(call(&mut client, RequestKind::Security, pins([None; 2], new)).await.code, Code::Success);
        }
        let setup = Setup { new_cluster_version: Some(3), ..Setup::default() };
        call(&mut client, RequestKind::Setup, Body { setup: Some(setup), ..Body::default() }).await;
        // Whoever has a PIN need not know the cluster version.
        assert_eq!(call(&mut client, RequestKind::Noop, Body::default()).await.code, Code::VersionFailure);
        assert_eq!(client.pin(kind, b"lock").await.unwrap().code, Code::NotAuthorized);
        assert_eq!(client.pin(LOCK, b"lock").await.unwrap().code, Code::Success);
        // Whoever has lost the one PIN has the other.
        assert_eq!(client.pin(kind, b"erase").await.unwrap().code, Code::Success);
        let mut new = server.client().await;
        assert_eq!(new.cluster_version, 0);
        assert_eq!(get(&mut new, b"k").await.code, Code::NotFound);
        assert_eq!(store.get(b"slice/main/t").unwrap().unwrap().0, "ours");
    }
}

#[tokio::test]
async fn pins_are_sent_over_tls_and_for_nothing_else() {
    let server = Server::start().await;
    assert_eq!(server.client().await.pin(LOCK, b"").await.unwrap().code, Code::InvalidRequest);
    let mut client = server.tls_client().await;
    for operation in [-1, 0, 5] {
        assert_eq!(client.pin(operation, b"").await.unwrap().code, Code::InvalidRequest);
    }
    assert_eq!(
        call(&mut client, RequestKind::PinOp, Body::default()).await.code,
        Code::InvalidRequest,
        "signed by an identity"
    );
    let long = "x".repeat(257);
    for (pin, code) in [(&long[..], Code::InvalidRequest), (&long[1..], Code::Success)] {
        assert_eq!(call(&mut client, RequestKind::Security, pins([None; 2], [None, Some(pin)])).await.code, code);
    }
}

#[tokio::test]
async fn one_thing_is_set_at_a_time() {
    let server = Server::start().await;
    let mut client = server.tls_client().await;
    let identity = || vec![acl(7, vec![scope(b"", &[Permission::Read])])];
    let with_identity = |body: Body| {
        let security = Security { acl: identity(), ..body.security.unwrap() };
        Body { security: Some(security), ..Body::default() }
    };
    for body in [
        pins([None; 2], [Some("lock"), Some("erase")]),
        pins([None, Some("")], [Some("lock"), None]),
        with_identity(pins([None; 2], [Some("lock"), None])),
        with_identity(pins([None, Some("")], [None; 2])),
    ] {
        assert_eq!(call(&mut client, RequestKind::Security, body).await.code, Code::InvalidRequest);
    }
    // Nothing has changed: no PIN is set, and there is no such identity.
    assert_eq!(client.pin(LOCK, b"any").await.unwrap().code, Code::Success);
    assert_eq!(client.pin(UNLOCK, b"other").await.unwrap().code, Code::Success);
    let mut stranger = server.client_as(7, b"key of 7", false).await;
    assert!(stranger.call(RequestKind::Noop, Body::default(), Bytes::new()).await.is_err());
    assert_eq!(set(&mut client, identity()).await, Code::Success);
}

#[tokio::test]
async fn an_old_pin_without_a_new_one_takes_the_pin_away() {
    let server = Server::start().await;
    let mut client = server.tls_client().await;
    assert_eq!(call(&mut client, RequestKind::Security, pins([None; 2], [Some("lock"), None])).await.code, Code::Success);
    for (old, code) in [("wrong", Code::NotAuthorized), ("", Code::NotAuthorized), ("lock", Code::Success)] {
        assert_eq!(call(&mut client, RequestKind::Security, pins([Some(old), None], [None; 2])).await.code, code, "{old}");
    }
    assert_eq!(client.pin(LOCK, b"any").await.unwrap().code, Code::Success);
}

#[tokio::test]
async fn lock_and_unlock_need_a_pin_and_erase_does_not() {
    let server = Server::start().await;
    let mut client = server.tls_client().await;
    for operation in [LOCK, UNLOCK] {
        assert_eq!(client.pin(operation, b"").await.unwrap().code, Code::InvalidRequest);
    }
    assert_eq!(client.pin(LOCK, b"x").await.unwrap().code, Code::Success);
    assert_eq!(client.pin(UNLOCK, b"").await.unwrap().code, Code::InvalidRequest);
    assert_eq!(call(&mut client, RequestKind::Noop, Body::default()).await.code, Code::DeviceLocked);
    assert_eq!(client.pin(ERASE, b"").await.unwrap().code, Code::Success);
    assert_eq!(call(&mut client, RequestKind::Noop, Body::default()).await.code, Code::Success);
}

fn erase_by_setup(pin: &str) -> Body {
    let setup = Setup { instant_secure_erase: Some(true), pin: Some(pin.to_owned().into()), ..Setup::default() };
    Body { setup: Some(setup), ..Body::default() }
}

/// A server whose erase PIN is `erase`.
async fn with_erase_pin() -> Server {
    let server = Server::start().await;
    let set = pins([None; 2], [None, Some("erase")]);
    assert_eq!(call(&mut server.tls_client().await, RequestKind::Security, set).await.code, Code::Success);
    server
}

/// Each request that has the erase PIN compared.
const COMPARING: [RequestKind; 3] = [RequestKind::PinOp, RequestKind::Setup, RequestKind::Security];

async fn guess(client: &mut Client, kind: RequestKind) -> Result<Code, ClientError> {
    let reply = match kind {
        RequestKind::PinOp => client.pin(ERASE, b"guess").await,
        RequestKind::Setup => client.call(kind, erase_by_setup("guess"), Bytes::new()).await,
        _ => client.call(kind, pins([None, Some("guess")], [None, Some("mine")]), Bytes::new()).await,
    };
    Ok(reply?.code)
}

/// A PIN that came with SETUP or SECURITY did not count.
#[tokio::test]
async fn few_pins_are_guessed_over_one_connection() {
    let server = with_erase_pin().await;
    let mut client = server.tls_client().await;
    for (number, kind) in COMPARING.into_iter().cycle().take(16).enumerate() {
        assert_eq!(guess(&mut client, kind).await.unwrap(), Code::NotAuthorized, "{number}: {kind:?}");
    }
    assert!(client.pin(ERASE, b"erase").await.is_err(), "the connection goes on");
}

/// A wrong PIN held up its own connection alone, or nobody with SETUP and SECURITY, so that many connections guessed many PINs.
#[tokio::test]
async fn many_connections_guess_no_faster_than_one() {
    let server = with_erase_pin().await;
    let begun = Instant::now();
    let mut guesses = Vec::new();
    for kind in COMPARING.into_iter().cycle().take(5) {
        let mut client = server.tls_client().await;
        guesses.push(tokio::spawn(async move { guess(&mut client, kind).await.unwrap() }));
    }
    for guess in guesses {
        assert_eq!(guess.await.unwrap(), Code::NotAuthorized);
    }
    assert!(begun.elapsed() >= Duration::from_millis(5 * 500), "{:?}", begun.elapsed());
    assert_eq!(call(&mut server.tls_client().await, RequestKind::Setup, erase_by_setup("erase")).await.code, Code::Success);
}

/// A request waits for the PINs before its own no longer than it may take, and then nobody learns whether its PIN is right.
#[tokio::test]
async fn a_pin_whose_time_is_over_is_not_compared() {
    let server = with_erase_pin().await;
    let (mut client, mut guesses) = (server.tls_client().await, Vec::new());
    for _ in 0..4 {
        let mut guessing = server.tls_client().await;
        guessing.send(header_of(RequestKind::Setup), erase_by_setup("guess"), Bytes::new()).await.unwrap();
        guesses.push(guessing);
    }
    // The others wait by now.
    assert_eq!(guesses[0].receive().await.unwrap().code, Code::NotAuthorized);
    let header = Header { timeout: Some(50), ..header_of(RequestKind::Setup) };
    let reply = client.call_with(header, erase_by_setup("erase"), Bytes::new()).await.unwrap();
    assert_eq!(reply.code, Code::ServiceBusy, "{}", reply.what);
    assert_eq!(call(&mut client, RequestKind::Setup, erase_by_setup("erase")).await.code, Code::Success, "it has all the time");
}

#[tokio::test]
async fn who_may_not_ask_has_no_pin_compared() {
    let server = with_erase_pin().await;
    let mut admin = server.tls_client().await;
    set(&mut admin, vec![acl(7, vec![scope(b"", &[Permission::Read])])]).await;
    let mut client = server.client_as(7, b"key of 7", true).await;
    for pin in ["guess", "erase"].into_iter().cycle().take(20) {
        assert_eq!(call(&mut client, RequestKind::Setup, erase_by_setup(pin)).await.code, Code::NotAuthorized);
    }
}
