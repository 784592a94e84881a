//! [`CheckedDoor`]: a door as one caller sees it. Here is decided which right each call needs.

use std::sync::Arc;

use bytes::Bytes;
use pithead_door::{
    ApplicationRun, Attachments, BackgroundOrder, BackgroundStatus, Batches, Claim, Discard, Door, DriveStatus, Events,
    FunctionAsk, FunctionModule, Hello, HistoryAsk, LinkGauge, LoadModule, LoadRequest, ManifestReceipt, MarkRun, Marked,
    MergeRuns, OpenRequest, OpenSession, Opened, Pieces, PlanBytes, PortInputs, Reads, RunApplication, StoredModule,
    ToldVersion, Welcome,
};
use pithead_entry::{Identity, ProgramRight, Right};
use pithead_model::{
    Blame, DatasetName, Directory, Fault, HostState, Loaded, Manifest, Reply, SessionId, SessionProfile, SliceKey, boxed,
};

use crate::owners::Owners;

/// A door that refuses what its caller has no right to.
#[derive(Debug)]
pub(crate) struct CheckedDoor {
    door: Arc<dyn Door>,
    caller: Arc<Identity>,
    owners: Arc<Owners>,
}

impl CheckedDoor {
    pub(crate) fn new(door: Arc<dyn Door>, caller: Arc<Identity>, owners: Arc<Owners>) -> Self {
        Self { door, caller, owners }
    }

    fn check_owner(&self, session: SessionId) -> Result<(), Fault> {
        if self.owners.is_of_another(session, &self.caller) {
            let message = format!("session {session} was opened by another identity than {:?}", self.caller.name);
            return Err(Fault::new(Blame::Access, message));
        }
        Ok(())
    }

    /// Whether the caller opened a session, or may administer all that it reads, or load all modules that it runs.
    fn may_see(&self, session: &OpenSession) -> bool {
        let administers = |name: &DatasetName| self.caller.may(Right::Administer, &name.domain);
        let loads = |module: &String| self.caller.may_program(ProgramRight::Load, module);
        session.owner.as_ref() == Some(&self.caller.name)
            || (!session.datasets.is_empty() && session.datasets.iter().all(administers))
            || (!session.programs.is_empty() && session.programs.iter().all(loads))
    }

    /// A manifest that moves data to other drives, names other drives as the domain's, changes its functions or how long versions are
    /// kept, needs more than the right to write.
    async fn check_commit(&self, manifest: &Manifest) -> Result<(), Fault> {
        let domain = &manifest.domain;
        self.caller.check(Right::Write, domain)?;
        if self.caller.may(Right::Administer, domain) {
            return Ok(());
        }
        // Another manifest may be committed before this one. Then its version is not the one expected, and it is refused.
        match self.door.manifest(domain.clone()).await? {
            Some(current) if moves(&current, manifest) => self.caller.check(Right::Administer, domain),
            None if !manifest.functions.is_empty() || manifest.history_ms.is_some() => {
                self.caller.check(Right::Administer, domain)
            }
            _ => Ok(()),
        }
    }
}

/// Whether another manifest names other drives for the domain or for a dataset that stays, has other functions, or is to keep versions
/// for another time.
fn moves(current: &Manifest, next: &Manifest) -> bool {
    let moved = next.datasets.iter().any(|(name, dataset)| {
        let before = current.datasets.get(name).filter(|before| before.id == dataset.id);
        before.is_some_and(|before| {
            let copies = |dataset: &pithead_model::Dataset| -> Vec<_> {
                dataset.partitions.iter().map(|partition| partition.copies.clone()).collect()
            };
            copies(before) != copies(dataset)
        })
    });
    let same = current.drives == next.drives && current.functions == next.functions && current.history_ms == next.history_ms;
    moved || !same
}

#[boxed]
impl Door for CheckedDoor {
    fn label(&self) -> &str {
        self.door.label()
    }

    async fn hello(&self, hello: Hello) -> Result<Welcome, Fault> {
        self.door.hello(hello).await
    }

    async fn open(&self, mut request: OpenRequest) -> Result<Opened, Fault> {
        // Whoever has a name is counted by it: the number is the caller's own choice.
        if let Some(number) = self.caller.number() {
            request.options.host = number;
        }
        for part in &request.parts {
            self.caller.check(Right::Read, &part.name.domain)?;
        }
        if let PlanBytes::Scan { dataset, .. } = &request.plan {
            self.caller.check(Right::Read, &dataset.domain)?;
        }
        let opened = self.door.open(request).await?;
        if let Reply::Granted(granted) = &opened.reply {
            self.owners.insert(granted.session, &self.caller, self.door.sessions()).await;
        }
        Ok(opened)
    }

    async fn get(&self, session: SessionId) -> Result<Events, Fault> {
        self.check_owner(session)?;
        self.door.get(session).await
    }

    async fn get_over(&self, session: SessionId, link: Arc<dyn LinkGauge>) -> Result<Events, Fault> {
        self.check_owner(session)?;
        self.door.get_over(session, link).await
    }

    async fn tell(&self, session: SessionId, state: HostState) -> Result<(), Fault> {
        self.check_owner(session)?;
        self.door.tell(session, state).await
    }

    async fn poll(&self, session: SessionId) -> Result<SessionProfile, Fault> {
        self.check_owner(session)?;
        self.door.poll(session).await
    }

    async fn close(&self, session: SessionId) -> Result<(), Fault> {
        self.check_owner(session)?;
        self.door.close(session).await
    }

    async fn load(&self, request: LoadRequest, rows: Batches) -> Result<Loaded, Fault> {
        self.caller.check(Right::Write, &request.name.domain)?;
        self.door.load(request, rows).await
    }

    async fn merge_runs(&self, request: MergeRuns) -> Result<Loaded, Fault> {
        self.caller.check(Right::Write, &request.into.name.domain)?;
        self.door.merge_runs(request).await
    }

    async fn mark_run(&self, request: MarkRun) -> Result<Marked, Fault> {
        let domain = &request.into.name.domain;
        self.caller.check(Right::Write, domain)?;
        // How many rows go tells of what they are.
        self.caller.check(Right::Read, domain)?;
        self.door.mark_run(request).await
    }

    async fn discard(&self, discard: Discard) -> Result<u64, Fault> {
        self.caller.check(Right::Write, &discard.name.domain)?;
        self.door.discard(discard).await
    }

    async fn claim(&self, claim: Claim) -> Result<Vec<SliceKey>, Fault> {
        for run in &claim.runs {
            self.caller.check(Right::Write, &run.name.domain)?;
        }
        self.door.claim(claim).await
    }

    async fn read_run(&self, run: SliceKey) -> Result<Pieces, Fault> {
        self.caller.check(Right::Read, &run.name.domain)?;
        self.door.read_run(run).await
    }

    async fn write_run(&self, run: SliceKey, pieces: Pieces) -> Result<(), Fault> {
        self.caller.check(Right::Write, &run.name.domain)?;
        self.door.write_run(run, pieces).await
    }

    async fn manifest(&self, domain: String) -> Result<Option<Manifest>, Fault> {
        self.caller.check(Right::Read, &domain)?;
        self.door.manifest(domain).await
    }

    async fn has_manifest(&self, domain: String, version: u64) -> Result<bool, Fault> {
        self.caller.check(Right::Read, &domain)?;
        self.door.has_manifest(domain, version).await
    }

    async fn attached(&self, known: Option<u64>) -> Result<Option<Arc<Attachments>>, Fault> {
        let Some(all) = self.door.attached(known).await? else { return Ok(None) };
        let mut seen = Attachments::clone(&all);
        seen.datasets.retain(|dataset| self.caller.may(Right::Read, &dataset.name.domain));
        seen.refused.retain(|refused| self.caller.may(Right::Read, &refused.name.domain));
        seen.hides |= all.all_names().count() > seen.all_names().count();
        Ok(Some(Arc::new(seen)))
    }

    async fn commit(&self, expected: u64, manifest: Manifest) -> Result<(), Fault> {
        self.check_commit(&manifest).await?;
        self.door.commit(expected, manifest).await
    }

    async fn keep_manifest(&self, manifest: Manifest) -> Result<ManifestReceipt, Fault> {
        self.caller.check(Right::Write, &manifest.domain)?;
        self.door.keep_manifest(manifest).await
    }

    async fn set_aside(&self, domain: String, after: u64) -> Result<Option<Manifest>, Fault> {
        self.caller.check(Right::Read, &domain)?;
        self.door.set_aside(domain, after).await
    }

    async fn drop_aside(&self, domain: String, version: u64) -> Result<bool, Fault> {
        self.caller.check(Right::Administer, &domain)?;
        self.door.drop_aside(domain, version).await
    }

    async fn history(&self, ask: HistoryAsk) -> Result<Vec<ToldVersion>, Fault> {
        self.caller.check(Right::Read, &ask.domain)?;
        self.door.history(ask).await
    }

    async fn past_manifest(&self, domain: String, version: u64) -> Result<Option<Manifest>, Fault> {
        self.caller.check(Right::Read, &domain)?;
        self.door.past_manifest(domain, version).await
    }

    async fn forget_history(&self, domain: String) -> Result<u64, Fault> {
        self.caller.check(Right::Administer, &domain)?;
        self.door.forget_history(domain).await
    }

    async fn directory(&self, key: SliceKey) -> Result<Directory, Fault> {
        self.caller.check(Right::Read, &key.name.domain)?;
        self.door.directory(key).await
    }

    async fn status(&self) -> Result<DriveStatus, Fault> {
        let mut status = self.door.status().await?;
        status.domains.retain(|domain| self.caller.may(Right::Read, &domain.name));
        status.partitions.retain(|partition| self.caller.may(Right::Read, &partition.name.domain));
        Ok(status)
    }

    async fn sessions(&self) -> Result<Vec<OpenSession>, Fault> {
        let sessions = self.door.sessions().await?.into_iter();
        let owned = sessions.map(|session| OpenSession { owner: self.owners.of(session.session), ..session });
        Ok(owned.filter(|session| self.may_see(session)).collect())
    }

    async fn kill(&self, session: SessionId) -> Result<bool, Fault> {
        // One that the caller may not see is to it as one that is not there.
        let is_seen = self.sessions().await?.iter().any(|open| open.session == session);
        if is_seen { self.door.kill(session).await } else { Ok(false) }
    }

    async fn background(&self, order: BackgroundOrder) -> Result<BackgroundStatus, Fault> {
        // Services work for all domains.
        let may_all = self.caller.may_all(Right::Administer);
        if order != BackgroundOrder::Look && !may_all {
            let message = format!("{:?} has no right to administer all domains, whose services those are", self.caller.name);
            let hint = "in the drive's access file, add \"*\" to its list \"administer\"";
            return Err(Fault::new(Blame::Access, message).hint(hint));
        }
        let mut status = self.door.background(order).await?;
        if !may_all {
            // Keys name datasets, and settings domains.
            for service in &mut status.services {
                service.damaged.clear();
                service.dedup = None;
            }
        }
        Ok(status)
    }

    async fn load_module(&self, request: LoadModule) -> Result<StoredModule, Fault> {
        self.caller.check_program(ProgramRight::Load, &request.name)?;
        self.door.load_module(request).await
    }

    async fn modules(&self) -> Result<Vec<StoredModule>, Fault> {
        let modules = self.door.modules().await?.into_iter();
        Ok(modules.filter(|module| self.caller.may_program(ProgramRight::Run, &module.name)).collect())
    }

    async fn remove_module(&self, name: String) -> Result<bool, Fault> {
        self.caller.check_program(ProgramRight::Load, &name)?;
        self.door.remove_module(name).await
    }

    async fn keep_function(&self, module: FunctionModule) -> Result<String, Fault> {
        self.caller.check(Right::Administer, &module.domain)?;
        self.door.keep_function(module).await
    }

    async fn function(&self, ask: FunctionAsk) -> Result<Option<Bytes>, Fault> {
        self.caller.check(Right::Read, &ask.domain)?;
        self.door.function(ask).await
    }

    /// What the application may read is what its caller may, whatever `_reads` says.
    async fn run_application(
        &self,
        request: RunApplication,
        inputs: PortInputs,
        _reads: Arc<dyn Reads>,
    ) -> Result<ApplicationRun, Fault> {
        for ssdlet in &request.ssdlets {
            self.caller.check_program(ProgramRight::Run, &ssdlet.module)?;
        }
        let reads = Arc::new(CallerReads(Arc::clone(&self.caller)));
        let run = self.door.run_application(request, inputs, reads).await?;
        self.owners.insert(run.session, &self.caller, self.door.sessions()).await;
        Ok(run)
    }
}

/// What a caller may read: the datasets of its domains, and key-values only if it may read all domains, since these belong to
/// none.
#[derive(Debug)]
struct CallerReads(Arc<Identity>);

impl Reads for CallerReads {
    fn domain(&self, domain: &str) -> bool {
        self.0.may(Right::Read, domain)
    }

    fn key(&self, _: &[u8]) -> bool {
        self.0.may_all(Right::Read)
    }
}
