//! Cases that were computed by hand, what is conserved, and what more of something must not do.

use proptest::prelude::*;

use pithead_model::Counts;

use super::*;
use crate::fleet::{Fleet, Level, Prediction, predict};
use crate::profile::{Quantity, find, parse};
use crate::work::{PageWork, Patterns};

const PAGE: u64 = 8192;

fn set(quantity: &mut Quantity, value: f64) {
    quantity.value = value;
}

/// Round numbers: a page takes 1 ms in the one channel and 0.5 ms until it comes, 0.1 ms on the bus, 1 ms in the one
/// core, 1 ms on the link and 1 ms at the host. A message takes 10 µs, a command 20 µs; nobody polls.
fn round() -> Profile {
    let mut profile = find("smart-ssd").unwrap();
    let parts = profile.parts.as_mut().unwrap();
    let rate = PAGE as f64 * 1e3;
    set(&mut parts.medium.channels, 1.0);
    set(&mut parts.medium.channel_bytes_per_s, rate);
    set(&mut parts.medium.read_latency_s, 0.5e-3);
    set(&mut parts.medium.bus_bytes_per_s, rate * 10.0);
    let cpu = parts.cpu.as_mut().unwrap();
    set(&mut cpu.cores, 1.0);
    set(&mut cpu.clock_hz, 1e9);
    for cycles in
        [&mut cpu.compare_cycles, &mut cpu.match_cycles, &mut cpu.sum_cycles, &mut cpu.access_cycles, &mut cpu.word_cycles]
    {
        set(cycles, 0.0);
    }
    set(&mut cpu.page_cycles, 1e6);
    set(&mut parts.link.bytes_per_s, rate);
    set(&mut parts.link.latency_s, 10e-6);
    set(&mut parts.link.command_s, 20e-6);
    set(&mut parts.link.read_bytes, PAGE as f64);
    set(&mut parts.link.queue_depth, 8.0);
    set(&mut parts.link.poll_s, 0.0);
    set(&mut parts.host.clock_hz, 1e9);
    set(&mut parts.host.bytes_per_s, rate);
    set(&mut parts.host.page_cycles, 1e6);
    set(&mut parts.host.row_cycles, 0.0);
    set(&mut parts.host.result_cycles, 0.0);
    set(&mut parts.host.threads, 1.0);
    profile
}

fn parts(profile: &mut Profile) -> &mut Parts {
    profile.parts.as_mut().unwrap()
}

/// Pages that each answer with this many bytes.
fn pages(count: usize, out_bytes: u64) -> Work {
    let page = PageWork { rows: 10, out_rows: u64::from(out_bytes > 0), out_bytes, ..PageWork::default() };
    Work { page_bytes: PAGE, pages: vec![page; count], ..Work::default() }
}

fn elapsed_ms(profile: &Profile, work: &Work, load: Load) -> f64 {
    (run(profile, work, load).unwrap().elapsed_s * 1e9).round() / 1e6
}

#[test]
fn one_page_takes_what_its_steps_take() {
    let (profile, work) = (round(), pages(1, PAGE / 2));
    // OPEN 0.03, channel and latency 1.5, bus 0.1, core 1, link 0.5, back 0.01, CLOSE 0.04.
    assert_eq!(elapsed_ms(&profile, &work, Load::at(ComputeSite::Device)), 3.18);
    // The command 0.03, channel and latency 1.5, bus 0.1, link 1, its way 0.01, host 1.
    assert_eq!(elapsed_ms(&profile, &work, Load::at(ComputeSite::Host)), 3.64);
    // Nobody computes, and nothing travels.
    assert_eq!(elapsed_ms(&profile, &work, Load::reading(ComputeSite::Device)), 1.68);
}

#[test]
fn a_full_bus_is_what_all_wait_for() {
    let mut profile = round();
    set(&mut parts(&mut profile).medium.channels, 100.0);
    set(&mut parts(&mut profile).cpu.as_mut().unwrap().page_cycles, 0.0);
    let outcome = run(&profile, &pages(1000, 0), Load::at(ComputeSite::Device)).unwrap();
    assert_eq!(outcome.bottleneck, Bottleneck::Bus);
    // The first page needs 1.53 ms until the bus, and there are places for 64 only; then 0.1 ms a page, with gaps no longer
    // than what 64 places leave: a page comes back 1.5 ms after its place was free.
    assert!((0.1015..0.103).contains(&outcome.elapsed_s), "{}", outcome.elapsed_s);
}

#[test]
fn a_slow_core_is_what_all_wait_for() {
    let mut profile = round();
    set(&mut parts(&mut profile).medium.channels, 4.0);
    set(&mut parts(&mut profile).cpu.as_mut().unwrap().cores, 2.0);
    let outcome = run(&profile, &pages(1000, 0), Load::at(ComputeSite::Device)).unwrap();
    assert_eq!(outcome.bottleneck, Bottleneck::DeviceCpu);
    // 1000 pages of 1 ms on two cores, after the first pages came.
    assert!((0.5..0.503).contains(&outcome.elapsed_s), "{}", outcome.elapsed_s);
    assert_eq!(outcome.busy.device_cores_s, 1.0);
}

#[test]
fn a_host_waits_for_its_link() {
    let mut profile = round();
    set(&mut parts(&mut profile).medium.channels, 4.0);
    set(&mut parts(&mut profile).host.page_cycles, 1e5);
    let outcome = run(&profile, &pages(1000, 0), Load::at(ComputeSite::Host)).unwrap();
    assert_eq!(outcome.bottleneck, Bottleneck::Link);
    assert!((1.0..1.003).contains(&outcome.elapsed_s), "{}", outcome.elapsed_s);
    assert_eq!(outcome.bytes.link, 1000 * PAGE);
}

#[test]
fn a_host_waits_for_what_it_takes_in() {
    let mut profile = round();
    set(&mut parts(&mut profile).medium.channels, 4.0);
    set(&mut parts(&mut profile).host.page_cycles, 1e5);
    // It takes in what one link brings while it comes, and four devices send as much as this one.
    let alone = elapsed_ms(&profile, &pages(1000, 0), Load::at(ComputeSite::Host));
    let outcome = run(&profile, &pages(1000, 0), Load::beside(ComputeSite::Host, 4.0)).unwrap();
    assert_eq!(outcome.bottleneck, Bottleneck::HostInput);
    assert!((4.0..4.003).contains(&outcome.elapsed_s) && alone < 1003.0, "{} {alone}", outcome.elapsed_s);
    assert_eq!(outcome.busy.host_input_s, 4.0);
    let one = run(&profile, &pages(1, PAGE), Load::beside(ComputeSite::Device, 3.0)).unwrap();
    // OPEN 0.03, channel and latency 1.5, bus 0.1, core 1, link and host 3, back 0.01, CLOSE 0.04.
    assert_eq!((one.elapsed_s * 1e9).round() / 1e6, 5.68);
}

#[test]
fn a_page_that_travels_as_it_is_stored_costs_the_host_a_page() {
    let mut profile = round();
    set(&mut parts(&mut profile).host.row_cycles, 1e4);
    set(&mut parts(&mut profile).host.result_cycles, 1e5);
    let mut work = pages(1, PAGE / 2);
    // As above, with 0.1 for the row that the device computed, which is as long as CLOSE and 0.06 longer.
    assert_eq!(elapsed_ms(&profile, &work, Load::at(ComputeSite::Device)), 3.24);
    work.pages[0].stored = true;
    // 1 for the page, 0.1 for its rows, 0.1 for the one that passes.
    let outcome = run(&profile, &work, Load::at(ComputeSite::Device)).unwrap();
    assert_eq!(((outcome.elapsed_s * 1e9).round() / 1e6, outcome.rows), (4.34, 10));
}

#[test]
fn a_polling_host_learns_of_the_end_at_its_next_get() {
    let mut profile = round();
    set(&mut parts(&mut profile).link.poll_s, 0.01);
    // Done after 2.63 ms. GETs leave at 0.04 and 10.04 ms; the second is answered: 0.03 there, 0.5 for the bytes, 0.01
    // back, and 0.04 for CLOSE.
    assert_eq!(elapsed_ms(&profile, &pages(1, PAGE / 2), Load::at(ComputeSite::Device)), 10.62);
    assert_eq!(run(&profile, &pages(1, 0), Load::at(ComputeSite::Device)).unwrap().polls, 2);
}

#[test]
fn empty_answers_are_counted_and_cost_no_time() {
    let mut profile = round();
    set(&mut parts(&mut profile).link.poll_s, 1e-3);
    // Done after 2.63 ms. GETs leave at 0.04, 1.04, 2.04 and 3.04 ms.
    let outcome = run(&profile, &pages(1, PAGE / 2), Load::at(ComputeSite::Device)).unwrap();
    assert_eq!((outcome.polls, outcome.commands), (4, 6));
    assert_eq!((outcome.elapsed_s * 1e9).round() / 1e6, 3.62);
    // A core that takes a quarter of an hour, and a host that asks without end.
    set(&mut parts(&mut profile).link.poll_s, 1e-12);
    set(&mut parts(&mut profile).cpu.as_mut().unwrap().clock_hz, 1e6);
    set(&mut parts(&mut profile).cpu.as_mut().unwrap().page_cycles, 1e9);
    let outcome = run(&profile, &pages(1, 8), Load::at(ComputeSite::Device)).unwrap();
    assert!(outcome.polls > 20_000_000 && (1000.0..1000.1).contains(&outcome.elapsed_s), "{outcome:?}");
}

#[test]
fn a_full_output_buffer_holds_cores_back() {
    let mut profile = round();
    set(&mut parts(&mut profile).link.poll_s, 0.01);
    set(&mut parts(&mut profile).memory.output_buffer_bytes, PAGE as f64);
    let work = pages(100, PAGE);
    let outcome = run(&profile, &work, Load::at(ComputeSite::Device)).unwrap();
    // One page a GET.
    assert!((1.0..1.03).contains(&outcome.elapsed_s), "{}", outcome.elapsed_s);
    assert!(outcome.busy.blocked_s > 0.5);
    assert_eq!((outcome.bytes.link, outcome.rows), (100 * PAGE, 100));
}

#[test]
fn an_adaptive_interval_grows_with_the_session() {
    let mut profile = round();
    set(&mut parts(&mut profile).link.poll_s, 0.01);
    set(&mut parts(&mut profile).link.poll_least_s, 1e-3);
    // Done after 2.63 ms, as above. GETs leave at 0.04, 1.04, 2.04 and 3.04 ms: 0.03 there, 0.5 for the bytes, 0.01 back, 0.04 for CLOSE.
    let outcome = run(&profile, &pages(1, PAGE / 2), Load::at(ComputeSite::Device)).unwrap();
    assert_eq!(((outcome.elapsed_s * 1e9).round() / 1e6, outcome.polls), (3.62, 4));
    // A page of 100 ms, done after 101.63 ms. An answer is there 0.04 ms after its GET, and so is OPEN's: the interval is an eighth of
    // the time that the GET was sent at, from 1 ms to 10 ms.
    set(&mut parts(&mut profile).cpu.as_mut().unwrap().page_cycles, 1e8);
    let (mut at_ms, mut gets) = (0.04, 1);
    while at_ms + 0.03 < 101.63 {
        at_ms += (at_ms / 8.0_f64).clamp(1.0, 10.0);
        gets += 1;
    }
    let outcome = run(&profile, &pages(1, PAGE / 2), Load::at(ComputeSite::Device)).unwrap();
    assert_eq!(outcome.polls, gets);
    assert!((outcome.elapsed_s * 1e3 - (at_ms + 0.58)).abs() < 1e-6, "{} {at_ms}", outcome.elapsed_s * 1e3);
    set(&mut parts(&mut profile).link.poll_least_s, 0.01);
    let fixed = run(&profile, &pages(1, PAGE / 2), Load::at(ComputeSite::Device)).unwrap();
    assert_eq!((fixed.polls, (fixed.elapsed_s * 1e9).round() / 1e6), (12, 110.62));
}

/// One page a GET fits the buffer, as where the interval is fixed at 10 ms; a host that sees it full asks sooner.
#[test]
fn a_buffer_that_is_full_shortens_an_adaptive_interval() {
    let mut profile = round();
    set(&mut parts(&mut profile).link.poll_s, 0.01);
    set(&mut parts(&mut profile).link.poll_least_s, 1e-3);
    set(&mut parts(&mut profile).memory.output_buffer_bytes, PAGE as f64);
    let outcome = run(&profile, &pages(100, PAGE), Load::at(ComputeSite::Device)).unwrap();
    // The first GET that finds a page reaches the device after 3.07 ms. Each next one does 1.04 ms later, when the page before is over
    // the link and its answer is there. The last page takes 1 ms there, and CLOSE 0.05 ms.
    assert_eq!((outcome.elapsed_s * 1e9).round() / 1e6, 107.08);
    assert_eq!((outcome.bytes.link, outcome.rows), (100 * PAGE, 100));
}

/// Two cores and three slices of four pages: one core has two of them, though the other one is idle then.
#[test]
fn a_slice_is_one_cores_to_its_end() {
    let mut profile = round();
    set(&mut parts(&mut profile).medium.channels, 4.0);
    set(&mut parts(&mut profile).cpu.as_mut().unwrap().cores, 2.0);
    let sliced = |slice_pages| Work { slice_pages, ..pages(12, 0) };
    // The first page is in memory after 1.63 ms and the second one after 1.73 ms; the answer takes 0.01 ms, and CLOSE 0.04 ms.
    let at_device = |slice_pages| elapsed_ms(&profile, &sliced(slice_pages), Load::at(ComputeSite::Device));
    assert_eq!([at_device(0), at_device(1), at_device(4), at_device(12)], [7.78, 7.78, 9.68, 13.68]);
    let outcome = run(&profile, &sliced(4), Load::at(ComputeSite::Device)).unwrap();
    assert_eq!((outcome.pages, outcome.rows, outcome.busy.device_cores_s), (12, 0, 0.012));
}

/// 256 KiB are left of 1.75 MiB beside the buffers.
#[test]
fn what_does_not_fit_the_memory_is_read_again() {
    let mut profile = round();
    let memory = &mut parts(&mut profile).memory;
    set(&mut memory.sram_bytes, 0.0);
    set(&mut memory.dram_bytes, (512 << 10) as f64 + (1 << 20) as f64 + (256 << 10) as f64);
    let holding = |held_bytes| Work { held_bytes, last_bytes: 80, last_rows: 10, ..pages(10, PAGE / 8) };
    let took = |work: &Work| run(&profile, work, Load::at(ComputeSite::Device)).unwrap();
    let [once, just, twice] = [0, 256 << 10, (256 << 10) + 1].map(|held| took(&holding(held)));
    assert_eq!(once, just);
    assert_eq!((once.passes, twice.passes, twice.pages, twice.bytes.medium), (1, 2, 20, 20 * PAGE));
    // The channel is what all wait for: ten more pages of 1 ms.
    assert!((twice.elapsed_s - once.elapsed_s - 0.01).abs() < 1e-9, "{} {}", twice.elapsed_s, once.elapsed_s);
    assert_eq!((twice.bytes.link, twice.rows), (once.bytes.link, once.rows), "each answer goes once");
    assert_eq!(took(&holding(16 * (256 << 10))).passes, 16);
    let told = run(&profile, &holding(16 * (256 << 10) + 1), Load::at(ComputeSite::Device)).unwrap_err().to_string();
    assert!(told.contains("would hold 4.2 MB until its last page and has room for 262 kB"), "{told}");
    let host = run(&profile, &holding(1 << 40), Load::at(ComputeSite::Host)).unwrap();
    assert_eq!(host.passes, 1, "the host's memory is no part of the device");
}

/// A core's half of 32 KiB: of a state of 64 KiB, three quarters are in slow memory.
#[test]
fn what_an_aggregate_holds_beyond_the_fast_memory_costs_accesses() {
    let mut profile = round();
    let cpu = parts(&mut profile).cpu.as_mut().unwrap();
    set(&mut cpu.cores, 2.0);
    set(&mut cpu.sum_cycles, 1000.0);
    set(&mut cpu.access_cycles, 4000.0);
    set(&mut parts(&mut profile).memory.sram_bytes, 32_768.0);
    let page = PageWork { rows: 10, sums: 10, ..PageWork::default() };
    let busy = |held_bytes| {
        let work = Work { page_bytes: PAGE, pages: vec![page], held_bytes, ..Work::default() };
        (run(&profile, &work, Load::at(ComputeSite::Device)).unwrap().busy.device_cores_s * 1e9).round() as u64
    };
    // 1 ms for the page, and for each of ten values 1 µs, with three quarters of 4 µs where the state does not fit.
    assert_eq!([busy(0), busy(16_384), busy(65_536)], [1_010_000, 1_010_000, 1_040_000]);
}

/// More patterns than the matchers take, or longer ones, are the cores' work: no page ends before the bus.
#[test]
fn what_matchers_cannot_look_for_the_cores_search() {
    let profile = find("pm1725-biscuit").unwrap();
    let mut work = pages(100, 0);
    work.page_bytes = 4096;
    work.pages.iter_mut().for_each(|page| page.ruled_out = true);
    let matching = Load { matcher: true, ..Load::at(ComputeSite::Device) };
    for (patterns, bus_pages) in
        [(Patterns::default(), 0), (MANY, 0), (Patterns { count: 4, ..MANY }, 100), (Patterns { bytes_most: 17, ..MANY }, 100)]
    {
        let outcome = run(&profile, &Work { patterns, ..work.clone() }, matching).unwrap();
        assert_eq!(outcome.bytes.bus, bus_pages * 4096, "{patterns:?}");
        assert_eq!(outcome.busy.device_cores_s > 0.0, bus_pages > 0, "{patterns:?}");
    }
}

#[test]
fn matchers_throw_pages_away_before_the_bus() {
    let profile = find("pm1725-biscuit").unwrap();
    let mut work = pages(100, 0);
    work.page_bytes = 4096;
    work.pages.iter_mut().step_by(2).for_each(|page| page.ruled_out = true);
    let outcome = run(&profile, &work, Load { matcher: true, ..Load::at(ComputeSite::Device) }).unwrap();
    assert_eq!((outcome.bytes.medium, outcome.bytes.bus), (100 * 4096, 50 * 4096));
}

#[test]
fn what_cannot_be_modelled_is_refused() {
    let work = pages(1, 0);
    let refused = |name: &str, load| run(&find(name).unwrap(), &work, load).unwrap_err();
    assert_eq!(refused("native", Load::at(ComputeSite::Host)), ModelError::Native("native".into()));
    assert_eq!(refused("sas-hdd", Load::at(ComputeSite::Device)), ModelError::NoCpu("sas-hdd".into()));
    let matching = Load { matcher: true, ..Load::at(ComputeSite::Device) };
    assert_eq!(refused("smart-ssd", matching), ModelError::NoMatcher("smart-ssd".into()));
    let mut slow = round();
    set(&mut parts(&mut slow).cpu.as_mut().unwrap().page_cycles, 1e30);
    assert_eq!(run(&slow, &pages(9, 9), Load::at(ComputeSite::Device)).unwrap_err(), ModelError::Endless("smart-ssd".into()));
    let huge = Work { page_bytes: 1 << 40, ..work.clone() };
    assert!(matches!(run(&find("smart-ssd").unwrap(), &huge, Load::at(ComputeSite::Host)), Err(ModelError::Page { .. })));
}

#[test]
fn no_pages_end_at_once() {
    let (profile, work) = (round(), pages(0, 0));
    assert_eq!(elapsed_ms(&profile, &work, Load::at(ComputeSite::Device)), 0.12);
    assert_eq!(elapsed_ms(&profile, &work, Load::at(ComputeSite::Host)), 0.0);
}

#[test]
fn the_same_work_takes_the_same_time() {
    let profile = find("smart-ssd").unwrap();
    let work = pages(5000, 100);
    assert_eq!(run(&profile, &work, Load::at(ComputeSite::Device)), run(&profile, &work, Load::at(ComputeSite::Device)));
}

/// The profile of this text with one number changed, to each of some values that it may have.
fn with_others(text: &str, section: &str, name: &str, value: f64) -> Vec<Profile> {
    let mut within = "";
    let other = |line: &str, value: f64| match line.split_once(", source") {
        Some((_, source)) => format!("{name} = {{ value = {value:?}, source{source}"),
        None => line.to_owned(),
    };
    let mut change = |value: f64| {
        within = "";
        let lines = text.lines().map(|line| {
            within = line.strip_prefix('[').map_or(within, |line| line.trim_end_matches(']'));
            if within == section && line.starts_with(&format!("{name} = ")) { other(line, value) } else { line.to_owned() }
        });
        parse(&lines.collect::<Vec<_>>().join("\n")).ok()
    };
    let values = [value * 2.0, value / 2.0, value / 1024.0, 1.0, 1e-3];
    values.into_iter().filter(|other| *other != value).filter_map(&mut change).collect()
}

/// As many patterns of a length as the matchers of `pm1725-biscuit` take.
const MANY: Patterns = Patterns { count: 3, bytes_most: 16 };

/// Everything that the model can be asked of a profile.
fn all_outcomes(profile: &Profile) -> (Vec<Outcome>, Vec<Prediction>) {
    let page = PageWork {
        rows: 40,
        compares: 40,
        accesses: 40,
        words: 80,
        matches: 20,
        sums: 20,
        out_rows: 20,
        out_bytes: 4096,
        ..PageWork::default()
    };
    let page_bytes = profile.parts.as_ref().unwrap().medium.page_bytes.whole();
    // What is held is more than the fast memory, and than the slow one.
    let held_bytes = 2 << 30;
    let mut work =
        Work { page_bytes, pages: vec![page; 6000], last_bytes: 8, last_rows: 1, held_bytes, patterns: MANY, slice_pages: 0 };
    work.pages.iter_mut().step_by(2).for_each(|page| page.ruled_out = true);
    let loads = [
        Load::at(ComputeSite::Host),
        Load::beside(ComputeSite::Host, 50.0),
        Load::reading(ComputeSite::Host),
        Load { pages_in_flight: Some(1), ..Load::at(ComputeSite::Host) },
        Load::reading(ComputeSite::Device),
        Load::at(ComputeSite::Device),
        Load { matcher: true, ..Load::at(ComputeSite::Device) },
    ];
    let counts =
        Counts { rows: 1_000_000, read_bytes: 8_000_000, passed_rows: 90_000, passed_bytes: 800_000, ..Counts::default() };
    let levels = Level::ALIKE.into_iter().chain([Level::Hints { patterns: None }]);
    let predictions = levels.map(|level| predict(profile, &counts, level, Fleet::even(2)).unwrap());
    (loads.iter().map(|load| run(profile, &work, *load).unwrap()).collect(), predictions.collect())
}

/// No number is there for nothing.
#[test]
fn every_number_of_a_profile_changes_virtual_time() {
    // A host that waits busily and a slow link, so that all parts are waited for in one of the runs.
    let text = crate::profile::builtin("pm1725-biscuit").unwrap();
    let text = text.replacen("waiting_cores = { value = 0,", "waiting_cores = { value = 24,", 1);
    // A host that polls.
    let text = text.replacen("poll_s = { value = 0,", "poll_s = { value = 0.01,", 1);
    let text = text.replacen("poll_least_s = { value = 0,", "poll_least_s = { value = 0.0004,", 1);
    let profile = parse(&text).unwrap();
    let before = all_outcomes(&profile);
    for (section, quantities) in profile.parts.as_ref().unwrap().sections() {
        for (name, quantity, _) in quantities {
            let others = with_others(&text, section, name, quantity.value);
            assert!(!others.is_empty(), "{section}.{name} may have another value");
            assert!(others.iter().any(|other| all_outcomes(other) != before), "{section}.{name} changes nothing");
        }
    }
}

fn any_profile() -> impl Strategy<Value = Profile> {
    let rates = (1e6..1e9_f64, 1e6..1e9_f64, 1e6..1e9_f64);
    let counts = (1..9_u32, 1..5_u32, 1..5_u32, 1..40_u32);
    let rest = (1_u64..200, prop_oneof![Just(0.0), 1e-4..0.02_f64], 0.0..1e6_f64, 0.0..1e6_f64);
    (rates, counts, rest).prop_map(|((channel, bus, link), (channels, cores, threads, depth), (room, poll, device, host))| {
        let mut profile = round();
        let parts = parts(&mut profile);
        set(&mut parts.medium.channels, f64::from(channels));
        set(&mut parts.medium.channel_bytes_per_s, channel);
        set(&mut parts.medium.bus_bytes_per_s, bus);
        set(&mut parts.memory.output_buffer_bytes, (room * 512) as f64);
        set(&mut parts.memory.page_buffer_bytes, (room * PAGE) as f64);
        let cpu = parts.cpu.as_mut().unwrap();
        set(&mut cpu.cores, f64::from(cores));
        set(&mut cpu.page_cycles, device);
        set(&mut parts.link.bytes_per_s, link);
        set(&mut parts.link.poll_s, poll);
        set(&mut parts.link.poll_least_s, if depth % 2 == 0 { poll } else { poll / 64.0 });
        set(&mut parts.link.queue_depth, f64::from(depth));
        set(&mut parts.host.threads, f64::from(threads));
        set(&mut parts.host.page_cycles, host);
        profile
    })
}

fn any_work() -> impl Strategy<Value = Work> {
    let page = (0..30_u64, 0..PAGE).prop_map(|(out_rows, out_bytes)| PageWork {
        rows: 30,
        out_rows,
        out_bytes,
        ..PageWork::default()
    });
    (prop::collection::vec(page, 0..200), 0..1000_u64).prop_map(|(pages, last_bytes)| Work {
        page_bytes: PAGE,
        pages,
        last_bytes,
        last_rows: last_bytes / 8,
        ..Work::default()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn bytes_and_rows_are_conserved(profile in any_profile(), work in any_work()) {
        let total = work.total();
        let pages = work.pages.len() as u64;
        let device = run(&profile, &work, Load::at(ComputeSite::Device)).unwrap();
        prop_assert_eq!(device.bytes, Bytes { medium: pages * PAGE, bus: pages * PAGE, link: work.out_bytes() });
        prop_assert_eq!((device.pages, device.rows), (pages, total.out_rows + work.last_rows));
        let host = run(&profile, &work, Load::at(ComputeSite::Host)).unwrap();
        prop_assert_eq!(host.bytes, Bytes { medium: pages * PAGE, bus: pages * PAGE, link: pages * PAGE });
        prop_assert_eq!((host.pages, host.rows), (pages, total.rows));
    }

    #[test]
    fn no_part_works_longer_than_there_is_time(mut profile in any_profile(), work in any_work()) {
        for place in [ComputeSite::Device, ComputeSite::Host] {
            let outcome = run(&profile, &work, Load::at(place)).unwrap();
            let parts = parts(&mut profile);
            let most = outcome.elapsed_s * (1.0 + 1e-9);
            prop_assert!(outcome.busy.channels_s <= most * parts.medium.channels.value);
            prop_assert!(outcome.busy.bus_s <= most && outcome.busy.link_s <= most && outcome.busy.host_input_s <= most);
            let cores = parts.cpu.as_ref().unwrap().cores.value;
            prop_assert!(outcome.busy.device_cores_s + outcome.busy.blocked_s <= most * cores);
            prop_assert!(outcome.busy.host_cores_s <= most * parts.host.cores.value, "waiting for the device included");
        }
    }

    #[test]
    fn energy_is_power_times_time(mut profile in any_profile(), work in any_work()) {
        let outcome = run(&profile, &work, Load::at(ComputeSite::Device)).unwrap();
        let parts = parts(&mut profile);
        let energy = outcome.energy;
        let close = |a: f64, b: f64| (a - b).abs() <= 1e-9 * a.abs().max(1e-12);
        prop_assert!(close(energy.device_idle_j, parts.power.idle_w.value * outcome.elapsed_s));
        prop_assert!(close(energy.host_idle_j, parts.host.idle_w.value * outcome.elapsed_s));
        prop_assert!(close(energy.host_cpu_j, parts.host.core_active_w.value * outcome.busy.host_cores_s));
        prop_assert!(close(energy.device_cpu_j, parts.power.core_active_w.value * outcome.busy.device_cores_s));
        let sum = energy.host_cpu_j + energy.device_cpu_j + energy.medium_j + energy.link_j + energy.device_idle_j + energy.host_idle_j;
        prop_assert!(close(energy.system_j(), sum));
        let most = parts.power.medium_active_w.value * outcome.elapsed_s;
        prop_assert!(energy.medium_j <= most * (1.0 + 1e-9), "the medium cannot deliver more than it can");
    }

    /// Where the device speaks first. A host that polls may ask at other moments on a faster link, and miss what it would have
    /// had. Pages of different channels may come in another order, which can cost one of them its time once, and a faster
    /// link may carry an answer in more messages.
    #[test]
    fn a_faster_link_never_makes_a_query_slower(mut profile in any_profile(), work in any_work(), faster in 1.0..20.0_f64) {
        set(&mut parts(&mut profile).link.poll_s, 0.0);
        for place in [ComputeSite::Device, ComputeSite::Host] {
            let slow = run(&profile, &work, Load::at(place)).unwrap();
            let mut other = profile.clone();
            let rate = parts(&mut profile).link.bytes_per_s.value * faster;
            set(&mut parts(&mut other).link.bytes_per_s, rate);
            let fast = run(&other, &work, Load::at(place)).unwrap();
            let moved = match place {
                ComputeSite::Device => fast.polls as f64 * 40e-6,
                ComputeSite::Host => one_page_s(&mut profile),
            };
            prop_assert!(fast.elapsed_s <= slow.elapsed_s + moved + 1e-9, "{:?}: {:?}, then {:?}", place, slow, fast);
        }
    }

    /// Against a device that begins by itself: no sooner, and later by an eighth of the session's time at most, by the shortest interval,
    /// and by the way of a GET.
    #[test]
    fn a_host_whose_interval_adapts_learns_of_the_end_soon(mut profile in any_profile(), count in 0..200_usize, most in 1e-4..0.05_f64, share in 1..100_u32) {
        let work = pages(count, 0);
        set(&mut parts(&mut profile).link.poll_s, 0.0);
        let first = run(&profile, &work, Load::at(ComputeSite::Device)).unwrap().elapsed_s;
        let least = most / f64::from(share);
        set(&mut parts(&mut profile).link.poll_s, most);
        set(&mut parts(&mut profile).link.poll_least_s, least);
        let polled = run(&profile, &work, Load::at(ComputeSite::Device)).unwrap().elapsed_s;
        prop_assert!(polled >= first - 1e-9, "{} s, and {} s where the device begins", polled, first);
        prop_assert!(polled <= first * 1.125 + least + 100e-6, "{} s, and {} s where the device begins", polled, first);
        prop_assert!(polled <= first + most + 100e-6, "{} s, and {} s where the device begins", polled, first);
    }

    #[test]
    fn a_faster_medium_makes_a_scan_at_the_host_no_slower(mut profile in any_profile(), pages in 1..300_usize, faster in 1.0..20.0_f64) {
        set(&mut parts(&mut profile).medium.channels, 1.0);
        let work = self::pages(pages, 0);
        let slow = run(&profile, &work, Load::at(ComputeSite::Host)).unwrap().elapsed_s;
        let rate = parts(&mut profile).medium.channel_bytes_per_s.value * faster;
        set(&mut parts(&mut profile).medium.channel_bytes_per_s, rate);
        let fast = run(&profile, &work, Load::at(ComputeSite::Host)).unwrap().elapsed_s;
        prop_assert!(fast <= slow + 1e-9, "{} s, then {} s", slow, fast);
    }
}

/// What a page takes in every part, one after another.
fn one_page_s(profile: &mut Profile) -> f64 {
    let parts = parts(profile);
    let rates = [&parts.medium.channel_bytes_per_s, &parts.medium.bus_bytes_per_s, &parts.link.bytes_per_s];
    let moving: f64 = rates.iter().map(|rate| PAGE as f64 / rate.value).sum();
    moving + parts.host.page_cycles.value / parts.host.clock_hz.value
}
