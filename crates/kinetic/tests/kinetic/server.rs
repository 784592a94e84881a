//! A server for tests, and requests to it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use pithead_device::Native;
use pithead_kinetic::client::{Client, ClientOptions, Reply, Trust};
use pithead_kinetic::proto::{Body, Header, KeyValue, Range};
use pithead_kinetic::{
    Applets, Code, FACTORY_IDENTITY, FACTORY_KEY, KineticOptions, Limits, Listeners, NoApplets, NoSlices, Parts, RequestKind,
    Service, Slices, self_signed, serve,
};
use pithead_sched::{Pool, PoolOptions};
use pithead_store::{MemoryStore, Store};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

/// A server on free ports of this machine. It stops when this is dropped.
pub struct Server {
    pub plain: SocketAddr,
    pub tls: SocketAddr,
    /// The certificate that it has signed itself.
    pub certificate: PathBuf,
    pub service: Arc<Service>,
    stop: Option<oneshot::Sender<()>>,
    served: tokio::task::JoinHandle<()>,
    _folder: tempfile::TempDir,
}

impl Server {
    pub async fn start() -> Server {
        Server::over(Arc::new(MemoryStore::new())).await
    }

    pub async fn over(store: Arc<dyn Store>) -> Server {
        Server::with(store, Arc::new(NoSlices), KineticOptions::default()).await
    }

    pub async fn with(store: Arc<dyn Store>, slices: Arc<dyn Slices>, options: KineticOptions) -> Server {
        Server::running(Arc::new(NoApplets), store, slices, options).await
    }

    pub async fn running(
        applets: Arc<dyn Applets>,
        store: Arc<dyn Store>,
        slices: Arc<dyn Slices>,
        options: KineticOptions,
    ) -> Server {
        let folder = tempfile::tempdir().unwrap();
        let service = Service::open(parts(applets, store, slices), options).unwrap();
        let listen = || async { TcpListener::bind("127.0.0.1:0").await.unwrap() };
        let (plain, tls) = (listen().await, listen().await);
        let addresses = (plain.local_addr().unwrap(), tls.local_addr().unwrap());
        let files = self_signed(folder.path(), &[addresses.1.ip()]).unwrap();
        let certificate = files.cert.clone();
        let listeners = Listeners { plain: Some(plain), tls: Some((tls, files)) };
        let (stop, stopped) = oneshot::channel::<()>();
        let serving = Arc::clone(&service);
        let served = tokio::spawn(async move {
            let stopped = Box::pin(async {
                let _ = stopped.await;
            });
            serve(serving, listeners, stopped).await.unwrap();
        });
        Server { plain: addresses.0, tls: addresses.1, certificate, service, stop: Some(stop), served, _folder: folder }
    }

    pub async fn client(&self) -> Client {
        Client::connect(&options(self.plain, None)).await.unwrap()
    }

    pub async fn tls_client(&self) -> Client {
        Client::connect(&options(self.tls, Some(Trust::Anyone))).await.unwrap()
    }

    pub async fn client_as(&self, identity: i64, key: &[u8], tls: bool) -> Client {
        let base = if tls { options(self.tls, Some(Trust::Anyone)) } else { options(self.plain, None) };
        Client::connect(&ClientOptions { identity, key: key.to_vec(), ..base }).await.unwrap()
    }

    /// Stops, and waits until nothing holds the store any more but the service.
    pub async fn stop(mut self) {
        drop(self.stop.take());
        self.served.await.unwrap();
    }
}

/// What a server needs, with one reactor.
pub fn parts(applets: Arc<dyn Applets>, store: Arc<dyn Store>, slices: Arc<dyn Slices>) -> Parts {
    let pool = PoolOptions { name: "test".to_owned(), cores: None, reactors: 1, blocking_threads_max: 10 };
    let (pool, device) = (Arc::new(Pool::new(pool).unwrap()), Arc::new(Native::new()));
    Parts { store, slices, applets, pool, device, folder: None }
}

pub fn options(address: SocketAddr, tls: Option<Trust>) -> ClientOptions {
    ClientOptions {
        host: address.ip().to_string(),
        port: address.port(),
        tls,
        identity: FACTORY_IDENTITY,
        key: FACTORY_KEY.to_vec(),
        wait: Duration::from_secs(20),
        limits: Limits::default(),
    }
}

pub fn key_value(key: &[u8]) -> KeyValue {
    KeyValue { key: Some(Bytes::copy_from_slice(key)), ..KeyValue::default() }
}

/// A PUT of a version, which is forced.
pub fn put_of(key: &[u8], version: &str) -> KeyValue {
    KeyValue { new_version: Some(version.to_owned().into()), force: Some(true), synchronization: Some(2), ..key_value(key) }
}

pub fn with_key(key_value: KeyValue) -> Body {
    Body { key_value: Some(key_value), ..Body::default() }
}

pub fn with_range(range: Range) -> Body {
    Body { range: Some(range), ..Body::default() }
}

/// A range with both ends, from the lower to the upper.
pub fn range_of(start: &[u8], end: &[u8], most: i32) -> Range {
    Range {
        start_key: Some(Bytes::copy_from_slice(start)),
        end_key: Some(Bytes::copy_from_slice(end)),
        start_key_inclusive: Some(true),
        end_key_inclusive: Some(true),
        max_returned: Some(most),
        ..Range::default()
    }
}

pub fn header_of(kind: RequestKind) -> Header {
    Header { message_type: Some(kind as i32), ..Header::default() }
}

pub async fn call(client: &mut Client, kind: RequestKind, body: Body) -> Reply {
    client.call(kind, body, Bytes::new()).await.unwrap()
}

pub async fn put(client: &mut Client, key: &[u8], version: &str, value: &[u8]) -> Code {
    client.call(RequestKind::Put, with_key(put_of(key, version)), Bytes::copy_from_slice(value)).await.unwrap().code
}

pub async fn get(client: &mut Client, key: &[u8]) -> Reply {
    call(client, RequestKind::Get, with_key(key_value(key))).await
}

pub async fn delete(client: &mut Client, key: &[u8]) -> Code {
    let forced = KeyValue { force: Some(true), synchronization: Some(1), ..key_value(key) };
    call(client, RequestKind::Delete, with_key(forced)).await.code
}

pub async fn keys(client: &mut Client, range: Range) -> Vec<String> {
    let reply = call(client, RequestKind::GetKeyRange, with_range(range)).await;
    assert_eq!(reply.code, Code::Success, "{}", reply.what);
    let keys = reply.body.range.unwrap_or_default().keys;
    keys.iter().map(|key| key.escape_ascii().to_string()).collect()
}

/// A store on a disk.
pub fn disk(folder: &Path) -> Arc<dyn Store> {
    Arc::new(pithead_store::DiskStore::open(folder, pithead_store::StoreOptions::default()).unwrap())
}
