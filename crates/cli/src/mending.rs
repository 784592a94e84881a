//! What `pithead serve` does beside serving: it mends what drives have found damaged, and makes copies that are missing.

use std::time::Duration;

use pithead_fleet::{Mending, RepairReport};
use pithead_host::Host;
use pithead_model::Bytes;

/// Mends again and again. Several hosts before the same drives do not begin at the same moment.
pub(crate) async fn mend_for_ever(host: Host, every: Duration, lost_after: Option<Duration>) {
    let mut mending = Mending::new(lost_after);
    loop {
        tokio::time::sleep(every.mul_f64(rand::random_range(0.75..1.25))).await;
        match host.fleet().mend(&mut mending).await {
            Ok(report) => tell(&report),
            Err(fault) => tracing::warn!(%fault, "what is damaged or missing could not be mended; trying again later"),
        }
    }
}

fn tell(report: &RepairReport) {
    if report.runs_rewritten > 0 || report.copies_made > 0 {
        let (rewritten, copies, bytes) = (report.runs_rewritten, report.copies_made, Bytes(report.bytes));
        tracing::warn!(rewritten, copies, %bytes, "runs were missing or damaged: written anew from copies");
    }
    for damaged in &report.damaged {
        tracing::error!("damaged, and no good copy was found; load the dataset again: {damaged}");
    }
    for failed in &report.failed {
        tracing::warn!("trying again later: {failed}");
    }
    for note in &report.notes {
        tracing::warn!("{note}");
    }
}
