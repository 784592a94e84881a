//! [`state`]: all that the page shows, as one document of bounded size. The page asks for it each second.

use std::sync::Arc;
use std::time::UNIX_EPOCH;

use pithead_entry::{Identity, Right};
use pithead_host::Followed;
use serde_json::{Value as Json, json};

use crate::console::Console;
use crate::statements::{figures_json, listed};

/// Statements of each kind that are listed.
const RUNNING_MAX: usize = 100;
const RECENT_MAX: usize = 50;

/// How drives and statements are, as far as a caller may see them.
pub(crate) async fn state(console: &Console, caller: &Identity) -> Json {
    let host = &console.host;
    let drives = console.drives.get(host).await;
    let activity = host.activity();
    let seen = |all: Vec<Arc<Followed>>| all.into_iter().filter(|followed| followed.is_shown_to(caller));
    let running: Vec<_> = seen(activity.running()).collect();
    let recent = seen(activity.ended()).take(RECENT_MAX);
    let (totals, options) = (activity.totals(), host.options());
    let now = std::time::SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
    let mut sums = figures_json(&totals.figures);
    sums["statements"] = json!(totals.ended);
    sums["rows"] = json!(totals.rows);
    json!({
        "now_ms": now,
        "release": env!("CARGO_PKG_VERSION"),
        "uptime_s": console.started.elapsed().as_secs(),
        "threads": options.threads,
        "memory_bytes": options.memory,
        "is_in_process": host.fleet().connected().all().iter().all(|drive| drive.door.is_in_process()),
        "caller": { "name": caller.name, "is_named": caller.number().is_some(), "sees_all": caller.may_all(Right::Administer) },
        "drives": *drives,
        "totals": sums,
        "running_count": running.len(),
        "running": running.iter().take(RUNNING_MAX).map(|followed| listed(followed, caller)).collect::<Json>(),
        "recent": recent.map(|followed| listed(&followed, caller)).collect::<Json>(),
    })
}
