//! Manifests that are set aside: each is what a home had changed when another CSE took its place without knowing of it.
//!
//! A drive may be declared lost more than once, so there is a key for each version. Versions of a domain only grow at a drive.

use bytes::Bytes;
use pithead_model::{Fault, Manifest};
use pithead_store::{Durability, Key, Put, Store, Write};

use super::{check_domain, parse};

/// Manifests that are set aside, by domain and version. Earlier releases kept the last one only, under the domain.
const ASIDE_PREFIX: &str = "manifest-aside/";

/// All that are set aside for a domain, in the order of their versions.
pub(super) fn all(store: &dyn Store, domain: &str) -> Result<Vec<Manifest>, Fault> {
    check_domain(domain)?;
    let mut keys = vec![key_of_before(domain)];
    keys.extend(store.list(format!("{ASIDE_PREFIX}{domain}/").as_bytes())?.into_iter().map(|entry| entry.key));
    let mut found = Vec::new();
    for key in keys {
        if let Some((bytes, _)) = store.get(&key)? {
            found.push(parse(domain, &bytes)?);
        }
    }
    found.sort_by_key(|manifest: &Manifest| manifest.version);
    Ok(found)
}

/// The first one after a version.
pub(super) fn next(store: &dyn Store, domain: &str, after: u64) -> Result<Option<Manifest>, Fault> {
    Ok(all(store, domain)?.into_iter().find(|manifest| manifest.version > after))
}

/// Drops one, durably. Whether it was there.
pub(super) fn drop_one(store: &dyn Store, domain: &str, version: u64) -> Result<bool, Fault> {
    check_domain(domain)?;
    let mut deleted = Vec::new();
    for key in [key_of(domain, version), key_of_before(domain)] {
        if let Some((bytes, _)) = store.get(&key)?
            && parse(domain, &bytes)?.version == version
        {
            deleted.push(Write::delete(key));
        }
    }
    let was_there = !deleted.is_empty();
    if was_there {
        store.write(deleted, Durability::Through)?;
    }
    Ok(was_there)
}

/// The write that sets one aside.
pub(super) fn write(manifest: &Manifest, bytes: Bytes) -> Write {
    let (domain, version) = (&manifest.domain, manifest.version);
    tracing::error!(
        domain,
        version,
        "another drive became home, and does not know this drive's last changes; they are set aside: `pithead drive aside ls`"
    );
    Write::Put(Put::forced(key_of(domain, version), bytes))
}

fn key_of(domain: &str, version: u64) -> Key {
    format!("{ASIDE_PREFIX}{domain}/{version:016x}").into()
}

fn key_of_before(domain: &str) -> Key {
    format!("{ASIDE_PREFIX}{domain}").into()
}

#[cfg(test)]
mod tests {
    use pithead_model::DriveId;
    use pithead_store::MemoryStore;

    use super::*;

    fn manifest(domain: &str, version: u64) -> Manifest {
        Manifest { version, ..Manifest::empty(domain, vec![DriveId(1)]) }
    }

    #[test]
    fn each_is_kept_and_dropped_by_its_version() {
        let store = MemoryStore::new();
        let bytes = |manifest: &Manifest| serde_json::to_vec(manifest).unwrap();
        for (domain, version) in [("lab", 900), ("lab", 4), ("lab2", 5)] {
            let manifest = manifest(domain, version);
            store.write(vec![write(&manifest, bytes(&manifest).into())], Durability::Through).unwrap();
        }
        let before = manifest("lab", 3);
        store.write(vec![Write::put(key_of_before("lab"), bytes(&before))], Durability::Through).unwrap();
        let versions = || all(&store, "lab").unwrap().iter().map(|manifest| manifest.version).collect::<Vec<_>>();
        assert_eq!(versions(), [3, 4, 900]);
        assert_eq!(next(&store, "lab", 3).unwrap(), Some(manifest("lab", 4)));
        assert_eq!(next(&store, "lab", 900).unwrap(), None);
        assert!(!drop_one(&store, "lab", 5).unwrap(), "another domain's");
        assert!(drop_one(&store, "lab", 4).unwrap() && drop_one(&store, "lab", 3).unwrap());
        assert!(!drop_one(&store, "lab", 3).unwrap(), "twice");
        assert_eq!(versions(), [900]);
        assert!(all(&store, "la/b").is_err());
    }
}
