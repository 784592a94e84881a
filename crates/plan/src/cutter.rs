//! The search behind the cut.
//!
//! Each operator, from the leaves up, can be had in two ways: its rows at the host, or, where a drive can run
//! everything below it, as a [`Piece`] at the drives. For both ways the cutter estimates the bytes that would cross the
//! link. Rows at the host are had in the cheaper way: by operators of the host's own over the operator's inputs, or by
//! sending what a piece yields. (This is a search over physical properties in the manner of Selinger et al. 1979, with
//! "where" as the property; see `docs/bibliography.md`.)

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use datafusion::common::TableReference;
use datafusion::common::{Column, DFSchemaRef, Result, ScalarValue};
use datafusion::execution::SessionState;
use datafusion::logical_expr::builder::LogicalTableSource;
use datafusion::logical_expr::utils::split_conjunction_owned;
use datafusion::logical_expr::{
    Aggregate, Distinct, EmptyRelation, Expr, Extension, FetchType, Filter, Limit, LogicalPlan, Projection, SkipType, Sort,
    SubqueryAlias, TableScan, TableScanBuilder, TableSource, Unnest, lit,
};
use pithead_functions::conjunction;
use pithead_model::Level;

use crate::expression::{any_stays, stays};
use crate::facts::{KeyClasses, Scheme};
use crate::known_rows::KnownRows;
use crate::operator::Operator;
use crate::piece::{Layer, Piece};
use crate::unnest_rel::repeated;
use crate::{Catalogue, Computed, CutOptions, DatasetFacts, Estimate, RemoteScan, ReplanPoint, SubPlan, Travelling};

/// An operator and the two ways to have its rows.
#[derive(Clone)]
pub(crate) struct Outcome {
    /// The estimate of its rows.
    pub(crate) estimate: Estimate,
    /// A plan that has its rows at the host.
    pub(crate) host: LogicalPlan,
    /// The bytes on the link for that.
    pub(crate) host_cost: f64,
    /// The piece that has its rows at the drives.
    pub(crate) piece: Option<Piece>,
}

/// One attempt at a cut, or a draft of cuts, which has the costs of plans without the plans.
pub(crate) struct Cutter<'a> {
    pub(crate) catalogue: &'a dyn Catalogue,
    pub(crate) state: &'a SessionState,
    pub(crate) options: &'a CutOptions,
    /// Operators that stay at the host, and why.
    pub(crate) reasons: HashMap<Operator, String>,
    /// Operators that do not survive the wire, each with everything below it, and how they fail.
    refused: &'a HashMap<LogicalPlan, String>,
    pub(crate) inputs: usize,
    /// Rows that the joins seen so far read and produce.
    pub(crate) joined_rows: f64,
    /// In a draft: the outcomes of plans that were looked at already.
    draft: Option<Draft>,
}

/// The memory of a draft: outcomes of plans. The draft looks for a plan at its place in memory, and then compares it.
/// Plans that were not copied share what is below them, so comparing is quick.
#[derive(Default)]
struct Draft {
    seen: HashMap<*const LogicalPlan, (LogicalPlan, Outcome)>,
    pinned: Vec<Arc<LogicalPlan>>,
}

/// What the drives run of a piece, before it has a number and a form in which it travels.
pub(crate) fn sub_plan_of(piece: &Piece, schema: &DFSchemaRef, estimate: &Estimate, level_max: Level) -> SubPlan {
    SubPlan {
        number: 0,
        plan: piece.plan.clone(),
        travelling: Travelling::Scan(vec![]),
        extensions: vec![],
        passing: vec![],
        datasets: piece.datasets(),
        copies: piece.scheme.copies.clone(),
        inputs: piece.inputs.clone(),
        whole_partition: piece.whole,
        level_max,
        schema: Arc::new(schema.as_arrow().clone()),
        estimate: estimate.clone(),
        layers: piece.layers.clone(),
    }
}

impl<'a> Cutter<'a> {
    pub(crate) fn new(
        catalogue: &'a dyn Catalogue,
        state: &'a SessionState,
        options: &'a CutOptions,
        refused: &'a HashMap<LogicalPlan, String>,
    ) -> Self {
        Self { catalogue, state, options, reasons: HashMap::new(), refused, inputs: 0, joined_rows: 0.0, draft: None }
    }

    /// A cutter for the costs of many plans that share parts. The plans in its outcomes are empty relations with the
    /// right columns.
    pub(crate) fn draft(catalogue: &'a dyn Catalogue, state: &'a SessionState, options: &'a CutOptions) -> Self {
        static NONE: LazyLock<HashMap<LogicalPlan, String>> = LazyLock::new(HashMap::new);
        Self { draft: Some(Draft::default()), ..Self::new(catalogue, state, options, &NONE) }
    }

    pub(crate) fn is_draft(&self) -> bool {
        self.draft.is_some()
    }

    /// The cost of a plan. Parts that it shares with plans drafted before are not looked at again.
    pub(crate) fn drafted(&mut self, plan: &Arc<LogicalPlan>) -> Result<Outcome> {
        if let Some(draft) = &mut self.draft {
            draft.pinned.push(Arc::clone(plan));
        }
        self.visit_part(plan)
    }

    /// The outcome of a part of a plan that was given to [`Self::drafted`], or that lives as long as the cutter.
    pub(crate) fn visit_part(&mut self, plan: &LogicalPlan) -> Result<Outcome> {
        let place = std::ptr::from_ref(plan);
        let seen = self.draft.as_ref().and_then(|draft| draft.seen.get(&place));
        if let Some((_, outcome)) = seen.filter(|(known, _)| known == plan) {
            return Ok(outcome.clone());
        }
        let outcome = self.operator(plan)?;
        if let Some(draft) = &mut self.draft {
            draft.seen.insert(place, (plan.clone(), outcome.clone()));
        }
        Ok(outcome)
    }

    pub(crate) fn visit(&mut self, plan: &LogicalPlan) -> Result<Outcome> {
        if self.is_draft() {
            return self.visit_part(plan);
        }
        match self.options.computed.iter().find(|(part, _)| part == plan) {
            Some((_, computed)) => self.computed(plan, computed),
            None => self.operator(plan),
        }
    }

    /// A plan for an outcome. A draft only has its columns.
    pub(crate) fn built(&self, schema: &DFSchemaRef, build: impl FnOnce() -> Result<LogicalPlan>) -> Result<LogicalPlan> {
        match self.is_draft() {
            true => Ok(LogicalPlan::EmptyRelation(EmptyRelation { produce_one_row: false, schema: Arc::clone(schema) })),
            false => build(),
        }
    }

    /// The outcome of a part of the plan whose rows the host has already.
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
                let aggregate = Aggregate::try_new(Arc::clone(input), columns, vec![])?;
                self.aggregate(&LogicalPlan::Aggregate(aggregate.clone()), &aggregate)
            }
            LogicalPlan::Join(join) => self.join(plan, join),
            LogicalPlan::Sort(sort) => self.sort(plan, sort),
            LogicalPlan::Limit(limit) => self.limit(plan, limit),
            LogicalPlan::Unnest(unnest) => self.unnest(plan, unnest),
            LogicalPlan::Window(_) => self.at_host(plan, "window functions need all rows of their partitions"),
            LogicalPlan::Union(_) => self.at_host(plan, "each branch is a sub-plan of its own"),
            LogicalPlan::Extension(extension) => self.extension(plan, extension),
            _ => self.at_host(plan, "only the host runs it"),
        }
    }

    fn extension(&mut self, plan: &LogicalPlan, extension: &Extension) -> Result<Outcome> {
        if let Some(known) = extension.node.as_any().downcast_ref::<KnownRows>() {
            let (estimate, host) = (known.estimate.clone(), plan.clone());
            return Ok(Outcome { estimate, host, host_cost: 0.0, piece: None });
        }
        let Some(point) = ReplanPoint::of(plan) else { return self.at_host(plan, "only the host runs it") };
        let below = self.visit(&point.input)?;
        Ok(self.replan_point_over(point, below))
    }

    /// The point over a plan that was visited already. Where all of it is at the drives, there is nothing to plan anew.
    pub(crate) fn replan_point_over(&self, point: &ReplanPoint, below: Outcome) -> Outcome {
        if self.is_draft() || RemoteScan::of(&below.host).is_some() {
            return below;
        }
        let host = ReplanPoint { input: below.host, region: Arc::clone(&point.region) }.node();
        Outcome { host, ..below }
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
            self.stayed(plan, || reason);
        }
        let host = self.built(plan.schema(), || match inputs.is_empty() {
            true => Ok(plan.clone()),
            false => plan.with_new_exprs(plan.expressions(), inputs),
        })?;
        let rows = if plan.inputs().is_empty() { 1000.0 } else { rows };
        Ok(Outcome { estimate: Estimate::unknown(plan.schema(), rows), host, host_cost, piece: None })
    }

    pub(crate) fn stayed<R: Into<String>>(&mut self, plan: &LogicalPlan, reason: impl FnOnce() -> R) {
        if !self.is_draft() {
            self.reasons.insert(Operator::of(plan), reason().into());
        }
    }

    /// Why the operator does not survive the wire, if that is known. The reason is recorded.
    pub(crate) fn refusal(&mut self, plan: &LogicalPlan) -> Option<String> {
        let refused = self.refused;
        let reason = if refused.is_empty() { None } else { refused.get(plan) }?;
        self.stayed(plan, || reason.clone());
        Some(reason.clone())
    }

    /// Whether the operator is known not to survive the wire. The reason is recorded.
    pub(crate) fn is_refused(&mut self, plan: &LogicalPlan) -> bool {
        self.refusal(plan).is_some()
    }

    /// The cheaper of `host` and of sending what `piece` yields.
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
        if self.pays(&piece, sent, host_cost) {
            let host = self.seal(&piece, Arc::clone(piece.plan.schema()), &estimate, Level::Whole);
            return Ok(Outcome { estimate, host, host_cost: sent, piece: Some(piece) });
        }
        self.stayed(plan, || piece.too_dear(sent, host_cost));
        Ok(Outcome { estimate, host, host_cost, piece: Some(piece) })
    }

    /// Whether rows from a piece, for this many bytes on the link, are better than rows from other ways, for
    /// `host_cost` bytes.
    pub(crate) fn pays(&self, piece: &Piece, sent: f64, host_cost: f64) -> bool {
        match piece.one_round {
            // The whole partition in one round: one thread does what several could have done.
            true => sent + self.options.one_round_bytes_min <= host_cost,
            false => sent <= host_cost * (1.0 + 1e-9),
        }
    }

    /// The leaf of a super-plan that yields the rows of a piece.
    pub(crate) fn seal(&self, piece: &Piece, schema: DFSchemaRef, estimate: &Estimate, level_max: Level) -> LogicalPlan {
        if self.is_draft() {
            return LogicalPlan::EmptyRelation(EmptyRelation { produce_one_row: false, schema });
        }
        let sub_plan = sub_plan_of(piece, &schema, estimate, level_max);
        LogicalPlan::Extension(Extension { node: Arc::new(RemoteScan { sub_plan: Arc::new(sub_plan), schema }) })
    }

    /// A piece with another operator on top; `operator` is that operator as it is in the query.
    pub(crate) fn grown(&self, mut piece: Piece, plan: LogicalPlan, operator: &LogicalPlan) -> Piece {
        if !self.is_draft() {
            piece.layers.push(Arc::new(Layer::new(&plan, operator)));
        }
        Piece { plan, ..piece }
    }

    fn scan(&mut self, plan: &LogicalPlan, scan: &TableScan, facts: &Arc<DatasetFacts>) -> Result<Outcome> {
        let piece = scan_piece(scan, facts)?;
        let output = piece.plan.schema().as_arrow().clone();
        let estimate = Estimate::scan(facts, &output);
        let level = if self.options.pushdown { Level::Whole } else { Level::Hints };
        let host = self.seal(&piece, Arc::clone(plan.schema()), &estimate, level);
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

    /// Sends the conditions down that may travel, and leaves the others above.
    pub(crate) fn filter_over(&mut self, plan: &LogicalPlan, filter: &Filter, input: Outcome) -> Result<Outcome> {
        let schema = Arc::clone(filter.input.schema());
        let sampled = self.options.samples.estimate(filter, self.catalogue, &input.estimate);
        let estimate = sampled.unwrap_or_else(|| input.estimate.filter(&filter.predicate, &schema));
        if !self.options.pushdown {
            let below = self.prune_only(filter, input.host)?;
            let host = self.built(&schema, || filtered(filter.predicate.clone(), below))?;
            self.stayed(plan, || "pithead.pushdown is off");
            return Ok(Outcome { estimate, host, host_cost: input.host_cost, piece: None });
        }
        let host = self.built(&schema, || filtered(filter.predicate.clone(), input.host))?;
        let Some(piece) = input.piece.filter(|_| !self.is_refused(plan)) else {
            return Ok(Outcome { estimate, host, host_cost: input.host_cost, piece: None });
        };
        let (travels, remains): (Vec<_>, Vec<_>) =
            split_conjunction_owned(filter.predicate.clone()).into_iter().partition(|part| stays(part).is_none());
        let pushed = match conjunction(travels) {
            Some(predicate) => {
                let pushed = self.built(&schema, || filtered(predicate, piece.plan.clone()))?;
                self.grown(piece, pushed, plan)
            }
            None => piece,
        };
        let Some(remaining) = conjunction(remains) else {
            return self.settle(plan, estimate, host, input.host_cost, Some(pushed));
        };
        self.stayed(plan, || stays(&remaining).unwrap_or_default());
        let host_cost = pushed.cost + estimate.bytes();
        let sealed = self.seal(&pushed, Arc::clone(pushed.plan.schema()), &estimate, Level::Whole);
        let host = self.built(&schema, || filtered(remaining, sealed))?;
        self.stayed(&host, || stays(&filter.predicate).unwrap_or_default());
        Ok(Outcome { estimate, host, host_cost, piece: None })
    }

    /// A scan for the host that knows the filter's conditions, but uses them only to skip slices and pages (level 1).
    fn prune_only(&mut self, filter: &Filter, host: LogicalPlan) -> Result<LogicalPlan> {
        if self.is_draft() {
            return Ok(host);
        }
        let LogicalPlan::TableScan(scan) = unaliased(&filter.input) else { return Ok(host) };
        let Some(facts) = self.catalogue.facts(scan) else { return Ok(host) };
        let travels: Vec<_> =
            split_conjunction_owned(filter.predicate.clone()).into_iter().filter(|part| stays(part).is_none()).collect();
        let Some(predicate) = conjunction(travels).filter(|_| !self.refused.contains_key(&*filter.input)) else {
            return Ok(host);
        };
        let mut piece = scan_piece(scan, &facts)?;
        let estimate = Estimate::scan(&facts, piece.plan.schema().as_arrow());
        if let LogicalPlan::SubqueryAlias(alias) = &*filter.input {
            let renamed = SubqueryAlias::try_new(Arc::new(piece.plan.clone()), alias.alias.clone())?;
            piece = self.grown(piece, LogicalPlan::SubqueryAlias(renamed), &filter.input);
        }
        let filtered = LogicalPlan::Filter(Filter::try_new(predicate, Arc::new(piece.plan.clone()))?);
        if self.is_refused(&filtered) {
            return Ok(host);
        }
        let schema = Arc::clone(filter.input.schema());
        let piece = self.grown(piece, filtered.clone(), &filtered);
        Ok(self.seal(&piece, schema, &estimate, Level::Hints))
    }

    fn projection(&mut self, plan: &LogicalPlan, projection: &Projection) -> Result<Outcome> {
        let input = self.visit(&projection.input)?;
        self.projection_over(plan, projection, input)
    }

    /// The projection of an input that was visited already.
    pub(crate) fn projection_over(&mut self, plan: &LogicalPlan, projection: &Projection, input: Outcome) -> Result<Outcome> {
        let estimate = input.estimate.project(&projection.expr, projection.input.schema(), &projection.schema);
        let over = |input: LogicalPlan| -> Result<LogicalPlan> {
            Ok(LogicalPlan::Projection(Projection::try_new_with_schema(
                projection.expr.clone(),
                Arc::new(input),
                Arc::clone(&projection.schema),
            )?))
        };
        let host = self.built(&projection.schema, || over(input.host))?;
        let obstacle = any_stays(&projection.expr);
        if let (Some(reason), true) = (&obstacle, input.piece.is_some()) {
            self.stayed(plan, || reason.clone());
        }
        let piece = match input.piece {
            Some(piece) if obstacle.is_none() && !self.is_refused(plan) => {
                let pushed = self.built(&projection.schema, || over(piece.plan.clone()))?;
                Some(self.grown(piece.with_columns(&projection.expr), pushed, plan))
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
        let host = self.built(&alias.schema, || over(input.host))?;
        let piece = match input.piece {
            Some(piece) => {
                let renamed = self.built(&alias.schema, || over(piece.plan.clone()))?;
                Some(self.grown(piece, renamed, plan))
            }
            None => None,
        };
        self.settle(plan, input.estimate, host, input.host_cost, piece)
    }

    /// Rows of lists: what is above them may leave fewer rows than there are lists, or make few groups of them.
    fn unnest(&mut self, plan: &LogicalPlan, unnest: &Unnest) -> Result<Outcome> {
        let input = self.visit(&unnest.input)?;
        let estimate = input.estimate.unnest(unnest);
        let over = |input: LogicalPlan| Ok(LogicalPlan::Unnest(Unnest { input: Arc::new(input), ..unnest.clone() }));
        let host = self.built(&unnest.schema, || over(input.host))?;
        let piece = match input.piece.filter(|_| !self.is_refused(plan)) {
            Some(piece) => {
                let pushed = self.built(&unnest.schema, || over(piece.plan.clone()))?;
                let columns = piece.plan.schema().columns();
                // Of a list, other values than the list are left.
                let kept = repeated(unnest).map(|of| match of {
                    Some(of) => Expr::Column(columns[of].clone()),
                    None => lit(ScalarValue::Null),
                });
                let kept: Vec<Expr> = kept.collect();
                Some(self.grown(piece.with_columns(&kept), pushed, plan))
            }
            None => None,
        };
        self.settle(plan, estimate, host, input.host_cost, piece)
    }

    fn sort(&mut self, plan: &LogicalPlan, sort: &Sort) -> Result<Outcome> {
        let input = self.visit(&sort.input)?;
        let over = |input: LogicalPlan| LogicalPlan::Sort(Sort { input: Arc::new(input), ..sort.clone() });
        let rows = sort.fetch.map_or(input.estimate.rows, |fetch| input.estimate.rows.min(fetch as f64));
        let host = self.built(plan.schema(), || Ok(over(input.host)))?;
        let Some(fetch) = sort.fetch else {
            self.stayed(plan, || "a sort's rows all travel");
            return Ok(Outcome { estimate: input.estimate, host, host_cost: input.host_cost, piece: None });
        };
        let obstacle = any_stays(sort.expr.iter().map(|key| &key.expr));
        let pushed = input.piece.filter(|_| self.options.top_k && obstacle.is_none() && !self.is_refused(plan));
        let pushed = match pushed {
            Some(piece) => {
                let sorted = self.built(plan.schema(), || Ok(over(piece.plan.clone())))?;
                Some((piece.scheme.copies.len(), self.grown(piece, sorted, plan)))
            }
            None => None,
        };
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
            (piece.scheme.copies.len(), self.grown(piece, limited, plan))
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
        if !self.pays(&piece, cost, host_cost) {
            self.stayed(plan, || piece.too_dear(cost, host_cost));
            return Ok(Outcome { estimate, host, host_cost, piece: None });
        }
        let sealed = self.seal(&piece, Arc::clone(piece.plan.schema()), &sent, Level::Whole);
        let merged = self.built(plan.schema(), || plan.with_new_exprs(plan.expressions(), vec![sealed]))?;
        self.stayed(&merged, || "merges the drives' first rows");
        Ok(Outcome { estimate, host: merged, host_cost: cost, piece: None })
    }
}

fn filtered(predicate: Expr, input: LogicalPlan) -> Result<LogicalPlan> {
    Ok(LogicalPlan::Filter(Filter::try_new(predicate, Arc::new(input))?))
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

pub(crate) fn unaliased(plan: &LogicalPlan) -> &LogicalPlan {
    match plan {
        LogicalPlan::SubqueryAlias(alias) => unaliased(&alias.input),
        plan => plan,
    }
}

/// The scan of a dataset with only the columns that the query needs, under the name that the query gives it.
fn scan_piece(scan: &TableScan, facts: &Arc<DatasetFacts>) -> Result<Piece> {
    let narrow = Arc::new(scan.projected_schema.as_arrow().clone());
    let names: Vec<String> = narrow.fields().iter().map(|field| field.name().clone()).collect();
    let name = TableReference::partial(facts.name.domain.as_str(), facts.name.dataset.as_str());
    let table = TableScanBuilder::new(name, Arc::new(LogicalTableSource::new(narrow))).build()?;
    let alias = SubqueryAlias::try_new(Arc::new(LogicalPlan::TableScan(table)), scan.table_name.clone())?;
    let plan = LogicalPlan::SubqueryAlias(alias);
    Ok(Piece {
        layers: vec![Arc::new(Layer::new(&plan, &LogicalPlan::TableScan(scan.clone())))],
        plan,
        scans: vec![Arc::clone(facts)],
        driving: 0,
        scheme: Scheme::of(facts),
        keys: KeyClasses::of(facts, &names),
        whole: false,
        one_round: false,
        inputs: vec![],
        cost: 0.0,
    })
}
