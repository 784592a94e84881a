//! The drives of a host: those that are reached, those that are not, and those that failed a moment ago.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use pithead_door::{Door, Hello, Welcome, check_hello};
use pithead_model::{Blame, DriveId, Fault, PROTOCOL_VERSION};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::fault::first_of;

/// Longest wait for a drive's first answer.
const GREET_WAIT: Duration = Duration::from_secs(20);
/// The same for a drive that did not answer before: statements wait for it.
const RETRY_WAIT: Duration = Duration::from_secs(2);
/// How often drives that were not reached are tried again.
const RETRY_INTERVAL: Duration = Duration::from_secs(2);
/// How long work waits for one drive where another one may do: a drive that hangs must not hold up those who can go on without it.
pub(crate) const HEDGE_WAIT: Duration = Duration::from_secs(1);
/// How long a statement waits for drives that are tried again, which mostly answer at once if they are back.
const GLANCE_WAIT: Duration = Duration::from_millis(100);
/// How often the drives that are reached are asked whether one of them is a drive that a manifest names and nobody knows.
const SEEK_INTERVAL: Duration = Duration::from_secs(60);
/// How long a drive that failed is asked last.
const SUSPECT_FOR: Duration = Duration::from_secs(10);

/// A drive that answered.
#[derive(Clone, Debug)]
pub struct ConnectedDrive {
    /// The way to it, and to no other drive that is put in its place.
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
    /// A drive that has said who it is. What is asked of it from now on is asked of no other one.
    fn met(door: Arc<dyn Door>, welcome: Welcome) -> Self {
        Self { door: door.only_to(welcome.drive).unwrap_or(door), welcome }
    }

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
pub struct Drives {
    reached: Vec<ConnectedDrive>,
    absent: Vec<AbsentDrive>,
    suspects: Suspects,
    /// Drives that were reached, and where another drive answers in their place by now.
    replaced: BTreeMap<DriveId, String>,
}

impl Drives {
    /// The drives that are reached.
    pub fn all(&self) -> &[ConnectedDrive] {
        &self.reached
    }

    /// The drives that have not answered so far.
    pub fn absent(&self) -> &[AbsentDrive] {
        &self.absent
    }

    /// Those of them that failed a moment ago.
    pub fn suspects(&self) -> &Suspects {
        &self.suspects
    }

    /// The identities of those that are reached, in order.
    pub fn ids(&self) -> Vec<DriveId> {
        self.reached.iter().map(ConnectedDrive::id).collect()
    }

    /// A drive that is reached.
    pub fn find(&self, id: DriveId) -> Option<&ConnectedDrive> {
        self.reached.binary_search_by_key(&id, ConnectedDrive::id).ok().map(|index| &self.reached[index])
    }

    /// The drive, or a fault that names it as not connected.
    pub fn get(&self, id: DriveId) -> Result<&ConnectedDrive, Fault> {
        self.find(id).ok_or_else(|| self.not_connected(&[id]))
    }

    /// A fault that names drives, and those that did not answer: these may be the same.
    pub fn not_connected(&self, ids: &[DriveId]) -> Fault {
        let names: Vec<String> = ids.iter().map(|id| self.name(*id)).collect();
        let (noun, verb) = if names.len() == 1 { ("drive", "is") } else { ("drives", "are") };
        let mut fault = Fault::new(Blame::Device, format!("{noun} {} {verb} not connected", names.join(" and ")));
        let replaced: Vec<(&DriveId, &String)> = ids.iter().filter_map(|id| self.replaced.get_key_value(id)).collect();
        for (id, place) in &replaced {
            fault.message = format!("{}; another drive is at {place} in place of {id}", fault.message);
        }
        let hint = match replaced.first() {
            Some((id, _)) => format!("if drive {id} is gone for good: `pithead repair --lost {id}`"),
            None => "connect to all drives of the domain".to_owned(),
        };
        self.with_absent(fault).hint(hint)
    }

    /// Where another drive answers in the place of one that was reached before.
    pub fn replaced(&self, id: DriveId) -> Option<&str> {
        self.replaced.get(&id).map(String::as_str)
    }

    /// The drives that this host has reached by now, be they replaced or not.
    pub(crate) fn met(&self) -> impl Iterator<Item = DriveId> + '_ {
        self.reached.iter().map(ConnectedDrive::id).chain(self.replaced.keys().copied())
    }

    /// Whether a drive is at none of this host's addresses, for all that they say: another one has taken its place, or each
    /// address answers as another drive. One that may only be slow or down is not meant.
    pub fn is_nowhere(&self, id: DriveId) -> bool {
        self.find(id).is_none() && (self.replaced.contains_key(&id) || self.absent.is_empty())
    }

    /// Why a drive is not there, for all that is known.
    pub(crate) fn why_away(&self, id: DriveId) -> String {
        match self.replaced(id) {
            Some(place) => format!("another drive answers at {place} in its place"),
            None if self.absent.is_empty() => "each address that was named answers as another drive".to_owned(),
            None => {
                let why: Vec<&str> = self.absent.iter().map(|absent| absent.fault.message.as_str()).collect();
                why.join("; ")
            }
        }
    }

    /// The drives at whose addresses another one may be by now: those that failed a moment ago, and those that are in the place
    /// of one that may come back.
    fn to_greet_again(&self) -> Vec<Arc<dyn Door>> {
        let again = self.reached.iter().filter(|drive| self.suspects.has(drive.id()) || self.is_in_place(drive));
        again.map(|drive| Arc::clone(&drive.door)).collect()
    }

    /// Whether a drive is in the place of another one that was reached before.
    pub(crate) fn is_in_place(&self, drive: &ConnectedDrive) -> bool {
        self.replaced.values().any(|place| place == drive.label())
    }

    /// Puts a drive where it has answered. Another one that was reached there before is not there any more.
    fn put(&mut self, drive: ConnectedDrive) -> Result<(), Fault> {
        let place = drive.label().to_owned();
        let is_here = |known: &ConnectedDrive| known.label() == place;
        let former = self.reached.iter().find(|known| is_here(known)).map(ConnectedDrive::id);
        if former == Some(drive.id()) {
            return Ok(());
        }
        let mut reached: Vec<ConnectedDrive> = self.reached.iter().filter(|known| !is_here(known)).cloned().collect();
        if let Some(former) = former {
            tracing::warn!("drive {} answers at {place} in place of drive {former}", drive.id());
            self.replaced.insert(former, place.clone());
            self.reached = reached.clone();
        }
        reached.push(drive.clone());
        match in_order(reached) {
            Ok(reached) => {
                self.reached = reached;
                self.replaced.remove(&drive.id());
                self.absent.retain(|absent| absent.door.label() != place);
                Ok(())
            }
            Err(fault) => {
                // Tried again, as the other one may be about to move.
                if former.is_some() {
                    self.absent.push(AbsentDrive { door: drive.door, fault: fault.clone() });
                }
                Err(fault)
            }
        }
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
pub struct Suspects(Arc<Mutex<HashMap<DriveId, Instant>>>);

impl Suspects {
    /// A drive has failed just now.
    pub fn add(&self, id: DriveId) {
        self.0.lock().insert(id, Instant::now());
    }

    /// Whether a drive failed a moment ago.
    pub fn has(&self, id: DriveId) -> bool {
        self.0.lock().get(&id).is_some_and(|since| since.elapsed() < SUSPECT_FOR)
    }
}

/// The drives as they come and go.
#[derive(Debug)]
pub(crate) struct Connections {
    known: Arc<GreetedDrives>,
    /// The functions that the host may ask for. What a drive lacks of them is not asked of it.
    functions: Arc<[String]>,
    tried: Mutex<Instant>,
    /// Drives that manifests name and that are not reached, and when they were last sought where others are.
    sought: Mutex<BTreeMap<DriveId, Instant>>,
    /// Wait for answers; they end with this.
    tasks: Mutex<JoinSet<()>>,
}

/// The drives that have answered, which grow when a late answer to a greeting comes, and change when a drive is put in the
/// place of another one.
#[derive(Debug)]
struct GreetedDrives {
    now: Mutex<Arc<Drives>>,
    /// Greetings that were not answered yet.
    greetings: watch::Sender<usize>,
}

/// A drive's answer to a greeting, and its place among those that were greeted.
type Answered = (usize, Arc<dyn Door>, Result<Welcome, Fault>);

impl Connections {
    /// Says hello to all drives at once. A drive that does not answer is tried again later, as long as another one answers. A drive
    /// that does not fit is an error. Nobody waits here for a drive that takes much longer than another: see [`Self::settled`].
    pub(crate) async fn open(doors: Vec<Arc<dyn Door>>, functions: &[String]) -> Result<Self, Fault> {
        if doors.is_empty() {
            return Err(Fault::invalid("expected at least one drive"));
        }
        let functions: Arc<[String]> = functions.into();
        let mut greetings = greet_all(doors.iter().cloned(), &functions, GREET_WAIT);
        let answers = first_answers(&mut greetings, doors.len()).await?;
        let (mut reached, mut absent, mut faults) = (Vec::new(), Vec::new(), Vec::new());
        for (door, answer) in doors.into_iter().zip(answers) {
            match answer {
                Some(Ok(welcome)) => reached.push(ConnectedDrive::met(door, welcome)),
                Some(Err(fault)) if fault.blame == Blame::Device => absent.push(AbsentDrive { door, fault }),
                Some(Err(fault)) => faults.push((door.label().to_owned(), fault)),
                None => absent.push(AbsentDrive { fault: no_answer(HEDGE_WAIT).at_drive(door.label()), door }),
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
        let drives = Drives { reached: in_order(reached)?, absent, ..Drives::default() };
        let known = Arc::new(GreetedDrives { now: Mutex::new(Arc::new(drives)), greetings: watch::Sender::new(0) });
        let tried = Mutex::new(Instant::now());
        let fleet = Self { known, functions, tried, sought: Mutex::default(), tasks: Mutex::default() };
        fleet.await_answers(greetings);
        Ok(fleet)
    }

    /// The drives as they are known.
    pub(crate) fn now(&self) -> Arc<Drives> {
        Arc::clone(&self.known.now.lock())
    }

    /// The same, after the missing drives were tried again, unless that was just now. A drive that does not answer at once is not
    /// waited for.
    pub(crate) async fn glanced(&self) -> Arc<Drives> {
        if self.try_again() {
            let _ = tokio::time::timeout(GLANCE_WAIT, self.known.all_answered()).await;
        }
        self.now()
    }

    /// The same, after every drive that was asked has answered, or has had its time.
    pub(crate) async fn settled(&self) -> Arc<Drives> {
        self.try_again();
        self.known.all_answered().await;
        self.now()
    }

    /// Whether a drive may still answer that is not here.
    pub(crate) fn is_waiting(&self) -> bool {
        *self.known.greetings.borrow() > 0
    }

    /// Greets one more drive. One that is known already is no error.
    pub(crate) async fn join(&self, door: Arc<dyn Door>) -> Result<ConnectedDrive, Fault> {
        let welcome = greet_within(door.as_ref(), &self.functions, GREET_WAIT).await?;
        if let Some(known) = self.now().find(welcome.drive) {
            return match known.door.label() == door.label() {
                true => Ok(known.clone()),
                false => Err(same_drive(known, door.label())),
            };
        }
        let drive = ConnectedDrive::met(door, welcome);
        self.known.add(drive.clone())?;
        Ok(drive)
    }

    /// The same, after those that failed a moment ago have said who they are, or have had their time: another drive may be in
    /// the place of one by now.
    pub(crate) async fn looked_at_again(&self) -> Arc<Drives> {
        let again = self.now().to_greet_again();
        self.known.note_all(greet_all(again.into_iter(), &self.functions, RETRY_WAIT), |_| {}).await;
        self.settled().await
    }

    /// Greets those that are missing, unless that was just now, or goes on. Whether it was begun. Those that failed a moment
    /// ago are greeted, too, and not waited for.
    fn try_again(&self) -> bool {
        let now = self.now();
        let again = now.to_greet_again();
        if (now.absent.is_empty() && again.is_empty()) || self.is_waiting() || !self.is_due() {
            return false;
        }
        self.look(again);
        self.await_answers(greet_all(now.absent.iter().map(|drive| Arc::clone(&drive.door)), &self.functions, RETRY_WAIT));
        !now.absent.is_empty()
    }

    /// Looks for drives that a manifest names and that are not reached: another host may have put one in the place of one that
    /// was, which nothing of this host has asked since. Nobody waits for that.
    pub(crate) fn seek(&self, ids: &[DriveId]) {
        let (drives, now) = (self.now(), Instant::now());
        let mut sought = self.sought.lock();
        sought.retain(|id, since| drives.find(*id).is_none() && now.duration_since(*since) < SEEK_INTERVAL);
        let new: Vec<DriveId> =
            ids.iter().filter(|id| drives.find(**id).is_none() && !sought.contains_key(id)).copied().collect();
        if !new.is_empty() {
            sought.extend(new.into_iter().map(|id| (id, now)));
            self.look(drives.all().iter().map(|drive| Arc::clone(&drive.door)).collect());
        }
    }

    /// Asks who is behind doors, and goes on.
    fn look(&self, doors: Vec<Arc<dyn Door>>) {
        if doors.is_empty() {
            return;
        }
        let greetings = greet_all(doors.into_iter(), &self.functions, RETRY_WAIT);
        let known = Arc::clone(&self.known);
        self.spawn(async move { known.note_all(greetings, |_| {}).await });
    }

    /// Takes note of answers as they come.
    fn await_answers(&self, greetings: JoinSet<Answered>) {
        if greetings.is_empty() {
            return;
        }
        self.known.greetings.send_modify(|waiting| *waiting += greetings.len());
        let known = Arc::clone(&self.known);
        let count = |known: &GreetedDrives| known.greetings.send_modify(|waiting| *waiting -= 1);
        self.spawn(async move { known.note_all(greetings, count).await });
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.tasks.lock();
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task);
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

impl GreetedDrives {
    /// Takes note of answers as they come, and tells after each.
    async fn note_all(&self, mut greetings: JoinSet<Answered>, noted: impl Fn(&Self)) {
        while let Some(answered) = greetings.join_next().await {
            match answered {
                Ok((_, door, answer)) => self.note(door, answer),
                Err(error) => tracing::error!(%error, "a greeting ended early"),
            }
            noted(self);
        }
    }

    /// A drive's answer has come.
    fn note(&self, door: Arc<dyn Door>, answer: Result<Welcome, Fault>) {
        let noted = match answer {
            Ok(welcome) => self.add(ConnectedDrive::met(door, welcome)),
            Err(fault) if fault.blame == Blame::Device => {
                self.note_absent(door.label(), fault);
                Ok(())
            }
            Err(fault) => Err(fault),
        };
        if let Err(fault) = noted {
            tracing::warn!("a drive is left out: {}", fault.message);
        }
    }

    fn add(&self, drive: ConnectedDrive) -> Result<(), Fault> {
        let mut now = self.now.lock();
        if now.find(drive.id()).is_none() {
            tracing::info!(drive = drive.label(), "reached");
        }
        let mut drives = Drives::clone(&now);
        let put = drives.put(drive);
        *now = Arc::new(drives);
        put
    }

    /// Why a drive is not there.
    fn note_absent(&self, label: &str, fault: Fault) {
        let mut now = self.now.lock();
        let mut drives = Drives::clone(&now);
        if let Some(absent) = drives.absent.iter_mut().find(|absent| absent.door.label() == label) {
            absent.fault = fault;
        }
        *now = Arc::new(drives);
    }

    async fn all_answered(&self) {
        // The sender is here, so that this cannot fail.
        let _ = self.greetings.subscribe().wait_for(|waiting| *waiting == 0).await;
    }
}

fn greet_all(doors: impl Iterator<Item = Arc<dyn Door>>, functions: &Arc<[String]>, limit: Duration) -> JoinSet<Answered> {
    let mut greetings = JoinSet::new();
    for (index, door) in doors.enumerate() {
        let functions = Arc::clone(functions);
        greetings.spawn(async move {
            let answer = greet_within(door.as_ref(), &functions, limit).await;
            (index, door, answer)
        });
    }
    greetings
}

/// The answers of so many drives: all of them, or those that came up to [`HEDGE_WAIT`] after the first drive was reached.
async fn first_answers(greetings: &mut JoinSet<Answered>, count: usize) -> Result<Vec<Option<Result<Welcome, Fault>>>, Fault> {
    let mut answers = vec![None; count];
    let mut until: Option<tokio::time::Instant> = None;
    loop {
        let next = greetings.join_next();
        let answered = match until {
            None => next.await,
            Some(until) => tokio::time::timeout_at(until, next).await.unwrap_or_default(),
        };
        let Some(answered) = answered else { return Ok(answers) };
        let (index, _, answer) = answered.map_err(Fault::bug)?;
        if answer.is_ok() {
            until.get_or_insert_with(|| tokio::time::Instant::now() + HEDGE_WAIT);
        }
        answers[index] = Some(answer);
    }
}

/// A drive that does not answer.
pub fn no_answer(limit: Duration) -> Fault {
    Fault::new(Blame::Device, format!("no answer within {} s", limit.as_secs()))
}

async fn greet_within(door: &dyn Door, functions: &[String], limit: Duration) -> Result<Welcome, Fault> {
    let answer = tokio::time::timeout(limit, greet(door, functions)).await.unwrap_or_else(|_| Err(no_answer(limit)));
    answer.map_err(|fault| fault.at_drive(door.label()))
}

async fn greet(door: &dyn Door, functions: &[String]) -> Result<Welcome, Fault> {
    let extensions = functions.to_vec();
    let hello = Hello { protocol: PROTOCOL_VERSION, release: env!("CARGO_PKG_VERSION").to_owned(), extensions };
    let welcome = door.hello(hello.clone()).await?;
    check_hello(&hello, &welcome)?;
    Ok(welcome)
}

/// Sorts the drives, and refuses one that is there twice, as itself or beneath an array.
fn in_order(drives: Vec<ConnectedDrive>) -> Result<Vec<ConnectedDrive>, Fault> {
    let mut by_id: BTreeMap<DriveId, ConnectedDrive> = BTreeMap::new();
    for drive in drives {
        if let Some(other) = by_id.get(&drive.id()) {
            return Err(same_drive(other, drive.label()));
        }
        by_id.insert(drive.id(), drive);
    }
    refuse_beneath(&by_id)?;
    Ok(by_id.into_values().collect())
}

/// A drive that answers at another place, too.
fn same_drive(drive: &ConnectedDrive, place: &str) -> Fault {
    Fault::invalid(format!("{} and {place} are the same drive {}", drive.label(), drive.id()))
        .hint("name it once; a copied directory is the same drive: start a new one on an empty directory")
}

/// Refuses a drive that stands beneath an array of them, and two arrays above one drive: both ways lead to the same rows.
fn refuse_beneath(drives: &BTreeMap<DriveId, ConnectedDrive>) -> Result<(), Fault> {
    let mut arrays: BTreeMap<DriveId, &ConnectedDrive> = BTreeMap::new();
    for array in drives.values() {
        for id in &array.welcome.beneath {
            let other = drives.get(id).or_else(|| arrays.insert(*id, array));
            if let Some(other) = other.filter(|other| other.id() != array.id()) {
                return Err(stands_beneath(&array.welcome, *id, Some(other)));
            }
        }
    }
    Ok(())
}

/// A drive that is to be used beside the array that it stands beneath, by itself or through another array.
pub(crate) fn stands_beneath(array: &Welcome, id: DriveId, other: Option<&ConnectedDrive>) -> Fault {
    let what = match other {
        Some(other) if other.id() == id => format!("drive {id} ({})", other.label()),
        Some(other) => format!("drive {id} of array {}", other.label()),
        None => format!("drive {id}"),
    };
    Fault::invalid(format!("{what} stands beneath array {}, which has rows of its own there", array.drive))
        .hint("leave one of them out: what lies on drives beneath an array is loaded, read and moved through the array")
}
