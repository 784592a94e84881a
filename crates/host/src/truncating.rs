//! TRUNCATE of several tables: all of them are empty by one change of their domain's manifest, and no slice is read or written.

use std::collections::BTreeMap;

use datafusion::sql::sqlparser::ast::Truncate;
use pithead_entry::Right;
use pithead_fleet::{Edit, Snapshot, discard, is_view};
use pithead_model::{Blame, Dataset, DatasetId, DatasetName, Fault, FaultKind, Manifest, Partition};

use crate::statement::Named;
use crate::tokens::parts;
use crate::{Answer, Commitment, Session};

/// The tables of a TRUNCATE; none: it is of one, which is planned. Nothing here counts up, and no table hangs on another one, so
/// RESTART IDENTITY and CASCADE say nothing, and are taken out.
pub(crate) fn several(truncate: &mut Truncate) -> Result<Option<Vec<Named>>, Fault> {
    (truncate.identity, truncate.cascade) = (None, None);
    if truncate.table_names.len() < 2 || truncate.if_exists || truncate.partitions.is_some() || truncate.on_cluster.is_some() {
        return Ok(None);
    }
    truncate.table_names.iter().map(|table| parts(&table.name).map(Named::new)).collect::<Result<_, _>>().map(Some)
}

/// Empties tables of one domain, all or none.
pub(crate) async fn truncate_tables(session: &Session, names: &[Named], commitment: &Commitment) -> Result<Answer, Fault> {
    let domain = session.domain();
    let names = names.iter().map(|name| name.resolve(&domain)).collect::<Result<Vec<DatasetName>, Fault>>()?;
    let Some(first) = names.first() else { return Err(Fault::bug("a TRUNCATE of no table")) };
    session.check(Right::Write, &first.domain)?;
    if names.iter().any(|name| name.domain != first.domain) {
        let fault =
            Fault::new(Blame::Unsupported, "a TRUNCATE of tables of several domains is not a statement that this release runs");
        return Err(fault.hint("write one TRUNCATE for each domain"));
    }
    let snapshot = session.host.fleet().snapshot().await?;
    names.iter().try_for_each(|name| check_table(&snapshot, name))?;
    let domain = first.domain.clone();
    let names = names.into_iter().map(|name| (name, DatasetId(rand::random()))).collect();
    let committed = commitment.commit(session.host.fleet(), &Emptying { domain, names }).await.map_err(|not| not.fault)?;
    let (emptied, version) = (committed.made, committed.manifest.version);
    let rows = emptied.iter().map(|(_, dataset)| dataset.rows()).sum();
    let drives = session.host.fleet().connected();
    let deleting = async move {
        for (name, dataset) in emptied {
            discard(&drives, &name, &dataset, version).await;
        }
    };
    session.host.afterwards(deleting).await;
    Ok(Answer { changed: Some(rows), ..Answer::done() })
}

fn check_table(snapshot: &Snapshot, name: &DatasetName) -> Result<(), Fault> {
    if snapshot.view(name).is_some() {
        return Err(is_view(name).of_kind(FaultKind::Other));
    }
    snapshot.find(name)?;
    snapshot.versioned(name).map_or(Ok(()), |found| found.check_changeable())
}

/// Tables that become empty, each as another incarnation.
struct Emptying {
    domain: String,
    names: BTreeMap<DatasetName, DatasetId>,
}

impl Edit for Emptying {
    /// The tables as they were.
    type Output = Vec<(DatasetName, Dataset)>;

    fn domain(&self) -> &str {
        &self.domain
    }

    fn subject(&self) -> String {
        self.names.keys().map(ToString::to_string).collect::<Vec<_>>().join(", ")
    }

    fn apply(&self, manifest: &mut Manifest) -> Result<Self::Output, Fault> {
        let mut before = Vec::new();
        for (name, id) in &self.names {
            let present = manifest.datasets.get_mut(&name.dataset).ok_or_else(|| {
                let message = format!("dataset {name} was dropped by others meanwhile");
                Fault::new(Blame::Conflict, message).hint("run the statement again")
            })?;
            let partitions = present.partitions.iter().map(|partition| Partition::empty(partition.copies.clone())).collect();
            let empty = Dataset { id: *id, merged: 0, partitions, ..present.clone() };
            before.push((name.clone(), std::mem::replace(present, empty)));
        }
        Ok(before)
    }

    fn is_in(&self, manifest: &Manifest) -> bool {
        self.names.iter().all(|(name, id)| manifest.datasets.get(&name.dataset).is_some_and(|present| present.id == *id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Parameters;
    use crate::statement::{Parsed, parse};

    #[test]
    fn several_tables_are_told_from_one() {
        for (sql, expected) in [
            ("TRUNCATE a, lab.B", Some(vec!["main.a", "lab.b"])),
            ("truncate table a, a RESTART IDENTITY CASCADE;", Some(vec!["main.a", "main.a"])),
            ("TRUNCATE a CASCADE", None),
            ("TRUNCATE TABLE a", None),
        ] {
            let told = match parse(sql, &Parameters::default()).unwrap() {
                Parsed::Truncate(names) => Some(names),
                Parsed::Write { .. } => None,
                _ => panic!("{sql}"),
            };
            let names =
                |names: Vec<Named>| names.iter().map(|name| name.resolve("main").unwrap().to_string()).collect::<Vec<_>>();
            assert_eq!(told.map(names), expected.map(|names| names.into_iter().map(str::to_owned).collect()), "{sql}");
        }
    }
}
