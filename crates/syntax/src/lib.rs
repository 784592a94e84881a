//! Walks over SQL's syntax tree.
//!
//! sqlparser's walk is a function for each kind of node, compiled anew for each visitor: a megabyte of them, in seconds of the compiler's
//! time. Here it is compiled once, over visitors behind a pointer.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, ObjectName, OrderBy, OrderByExpr, Query, Select, SelectItem, Statement, TableFactor, ValueWithSpan, Visit, VisitMut,
    Visitor, VisitorMut,
};

/// A part of a statement that can be walked over.
pub trait Tree {
    /// Shows its nodes to a visitor. True: the visitor has seen enough.
    #[doc(hidden)]
    fn show(&self, visitor: &mut AnyVisitor<'_>) -> bool;

    /// The same for one that changes nodes.
    #[doc(hidden)]
    fn show_mut(&mut self, visitor: &mut AnyVisitorMut<'_>) -> bool;
}

/// Walks over a part of a statement, until a visitor breaks off.
pub fn walk<V: Visitor>(tree: &(impl Tree + ?Sized), visitor: &mut V) -> ControlFlow<V::Break> {
    let mut watched = Watched { visitor, broken: None };
    tree.show(&mut AnyVisitor(&mut watched));
    watched.broken.map_or(ControlFlow::Continue(()), ControlFlow::Break)
}

/// Walks over a part of a statement, whose nodes the visitor may change, until it breaks off.
pub fn walk_mut<V: VisitorMut>(tree: &mut (impl Tree + ?Sized), visitor: &mut V) -> ControlFlow<V::Break> {
    let mut watched = Watched { visitor, broken: None };
    tree.show_mut(&mut AnyVisitorMut(&mut watched));
    watched.broken.map_or(ControlFlow::Continue(()), ControlFlow::Break)
}

/// Looks at each expression before what is within it.
pub fn expressions<B>(tree: &(impl Tree + ?Sized), look: impl FnMut(&Expr) -> ControlFlow<B>) -> ControlFlow<B> {
    struct Look<F>(F);
    impl<B, F: FnMut(&Expr) -> ControlFlow<B>> Visitor for Look<F> {
        type Break = B;

        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<B> {
            (self.0)(expr)
        }
    }
    walk(tree, &mut Look(look))
}

/// Whether one of the expressions of a part is of a kind.
pub fn any_expression(tree: &(impl Tree + ?Sized), is: impl Fn(&Expr) -> bool) -> bool {
    expressions(tree, |expr| if is(expr) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }).is_break()
}

/// Changes each expression after what is within it; `change` is told of how many queries of the part it is within.
pub fn expressions_at_mut(tree: &mut (impl Tree + ?Sized), change: impl FnMut(&mut Expr, usize)) {
    struct Change<F> {
        change: F,
        depth: usize,
    }
    impl<F: FnMut(&mut Expr, usize)> VisitorMut for Change<F> {
        type Break = ();

        fn pre_visit_query(&mut self, _query: &mut Query) -> ControlFlow<()> {
            self.depth += 1;
            ControlFlow::Continue(())
        }

        fn post_visit_query(&mut self, _query: &mut Query) -> ControlFlow<()> {
            self.depth -= 1;
            ControlFlow::Continue(())
        }

        fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
            (self.change)(expr, self.depth);
            ControlFlow::Continue(())
        }
    }
    let _ = walk_mut(tree, &mut Change { change, depth: 0 });
}

/// Changes each expression after what is within it.
pub fn expressions_mut<B>(tree: &mut (impl Tree + ?Sized), change: impl FnMut(&mut Expr) -> ControlFlow<B>) -> ControlFlow<B> {
    struct Change<F>(F);
    impl<B, F: FnMut(&mut Expr) -> ControlFlow<B>> VisitorMut for Change<F> {
        type Break = B;

        fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<B> {
            (self.0)(expr)
        }
    }
    walk_mut(tree, &mut Change(change))
}

/// Changes each name of a relation.
pub fn relations_mut<B>(
    tree: &mut (impl Tree + ?Sized),
    change: impl FnMut(&mut ObjectName) -> ControlFlow<B>,
) -> ControlFlow<B> {
    struct Change<F>(F);
    impl<B, F: FnMut(&mut ObjectName) -> ControlFlow<B>> VisitorMut for Change<F> {
        type Break = B;

        fn post_visit_relation(&mut self, name: &mut ObjectName) -> ControlFlow<B> {
            (self.0)(name)
        }
    }
    walk_mut(tree, &mut Change(change))
}

/// A visitor, and what it broke off with.
struct Watched<'a, V, B> {
    visitor: &'a mut V,
    broken: Option<B>,
}

impl<V, B> Watched<'_, V, B> {
    fn watch(&mut self, visit: impl FnOnce(&mut V) -> ControlFlow<B>) -> ControlFlow<()> {
        visit(self.visitor).map_break(|broken| self.broken = Some(broken))
    }
}

macro_rules! any_visitor {
    ($any:ident, $visitor:ident, $visits:ident, $($visit:ident($node:ty)),+ $(,)?) => {
        /// A visitor of whatever type.
        pub struct $any<'a>(&'a mut dyn $visits);

        trait $visits {
            $(fn $visit(&mut self, node: $node) -> ControlFlow<()>;)+
        }

        impl<V: $visitor> $visits for Watched<'_, V, V::Break> {
            $(fn $visit(&mut self, node: $node) -> ControlFlow<()> {
                self.watch(|visitor| visitor.$visit(node))
            })+
        }

        impl $visitor for $any<'_> {
            type Break = ();

            $(fn $visit(&mut self, node: $node) -> ControlFlow<()> {
                self.0.$visit(node)
            })+
        }
    };
}

any_visitor!(
    AnyVisitor,
    Visitor,
    Visits,
    pre_visit_query(&Query),
    post_visit_query(&Query),
    pre_visit_select(&Select),
    post_visit_select(&Select),
    pre_visit_relation(&ObjectName),
    post_visit_relation(&ObjectName),
    pre_visit_table_factor(&TableFactor),
    post_visit_table_factor(&TableFactor),
    pre_visit_expr(&Expr),
    post_visit_expr(&Expr),
    pre_visit_statement(&Statement),
    post_visit_statement(&Statement),
    pre_visit_value(&ValueWithSpan),
    post_visit_value(&ValueWithSpan),
);
any_visitor!(
    AnyVisitorMut,
    VisitorMut,
    VisitsMut,
    pre_visit_query(&mut Query),
    post_visit_query(&mut Query),
    pre_visit_select(&mut Select),
    post_visit_select(&mut Select),
    pre_visit_relation(&mut ObjectName),
    post_visit_relation(&mut ObjectName),
    pre_visit_table_factor(&mut TableFactor),
    post_visit_table_factor(&mut TableFactor),
    pre_visit_expr(&mut Expr),
    post_visit_expr(&mut Expr),
    pre_visit_statement(&mut Statement),
    post_visit_statement(&mut Statement),
    pre_visit_value(&mut ValueWithSpan),
    post_visit_value(&mut ValueWithSpan),
);

macro_rules! trees {
    ($($node:ty),+) => {
        $(impl Tree for $node {
            // Not where it is called, which would compile the walk there.
            #[inline(never)]
            fn show(&self, visitor: &mut AnyVisitor<'_>) -> bool {
                self.visit(visitor).is_break()
            }

            #[inline(never)]
            fn show_mut(&mut self, visitor: &mut AnyVisitorMut<'_>) -> bool {
                VisitMut::visit(self, visitor).is_break()
            }
        })+
    };
}

trees!(Statement, Query, Select, Expr, SelectItem, OrderBy, OrderByExpr);

impl<T: Tree> Tree for Vec<T> {
    fn show(&self, visitor: &mut AnyVisitor<'_>) -> bool {
        self.iter().any(|part| part.show(visitor))
    }

    fn show_mut(&mut self, visitor: &mut AnyVisitorMut<'_>) -> bool {
        self.iter_mut().any(|part| part.show_mut(visitor))
    }
}

impl<T: Tree> Tree for Option<T> {
    fn show(&self, visitor: &mut AnyVisitor<'_>) -> bool {
        self.as_ref().is_some_and(|part| part.show(visitor))
    }

    fn show_mut(&mut self, visitor: &mut AnyVisitorMut<'_>) -> bool {
        self.as_mut().is_some_and(|part| part.show_mut(visitor))
    }
}

impl<T: Tree + ?Sized> Tree for Box<T> {
    fn show(&self, visitor: &mut AnyVisitor<'_>) -> bool {
        self.as_ref().show(visitor)
    }

    fn show_mut(&mut self, visitor: &mut AnyVisitorMut<'_>) -> bool {
        self.as_mut().show_mut(visitor)
    }
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::dialect::GenericDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    use super::*;

    fn parsed(sql: &str) -> Statement {
        Parser::parse_sql(&GenericDialect {}, sql).unwrap().remove(0)
    }

    #[test]
    fn expressions_are_seen_from_the_outside_until_one_is_enough() {
        let sql = parsed("SELECT a + b FROM t WHERE c > (SELECT d FROM u)");
        let mut seen = Vec::new();
        let found = expressions(&sql, |expr| {
            seen.push(expr.to_string());
            if expr.to_string() == "c" { ControlFlow::Break("c") } else { ControlFlow::Continue(()) }
        });
        assert_eq!(found, ControlFlow::Break("c"));
        assert_eq!(seen, ["a + b", "a", "b", "c > (SELECT d FROM u)", "c"]);
    }

    #[test]
    fn changes_know_the_queries_around() {
        let mut sql = parsed("SELECT a FROM t WHERE b IN (SELECT c FROM (SELECT d FROM u) AS v)");
        assert!(any_expression(&sql, |expr| expr.to_string() == "d") && !any_expression(&sql, |expr| expr.to_string() == "v"));
        let mut seen = Vec::new();
        expressions_at_mut(&mut sql, |expr, depth| seen.push((expr.to_string(), depth)));
        let names: Vec<(&str, usize)> = seen.iter().map(|(name, depth)| (name.as_str(), *depth)).collect();
        assert_eq!(names[..4], [("a", 1), ("b", 1), ("c", 2), ("d", 3)]);
    }

    #[test]
    fn changes_reach_relations_and_the_expressions_of_subqueries() {
        let mut sql = parsed("SELECT a FROM t WHERE b IN (SELECT a FROM u JOIN v ON a = b)");
        let _ = expressions_mut(&mut sql, |expr| {
            if expr.to_string() == "a" {
                *expr = Expr::value(datafusion::sql::sqlparser::ast::Value::Null);
            }
            ControlFlow::<()>::Continue(())
        });
        let _ = relations_mut(&mut sql, |name| {
            *name = ObjectName::from(vec![format!("{name}_1").as_str().into()]);
            ControlFlow::<()>::Continue(())
        });
        assert_eq!(sql.to_string(), "SELECT NULL FROM t_1 WHERE b IN (SELECT NULL FROM u_1 JOIN v_1 ON NULL = b)");
    }
}
