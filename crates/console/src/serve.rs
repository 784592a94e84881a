//! [`serve`]: takes connections of browsers until it is told to stop.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use pithead_entry::{Connection, Protocol, ServeOptions, Shutdown, accept};
use pithead_model::{Blame, Fault, boxed};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use crate::console::Console;
use crate::entrance::Entrance;
use crate::route::respond;
use crate::stalled::Impatient;

/// As far as the entry has to know it.
const PROTOCOL: Protocol = Protocol { name: "HTTP", alpn: b"http/1.1", greeting: b"" };
/// The longest time for a request's head, and that a connection may be idle.
const HEAD_WAIT: Duration = Duration::from_secs(20);
/// The most bytes of a request's head.
const HEAD_BYTES_MAX: usize = 32 << 10;
/// How long requests may go on once the server is told to stop.
const STOP_GRACE: Duration = Duration::from_secs(5);

/// A thread for connections alone, so that no statement can keep it: operators may work for seconds within one poll.
struct Thread(Option<Runtime>);

impl Thread {
    fn start() -> Result<Thread, Fault> {
        let cannot = |error| Fault::new(Blame::Device, format!("no thread for the console: {error}"));
        let runtime = Builder::new_multi_thread().worker_threads(1).thread_name("pithead-console").enable_all().build();
        Ok(Thread(Some(runtime.map_err(cannot)?)))
    }

    /// Runs a future there to its end.
    async fn run<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> Result<T, Fault> {
        let runtime = self.0.as_ref().ok_or_else(|| Fault::bug("a thread that has ended"))?;
        runtime.spawn(work).await.map_err(Fault::bug)
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// Serves the page until `shutdown` ends. Then nothing new is taken, and requests have five seconds to finish.
#[boxed]
pub async fn serve(
    console: Arc<Console>,
    listener: TcpListener,
    options: ServeOptions,
    shutdown: Shutdown,
) -> Result<(), Fault> {
    let entry = options.entry(PROTOCOL)?;
    let is_open = options.tls.is_none() && !options.knows_callers();
    let entrance = Arc::new(Entrance { doorman: entry.doorman, is_open, work: Handle::current() });
    let lost = |error| Fault::new(Blame::Device, format!("cannot listen any more: {error}"));
    let listener = listener.into_std().map_err(lost)?;
    let (stop, stopped) = watch::channel(false);
    let thread = Thread::start()?;
    let (tls, gate) = (entry.tls, entry.gate);
    let serving = thread.run(async move {
        let (connections, accepting) = accept(TcpListener::from_std(listener).map_err(lost)?, PROTOCOL, tls, gate);
        let accepting = tokio::spawn(accepting);
        take(&console, &entrance, connections, stopped).await;
        accepting.abort();
        Ok(())
    });
    tokio::pin!(serving);
    tokio::select! {
        ended = &mut serving => ended?,
        () = shutdown => {
            stop.send_replace(true);
            serving.await?
        }
    }
}

async fn take(
    console: &Arc<Console>,
    entrance: &Arc<Entrance>,
    mut connections: mpsc::Receiver<io::Result<Connection>>,
    stopped: watch::Receiver<bool>,
) {
    let mut talks = JoinSet::new();
    let mut stop = stopped.clone();
    loop {
        let taken = tokio::select! {
            taken = connections.recv() => taken,
            Some(_) = talks.join_next() => continue,
            () = told(&mut stop) => break,
        };
        let Some(Ok(connection)) = taken else { break };
        talks.spawn(talk(Arc::clone(console), Arc::clone(entrance), connection, stopped.clone()));
    }
    drop(connections);
    let ended = async { while talks.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(STOP_GRACE, ended).await;
    talks.shutdown().await;
}

/// Waits until the server is told to stop.
async fn told(stop: &mut watch::Receiver<bool>) {
    // An error says that the server is gone.
    let _ = stop.wait_for(|stop| *stop).await;
}

/// One connection's requests. What runs for it ends with this.
async fn talk(console: Arc<Console>, entrance: Arc<Entrance>, connection: Connection, mut stop: watch::Receiver<bool>) {
    let peer = Arc::clone(connection.peer());
    let address = peer.place.address();
    let service = service_fn(move |request: Request<Incoming>| {
        let (console, entrance, peer) = (Arc::clone(&console), Arc::clone(&entrance), Arc::clone(&peer));
        async move { Ok::<_, Infallible>(respond(&console, &entrance, &peer, request).await) }
    });
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WAIT)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(Impatient::new(connection)), service);
    tokio::pin!(serving);
    let served = tokio::select! {
        served = &mut serving => served,
        () = told(&mut stop) => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if let Err(error) = served {
        tracing::debug!(%address, %error, "a connection of a browser ended");
    }
}
