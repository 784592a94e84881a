//! [`Test`], the function TStat of MSG Express (Montana et al. 2023, section 6): from a gene's partials to scores and
//! p-values of each group against the other cells or against a reference group.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use crate::bytes::{Malformed, Result};
use crate::partials::{Moments, Partials};
use crate::ranks::Ranks;
use crate::special::{normal_two_sided, student_two_sided};

/// Added to both means before a fold change is taken, as scanpy does.
const SMALL: f64 = 1e-9;

/// A test and what it compares. As JSON it is an argument of `t_stat()`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Test {
    /// The method.
    pub method: Method,
    /// The groups that are compared, by number.
    pub groups: Vec<usize>,
    /// The group to compare with; none: each group is compared with all other cells.
    #[serde(default)]
    pub reference: Option<usize>,
    /// How two means become a fold change.
    #[serde(default)]
    pub fold_change: FoldChange,
    /// The base of the logarithm that was applied to the values; none: e.
    #[serde(default)]
    pub base: Option<f64>,
    /// Whether the variance of the rank sum (Wilcoxon 1945) is corrected for ties.
    #[serde(default)]
    pub tie_correct: bool,
}

/// A test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Method {
    /// Student's t-test (Student 1908), with one variance for both sides, as in Montana et al. 2023, section 6.
    #[serde(rename = "student")]
    Student,
    /// Welch's t-test (Welch 1947), with a variance for each side, as in scanpy and Seurat.
    #[serde(rename = "t-test")]
    Welch,
    /// Welch's t-test with the group's size for both sides, which overestimates the variance of the other side.
    #[serde(rename = "t-test_overestim_var")]
    Overestimated,
    /// Wilcoxon's rank sum test (Wilcoxon 1945), by its normal approximation without correction for continuity.
    #[serde(rename = "wilcoxon")]
    Wilcoxon,
}

/// How two means become a fold change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FoldChange {
    /// Of `expm1` of the means, as scanpy (Wolf et al. 2018) computes it.
    #[default]
    Scanpy,
    /// Of means of `expm1`: (sum + 1) / cells, as Seurat 5 (Hao et al. 2024) computes it.
    Seurat,
    /// Of means of `expm1`: mean + 1, as Seurat 4 (Hao et al. 2021) computes it.
    SeuratV4,
}

/// The outcome of a test for one gene and one group.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// The t or z score. 0 where there is none, as for a constant gene.
    pub score: f64,
    /// The two-sided p-value. 1 where there is none.
    pub p_value: f64,
    /// log2 of the fold change.
    pub log2_fold_change: f64,
    /// The moments of the group, and those of the cells that it is compared with.
    pub sides: [Moments; 2],
}

impl Test {
    /// Reads a test from JSON.
    pub fn parse(text: &str) -> Result<Test> {
        let test: Test =
            serde_json::from_str(text).map_err(|error| Malformed::new(format!("a test cannot be read: {error}")))?;
        let mut known = HashSet::with_capacity(test.groups.len());
        match test.groups.iter().find(|group| !known.insert(**group)) {
            Some(twice) => Err(Malformed::new(format!("a test names group {twice} twice"))),
            None => Ok(test),
        }
    }

    /// The test as JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Appends the outcomes of one gene for each group to `out`. Wilcoxon's test needs the ranks.
    pub fn run(&self, partials: &Partials, ranks: Option<&Ranks>, out: &mut Vec<Outcome>) -> Result<()> {
        let count = partials.groups.len().saturating_sub(1);
        if let Some(unknown) = self.groups.iter().chain(&self.reference).find(|group| **group >= count) {
            return Err(Malformed::new(format!("a test names group {unknown}; there are {count}, from 0")));
        }
        if self.fold_change != FoldChange::Scanpy && !partials.has_expm1 {
            return Err(Malformed::new("Seurat's fold change needs partials with sums of expm1"));
        }
        let rests = if self.reference.is_none() { rests(&partials.groups) } else { Vec::new() };
        for group in &self.groups {
            let own = partials.groups[*group];
            let other = self.reference.map_or_else(|| rests[*group], |reference| partials.groups[reference]);
            let (score, p_value) = match self.method {
                Method::Wilcoxon => {
                    let ranks =
                        ranks.ok_or_else(|| Malformed::new("Wilcoxon's test needs ranks, as rank_sums() gives them"))?;
                    self.rank_test(ranks, *group)?
                }
                _ => self.t_test(&own, &other),
            };
            let log2_fold_change = self.log2_fold_change(&own, &other);
            out.push(Outcome { score, p_value, log2_fold_change, sides: [own, other] });
        }
        Ok(())
    }

    fn t_test(&self, own: &Moments, other: &Moments) -> (f64, f64) {
        if own.n == 0 || other.n == 0 {
            return known(f64::NAN, |t| t);
        }
        let (n, others) = match self.method {
            Method::Overestimated => (own.n as f64, own.n as f64),
            _ => (own.n as f64, other.n as f64),
        };
        // Of one cell scanpy takes none.
        let variance = |side: &Moments| if side.n == 1 { 0.0 } else { side.variance() };
        let (own_variance, other_variance) = (variance(own), variance(other));
        let (error, df) = if self.method == Method::Student {
            let df = n + others - 2.0;
            let pooled = (own.m2 + other.m2) / df;
            ((pooled * (1.0 / n + 1.0 / others)).sqrt(), df)
        } else {
            let (a, b) = (own_variance / n, other_variance / others);
            let df = (a + b) * (a + b) / (a * a / (n - 1.0) + b * b / (others - 1.0));
            ((a + b).sqrt(), if df.is_nan() { 1.0 } else { df })
        };
        known((own.mean - other.mean) / error, |t| student_two_sided(t, df))
    }

    fn rank_test(&self, ranks: &Ranks, group: usize) -> Result<(f64, f64)> {
        let ranks = ranks.groups.get(group).ok_or_else(|| Malformed::new("ranks are of fewer groups than partials"))?;
        let (n, others) = (ranks.n as f64, ranks.others as f64);
        let all = n + others;
        let ties = if self.tie_correct { 1.0 - ranks.ties / (all * all * all - all) } else { 1.0 };
        let deviation = (ties * n * others * (all + 1.0) / 12.0).sqrt();
        Ok(known((ranks.rank_sum - n * (all + 1.0) / 2.0) / deviation, normal_two_sided))
    }

    /// NaN if one side has no cells, since no values have no mean.
    fn log2_fold_change(&self, own: &Moments, other: &Moments) -> f64 {
        if own.n == 0 || other.n == 0 {
            return f64::NAN;
        }
        let level = |side: &Moments| match self.fold_change {
            FoldChange::Scanpy => (side.mean * self.base.map_or(1.0, f64::ln)).exp_m1() + SMALL,
            FoldChange::Seurat => (side.sum_expm1 + 1.0) / side.n as f64,
            FoldChange::SeuratV4 => side.sum_expm1 / side.n as f64 + 1.0,
        };
        (level(own) / level(other)).log2()
    }
}

fn known(score: f64, p_value: impl Fn(f64) -> f64) -> (f64, f64) {
    if score.is_nan() {
        return (0.0, 1.0);
    }
    let p = p_value(score);
    (score, if p.is_nan() { 1.0 } else { p })
}

/// For each group, the moments of all cells outside of it. The moments of the groups before it and after it are merged
/// step by step, so that the work grows with the number of groups and not with its square, and nothing is subtracted.
fn rests(groups: &[Moments]) -> Vec<Moments> {
    let mut rests = vec![Moments::default(); groups.len()];
    let mut before = Moments::default();
    for (rest, group) in rests.iter_mut().zip(groups) {
        *rest = before;
        before = before.merge(*group);
    }
    let mut behind = Moments::default();
    for (rest, group) in rests.iter_mut().zip(groups).rev() {
        *rest = rest.merge(behind);
        behind = group.merge(behind);
    }
    rests
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_named_once() {
        let parsed = |groups: &str| Test::parse(&format!(r#"{{"method": "t-test", "groups": {groups}}}"#));
        assert_eq!(parsed("[1, 0, 2]").unwrap().groups, [1, 0, 2]);
        assert!(parsed("[1, 0, 1]").unwrap_err().to_string().contains("group 1 twice"));
    }

    fn moments(values: &[f64]) -> Moments {
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let m2 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let nonzeros = values.iter().filter(|value| **value != 0.0).count() as u64;
        Moments { n: values.len() as u64, nonzeros, mean, m2, sum_expm1: values.iter().map(|value| value.exp_m1()).sum() }
    }

    fn outcome(method: Method, reference: Option<usize>) -> Outcome {
        let groups = vec![moments(&[1.0, 2.0, 4.0]), moments(&[0.5, 0.0, 1.0, 0.25]), Moments::default()];
        let partials = Partials { groups, has_expm1: true };
        let test = Test { method, groups: vec![0], reference, fold_change: FoldChange::Scanpy, base: None, tie_correct: false };
        let mut out = Vec::new();
        test.run(&partials, None, &mut out).unwrap();
        out[0]
    }

    #[test]
    fn t_tests_are_scipys() {
        // scipy.stats.ttest_ind([1, 2, 4], [.5, 0, 1, .25], equal_var=…)
        for reference in [None, Some(1)] {
            let welch = outcome(Method::Welch, reference);
            assert!((welch.score - 2.089_333_3).abs() < 1e-6, "{welch:?}");
            let student = outcome(Method::Student, reference);
            assert!((student.score - 2.430_862_2).abs() < 1e-6, "{student:?}");
        }
    }

    #[test]
    fn constant_genes_score_nothing() {
        let groups = vec![moments(&[2.0; 4]), moments(&[2.0; 9]), Moments::default()];
        let partials = Partials { groups, has_expm1: false };
        let test = Test::parse(r#"{"method": "t-test", "groups": [0, 1]}"#).unwrap();
        let mut out = Vec::new();
        test.run(&partials, None, &mut out).unwrap();
        assert!(out.iter().all(|outcome| outcome.score == 0.0 && outcome.p_value == 1.0 && outcome.log2_fold_change == 0.0));
        assert!(Test { groups: vec![2], ..test }.run(&partials, None, &mut out).is_err());
    }

    #[test]
    fn a_side_without_cells_has_no_fold_change() {
        let groups = vec![moments(&[1.0, 2.0, 4.0]), Moments::default(), Moments::default()];
        for method in [Method::Student, Method::Welch, Method::Overestimated] {
            for (groups_asked, reference) in [(vec![0], None), (vec![0], Some(1)), (vec![1], None), (vec![1], Some(0))] {
                for fold_change in [FoldChange::Scanpy, FoldChange::Seurat, FoldChange::SeuratV4] {
                    let partials = Partials { groups: groups.clone(), has_expm1: true };
                    let groups = groups_asked.clone();
                    let test = Test { method, groups, reference, fold_change, base: None, tie_correct: false };
                    let mut out = Vec::new();
                    test.run(&partials, None, &mut out).unwrap();
                    assert!(out[0].log2_fold_change.is_nan(), "{test:?}");
                    assert_eq!((out[0].score, out[0].p_value), (0.0, 1.0), "{test:?}");
                }
            }
        }
    }

    #[test]
    fn rests_leave_out_one_group_each() {
        let groups: Vec<Moments> = [&[1.0, 5.0][..], &[2.0], &[0.0, 0.5, 7.0]].map(moments).to_vec();
        let rest = rests(&groups)[1];
        let wanted = moments(&[1.0, 5.0, 0.0, 0.5, 7.0]);
        assert!((rest.mean - wanted.mean).abs() < 1e-15 && (rest.m2 - wanted.m2).abs() < 1e-12 && rest.n == 5, "{rest:?}");
    }
}
