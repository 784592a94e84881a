//! What the domains hold: a snapshot of their manifests for each statement.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use futures::future::{join, join_all};
use parking_lot::Mutex;
use pithead_model::{Blame, DatasetName, DriveId, Fault, Manifest};

use crate::attached::{AttachmentReport, LastTold, Overlay, Written};
use crate::checks::{CrossChecks, Reading};
use crate::drives::{ConnectedDrive, Drives};
use crate::former::FormerHomes;
use crate::homes::{HomeState, LocatedManifest, Use, find_homes, find_manifest, is_older, is_unchanged};
use crate::looking::Looking;
use crate::snapshot::{Domain, Snapshot};

/// Times that a manifest is looked for which other hosts change meanwhile.
const ATTEMPTS_MAX: usize = 5;

/// Knows the home of each domain, and keeps the last manifest of each, parsed.
#[derive(Debug)]
pub(crate) struct Catalog {
    default_domain: String,
    homes: Mutex<Homes>,
    looking: Arc<Looking>,
    checks: CrossChecks,
    former_homes: FormerHomes,
    /// The newest that this host has read or made.
    parsed: Mutex<BTreeMap<String, Arc<Domain>>>,
    /// What drives attach in place, and domains with that laid over them.
    told: LastTold,
    written: Mutex<Written>,
    laid: Mutex<BTreeMap<String, Laid>>,
    /// Domains whose home is away, which was said.
    away: Mutex<BTreeSet<String>>,
}

#[derive(Debug)]
struct Homes {
    by_domain: BTreeMap<String, DriveId>,
    /// Drives that were asked. Another one may know more.
    asked: Vec<DriveId>,
}

/// A domain with what was attached laid over it, and what it was made of.
#[derive(Debug)]
struct Laid {
    below: Option<Arc<Domain>>,
    versions: Vec<(DriveId, u64, bool)>,
    domain: Arc<Domain>,
}

/// The manifests of domains, and the reports of drives, at one moment.
pub(crate) struct CatalogReading {
    /// The domains, by name.
    pub(crate) domains: BTreeMap<String, Result<Arc<Domain>, Fault>>,
    /// When all drives were last asked which domains they keep.
    pub(crate) looked: Instant,
    /// What drives attach.
    pub(crate) told: AttachmentReport,
    /// Loaded datasets of which parts are attached, which their manifests do not say and cannot be made to say.
    pub(crate) unwritten: BTreeMap<DatasetName, Fault>,
}

impl Catalog {
    /// Asks every drive for the domains whose manifest it keeps.
    pub(crate) async fn discover(drives: &Drives, default_domain: &str) -> Result<Self, Fault> {
        let looking = Arc::new(Looking::new());
        let homes = Homes { by_domain: find_homes(drives).await?, asked: drives.ids() };
        Ok(Self {
            default_domain: default_domain.to_owned(),
            homes: Mutex::new(homes),
            looking,
            checks: CrossChecks::default(),
            former_homes: FormerHomes::default(),
            parsed: Mutex::default(),
            told: LastTold::default(),
            written: Mutex::default(),
            laid: Mutex::default(),
            away: Mutex::default(),
        })
    }

    /// Reads all manifests, and what drives attach. A domain that cannot be read takes only itself away; the fault shows when it is
    /// asked for.
    pub(crate) async fn read(&self, drives: &Drives) -> Result<CatalogReading, Fault> {
        self.look_around(&self.default_domain, drives).await?;
        let looked = self.looking.looked();
        let homes = self.homes.lock().by_domain.clone();
        let read = join_all(homes.into_iter().map(|(name, home)| async move {
            let domain = self.read_domain(&name, drives, home).await;
            (name, domain)
        }));
        let (read, told) = join(read, self.told.ask(drives)).await;
        Ok(CatalogReading { domains: read.into_iter().collect(), looked, told, unwritten: BTreeMap::new() })
    }

    /// Asks all drives again if a statement has named a domain that nobody was known to keep. Whether one has, a moment ago.
    pub(crate) async fn look_for_wanted(&self, drives: &Drives) -> bool {
        if !self.looking.is_wanted() {
            return false;
        }
        let _turn = self.looking.turn().await;
        if self.looking.is_due()
            && let Err(fault) = self.rediscover(drives).await
        {
            tracing::warn!("drives were asked again which domains they keep, in vain: {}", fault.message);
        }
        true
    }

    /// A domain as this host has just changed it.
    pub(crate) fn changed(&self, manifest: Manifest) -> Arc<Domain> {
        let domain = Arc::new(Domain::parse(manifest, true, Overlay::default()));
        self.keep(None, &domain);
        domain
    }

    /// What this host has told homes that were declared lost.
    pub(crate) fn former_homes(&self) -> &FormerHomes {
        &self.former_homes
    }

    /// A snapshot for statements of a reading.
    pub(crate) fn snapshot(&self, seen: CatalogReading, drives: &Arc<Drives>) -> Arc<Snapshot> {
        let CatalogReading { mut domains, looked, told, unwritten } = seen;
        self.lay_over(&mut domains, &told, drives);
        let (untold, hiding) = (told.untold().clone(), told.hiding());
        let (drives, looking) = (Arc::clone(drives), Arc::clone(&self.looking));
        Arc::new(Snapshot { domains, drives, untold, hiding, unwritten, looked, looking })
    }

    /// Lays attached datasets over their domains. A domain without a manifest has attached datasets alone.
    fn lay_over(&self, domains: &mut BTreeMap<String, Result<Arc<Domain>, Fault>>, told: &AttachmentReport, drives: &Drives) {
        if told.is_empty() {
            return;
        }
        let versions = told.versions();
        let mut written = self.written.lock();
        domains.values().flatten().for_each(|domain| written.note(&domain.manifest));
        for name in told.domains() {
            let below = match domains.get(&name) {
                Some(Err(_)) => continue,
                Some(Ok(domain)) => Some(Arc::clone(domain)),
                None => None,
            };
            let mut laid = self.laid.lock();
            let is_same = |laid: &&Laid| {
                let same_below = match (&laid.below, &below) {
                    (Some(laid), Some(now)) => Arc::ptr_eq(laid, now),
                    (None, None) => true,
                    _ => false,
                };
                same_below && laid.versions == versions
            };
            let domain = match laid.get(&name).filter(is_same) {
                Some(laid) => Arc::clone(&laid.domain),
                None => {
                    let told_by_home = below.as_ref().is_none_or(|below| below.told_by_home);
                    let mut manifest =
                        below.as_ref().map_or_else(|| Manifest::empty(&name, drives.ids()), |below| below.manifest.clone());
                    let overlay = told.lay_over(&mut manifest, &written);
                    let domain = Arc::new(Domain::parse(manifest, told_by_home, overlay));
                    let made = Laid { below, versions: versions.clone(), domain: Arc::clone(&domain) };
                    laid.insert(name.clone(), made);
                    domain
                }
            };
            domains.insert(name, Ok(domain));
        }
    }

    /// A domain's manifest and home as they are now, to change it. For a domain that nobody keeps yet: the empty one, over
    /// all connected drives. A fault if home is not reached, as a second one would lose what the first one has.
    pub(crate) async fn manifest(&self, name: &str, drives: &Drives) -> Result<(Manifest, ConnectedDrive), Fault> {
        let mut attempt = 1;
        loop {
            match self.manifest_once(name, drives).await {
                // Another host has ended the same hand-over of the home.
                Err(fault) if fault.blame == Blame::Conflict && attempt < ATTEMPTS_MAX => attempt += 1,
                found => return found,
            }
        }
    }

    async fn manifest_once(&self, name: &str, drives: &Drives) -> Result<(Manifest, ConnectedDrive), Fault> {
        self.look_around(name, drives).await?;
        let Some(known) = self.home(name) else { return first_manifest(name, drives) };
        let found = self.find(name, known, drives, Use::Change).await?;
        let home = found.manifest.home().unwrap_or(known);
        match found.home {
            HomeState::Here => Ok((found.manifest, drives.get(home)?.clone())),
            HomeState::Behind => {
                let home = drives.get(home)?.clone();
                let before = found.manifest.version.saturating_sub(1);
                let commit = home.door.commit(before, found.manifest.clone()).await;
                commit.map_err(|fault| fault.at_drive(home.label()))?;
                Ok((found.manifest, home))
            }
            HomeState::Away(fault) => Err(cannot_change(name, home, drives, &fault)),
        }
    }

    /// The newest manifest of a domain that is reached; none: nobody keeps it.
    pub(crate) async fn newest(&self, name: &str, drives: &Drives) -> Result<Option<LocatedManifest>, Fault> {
        self.look_around(name, drives).await?;
        match self.home(name) {
            Some(known) => Ok(Some(self.find(name, known, drives, Use::Change).await?)),
            None => Ok(None),
        }
    }

    /// The domains that there are.
    pub(crate) async fn domains(&self, drives: &Drives) -> Result<Vec<String>, Fault> {
        self.rediscover(drives).await?;
        Ok(self.homes.lock().by_domain.keys().cloned().collect())
    }

    /// Notes a domain's home.
    pub(crate) fn note_home(&self, domain: &str, home: DriveId) {
        self.homes.lock().by_domain.insert(domain.to_owned(), home);
    }

    fn home(&self, name: &str) -> Option<DriveId> {
        self.homes.lock().by_domain.get(name).copied()
    }

    /// Asks all drives again where this domain is not known, or where there are drives that were not asked.
    async fn look_around(&self, name: &str, drives: &Drives) -> Result<(), Fault> {
        let known = {
            let homes = self.homes.lock();
            homes.by_domain.contains_key(name) && homes.asked == drives.ids()
        };
        if known { Ok(()) } else { self.rediscover(drives).await }
    }

    async fn rediscover(&self, drives: &Drives) -> Result<(), Fault> {
        self.looking.begin();
        let found = find_homes(drives).await?;
        let mut homes = self.homes.lock();
        homes.by_domain.extend(found);
        homes.asked = drives.ids();
        Ok(())
    }

    async fn find(&self, name: &str, known: DriveId, drives: &Drives, used: Use) -> Result<LocatedManifest, Fault> {
        let found = find_manifest(name, known, drives, used).await?;
        self.note_away(name, &found);
        self.note_home_of(&found.manifest);
        Ok(found)
    }

    fn note_home_of(&self, manifest: &Manifest) {
        if let Some(home) = manifest.home() {
            self.note_home(&manifest.domain, home);
        }
    }

    /// Says once that a home is away.
    fn note_away(&self, name: &str, found: &LocatedManifest) {
        let mut away = self.away.lock();
        match &found.home {
            HomeState::Away(fault) if away.insert(name.to_owned()) => {
                let version = found.manifest.version;
                tracing::warn!(
                    domain = name,
                    version,
                    "home is not reached; reading a copy of the manifest: {}",
                    fault.message
                );
            }
            HomeState::Away(_) => {}
            HomeState::Here | HomeState::Behind => {
                away.remove(name);
            }
        }
    }

    /// A domain as its home tells it, unless another drive knows better.
    async fn read_domain(&self, name: &str, drives: &Drives, home: DriveId) -> Result<Arc<Domain>, Fault> {
        let known = self.parsed.lock().get(name).cloned();
        let reading = Reading { name, home, known: known.as_ref().map(|known| &known.manifest) };
        let newer = self.checks.newer(reading, drives, self.looking.looked());
        let (read, newer) = join(self.read_from(name, drives, home), newer).await;
        let domain = read?;
        let Some(newer) = newer.filter(|newer| newer.version > domain.manifest.version) else { return Ok(domain) };
        self.checks.forget(name);
        if newer.home != home {
            tracing::warn!(domain = name, "{} is not home any more, and does not know it", drives.name(home));
        }
        self.note_home(name, newer.home);
        self.read_from(name, drives, newer.home).await
    }

    async fn read_from(&self, name: &str, drives: &Drives, home: DriveId) -> Result<Arc<Domain>, Fault> {
        let known = self.parsed.lock().get(name).cloned();
        let of_home = |domain: &&Arc<Domain>| domain.told_by_home && domain.manifest.home() == Some(home);
        if let Some(domain) = known.as_ref().filter(of_home)
            && is_unchanged(name, home, domain.manifest.version, drives).await
        {
            return Ok(Arc::clone(domain));
        }
        let found = find_manifest(name, home, drives, Use::Read).await?;
        self.note_away(name, &found);
        if let Some(newer) = known.as_ref().filter(|known| found.is_behind(&known.manifest)) {
            self.note_home_of(&newer.manifest);
            return Ok(Arc::clone(newer));
        }
        self.note_home_of(&found.manifest);
        let (manifest, told_by_home) = (found.manifest, matches!(found.home, HomeState::Here));
        let same = |domain: &&Arc<Domain>| {
            let told = &domain.manifest;
            told.version == manifest.version && told.drives == manifest.drives && domain.told_by_home == told_by_home
        };
        let now = self.parsed.lock().get(name).filter(same).cloned();
        if let Some(domain) = now {
            return Ok(domain);
        }
        let domain = Arc::new(Domain::parse(manifest, told_by_home, Overlay::default()));
        self.keep(known.as_ref(), &domain);
        Ok(domain)
    }

    /// Keeps a domain as the newest one, unless a newer one has come since `before` was.
    fn keep(&self, before: Option<&Arc<Domain>>, domain: &Arc<Domain>) {
        let mut parsed = self.parsed.lock();
        let has_newer = parsed.get(&domain.manifest.domain).is_some_and(|now| {
            let is_same = before.is_some_and(|before| Arc::ptr_eq(before, now));
            !is_same && is_older(&domain.manifest, &now.manifest)
        });
        if !has_newer {
            parsed.insert(domain.manifest.domain.clone(), Arc::clone(domain));
        }
    }
}

/// The empty manifest of a domain that nobody keeps, and its home to be. A drive that is not reached may be one that keeps
/// it.
fn first_manifest(name: &str, drives: &Drives) -> Result<(Manifest, ConnectedDrive), Fault> {
    let Some(home) = drives.all().first().filter(|_| drives.absent().is_empty()) else {
        let fault = Fault::new(Blame::Device, format!("no drive that is reached knows domain {name}"));
        return Err(drives.with_absent(fault).hint("a domain is made while all drives are reached"));
    };
    Ok((Manifest::empty(name, drives.ids()), home.clone()))
}

fn cannot_change(name: &str, home: DriveId, drives: &Drives, fault: &Fault) -> Fault {
    let message = format!(
        "domain {name} cannot be changed while its home, drive {}, is not reached: {}",
        drives.name(home),
        fault.message
    );
    let hint = format!("start that drive again; if it is lost for good, `pithead repair --lost {home}` makes another one home");
    Fault::new(Blame::Device, message).hint(hint)
}
