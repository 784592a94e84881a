use super::*;
use pithead_door::{DomainAt, HistoryAsk, Pick};
use pithead_model::{LostHome, Manifest};

fn manifest(version: u64, home: DriveId) -> Manifest {
    Manifest { version, ..Manifest::empty("main", vec![home, DriveId(1)]) }
}

async fn there(drive: &Drive) -> Manifest {
    drive.manifest("main".into()).await.unwrap().unwrap()
}

#[tokio::test]
async fn manifests_are_compared_and_set() {
    let Rig { drive, directory: _directory } = rig();
    let ours = |version| manifest(version, drive.id());
    assert_eq!(drive.manifest("main".into()).await.unwrap(), None);
    drive.commit(0, ours(1)).await.unwrap();
    assert_eq!(drive.commit(0, ours(1)).await.unwrap_err().blame, Blame::Conflict);
    assert_eq!(drive.commit(1, ours(3)).await.unwrap_err().blame, Blame::User);
    assert_eq!(there(&drive).await.version, 1);
    assert_eq!(drive.manifest("a/b".into()).await.unwrap_err().blame, Blame::User);
}

#[tokio::test]
async fn of_commits_side_by_side_one_wins() {
    let Rig { drive, directory: _directory } = rig();
    let ours = |dataset: u64| Manifest { drives: vec![drive.id(), DriveId(dataset)], ..manifest(1, drive.id()) };
    let commits = futures::future::join_all((0..8).map(|number| drive.commit(0, ours(number)))).await;
    let won: Vec<usize> = (0..8).filter(|number| commits[*number].is_ok()).collect();
    assert_eq!(won.len(), 1);
    assert_eq!(there(&drive).await, ours(won[0] as u64));
    let lost = commits.into_iter().filter_map(Result::err);
    assert!(lost.into_iter().all(|fault| fault.blame == Blame::Conflict));
}

#[tokio::test]
async fn only_its_home_commits_a_manifest() {
    let Rig { drive, directory: _directory } = rig();
    for wrong in [manifest(1, DriveId(99)), Manifest { version: 1, ..Manifest::empty("main", vec![]) }] {
        let fault = drive.commit(0, wrong).await.unwrap_err();
        assert!(fault.blame == Blame::User && fault.message.contains(&drive.id().to_string()), "{fault}");
    }
    for wrong in [manifest(1, drive.id()), Manifest { version: 1, ..Manifest::empty("main", vec![]) }] {
        assert_eq!(drive.keep_manifest(wrong).await.unwrap_err().blame, Blame::User);
    }
    assert_eq!(drive.manifest("main".into()).await.unwrap(), None);
    let outside = Manifest { domain: "a/b".into(), ..manifest(1, DriveId(99)) };
    assert_eq!(drive.keep_manifest(outside).await.unwrap_err().blame, Blame::User);
}

#[tokio::test]
async fn a_copy_is_kept_if_it_is_newer_whoever_is_home() {
    let Rig { drive, directory: _directory } = rig();
    let (other, third) = (DriveId(98), DriveId(99));
    drive.commit(0, manifest(1, drive.id())).await.unwrap();
    drive.keep_manifest(manifest(1, other)).await.unwrap();
    assert_eq!(there(&drive).await, manifest(1, drive.id()), "one of the same version is not newer");
    // While this drive was away, another became home.
    let lost_homes = vec![LostHome { drive: drive.id(), version: 1 }];
    let next = |version, home| Manifest { lost_homes: lost_homes.clone(), ..manifest(version, home) };
    drive.keep_manifest(next(5, other)).await.unwrap();
    drive.keep_manifest(manifest(4, third)).await.unwrap();
    assert_eq!(there(&drive).await, next(5, other));
    assert_eq!(drive.commit(1, manifest(2, drive.id())).await.unwrap_err().blame, Blame::Conflict);
    assert_eq!(drive.status().await.unwrap().domains, [DomainAt { name: "main".into(), version: 5, home: other }]);
    // It takes over from what it has.
    drive.commit(5, manifest(6, drive.id())).await.unwrap();
    assert_eq!(drive.status().await.unwrap().domains, [DomainAt { name: "main".into(), version: 6, home: drive.id() }]);
}

/// A command that opened a drive for a moment ended the versions that the drive had kept for longer.
#[tokio::test]
async fn versions_stay_for_as_long_as_a_drive_was_told_when_it_was_served() {
    let Rig { drive, directory } = rig_with(|options| (options.history, options.sets_history) = (60 * LONG, true));
    drive.commit(0, manifest(1, drive.id())).await.unwrap();
    drive.commit(1, manifest(2, drive.id())).await.unwrap();
    drive.stop(Duration::ZERO).await;
    drop(drive);
    let drive = open_drive(&directory, |_| {});
    drive.storage.keep_history().await.unwrap();
    let ask = HistoryAsk { domain: "main".into(), pick: Pick::Before(u64::MAX) };
    let kept = drive.storage.read_history(ask).await.unwrap();
    assert_eq!(kept.iter().map(|told| told.version).collect::<Vec<_>>(), [2, 1]);
}
