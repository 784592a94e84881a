//! A home, its copies, and other hands.

use super::*;
use pithead_model::LostHome;
use pithead_store::MemoryStore;

fn manifest_of(version: u64, home: u64) -> Manifest {
    Manifest { version, ..Manifest::empty("lab", vec![DriveId(home)]) }
}

fn at_drive(id: u64) -> Manifests {
    Manifests::new(Arc::new(MemoryStore::new()), DriveId(id))
}

fn there(manifests: &Manifests) -> Manifest {
    manifests.read("lab").unwrap().unwrap()
}

#[test]
fn a_manifest_is_replaced_by_compare_and_set() {
    let home = at_drive(7);
    home.replace(0, manifest_of(1, 7)).unwrap();
    assert_eq!(home.replace(0, manifest_of(1, 7)).unwrap_err().blame, Blame::Conflict);
    home.replace(1, manifest_of(2, 7)).unwrap();
    assert_eq!(home.replace(7, manifest_of(8, 7)).unwrap_err().blame, Blame::Conflict);
    assert_eq!(there(&home).version, 2);
    assert!(home.read("other").unwrap().is_none());
}

#[test]
fn the_version_is_known_after_reads_and_changes_alone() {
    let manifests = at_drive(7);
    assert_eq!(manifests.version("lab"), None);
    manifests.replace(0, manifest_of(1, 7)).unwrap();
    assert_eq!(manifests.version("lab"), Some(1));
    manifests.keep(manifest_of(2, 8)).unwrap();
    assert_eq!(manifests.version("lab"), Some(2));
    // An older copy changes nothing, here as in the store.
    manifests.keep(manifest_of(1, 8)).unwrap();
    assert_eq!(manifests.version("lab"), Some(2));
    // After an error it is not known what is there.
    manifests.replace(7, manifest_of(8, 7)).unwrap_err();
    assert_eq!(manifests.version("lab"), None);
    assert_eq!(manifests.read("lab").unwrap().unwrap().version, 2);
    assert_eq!(manifests.version("lab"), Some(2));
}

#[test]
fn versions_are_kept_as_long_as_their_domain_says() {
    let keeping = |default_ms| {
        let store = Arc::new(MemoryStore::new());
        Manifests::new(store, DriveId(7)).with_history(Duration::from_millis(default_ms))
    };
    let said = |version, history_ms| Manifest { history_ms, time_ms: version, ..manifest_of(version, 7) };
    let versions = |manifests: &Manifests| {
        let ask = HistoryAsk { domain: "lab".into(), pick: pithead_door::Pick::Before(u64::MAX) };
        manifests.history(&ask).unwrap().iter().map(|told| told.version).collect::<Vec<_>>()
    };
    let of_default = keeping(60_000);
    of_default.replace(0, said(1, None)).unwrap();
    of_default.replace(1, said(2, None)).unwrap();
    assert_eq!((versions(&of_default), of_default.history_ms("lab").unwrap()), (vec![2, 1], 60_000));
    // From the version on that says so, and for those before it.
    of_default.replace(2, said(3, Some(0))).unwrap();
    assert_eq!(of_default.expire_history().unwrap(), BTreeMap::from([("lab".to_owned(), 0)]));
    assert_eq!(versions(&of_default), [3]);
    let of_domain = keeping(0);
    of_domain.replace(0, said(1, Some(60_000))).unwrap();
    of_domain.replace(1, said(2, Some(60_000))).unwrap();
    of_domain.keep(Manifest { history_ms: Some(60_000), ..manifest_of(3, 8) }).unwrap();
    of_domain.expire_history().unwrap();
    assert_eq!((versions(&of_domain), of_domain.history_ms("other").unwrap()), (vec![3, 2, 1], 0));
}

#[test]
fn a_change_that_came_between_is_a_conflict() {
    let home = at_drive(7);
    home.replace(0, manifest_of(1, 7)).unwrap();
    let stale = home.stored("lab").unwrap();
    home.replace(1, manifest_of(2, 7)).unwrap();
    assert!(!home.put(&Arc::new(manifest_of(2, 8)), stale.as_ref(), false).unwrap());
    assert!(!home.put(&Arc::new(manifest_of(2, 8)), None, false).unwrap());
    assert_eq!(there(&home), manifest_of(2, 7));
}

#[test]
fn only_a_newer_copy_is_kept() {
    let drive = at_drive(1);
    let keep = |copy: Manifest| drive.keep(copy).unwrap();
    let kept = |before, version, home| ManifestReceipt { before, version, home: Some(DriveId(home)), home_is_lost: false };
    assert_eq!(keep(manifest_of(3, 7)), kept(0, 3, 7));
    assert_eq!(keep(manifest_of(3, 8)), kept(3, 3, 7));
    assert_eq!(keep(manifest_of(2, 8)), kept(3, 3, 7));
    assert_eq!(there(&drive), manifest_of(3, 7));
    assert_eq!(keep(manifest_of(9, 8)), kept(3, 9, 8));
    assert_eq!(there(&drive), manifest_of(9, 8));
    // A copy may become the home's own: the next commit goes on from it.
    drive.replace(9, manifest_of(10, 1)).unwrap();
}

fn after_loss(version: u64, known: u64) -> Manifest {
    Manifest { lost_homes: vec![LostHome { drive: DriveId(1), version: known }], ..manifest_of(version, 2) }
}

#[test]
fn changes_that_the_next_home_does_not_know_are_set_aside() {
    for (known, is_split) in [(3, true), (4, false)] {
        let home = at_drive(1);
        home.put(&Arc::new(manifest_of(4, 1)), None, false).unwrap();
        let next = after_loss(900, known);
        home.keep(next.clone()).unwrap();
        assert_eq!(there(&home), next);
        let aside = home.set_aside("lab").unwrap();
        assert_eq!(aside, Vec::from_iter(is_split.then(|| manifest_of(4, 1))));
    }
}

#[test]
fn a_home_gives_way_to_nobody_who_does_not_know_that_it_is_home() {
    let home = at_drive(1);
    home.put(&Arc::new(manifest_of(4, 1)), None, false).unwrap();
    let kept = home.keep(manifest_of(900, 2)).unwrap();
    assert_eq!((kept.version, there(&home)), (4, manifest_of(4, 1)));
    home.keep(manifest_of(5, 2)).unwrap();
    assert_eq!(there(&home), manifest_of(5, 2), "a hand-over");
}

#[test]
fn a_copy_that_lacks_changes_of_a_lost_home_is_refused_and_the_lost_home_is_told() {
    let drive = at_drive(9);
    let keep = |copy: Manifest| drive.keep(copy).unwrap();
    keep(manifest_of(4, 1));
    assert_eq!(keep(after_loss(900, 3)).version, 4);
    assert_eq!(keep(after_loss(900, 4)).version, 900);
    let told = keep(manifest_of(5, 1));
    assert!(told.home_is_lost && told.version == 900);
}

#[test]
fn what_another_hand_wrote_is_what_counts() {
    let store = Arc::new(MemoryStore::new());
    let home = Manifests::new(Arc::clone(&store) as Arc<dyn Store>, DriveId(7));
    home.replace(0, manifest_of(1, 7)).unwrap();
    let other = Manifests::new(Arc::clone(&store) as Arc<dyn Store>, DriveId(7));
    other.replace(1, Manifest { history_ms: Some(9), ..manifest_of(2, 7) }).unwrap();
    assert_eq!((there(&home).version, there(&home).history_ms), (2, Some(9)));
    assert_eq!(home.replace(1, manifest_of(2, 7)).unwrap_err().blame, Blame::Conflict);
    store.write(vec![Write::put(manifest_key("lab"), "{")], Durability::Through).unwrap();
    assert_eq!(home.read("lab").unwrap_err().blame, Blame::Corrupt);
}

#[test]
fn damaged_manifests_do_not_hide_the_others() {
    let store = MemoryStore::new();
    let good = Manifest { version: 3, ..Manifest::empty("lab", vec![DriveId(7), DriveId(8)]) };
    let puts = [
        Write::put(manifest_key("bad"), "{"),
        Write::put(manifest_key("lab"), serde_json::to_vec(&good).unwrap()),
        Write::put(manifest_key("homeless"), serde_json::to_vec(&Manifest::empty("homeless", vec![])).unwrap()),
    ];
    store.write(puts.into(), Durability::Through).unwrap();
    assert_eq!(domains(&store).unwrap(), [DomainAt { name: "lab".into(), version: 3, home: DriveId(7) }]);
}
