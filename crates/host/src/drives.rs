//! The drives of a host: those that are reached, those that are not, and those that failed a moment ago.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::join_all;
use parking_lot::Mutex;
use pithead_model::{Blame, DriveId, Fault, PROTOCOL_VERSION};
use pithead_wire::{Door, Hello, Welcome, check_hello};

use crate::fault::{at_drive, first_of, invalid};

/// Longest wait for a drive's first answer.
const GREET_WAIT: Duration = Duration::from_secs(20);
/// The same for a drive that did not answer before: statements wait for it.
const RETRY_WAIT: Duration = Duration::from_secs(2);
/// How often drives that were not reached are tried again.
const RETRY_INTERVAL: Duration = Duration::from_secs(2);
/// How long a drive that failed is asked last.
const SUSPECT_FOR: Duration = Duration::from_secs(10);

/// A drive that answered.
#[derive(Clone, Debug)]
pub struct ConnectedDrive {
    /// The way to it.
    pub door: Arc<dyn Door>,
    /// What it said at first contact, its identity among it.
    pub welcome: Welcome,
}

/// A drive that did not answer yet. Who it is is not known either.
#[derive(Clone, Debug)]
pub struct AbsentDrive {
    /// The way to it.
    pub door: Arc<dyn Door>,
    /// Why it is not there.
    pub fault: Fault,
}

impl ConnectedDrive {
    /// Its identity.
    pub fn id(&self) -> DriveId {
        self.welcome.drive
    }

    /// How a person knows it.
    pub fn label(&self) -> &str {
        self.door.label()
    }
}

/// The drives at one moment, sorted by identity so that all hosts see them in one order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Drives {
    reached: Vec<ConnectedDrive>,
    absent: Vec<AbsentDrive>,
    suspects: Suspects,
}

impl Drives {
    pub(crate) fn all(&self) -> &[ConnectedDrive] {
        &self.reached
    }

    pub(crate) fn absent(&self) -> &[AbsentDrive] {
        &self.absent
    }

    pub(crate) fn suspects(&self) -> &Suspects {
        &self.suspects
    }

    pub(crate) fn ids(&self) -> Vec<DriveId> {
        self.reached.iter().map(ConnectedDrive::id).collect()
    }

    pub(crate) fn find(&self, id: DriveId) -> Option<&ConnectedDrive> {
        self.reached.binary_search_by_key(&id, ConnectedDrive::id).ok().map(|index| &self.reached[index])
    }

    /// The drive, or a fault that names it as not connected.
    pub(crate) fn get(&self, id: DriveId) -> Result<&ConnectedDrive, Fault> {
        self.find(id).ok_or_else(|| self.not_connected(&[id]))
    }

    /// A fault that names drives, and those that did not answer: these may be the same.
    pub(crate) fn not_connected(&self, ids: &[DriveId]) -> Fault {
        let names: Vec<String> = ids.iter().map(|id| self.name(*id)).collect();
        let (noun, verb) = if names.len() == 1 { ("drive", "is") } else { ("drives", "are") };
        let fault = Fault::new(Blame::Device, format!("{noun} {} {verb} not connected", names.join(" and ")));
        self.with_absent(fault).hint("connect to all drives of the domain")
    }

    /// The fault with the drives named that were not reached.
    pub(crate) fn with_absent(&self, mut fault: Fault) -> Fault {
        if !self.absent.is_empty() {
            let why: Vec<&str> = self.absent.iter().map(|absent| absent.fault.message.as_str()).collect();
            fault.message = format!("{}; not reached: {}", fault.message, why.join("; "));
        }
        fault
    }

    /// Identity, and label where it is known.
    pub(crate) fn name(&self, id: DriveId) -> String {
        self.find(id).map_or_else(|| id.to_string(), |drive| format!("{id} ({})", drive.label()))
    }
}

/// Drives that failed a moment ago. They are asked last, and not waited for long.
#[derive(Clone, Debug, Default)]
pub(crate) struct Suspects(Arc<Mutex<HashMap<DriveId, Instant>>>);

impl Suspects {
    pub(crate) fn add(&self, id: DriveId) {
        self.0.lock().insert(id, Instant::now());
    }

    pub(crate) fn has(&self, id: DriveId) -> bool {
        self.0.lock().get(&id).is_some_and(|since| since.elapsed() < SUSPECT_FOR)
    }
}

/// The drives as they come and go.
#[derive(Debug)]
pub(crate) struct Fleet {
    now: Mutex<Arc<Drives>>,
    tried: Mutex<Instant>,
}

impl Fleet {
    /// Says hello to all at once. One that does not answer is kept to be tried again, as long as another one does; one that
    /// does not fit is an error.
    pub(crate) async fn connect(doors: Vec<Arc<dyn Door>>) -> Result<Self, Fault> {
        if doors.is_empty() {
            return Err(invalid("expected at least one drive"));
        }
        let answers = join_all(doors.iter().map(|door| greet_within(door.as_ref(), GREET_WAIT))).await;
        let (mut reached, mut absent, mut faults) = (Vec::new(), Vec::new(), Vec::new());
        for (door, answer) in doors.into_iter().zip(answers) {
            match answer {
                Ok(welcome) => reached.push(ConnectedDrive { door, welcome }),
                Err(fault) if fault.blame == Blame::Device => absent.push(AbsentDrive { door, fault }),
                Err(fault) => faults.push((door.label().to_owned(), fault)),
            }
        }
        if reached.is_empty() {
            faults.extend(absent.drain(..).map(|drive| (drive.door.label().to_owned(), drive.fault)));
        }
        if let Some(fault) = first_of(faults) {
            return Err(fault);
        }
        for drive in &absent {
            tracing::warn!("going on without a drive: {}", drive.fault.message);
        }
        let drives = Drives { reached: in_order(reached)?, absent, suspects: Suspects::default() };
        Ok(Self { now: Mutex::new(Arc::new(drives)), tried: Mutex::new(Instant::now()) })
    }

    /// The drives as they are known.
    pub(crate) fn now(&self) -> Arc<Drives> {
        Arc::clone(&self.now.lock())
    }

    /// The same, after those that are missing were tried again, unless that was just now.
    pub(crate) async fn refreshed(&self) -> Arc<Drives> {
        let now = self.now();
        if now.absent.is_empty() || !self.is_due() {
            return now;
        }
        let answers = join_all(now.absent.iter().map(|drive| greet_within(drive.door.as_ref(), RETRY_WAIT))).await;
        for (drive, answer) in now.absent.iter().zip(answers) {
            if let Ok(welcome) = answer {
                let drive = ConnectedDrive { door: Arc::clone(&drive.door), welcome };
                tracing::info!(drive = drive.label(), "reached");
                if let Err(fault) = self.add(drive) {
                    tracing::warn!("a drive is left out: {}", fault.message);
                }
            }
        }
        self.now()
    }

    /// Greets one more drive. One that is known already is no error.
    pub(crate) async fn join(&self, door: Arc<dyn Door>) -> Result<ConnectedDrive, Fault> {
        let welcome = greet_within(door.as_ref(), GREET_WAIT).await?;
        if let Some(known) = self.now().find(welcome.drive) {
            return Ok(known.clone());
        }
        let drive = ConnectedDrive { door, welcome };
        self.add(drive.clone())?;
        Ok(drive)
    }

    fn add(&self, drive: ConnectedDrive) -> Result<(), Fault> {
        let mut now = self.now.lock();
        let mut reached = now.reached.clone();
        let absent = now.absent.iter().filter(|absent| absent.door.label() != drive.label()).cloned().collect();
        reached.push(drive);
        *now = Arc::new(Drives { reached: in_order(reached)?, absent, suspects: now.suspects.clone() });
        Ok(())
    }

    fn is_due(&self) -> bool {
        let mut tried = self.tried.lock();
        let due = tried.elapsed() >= RETRY_INTERVAL;
        if due {
            *tried = Instant::now();
        }
        due
    }
}

async fn greet_within(door: &dyn Door, limit: Duration) -> Result<Welcome, Fault> {
    let late = |_| Err(Fault::new(Blame::Device, format!("no answer within {} s", limit.as_secs())));
    let answer = tokio::time::timeout(limit, greet(door)).await.unwrap_or_else(late);
    answer.map_err(|fault| at_drive(fault, door.label()))
}

async fn greet(door: &dyn Door) -> Result<Welcome, Fault> {
    let ours: Vec<String> = pithead_functions::EXTENSIONS.iter().map(|name| (*name).to_owned()).collect();
    let hello = Hello { protocol: PROTOCOL_VERSION, release: env!("CARGO_PKG_VERSION").to_owned(), extensions: ours };
    let welcome = door.hello(hello.clone()).await?;
    check_hello(&hello, &welcome)?;
    let lacking: Vec<&str> =
        hello.extensions.iter().filter(|name| !welcome.extensions.contains(name)).map(String::as_str).collect();
    if !lacking.is_empty() {
        let message = format!("release {} of the drive lacks the functions {}", welcome.release, lacking.join(", "));
        return Err(Fault::new(Blame::Unsupported, message).hint(format!("run release {} on all drives", hello.release)));
    }
    Ok(welcome)
}

/// Sorts the drives, and refuses one that is there twice.
fn in_order(drives: Vec<ConnectedDrive>) -> Result<Vec<ConnectedDrive>, Fault> {
    let mut by_id: BTreeMap<DriveId, ConnectedDrive> = BTreeMap::new();
    for drive in drives {
        if let Some(other) = by_id.get(&drive.id()) {
            return Err(invalid(format!("{} and {} are the same drive {}", other.label(), drive.label(), drive.id())));
        }
        by_id.insert(drive.id(), drive);
    }
    Ok(by_id.into_values().collect())
}
