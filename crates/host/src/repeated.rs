//! Columns of one name in a result, as of `SELECT a, a`: the planner wants each name once, so those that come again are planned under
//! names of their own, and get theirs back with the rows. So do those that a statement does not name.

mod origins;

use std::collections::{BTreeSet, HashMap};
use std::ops::ControlFlow;
use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::{Fields, Schema, SchemaRef};
use datafusion::common::{DataFusionError, TableReference};
use datafusion::execution::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    Expr, GroupByExpr, Ident, OrderBy, OrderByKind, Query, Select, SelectItem, SetExpr, Statement as Sql,
};
use futures::StreamExt;
use futures::stream::BoxStream;
use pithead_model::Fault;
use pithead_syntax::expressions;

use crate::dialect::{PostgresNames, result_names};
use crate::order_columns;
use crate::statement_plan::{is_refused, plan_of_said};
use crate::views::ViewsRead;

type Rows = BoxStream<'static, Result<RecordBatch, Fault>>;

/// A column as the planner names it.
type Column = (Option<TableReference>, String);

/// Names that the columns of a result are to have, where they are others than those of its plan.
#[derive(Clone, Default)]
pub(crate) struct Names {
    names: Option<Vec<String>>,
    /// Where columns come from that are those of a dataset, for who is told it.
    origins: Vec<Option<(u32, usize)>>,
}

/// The metadata of a column that tells where it comes from: the number of its dataset, a point, and its number there.
pub const ORIGIN: &str = "pithead.origin";

impl Names {
    fn of(names: Vec<String>) -> Names {
        Names { names: Some(names), origins: Vec::new() }
    }

    /// The same, but where the query gives a result no name: there, it is the text of the expression, or what PostgreSQL calls it.
    fn written_in(self, plan: &LogicalPlan, query: Option<&Query>, as_postgres: bool) -> Names {
        let fields = plan.schema().fields();
        let Some(written) = query.and_then(|query| result_names(query, fields.len(), as_postgres)) else { return self };
        if written.iter().all(Option::is_none) {
            return self;
        }
        let known = self.names.unwrap_or_else(|| fields.iter().map(|field| field.name().clone()).collect());
        Names::of(written.into_iter().zip(known).map(|(written, known)| written.unwrap_or(known)).collect())
    }

    /// The same, with where the columns of a plan come from. A view's are its own, which the plan does not tell.
    fn from(self, plan: &LogicalPlan, reads_views: bool) -> Names {
        let origins = if reads_views { Vec::new() } else { origins::origins(plan) };
        match origins.iter().any(Option::is_some) {
            true => Names { origins, ..self },
            false => self,
        }
    }

    /// The schema under these names.
    pub(crate) fn schema(&self, schema: &SchemaRef) -> SchemaRef {
        if self.names.is_none() && self.origins.is_empty() {
            return Arc::clone(schema);
        }
        let fields = schema.fields().iter().enumerate().map(|(place, field)| {
            let name = self.names.as_ref().and_then(|names| names.get(place)).unwrap_or_else(|| field.name());
            let field = field.as_ref().clone().with_name(name.as_str());
            let Some(Some((table, column))) = self.origins.get(place) else { return field };
            let origin = HashMap::from([(ORIGIN.to_owned(), format!("{table}.{column}"))]);
            let metadata = field.metadata().clone().into_iter().chain(origin).collect();
            field.with_metadata(metadata)
        });
        Arc::new(Schema::new_with_metadata(fields.collect::<Fields>(), schema.metadata().clone()))
    }

    /// The rows under the names of `schema`.
    pub(crate) fn rows(&self, rows: Rows, schema: &SchemaRef) -> Rows {
        if self.names.is_none() && self.origins.is_empty() {
            return rows;
        }
        let schema = Arc::clone(schema);
        let named = move |batch: RecordBatch| {
            let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
            RecordBatch::try_new_with_options(Arc::clone(&schema), batch.columns().to_vec(), &options).map_err(Fault::bug)
        };
        rows.map(move |batch| batch.and_then(&named)).boxed()
    }
}

/// A statement's plan, and the names of its columns.
pub(crate) async fn plan(state: &SessionState, statement: Statement) -> Result<(LogicalPlan, Names), DataFusionError> {
    let whole = |it| async { plan_of_all(state, it).await.map(|(plan, _)| plan) };
    let written = query_of(&statement).cloned();
    let statement = order_columns::of_tables(statement, whole).await?;
    let (plan, names) = plan_of_all(state, statement).await?;
    let as_postgres = state.config().get_extension::<PostgresNames>().is_some();
    let names = names.written_in(&plan, written.as_ref(), as_postgres);
    let names = if as_postgres { names.from(&plan, !ViewsRead::of(state).is_empty()) } else { names };
    Ok((plan, names))
}

fn query_of(statement: &Statement) -> Option<&Query> {
    match statement {
        Statement::Statement(sql) => match sql.as_ref() {
            Sql::Query(query) => Some(query),
            _ => None,
        },
        _ => None,
    }
}

async fn plan_of_all(state: &SessionState, statement: Statement) -> Result<(LogicalPlan, Names), DataFusionError> {
    let refused = match plan_of_said(state, statement.clone()).await {
        Err(error) if is_refused(&error) => error,
        plan => return Ok((plan?, Names::default())),
    };
    let Some((statement, names)) = told_apart(state, &statement).await else { return Err(refused) };
    Ok((plan_of_said(state, statement).await?, Names::of(names)))
}

/// The statement with one name for each column of its result, and the names that the columns are to have; none where no name comes
/// again.
async fn told_apart(state: &SessionState, statement: &Statement) -> Option<(Statement, Vec<String>)> {
    let query = query_of(statement)?;
    let (mut told, mut shell) = (query.clone(), query.clone());
    (shell.order_by, shell.limit_clause, shell.fetch) = (None, None, None);
    let sorted_by = qualified_in_order(query);
    let (mut names, mut is_repeated) = (None, false);
    for select in selects(&mut told.body) {
        let columns = columns(state, &shell, select).await?;
        // The first one names the columns of a UNION.
        names.get_or_insert_with(|| names_of(&columns));
        let (items, repeats) = apart(columns, &sorted_by, &statement.to_string());
        is_repeated |= repeats;
        select.projection = items;
    }
    let told = Statement::Statement(Box::new(Sql::Query(Box::new(told))));
    names.filter(|_| is_repeated).map(|names| (told, names))
}

/// The SELECTs whose rows the result has, the first one first.
fn selects(body: &mut SetExpr) -> Vec<&mut Select> {
    match body {
        SetExpr::Select(select) => vec![select],
        SetExpr::SetOperation { left, right, .. } => {
            let mut found = selects(left);
            found.extend(selects(right));
            found
        }
        SetExpr::Query(query) if query.with.is_none() => selects(&mut query.body),
        _ => Vec::new(),
    }
}

/// The columns of each item, as the planner names them where it has that item alone.
async fn columns(state: &SessionState, shell: &Query, select: &Select) -> Option<Vec<(SelectItem, Vec<Column>)>> {
    let mut found = Vec::with_capacity(select.projection.len());
    for item in &select.projection {
        let mut alone = Select { projection: vec![item.clone()], distinct: None, sort_by: Vec::new(), ..select.clone() };
        (alone.selection, alone.having, alone.qualify) = (None, None, None);
        let mut columns = planned(state, shell, &alone).await;
        if columns.is_none() {
            // Items of a grouped SELECT may stand for groups by their place.
            alone.group_by = GroupByExpr::Expressions(Vec::new(), Vec::new());
            columns = planned(state, shell, &alone).await;
        }
        found.push((item.clone(), columns?));
    }
    Some(found)
}

async fn planned(state: &SessionState, shell: &Query, select: &Select) -> Option<Vec<Column>> {
    let query = Query { body: Box::new(SetExpr::Select(Box::new(select.clone()))), ..shell.clone() };
    let plan = plan_of_said(state, Statement::Statement(Box::new(Sql::Query(Box::new(query))))).await.ok()?;
    Some(plan.schema().iter().map(|(qualifier, field)| (qualifier.cloned(), field.name().clone())).collect())
}

fn names_of(columns: &[(SelectItem, Vec<Column>)]) -> Vec<String> {
    columns.iter().flat_map(|(_, columns)| columns.iter().map(|(_, name)| name.clone())).collect()
}

/// The names of columns that ORDER BY says with their table, and nowhere without: `SELECT a AS b FROM t ORDER BY t.b` is sorted by a
/// column that is no part of the result, where another one has its name.
fn qualified_in_order(query: &Query) -> BTreeSet<String> {
    let Some(OrderBy { kind: OrderByKind::Expressions(order), .. }) = &query.order_by else { return BTreeSet::new() };
    let (mut qualified, mut bare) = (BTreeSet::new(), BTreeSet::new());
    let _ = expressions(order, |expr| {
        match expr {
            Expr::Identifier(name) => bare.extend([name.value.to_lowercase()]),
            Expr::CompoundIdentifier(parts) => qualified.extend(parts.last().map(|name| name.value.to_lowercase())),
            _ => {}
        }
        ControlFlow::<()>::Continue(())
    });
    &qualified - &bare
}

/// An item for each column, those under a name that came before, or by which rows are sorted, with another one, and whether there are
/// such.
fn apart(columns: Vec<(SelectItem, Vec<Column>)>, sorted_by: &BTreeSet<String>, text: &str) -> (Vec<SelectItem>, bool) {
    let text = text.to_lowercase();
    let mut taken: BTreeSet<String> = names_of(&columns).into_iter().collect();
    let mut seen = BTreeSet::new();
    let (mut items, mut is_repeated) = (Vec::new(), false);
    for (item, columns) in columns {
        for (qualifier, name) in columns {
            let expression = match &item {
                SelectItem::UnnamedExpr(expression) | SelectItem::ExprWithAlias { expr: expression, .. } => expression.clone(),
                _ => reference(qualifier.as_ref(), &name),
            };
            // A cast has the full name of its column, and the column has it, too.
            let full = qualifier.as_ref().map_or_else(|| name.clone(), |qualifier| format!("{qualifier}.{name}"));
            let hides = matches!(item, SelectItem::ExprWithAlias { .. }) && sorted_by.contains(&name.to_lowercase());
            let is_new = !seen.contains(&name) && !seen.contains(&full) && !hides;
            seen.extend([name.clone(), full]);
            if is_new {
                items.push(match &item {
                    SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAlias { .. } => item.clone(),
                    _ => SelectItem::UnnamedExpr(expression),
                });
                continue;
            }
            // A name that the statement does not hold anywhere: no part of it can mean this column by accident.
            let is_free = |free: &String| !taken.contains(free) && !text.contains(&free.to_lowercase());
            let free = (1..).map(|number| format!("{name}_{number}")).find(is_free).unwrap_or_default();
            taken.insert(free.clone());
            is_repeated = true;
            items.push(SelectItem::ExprWithAlias { expr: expression, alias: Ident::with_quote('"', free) });
        }
    }
    (items, is_repeated)
}

/// A column of a wildcard by its full name.
fn reference(qualifier: Option<&TableReference>, name: &str) -> Expr {
    let parts = qualifier.map(TableReference::to_vec).unwrap_or_default();
    let parts = parts.into_iter().chain([name.to_owned()]);
    let parts: Vec<Ident> = parts.map(|part| Ident::with_quote('"', part)).collect();
    match <[Ident; 1]>::try_from(parts) {
        Ok([part]) => Expr::Identifier(part),
        Err(parts) => Expr::CompoundIdentifier(parts),
    }
}
