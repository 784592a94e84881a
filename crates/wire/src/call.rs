//! The unary calls: Flight actions with JSON bodies.

use arrow_flight::Action;
use bytes::Bytes;
use pithead_door::{BackgroundOrder, check_protocol};
use pithead_door::{CLAIMED_MAX, Claim, Discard, FunctionAsk, Hello, HistoryAsk, MERGED_MAX, MarkRun, MergeRuns, Welcome};
use pithead_door::{check_columns, check_module_name};
use pithead_model::{
    COPIES_MAX, Dataset, FUNCTIONS_MAX, HostState, Manifest, PARTITIONS_MAX, PROTOCOL_VERSION, SessionId, SliceKey, VIEWS_MAX,
};
use serde::{Deserialize, Serialize};

use crate::error::WireError;
use crate::json::{from_json, json};
use crate::run::check_name;

/// A unary call, by the type of its Flight action.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Call {
    Hello(Hello),
    Poll(SessionId),
    Close(SessionId),
    Tell(Tell),
    Status,
    Manifest(String),
    HasManifest(DomainVersion),
    Attached(Option<u64>),
    Commit(Commit),
    Keep(Manifest),
    Aside(DomainVersion),
    DropAside(DomainVersion),
    History(HistoryAsk),
    PastManifest(DomainVersion),
    ForgetHistory(String),
    Directory(SliceKey),
    Discard(Discard),
    Claim(Claim),
    Sessions,
    Kill(SessionId),
    Merge(MergeRuns),
    Mark(MarkRun),
    Modules,
    RemoveModule(String),
    Background(BackgroundOrder),
    Function(FunctionAsk),
}

/// Body of `tell`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Tell {
    pub(crate) session: SessionId,
    pub(crate) state: HostState,
}

/// Body of `commit`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Commit {
    pub(crate) expected: u64,
    pub(crate) manifest: Manifest,
}

/// Body of `has-manifest` and `past-manifest`; of `aside`, which is answered with the first manifest after the version, and of
/// `drop-aside`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct DomainVersion {
    pub(crate) domain: String,
    pub(crate) version: u64,
}

/// What every release can read of another's hello.
#[derive(Deserialize)]
struct Versions {
    protocol: u32,
    #[serde(default)]
    release: String,
}

impl Call {
    /// The types of action that there are, each with what it is for.
    pub(crate) const KINDS: [(&'static str, &'static str); 25] = [
        ("hello", "first contact: versions, extensions, encodings"),
        ("poll", "where a session stands"),
        ("close", "ends a session"),
        ("tell", "how a session's host is"),
        ("status", "how the drive is"),
        ("manifest", "a domain's manifest"),
        ("attached", "the datasets over files that the drive did not write"),
        ("commit", "replaces a domain's manifest"),
        ("keep", "keeps a copy of a domain's manifest"),
        ("aside", "a manifest of a former home that is set aside"),
        ("drop-aside", "drops a manifest that is set aside"),
        ("history", "versions of a domain that are kept"),
        ("past-manifest", "the manifest of a version that is kept"),
        ("forget-history", "forgets the versions of a domain but the last one"),
        ("directory", "the metadata slice of a load"),
        ("discard", "deletes what loads left"),
        ("claim", "protects runs that a manifest is about to name"),
        ("sessions", "the sessions that are open"),
        ("kill", "ends somebody's session"),
        ("merge", "writes the rows of several runs as one run"),
        ("mark", "writes what is left of a run without some of its rows"),
        ("modules", "the modules of SSDlets that the drive keeps"),
        ("remove-module", "deletes a module"),
        ("background", "how background services and cores are, and what they are told"),
        ("function", "the module of a function of SQL"),
    ];

    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Call::Hello(_) => "hello",
            Call::Poll(_) => "poll",
            Call::Close(_) => "close",
            Call::Tell(_) => "tell",
            Call::Status => "status",
            Call::Manifest(_) => "manifest",
            Call::HasManifest(_) => "has-manifest",
            Call::Attached(_) => "attached",
            Call::Commit(_) => "commit",
            Call::Keep(_) => "keep",
            Call::Aside(_) => "aside",
            Call::DropAside(_) => "drop-aside",
            Call::History(_) => "history",
            Call::PastManifest(_) => "past-manifest",
            Call::ForgetHistory(_) => "forget-history",
            Call::Directory(_) => "directory",
            Call::Discard(_) => "discard",
            Call::Claim(_) => "claim",
            Call::Sessions => "sessions",
            Call::Kill(_) => "kill",
            Call::Merge(_) => "merge",
            Call::Mark(_) => "mark",
            Call::Modules => "modules",
            Call::RemoveModule(_) => "remove-module",
            Call::Background(_) => "background",
            Call::Function(_) => "function",
        }
    }

    pub(crate) fn action(&self) -> Result<Action, WireError> {
        let body = match self {
            Call::Hello(hello) => json(hello)?,
            Call::Poll(session) | Call::Close(session) | Call::Kill(session) => json(session)?,
            Call::Tell(tell) => json(tell)?,
            Call::Status | Call::Sessions | Call::Modules => Bytes::new(),
            Call::Manifest(name) | Call::RemoveModule(name) | Call::ForgetHistory(name) => json(name)?,
            Call::History(ask) => json(ask)?,
            Call::Commit(commit) => json(commit)?,
            Call::Keep(manifest) => json(manifest)?,
            Call::HasManifest(at) | Call::Aside(at) | Call::DropAside(at) | Call::PastManifest(at) => json(at)?,
            Call::Attached(known) => json(known)?,
            Call::Directory(key) => json(key)?,
            Call::Discard(discard) => json(discard)?,
            Call::Claim(claim) => json(claim)?,
            Call::Merge(request) => json(request)?,
            Call::Mark(request) => json(request)?,
            Call::Background(order) => json(order)?,
            Call::Function(ask) => json(ask)?,
        };
        Ok(Action::new(self.kind(), body))
    }

    pub(crate) fn parse(action: &Action) -> Result<Call, WireError> {
        let body = &action.body;
        Ok(match action.r#type.as_str() {
            "hello" => Call::Hello(parse_hello(body)?),
            "poll" => Call::Poll(from_json("session id", body)?),
            "close" => Call::Close(from_json("session id", body)?),
            "tell" => Call::Tell(from_json("state of a host", body)?),
            "status" => Call::Status,
            "manifest" => Call::Manifest(from_json("domain's name", body)?),
            "has-manifest" => Call::HasManifest(from_json("version of a manifest", body)?),
            "attached" => Call::Attached(from_json("version of attached datasets", body)?),
            "commit" => Call::Commit(parse_commit(body)?),
            "keep" => Call::Keep(parse_manifest(body)?),
            "aside" => Call::Aside(from_json("manifest set aside", body)?),
            "drop-aside" => Call::DropAside(from_json("manifest set aside", body)?),
            "history" => Call::History(from_json("question about versions", body)?),
            "past-manifest" => Call::PastManifest(from_json("version of a domain", body)?),
            "forget-history" => Call::ForgetHistory(from_json("domain's name", body)?),
            "directory" => Call::Directory(parse_key(body)?),
            "discard" => Call::Discard(parse_discard(body)?),
            "claim" => Call::Claim(parse_claim(body)?),
            "sessions" => Call::Sessions,
            "kill" => Call::Kill(from_json("session id", body)?),
            "merge" => Call::Merge(parse_merge(body)?),
            "mark" => Call::Mark(parse_mark(body)?),
            "modules" => Call::Modules,
            "remove-module" => Call::RemoveModule(parse_module_name(body)?),
            "background" => Call::Background(from_json("background order", body)?),
            "function" => Call::Function(from_json("request for a function", body)?),
            other => return Err(WireError::malformed("action", format!("{other:?} is not one; see ListActions"))),
        })
    }
}

fn parse_hello(body: &[u8]) -> Result<Hello, WireError> {
    // Versions first: another release's hello may differ in everything else.
    let host: Versions = from_json("hello", body)?;
    check_protocol((host.protocol, &host.release), (PROTOCOL_VERSION, env!("CARGO_PKG_VERSION")))?;
    from_json("hello", body)
}

pub(crate) fn parse_welcome(body: &[u8], hello: &Hello) -> Result<Welcome, WireError> {
    let drive: Versions = from_json("welcome", body)?;
    check_protocol((hello.protocol, &hello.release), (drive.protocol, &drive.release))?;
    from_json("welcome", body)
}

fn parse_commit(body: &[u8]) -> Result<Commit, WireError> {
    let commit: Commit = from_json("commit", body)?;
    check_manifest(&commit.manifest)?;
    Ok(commit)
}

fn parse_manifest(body: &[u8]) -> Result<Manifest, WireError> {
    let manifest = from_json("manifest", body)?;
    check_manifest(&manifest)?;
    Ok(manifest)
}

fn parse_key(body: &[u8]) -> Result<SliceKey, WireError> {
    let key: SliceKey = from_json("slice key", body)?;
    check_name(&key.name)?;
    Ok(key)
}

fn parse_discard(body: &[u8]) -> Result<Discard, WireError> {
    let discard: Discard = from_json("request to discard", body)?;
    check_name(&discard.name)?;
    Ok(discard)
}

fn parse_claim(body: &[u8]) -> Result<Claim, WireError> {
    let claim: Claim = from_json("claim", body)?;
    let wrong = |why: String| Err(WireError::malformed("claim", why));
    if claim.runs.len() > CLAIMED_MAX {
        return wrong(format!("{} runs; at most {CLAIMED_MAX} are allowed", claim.runs.len()));
    }
    let domain = claim.runs.first().map(|run| &run.name.domain);
    for run in &claim.runs {
        check_name(&run.name)?;
        if run.number.is_some() || Some(&run.name.domain) != domain {
            return wrong(format!("expected runs of one domain, got {run}"));
        }
    }
    Ok(claim)
}

fn parse_module_name(body: &[u8]) -> Result<String, WireError> {
    let name: String = from_json("module's name", body)?;
    check_module_name(&name)?;
    Ok(name)
}

fn parse_merge(body: &[u8]) -> Result<MergeRuns, WireError> {
    let request: MergeRuns = from_json("request to merge runs", body)?;
    check_name(&request.into.name)?;
    check_columns(&request.into.schema)?;
    if request.loads.len() > MERGED_MAX {
        let why = format!("{} runs; at most {MERGED_MAX} are allowed", request.loads.len());
        return Err(WireError::malformed("request to merge runs", why));
    }
    Ok(request)
}

fn parse_mark(body: &[u8]) -> Result<MarkRun, WireError> {
    let request: MarkRun = from_json("request to mark rows", body)?;
    check_name(&request.into.name)?;
    check_columns(&request.into.schema)?;
    Ok(request)
}

/// Checks a manifest that came from outside against its bounds.
pub(crate) fn check_manifest(manifest: &Manifest) -> Result<(), WireError> {
    let wrong = |name: &str, why: String| Err(WireError::malformed("manifest", format!("dataset {name:?}: {why}")));
    for (name, dataset) in &manifest.datasets {
        check_columns(&dataset.schema)?;
        let partitions = dataset.partitions.len();
        if partitions > PARTITIONS_MAX {
            return wrong(name, format!("{partitions} partitions; at most {PARTITIONS_MAX} are allowed"));
        }
        if !(1..=COPIES_MAX).contains(&dataset.copies) {
            return wrong(name, format!("copies = {}; expected 1 to {COPIES_MAX}", dataset.copies));
        }
        if let Some(why) = wrong_copies(dataset) {
            return wrong(name, why);
        }
    }
    if manifest.functions.len() > FUNCTIONS_MAX {
        let why = format!("{} functions; at most {FUNCTIONS_MAX} are allowed", manifest.functions.len());
        return Err(WireError::malformed("manifest", why));
    }
    if manifest.views.len() > VIEWS_MAX {
        let why = format!("{} views; at most {VIEWS_MAX} are allowed", manifest.views.len());
        return Err(WireError::malformed("manifest", why));
    }
    for (name, view) in &manifest.views {
        view.check(name)?;
        check_columns(&view.schema)?;
    }
    Ok(manifest.functions.iter().try_for_each(|(name, function)| function.check(name))?)
}

/// What is wrong with where a dataset's partitions are.
fn wrong_copies(dataset: &Dataset) -> Option<String> {
    dataset.partitions.iter().enumerate().find_map(|(number, partition)| {
        let copies = &partition.copies;
        if !(1..=COPIES_MAX).contains(&copies.len()) {
            return Some(format!("partition {number} is on {} drives; expected 1 to {COPIES_MAX}", copies.len()));
        }
        let twice = copies.iter().enumerate().find(|(index, drive)| copies.iter().take(*index).any(|other| other == *drive));
        twice.map(|(_, drive)| format!("partition {number} is on drive {drive} twice"))
    })
}
