//! The cut: [`decompose`] finds what runs at the drives.
//!
//! Each operator, from the leaves up, can be had in two ways: its rows at the host, or, where a drive can run all below
//! it, as a [`Piece`] at the drives. For both the bytes that would cross the link are estimated, and the rows at the
//! host are had in the cheaper way: by operators of the host's own over its inputs, or by sending what a piece yields.
//! (A search over physical properties in the manner of Selinger et al., 1979, with "where" as the property.)

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;

use datafusion::common::TableReference;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchemaRef, Result};
use datafusion::execution::SessionState;
use datafusion::logical_expr::builder::LogicalTableSource;
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{
    Aggregate, Distinct, Expr, Extension, FetchType, Filter, Limit, LogicalPlan, Projection, SkipType, Sort, SubqueryAlias,
    TableScan, TableScanBuilder, TableSource, lit,
};
use pithead_model::{Level, SHIPPED_BYTES_MAX};

use crate::expression::{any_stays, stays};
use crate::facts::{Scheme, key_classes};
use crate::piece::{Layer, Piece};
use crate::travel::produce_for;
use crate::{Catalogue, DatasetFacts, Estimate, PlanError, RemoteScan, SubPlan, Travelling};

/// What may be pushed down.
#[derive(Clone, Debug)]
pub struct CutOptions {
    /// Anything. If not, drives send the columns that a query needs, and use its filters only to rule out slices and pages.
    pub pushdown: bool,
    /// Aggregates and DISTINCT.
    pub aggregates: bool,
    /// Joins.
    pub joins: bool,
    /// Top-k and LIMIT.
    pub top_k: bool,
    /// Most bytes expected of a table that is shipped, at each drive.
    pub ship_bytes_max: f64,
    /// Keys of inputs that turned out too large to ship.
    pub not_shipped: BTreeSet<String>,
    /// Inputs that were computed already, by key: the host has their rows, and their sizes are known.
    pub computed: BTreeMap<String, Computed>,
}

/// An input that was computed.
#[derive(Clone)]
pub struct Computed {
    /// Its rows, under the column names of [`crate::Input::schema`].
    pub table: Arc<dyn TableSource>,
    /// How many.
    pub rows: f64,
    /// Their bytes as Arrow.
    pub bytes: f64,
}

impl fmt::Debug for Computed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Computed").field("rows", &self.rows).field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl Default for CutOptions {
    fn default() -> Self {
        Self {
            pushdown: true,
            aggregates: true,
            joins: true,
            top_k: true,
            ship_bytes_max: SHIPPED_BYTES_MAX as f64 / 2.0,
            not_shipped: BTreeSet::new(),
            computed: BTreeMap::new(),
        }
    }
}

/// Why an operator stayed above the cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostReason {
    /// The operator, as EXPLAIN writes it.
    pub operator: String,
    /// Why.
    pub reason: String,
}

/// A query cut in two.
#[derive(Clone, Debug)]
pub struct Decomposition {
    /// What the host runs; its [`RemoteScan`] leaves are the sub-plans.
    pub super_plan: LogicalPlan,
    /// The sub-plans, by number from 1.
    pub sub_plans: Vec<Arc<SubPlan>>,
    /// Why operators of the super-plan stayed.
    pub reasons: Vec<HostReason>,
}

/// Cuts an optimised logical plan. `state` has the functions that drives have.
pub async fn decompose(
    plan: &LogicalPlan,
    catalogue: &dyn Catalogue,
    state: &SessionState,
    options: &CutOptions,
) -> Result<Decomposition, PlanError> {
    let mut cutter = Cutter::new(catalogue, state, options, HashMap::new());
    for _attempt in 0..=plan_size(plan) {
        let outcome = cutter.visit(plan)?;
        match finish(&outcome.host, state).await? {
            Finished::Plan(super_plan, sub_plans) => {
                let reasons = cutter.reasons.into_iter().map(|(operator, reason)| HostReason { operator, reason }).collect();
                return Ok(Decomposition { super_plan, sub_plans, reasons });
            }
            Finished::Refused(refused) => {
                cutter.refused.extend(refused);
                cutter = Cutter::new(catalogue, state, options, cutter.refused);
            }
        }
    }
    Err(PlanError::Malformed("the cut did not settle".into()))
}

fn plan_size(plan: &LogicalPlan) -> usize {
    1 + plan.inputs().into_iter().map(plan_size).sum::<usize>()
}

/// An operator, had in both ways.
#[derive(Clone)]
pub(crate) struct Outcome {
    /// What is expected of its rows.
    pub(crate) estimate: Estimate,
    /// Its rows at the host.
    pub(crate) host: LogicalPlan,
    /// Bytes on the link for that.
    pub(crate) host_cost: f64,
    /// Its rows at the drives.
    pub(crate) piece: Option<Piece>,
}

/// One attempt at a cut.
pub(crate) struct Cutter<'a> {
    pub(crate) catalogue: &'a dyn Catalogue,
    pub(crate) state: &'a SessionState,
    pub(crate) options: &'a CutOptions,
    /// Operators that stay, by their text, and why.
    pub(crate) reasons: HashMap<String, String>,
    /// Operators that do not survive the wire, by their text, and how.
    refused: HashMap<String, String>,
    pub(crate) inputs: usize,
    /// Parts that the host is taken to have, by key.
    pub(crate) first: BTreeSet<String>,
}

impl<'a> Cutter<'a> {
    pub(crate) fn new(
        catalogue: &'a dyn Catalogue,
        state: &'a SessionState,
        options: &'a CutOptions,
        refused: HashMap<String, String>,
    ) -> Self {
        Self { catalogue, state, options, reasons: HashMap::new(), refused, inputs: 0, first: BTreeSet::new() }
    }

    pub(crate) fn visit(&mut self, plan: &LogicalPlan) -> Result<Outcome> {
        if self.options.computed.is_empty() && self.first.is_empty() {
            return self.operator(plan);
        }
        if self.first.contains(&input_key(plan)) {
            let outcome = self.operator(plan)?;
            return Ok(Outcome { host_cost: 0.0, piece: None, ..outcome });
        }
        match self.options.computed.get(&input_key(plan)).cloned() {
            Some(computed) => self.computed(plan, &computed),
            None => self.operator(plan),
        }
    }

    /// A part of the plan whose rows the host has.
    fn computed(&mut self, plan: &LogicalPlan, computed: &Computed) -> Result<Outcome> {
        let estimate = self.operator(plan)?.estimate.measured(computed.rows, computed.bytes);
        let host = renamed_scan("computed", Arc::clone(&computed.table), plan)?;
        Ok(Outcome { estimate, host, host_cost: 0.0, piece: None })
    }

    fn operator(&mut self, plan: &LogicalPlan) -> Result<Outcome> {
        match plan {
            LogicalPlan::TableScan(scan) => match self.catalogue.facts(scan) {
                Some(facts) => self.scan(plan, scan, &facts),
                None => self.at_host(plan, "its table is at the host"),
            },
            LogicalPlan::Filter(filter) => self.filter(plan, filter),
            LogicalPlan::Projection(projection) => self.projection(plan, projection),
            LogicalPlan::SubqueryAlias(alias) => self.alias(plan, alias),
            LogicalPlan::Aggregate(aggregate) => self.aggregate(plan, aggregate),
            LogicalPlan::Distinct(Distinct::All(input)) if !input.schema().fields().is_empty() => {
                let columns = input.schema().columns().into_iter().map(Expr::Column).collect();
                let aggregate = LogicalPlan::Aggregate(Aggregate::try_new(Arc::clone(input), columns, vec![])?);
                self.visit(&aggregate)
            }
            LogicalPlan::Join(join) => self.join(plan, join),
            LogicalPlan::Sort(sort) => self.sort(plan, sort),
            LogicalPlan::Limit(limit) => self.limit(plan, limit),
            LogicalPlan::Window(_) => self.at_host(plan, "window functions need all rows of their partitions"),
            LogicalPlan::Union(_) => self.at_host(plan, "each branch is a sub-plan of its own"),
            _ => self.at_host(plan, "only the host runs it"),
        }
    }

    /// The operator at the host, over its inputs at the host.
    fn at_host(&mut self, plan: &LogicalPlan, reason: &str) -> Result<Outcome> {
        let mut inputs = Vec::new();
        let (mut host_cost, mut rows) = (0.0, 0.0);
        for input in plan.inputs() {
            let outcome = self.visit(input)?;
            host_cost += outcome.host_cost;
            rows += outcome.estimate.rows;
            inputs.push(outcome.host);
        }
        if !inputs.is_empty() {
            self.stayed(plan, reason);
        }
        let host = if inputs.is_empty() { plan.clone() } else { plan.with_new_exprs(plan.expressions(), inputs)? };
        let rows = if plan.inputs().is_empty() { 1000.0 } else { rows };
        Ok(Outcome { estimate: Estimate::unknown(plan.schema(), rows), host, host_cost, piece: None })
    }

    pub(crate) fn stayed(&mut self, plan: &LogicalPlan, reason: impl Into<String>) {
        self.reasons.insert(plan.display().to_string(), reason.into());
    }

    /// Whether the operator is known not to survive the wire; notes why.
    pub(crate) fn is_refused(&mut self, plan: &LogicalPlan) -> bool {
        let text = plan.display().to_string();
        let Some(reason) = self.refused.get(&text).cloned() else { return false };
        self.reasons.insert(text, reason);
        true
    }

    /// The cheaper of `host` and sending what `piece` yields.
    pub(crate) fn settle(
        &mut self,
        plan: &LogicalPlan,
        estimate: Estimate,
        host: LogicalPlan,
        host_cost: f64,
        piece: Option<Piece>,
    ) -> Result<Outcome> {
        let Some(piece) = piece else { return Ok(Outcome { estimate, host, host_cost, piece: None }) };
        let sent = piece.cost + estimate.bytes();
        if sent <= host_cost * (1.0 + 1e-9) {
            let host = seal(&piece, Arc::clone(piece.plan.schema()), estimate.clone(), Level::Whole);
            return Ok(Outcome { estimate, host, host_cost: sent, piece: Some(piece) });
        }
        self.stayed(plan, cheaper(sent, host_cost));
        Ok(Outcome { estimate, host, host_cost, piece: Some(piece) })
    }

    fn scan(&mut self, plan: &LogicalPlan, scan: &TableScan, facts: &Arc<DatasetFacts>) -> Result<Outcome> {
        let piece = scan_piece(scan, facts)?;
        let output = piece.plan.schema().as_arrow().clone();
        let estimate = Estimate::scan(facts, &output);
        let level = if self.options.pushdown { Level::Whole } else { Level::Hints };
        let host = seal(&piece, Arc::clone(plan.schema()), estimate.clone(), level);
        let host_cost = estimate.bytes();
        let refused = self.is_refused(plan);
        let piece = (self.options.pushdown && !refused).then_some(piece);
        let outcome = Outcome { estimate, host, host_cost, piece };
        match conjunction(scan.filters.clone()) {
            None => Ok(outcome),
            Some(predicate) => {
                let filter = Filter::try_new(predicate, Arc::new(plan.clone()))?;
                self.filter_over(&LogicalPlan::Filter(filter.clone()), &filter, outcome)
            }
        }
    }

    fn filter(&mut self, plan: &LogicalPlan, filter: &Filter) -> Result<Outcome> {
        let input = self.visit(&filter.input)?;
        self.filter_over(plan, filter, input)
    }

    /// Conditions that may travel go down, the others stay above.
    pub(crate) fn filter_over(&mut self, plan: &LogicalPlan, filter: &Filter, input: Outcome) -> Result<Outcome> {
        let schema = Arc::clone(filter.input.schema());
        let estimate = input.estimate.filter(&filter.predicate, &schema);
        if !self.options.pushdown {
            let below = self.prune_only(filter, input.host)?;
            let host = LogicalPlan::Filter(Filter::try_new(filter.predicate.clone(), Arc::new(below))?);
            self.stayed(plan, "pithead.pushdown is off");
            return Ok(Outcome { estimate, host, host_cost: input.host_cost, piece: None });
        }
        let host = LogicalPlan::Filter(Filter::try_new(filter.predicate.clone(), Arc::new(input.host))?);
        let Some(piece) = input.piece.filter(|_| !self.is_refused(plan)) else {
            return Ok(Outcome { estimate, host, host_cost: input.host_cost, piece: None });
        };
        let (travels, remains): (Vec<_>, Vec<_>) =
            split_conjunction_owned(filter.predicate.clone()).into_iter().partition(|part| stays(part).is_none());
        let pushed = match conjunction(travels) {
            Some(predicate) => {
                let pushed = LogicalPlan::Filter(Filter::try_new(predicate, Arc::new(piece.plan.clone()))?);
                piece.with_plan(pushed, plan)
            }
            None => piece,
        };
        let Some(remaining) = conjunction(remains) else {
            return self.settle(plan, estimate, host, input.host_cost, Some(pushed));
        };
        let reason = stays(&remaining).unwrap_or_default();
        self.stayed(plan, reason);
        let host_cost = pushed.cost + estimate.bytes();
        let sealed = seal(&pushed, Arc::clone(pushed.plan.schema()), estimate.clone(), Level::Whole);
        let host = LogicalPlan::Filter(Filter::try_new(remaining, Arc::new(sealed))?);
        self.stayed(&host, stays(&filter.predicate).unwrap_or_default());
        Ok(Outcome { estimate, host, host_cost, piece: None })
    }

    /// A scan of the host's with the filter's conditions, which only rule out slices and pages.
    fn prune_only(&mut self, filter: &Filter, host: LogicalPlan) -> Result<LogicalPlan> {
        let LogicalPlan::TableScan(scan) = unaliased(&filter.input) else { return Ok(host) };
        let Some(facts) = self.catalogue.facts(scan) else { return Ok(host) };
        let travels: Vec<_> =
            split_conjunction_owned(filter.predicate.clone()).into_iter().filter(|part| stays(part).is_none()).collect();
        let Some(predicate) = conjunction(travels).filter(|_| !self.refused.contains_key(&filter.input.display().to_string()))
        else {
            return Ok(host);
        };
        let mut piece = scan_piece(scan, &facts)?;
        let estimate = Estimate::scan(&facts, piece.plan.schema().as_arrow());
        if let LogicalPlan::SubqueryAlias(alias) = &*filter.input {
            let renamed = SubqueryAlias::try_new(Arc::new(piece.plan.clone()), alias.alias.clone())?;
            piece = piece.with_plan(LogicalPlan::SubqueryAlias(renamed), &filter.input);
        }
        let filtered = LogicalPlan::Filter(Filter::try_new(predicate, Arc::new(piece.plan.clone()))?);
        if self.is_refused(&filtered) {
            return Ok(host);
        }
        let schema = Arc::clone(filter.input.schema());
        let piece = piece.with_plan(filtered.clone(), &filtered);
        Ok(seal(&piece, schema, estimate, Level::Hints))
    }

    fn projection(&mut self, plan: &LogicalPlan, projection: &Projection) -> Result<Outcome> {
        let input = self.visit(&projection.input)?;
        let estimate = input.estimate.project(&projection.expr, projection.input.schema(), &projection.schema);
        let over = |input: LogicalPlan| -> Result<LogicalPlan> {
            Ok(LogicalPlan::Projection(Projection::try_new_with_schema(
                projection.expr.clone(),
                Arc::new(input),
                Arc::clone(&projection.schema),
            )?))
        };
        let host = over(input.host)?;
        let obstacle = any_stays(&projection.expr);
        if let (Some(reason), true) = (&obstacle, input.piece.is_some()) {
            self.stayed(plan, reason.clone());
        }
        let piece = match input.piece {
            Some(piece) if obstacle.is_none() && !self.is_refused(plan) => {
                let pushed = over(piece.plan.clone())?;
                Some(piece.with_columns(pushed, &projection.expr, plan))
            }
            _ => None,
        };
        self.settle(plan, estimate, host, input.host_cost, piece)
    }

    fn alias(&mut self, plan: &LogicalPlan, alias: &SubqueryAlias) -> Result<Outcome> {
        let input = self.visit(&alias.input)?;
        let over = |input: LogicalPlan| -> Result<LogicalPlan> {
            Ok(LogicalPlan::SubqueryAlias(SubqueryAlias::try_new(Arc::new(input), alias.alias.clone())?))
        };
        let host = over(input.host)?;
        let piece = match input.piece {
            Some(piece) => {
                let renamed = over(piece.plan.clone())?;
                Some(piece.with_plan(renamed, plan))
            }
            None => None,
        };
        self.settle(plan, input.estimate, host, input.host_cost, piece)
    }

    fn sort(&mut self, plan: &LogicalPlan, sort: &Sort) -> Result<Outcome> {
        let input = self.visit(&sort.input)?;
        let over = |input: LogicalPlan| LogicalPlan::Sort(Sort { input: Arc::new(input), ..sort.clone() });
        let rows = sort.fetch.map_or(input.estimate.rows, |fetch| input.estimate.rows.min(fetch as f64));
        let host = over(input.host);
        let Some(fetch) = sort.fetch else {
            self.stayed(plan, "a sort's rows all travel");
            return Ok(Outcome { estimate: input.estimate, host, host_cost: input.host_cost, piece: None });
        };
        let obstacle = any_stays(sort.expr.iter().map(|key| &key.expr));
        let pushed = input.piece.filter(|_| self.options.top_k && obstacle.is_none() && !self.is_refused(plan));
        let pushed = pushed.map(|piece| {
            let sorted = over(piece.plan.clone());
            (piece.scheme.copies.len(), piece.with_plan(sorted, plan))
        });
        self.truncated(plan, host, input.host_cost, &input.estimate, rows, fetch, pushed)
    }

    fn limit(&mut self, plan: &LogicalPlan, limit: &Limit) -> Result<Outcome> {
        let input = self.visit(&limit.input)?;
        let host = LogicalPlan::Limit(Limit { input: Arc::new(input.host), ..limit.clone() });
        let (SkipType::Literal(skip), FetchType::Literal(Some(fetch))) = (limit.get_skip_type()?, limit.get_fetch_type()?)
        else {
            return Ok(Outcome { estimate: input.estimate, host, host_cost: input.host_cost, piece: None });
        };
        let needed = skip.saturating_add(fetch);
        let rows = input.estimate.rows.min(fetch as f64);
        let pushed = input.piece.filter(|_| self.options.top_k && !self.is_refused(plan)).map(|piece| {
            let fetch = Some(Box::new(lit(needed as i64)));
            let limited = LogicalPlan::Limit(Limit { skip: None, fetch, input: Arc::new(piece.plan.clone()) });
            (piece.scheme.copies.len(), piece.with_plan(limited, plan))
        });
        self.truncated(plan, host, input.host_cost, &input.estimate, rows, needed, pushed)
    }

    /// Top-k or limit: at each drive first, then again at the host.
    #[expect(clippy::too_many_arguments)]
    fn truncated(
        &mut self,
        plan: &LogicalPlan,
        host: LogicalPlan,
        host_cost: f64,
        input: &Estimate,
        rows: f64,
        fetch: usize,
        pushed: Option<(usize, Piece)>,
    ) -> Result<Outcome> {
        let estimate = input.with_rows(rows);
        let Some((drives, piece)) = pushed else { return Ok(Outcome { estimate, host, host_cost, piece: None }) };
        let sent = input.with_rows(input.rows.min(fetch as f64 * drives as f64));
        let cost = piece.cost + sent.bytes();
        if cost > host_cost * (1.0 + 1e-9) {
            self.stayed(plan, cheaper(cost, host_cost));
            return Ok(Outcome { estimate, host, host_cost, piece: None });
        }
        let sealed = seal(&piece, Arc::clone(piece.plan.schema()), sent, Level::Whole);
        let merged = plan.with_new_exprs(plan.expressions(), vec![sealed])?;
        self.stayed(&merged, "merges the drives' first rows");
        Ok(Outcome { estimate, host: merged, host_cost: cost, piece: None })
    }
}

/// What identifies a part of a plan over attempts to plan the same query.
pub(crate) fn input_key(plan: &LogicalPlan) -> String {
    plan.display_indent().to_string()
}

/// A scan of `table`, whose columns are those of `plan` by position, under the names of `plan`.
pub(crate) fn renamed_scan(
    name: impl Into<TableReference>,
    table: Arc<dyn TableSource>,
    plan: &LogicalPlan,
) -> Result<LogicalPlan> {
    let name = name.into();
    let scan = TableScanBuilder::new(name.clone(), Arc::clone(&table)).build()?;
    let columns = table.schema();
    let exprs = plan.schema().iter().zip(columns.fields()).map(|((qualifier, field), own)| {
        let column = Expr::Column(Column::new(Some(name.clone()), own.name()));
        column.alias_qualified(qualifier.cloned(), field.name())
    });
    let exprs = exprs.collect();
    Ok(LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(LogicalPlan::TableScan(scan)))?))
}

pub(crate) fn cheaper(sent: f64, host_cost: f64) -> String {
    let megabytes = |bytes: f64| format!("{:.2} MB", bytes / 1e6);
    format!("pushed down it would send more: {} instead of {}", megabytes(sent), megabytes(host_cost))
}

fn unaliased(plan: &LogicalPlan) -> &LogicalPlan {
    match plan {
        LogicalPlan::SubqueryAlias(alias) => unaliased(&alias.input),
        plan => plan,
    }
}

/// The scan of a dataset with just the columns that are needed, under the name that the query gives it.
fn scan_piece(scan: &TableScan, facts: &Arc<DatasetFacts>) -> Result<Piece> {
    let narrow = Arc::new(scan.projected_schema.as_arrow().clone());
    let names: Vec<String> = narrow.fields().iter().map(|field| field.name().clone()).collect();
    let name = TableReference::partial(facts.name.domain.as_str(), facts.name.dataset.as_str());
    let table = TableScanBuilder::new(name, Arc::new(LogicalTableSource::new(narrow))).build()?;
    let alias = SubqueryAlias::try_new(Arc::new(LogicalPlan::TableScan(table)), scan.table_name.clone())?;
    let plan = LogicalPlan::SubqueryAlias(alias);
    Ok(Piece {
        layers: vec![Layer::new(&plan, &LogicalPlan::TableScan(scan.clone()))],
        plan,
        scans: vec![Arc::clone(facts)],
        driving: 0,
        scheme: Scheme::of(facts),
        keys: key_classes(facts, &names),
        whole: false,
        inputs: vec![],
        cost: 0.0,
    })
}

/// The leaf of a super-plan that yields a piece's rows.
pub(crate) fn seal(piece: &Piece, schema: DFSchemaRef, estimate: Estimate, level_max: Level) -> LogicalPlan {
    let sub_plan = SubPlan {
        number: 0,
        plan: piece.plan.clone(),
        travelling: Travelling::Scan(vec![]),
        datasets: piece.datasets(),
        copies: piece.scheme.copies.clone(),
        inputs: piece.inputs.clone(),
        whole_partition: piece.whole,
        level_max,
        schema: Arc::new(schema.as_arrow().clone()),
        estimate,
        layers: piece.layers.iter().map(|layer| (layer.plan.clone(), layer.operator.clone())).collect(),
    };
    LogicalPlan::Extension(Extension { node: Arc::new(RemoteScan { sub_plan: Arc::new(sub_plan), schema }) })
}

enum Finished {
    Plan(LogicalPlan, Vec<Arc<SubPlan>>),
    /// Operators that do not survive the wire, and how.
    Refused(HashMap<String, String>),
}

/// Numbers the sub-plans of a super-plan and turns them into what travels.
async fn finish(host: &LogicalPlan, state: &SessionState) -> Result<Finished, PlanError> {
    let mut found = Vec::new();
    host.apply(|node| {
        found.extend(remote(node).cloned());
        Ok(datafusion::common::tree_node::TreeNodeRecursion::Continue)
    })?;
    let mut sub_plans = Vec::new();
    for (index, scan) in found.iter().enumerate() {
        let travelling = match produce_for(&scan.sub_plan, state).await {
            Ok(bytes) => Travelling::Substrait(bytes),
            Err(error) => match bare_scan(&scan.sub_plan.plan) {
                Some(columns) => Travelling::Scan(columns),
                None => return Ok(Finished::Refused(culprit(&scan.sub_plan, state, &error).await)),
            },
        };
        sub_plans.push(Arc::new(SubPlan { number: index + 1, travelling, ..SubPlan::clone(&scan.sub_plan) }));
    }
    let mut next = sub_plans.iter();
    let numbered = host.clone().transform_down(|node| match remote(&node) {
        Some(scan) => {
            let sub_plan = next.next().cloned().unwrap_or_else(|| Arc::clone(&scan.sub_plan));
            let node = RemoteScan { sub_plan, schema: Arc::clone(&scan.schema) };
            Ok(Transformed::yes(LogicalPlan::Extension(Extension { node: Arc::new(node) })))
        }
        None => Ok(Transformed::no(node)),
    })?;
    Ok(Finished::Plan(numbered.data, sub_plans))
}

fn remote(plan: &LogicalPlan) -> Option<&RemoteScan> {
    match plan {
        LogicalPlan::Extension(extension) => extension.node.as_any().downcast_ref(),
        _ => None,
    }
}

/// The columns of a plan that is nothing but a scan.
fn bare_scan(plan: &LogicalPlan) -> Option<Vec<String>> {
    match unaliased(plan) {
        LogicalPlan::TableScan(scan) => Some(scan.projected_schema.fields().iter().map(|field| field.name().clone()).collect()),
        _ => None,
    }
}

/// The lowest operator of a sub-plan that does not survive the wire.
async fn culprit(sub_plan: &SubPlan, state: &SessionState, error: &PlanError) -> HashMap<String, String> {
    for (plan, operator) in &sub_plan.layers {
        let part = SubPlan { plan: plan.clone(), ..sub_plan.clone() };
        if let Err(error) = produce_for(&part, state).await {
            return HashMap::from([(operator.clone(), error.to_string())]);
        }
    }
    // Each layer survives but the whole does not: it is too large.
    sub_plan.layers.last().map(|(_, operator)| (operator.clone(), error.to_string())).into_iter().collect()
}
