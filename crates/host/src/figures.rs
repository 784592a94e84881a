//! What statements and their sub-plans have cost so far, in numbers, for those who show them.

use std::collections::BTreeSet;
use std::fmt;

use pithead_model::{Level, total};
use pithead_remote::{PartitionProfile, ProfileSnapshot, QueryProfile, SubPlanProfile};

/// A line of a plan.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanLine {
    /// Where it runs: `host`, `drive`, `link` for what crosses it, `sample`, or nothing for a remark.
    pub site: &'static str,
    /// How deep it is in the tree.
    pub depth: usize,
    /// What it is, for people.
    pub text: String,
    /// Of a line that begins a sub-plan of a query that runs or has run: what the sub-plan cost.
    pub figures: Option<SubPlanFigures>,
}

impl fmt::Display for PlanLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<6}{}{}", self.site, "  ".repeat(self.depth), self.text)
    }
}

/// What a sub-plan has cost so far, at all of its drives.
#[derive(Clone, Debug, PartialEq)]
pub struct SubPlanFigures {
    /// Its number in its query, from 1 on.
    pub number: usize,
    /// The dataset whose slices it takes.
    pub dataset: String,
    /// Drives that have answered.
    pub drives: usize,
    /// Rows that came from them.
    pub rows: u64,
    /// Bytes that they read from their media, or from their caches of them.
    pub read_bytes: u64,
    /// Bytes on the links, both ways; 0 in-process.
    pub link_bytes: u64,
    /// Bytes of the rounds' batches.
    pub handed_bytes: u64,
    /// CPU time at the drives.
    pub cpu_ns: u64,
    /// Slices that were read.
    pub slices_read: u64,
    /// Slices that their bounds ruled out.
    pub slices_skipped: u64,
    /// The levels that slices were taken to, lowest and highest.
    pub levels: Option<(Level, Level)>,
}

impl SubPlanFigures {
    pub(crate) fn of(profile: &SubPlanProfile) -> Self {
        let sessions = profile.sessions();
        let sum = |of: fn(&PartitionProfile) -> u64| total(sessions.iter().map(of));
        let (slices, skipped) = (sum(|session| session.slices().0), sum(|session| session.slices().1));
        let labels = sessions.iter().map(|session| session.label.as_str()).filter(|label| !label.is_empty());
        Self {
            number: profile.sub_plan.number,
            dataset: profile.sub_plan.driving().to_string(),
            drives: labels.collect::<BTreeSet<_>>().len(),
            rows: sum(PartitionProfile::rows_out),
            read_bytes: sum(PartitionProfile::medium_bytes),
            link_bytes: sum(|session| session.link_bytes),
            handed_bytes: sum(handed),
            cpu_ns: sum(PartitionProfile::cpu_ns),
            slices_read: slices - skipped.min(slices),
            slices_skipped: skipped,
            levels: levels(&sessions),
        }
    }
}

/// What a statement has cost so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StatementFigures {
    /// Sums over its sub-plans.
    pub sums: ProfileSnapshot,
    /// Bytes of the rounds' batches.
    pub handed_bytes: u64,
    /// Sub-plans that were opened, samples left out.
    pub sub_plans: u64,
    /// The levels that slices were taken to, lowest and highest.
    pub levels: Option<(Level, Level)>,
    /// Joules of drives and host, where `pithead.device` names what they are emulated by.
    pub joules: Option<f64>,
}

impl StatementFigures {
    /// Without joules.
    pub(crate) fn of(profile: &QueryProfile) -> Self {
        let sub_plans = profile.sub_plans();
        let sessions: Vec<_> = sub_plans.iter().flat_map(|sub_plan| sub_plan.sessions()).collect();
        Self {
            sums: profile.snapshot(),
            handed_bytes: total(sessions.iter().map(handed)),
            sub_plans: sub_plans.iter().filter(|sub_plan| !sub_plan.is_sample).count() as u64,
            levels: levels(&sessions),
            joules: None,
        }
    }

    /// Adds the costs of another statement. Figures that have no sum stay as they are.
    pub(crate) fn add(&mut self, other: &StatementFigures) {
        let (sums, more) = (&mut self.sums, &other.sums);
        for (sum, more) in [
            (&mut sums.link_bytes, more.link_bytes),
            (&mut sums.medium_bytes, more.medium_bytes),
            (&mut sums.rows_from_drives, more.rows_from_drives),
            (&mut sums.slices_read, more.slices_read),
            (&mut sums.slices_skipped, more.slices_skipped),
            (&mut sums.drive_cpu_ns, more.drive_cpu_ns),
            (&mut self.handed_bytes, other.handed_bytes),
            (&mut self.sub_plans, other.sub_plans),
        ] {
            *sum = sum.saturating_add(more);
        }
        if let Some(joules) = other.joules {
            *self.joules.get_or_insert(0.0) += joules;
        }
    }
}

/// Bytes of a session's batches.
pub(crate) fn handed(session: &PartitionProfile) -> u64 {
    total(session.annotations.iter().map(|annotation| annotation.batch_bytes))
}

fn levels(sessions: &[PartitionProfile]) -> Option<(Level, Level)> {
    let all = || sessions.iter().filter_map(PartitionProfile::levels);
    Some((all().map(|(low, _)| low).min()?, all().map(|(_, high)| high).max()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_their_site_in_six_columns() {
        let line = PlanLine { site: "drive", depth: 2, text: "TableScan: t".into(), figures: None };
        assert_eq!(line.to_string(), "drive     TableScan: t");
    }

    #[test]
    fn figures_add_up() {
        let mut sums = StatementFigures::default();
        let one = StatementFigures { handed_bytes: u64::MAX, joules: Some(1.5), ..StatementFigures::default() };
        sums.add(&one);
        sums.add(&one);
        assert_eq!((sums.handed_bytes, sums.joules, sums.levels), (u64::MAX, Some(3.0), None));
    }
}
