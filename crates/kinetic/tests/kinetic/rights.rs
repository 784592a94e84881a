//! Identities: who they are, what they may do, and that they are kept.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use pithead_kinetic::client::Client;
use pithead_kinetic::keys::STATE_KEY;
use pithead_kinetic::proto::{Acl, AclScope, Body, GetLog, KeyValue, PowerManagement, Security, Setup};
use pithead_kinetic::{
    Code, KineticOptions, NoApplets, NoSlices, Permission, RequestKind, SLICES, Service, Slices, StoredSlice,
};
use pithead_store::{Durability, MemoryStore, Store, StoreError, Value, Write};

use crate::server::{
    Server, call, delete, get, header_of, key_value, keys, parts, put, put_of, range_of, with_key, with_range,
};

pub fn scope(value: &[u8], permissions: &[Permission]) -> AclScope {
    let permission = permissions.iter().map(|permission| *permission as i32).collect();
    AclScope { offset: Some(0), value: Some(Bytes::copy_from_slice(value)), permission, tls_required: None }
}

pub fn acl(identity: i64, scope: Vec<AclScope>) -> Acl {
    let key = Some(format!("key of {identity}").into());
    Acl { identity: Some(identity), key, hmac_algorithm: Some(1), scope, max_priority: None }
}

pub async fn set(client: &mut Client, acl: Vec<Acl>) -> Code {
    call(client, RequestKind::Security, Body { security: Some(Security { acl, ..Security::default() }), ..Body::default() })
        .await
        .code
}

async fn as_identity(server: &Server, identity: i64, tls: bool) -> Client {
    server.client_as(identity, format!("key of {identity}").as_bytes(), tls).await
}

#[tokio::test]
async fn permissions_are_checked_by_key() {
    let server = Server::start().await;
    let mut admin = server.tls_client().await;
    for key in ["a1", "b1", "b2", "c1"] {
        put(&mut admin, key.as_bytes(), "1", b"v").await;
    }
    let scopes = vec![
        scope(b"b", &[Permission::Read, Permission::Range]),
        AclScope { offset: Some(1), ..scope(b"1", &[Permission::Write]) },
    ];
    assert_eq!(set(&mut admin, vec![acl(7, scopes)]).await, Code::Success);
    let mut client = as_identity(&server, 7, false).await;
    for (key, code) in [("b1", Code::Success), ("b9", Code::NotFound), ("a1", Code::NotAuthorized), ("", Code::NotAuthorized)] {
        assert_eq!(get(&mut client, key.as_bytes()).await.code, code, "{key}");
        assert_eq!(call(&mut client, RequestKind::GetVersion, with_key(key_value(key.as_bytes()))).await.code, code, "{key}");
    }
    assert_eq!(put(&mut client, b"x1", "1", b"").await, Code::Success);
    assert_eq!(put(&mut client, b"b2", "1", b"").await, Code::NotAuthorized);
    assert_eq!(delete(&mut client, b"b1").await, Code::NotAuthorized);
    // The key that is found counts, not the one that is named.
    for (kind, from, code) in [
        (RequestKind::GetNext, "a1", Code::Success),
        (RequestKind::GetNext, "b2", Code::NotAuthorized),
        (RequestKind::GetPrevious, "c1", Code::Success),
        (RequestKind::GetPrevious, "b1", Code::NotAuthorized),
    ] {
        assert_eq!(call(&mut client, kind, with_key(key_value(from.as_bytes()))).await.code, code, "{kind:?} {from}");
    }
    assert_eq!(keys(&mut client, range_of(b"b", b"z", 100)).await, ["b1", "b2"], "it stops at c1");
    assert_eq!(keys(&mut client, range_of(b"a", b"z", 100)).await, [] as [&str; 0], "it stops at once");
}

#[tokio::test]
async fn permissions_are_checked_without_a_key() {
    let server = Server::start().await;
    let mut admin = server.tls_client().await;
    set(&mut admin, vec![acl(8, vec![]), acl(9, vec![scope(b"some key", &Permission::ALL)])]).await;
    let log = Body { get_log: Some(GetLog { types: vec![6], ..GetLog::default() }), ..Body::default() };
    let power = Body { power: Some(PowerManagement { level: Some(1) }), ..Body::default() };
    let setup = Body { setup: Some(Setup::default()), ..Body::default() };
    let security = Body { security: Some(Security::default()), ..Body::default() };
    for (kind, body) in [
        (RequestKind::GetLog, log),
        (RequestKind::SetPowerLevel, power),
        (RequestKind::Setup, setup),
        (RequestKind::Security, security),
        (RequestKind::GetKeyRange, with_range(range_of(b"a", b"b", 1))),
        (RequestKind::MediaScan, with_range(range_of(b"a", b"b", 1))),
        (RequestKind::MediaOptimize, with_range(range_of(b"a", b"b", 1))),
    ] {
        let (mut without, mut with) = (as_identity(&server, 8, true).await, as_identity(&server, 9, true).await);
        assert_eq!(call(&mut without, kind, body.clone()).await.code, Code::NotAuthorized, "{kind:?}");
        assert_eq!(call(&mut with, kind, body).await.code, Code::Success, "{kind:?}");
    }
    let mut without = as_identity(&server, 8, false).await;
    assert_eq!(call(&mut without, RequestKind::Noop, Body::default()).await.code, Code::Success);
}

#[tokio::test]
async fn a_scope_may_need_tls_and_an_identity_a_low_priority() {
    let server = Server::start().await;
    let mut admin = server.tls_client().await;
    let only_tls = AclScope { tls_required: Some(true), ..scope(b"", &[Permission::Read]) };
    let low = Acl { max_priority: Some(5), ..acl(5, vec![only_tls]) };
    assert_eq!(set(&mut admin, vec![low]).await, Code::Success);
    assert_eq!(get(&mut as_identity(&server, 5, false).await, b"k").await.code, Code::NotAuthorized);
    let mut client = as_identity(&server, 5, true).await;
    for (priority, code) in [
        (None, Code::NotFound),
        (Some(1), Code::NotFound),
        (Some(5), Code::NotFound),
        (Some(7), Code::NotAuthorized),
        (Some(0), Code::InvalidRequest),
    ] {
        client.priority = priority;
        assert_eq!(get(&mut client, b"k").await.code, code, "{priority:?}");
    }
    // A client of before this field was there sends none.
    let least = Acl { max_priority: Some(3), ..acl(6, vec![scope(b"", &[Permission::Read])]) };
    assert_eq!(set(&mut admin, vec![least]).await, Code::Success);
    let mut client = as_identity(&server, 6, true).await;
    for (priority, code) in [(None, Code::NotFound), (Some(3), Code::NotFound), (Some(4), Code::NotAuthorized)] {
        client.priority = priority;
        assert_eq!(get(&mut client, b"k").await.code, code, "{priority:?}");
    }
}

#[tokio::test]
async fn identities_are_set_over_tls_and_kept() {
    let folder = tempfile::tempdir().unwrap();
    {
        let server = Server::over(crate::server::disk(folder.path())).await;
        let plain = set(&mut server.client().await, vec![acl(3, vec![])]).await;
        assert_eq!(plain, Code::InvalidRequest);
        let mut admin = server.tls_client().await;
        let no_algorithm = Acl { hmac_algorithm: None, ..acl(4, vec![]) };
        assert_eq!(set(&mut admin, vec![acl(3, vec![]), no_algorithm]).await, Code::NoSuchHmacAlgorithm);
        assert!(as_identity(&server, 3, false).await.call(RequestKind::Noop, Body::default(), Bytes::new()).await.is_err());
        assert_eq!(set(&mut admin, vec![acl(3, vec![scope(b"", &[Permission::Write])])]).await, Code::Success);
        // A new key for the identity that everybody knows.
        let own = Acl { key: Some("secret".into()), ..acl(1, vec![scope(b"", &Permission::ALL)]) };
        assert!(server.service.has_factory_identity());
        assert_eq!(set(&mut admin, vec![own]).await, Code::Success);
        assert!(!server.service.has_factory_identity());
        server.stop().await;
    }
    let server = Server::over(crate::server::disk(folder.path())).await;
    assert_eq!(put(&mut as_identity(&server, 3, false).await, b"k", "1", b"").await, Code::Success);
    assert_eq!(get(&mut server.client_as(1, b"secret", false).await, b"k").await.code, Code::Success);
    let error = server.client().await.call(RequestKind::Noop, Body::default(), Bytes::new()).await.unwrap_err();
    assert!(error.to_string().contains("not signed"), "the answer is signed with the right key: {error}");
    let many: Vec<Acl> = (100..400).map(|number| acl(number, vec![])).collect();
    let mut admin = server.client_as(1, b"secret", true).await;
    assert_eq!(set(&mut admin, many).await, Code::InvalidRequest);
}

/// The whole drive did not start, and nothing said that it would without this protocol.
#[tokio::test]
async fn a_damaged_state_is_told_with_a_way_out() {
    let store = Arc::new(MemoryStore::new());
    store.write(vec![Write::put(STATE_KEY, "{")], Durability::Through).unwrap();
    let parts = parts(Arc::new(NoApplets), store, Arc::new(NoSlices));
    let fault = Service::open(parts, KineticOptions::default()).unwrap_err();
    assert!(format!("{fault:?}").contains("without --kinetic"), "{fault:?}");
}

#[derive(Debug)]
struct OneSlice(BTreeMap<&'static [u8], Value>);

impl Slices for OneSlice {
    fn list(&self, _: Bound<&[u8]>, _: Bound<&[u8]>, _: bool, _: usize) -> Result<Vec<StoredSlice>, StoreError> {
        Ok(self
            .0
            .iter()
            .map(|(name, value)| StoredSlice { name: Bytes::from_static(name), bytes: value.len() as u64 })
            .collect())
    }

    fn read(&self, name: &[u8]) -> Result<Option<Value>, StoreError> {
        Ok(self.0.get(name).cloned())
    }
}

#[tokio::test]
async fn slices_are_read_by_those_whose_scope_names_them_and_written_by_nobody() {
    let slices = OneSlice([(&b"main/t@1/1/00000.00000000"[..], Value::from(vec![5; (1 << 20) + 9]))].into());
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let server = Server::with(store, Arc::new(slices), KineticOptions::default()).await;
    let mut admin = server.tls_client().await;
    put(&mut admin, b"pithead/a", "1", b"").await;
    set(&mut admin, vec![acl(2, vec![scope(b"", &Permission::ALL), scope(SLICES, &[Permission::Read, Permission::Range])])])
        .await;
    let mut client = as_identity(&server, 2, false).await;
    let stripe = |number: u32| [SLICES, format!("main/t@1/1/00000.00000000.{number:02}").as_bytes()].concat();
    let names = [0, 1].map(|number| String::from_utf8(stripe(number)).unwrap());
    assert_eq!(keys(&mut client, range_of(b"pithead/", b"z", 9)).await[1..], names);
    assert_eq!(keys(&mut admin, range_of(b"pithead/", b"z", 9)).await, ["pithead/a"]);
    assert_eq!(get(&mut client, &stripe(0)).await.value.len(), 1 << 20);
    assert_eq!(get(&mut client, &stripe(1)).await.value, vec![5; 9]);
    assert_eq!(get(&mut client, &stripe(2)).await.code, Code::NotFound);
    assert_eq!(get(&mut admin, &stripe(0)).await.code, Code::NotFound);
    let next = call(&mut client, RequestKind::GetNext, with_key(key_value(&stripe(0)))).await;
    assert_eq!(next.body.key_value.unwrap().key.unwrap(), stripe(1));
    for client in [&mut client, &mut admin] {
        assert_eq!(put(client, &stripe(0), "1", b"").await, Code::NotAuthorized);
        assert_eq!(delete(client, &stripe(0)).await, Code::NotAuthorized);
    }
    let asked = KeyValue { metadata_only: Some(true), ..key_value(&stripe(1)) };
    assert_eq!(call(&mut client, RequestKind::Get, with_key(asked)).await.code, Code::Success);
    let header = header_of(RequestKind::Put);
    assert_eq!(client.call_with(header, with_key(put_of(b"own", "1")), Bytes::new()).await.unwrap().code, Code::Success);
}

/// An identity with a scope for all keys and one for the slices of a domain read those of all domains, and over every link.
#[tokio::test]
async fn slices_of_other_domains_do_not_appear() {
    let names = [&b"lab/t@1/1/00000.00000000"[..], b"main/t@1/1/00000.00000000"];
    let slices = OneSlice(names.map(|name| (name, Value::from_static(b"rows"))).into());
    let server = Server::with(Arc::new(MemoryStore::new()), Arc::new(slices), KineticOptions::default()).await;
    let mut admin = server.tls_client().await;
    put(&mut admin, b"z", "1", b"").await;
    let of_main = scope(b"pithead/slice/main/", &[Permission::Read, Permission::Range]);
    let only_tls = AclScope { tls_required: Some(true), ..of_main.clone() };
    let all = || scope(b"", &Permission::ALL);
    set(&mut admin, vec![acl(2, vec![all(), of_main]), acl(3, vec![all(), only_tls])]).await;
    let [lab, main] = ["lab", "main"].map(|domain| format!("pithead/slice/{domain}/t@1/1/00000.00000000.00"));
    for (identity, tls, is_seen) in [(2, false, true), (3, false, false), (3, true, true)] {
        let mut client = as_identity(&server, identity, tls).await;
        let seen = if is_seen { vec![main.clone(), "z".to_owned()] } else { vec!["z".to_owned()] };
        assert_eq!(keys(&mut client, range_of(b"pithead/", b"zz", 9)).await, seen, "{identity} {tls}");
        let code = if is_seen { Code::Success } else { Code::NotFound };
        assert_eq!(get(&mut client, main.as_bytes()).await.code, code, "{identity} {tls}");
        assert_eq!(get(&mut client, lab.as_bytes()).await.code, Code::NotFound, "{identity} {tls}");
        assert_eq!(call(&mut client, RequestKind::GetVersion, with_key(key_value(lab.as_bytes()))).await.code, Code::NotFound);
        let next = call(&mut client, RequestKind::GetNext, with_key(key_value(b"pithead/"))).await;
        assert_eq!(next.body.key_value.unwrap().key.unwrap(), seen[0], "{identity} {tls}");
    }
}
