//! An array on the network.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use pithead_door::Door;
use pithead_entry::{ServeOptions, Shutdown};
use pithead_model::{Fault, boxed};
use pithead_wire::Pace;
use tokio::net::TcpListener;

use crate::Array;

/// How long running sessions may go on once an array is told to stop.
const STOP_GRACE: Duration = Duration::from_secs(5);

/// Serves an array at a listener until `shutdown` ends, as `options` say. Then it refuses new sessions, gives running ones five
/// seconds, and returns when all have ended.
#[boxed]
pub async fn serve(array: Arc<Array>, listener: TcpListener, options: ServeOptions, shutdown: Shutdown) -> Result<(), Fault> {
    let stopping = Arc::clone(&array);
    let stop = Box::pin(async move {
        shutdown.await;
        stopping.stop(STOP_GRACE).await;
    });
    pithead_wire::serve(array as Arc<dyn Door>, Arc::new(NotPaced), listener, &options, stop).await
}

/// Sends go as fast as the link takes them.
struct NotPaced;

impl Pace for NotPaced {
    fn send(&self, _bytes: u64) -> Option<BoxFuture<'static, ()>> {
        None
    }
}
