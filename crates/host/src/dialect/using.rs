//! Columns by which JOIN … USING joins.
//!
//! Without the name of a table, the planner finds such a column ambiguous in WHERE, and where three tables are joined by it; it is
//! given the name of the table that has it first. Of RIGHT and FULL JOIN, the planner takes the left side's, which is NULL where only
//! the right side has a row. There the column is put into a function ([`MERGED_KEY`]), which the plan has replaced by what the joins
//! say ([`pithead_functions::with_merged_keys`]). And `*` is to have it where the left side has it: the planner takes that of the
//! table whose name comes first in the alphabet.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    ExceptSelectItem, ExcludeSelectItem, Expr, Ident, JoinConstraint, JoinOperator, ObjectName, OrderBy, OrderByKind, Query,
    ReplaceSelectElement, ReplaceSelectItem, Select, SelectItem, SelectItemQualifiedWildcardKind, SetExpr, Statement as Sql,
    TableFactor, TableWithJoins, VisitorMut, WildcardAdditionalOptions,
};
use pithead_functions::MERGED_KEY;
use pithead_syntax::{Tree, any_expression, expressions, expressions_at_mut, walk_mut};

use super::{call, normal};

/// Puts such columns into the function. True: there may be some, or joins that use a column again. An error: why a statement is
/// refused.
pub(super) fn mark(sql: &mut Sql) -> Result<bool, String> {
    let mut marking = Marking { found: false };
    match walk_mut(sql, &mut marking) {
        ControlFlow::Break(refused) => Err(refused),
        ControlFlow::Continue(()) => Ok(marking.found),
    }
}

struct Marking {
    found: bool,
}

impl VisitorMut for Marking {
    type Break = String;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<String> {
        let SetExpr::Select(select) = query.body.as_ref() else { return ControlFlow::Continue(()) };
        // Why it is none is said of the SELECT.
        let Some(keys) = Keys::of(&select.from).filter(|keys| keys.are_merged) else { return ControlFlow::Continue(()) };
        let Some(OrderBy { kind: OrderByKind::Expressions(order), .. }) = &query.order_by else {
            return ControlFlow::Continue(());
        };
        let sorted = expressions(order, |part| match keys.of_expr(part) {
            Some(key) if !is_output(select, &key.name) => ControlFlow::Break(key.name.clone()),
            _ => ControlFlow::Continue(()),
        });
        match sorted {
            ControlFlow::Break(name) => ControlFlow::Break(format!(
                "ORDER BY {name}, by which RIGHT or FULL JOIN joins, is not supported where SELECT has no column {name}; select it, \
                 or name the table"
            )),
            ControlFlow::Continue(()) => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<String> {
        let Some(keys) = Keys::of(&select.from) else {
            return ControlFlow::Break("NATURAL RIGHT and NATURAL FULL JOIN are not supported; write USING (…)".to_owned());
        };
        if keys.all.is_empty() {
            return ControlFlow::Continue(());
        }
        if keys.are_merged {
            self.found = true;
            // Names of results come first: expressions get others with the function in them.
            keep_names(select, &keys);
        }
        mark_select(select, &keys);
        ControlFlow::Continue(())
    }
}

/// The columns that joins use.
struct Keys {
    all: Vec<Key>,
    /// Whether a RIGHT or FULL JOIN is among the joins.
    are_merged: bool,
}

struct Key {
    name: Ident,
    /// The table that has it first; none: it is not known which one has.
    table: Option<ObjectName>,
}

impl Keys {
    /// Those of USING; none: NATURAL of RIGHT or FULL JOIN uses columns that are not named.
    fn of(from: &[TableWithJoins]) -> Option<Keys> {
        let mut keys = Keys { all: Vec::new(), are_merged: false };
        for table in from {
            let mut tables = Vec::new();
            if !name_tables(table, &mut tables) {
                tables.clear();
            }
            keys.add(table, &tables)?;
        }
        Some(keys)
    }

    fn add(&mut self, from: &TableWithJoins, tables: &[(ObjectName, Vec<Ident>)]) -> Option<()> {
        for relation in std::iter::once(&from.relation).chain(from.joins.iter().map(|join| &join.relation)) {
            if let TableFactor::NestedJoin { table_with_joins, .. } = relation {
                self.add(table_with_joins, tables)?;
            }
        }
        for join in &from.joins {
            let (constraint, one_sided) = match &join.join_operator {
                JoinOperator::Right(constraint)
                | JoinOperator::RightOuter(constraint)
                | JoinOperator::FullOuter(constraint) => (constraint, true),
                JoinOperator::Join(constraint)
                | JoinOperator::Inner(constraint)
                | JoinOperator::Left(constraint)
                | JoinOperator::LeftOuter(constraint) => (constraint, false),
                _ => continue,
            };
            match constraint {
                JoinConstraint::Natural if one_sided => return None,
                JoinConstraint::Using(columns) => {
                    self.are_merged |= one_sided;
                    for name in columns.iter().filter_map(last_part) {
                        if !self.all.iter().any(|known| is_same(&known.name, &name)) {
                            let joined = tables.iter().position(|(_, used)| used.iter().any(|used| is_same(used, &name)));
                            let table = (joined == Some(1)).then(|| tables[0].0.clone());
                            self.all.push(Key { name, table });
                        }
                    }
                }
                _ => {}
            }
        }
        Some(())
    }

    fn of_expr(&self, expr: &Expr) -> Option<&Key> {
        self.all.iter().find(|key| is_named(expr, &key.name))
    }
}

/// Writes `*` over joins with USING as the columns of one table after the other, without the columns of later ones that were joined
/// by, and with merged keys. Where a table has no name, it stays.
fn expand_wildcards(select: &mut Select, keys: &Keys) {
    let is_plain =
        |item: &SelectItem| matches!(item, SelectItem::Wildcard(options) if *options == WildcardAdditionalOptions::default());
    if !select.projection.iter().any(is_plain) {
        return;
    }
    let mut tables = Vec::new();
    if !select.from.iter().all(|table| name_tables(table, &mut tables)) || tables.iter().all(|(_, used)| used.is_empty()) {
        return;
    }
    let all = |item: SelectItem| match is_plain(&item) {
        true => tables.iter().map(|(name, used)| columns_of(name, used, keys)).collect(),
        false => vec![item],
    };
    select.projection = std::mem::take(&mut select.projection).into_iter().flat_map(all).collect();
}

/// All columns of a table but some, with merged keys in place of its own.
fn columns_of(table: &ObjectName, without: &[Ident], keys: &Keys) -> SelectItem {
    let names: Vec<ObjectName> = without.iter().map(|name| ObjectName::from(vec![name.clone()])).collect();
    let opt_exclude = (!names.is_empty()).then_some(ExcludeSelectItem::Multiple(names));
    let mut options = WildcardAdditionalOptions { opt_exclude, ..WildcardAdditionalOptions::default() };
    replace(&mut options, keys);
    SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(table.clone()), options)
}

/// The names of the tables that are joined, and the columns that each one is joined by; false: they cannot be named, or joined by
/// columns that a statement does not say.
fn name_tables(from: &TableWithJoins, tables: &mut Vec<(ObjectName, Vec<Ident>)>) -> bool {
    if !name_table(&from.relation, tables) {
        return false;
    }
    from.joins.iter().all(|join| {
        let before = tables.len();
        let (JoinOperator::Join(constraint)
        | JoinOperator::Inner(constraint)
        | JoinOperator::Left(constraint)
        | JoinOperator::LeftOuter(constraint)
        | JoinOperator::Right(constraint)
        | JoinOperator::RightOuter(constraint)
        | JoinOperator::FullOuter(constraint)
        | JoinOperator::CrossJoin(constraint)) = &join.join_operator
        else {
            return false;
        };
        let is_named = name_table(&join.relation, tables);
        match (constraint, &mut tables[before..]) {
            (JoinConstraint::Natural, _) => false,
            (JoinConstraint::Using(columns), [(_, used)]) => {
                *used = columns.iter().filter_map(last_part).collect();
                is_named
            }
            (JoinConstraint::Using(_), _) => false,
            _ => is_named,
        }
    })
}

fn name_table(table: &TableFactor, tables: &mut Vec<(ObjectName, Vec<Ident>)>) -> bool {
    let name = match table {
        TableFactor::NestedJoin { table_with_joins, alias: None } => return name_tables(table_with_joins, tables),
        TableFactor::Table { alias: Some(alias), .. }
        | TableFactor::Derived { alias: Some(alias), .. }
        | TableFactor::NestedJoin { alias: Some(alias), .. } => ObjectName::from(vec![alias.name.clone()]),
        TableFactor::Table { name, args: None, .. } => name.clone(),
        _ => return false,
    };
    tables.push((name, vec![]));
    true
}

fn last_part(name: &ObjectName) -> Option<Ident> {
    name.0.last()?.as_ident().cloned()
}

/// The conditions of the joins of a FROM.
pub(super) fn join_conditions(from: &mut [TableWithJoins]) -> impl Iterator<Item = &mut Expr> {
    from.iter_mut().flat_map(|table| &mut table.joins).filter_map(|join| match &mut join.join_operator {
        JoinOperator::Join(JoinConstraint::On(on))
        | JoinOperator::Inner(JoinConstraint::On(on))
        | JoinOperator::Left(JoinConstraint::On(on))
        | JoinOperator::LeftOuter(JoinConstraint::On(on))
        | JoinOperator::Right(JoinConstraint::On(on))
        | JoinOperator::RightOuter(JoinConstraint::On(on))
        | JoinOperator::FullOuter(JoinConstraint::On(on)) => Some(on),
        _ => None,
    })
}

fn mark_select(select: &mut Select, keys: &Keys) {
    let mut from = std::mem::take(&mut select.from);
    mark_all(select, keys);
    for on in join_conditions(&mut from) {
        mark_all(on, keys);
    }
    select.from = from;
    expand_wildcards(select, keys);
    for item in &mut select.projection {
        if let SelectItem::Wildcard(options) = item {
            replace(options, keys);
        }
    }
}

/// Marks the columns. Within a subquery, one without a table may be the subquery's own.
fn mark_all(part: &mut (impl Tree + ?Sized), keys: &Keys) {
    expressions_at_mut(part, |expr, depth| {
        if let Some(key) = keys.of_expr(expr) {
            let column = if depth == 0 { key.column() } else { Expr::Identifier(key.name.clone()) };
            *expr = if keys.are_merged { call(MERGED_KEY, [column]) } else { column };
        }
    });
}

impl Key {
    /// The column, with its table where that is known.
    fn column(&self) -> Expr {
        let table = self.table.iter().flat_map(|table| table.0.iter().filter_map(|part| part.as_ident().cloned()));
        let parts: Vec<Ident> = table.chain([self.name.clone()]).collect();
        match <[Ident; 1]>::try_from(parts) {
            Ok([name]) => Expr::Identifier(name),
            Err(parts) => Expr::CompoundIdentifier(parts),
        }
    }
}

/// Has `*` give the columns, except those that it leaves out or replaces itself.
fn replace(options: &mut WildcardAdditionalOptions, keys: &Keys) {
    if !keys.are_merged {
        return;
    }
    let excluded: Vec<String> = match &options.opt_exclude {
        Some(ExcludeSelectItem::Single(name)) => vec![name.to_string()],
        Some(ExcludeSelectItem::Multiple(names)) => names.iter().map(ToString::to_string).collect(),
        None => vec![],
    };
    let except: Vec<String> = match &options.opt_except {
        Some(ExceptSelectItem { first_element, additional_elements }) => {
            std::iter::once(first_element).chain(additional_elements).map(ToString::to_string).collect()
        }
        None => vec![],
    };
    let mut items = options.opt_replace.take().map(|replaced| replaced.items).unwrap_or_default();
    for key in &keys.all {
        let name = &key.name;
        let is_out =
            excluded.iter().chain(&except).any(|out| out.eq_ignore_ascii_case(&name.value) || *out == name.to_string());
        if !is_out && !items.iter().any(|item| is_same(&item.column_name, name)) {
            let expr = call(MERGED_KEY, [key.column()]);
            items.push(Box::new(ReplaceSelectElement { expr, column_name: name.clone(), as_keyword: true }));
        }
    }
    options.opt_replace = (!items.is_empty()).then_some(ReplaceSelectItem { items });
}

/// Gives results that read such a column the names that they have as they are written, also those of queries within.
fn keep_names(select: &mut Select, keys: &Keys) {
    struct Naming<'a>(&'a Keys);
    impl VisitorMut for Naming<'_> {
        type Break = ();

        fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
            for item in &mut select.projection {
                let SelectItem::UnnamedExpr(expr) = item else { continue };
                if any_expression(expr, |part| self.0.of_expr(part).is_some()) {
                    let alias = match &*expr {
                        Expr::Identifier(name) => name.clone(),
                        other => Ident::with_quote('"', other.to_string()),
                    };
                    *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias };
                }
            }
            ControlFlow::Continue(())
        }
    }
    let from = std::mem::take(&mut select.from);
    let _ = walk_mut(select, &mut Naming(keys));
    select.from = from;
}

/// Whether the query has an output of this name.
fn is_output(select: &Select, key: &Ident) -> bool {
    select.projection.iter().any(|item| match item {
        SelectItem::ExprWithAlias { alias, .. } => is_same(alias, key),
        SelectItem::UnnamedExpr(expr) => is_named(expr, key),
        SelectItem::Wildcard(_) => true,
        _ => false,
    })
}

fn is_named(expr: &Expr, key: &Ident) -> bool {
    matches!(expr, Expr::Identifier(name) if is_same(name, key))
}

fn is_same(one: &Ident, other: &Ident) -> bool {
    normal(one) == normal(other)
}
