//! Whether drives have the same module by one name. Each drive keeps modules of its own, and two hosts may load different ones at once.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::future::join_all;
use pithead_embed::{Door, StoredModule};
use pithead_model::{Blame, Fault};

/// A conflict where a drive has another module by the name of one that was loaded into all of them just now. Whoever loads looks last,
/// so of two who load at the same time one at least sees it. Drives tell of modules alone that the caller may run.
pub(super) async fn check_loaded(doors: &[Arc<dyn Door>], loaded: &StoredModule) -> Result<(), Fault> {
    let told = join_all(doors.iter().map(|door| door.modules())).await;
    let told = told.into_iter().collect::<Result<Vec<_>, _>>()?;
    let others: Vec<&str> = doors
        .iter()
        .zip(&told)
        .filter(|(_, modules)| hash_of(modules, &loaded.name).is_some_and(|hash| *hash != loaded.sha256))
        .map(|(door, _)| door.label())
        .collect();
    if others.is_empty() {
        return Ok(());
    }
    let message = format!("somebody else has loaded another {} at the same time, at {}", loaded.name, others.join(", "));
    let hint = "`pithead program ls` shows what drives have; load it again with --replace once the other load is over";
    Err(Fault::new(Blame::Conflict, message).hint(hint))
}

/// A conflict where drives have different modules by one of these names. A drive that does not tell its modules is passed over: who runs
/// programs need not have the right to list them.
pub(super) async fn check_alike<'n>(doors: &[Arc<dyn Door>], names: impl Iterator<Item = &'n str>) -> Result<(), Fault> {
    if doors.len() < 2 {
        return Ok(());
    }
    let told = join_all(doors.iter().map(|door| door.modules())).await;
    let told: Vec<(&str, Vec<StoredModule>)> =
        doors.iter().zip(told).filter_map(|(door, modules)| Some((door.label(), modules.ok()?))).collect();
    for name in names {
        let groups = by_module(&told, name);
        if groups.len() > 1 {
            let groups: Vec<String> = groups.iter().map(|drives| drives.join(", ")).collect();
            let message = format!("drives have different modules as {name}: one at {}", groups.join(", another at "));
            let hint = "`pithead program load --replace` loads one of them everywhere; --at runs it at one drive";
            return Err(Fault::new(Blame::Conflict, message).hint(hint));
        }
    }
    Ok(())
}

fn hash_of<'m>(modules: &'m [StoredModule], name: &str) -> Option<&'m String> {
    modules.iter().find(|module| module.name == name).map(|module| &module.sha256)
}

/// The drives that have each of the modules by this name.
fn by_module<'d>(told: &[(&'d str, Vec<StoredModule>)], name: &str) -> Vec<Vec<&'d str>> {
    let mut drives: BTreeMap<&String, Vec<&'d str>> = BTreeMap::new();
    for (drive, modules) in told {
        if let Some(hash) = hash_of(modules, name) {
            drives.entry(hash).or_default().push(drive);
        }
    }
    drives.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::module;
    use super::*;

    #[test]
    fn drives_are_told_apart_by_what_they_have() {
        let told =
            [("a", vec![module("k", "1"), module("m", "1")]), ("b", vec![module("m", "2")]), ("c", vec![module("m", "1")])];
        assert_eq!(by_module(&told, "m"), [vec!["a", "c"], vec!["b"]]);
        assert_eq!(by_module(&told, "k"), [["a"]]);
        assert!(by_module(&told, "x").is_empty());
    }
}
