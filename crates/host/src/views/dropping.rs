//! DROP VIEW: the views of a domain go with one change of its manifest, all of them or none.

use std::collections::{BTreeMap, BTreeSet};

use pithead_entry::Right;
use pithead_fleet::{Edit, Snapshot};
use pithead_model::{DatasetName, Fault, FaultKind, Manifest, near_names};

use super::{DroppedViews, no_view};
use crate::{Commitment, Parameters, Session};

/// Drops views. Views over them stay, and say that they are not there when they are read.
pub(crate) async fn drop_views(
    session: &Session,
    dropped: &DroppedViews,
    parameters: &Parameters,
    commitment: &Commitment,
) -> Result<(), Fault> {
    parameters.refuse("DROP VIEW")?;
    let domain = session.domain();
    let names = dropped.names.iter().map(|name| name.resolve(&domain)).collect::<Result<BTreeSet<DatasetName>, Fault>>()?;
    names.iter().try_for_each(|name| session.check(Right::Write, &name.domain))?;
    let snapshot = session.host.fleet().snapshot().await?;
    for (domain, names) in by_domain(names, dropped.if_exists, &snapshot) {
        let edit = Dropping { domain, names, if_exists: dropped.if_exists };
        match commitment.commit(session.host.fleet(), &edit).await {
            // Another host has dropped all of them meanwhile.
            Err(not) if dropped.if_exists && not.certain && not.fault.kind == FaultKind::NoTable => {}
            Err(not) => return Err(not.fault),
            Ok(_) => {}
        }
    }
    Ok(())
}

/// The names of each domain. Domains with a name of no view come first, so that they are refused before any view is dropped.
fn by_domain(names: BTreeSet<DatasetName>, if_exists: bool, snapshot: &Snapshot) -> Vec<(String, Vec<DatasetName>)> {
    let is_view = |name: &DatasetName| snapshot.view(name).is_some();
    let mut domains: BTreeMap<String, Vec<DatasetName>> = BTreeMap::new();
    for name in names.into_iter().filter(|name| !if_exists || is_view(name) || snapshot.dataset(name).is_some()) {
        domains.entry(name.domain.clone()).or_default().push(name);
    }
    let mut domains: Vec<(String, Vec<DatasetName>)> = domains.into_iter().collect();
    domains.sort_by_key(|(_, names)| names.iter().all(is_view));
    domains
}

/// Views of one domain that go.
struct Dropping {
    domain: String,
    names: Vec<DatasetName>,
    if_exists: bool,
}

impl Edit for Dropping {
    type Output = ();

    fn domain(&self) -> &str {
        &self.domain
    }

    fn subject(&self) -> String {
        let names: Vec<String> = self.names.iter().map(|name| format!("view {name}")).collect();
        names.join(", ")
    }

    fn apply(&self, manifest: &mut Manifest) -> Result<(), Fault> {
        let mut missing = Vec::new();
        for name in &self.names {
            if manifest.views.remove(&name.dataset).is_none() {
                missing.push((manifest.datasets.contains_key(&name.dataset), name));
            }
        }
        match missing.iter().max() {
            Some((is_table, name)) if *is_table || !self.if_exists || missing.len() == self.names.len() => {
                Err(no_such(name, manifest))
            }
            _ => Ok(()),
        }
    }

    fn is_in(&self, manifest: &Manifest) -> bool {
        self.names.iter().all(|name| !manifest.views.contains_key(&name.dataset))
    }
}

fn no_such(name: &DatasetName, manifest: &Manifest) -> Fault {
    if manifest.datasets.contains_key(&name.dataset) {
        return no_view(name).hint(format!("DROP TABLE {name} drops it with its rows"));
    }
    let known: Vec<String> = manifest.views.keys().map(|view| manifest.name(view).to_string()).collect();
    let near = near_names(&name.to_string(), known.iter().map(String::as_str));
    let near = if near.is_empty() { String::new() } else { format!("; near: {}", near.join(", ")) };
    Fault::invalid(format!("no view {name}{near}")).of_kind(FaultKind::NoTable)
}
