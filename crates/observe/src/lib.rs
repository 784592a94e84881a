//! What a CSE shows to its operators: counters in Prometheus's format, and whether it can serve.
//!
//! Drive and host each have a [`Registry`] of their own, and not a global one, because several drives may be in one
//! process. Nothing here knows what the metrics count.

mod labelled;
mod process;
mod server;

pub use labelled::{Labelled, seconds_histogram};
pub use process::{ProcessUse, register_process};
pub use prometheus_client::metrics::counter::Counter;
pub use prometheus_client::metrics::family::Family;
pub use prometheus_client::metrics::gauge::Gauge;
pub use prometheus_client::metrics::histogram::Histogram;
pub use prometheus_client::registry::{Metric, Registry};
pub use server::{Health, Observed, bind, serve};

/// A counter of seconds.
pub type Seconds = Counter<f64, std::sync::atomic::AtomicU64>;

/// The registry's metrics as OpenMetrics text.
pub fn text(registry: &Registry) -> String {
    let mut text = String::new();
    // Writing to a text fails only if a metric's own writing does.
    if let Err(error) = prometheus_client::encoding::text::encode(&mut text, registry) {
        tracing::error!(%error, "metrics could not be written");
    }
    text
}
