//! The division compared with one that is found by looking at all divisions, and with absurd input.

use pithead_model::Level;
use pithead_policy::{Allowed, ByLevel, DriveState, HostState, LinkState, Resource, Setup, SliceCosts, Snapshot, split};
use proptest::prelude::*;

fn snapshot() -> Snapshot {
    Snapshot {
        left: 12,
        resident: 0,
        costs: SliceCosts {
            drive_ns: ByLevel { whole: 40e6, filtered: 30e6, hints: 0.2e6, bytes: 0.1e6 },
            host_ns: ByLevel { whole: 0.0, filtered: 3e6, hints: 10e6, bytes: 10e6 },
            link_bytes: ByLevel { whole: 1e3, filtered: 1e6, hints: 2.5e6, bytes: 2.5e6 },
        },
        setup: ByLevel::default(),
        drive: DriveState { cores: 2.0, busy_ns: 0.0 },
        link: LinkState { bytes_per_s: 125e6, backlog_bytes: 0.0 },
        host: HostState { cores: 2.0, backlog_ns: 0.0 },
        allowed: Allowed { hints: false, ..Allowed::ALL },
        whole_is_all_or_none: false,
    }
}

/// The finish when only `level` may be chosen.
fn finish_of_fixed(snapshot: &Snapshot, level: Level) -> f64 {
    split(&Snapshot { allowed: Allowed::only(level), ..snapshot.clone() }).finish_ns
}

#[test]
fn the_example_of_the_document() {
    let split = split(&snapshot());
    assert_eq!(split.slices, ByLevel { whole: 6, filtered: 0, hints: 0, bytes: 6 });
    assert_eq!(split.bottleneck, Resource::Drive);
    assert!((119e6..131e6).contains(&split.finish_ns), "{split:?}");
    assert!(split.fixed_ns.whole > 239e6 && split.fixed_ns.bytes > 239e6, "{split:?}");
}

#[test]
fn ties_go_to_the_higher_level() {
    let mut ask = snapshot();
    ask.costs.host_ns = ByLevel::default();
    ask.costs.drive_ns = ByLevel::default();
    ask.link.bytes_per_s = f64::INFINITY;
    assert_eq!(split(&ask).slices, ByLevel { whole: 12, filtered: 0, hints: 0, bytes: 0 });
}

#[test]
fn a_dead_link_leaves_the_work_at_the_drive() {
    let mut ask = snapshot();
    ask.link.bytes_per_s = 0.0;
    ask.costs.link_bytes.whole = 0.0;
    let split = split(&ask);
    assert_eq!(split.slices, ByLevel { whole: 12, filtered: 0, hints: 0, bytes: 0 });
    assert!(split.finish_ns.is_finite() && split.fixed_ns.bytes.is_infinite());
    ask.allowed = Allowed::only(Level::Bytes);
    let cannot = pithead_policy::split(&ask);
    assert_eq!(cannot.slices.bytes, 12);
    assert!(cannot.finish_ns.is_infinite());
}

#[test]
fn a_whole_partition_is_taken_whole_or_not_at_all() {
    let mut ask = snapshot();
    ask.whole_is_all_or_none = true;
    let split = split(&ask);
    assert!(split.slices.whole == 0 || split.slices.whole == 12, "{split:?}");
    assert!(split.finish_ns <= split.fixed_ns.whole);
}

#[test]
fn what_the_host_holds_is_taken_there_while_it_is_free() {
    let mut ask = snapshot();
    ask.resident = 12;
    let free = split(&ask).slices;
    assert!(free.bytes >= 8, "{free:?}");
    ask.host.backlog_ns = 1e9;
    let busy = split(&ask).slices;
    assert_eq!(busy.bytes, 0, "{busy:?}");
}

#[test]
fn pages_that_may_match_are_sent_where_drive_and_link_are_weak() {
    let mut ask = snapshot();
    ask.allowed.hints = true;
    // Nothing to leave out: as good as level 0, and the higher level of the two.
    assert_eq!(split(&ask).slices, ByLevel { whole: 6, filtered: 0, hints: 6, bytes: 0 });
    // A tenth of the bytes, at a drive that needs 600 ms for a slice.
    ask.costs.link_bytes.hints = 0.25e6;
    (ask.costs.drive_ns.whole, ask.costs.drive_ns.filtered) = (600e6, 450e6);
    let hinted = split(&ask);
    assert_eq!(hinted.slices, ByLevel { whole: 0, filtered: 0, hints: 12, bytes: 0 });
    assert!(hinted.finish_ns * 3.0 < hinted.fixed_ns.bytes.min(hinted.fixed_ns.filtered), "{hinted:?}");
    // One carrier looks for them, however many cores the drive has.
    ask.costs.drive_ns.hints = 60e6;
    assert!(split(&Snapshot { allowed: Allowed::only(Level::Hints), ..ask.clone() }).finish_ns >= 12.0 * 60e6);
    assert!(split(&ask).slices.bytes > 0, "{:?}", split(&ask));
}

#[test]
fn what_has_to_be_sent_once_counts() {
    let mut ask = snapshot();
    ask.costs.drive_ns.whole = 15e6;
    assert!(split(&ask).slices.bytes > 0);
    ask.setup.bytes = Setup { link_bytes: 40e6, host_ns: 0.0, drive_ns: 0.0 };
    ask.setup.filtered = ask.setup.bytes;
    assert_eq!(split(&ask).slices.whole, 12);
}

fn costs() -> impl Strategy<Value = ByLevel<f64>> {
    let cost = || 0.0..1e8f64;
    (cost(), cost(), cost(), cost()).prop_map(|(whole, filtered, hints, bytes)| ByLevel { whole, filtered, hints, bytes })
}

fn absurd() -> impl Strategy<Value = f64> {
    prop_oneof![
        Just(f64::NAN),
        Just(f64::INFINITY),
        Just(f64::NEG_INFINITY),
        Just(0.0),
        Just(-1.0),
        Just(1e308),
        Just(1e-308),
        Just(f64::MAX),
        any::<f64>(),
    ]
}

prop_compose! {
    fn sensible()(
        left in 1..300u32, resident in 0..40u32, drive in costs(), host in costs(), bytes in costs(), cores in 0.1..8.0f64,
        host_cores in 0.1..16.0f64, rate in 1e6..1e10f64, busy in 0.0..1e9f64, queued in 0.0..1e9f64, waiting in 0.0..1e8f64,
    ) -> Snapshot {
        Snapshot {
            left,
            resident,
            costs: SliceCosts { drive_ns: drive, host_ns: host, link_bytes: bytes },
            drive: DriveState { cores, busy_ns: busy },
            link: LinkState { bytes_per_s: rate, backlog_bytes: waiting },
            host: HostState { cores: host_cores, backlog_ns: queued },
            allowed: Allowed::ALL,
            ..snapshot()
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_split_is_complete_and_no_worse_than_one_level(ask in sensible()) {
        let split = split(&ask);
        prop_assert_eq!(split.slices.to_array().iter().sum::<u32>(), ask.left);
        for level in ByLevel::<f64>::LEVELS {
            prop_assert!(split.finish_ns <= split.fixed_ns.get(level) * (1.0 + 1e-9));
            prop_assert!((finish_of_fixed(&ask, level) - split.fixed_ns.get(level)).abs() <= 1e-6 * split.finish_ns.max(1.0));
        }
    }

    #[test]
    fn no_absurd_number_panics(
        numbers in prop::collection::vec(absurd(), 30), left in any::<u32>(), resident in any::<u32>(), flags in any::<[bool; 5]>(),
    ) {
        let four = |at: usize| {
            let [whole, filtered, hints, bytes] = [0, 1, 2, 3].map(|level| numbers[at + level]);
            ByLevel { whole, filtered, hints, bytes }
        };
        let setup = |at: usize| Setup { link_bytes: numbers[at], host_ns: numbers[at + 1], drive_ns: numbers[at + 2] };
        let ask = Snapshot {
            left,
            resident,
            costs: SliceCosts { drive_ns: four(0), host_ns: four(4), link_bytes: four(8) },
            setup: ByLevel { whole: setup(12), filtered: setup(15), hints: setup(18), bytes: setup(21) },
            drive: DriveState { cores: numbers[24], busy_ns: numbers[25] },
            link: LinkState { bytes_per_s: numbers[26], backlog_bytes: numbers[27] },
            host: HostState { cores: numbers[28], backlog_ns: numbers[29] },
            allowed: Allowed { whole: flags[0], filtered: flags[1], hints: flags[4], bytes: flags[2] },
            whole_is_all_or_none: flags[3],
        };
        let split = split(&ask);
        prop_assert_eq!(split.slices.to_array().iter().map(|n| u64::from(*n)).sum::<u64>(), u64::from(left));
        prop_assert!(!split.finish_ns.is_nan());
    }
}
