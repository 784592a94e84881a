//! What a recursive query reads of itself: rows that are there only while it runs.

use datafusion::common::Result;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::datasource::cte_worktable::CteWorkTable;
use datafusion::datasource::source_as_provider;
use datafusion::logical_expr::{LogicalPlan, TableScan};

/// Whether a part of a plan can be computed by itself, ahead of the rest: it reads no table of a recursive query that is not within it.
pub(crate) fn stands_alone(part: &LogicalPlan) -> bool {
    reads_only(part, &mut Vec::new()).unwrap_or(false)
}

/// Whether a part reads no other tables of recursive queries than these.
fn reads_only<'p>(part: &'p LogicalPlan, known: &mut Vec<&'p str>) -> Result<bool> {
    if let LogicalPlan::TableScan(scan) = part {
        return Ok(work_table(scan).is_none_or(|name| known.contains(&name.as_str())));
    }
    let of_subqueries = {
        let mut reads = true;
        part.apply_subqueries(|subquery| {
            let mut own: Vec<&str> = known.clone();
            reads = reads && reads_only(subquery, &mut own)?;
            Ok(if reads { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
        })?;
        reads
    };
    if !of_subqueries {
        return Ok(false);
    }
    let LogicalPlan::RecursiveQuery(query) = part else {
        return part.inputs().into_iter().try_fold(true, |reads, input| Ok(reads && reads_only(input, known)?));
    };
    if !reads_only(&query.static_term, known)? {
        return Ok(false);
    }
    known.push(&query.name);
    let reads = reads_only(&query.recursive_term, known);
    known.pop();
    reads
}

/// The name of the recursive query whose rows a scan reads.
fn work_table(scan: &TableScan) -> Option<String> {
    let provider = source_as_provider(&scan.source).ok()?;
    Some(provider.downcast_ref::<CteWorkTable>()?.name().to_owned())
}
