//! [`serve`]: takes connections of clients until it is told to stop.

use std::io;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use pithead_entry::{Connection, Doorman, Protocol, ServeOptions, ServerTls, Shutdown, accept};
use pithead_host::Host;
use pithead_model::{Blame, Fault, PLANNING_STACK_BYTES, boxed};
use pithead_observe::{Health, Observed};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use crate::cancel::Running;
use crate::connection::Talk;
use crate::error::Complaint;
use crate::large::Large;
use crate::metrics::Metrics;
use crate::reply::Replies;
use crate::sql_state::TOO_MANY;
use crate::startup::begin;

/// As far as the entry has to know it: TLS is agreed on by a message of the protocol.
const PROTOCOL: Protocol = Protocol { name: "PostgreSQL", alpn: b"postgresql", greeting: b"" };
/// What a client is told that has to make room for newer ones before it is known who it is.
static TOO_MANY_WAIT: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut replies = Replies::default();
    replies.error(&Complaint::fatal(TOO_MANY, "sorry, too many clients already").hint("connect again, fewer at a time"));
    replies.bytes
});
/// How long statements that run may go on once the server is told to stop.
const STOP_GRACE: Duration = Duration::from_secs(5);
/// Threads for connections.
const CONNECTION_THREADS: usize = 2;

/// A host, and the clients that it is served to.
pub struct Front {
    pub(crate) host: Host,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) running: Arc<Running>,
    pub(crate) large: Large,
}

/// What stands before it.
pub(crate) struct Entrance {
    pub(crate) tls: Option<Arc<ServerTls>>,
    pub(crate) doorman: Doorman,
    /// Where statements run.
    pub(crate) work: Handle,
}

/// Threads for connections alone, so that no statement can keep them: operators of the engine may work for seconds within one poll, on
/// as many threads as there are for statements.
struct Threads(Option<Runtime>);

impl Front {
    /// A server of this host, that nobody has connected to.
    pub fn new(host: Host) -> Arc<Front> {
        Arc::new(Front { host, metrics: Arc::new(Metrics::new()), running: Arc::default(), large: Large::default() })
    }
}

impl Threads {
    fn start() -> Result<Threads, Fault> {
        let mut runtime = Builder::new_multi_thread();
        runtime.worker_threads(CONNECTION_THREADS).thread_name("pithead-front").thread_stack_size(PLANNING_STACK_BYTES);
        let cannot = |error| Fault::new(Blame::Device, format!("no threads for connections: {error}"));
        Ok(Threads(Some(runtime.enable_all().build().map_err(cannot)?)))
    }

    /// Runs a future there to its end.
    async fn run<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> Result<T, Fault> {
        let runtime = self.0.as_ref().ok_or_else(|| Fault::bug("threads that have ended"))?;
        runtime.spawn(work).await.map_err(Fault::bug)
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// Serves PostgreSQL's protocol until `shutdown` ends. Then no statement begins, and it returns when those that run have ended, or five
/// seconds later.
#[boxed]
pub async fn serve(front: Arc<Front>, listener: TcpListener, options: ServeOptions, shutdown: Shutdown) -> Result<(), Fault> {
    let entry = options.entry(PROTOCOL)?;
    let entrance = Arc::new(Entrance { tls: entry.tls, doorman: entry.doorman, work: Handle::current() });
    let lost = |error| Fault::new(Blame::Device, format!("cannot listen any more: {error}"));
    let listener = listener.into_std().map_err(lost)?;
    let listening = move || TcpListener::from_std(listener).map_err(lost);
    let (stop, stopped) = watch::channel(false);
    let threads = Threads::start()?;
    let serving = threads.run(async move {
        let (connections, accepting) = accept(listening()?, PROTOCOL, None, entry.gate);
        let accepting = tokio::spawn(accepting);
        take(&front, &entrance, connections, stopped).await;
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

/// Takes connections until the server is to stop, and waits for the statements that run.
async fn take(
    front: &Arc<Front>,
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
            // An error says that the server is gone.
            _ = stop.wait_for(|stop| *stop) => break,
        };
        let Some(Ok(connection)) = taken else { break };
        connection.peer().place.end().say(&TOO_MANY_WAIT);
        talks.spawn(talk(Arc::clone(front), Arc::clone(entrance), connection, stopped.clone()));
    }
    // Nothing more is taken.
    drop(connections);
    let stopping = Instant::now();
    let ended = async { while talks.join_next().await.is_some() {} };
    if tokio::time::timeout(STOP_GRACE, ended).await.is_err() {
        tracing::warn!("statements of clients were cut short: the server stops");
    }
    talks.shutdown().await;
    // What goes on after statements that were answered.
    front.host.settled(STOP_GRACE.saturating_sub(stopping.elapsed())).await;
}

async fn talk(front: Arc<Front>, entrance: Arc<Entrance>, connection: Connection, stop: watch::Receiver<bool>) {
    let Some(begun) = begin(&front, &entrance, connection).await else { return };
    let metrics = Arc::clone(&front.metrics);
    metrics.connections.inc();
    let _counted = Counted(Arc::clone(&metrics));
    Talk::new(front, entrance, begun).run(stop).await;
}

/// Counts a connection as long as it is open, however it ends.
struct Counted(Arc<Metrics>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.connections.dec();
    }
}

impl Observed for Front {
    fn metrics(&self) -> BoxFuture<'_, String> {
        Box::pin(async {
            let host = self.host.metrics_text();
            // Only the last may say that it ends.
            format!("{}{}", host.strip_suffix("# EOF\n").unwrap_or(&host), self.metrics.text())
        })
    }

    fn health(&self) -> BoxFuture<'_, Health> {
        Observed::health(&self.host)
    }
}
