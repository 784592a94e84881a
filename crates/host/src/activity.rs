//! [`Activity`]: the statements that run, and the last ones that ended, for who wants to see them.
//!
//! Nothing is kept until somebody asks for it by [`Activity::follow`]: plans and texts of ended statements take memory.

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use arrow::array::RecordBatch;
use futures::StreamExt;
use futures::stream::BoxStream;
use parking_lot::Mutex;
use pithead_entry::{Identity, Right};
use pithead_model::{Blame, Fault};
use pithead_remote::QueryProfile;
use tokio::sync::watch;

use crate::figures::{PlanLine, StatementFigures, handed};
use crate::query::{Prepared, Query};
use crate::{Client, Commitment, energy, explain};

/// Ended statements that are kept.
const ENDED_MAX: usize = 100;
/// Most bytes of a statement's text that are kept.
const TEXT_BYTES_MAX: usize = 16 << 10;
/// Most lines of an ended statement's plan that are kept, and bytes of each.
const PLAN_LINES_MAX: usize = 1_000;
const LINE_BYTES_MAX: usize = 1 << 10;

/// Rows of a statement, so that they can be dropped from outside.
pub(crate) type SharedRows = Arc<Mutex<BoxStream<'static, Result<RecordBatch, Fault>>>>;

/// The statements of a host.
#[derive(Default)]
pub struct Activity {
    is_followed: AtomicBool,
    kept: Mutex<ActivityLog>,
}

/// The statements that run, the last ones that ended, and the totals of all.
#[derive(Default)]
struct ActivityLog {
    last: u64,
    running: BTreeMap<u64, Arc<Followed>>,
    /// The newest last.
    ended: VecDeque<Arc<Followed>>,
    ended_count: u64,
    ended_rows: u64,
    ended_figures: StatementFigures,
}

/// What all statements have cost so far, since they are followed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ActivityTotals {
    /// Statements that have ended.
    pub ended: u64,
    /// Rows that clients were given.
    pub rows: u64,
    /// What they cost, those that run among them.
    pub figures: StatementFigures,
}

/// A statement that is followed.
pub struct Followed {
    /// Its number, from 1 on.
    pub id: u64,
    /// `query`, `explain`, `set` and so on.
    pub kind: &'static str,
    /// Its text, of a long one the beginning.
    pub sql: String,
    /// As whom its client is known; none: it is the host's own.
    pub user: Option<String>,
    /// The number of its client's connection, as [`Client::process`]; 0: it has none.
    pub connection: i64,
    /// When it came.
    pub began: SystemTime,
    started: Instant,
    owner: Option<Arc<Identity>>,
    rows_given: AtomicU64,
    commitment: Arc<Commitment>,
    cancel: watch::Sender<bool>,
    run: Mutex<Run>,
}

#[derive(Default)]
struct Run {
    profile: Option<Arc<QueryProfile>>,
    planned: Option<(Arc<Query>, Arc<Prepared>)>,
    rows: Option<SharedRows>,
    end: Option<End>,
}

/// How a statement ended.
#[derive(Clone, Debug)]
struct End {
    ending: Ending,
    figures: StatementFigures,
    plan: Vec<PlanLine>,
}

/// How and when a statement ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Ending {
    /// `ok`, or in one word by whose doing it failed.
    pub outcome: &'static str,
    /// What went wrong.
    pub fault: Option<String>,
    /// How long it took.
    pub took: Duration,
}

impl Activity {
    /// From now on statements are followed.
    pub fn follow(&self) {
        self.is_followed.store(true, Ordering::Relaxed);
    }

    /// Statements that run, the oldest first.
    pub fn running(&self) -> Vec<Arc<Followed>> {
        self.kept.lock().running.values().cloned().collect()
    }

    /// Statements that ended, the last one first.
    pub fn ended(&self) -> Vec<Arc<Followed>> {
        self.kept.lock().ended.iter().rev().cloned().collect()
    }

    /// A statement that runs, or ended lately.
    pub fn find(&self, id: u64) -> Option<Arc<Followed>> {
        let kept = self.kept.lock();
        kept.running.get(&id).or_else(|| kept.ended.iter().find(|followed| followed.id == id)).cloned()
    }

    /// What all have cost so far.
    pub fn totals(&self) -> ActivityTotals {
        let (mut totals, running) = {
            let kept = self.kept.lock();
            let totals = ActivityTotals { ended: kept.ended_count, rows: kept.ended_rows, figures: kept.ended_figures };
            (totals, kept.running.values().cloned().collect::<Vec<_>>())
        };
        for followed in running {
            totals.rows = totals.rows.saturating_add(followed.rows());
            totals.figures.add(&followed.figures());
        }
        totals
    }

    /// A statement begins; none: nobody follows such statements.
    pub(crate) fn begin(
        &self,
        kind: &'static str,
        sql: &str,
        client: Option<&Client>,
        commitment: &Arc<Commitment>,
    ) -> Option<Arc<Followed>> {
        // Drivers send SET in numbers, and it costs nothing.
        if kind == "set" || !self.is_followed.load(Ordering::Relaxed) {
            return None;
        }
        let mut kept = self.kept.lock();
        kept.last += 1;
        let followed = Arc::new(Followed {
            id: kept.last,
            kind,
            sql: shortened(&without_secrets(sql), TEXT_BYTES_MAX),
            user: client.map(|client| client.user.clone()),
            connection: client.map_or(0, |client| client.process),
            began: SystemTime::now(),
            started: Instant::now(),
            owner: client.map(|client| Arc::clone(&client.caller)),
            rows_given: AtomicU64::new(0),
            commitment: Arc::clone(commitment),
            cancel: watch::Sender::new(false),
            run: Mutex::default(),
        });
        kept.running.insert(followed.id, Arc::clone(&followed));
        Some(followed)
    }

    /// A statement that was begun ends.
    pub(crate) fn end(&self, followed: &Arc<Followed>, ending: Ending) {
        let figures = followed.figures();
        let plan = followed.plan();
        let freed = {
            let mut run = followed.run.lock();
            run.end = Some(End { ending, figures, plan });
            (run.planned.take(), run.profile.take(), run.rows.take())
        };
        // May take a while, and nobody else needs to wait for it.
        drop(freed);
        let mut kept = self.kept.lock();
        kept.running.remove(&followed.id);
        kept.ended_count += 1;
        kept.ended_rows = kept.ended_rows.saturating_add(followed.rows());
        kept.ended_figures.add(&figures);
        kept.ended.push_back(Arc::clone(followed));
        if kept.ended.len() > ENDED_MAX {
            kept.ended.pop_front();
        }
    }
}

impl Followed {
    /// Whether somebody may see and cancel it: it is the caller's own, or the caller may administer all domains, whatever the
    /// statement names.
    pub fn is_shown_to(&self, caller: &Identity) -> bool {
        let is_own = self.owner.as_ref().is_some_and(|owner| owner.number() == caller.number());
        is_own || caller.may_all(Right::Administer)
    }

    /// Rows that its client was given so far.
    pub fn rows(&self) -> u64 {
        self.rows_given.load(Ordering::Relaxed)
    }

    /// How it ended; none: it runs.
    pub fn ending(&self) -> Option<Ending> {
        self.run.lock().end.as_ref().map(|end| end.ending.clone())
    }

    /// For how long it has run, or ran.
    pub fn took(&self) -> Duration {
        self.run.lock().end.as_ref().map_or_else(|| self.started.elapsed(), |end| end.ending.took)
    }

    /// What it cost so far.
    pub fn figures(&self) -> StatementFigures {
        let (profile, planned) = {
            let run = self.run.lock();
            if let Some(end) = &run.end {
                return end.figures;
            }
            (run.profile.clone(), run.planned.clone())
        };
        let Some(profile) = profile else { return StatementFigures::default() };
        let device = planned.and_then(|(query, _)| energy::profile(&query.settings.device).ok().flatten());
        let parts = || profile.sub_plans().into_iter();
        let joules = device.and_then(|device| parts().filter_map(|part| energy::joules(&device, &part)).reduce(|a, b| a + b));
        StatementFigures { joules, ..StatementFigures::of(&profile) }
    }

    /// What each drive has sent so far, by its address: rows, and bytes of their batches.
    pub fn drives(&self) -> BTreeMap<String, (u64, u64)> {
        let profile = self.run.lock().profile.clone();
        let mut drives = BTreeMap::new();
        for session in profile.iter().flat_map(|profile| profile.sub_plans()).flat_map(|sub_plan| sub_plan.sessions()) {
            let (rows, bytes): &mut (u64, u64) = drives.entry(session.label.clone()).or_default();
            (*rows, *bytes) = (rows.saturating_add(session.rows_out()), bytes.saturating_add(handed(&session)));
        }
        drives.remove("");
        drives
    }

    /// Its plan, with what each part cost so far. Empty where it has none: it is no query, or did not come so far.
    pub fn plan(&self) -> Vec<PlanLine> {
        let planned = {
            let run = self.run.lock();
            if let Some(end) = &run.end {
                return end.plan.clone();
            }
            run.planned.clone()
        };
        let mut lines = planned.map_or_else(Vec::new, |(query, prepared)| explain::so_far(&query, &prepared));
        lines.truncate(PLAN_LINES_MAX);
        for line in lines.iter_mut().filter(|line| line.text.len() > LINE_BYTES_MAX) {
            line.text = shortened(&line.text, LINE_BYTES_MAX);
        }
        lines
    }

    /// Ends it. What it has at drives is closed at once, unless an operator has the thread: then as soon as that comes to a pause. One
    /// that has sent what it changes goes on. Whether it ends.
    pub fn cancel(&self) -> bool {
        if !self.commitment.cancel(cancelled_by_another()) {
            return false;
        }
        self.cancel.send_replace(true);
        let rows = self.run.lock().rows.clone();
        // A client that takes no rows would keep them. Whoever has the lock looks for the cancellation next.
        if let Some(mut rows) = rows.as_ref().and_then(|rows| rows.try_lock()) {
            *rows = futures::stream::empty().boxed();
        }
        true
    }

    /// Whether somebody cancelled it.
    pub fn is_cancelled(&self) -> bool {
        *self.cancel.borrow()
    }

    /// Ends once somebody cancels it.
    pub(crate) fn cancelled(&self) -> impl Future<Output = ()> + Send + 'static + use<> {
        let mut asked = self.cancel.subscribe();
        async move {
            // The sender goes with the statement, which then has nothing to be cancelled any more.
            if asked.wait_for(|asked| *asked).await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// It is planned, and what it costs is counted here.
    pub(crate) fn counts(&self, profile: &Arc<QueryProfile>) {
        self.run.lock().profile = Some(Arc::clone(profile));
    }

    /// It starts to run.
    pub(crate) fn runs(&self, planned: (Arc<Query>, Arc<Prepared>)) {
        self.run.lock().planned = Some(planned);
    }

    /// Its rows come from there.
    pub(crate) fn gives(&self, rows: &SharedRows) {
        self.run.lock().rows = Some(Arc::clone(rows));
    }

    /// Its client was given rows.
    pub(crate) fn given(&self, rows: u64) {
        self.rows_given.fetch_add(rows, Ordering::Relaxed);
    }
}

/// Runs what answers a statement, unless somebody cancels the statement before.
pub(crate) async fn unless_cancelled<T>(
    followed: Option<Arc<Followed>>,
    answer: impl Future<Output = Result<T, Fault>>,
) -> Result<T, Fault> {
    let Some(followed) = followed else { return answer.await };
    tokio::select! {
        answer = answer => answer,
        () = followed.cancelled() => Err(cancelled_by_another()),
    }
}

/// What a client is told whose statement somebody cancelled at the host.
pub(crate) fn cancelled_by_another() -> Fault {
    Fault::new(Blame::Cancelled, "the statement was cancelled at the host, by an operator or by its user")
}

/// A text whose URLs have neither a user with a password nor what follows `?`: a signature may be in it.
pub(crate) fn without_secrets(text: &str) -> Cow<'_, str> {
    if !text.contains("://") {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, url)) = rest.split_once("://") {
        let end = url.find(|other: char| other.is_whitespace() || matches!(other, '\'' | '"')).unwrap_or(url.len());
        let (url, after) = url.split_at(end);
        let (place, has_query) = url.split_once('?').map_or((url, false), |(place, _)| (place, true));
        let authority = place.find('/').unwrap_or(place.len());
        let place = place[..authority].rfind('@').map_or(place, |at| &place[at + 1..]);
        shown.extend([before, "://", place, if has_query { "?…" } else { "" }]);
        rest = after;
    }
    shown.push_str(rest);
    Cow::Owned(shown)
}

/// The beginning of a text.
fn shortened(text: &str, bytes_max: usize) -> String {
    let mut end = text.len().min(bytes_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    if end == text.len() { text.to_owned() } else { format!("{}…", &text[..end]) }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn client(caller: Identity) -> Client {
        Client { user: caller.name.clone(), caller: Arc::new(caller), process: 0, shown: Arc::new(|_: &str| None) }
    }

    fn begin(activity: &Activity, kind: &'static str, sql: &str, client: Option<&Client>) -> Option<Arc<Followed>> {
        activity.begin(kind, sql, client, &Arc::default())
    }

    fn ok(followed: &Followed) -> Ending {
        Ending { outcome: "ok", fault: None, took: followed.took() }
    }

    #[test]
    fn nothing_is_kept_until_somebody_follows() {
        let activity = Activity::default();
        assert!(begin(&activity, "query", "SELECT 1", None).is_none());
        activity.follow();
        let followed = begin(&activity, "query", "SELECT 1", None).unwrap();
        followed.given(3);
        assert_eq!((activity.running().len(), activity.ended().len(), activity.totals().rows), (1, 0, 3));
        activity.end(&followed, ok(&followed));
        assert_eq!((activity.running().len(), activity.ended().len(), activity.totals().ended), (0, 1, 1));
        assert_eq!(activity.find(followed.id).unwrap().ending().unwrap().outcome, "ok");
    }

    #[test]
    fn urls_are_shown_without_what_may_be_secret() {
        let text = "COPY t FROM 'https://me:word@host:1/a@b.csv?X-Sig=abc' (FORMAT csv); COPY u FROM 's3://b/k'";
        let shown = "COPY t FROM 'https://host:1/a@b.csv?…' (FORMAT csv); COPY u FROM 's3://b/k'";
        assert_eq!(without_secrets(text), shown);
        for same in ["SELECT '?' || a", "SELECT 'a://' FROM t", "://", "é://é"] {
            assert_eq!(without_secrets(same), same);
        }
    }

    #[test]
    fn few_are_kept_and_long_texts_are_cut() {
        let activity = Activity::default();
        activity.follow();
        for _ in 0..ENDED_MAX + 5 {
            let followed = begin(&activity, "query", &"é".repeat(TEXT_BYTES_MAX), None).unwrap();
            assert!(followed.sql.len() <= TEXT_BYTES_MAX + "…".len());
            activity.end(&followed, ok(&followed));
        }
        let ended = activity.ended();
        assert_eq!((ended.len(), ended[0].id, activity.find(5).is_none()), (ENDED_MAX, ENDED_MAX as u64 + 5, true));
    }

    #[test]
    fn who_administers_all_sees_those_of_others() {
        let (ann, boss) = (Identity::unlimited("ann"), Identity::unlimited("boss"));
        let activity = Activity::default();
        activity.follow();
        let own = begin(&activity, "query", "SELECT 1", Some(&client(ann.clone()))).unwrap();
        let of_host = begin(&activity, "query", "SELECT 1", None).unwrap();
        assert!(own.is_shown_to(&ann) && own.is_shown_to(&boss) && of_host.is_shown_to(&boss));
        assert!(own.is_shown_to(&Identity::anyone()));
    }

    #[tokio::test]
    async fn who_cancels_ends_it_and_frees_its_rows() {
        let activity = Activity::default();
        activity.follow();
        let followed = begin(&activity, "query", "SELECT 1", None).unwrap();
        let rows: SharedRows = Arc::new(Mutex::new(futures::stream::pending().boxed()));
        followed.gives(&rows);
        let answer = unless_cancelled(Some(Arc::clone(&followed)), std::future::pending::<Result<(), Fault>>());
        assert!(followed.cancel());
        assert_eq!(answer.await.unwrap_err().blame, Blame::Cancelled);
        let mut rows = std::mem::replace(&mut *rows.lock(), futures::stream::pending().boxed());
        assert!(rows.next().await.is_none());
    }

    #[tokio::test]
    async fn who_cancels_what_has_sent_its_change_comes_too_late() {
        let (activity, commitment) = (Activity::default(), Arc::<Commitment>::default());
        activity.follow();
        let followed = activity.begin("write", "INSERT INTO t VALUES (1)", None, &commitment).unwrap();
        let rows: SharedRows = Arc::new(Mutex::new(futures::stream::pending().boxed()));
        followed.gives(&rows);
        let answer = unless_cancelled(Some(Arc::clone(&followed)), async {
            commitment.send()?;
            assert!(!followed.cancel());
            tokio::task::yield_now().await;
            Ok(1)
        });
        assert_eq!(answer.await, Ok(1));
        assert!(!followed.is_cancelled() && rows.lock().next().now_or_never().is_none(), "its rows are there still");
    }
}
