//! [`serve`]: takes connections of clients until it is told to stop.

use std::sync::Arc;
use std::time::Duration;

use pithead_entry::{ServeOptions, Shutdown};
use pithead_model::{Fault, boxed};
use pithead_wire::{ServeLimits, serve_calls};
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::bounded::Bounded;
use crate::flight::FlightSql;
use crate::reception::SqlReception;
use crate::service::Service;

const LIMITS: ServeLimits = ServeLimits {
    stream_window_bytes: 4 << 20,
    connection_window_bytes: 16 << 20,
    frame_bytes: None,
    calls: 256,
    header_bytes: 32 << 10,
    ping_interval: Duration::from_secs(10),
    ping_timeout: Duration::from_secs(20),
    stop_grace: Duration::from_secs(5),
};

/// Serves Flight SQL until `shutdown` ends. Then nothing new is accepted, answers that are on their way end with an error, and other
/// calls have five seconds to finish.
#[boxed]
pub async fn serve(
    flight: Arc<FlightSql>,
    listener: TcpListener,
    options: ServeOptions,
    shutdown: Shutdown,
) -> Result<(), Fault> {
    let (stop, stopped) = watch::channel(false);
    serve_calls((Bounded::new(Service { flight, stopped }), SqlReception), listener, &options, LIMITS, (stop, shutdown)).await
}
