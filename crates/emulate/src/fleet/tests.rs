use proptest::prelude::*;

use super::*;
use crate::profile::{builtin_names, find};

fn counts() -> Counts {
    Counts {
        rows: 10_000_000,
        read_bytes: 400_000_000,
        stored_bytes: 1_000_000_000,
        passed_rows: 100_000,
        passed_bytes: 4_000_000,
        out_rows: 100,
        out_bytes: 1600,
    }
}

#[test]
fn bytes_are_those_that_were_counted() {
    let profile = find("newport").unwrap();
    for (level, link) in [(Level::Whole, 1600), (Level::Filtered, 4_000_000), (Level::Bytes, 1_000_000_000)] {
        let predicted = predict(&profile, &counts(), level, Fleet::even(4)).unwrap();
        assert_eq!(predicted.link_bytes, link, "{level:?}");
    }
}

/// A drive of many has less than a page, and less than a byte of the answer.
#[test]
fn what_leaves_the_media_is_what_the_links_carry_and_joules_are_paid_for() {
    let profile = find("newport").unwrap();
    let parts = profile.parts.as_ref().unwrap();
    let few = Counts { read_bytes: 1_000_000, stored_bytes: 1_000_000, rows: 100_000, ..counts() };
    for counts in [few, counts(), Counts { stored_bytes: 70_000_000_001, ..counts() }, Counts { read_bytes: 0, ..few }] {
        for fleet in [Fleet::even(1), Fleet::even(10_000), Fleet { skew: 3.0, copies: 2, failed: 1, ..Fleet::even(8) }] {
            let bytes = predict(&profile, &counts, Level::Bytes, fleet).unwrap();
            assert_eq!((bytes.medium_bytes, bytes.link_bytes), (counts.stored_bytes, counts.stored_bytes), "{fleet:?}");
            let whole = predict(&profile, &counts, Level::Whole, fleet).unwrap();
            assert_eq!((whole.medium_bytes, whole.link_bytes), (counts.read_bytes, counts.out_bytes), "{fleet:?}");
            for predicted in [bytes, whole] {
                let link_j = parts.power.link_active_w.value * predicted.link_bytes as f64 / parts.link.bytes_per_s.value;
                let medium_j = parts.power.medium_active_w.value * predicted.medium_bytes as f64 / parts.medium.bytes_per_s();
                // Time is in whole picoseconds, of which a byte takes a few hundred.
                let is_paid = |paid: f64, due: f64| (paid - due).abs() <= due * 0.01;
                assert!(is_paid(predicted.energy.link_j, link_j), "{fleet:?}: {predicted:?} {link_j}");
                assert!(is_paid(predicted.energy.medium_j, medium_j), "{fleet:?}: {predicted:?} {medium_j}");
            }
        }
    }
}

#[test]
fn one_more_drive_helps_until_the_host_is_full() {
    let mut profile = find("newport").unwrap();
    let time = |drives| predict(&profile, &counts(), Level::Whole, Fleet::even(drives)).unwrap().elapsed_s;
    assert!((1.9..=2.05).contains(&(time(1) / time(2))), "{} {}", time(1), time(2));
    for (bytes_per_s, bottleneck) in [(51.2e9, Bottleneck::HostInput), (1e13, Bottleneck::HostCpu)] {
        profile.parts.as_mut().unwrap().host.bytes_per_s.value = bytes_per_s;
        let stored = |drives| predict(&profile, &counts(), Level::Bytes, Fleet::even(drives)).unwrap();
        assert_eq!(stored(1000).bottleneck, bottleneck);
        let times = stored(2000).elapsed_s / stored(1000).elapsed_s;
        assert!((0.8..1.3).contains(&times), "the host does not become faster: {times}");
    }
}

/// A regression: thousands of links of drives brought terabytes a second into one host.
#[test]
fn a_host_takes_in_no_more_than_it_can() {
    let large = Counts { stored_bytes: 10_000_000_000_000, rows: 1_000_000, ..counts() };
    for name in builtin_names().into_iter().filter(|name| *name != "native") {
        let profile = find(name).unwrap();
        let most = profile.parts.as_ref().unwrap().host.bytes_per_s.value;
        let stored = predict(&profile, &large, Level::Bytes, Fleet::even(10_000)).unwrap();
        let rate = stored.link_bytes as f64 / stored.elapsed_s;
        assert!(rate <= most * 1.001, "{name}: {rate} of {most}");
    }
    let whole = |drives| predict(&find("newport").unwrap(), &counts(), Level::Whole, Fleet::even(drives)).unwrap();
    assert!(whole(1000).elapsed_s < whole(10).elapsed_s / 20.0, "answers that are short do not fill it");
}

/// A regression: one drive of Skytether's was faster than the client, whose core is 15 times as fast as each of its two.
#[test]
fn envoy_is_slower_than_its_client_at_every_query() {
    let all = Counts { rows: 10_000_000, read_bytes: 80_000_000, stored_bytes: 80_000_000, ..Counts::default() };
    let sum = Counts { passed_rows: 10_000_000, passed_bytes: 80_000_000, out_rows: 1, out_bytes: 16, ..all };
    let filter = Counts { passed_rows: 10_000, passed_bytes: 80_000, out_rows: 10_000, out_bytes: 80_000, ..all };
    for counts in [sum, filter] {
        let time = |name, level, drives| predict(&find(name).unwrap(), &counts, level, Fleet::even(drives)).unwrap().elapsed_s;
        let client = time("kinetic-client", Level::Bytes, 1);
        let times = time("kinetic-envoy", Level::Whole, 1) / client;
        assert!((7.0..7.7).contains(&times), "15 over two cores: {times}");
        assert!(time("kinetic-envoy", Level::Whole, 9) < client && time("kinetic-envoy", Level::Whole, 6) > client);
    }
}

/// 400 MB are read to find pages of 40 MB with 1 million rows, of which 100,000 pass.
fn hints() -> Counts {
    Counts { passed_rows: 1_000_000, passed_bytes: 40_000_000, out_rows: 100_000, ..counts() }
}

#[test]
fn pages_that_may_match_travel_and_are_the_hosts_work() {
    let profile = find("newport").unwrap();
    let level = |patterns: bool| Level::Hints { patterns: patterns.then_some(ONE) };
    let predict = |counts: &Counts, level| predict(&profile, counts, level, Fleet::even(1)).unwrap();
    let found = predict(&hints(), level(false));
    assert_eq!((found.medium_bytes, found.link_bytes, level(false).number()), (400_000_000, 40_000_000, 1));
    assert_eq!(found, predict(&hints(), level(true)), "it has no matchers");
    // 24,415 pages, of which 2442 travel: these go through a core, and are the host's work as stored ones; the others are searched.
    let cores_s = (24_415.0 * 8560.0 + 10e6 * 8.56) / 1.2e9;
    assert!((found.energy.device_cpu_j / (cores_s * 0.5) - 1.0).abs() < 0.01, "{:?} {cores_s}", found.energy);
    assert!((0.1..0.105).contains(&found.elapsed_s), "the bus brings 4 GB/s: {}", found.elapsed_s);
    let host_s = (2442.0 * 4000.0 + 1e6 * 20.0 + 1e5 * 50.0) / 3e9;
    assert!((found.energy.host_cpu_j / (host_s * 10.0) - 1.0).abs() < 0.01, "{} {host_s}", found.energy.host_cpu_j);
    // What is searched and rules nothing out is read beside what travels.
    let all = predict(&Counts { passed_bytes: 200_000_000, passed_rows: 10_000_000, ..hints() }, level(false));
    assert!(all.link_bytes == 200_000_000 && all.energy.host_cpu_j > found.energy.host_cpu_j * 4.0, "{all:?}");
    for odd in [Counts { read_bytes: 0, passed_bytes: 0, ..hints() }, Counts { passed_bytes: 400_000_000, ..hints() }] {
        assert!(predict(&odd, level(true)).elapsed_s.is_finite());
    }
}

/// One pattern that any matcher takes.
const ONE: Patterns = Patterns { count: 1, bytes_most: 4 };

#[test]
fn matchers_look_for_patterns_and_spare_the_cores() {
    let biscuit = find("pm1725-biscuit").unwrap();
    let mut plain = biscuit.clone();
    plain.parts.as_mut().unwrap().matcher = None;
    let hints = Counts { passed_rows: 10_000, passed_bytes: 400_000, out_rows: 1000, ..hints() };
    let time =
        |profile: &Profile, patterns| predict(profile, &hints, Level::Hints { patterns }, Fleet::even(1)).unwrap().elapsed_s;
    let by_cores = time(&plain, Some(ONE));
    assert_eq!(time(&biscuit, None), by_cores, "cores search what no matcher does");
    assert!(time(&biscuit, Some(ONE)) < by_cores / 3.0, "{} {by_cores}", time(&biscuit, Some(ONE)));
    // It takes three patterns of 16 bytes.
    let most = Patterns { count: 3, bytes_most: 16 };
    assert_eq!(time(&biscuit, Some(most)), time(&biscuit, Some(ONE)));
    assert_eq!(time(&biscuit, Some(Patterns { count: 4, ..most })), by_cores, "one pattern too many");
    assert_eq!(time(&biscuit, Some(Patterns { bytes_most: 17, ..most })), by_cores, "a pattern that is too long");
    let mut slow = biscuit.clone();
    slow.parts.as_mut().unwrap().matcher.as_mut().unwrap().bytes_per_s.value = 1e6;
    // 400 MB through 16 matchers of 1 MB/s.
    assert!((24.9..26.0).contains(&time(&slow, Some(ONE))), "{}", time(&slow, Some(ONE)));
    let whole = |profile: &Profile| predict(profile, &counts(), Level::Whole, Fleet::even(1)).unwrap();
    assert_eq!(whole(&slow), whole(&plain), "no other level meets it");
}

/// Groups of an aggregate that do not fit the memory of a drive: another half of them needs another pass, on fewer drives more.
#[test]
fn groups_that_do_not_fit_are_read_for_again() {
    let profile = find("newport").unwrap();
    let room = profile.parts.as_ref().unwrap().memory.held_bytes_max();
    let whole = |out_bytes, drives| {
        let counts = Counts { passed_rows: 10_000_000, out_rows: 1_000_000, out_bytes, ..counts() };
        predict(&profile, &counts, Level::Whole, Fleet::even(drives))
    };
    let read = |out_bytes, drives| whole(out_bytes, drives).unwrap().medium_bytes / counts().read_bytes;
    assert_eq!([read(room, 1), read(room + 1, 1), read(3 * room, 1), read(3 * room, 3)], [1, 2, 3, 1]);
    let told = whole(17 * room, 1).unwrap_err().to_string();
    assert!(told.contains("newport would hold") && told.contains("more than 16 times"), "{told}");
    let filter = Counts { out_rows: counts().passed_rows, out_bytes: 17 * room, ..counts() };
    assert!(predict(&profile, &filter, Level::Whole, Fleet::even(1)).is_ok(), "a filter holds nothing");
}

/// 15.26 slices on four cores: one of them has four whole ones, and the even part of each is 3.81.
#[test]
fn cores_that_take_whole_slices_do_not_end_at_one_time() {
    let profile = find("newport").unwrap();
    let counts = Counts { rows: 4_000_000, read_bytes: 20_000_000, ..counts() };
    let time = |slice_rows| predict_in_slices(&profile, &counts, Level::Whole, Fleet::even(1), slice_rows).unwrap();
    let (pages, slices) = (time(0), time(262_144));
    assert_eq!(pages, predict(&profile, &counts, Level::Whole, Fleet::even(1)).unwrap());
    let times = slices.elapsed_s / pages.elapsed_s;
    assert!((1.03..1.07).contains(&times), "{times}");
    assert_eq!((slices.medium_bytes, slices.link_bytes), (pages.medium_bytes, pages.link_bytes));
    assert!((slices.energy.device_cpu_j / pages.energy.device_cpu_j - 1.0).abs() < 1e-9, "as much work");
    assert!((3.8..4.01).contains(&(time(u64::MAX).elapsed_s / pages.elapsed_s)), "one slice is one core's");
}

#[test]
fn all_wait_for_the_fullest_drive() {
    let profile = find("newport").unwrap();
    let with = |skew| predict(&profile, &counts(), Level::Whole, Fleet { skew, ..Fleet::even(8) }).unwrap();
    let (even, double, one) = (with(1.0), with(2.0), with(8.0));
    assert!((1.9..=2.05).contains(&(double.elapsed_s / even.elapsed_s)), "{double:?} {even:?}");
    let alone = predict(&profile, &counts(), Level::Whole, Fleet::even(1)).unwrap();
    assert!((one.elapsed_s / alone.elapsed_s - 1.0).abs() < 1e-6, "{one:?} {alone:?}");
    assert!(double.drives_j > even.drives_j, "seven drives wait, and are on");
    assert!(double.link_bytes.abs_diff(even.link_bytes) < 100);
}

#[test]
fn one_drive_does_what_its_neighbour_leaves() {
    let profile = find("newport").unwrap();
    let with = |fleet: Fleet| predict(&profile, &counts(), Level::Whole, fleet).unwrap();
    let even = with(Fleet::even(8));
    let two = |failed, skew| with(Fleet { copies: 2, failed, skew, ..Fleet::even(8) });
    let times = |prediction: &Prediction| prediction.elapsed_s / even.elapsed_s;
    // Its own part and half of another; where more fail, each has a neighbour of its own.
    assert!((1.45..1.55).contains(&times(&two(1, 1.0))), "{}", times(&two(1, 1.0)));
    assert_eq!(two(4, 1.0).elapsed_s, two(1, 1.0).elapsed_s);
    // With three copies, two next to each other may fail.
    let three = with(Fleet { copies: 3, failed: 2, ..Fleet::even(8) });
    assert!((1.9..2.1).contains(&times(&three)), "{}", times(&three));
    // The fullest has four parts, and two of them are left after two; the others have done theirs.
    assert!((3.8..4.2).contains(&times(&two(1, 4.0))), "{}", times(&two(1, 4.0)));
    assert!(two(1, 1.0).link_bytes.abs_diff(even.link_bytes) < 100, "nothing is sent twice");
    assert!(two(4, 1.0).drives_j < two(1, 1.0).drives_j, "what has failed needs no power");
}

#[test]
fn fleets_that_lose_data_and_other_impossible_ones_are_refused() {
    let fleet = |drives, skew, copies, failed| Fleet { drives, skew, copies, failed };
    for possible in [fleet(1, 1.0, 1, 0), fleet(8, 8.0, 2, 4), fleet(9, 1.0, 3, 6), fleet(7, 1.0, 7, 6), fleet(5, 1.0, 2, 2)] {
        assert_eq!(possible.check(), Ok(()), "{possible:?}");
    }
    for (impossible, why) in [
        (fleet(0, 1.0, 1, 0), "drives"),
        (fleet(DRIVES_MAX + 1, 1.0, 1, 0), "drives"),
        (fleet(4, 4.5, 1, 0), "skew"),
        (fleet(4, f64::NAN, 1, 0), "skew"),
        (fleet(4, 1.0, 0, 0), "copy"),
        (fleet(4, 1.0, 5, 0), "copy"),
        (fleet(4, 1.0, 1, 1), "one copy would lose data"),
        (fleet(5, 1.0, 2, 3), "2 copies would lose data"),
        (fleet(1, 1.0, 1, 1), "lose data"),
    ] {
        let told = impossible.check().unwrap_err();
        assert!(told.contains(why), "{impossible:?}: {told}");
    }
}

#[test]
fn a_drive_without_cores_only_hands_out_bytes() {
    let profile = find("pm1725").unwrap();
    assert!(matches!(predict(&profile, &counts(), Level::Whole, Fleet::even(1)), Err(ModelError::NoCpu(_))));
    assert!(predict(&profile, &counts(), Level::Bytes, Fleet::even(1)).is_ok());
    assert!(matches!(predict(&find("native").unwrap(), &counts(), Level::Bytes, Fleet::even(1)), Err(ModelError::Native(_))));
}

#[test]
fn a_part_that_is_multiplied_is_close_to_the_whole() {
    let profile = find("newport").unwrap();
    let large = Counts { rows: 1_000_000_000, read_bytes: 40_000_000_000, ..counts() };
    let whole = predict(&profile, &large, Level::Whole, Fleet::even(1)).unwrap();
    let tenth =
        predict(&profile, &Counts { rows: 100_000_000, read_bytes: 4_000_000_000, ..large }, Level::Whole, Fleet::even(1))
            .unwrap();
    assert!((whole.elapsed_s / tenth.elapsed_s / 10.0 - 1.0).abs() < 0.02, "{whole:?} {tenth:?}");
}

#[test]
fn parts_at_different_levels_add_up() {
    let profile = find("newport").unwrap();
    let both = ByLevel { whole: counts(), hints: counts(), ..ByLevel::default() };
    let sum = predict_levels(&profile, &both, Fleet::even(2)).unwrap().unwrap();
    let [whole, bytes] = [Level::Whole, Level::Bytes].map(|level| predict(&profile, &counts(), level, Fleet::even(2)).unwrap());
    assert_eq!(sum.elapsed_s, whole.elapsed_s + bytes.elapsed_s);
    assert_eq!(sum.link_bytes, whole.link_bytes + bytes.link_bytes);
    assert!((sum.energy.system_j() - sum.system_j).abs() < 1e-9, "{sum:?}");
    assert_eq!(sum.bottleneck, bytes.bottleneck);
    assert_eq!(predict_levels(&profile, &ByLevel::default(), Fleet::even(2)).unwrap(), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn any_counts_have_a_prediction(rows in 0..10_u64.pow(12), bytes in 0..10_u64.pow(13), drives in 1..=DRIVES_MAX, skew in 0.0..=1.0_f64, copies in 1..5_u64, failed in 0.0..=1.0_f64) {
        let copies = copies.min(drives);
        let failed = (failed * (drives - drives.div_ceil(copies)) as f64) as u64;
        let fleet = Fleet { drives, skew: 1.0 + skew * (drives - 1) as f64, copies, failed };
        let counts = Counts { rows, read_bytes: bytes, stored_bytes: bytes, passed_rows: rows / 3, ..Counts::default() };
        for level in Level::ALIKE {
            let predicted = predict(&find("dpu-array").unwrap(), &counts, level, fleet).unwrap();
            prop_assert!(predicted.elapsed_s.is_finite() && predicted.system_j >= predicted.drives_j);
        }
    }
}

/// A regression: a drive's rows, and with them those of all others, were one thread's work at the host, so that faster and more drives
/// were slower.
#[test]
fn what_is_faster_or_more_is_never_slower() {
    let base = find("newport").unwrap();
    let counts =
        [counts(), Counts { rows: 200_000, read_bytes: 2_000_000, stored_bytes: 5_000_000, passed_rows: 150_000, ..counts() }];
    let time = |profile: &Profile, counts: &Counts, level, drives| {
        predict(profile, counts, level, Fleet::even(drives)).unwrap().elapsed_s
    };
    let with = |change: &dyn Fn(&mut Parts)| {
        let mut profile = base.clone();
        change(profile.parts.as_mut().unwrap());
        profile
    };
    for (counts, level) in counts.iter().flat_map(|counts| Level::ALIKE.map(|level| (counts, level))) {
        // Work is in whole pages and batches, so a little may be lost where it does not divide.
        let falls = |what: &str, times: Vec<f64>| {
            for pair in times.windows(2) {
                assert!(pair[1] <= pair[0] * 1.05, "{what}, {level:?}: {times:?}");
            }
        };
        for drives in [1, 4, 300] {
            let by = |change: &dyn Fn(&mut Parts, f64), values: &[f64]| {
                values
                    .iter()
                    .map(|value| time(&with(&|parts| change(parts, *value)), counts, level, drives))
                    .collect::<Vec<_>>()
            };
            falls(
                "cores",
                by(&|parts, many| parts.cpu.as_mut().unwrap().cores.value = many, &[1.0, 4.0, 7.0, 8.0, 9.0, 12.0, 16.0]),
            );
            falls(
                "clock",
                by(&|parts, hertz| parts.cpu.as_mut().unwrap().clock_hz.value = hertz, &[5e8, 1e9, 2e9, 1e10, 1e11]),
            );
            falls("threads", by(&|parts, many| parts.host.threads.value = many, &[1.0, 2.0, 4.0, 16.0]));
        }
        falls("drives", [1, 2, 4, 8, 64, 512].map(|drives| time(&base, counts, level, drives)).to_vec());
    }
    let threads = |many| with(&|parts| parts.host.threads.value = many);
    let busy = |many| time(&threads(many), &counts[0], Level::Filtered, 10_000);
    assert!(busy(16.0) < busy(1.0) / 4.0, "{} {}", busy(16.0), busy(1.0));
}
