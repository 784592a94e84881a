//! Requests one by one: what they do, their limits, and what is missing in them.

use std::time::Duration;

use bytes::Bytes;
use pithead_kinetic::proto::{Body, DeviceLog, GetLog, Header, KeyValue, ManageApplet, PowerManagement, Range, Setup};
use pithead_kinetic::{Code, RequestKind};

use crate::server::{Server, call, get, header_of, key_value, keys, put, put_of, range_of, with_key, with_range};

/// The code of a PUT that is changed in some way.
async fn put_changed(client: &mut pithead_kinetic::client::Client, change: impl FnOnce(&mut KeyValue), value: Bytes) -> Code {
    let mut asked = put_of(b"k", "1");
    change(&mut asked);
    client.call(RequestKind::Put, with_key(asked), value).await.unwrap().code
}

#[tokio::test]
async fn versions_are_compared_and_set() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let versions = [
        // dbVersion, newVersion, code
        ("x", "1", Code::VersionMismatch),
        ("", "", Code::Success),
        ("", "1", Code::Success),
        ("", "2", Code::VersionMismatch),
        ("2", "2", Code::VersionMismatch),
        ("1", "2", Code::Success),
        ("1", "3", Code::VersionMismatch),
    ];
    for (old, new, expected) in versions {
        let asked = KeyValue {
            new_version: Some(new.into()),
            db_version: (!old.is_empty()).then(|| old.into()),
            synchronization: Some(1),
            ..key_value(b"k")
        };
        assert_eq!(call(&mut client, RequestKind::Put, with_key(asked)).await.code, expected, "{old:?} to {new:?}");
    }
    let version = call(&mut client, RequestKind::GetVersion, with_key(key_value(b"k"))).await;
    assert_eq!(version.body.key_value.unwrap().db_version.unwrap(), "2");
    let deletes = [
        (Some("1"), Code::VersionMismatch),
        (None, Code::VersionMismatch),
        (Some("2"), Code::Success),
        (Some("2"), Code::NotFound),
    ];
    for (version, expected) in deletes {
        let asked = KeyValue { db_version: version.map(Bytes::from), synchronization: Some(1), ..key_value(b"k") };
        assert_eq!(call(&mut client, RequestKind::Delete, with_key(asked)).await.code, expected, "{version:?}");
    }
    assert_eq!(call(&mut client, RequestKind::GetVersion, with_key(key_value(b"k"))).await.code, Code::NotFound);
}

#[tokio::test]
async fn what_is_said_of_a_value_comes_back_unchanged() {
    let server = Server::start().await;
    let mut client = server.client().await;
    for (tag, algorithm) in
        [(Some("tag"), Some(1)), (Some(""), Some(4)), (None, Some(100)), (Some("t"), None), (None, None), (Some("t"), Some(-1))]
    {
        let asked = KeyValue { tag: tag.map(Bytes::from), algorithm, ..put_of(b"k", "v") };
        client.call(RequestKind::Put, with_key(asked), Bytes::from_static(b"value")).await.unwrap();
        for metadata_only in [None, Some(false), Some(true)] {
            let asked = KeyValue { metadata_only, ..key_value(b"k") };
            let reply = call(&mut client, RequestKind::Get, with_key(asked)).await;
            assert_eq!(reply.value, if metadata_only == Some(true) { "" } else { "value" });
            let told = reply.body.key_value.unwrap();
            assert_eq!((told.tag.as_deref(), told.algorithm), (Some(tag.unwrap_or("").as_bytes()), algorithm));
            assert_eq!((told.key.unwrap(), told.db_version.unwrap()), ("k".into(), "v".into()));
        }
    }
}

#[tokio::test]
async fn limits_are_inclusive() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let long = |bytes: usize| Some(Bytes::from(vec![b'x'; bytes]));
    for (over, expected) in [(0, Code::Success), (1, Code::InvalidRequest)] {
        let none = Bytes::new;
        assert_eq!(put_changed(&mut client, |it| it.key = long(4_096 + over), none()).await, expected, "key");
        assert_eq!(put_changed(&mut client, |it| it.new_version = long(2_048 + over), none()).await, expected, "version");
        assert_eq!(put_changed(&mut client, |it| it.tag = long(2_048 + over), none()).await, expected, "tag");
        assert_eq!(put_changed(&mut client, |_| (), long((1 << 20) + over).unwrap()).await, expected, "value");
        let most = 200 + over as i32;
        assert_eq!(
            call(&mut client, RequestKind::GetKeyRange, with_range(range_of(b"", b"z", most))).await.code,
            expected,
            "range"
        );
        for kind in [RequestKind::Get, RequestKind::GetNext, RequestKind::GetPrevious, RequestKind::GetVersion] {
            let code = call(&mut client, kind, with_key(key_value(&vec![b'x'; 4_096 + over]))).await.code;
            assert_eq!(code == Code::InvalidRequest, over == 1, "{kind:?}: {code:?}");
        }
        let reply = call(&mut client, RequestKind::GetKeyRange, with_range(range_of(b"", &vec![b'x'; 4_096 + over], 10))).await;
        assert_eq!(reply.code, expected, "end of a range");
    }
    assert_eq!(get(&mut client, b"k").await.value.len(), 1 << 20);
    // What the greeting says is what holds.
    let limits = client.greeting().body.as_ref().unwrap().get_log.as_ref().unwrap().limits.clone().unwrap();
    assert_eq!(
        (limits.max_key_size, limits.max_value_size, limits.max_version_size),
        (Some(4_096), Some(1 << 20), Some(2_048))
    );
    assert_eq!(
        (limits.max_tag_size, limits.max_key_range_count, limits.max_operation_count_per_batch),
        (Some(2_048), Some(200), Some(15))
    );
    assert_eq!(limits.max_connections, Some(256), "as many as one address may have");
}

#[tokio::test]
async fn writes_say_when_they_are_durable() {
    let server = Server::start().await;
    let mut client = server.client().await;
    for (synchronization, expected) in [
        (Some(1), Code::Success),
        (Some(2), Code::Success),
        (Some(3), Code::Success),
        (None, Code::InvalidRequest),
        (Some(-1), Code::InvalidRequest),
        (Some(0), Code::InvalidRequest),
        (Some(4), Code::InvalidRequest),
    ] {
        assert_eq!(put_changed(&mut client, |it| it.synchronization = synchronization, Bytes::new()).await, expected);
        let asked = KeyValue { synchronization, force: Some(true), ..key_value(b"k") };
        assert_eq!(call(&mut client, RequestKind::Delete, with_key(asked)).await.code, expected, "{synchronization:?}");
    }
}

#[tokio::test]
async fn what_is_missing_is_empty_or_refused() {
    let server = Server::start().await;
    let mut client = server.client().await;
    for kind in [
        RequestKind::Get,
        RequestKind::Put,
        RequestKind::Delete,
        RequestKind::GetNext,
        RequestKind::GetPrevious,
        RequestKind::GetVersion,
    ] {
        assert_eq!(call(&mut client, kind, Body::default()).await.code, Code::InvalidRequest, "{kind:?}");
    }
    for kind in [
        RequestKind::GetKeyRange,
        RequestKind::MediaScan,
        RequestKind::MediaOptimize,
        RequestKind::Setup,
        RequestKind::Peer2PeerPush,
        RequestKind::SetPowerLevel,
    ] {
        assert_eq!(call(&mut client, kind, Body::default()).await.code, Code::InvalidRequest, "{kind:?}");
    }
    let nameless = KeyValue { synchronization: Some(1), ..KeyValue::default() };
    assert_eq!(call(&mut client, RequestKind::Put, with_key(nameless.clone())).await.code, Code::Success);
    assert_eq!(get(&mut client, b"").await.code, Code::Success);
    assert_eq!(call(&mut client, RequestKind::Delete, with_key(nameless)).await.code, Code::Success);
    assert_eq!(call(&mut client, RequestKind::GetLog, Body::default()).await.code, Code::Success);
    for kind in [RequestKind::Noop, RequestKind::FlushAllData] {
        assert_eq!(call(&mut client, kind, Body::default()).await.code, Code::Success, "{kind:?}");
    }
    assert_eq!(client.call_with(Header::default(), Body::default(), Bytes::new()).await.unwrap().code, Code::InvalidRequest);
    for number in [-1, 0, 1, 3, 14, 99] {
        let header = Header { message_type: Some(number), ..Header::default() };
        assert_eq!(
            client.call_with(header, Body::default(), Bytes::new()).await.unwrap().code,
            Code::InvalidRequest,
            "{number}"
        );
    }
    let applet =
        Body { manage_applet: Some(ManageApplet { applet_type: Some(1), ..ManageApplet::default() }), ..Body::default() };
    for body in [applet, Body::default()] {
        assert_eq!(call(&mut client, RequestKind::ManageApplet, body).await.code, Code::InvalidExecute);
    }
}

#[tokio::test]
async fn ranges_have_ends_an_order_and_a_limit() {
    let server = Server::start().await;
    let mut client = server.client().await;
    for key in ["a", "b", "c", "d", "slice/x", "\u{0}"] {
        assert_eq!(put(&mut client, key.as_bytes(), "1", b"").await, Code::Success);
    }
    let all = || range_of(b"a", b"d", 200);
    assert_eq!(keys(&mut client, all()).await, ["a", "b", "c", "d"]);
    assert_eq!(keys(&mut client, Range { start_key_inclusive: Some(false), ..all() }).await, ["b", "c", "d"]);
    assert_eq!(keys(&mut client, Range { start_key_inclusive: None, end_key_inclusive: None, ..all() }).await, ["b", "c"]);
    assert_eq!(keys(&mut client, Range { reverse: Some(true), ..all() }).await, ["d", "c", "b", "a"]);
    assert_eq!(keys(&mut client, Range { reverse: Some(true), max_returned: Some(2), ..all() }).await, ["d", "c"]);
    assert_eq!(keys(&mut client, Range { max_returned: Some(1), ..all() }).await, ["a"]);
    assert_eq!(keys(&mut client, range_of(b"b", b"b", 9)).await, ["b"]);
    assert_eq!(keys(&mut client, Range { end_key_inclusive: Some(false), ..range_of(b"b", b"b", 9) }).await, [] as [&str; 0]);
    assert_eq!(keys(&mut client, range_of(b"d", b"a", 9)).await, [] as [&str; 0]);
    assert_eq!(keys(&mut client, range_of(b"", &[0xff; 20], 200)).await, ["\\x00", "a", "b", "c", "d", "slice/x"]);
    for most in [Some(0), Some(-1), Some(i32::MIN), None] {
        let asked = Range { max_returned: most, ..all() };
        assert_eq!(call(&mut client, RequestKind::GetKeyRange, with_range(asked)).await.code, Code::InternalError);
    }
}

#[tokio::test]
async fn the_next_and_the_previous_key_are_found() {
    let server = Server::start().await;
    let mut client = server.client().await;
    for key in ["", "b", "d"] {
        put(&mut client, key.as_bytes(), "1", key.as_bytes()).await;
    }
    for (kind, from, expected) in [
        (RequestKind::GetNext, "", Some("b")),
        (RequestKind::GetNext, "b", Some("d")),
        (RequestKind::GetNext, "c", Some("d")),
        (RequestKind::GetNext, "d", None),
        (RequestKind::GetPrevious, "d", Some("b")),
        (RequestKind::GetPrevious, "c", Some("b")),
        (RequestKind::GetPrevious, "b", Some("")),
        (RequestKind::GetPrevious, "", None),
        (RequestKind::GetPrevious, "zzz", Some("d")),
    ] {
        let reply = call(&mut client, kind, with_key(key_value(from.as_bytes()))).await;
        match expected {
            None => assert_eq!(reply.code, Code::NotFound, "{kind:?} {from}"),
            Some(key) => assert_eq!((reply.body.key_value.unwrap().key.unwrap(), reply.value), (key.into(), key.into())),
        }
    }
}

#[tokio::test]
async fn the_cluster_version_has_to_be_named() {
    let server = Server::start().await;
    let mut client = server.client().await;
    put(&mut client, b"k", "1", b"v").await;
    let setup =
        |version| Body { setup: Some(Setup { new_cluster_version: Some(version), ..Setup::default() }), ..Body::default() };
    assert_eq!(call(&mut client, RequestKind::Setup, setup(7)).await.code, Code::Success);
    let refused = get(&mut client, b"k").await;
    assert_eq!((refused.code, refused.header.cluster_version), (Code::VersionFailure, Some(7)));
    assert_eq!(call(&mut client, RequestKind::Noop, Body::default()).await.code, Code::VersionFailure);
    client.cluster_version = 7;
    assert_eq!(get(&mut client, b"k").await.value, "v");
    assert_eq!(server.client().await.greeting().header.as_ref().unwrap().cluster_version, Some(7));
    assert_eq!(call(&mut client, RequestKind::Setup, setup(0)).await.code, Code::Success);
    client.cluster_version = 0;
    let erase = Body { setup: Some(Setup { instant_secure_erase: Some(true), ..Setup::default() }), ..Body::default() };
    assert_eq!(call(&mut client, RequestKind::Setup, erase).await.code, Code::Success);
    assert_eq!(get(&mut client, b"k").await.code, Code::NotFound);
    for firmware in
        [Setup { firmware_download: Some(true), ..Setup::default() }, Setup { setup_op_type: Some(1), ..Setup::default() }]
    {
        let body = Body { setup: Some(firmware), ..Body::default() };
        assert_eq!(call(&mut client, RequestKind::Setup, body).await.code, Code::InvalidRequest);
    }
}

#[tokio::test]
async fn logs_say_what_was_done() {
    let server = Server::start().await;
    let mut client = server.client().await;
    put(&mut client, b"k", "1", &[1; 1_000]).await;
    get(&mut client, b"k").await;
    let ask = |types: Vec<i32>, name: Option<&str>| {
        let device = name.map(|name| DeviceLog { name: Some(name.to_owned().into()) });
        Body { get_log: Some(GetLog { types, device, ..GetLog::default() }), ..Body::default() }
    };
    let log = call(&mut client, RequestKind::GetLog, ask(vec![0, 1, 2, 3, 4, 5, 6], None)).await.body.get_log.unwrap();
    let of = |kind: RequestKind| log.statistics.iter().find(|it| it.message_type == Some(kind as i32)).cloned().unwrap();
    assert_eq!((of(RequestKind::Put).count, of(RequestKind::Put).bytes), (Some(1), Some(1_000)));
    assert_eq!((of(RequestKind::Get).count, of(RequestKind::Get).bytes), (Some(1), Some(1_000)));
    assert_eq!(of(RequestKind::Delete).count, Some(0));
    let configuration = log.configuration.unwrap();
    assert_eq!(configuration.port, Some(i32::from(server.plain.port())));
    assert_eq!(configuration.tls_port, Some(i32::from(server.tls.port())));
    assert_eq!(configuration.interface[0].ipv4_address.as_deref(), Some(&b"127.0.0.1"[..]));
    assert!(log.messages.unwrap().ends_with(b" started\n"));
    assert!(log.utilizations.iter().all(|it| (0.0..=1.0).contains(&it.value.unwrap())));
    let greeted = client.greeting().body.clone().unwrap().get_log.unwrap().configuration.unwrap();
    for told in [&configuration, &greeted] {
        let texts = [&told.compilation_date, &told.source_hash, &told.protocol_compilation_date, &told.protocol_source_hash];
        assert!(texts.iter().all(|text| text.as_ref().is_some_and(|text| !text.is_empty())), "{told:?}");
    }
    for (asked, told) in [(vec![2, 6, 2], vec![2, 6, 2]), ([2, 6].repeat(5), vec![2, 6]), (vec![6; 400_000], vec![6])] {
        let log = call(&mut client, RequestKind::GetLog, ask(asked, None)).await.body.get_log.unwrap();
        assert_eq!((log.types, log.limits.is_some()), (told, true));
    }
    let store = call(&mut client, RequestKind::GetLog, ask(vec![7], Some("com.pithead.store"))).await;
    assert!(String::from_utf8_lossy(&store.value).contains("\"keys\":1,"), "{:?}", store.value);
    assert_eq!(call(&mut client, RequestKind::GetLog, ask(vec![7], None)).await.code, Code::NotFound);
    assert_eq!(call(&mut client, RequestKind::GetLog, ask(vec![8], None)).await.code, Code::InvalidRequest);
    let text = server.service.metrics_text();
    assert!(text.contains("pithead_kinetic_requests_total{kind=\"put\"} 1"), "{text}");
    assert!(text.contains("pithead_kinetic_connections 1"), "{text}");
}

#[tokio::test]
async fn a_drive_that_hibernates_can_be_woken() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let power = |level| Body { power: Some(PowerManagement { level }), ..Body::default() };
    for (level, code) in [(2, Code::Hibernate), (3, Code::Shutdown)] {
        assert_eq!(call(&mut client, RequestKind::SetPowerLevel, power(Some(level))).await.code, Code::Success);
        assert_eq!(get(&mut client, b"k").await.code, code);
        assert_eq!(call(&mut client, RequestKind::Noop, Body::default()).await.code, code);
    }
    assert_eq!(call(&mut client, RequestKind::SetPowerLevel, power(Some(1))).await.code, Code::Success);
    assert_eq!(get(&mut client, b"k").await.code, Code::NotFound);
    for level in [None, Some(-1), Some(4)] {
        assert_eq!(call(&mut client, RequestKind::SetPowerLevel, power(level)).await.code, Code::InvalidRequest);
    }
}

#[tokio::test]
async fn a_time_that_is_long_enough_changes_nothing() {
    let server = Server::start().await;
    let mut client = server.client().await;
    put(&mut client, b"k", "1", b"v").await;
    for timeout in [None, Some(0), Some(-5), Some(60_000), Some(i64::MAX)] {
        let header = Header { timeout, early_exit: Some(true), time_quanta: Some(1), ..header_of(RequestKind::Get) };
        let reply = client.call_with(header, with_key(key_value(b"k")), Bytes::new()).await.unwrap();
        assert_eq!(reply.code, Code::Success, "{timeout:?}");
    }
    tokio::time::timeout(Duration::from_secs(20), server.stop()).await.unwrap();
    assert!(client.call(RequestKind::Noop, Body::default(), Bytes::new()).await.is_err());
}
