//! DROP TABLE: the tables of a domain go with one change of its manifest, all of them or none.

use std::collections::{BTreeMap, BTreeSet};

use pithead_entry::Right;
use pithead_fleet::{Change, Committed, DatasetChange, Edit, Snapshot, discard};
use pithead_model::{Blame, Dataset, DatasetName, Fault, Manifest};

use crate::statement::Named;
use crate::{Commitment, Session};

/// Drops tables. Those of one domain stay all where one of them is a view, or is missing and may not be.
pub(crate) async fn drop_tables(
    session: &Session,
    names: &[Named],
    if_exists: bool,
    commitment: &Commitment,
) -> Result<(), Fault> {
    let domain = session.domain();
    let names = names.iter().map(|name| name.resolve(&domain)).collect::<Result<BTreeSet<DatasetName>, Fault>>()?;
    names.iter().try_for_each(|name| session.check(Right::Write, &name.domain))?;
    let snapshot = session.host.fleet().snapshot().await?;
    for found in names.iter().filter_map(|name| snapshot.versioned(name)) {
        found.check_loaded()?;
    }
    for (domain, names) in by_domain(&names, if_exists, &snapshot) {
        drop_of(session, &Dropping { domain, names, if_exists }, commitment).await?;
    }
    Ok(())
}

/// The names of each domain. Domains with a name of no table come first, so that they are refused before any table is dropped.
fn by_domain<'a>(
    names: &'a BTreeSet<DatasetName>,
    if_exists: bool,
    snapshot: &Snapshot,
) -> Vec<(&'a str, Vec<&'a DatasetName>)> {
    let is_table = |name: &DatasetName| snapshot.dataset(name).is_some();
    let mut domains: BTreeMap<&str, Vec<&DatasetName>> = BTreeMap::new();
    for name in names.iter().filter(|name| !if_exists || is_table(name) || snapshot.view(name).is_some()) {
        domains.entry(&name.domain).or_default().push(name);
    }
    let mut domains: Vec<(&str, Vec<&DatasetName>)> = domains.into_iter().collect();
    domains.sort_by_key(|(_, names)| names.iter().all(|name| is_table(name)));
    domains
}

/// Drops tables of one domain. Their slices go afterwards.
async fn drop_of(session: &Session, dropping: &Dropping<'_>, commitment: &Commitment) -> Result<(), Fault> {
    let fleet = session.host.fleet();
    // A drive that is not there keeps slices that nothing names.
    let drives = fleet.refreshed().await;
    let (dropped, version) = match commitment.commit(fleet, dropping).await {
        Ok(Committed { made, manifest }) => (made, manifest.version),
        Err(not) if not.certain && not.fault == none_left() => return Ok(()),
        Err(not) => return Err(not.fault),
    };
    let deleting = async move {
        for (name, dataset) in dropped {
            discard(&drives, &name, &dataset, version).await;
        }
    };
    session.host.afterwards(deleting).await;
    Ok(())
}

/// Another host has dropped all of them meanwhile.
fn none_left() -> Fault {
    Fault::new(Blame::User, "none of the tables is there")
}

/// Tables of one domain that go.
struct Dropping<'a> {
    domain: &'a str,
    names: Vec<&'a DatasetName>,
    if_exists: bool,
}

impl Edit for Dropping<'_> {
    type Output = Vec<(DatasetName, Dataset)>;

    fn domain(&self) -> &str {
        self.domain
    }

    fn subject(&self) -> String {
        self.names.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
    }

    fn apply(&self, manifest: &mut Manifest) -> Result<Self::Output, Fault> {
        let mut dropped = Vec::new();
        for name in &self.names {
            let is_missing = !manifest.datasets.contains_key(&name.dataset) && !manifest.views.contains_key(&name.dataset);
            if self.if_exists && is_missing {
                continue;
            }
            let gone = DatasetChange { name, change: &Change::Drop }.apply(manifest)?;
            dropped.extend(gone.map(|dataset| (DatasetName::clone(name), dataset)));
        }
        match dropped.is_empty() {
            true => Err(none_left()),
            false => Ok(dropped),
        }
    }

    fn is_in(&self, manifest: &Manifest) -> bool {
        self.names.iter().all(|name| !manifest.datasets.contains_key(&name.dataset))
    }
}
