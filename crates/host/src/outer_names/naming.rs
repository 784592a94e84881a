//! [`Naming`]: new names for tables of a statement, wherever it names them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use datafusion::common::TableReference;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    AccessExpr, Expr, FromTable, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, ObjectName, Query, Select, SelectItem,
    SelectItemQualifiedWildcardKind, SetExpr, Statement as Sql, TableAlias, TableFactor, TableWithJoins, UpdateTableFromKind,
    VisitorMut,
};
use pithead_syntax::walk_mut;

use crate::dialect::normal;
use crate::writing::is_plain_delete;

/// A column that a statement names with its table.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Read {
    /// Which one it is of all tables that the statement's FROMs name.
    pub(super) table: usize,
    /// What the table is called, without its schema.
    pub(super) name: String,
    pub(super) column: String,
}

/// All of them, and of each whether it is read in a query within that of its table.
pub(super) fn reads(statement: &Statement) -> BTreeMap<Read, bool> {
    let staying = BTreeSet::new();
    let mut naming = Naming::new(statement, BTreeSet::new(), &staying);
    naming.walk(&mut statement.clone());
    naming.reads
}

/// Names tables anew.
pub(super) struct Naming<'a> {
    /// Those that get a new name.
    tables: BTreeSet<usize>,
    /// Columns that stay as they are written.
    staying: &'a BTreeSet<Read>,
    /// What no name of the statement has in it.
    mark: String,
    /// Queries around, the innermost one last.
    scopes: Vec<Scope>,
    /// Tables that came before.
    count: usize,
    reads: BTreeMap<Read, bool>,
    named: BTreeMap<String, (usize, TableReference)>,
}

/// What a name may be looked up in.
enum Scope {
    /// A query, or a statement, whose FROM has these tables.
    Query {
        tables: Vec<Table>,
        /// Queries of its WITH that are still to come.
        with_left: usize,
        /// Whether its tables are those of a SELECT that is still to come.
        is_before_select: bool,
    },
    /// A SELECT that is a side of a UNION.
    Side { tables: Vec<Table> },
    /// A subquery of FROM or of WITH: it does not see the tables of the query that it is a part of.
    Wall { of_with: bool },
}

/// A table of a FROM.
struct Table {
    number: usize,
    /// What it is called, after its schema and catalog.
    called: Vec<String>,
    /// Whether it can have another name.
    is_free: bool,
}

impl Table {
    /// How many of a name's first parts, which are at most `parts`, name the table.
    fn matched(&self, name: &[Ident], parts: usize) -> Option<usize> {
        let is_it = |taken: &usize| {
            let from = self.called.len() - *taken;
            self.called[from..].iter().zip(name).all(|(called, part)| *called == normal(part))
        };
        (1..=parts.min(self.called.len())).rev().find(is_it)
    }
}

impl<'a> Naming<'a> {
    pub(super) fn new(statement: &Statement, tables: BTreeSet<usize>, staying: &'a BTreeSet<Read>) -> Self {
        let text = statement.to_string();
        let mark = (1..).map(|times| "/".repeat(times)).find(|mark| !text.contains(mark)).unwrap_or_default();
        let (reads, named) = (BTreeMap::new(), BTreeMap::new());
        Self { tables, staying, mark, scopes: Vec::new(), count: 0, reads, named }
    }

    /// The statement in the new names, and what the tables are called that have them.
    pub(super) fn of(mut self, statement: &Statement) -> (Statement, BTreeMap<String, (usize, TableReference)>) {
        let mut statement = statement.clone();
        self.walk(&mut statement);
        (statement, self.named)
    }

    fn walk(&mut self, statement: &mut Statement) {
        if let Statement::Statement(sql) = statement {
            let _ = walk_mut(sql, self);
        }
    }

    fn tables_of(&mut self, from: &mut [TableWithJoins]) -> Vec<Table> {
        let mut tables = Vec::new();
        for from in from {
            self.add(&mut from.relation, true, &mut tables);
            from.joins.iter_mut().for_each(|join| self.add(&mut join.relation, true, &mut tables));
        }
        tables
    }

    /// Adds a table to those of its FROM, and gives it its new name.
    fn add(&mut self, factor: &mut TableFactor, is_free: bool, tables: &mut Vec<Table>) {
        let (is_table, name) = match factor {
            TableFactor::NestedJoin { table_with_joins, alias: None } => {
                tables.extend(self.tables_of(std::slice::from_mut(table_with_joins)));
                return;
            }
            TableFactor::Table { name, args, .. } => (args.is_none(), Some(name.clone())),
            TableFactor::Derived { .. } => (true, None),
            _ => (false, None),
        };
        let Some(alias) = alias_of(factor) else { return };
        let called: Option<Vec<String>> = match (&*alias, name) {
            (Some(alias), _) => Some(vec![normal(&alias.name)]),
            (None, Some(name)) => name.0.iter().map(|part| part.as_ident().map(normal)).collect(),
            (None, None) => None,
        };
        let Some(called) = called.filter(|called| (1..=3).contains(&called.len())) else { return };
        let table = Table { number: self.count, called, is_free: is_free && is_table };
        self.count += 1;
        if let Some(name) = self.new_name(&table) {
            match alias {
                Some(alias) => alias.name = name,
                None => *alias = Some(TableAlias { explicit: true, name, columns: Vec::new(), at: None }),
            }
        }
        tables.push(table);
    }

    /// The new name of a table, if it gets one.
    fn new_name(&mut self, table: &Table) -> Option<Ident> {
        if !table.is_free || !self.tables.contains(&table.number) {
            return None;
        }
        let called = match table.called.as_slice() {
            [table] => TableReference::bare(table.as_str()),
            [schema, table] => TableReference::partial(schema.as_str(), table.as_str()),
            [catalog, schema, table] => TableReference::full(catalog.as_str(), schema.as_str(), table.as_str()),
            _ => return None,
        };
        let name = format!("{}{}{}", called.table(), self.mark, table.number);
        self.named.insert(name.clone(), (table.number, called));
        Some(Ident::with_quote('"', name))
    }

    /// The table that a name begins with, how many of its parts are the table's, and whether it is one of a query around.
    fn find(&self, name: &[Ident], parts: usize) -> Option<(&Table, usize, bool)> {
        let mut hidden = 0;
        for (place, scope) in self.scopes.iter().enumerate().rev() {
            let tables = match scope {
                Scope::Wall { .. } => {
                    hidden += 1;
                    continue;
                }
                Scope::Query { tables, .. } | Scope::Side { tables } => tables,
            };
            if hidden > 0 {
                hidden -= 1;
                continue;
            }
            let found = tables.iter().find_map(|table| Some((table, table.matched(name, parts)?)));
            if let Some((table, taken)) = found {
                return Some((table, taken, place + 1 < self.scopes.len()));
            }
        }
        None
    }

    /// Looks at a column that is named with its table: how many of the name's parts are the table's, and its new name.
    fn read(&mut self, name: &[Ident]) -> Option<(usize, Ident)> {
        let (table, taken, is_from_within) = self.find(name, name.len().checked_sub(1)?)?;
        let column = normal(name.get(taken)?);
        let read = Read { table: table.number, name: table.called.last()?.clone(), column };
        let new = self.renamed(table).filter(|_| !self.staying.contains(&read));
        if table.is_free {
            *self.reads.entry(read).or_default() |= is_from_within;
        }
        Some((taken, new?))
    }

    /// The name that a table was given.
    fn renamed(&self, table: &Table) -> Option<Ident> {
        let named = self.named.iter().find(|(_, (number, _))| *number == table.number);
        named.map(|(name, _)| Ident::with_quote('"', name.clone()))
    }

    /// Names the table of `t.*`.
    fn name_wildcard(&self, of: &mut ObjectName) {
        let Some(parts) = of.0.iter().map(|part| part.as_ident().cloned()).collect::<Option<Vec<Ident>>>() else { return };
        if let Some((table, taken, false)) = self.find(&parts, parts.len())
            && taken == parts.len()
            && let Some(new) = self.renamed(table)
        {
            *of = ObjectName::from(vec![new]);
        }
    }

    fn name_wildcards(&self, select: &mut Select) {
        for item in &mut select.projection {
            if let SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(of), _) = item {
                self.name_wildcard(of);
            }
        }
    }

    /// The tables that a statement names itself.
    fn tables_of_statement(&mut self, sql: &mut Sql) -> Vec<Table> {
        match sql {
            Sql::Update(update) => {
                let mut tables = self.tables_of(std::slice::from_mut(&mut update.table));
                if let Some(UpdateTableFromKind::BeforeSet(from) | UpdateTableFromKind::AfterSet(from)) = &mut update.from {
                    tables.extend(self.tables_of(from));
                }
                tables
            }
            Sql::Delete(delete) => {
                let is_free = is_plain_delete(delete);
                let (FromTable::WithFromKeyword(from) | FromTable::WithoutKeyword(from)) = &mut delete.from;
                let mut tables = Vec::new();
                from.iter_mut().for_each(|from| self.add(&mut from.relation, is_free, &mut tables));
                tables
            }
            Sql::Merge(merge) => {
                let mut tables = Vec::new();
                // The planner refuses subqueries that read the table under another name.
                self.add(&mut merge.table, false, &mut tables);
                self.add(&mut merge.source, true, &mut tables);
                tables
            }
            _ => Vec::new(),
        }
    }
}

/// Where a part of a FROM has its name.
fn alias_of(factor: &mut TableFactor) -> Option<&mut Option<TableAlias>> {
    match factor {
        TableFactor::Table { alias, .. }
        | TableFactor::Derived { alias, .. }
        | TableFactor::TableFunction { alias, .. }
        | TableFactor::Function { alias, .. }
        | TableFactor::UNNEST { alias, .. }
        | TableFactor::NestedJoin { alias, .. }
        | TableFactor::Pivot { alias, .. }
        | TableFactor::Unpivot { alias, .. } => Some(alias),
        _ => None,
    }
}

impl VisitorMut for Naming<'_> {
    type Break = ();

    fn pre_visit_statement(&mut self, sql: &mut Sql) -> ControlFlow<()> {
        let tables = self.tables_of_statement(sql);
        self.scopes.push(Scope::Query { tables, with_left: 0, is_before_select: false });
        ControlFlow::Continue(())
    }

    fn post_visit_statement(&mut self, _sql: &mut Sql) -> ControlFlow<()> {
        self.scopes.pop();
        ControlFlow::Continue(())
    }

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        if let Some(Scope::Query { with_left, .. }) = self.scopes.last_mut()
            && *with_left > 0
        {
            *with_left -= 1;
            self.scopes.push(Scope::Wall { of_with: true });
        }
        let with_left = query.with.as_ref().map_or(0, |with| with.cte_tables.len());
        let scope = match query.body.as_mut() {
            SetExpr::Select(select) => {
                Scope::Query { tables: self.tables_of(&mut select.from), with_left, is_before_select: true }
            }
            _ => Scope::Query { tables: Vec::new(), with_left, is_before_select: false },
        };
        self.scopes.push(scope);
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _query: &mut Query) -> ControlFlow<()> {
        self.scopes.pop();
        if matches!(self.scopes.last(), Some(Scope::Wall { of_with: true })) {
            self.scopes.pop();
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        match self.scopes.last_mut() {
            Some(Scope::Query { is_before_select, .. }) if *is_before_select => *is_before_select = false,
            _ => {
                let tables = self.tables_of(&mut select.from);
                self.scopes.push(Scope::Side { tables });
            }
        }
        self.name_wildcards(select);
        ControlFlow::Continue(())
    }

    fn post_visit_select(&mut self, _select: &mut Select) -> ControlFlow<()> {
        if matches!(self.scopes.last(), Some(Scope::Side { .. })) {
            self.scopes.pop();
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        if matches!(factor, TableFactor::Derived { lateral: false, .. }) {
            self.scopes.push(Scope::Wall { of_with: false });
        }
        ControlFlow::Continue(())
    }

    fn post_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        if matches!(factor, TableFactor::Derived { lateral: false, .. }) {
            self.scopes.pop();
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        match expr {
            Expr::CompoundIdentifier(parts) => {
                if let Some((taken, new)) = self.read(parts) {
                    parts.splice(..taken, [new]);
                }
            }
            Expr::CompoundFieldAccess { root, access_chain } => {
                if let (Expr::Identifier(table), Some(AccessExpr::Dot(Expr::Identifier(column)))) =
                    (root.as_mut(), access_chain.first())
                    && let Some((_, new)) = self.read(&[table.clone(), column.clone()])
                {
                    *table = new;
                }
            }
            Expr::Function(function) => {
                if let FunctionArguments::List(list) = &mut function.args {
                    for arg in &mut list.args {
                        if let FunctionArg::Unnamed(FunctionArgExpr::QualifiedWildcard(of)) = arg {
                            self.name_wildcard(of);
                        }
                    }
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}
