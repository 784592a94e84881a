//! Profiles of devices that a user wrote, then the model over what they say; and pages of rows.

use pithead_emulate::{
    Answer, ComputeSite, Layout, Load, Page, PageWork, Question, Scan, Work, builtin, builtin_names, parse, run as model,
};
use pithead_fuzz::{Bound, Outcome, Parts, Run, Seed, Target};

pub const NAMES: [&str; 2] = ["device_profile", "device_page"];

/// A profile may have some thousand channels, and a queue of some ten thousand commands.
const BOUND: Bound = Bound { bytes: 64 << 20, factor: 64 };

pub fn targets() -> Vec<Target> {
    let target = |name, seeds, run: Run| Target { name, seeds, parts: Parts::WHOLE, bound: BOUND, run };
    vec![target("device_profile", profile_seeds(), Box::new(profile)), target("device_page", page_seeds(), Box::new(page))]
}

fn profile_seeds() -> Vec<Seed> {
    let texts = builtin_names().into_iter().filter_map(|name| Some((name, builtin(name)?)));
    texts.map(|(name, text)| Seed::valid(name, text)).collect()
}

/// A profile that is accepted has a model in which nothing is lost and time is finite.
fn profile(bytes: &[u8]) -> Outcome {
    let Ok(text) = std::str::from_utf8(bytes) else { return Outcome::Refused };
    let Ok(profile) = parse(text) else { return Outcome::Refused };
    let page = PageWork { rows: 10, compares: 10, matches: 1, out_rows: 1, out_bytes: 100, ..PageWork::default() };
    let work = Work { page_bytes: 512, pages: vec![page; 20], ..Work::default() };
    for place in [ComputeSite::Device, ComputeSite::Host] {
        let Ok(outcome) = model(&profile, &work, Load::at(place)) else { continue };
        let rows = if place == ComputeSite::Device { 20 } else { 200 };
        if outcome.rows != rows || outcome.bytes.medium != 20 * 512 {
            return Outcome::Wrong(format!("rows or bytes are lost: {outcome:?}"));
        }
        if !outcome.elapsed_s.is_finite() || !outcome.energy.system_j().is_finite() {
            return Outcome::Wrong(format!("no end: {outcome:?}"));
        }
    }
    Outcome::Accepted
}

fn page_seeds() -> Vec<Seed> {
    let values: Vec<i32> = (0..100).collect();
    let page = |layout: Layout| Seed::valid(layout.name(), layout.page(4, &values));
    Layout::ALL.map(page).into()
}

/// A page that is accepted can be asked, and has the rows that it says.
fn page(bytes: &[u8]) -> Outcome {
    let Ok(page) = Page::open(bytes) else { return Outcome::Refused };
    for scan in [Scan::Select, Scan::Average] {
        let question = Question { filter: 0, below: 50, output: page.columns() - 1, scan };
        match page.run(&question, 32, &mut Answer::default()) {
            Ok(work) if work.rows == page.rows() as u64 => {}
            other => return Outcome::Wrong(format!("{} rows: {other:?}", page.rows())),
        }
    }
    Outcome::Accepted
}
