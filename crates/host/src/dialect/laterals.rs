//! `FROM a, LATERAL (…) f LEFT JOIN b ON …`: what is joined to a LATERAL. The planner knows a LATERAL as the right side of a join alone;
//! written as `a CROSS JOIN LATERAL (…) f LEFT JOIN b ON …` it is one, and has the same rows.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Join, JoinConstraint, JoinOperator, Select, Statement as Sql, TableFactor, TableWithJoins, VisitorMut,
};
use pithead_syntax::walk_mut;

/// Makes right sides of such LATERALs.
pub(super) fn join_to_what_is_before(sql: &mut Sql) {
    let _ = walk_mut(sql, &mut Laterals);
}

struct Laterals;

impl VisitorMut for Laterals {
    type Break = ();

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        if select.from.iter().skip(1).any(is_joined_lateral) {
            let mut from: Vec<TableWithJoins> = Vec::with_capacity(select.from.len());
            for next in std::mem::take(&mut select.from) {
                match from.last_mut().filter(|_| is_joined_lateral(&next)) {
                    Some(before) => {
                        let join_operator = JoinOperator::CrossJoin(JoinConstraint::None);
                        before.joins.push(Join { relation: next.relation, global: false, join_operator });
                        before.joins.extend(next.joins);
                    }
                    None => from.push(next),
                }
            }
            select.from = from;
        }
        ControlFlow::Continue(())
    }
}

/// Whether a LATERAL comes first, and each row of it stays at its place or goes, whatever it is joined to.
fn is_joined_lateral(from: &TableWithJoins) -> bool {
    let keeps_left = |join: &Join| {
        matches!(
            &join.join_operator,
            JoinOperator::Join(JoinConstraint::On(_))
                | JoinOperator::Inner(JoinConstraint::On(_))
                | JoinOperator::Left(JoinConstraint::On(_))
                | JoinOperator::LeftOuter(JoinConstraint::On(_))
                | JoinOperator::CrossJoin(JoinConstraint::None)
        )
    };
    matches!(from.relation, TableFactor::Derived { lateral: true, .. })
        && !from.joins.is_empty()
        && from.joins.iter().all(keeps_left)
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::dialect::GenericDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    use super::*;

    #[test]
    fn they_become_right_sides() {
        for (written, expected) in [
            (
                "SELECT * FROM z, a JOIN y ON true, LATERAL (SELECT a.x) f LEFT JOIN b ON b.x = f.x",
                "SELECT * FROM z, a JOIN y ON true CROSS JOIN LATERAL (SELECT a.x) f LEFT JOIN b ON b.x = f.x",
            ),
            ("SELECT * FROM a, LATERAL (SELECT a.x) f", "SELECT * FROM a, LATERAL (SELECT a.x) f"),
            (
                "SELECT * FROM a, LATERAL (SELECT a.x) f RIGHT JOIN b ON b.x = f.x",
                "SELECT * FROM a, LATERAL (SELECT a.x) f RIGHT JOIN b ON b.x = f.x",
            ),
            (
                "SELECT * FROM a, LATERAL (SELECT a.x) f JOIN b USING (x)",
                "SELECT * FROM a, LATERAL (SELECT a.x) f JOIN b USING (x)",
            ),
        ] {
            let mut statement = Parser::parse_sql(&GenericDialect {}, written).unwrap().remove(0);
            join_to_what_is_before(&mut statement);
            let read = Parser::parse_sql(&GenericDialect {}, expected).unwrap().remove(0);
            assert_eq!(statement.to_string(), read.to_string(), "{written}");
        }
    }
}
