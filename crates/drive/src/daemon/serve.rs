//! A drive on the network: bind, serve, stop.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use pithead_device::Device;
use pithead_door::Door;
use pithead_entry::{ServeOptions, Shutdown};
use pithead_model::{Blame, Fault, boxed};
use pithead_wire::Pace;
use tokio::net::TcpListener;

use crate::daemon::Drive;

/// How long running sessions may go on once a drive is told to stop.
const STOP_GRACE: Duration = Duration::from_secs(5);

/// Takes an address, `host:port`; port 0 takes a free one. [`address`] says which it is.
#[boxed]
pub async fn bind(listen: &str) -> Result<TcpListener, Fault> {
    TcpListener::bind(listen).await.map_err(|error| {
        Fault::new(Blame::User, format!("cannot listen at {listen}: {error}"))
            .hint("name a free address of this machine, such as 127.0.0.1:0")
    })
}

/// The address that a listener has.
pub fn address(listener: &TcpListener) -> Result<SocketAddr, Fault> {
    listener.local_addr().map_err(|error| Fault::new(Blame::Device, error.to_string()))
}

/// Serves a drive at a listener until `shutdown` ends, as `options` say. Then it refuses new sessions, gives running ones five
/// seconds, and returns when all have ended.
#[boxed]
pub async fn serve(drive: Arc<Drive>, listener: TcpListener, options: ServeOptions, shutdown: Shutdown) -> Result<(), Fault> {
    tracing::info!(drive = %drive.id(), address = %address(&listener)?, "serving");
    let pace = Arc::new(LinkPace(Arc::clone(&drive.resources.device)));
    let stopping = Arc::clone(&drive);
    let stop = Box::pin(async move {
        shutdown.await;
        stopping.stop(STOP_GRACE).await;
    });
    pithead_wire::serve(Arc::clone(&drive) as Arc<dyn Door>, pace, listener, &options, stop).await
}

/// Sends wait as the drive's link says.
struct LinkPace(Arc<dyn Device>);

impl Pace for LinkPace {
    fn send(&self, bytes: u64) -> Option<BoxFuture<'static, ()>> {
        self.0.send(bytes)
    }

    fn bytes_per_second(&self) -> Option<f64> {
        self.0.link_bits_per_second().map(|bits| bits / 8.0)
    }
}
