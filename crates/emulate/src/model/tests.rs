//! Cases that were computed by hand, what is conserved, and what more of something must not do.

use proptest::prelude::*;

use super::*;
use crate::profile::{Quantity, find};
use crate::work::PageWork;

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
    Work { page_bytes: PAGE, pages: vec![page; count], last_bytes: 0, last_rows: 0 }
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
            prop_assert!(outcome.busy.bus_s <= most && outcome.busy.link_s <= most);
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
