//! MEDIASCAN and MEDIAOPTIMIZE: what is named, what is not, and how far a scan goes.

use bytes::Bytes;
use pithead_kinetic::client::Client;
use pithead_kinetic::proto::{KeyValue, Range};
use pithead_kinetic::{Code, Permission, RequestKind};
use sha1::{Digest as _, Sha1};
use sha2::Sha256;

use crate::rights::{acl, scope, set};
use crate::server::{Server, call, delete, get, put, put_of, range_of, with_key, with_range};

const SHA1: i32 = 1;
const SHA2: i32 = 2;
const CRC64: i32 = 5;

/// Puts a value with a tag.
async fn put_tagged(client: &mut Client, key: &str, value: &'static str, tag: impl AsRef<[u8]>, algorithm: Option<i32>) {
    let tag = Some(Bytes::copy_from_slice(tag.as_ref()));
    let asked = KeyValue { tag, algorithm, ..put_of(key.as_bytes(), "1") };
    let reply = client.call(RequestKind::Put, with_key(asked), Bytes::from_static(value.as_bytes())).await.unwrap();
    assert_eq!(reply.code, Code::Success, "{key}");
}

/// The keys that a scan names, and how far it went.
async fn scan(client: &mut Client, range: Range) -> (Vec<String>, Option<Bytes>) {
    let reply = call(client, RequestKind::MediaScan, with_range(range)).await;
    assert_eq!(reply.code, Code::Success, "{}", reply.what);
    let found = reply.body.range.unwrap();
    (found.keys.iter().map(|key| key.escape_ascii().to_string()).collect(), found.end_key)
}

#[tokio::test]
async fn media_are_scanned_and_optimized() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::over(crate::server::disk(folder.path())).await;
    let mut client = server.client().await;
    for key in ["a", "b", "c"] {
        put(&mut client, key.as_bytes(), "1", &[7; 100_000]).await;
    }
    assert_eq!(delete(&mut client, b"b").await, Code::Success);
    for kind in [RequestKind::MediaScan, RequestKind::MediaOptimize] {
        let reply = call(&mut client, kind, with_range(range_of(b"a", b"z", 10))).await;
        let range = reply.body.range.unwrap();
        assert_eq!((reply.code, range.end_key.unwrap(), range.keys.len()), (Code::Success, "z".into(), 0));
    }
    let long = call(&mut client, RequestKind::MediaScan, with_range(range_of(b"a", b"z", 201))).await;
    assert_eq!(long.code, Code::InvalidRequest);
    assert_eq!(get(&mut client, b"c").await.value.len(), 100_000);
}

#[tokio::test]
async fn keys_whose_tags_belong_to_other_values_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::over(crate::server::disk(folder.path())).await;
    let mut client = server.client().await;
    let of_other = [&Sha1::digest("other")[..], &Sha256::digest("other")[..]];
    for (key, value, tag, algorithm) in [
        ("right 1", "value", &Sha1::digest("value")[..], Some(SHA1)),
        ("right 2", "value", &Sha256::digest("value")[..], Some(SHA2)),
        ("right and empty", "", &Sha1::digest("")[..], Some(SHA1)),
        ("not judged: no tag", "value", b"", Some(SHA1)),
        ("not judged: no algorithm", "value", of_other[0], None),
        ("not judged: algorithm", "value", of_other[0], Some(CRC64)),
        ("not judged: own algorithm", "value", of_other[0], Some(100)),
        ("not judged: which of the family", "value", &[7; 64], Some(SHA2)),
        ("wrong 1", "value", of_other[0], Some(SHA1)),
        ("wrong 2", "value", of_other[1], Some(SHA2)),
        ("wrong length", "value", b"tag", Some(SHA1)),
    ] {
        put_tagged(&mut client, key, value, tag, algorithm).await;
    }
    let (named, end) = scan(&mut client, range_of(b"a", b"z", 10)).await;
    assert_eq!((named, end), (vec!["wrong 1".into(), "wrong 2".into(), "wrong length".into()], Some("z".into())));
    let (named, end) = scan(&mut client, range_of(b"a", b"z", 2)).await;
    assert_eq!((named.len(), end), (2, Some("wrong 2".into())), "the next scan begins there");
}

#[tokio::test]
async fn a_scan_without_an_end_goes_to_the_last_key() {
    let server = Server::start().await;
    let mut client = server.client().await;
    for key in ["", "a", "\u{10ffff}"] {
        put_tagged(&mut client, key, "value", "tag", Some(SHA1)).await;
    }
    for end_key in [None, Some(Bytes::new())] {
        for end_key_inclusive in [None, Some(true)] {
            let range = Range { end_key: end_key.clone(), end_key_inclusive, ..range_of(b"", b"", 10) };
            let (named, end) = scan(&mut client, range).await;
            assert_eq!((named.len(), end.unwrap_or_default()), (3, Bytes::new()), "{end_key:?}");
        }
    }
}

/// Who may list some keys learned of all others that were damaged.
#[tokio::test]
async fn a_scan_ends_before_the_first_key_that_may_not_be_listed() {
    let server = Server::start().await;
    let mut admin = server.tls_client().await;
    for key in ["b1", "b2", "c1", "d1", "d2"] {
        put_tagged(&mut admin, key, "value", "tag", Some(SHA1)).await;
    }
    put(&mut admin, b"b3", "1", b"").await;
    let scopes = [b"b", b"d"].map(|value| scope(value, &[Permission::Range]));
    assert_eq!(set(&mut admin, vec![acl(7, scopes.into())]).await, Code::Success);
    let mut client = server.client_as(7, b"key of 7", false).await;
    let names = |keys: &[&str]| -> Vec<String> { keys.iter().map(|key| (*key).to_owned()).collect() };
    for (start, end, named, reached) in [
        ("b", "z", names(&["b1", "b2"]), "b3"),
        ("b", "bz", names(&["b1", "b2"]), "bz"),
        ("a", "z", names(&["b1", "b2"]), "b3"),
        ("c", "z", names(&[]), "c"),
        ("d", "z", names(&["d1", "d2"]), "z"),
    ] {
        let scanned = scan(&mut client, range_of(start.as_bytes(), end.as_bytes(), 10)).await;
        assert_eq!(scanned, (named, Some(reached.into())), "{start} to {end}");
    }
    assert_eq!(scan(&mut admin, range_of(b"a", b"z", 10)).await.0, ["b1", "b2", "c1", "d1", "d2"]);
}
