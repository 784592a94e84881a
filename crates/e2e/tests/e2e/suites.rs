//! The SQL suites in each mode.

use pithead_e2e::{Mode, Setup, block_on, load_all, run_suites};

fn run(mode: Mode) {
    block_on(async {
        let setup = Setup::new(mode).await;
        let mut failures = load_all(&setup).await;
        failures.extend(run_suites(&setup).await);
        setup.shutdown().await;
        assert!(
            failures.is_empty(),
            "{}: {} failures

{}",
            mode.name,
            failures.len(),
            failures.join(
                "
"
            )
        );
    });
}

#[test]
fn one_drive_here() {
    run(Mode::ONE_HERE);
}

#[test]
fn one_drive_in_one_round() {
    run(Mode::ONE_ROUND);
}

#[test]
fn four_drives_here() {
    run(Mode::FOUR_HERE);
}

#[test]
fn four_drive_processes() {
    run(Mode::FOUR_PROCESSES);
}

#[test]
fn push_down_off() {
    run(Mode::PUSHDOWN_OFF);
}

#[test]
fn drive_processes_push_down_off() {
    run(Mode::PROCESSES_PUSHDOWN_OFF);
}

#[test]
fn filters_only() {
    run(Mode::FILTERS_ONLY);
}

#[test]
fn encoding_arrow() {
    run(Mode::ARROW);
}

#[test]
fn slices_filtered() {
    run(Mode::FILTERED);
}

#[test]
fn slices_as_stored() {
    run(Mode::STORED);
}

#[test]
fn pages_that_may_match() {
    run(Mode::HINTED);
}

#[test]
fn pages_that_may_match_in_arrow() {
    run(Mode::HINTED_ARROW);
}

#[test]
fn levels_by_chance() {
    run(Mode::MIXED);
}

#[test]
fn weak_drives() {
    run(Mode::WEAK);
}

#[test]
fn samples_that_lie() {
    run(Mode::LYING_SAMPLES);
}

#[test]
fn plans_changed_by_chance() {
    run(Mode::REPLANNED);
}

#[test]
fn encoding_parquet() {
    run(Mode::PARQUET);
}

#[test]
fn encoding_nsm() {
    run(Mode::NSM);
}

#[test]
fn encoding_pax() {
    run(Mode::PAX);
}

#[test]
fn attached_in_place() {
    run(Mode::ATTACHED);
}

#[test]
fn attached_in_parts() {
    run(Mode::ATTACHED_PARTS);
}

#[test]
fn attached_as_stored() {
    run(Mode::ATTACHED_STORED);
}

#[test]
fn attached_pages_that_may_match() {
    run(Mode::ATTACHED_HINTED);
}

#[test]
fn attached_levels_by_chance() {
    run(Mode::ATTACHED_MIXED);
}

#[test]
fn attached_push_down_off() {
    run(Mode::ATTACHED_PUSHDOWN_OFF);
}

#[test]
fn attached_behind_arrays() {
    run(Mode::ATTACHED_ARRAYS);
}

#[test]
fn attached_in_buckets() {
    run(Mode::BUCKETS);
}

#[test]
fn attached_in_buckets_pages_that_may_match() {
    run(Mode::BUCKETS_HINTED);
}

#[test]
fn attached_in_buckets_levels_by_chance() {
    run(Mode::BUCKETS_MIXED);
}

#[test]
fn divided_among_workers() {
    run(Mode::WORKERS);
}

#[test]
fn divided_among_workers_push_down_off() {
    run(Mode::WORKERS_PUSHDOWN_OFF);
}

#[test]
fn as_a_smart_ssd() {
    run(Mode::SMART_SSD);
}
