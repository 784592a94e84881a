//! [`LastDrives`]: how the drives are, asked at most once a second however many pages look on.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::join_all;
use pithead_door::{BackgroundOrder, BackgroundStatus, Door, DriveStatus};
use pithead_host::Host;
use pithead_model::{Blame, Fault, total};
use serde_json::{Value as Json, json};
use tokio::sync::Mutex;
use tokio::time::timeout;

/// How long an answer holds.
const FRESH_FOR: Duration = Duration::from_millis(900);
/// How long drives have to answer.
const ANSWER_WAIT: Duration = Duration::from_secs(2);
/// Drives, and cores of a drive, that are told of.
const DRIVES_MAX: usize = 256;
const CORES_MAX: usize = 64;

/// How the drives were when somebody last asked.
#[derive(Default)]
pub(crate) struct LastDrives(Mutex<Option<(Instant, Arc<Json>)>>);

impl LastDrives {
    /// How they are. Who comes while they are asked waits for the same answers.
    pub(crate) async fn get(&self, host: &Host) -> Arc<Json> {
        let mut last = self.0.lock().await;
        if let Some((when, known)) = &*last
            && when.elapsed() < FRESH_FOR
        {
            return Arc::clone(known);
        }
        let asked = Arc::new(ask(host).await);
        *last = Some((Instant::now(), Arc::clone(&asked)));
        asked
    }
}

async fn ask(host: &Host) -> Json {
    let mut drives = host.fleet().connected();
    if !drives.absent().is_empty() {
        // Tries them again. They may take longer than this waits.
        drives = timeout(ANSWER_WAIT, host.fleet().refreshed()).await.unwrap_or(drives);
    }
    let reached = join_all(drives.all().iter().take(DRIVES_MAX).map(|drive| one(&*drive.door))).await;
    let absent = drives.absent().iter().take(DRIVES_MAX);
    let absent = absent.map(|drive| down(drive.door.label(), &drive.fault));
    reached.into_iter().chain(absent).collect()
}

async fn one(door: &dyn Door) -> Json {
    let asked = async { tokio::join!(door.status(), door.background(BackgroundOrder::Look)) };
    match timeout(ANSWER_WAIT, asked).await {
        Ok((Ok(status), background)) => up(door.label(), &status, background.ok().as_ref()),
        Ok((Err(fault), _)) => down(door.label(), &fault),
        Err(_) => down(door.label(), &Fault::new(Blame::Device, "it did not answer in time")),
    }
}

/// What is told of a drive: how much there is and how fast it goes, and no names of what is stored.
fn up(label: &str, status: &DriveStatus, background: Option<&BackgroundStatus>) -> Json {
    let cores = background.map(|background| background.cores.iter().take(CORES_MAX).collect::<Vec<_>>());
    let cores: Option<Json> = cores.map(|cores| {
        let core = |share: f64| (share * 1e3).round() / 1e3;
        cores.iter().map(|each| json!([core(each.foreground), core(each.background)])).collect()
    });
    let services = background.iter().flat_map(|background| &background.services);
    let services: Json = services
        .filter(|service| service.activity != "idle")
        .map(|service| json!({ "name": service.name, "activity": service.activity }))
        .collect();
    json!({
        "label": label,
        "id": status.drive.to_string(),
        "is_up": true,
        "release": status.release,
        "uptime_s": status.uptime_s,
        "threads": status.threads,
        "memory_bytes": status.memory,
        "reserved_bytes": status.memory_reserved,
        "sessions": status.sessions,
        "slices": status.slices,
        "stored_bytes": status.stored_bytes,
        "free_bytes": status.free_bytes,
        "link_bits_per_second": status.link_bits_per_second,
        "cpu_share": status.cpu_share,
        "profile": status.profile,
        "read_bytes": total(status.partitions.iter().map(|partition| partition.bytes_read)),
        "cores": cores,
        "services": services,
    })
}

fn down(label: &str, fault: &Fault) -> Json {
    json!({ "label": label, "is_up": false, "fault": fault.message })
}

#[cfg(test)]
mod tests {
    use pithead_door::CoreStatus;
    use pithead_model::{ByLevel, DriveId};

    use super::*;

    #[test]
    fn nothing_is_told_of_what_is_stored() {
        let status = DriveStatus {
            drive: DriveId(0xab),
            release: "0.1.0".into(),
            uptime_s: 1,
            threads: 2,
            memory: 1 << 30,
            memory_reserved: 0,
            sessions: 1,
            slices: 3,
            stored_bytes: 4,
            free_bytes: 5,
            domains: vec![pithead_door::DomainAt { name: "secret".into(), version: 1, home: DriveId(1) }],
            partitions: vec![],
            link_bits_per_second: None,
            profile: None,
            cpu_share: 1.0,
            medium_bytes_per_second: None,
            work: ByLevel::default(),
            costs: vec![],
            away: vec![],
        };
        let core = CoreStatus { foreground: 0.123_456, ..CoreStatus::default() };
        let background = BackgroundStatus { cores: vec![core; 100], ..BackgroundStatus::default() };
        let told = up("a:1", &status, Some(&background));
        assert_eq!((&told["cores"][0], told["cores"].as_array().unwrap().len()), (&json!([0.123, 0.0]), CORES_MAX));
        assert!(!told.to_string().contains("secret"));
        assert_eq!(up("a:1", &status, None)["cores"], Json::Null);
    }
}
