//! What a sub-plan's conditions look for as bytes, as a device's pattern matchers would have to.

use std::collections::BTreeSet;

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::{Expr, Like, LogicalPlan};
use pithead_emulate::Patterns;
use pithead_plan::SubPlan;

/// The patterns in the conditions of a sub-plan: each text that something is compared with, and of each LIKE the longest run between
/// its wildcards, which all matching texts have.
pub fn patterns_of(sub_plan: &SubPlan) -> Patterns {
    let mut texts = BTreeSet::new();
    let walked = sub_plan.plan.apply(|node| {
        let conditions: &[Expr] = match node {
            LogicalPlan::Filter(filter) => std::slice::from_ref(&filter.predicate),
            LogicalPlan::TableScan(scan) => &scan.filters,
            _ => &[],
        };
        conditions.iter().for_each(|condition| add(condition, &mut texts));
        Ok(TreeNodeRecursion::Continue)
    });
    debug_assert!(walked.is_ok(), "nothing that looks at a node fails");
    patterns(&texts)
}

fn patterns(texts: &BTreeSet<String>) -> Patterns {
    let longest = texts.iter().map(String::len).max().unwrap_or(0);
    Patterns { count: texts.len() as u64, bytes_most: longest as u64 }
}

/// Adds what a condition looks for.
fn add(condition: &Expr, texts: &mut BTreeSet<String>) {
    let walked = condition.apply(|part| {
        let (literal, is_like) = match part {
            Expr::Like(Like { pattern, .. }) => (pattern.as_ref(), true),
            part => (part, false),
        };
        if let Expr::Literal(value, _) = literal
            && let Some(Some(text)) = value.try_as_str()
        {
            let runs = text.split(|letter| is_like && matches!(letter, '%' | '_'));
            texts.extend(runs.max_by_key(|run| run.len()).map(str::to_owned));
        }
        Ok(if is_like { TreeNodeRecursion::Jump } else { TreeNodeRecursion::Continue })
    });
    debug_assert!(walked.is_ok(), "nothing that looks at a part fails");
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::{col, lit};

    use super::*;

    fn found(condition: &Expr) -> (u64, u64) {
        let mut texts = BTreeSet::new();
        add(condition, &mut texts);
        let found = patterns(&texts);
        (found.count, found.bytes_most)
    }

    #[test]
    fn each_text_is_a_pattern_and_of_like_the_longest_run_counts() {
        assert_eq!(found(&col("a").eq(lit("green")).or(col("a").eq(lit("red")))), (2, 5));
        assert_eq!(found(&col("a").in_list(vec![lit("x"), lit("yy"), lit("zzz")], false)), (3, 3));
        assert_eq!(found(&col("a").like(lit("%special%requests_x%"))), (1, 8));
        assert_eq!(found(&col("a").eq(lit("100%"))), (1, 4), "no wildcard where it is compared");
        assert_eq!(found(&col("a").eq(lit("red")).or(col("b").eq(lit("red")))), (1, 3), "the same bytes");
        assert_eq!(found(&col("a").gt(lit(7))), (0, 0), "numbers are no texts");
    }
}
