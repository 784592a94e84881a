//! Estimates of the rows and bytes that an operator yields, from the datasets' summaries.
//!
//! The rules are the textbook ones (Selinger et al. 1979; see `docs/bibliography.md`): conditions are independent,
//! values are spread uniformly between bounds, and a join is sized by the larger domain of its key: the values that it has before
//! other columns' conditions take rows away. Were it sized by the values that are left, two sides of which a tenth is left would be
//! taken to have the same tenth of the keys.

mod joins;

use std::collections::BTreeMap;

use datafusion::arrow::datatypes::{DataType, Schema};
use datafusion::common::{Column, DFSchema, ScalarValue};
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{BinaryExpr, Expr, Operator, Unnest};
use pithead_functions::COUNTED;
use pithead_model::Value;

use crate::DatasetFacts;
use crate::aggregate::function;
use crate::unnest_rel::repeated;

/// Share of rows that pass a condition of which nothing better is known.
const UNKNOWN_SHARE: f64 = 0.25;
/// Share of rows that pass a LIKE.
const LIKE_SHARE: f64 = 0.1;
/// Bytes of a text or binary value, as Arrow sends it.
const TEXT_BYTES: f64 = 32.0;
/// Values of a list.
const LIST_VALUES: f64 = 8.0;
/// Different ones among values of lists, for the square root of their number: words of texts grow so (Heaps 1978; see
/// `docs/bibliography.md`).
const LIST_DISTINCT: f64 = 10.0;

/// Bytes of how often a value was met.
const COUNT_BYTES: f64 = 8.0;
/// What the bytes of a part that holds each value of a group are taken to be: drives hold all of them in memory, so such parts have to
/// keep many bytes off the link.
const COUNTED_WEIGHT: f64 = 2.0;

/// The estimate of an operator's output.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Estimate {
    /// Rows.
    pub rows: f64,
    /// One estimate for each column.
    pub columns: Vec<ColumnEstimate>,
}

/// The estimate of a column.
#[derive(Clone, Debug, PartialEq)]
pub struct ColumnEstimate {
    /// Distinct values.
    pub distinct: f64,
    /// Distinct values that there would be if only conditions on this column had taken rows away; at least `distinct`.
    pub domain: f64,
    /// Rows that there would be then, which combinations with other columns of the same table cannot outnumber; infinite: unknown.
    pub domain_rows: f64,
    /// Bytes of a value as Arrow sends it.
    pub bytes: f64,
    /// Smallest and largest value as positions on a line, where known.
    pub range: Option<(f64, f64)>,
    /// Mean and standard deviation, for sums and counts of groups.
    pub spread: Option<(f64, f64)>,
}

impl ColumnEstimate {
    /// A column whose values are unknown.
    fn of(distinct: f64, bytes: f64) -> ColumnEstimate {
        ColumnEstimate { distinct, domain: distinct, domain_rows: f64::INFINITY, bytes, range: None, spread: None }
    }
}

impl Estimate {
    /// Bytes as Arrow sends them.
    pub fn bytes(&self) -> f64 {
        self.rows * self.columns.iter().map(|column| column.bytes).sum::<f64>().max(0.125)
    }

    /// The columns of a scan of `facts`, in the order of `output` names.
    pub(crate) fn scan(facts: &DatasetFacts, output: &Schema) -> Estimate {
        let rows = facts.rows();
        let column = |name: &str, data_type: &DataType| {
            let summary = facts.dataset.schema.index_of(name).ok().and_then(|index| facts.columns.get(index));
            let range = summary.and_then(|s| Some((s.min.as_ref()?.position(), s.max.as_ref()?.position())));
            let distinct = summary.map_or(0, |s| s.distinct) as f64;
            let distinct = if distinct > 0.0 { distinct } else { rows.max(1.0) };
            ColumnEstimate { range, domain_rows: rows, ..ColumnEstimate::of(distinct, width(data_type)) }
        };
        Estimate { rows, columns: output.fields().iter().map(|field| column(field.name(), field.data_type())).collect() }
    }

    /// The estimate of an output of which only the types are known.
    pub(crate) fn unknown(schema: &DFSchema, rows: f64) -> Estimate {
        let column = |data_type: &DataType| ColumnEstimate::of(rows.max(1.0), width(data_type));
        Estimate { rows, columns: schema.fields().iter().map(|field| column(field.data_type())).collect() }
    }

    /// The estimate after a filter.
    pub(crate) fn filter(&self, predicate: &Expr, schema: &DFSchema) -> Estimate {
        let (by_column, others) = self.shares(predicate, schema);
        let share = others * by_column.values().product::<f64>();
        self.narrowed(predicate, schema).with_rows(self.rows * share.clamp(0.0, 1.0))
    }

    /// The same rows, with the domains that a filter's conditions on single columns leave.
    pub(crate) fn narrowed(&self, predicate: &Expr, schema: &DFSchema) -> Estimate {
        let mut narrowed = self.clone();
        for (index, share) in self.shares(predicate, schema).0 {
            if let Some(column) = narrowed.columns.get_mut(index) {
                column.domain = (column.domain * share).max(1.0);
                column.domain_rows = (column.domain_rows * share).max(1.0);
                column.distinct = column.distinct.min(column.domain);
            }
        }
        narrowed
    }

    /// Shares of rows that conditions on single columns let through, by column, and the share that all others do.
    fn shares(&self, predicate: &Expr, schema: &DFSchema) -> (BTreeMap<usize, f64>, f64) {
        // Bounds of one column are not independent: together they are one range.
        let mut ranges: BTreeMap<usize, (f64, f64)> = BTreeMap::new();
        let mut by_column: BTreeMap<usize, f64> = BTreeMap::new();
        let mut others = 1.0;
        for part in split_conjunction(predicate) {
            if let Some((column, low, high)) = self.bound(part, schema) {
                let range = ranges.entry(column).or_insert((f64::NEG_INFINITY, f64::INFINITY));
                *range = (range.0.max(low), range.1.min(high));
                continue;
            }
            match only_column(part).and_then(|column| schema.index_of_column(column).ok()) {
                Some(column) => *by_column.entry(column).or_insert(1.0) *= self.share(part, schema),
                None => others *= self.share(part, schema),
            }
        }
        for (column, (low, high)) in ranges {
            *by_column.entry(column).or_insert(1.0) *= range_share(&self.columns[column], low, high);
        }
        (by_column, others)
    }

    /// A condition that compares a column with a literal: the column, and the range of values that pass.
    fn bound(&self, expr: &Expr, schema: &DFSchema) -> Option<(usize, f64, f64)> {
        let index = |expr: &Expr| match expr {
            Expr::Column(column) => schema.index_of_column(column).ok().filter(|index| *index < self.columns.len()),
            _ => None,
        };
        match expr {
            Expr::Between(between) if !between.negated => {
                Some((index(&between.expr)?, position(&between.low)?, position(&between.high)?))
            }
            Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
                let (column, op, value) = match (index(left), index(right)) {
                    (Some(column), None) => (column, *op, position(right)?),
                    (None, Some(column)) => (column, op.swap()?, position(left)?),
                    _ => return None,
                };
                match op {
                    Operator::Lt | Operator::LtEq => Some((column, f64::NEG_INFINITY, value)),
                    Operator::Gt | Operator::GtEq => Some((column, value, f64::INFINITY)),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// The same columns, with sizes that were measured. More rows than expected have more values, as far as there are any.
    pub(crate) fn measured(&self, rows: f64, bytes: f64) -> Estimate {
        let more = (rows / self.rows.max(1.0)).max(1.0);
        let mut estimate = self.clone();
        estimate.columns.iter_mut().for_each(|column| column.distinct = (column.distinct * more).min(column.domain));
        let mut estimate = estimate.with_rows(rows).settled();
        let scale = bytes / estimate.bytes().max(1.0);
        estimate.columns.iter_mut().for_each(|column| column.bytes *= scale);
        estimate
    }

    /// The same rows as a table of their own. What is filtered by its keys and then joined with it has these keys only, so that the
    /// join takes nothing away that the filter has not.
    pub(crate) fn settled(mut self) -> Estimate {
        for column in &mut self.columns {
            (column.domain, column.domain_rows) = (column.distinct, self.rows);
        }
        self
    }

    /// The same columns, with fewer rows.
    pub(crate) fn with_rows(&self, rows: f64) -> Estimate {
        let columns =
            self.columns.iter().map(|column| ColumnEstimate { distinct: column.distinct.min(rows.max(1.0)), ..column.clone() });
        Estimate { rows, columns: columns.collect() }
    }

    /// The estimate after a projection to these expressions, with the output's schema.
    pub(crate) fn project(&self, exprs: &[Expr], input: &DFSchema, output: &DFSchema) -> Estimate {
        let column = |(expr, data_type): (&Expr, &DataType)| match self.column(expr, input) {
            Some(known) => known.clone(),
            None => ColumnEstimate::of(self.distinct(expr, input), width(data_type)),
        };
        let types = output.fields().iter().map(|field| field.data_type());
        Estimate { rows: self.rows, columns: exprs.iter().zip(types).map(column).collect() }
    }

    /// The estimate of rows of lists, whose values come again and again.
    pub(crate) fn unnest(&self, unnest: &Unnest) -> Estimate {
        let rows = match unnest.list_type_columns.is_empty() {
            true => self.rows,
            false => self.rows * LIST_VALUES,
        };
        let column = |(of, data_type): (Option<usize>, &DataType)| match of.and_then(|of| self.columns.get(of)) {
            Some(known) => known.clone(),
            None => ColumnEstimate::of((LIST_DISTINCT * rows.sqrt()).clamp(1.0, rows.max(1.0)), width(data_type)),
        };
        let types = unnest.schema.fields().iter().map(|field| field.data_type());
        Estimate { rows, columns: repeated(unnest).zip(types).map(column).collect() }
    }

    /// The estimate after grouping by these expressions, with the output's schema.
    pub(crate) fn group(&self, groups: &[Expr], input: &DFSchema, output: &DFSchema) -> Estimate {
        let distinct: f64 = groups.iter().map(|expr| self.distinct(expr, input)).product();
        let rows = if groups.is_empty() { 1.0 } else { distinct.min(self.rows) };
        let column = |(i, data_type): (usize, &DataType)| {
            let known = groups.get(i).and_then(|expr| self.column(expr, input));
            known.cloned().unwrap_or(ColumnEstimate::of(rows.max(1.0), width(data_type)))
        };
        let types = output.fields().iter().map(|field| field.data_type());
        Estimate { rows, columns: types.enumerate().map(column).collect() }.with_rows(rows)
    }

    /// An estimate of groups with the values of these functions. It takes the number of rows of a group to be
    /// Poisson-distributed and their values to be spread evenly, so that a sum has the moments of a compound Poisson
    /// distribution.
    pub(crate) fn with_functions(mut self, functions: &[Expr], grouped: &Estimate, input: &DFSchema) -> Estimate {
        let each = grouped.rows / self.rows.max(1.0);
        let first = self.columns.len().saturating_sub(functions.len());
        for (column, function) in self.columns.iter_mut().skip(first).zip(functions.iter().map(function)) {
            let Some(function) = function.filter(|function| !function.params.distinct && function.params.filter.is_none())
            else {
                continue;
            };
            let range = function.params.args.first().and_then(|argument| grouped.column(argument, input)?.range);
            column.spread = match (function.func.name(), range) {
                ("count", _) => Some((each, each.sqrt())),
                ("sum", Some((low, high))) => {
                    let mean = f64::midpoint(low, high);
                    let variance = (high - low).powi(2) / 12.0;
                    Some((each * mean, (each * (variance + mean * mean)).sqrt()))
                }
                _ => None,
            };
        }
        self
    }

    /// The same with the bytes of parts that hold each value of a group: as many as there are, or as a group has rows.
    pub(crate) fn with_counted(mut self, parts: &[Expr], grouped: &Estimate, input: &DFSchema) -> Estimate {
        let each = grouped.rows / self.rows.max(1.0);
        let first = self.columns.len().saturating_sub(parts.len());
        for (column, part) in self.columns.iter_mut().skip(first).zip(parts.iter().map(function)) {
            let Some(part) = part.filter(|part| part.func.name() == COUNTED) else { continue };
            let [value] = part.params.args.as_slice() else { continue };
            let bytes = grouped.column(value, input).map_or(TEXT_BYTES, |known| known.bytes);
            let values = each.min(grouped.distinct(value, input)).max(1.0);
            column.bytes = COUNTED_WEIGHT * values * (bytes + COUNT_BYTES);
        }
        self
    }

    pub(crate) fn column(&self, expr: &Expr, schema: &DFSchema) -> Option<&ColumnEstimate> {
        match expr {
            Expr::Column(column) => self.columns.get(schema.index_of_column(column).ok()?),
            Expr::Alias(alias) => self.column(&alias.expr, schema),
            Expr::Cast(cast) => self.column(&cast.expr, schema),
            _ => None,
        }
    }

    /// Distinct values of an expression: at most the product of the distinct values of its columns.
    fn distinct(&self, expr: &Expr, schema: &DFSchema) -> f64 {
        self.values(expr, schema, |column| column.distinct).min(self.rows.max(1.0))
    }

    /// The domain of an expression: at most the product of the domains of its columns.
    fn domain(&self, expr: &Expr, schema: &DFSchema) -> f64 {
        self.values(expr, schema, |column| column.domain)
    }

    /// The domain of several expressions together: no more than there would be rows if only conditions on them took rows away.
    fn domain_of<'a>(&self, exprs: impl Iterator<Item = &'a Expr> + Clone, schema: &DFSchema) -> f64 {
        let rows = |column: &Column| self.columns.get(schema.index_of_column(column).ok()?).map(|column| column.domain_rows);
        let rows = exprs.clone().flat_map(|expr| expr.column_refs().into_iter().filter_map(rows).collect::<Vec<_>>());
        let combinations: f64 = exprs.map(|expr| self.domain(expr, schema)).product();
        combinations.min(rows.reduce(f64::max).unwrap_or(f64::INFINITY))
    }

    fn values(&self, expr: &Expr, schema: &DFSchema, of: impl Fn(&ColumnEstimate) -> f64) -> f64 {
        if let Expr::Alias(alias) = expr {
            return self.values(&alias.expr, schema, of);
        }
        let columns = expr.column_refs();
        let columns = columns.into_iter().filter_map(|column| self.columns.get(schema.index_of_column(column).ok()?));
        let product: f64 = columns.map(of).product();
        let bound = match expr {
            Expr::ScalarFunction(call) if call.name() == "date_part" => 100.0,
            Expr::Case(case) => (case.when_then_expr.len() + 1) as f64,
            _ => f64::INFINITY,
        };
        product.min(bound)
    }

    /// Share of rows that satisfy a condition.
    fn share(&self, expr: &Expr, schema: &DFSchema) -> f64 {
        match expr {
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::And, right }) => {
                self.share(left, schema) * self.share(right, schema)
            }
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::Or, right }) => {
                let (a, b) = (self.share(left, schema), self.share(right, schema));
                a + b - a * b
            }
            Expr::BinaryExpr(binary) => self.compare(binary, schema),
            Expr::Between(between) => {
                let share = match (self.column(&between.expr, schema), position(&between.low), position(&between.high)) {
                    (Some(column), Some(low), Some(high)) => range_share(column, low, high),
                    _ => UNKNOWN_SHARE,
                };
                if between.negated { 1.0 - share } else { share }
            }
            Expr::InList(list) => {
                let share = (list.list.len() as f64 / self.distinct(&list.expr, schema).max(1.0)).min(1.0);
                if list.negated { 1.0 - share } else { share }
            }
            Expr::Like(like) => {
                if like.negated {
                    1.0 - LIKE_SHARE
                } else {
                    LIKE_SHARE
                }
            }
            Expr::Not(inner) => 1.0 - self.share(inner, schema),
            Expr::IsNull(_) => 0.05,
            Expr::IsNotNull(_) => 0.95,
            Expr::Literal(ScalarValue::Boolean(Some(true)), _) => 1.0,
            Expr::Literal(ScalarValue::Boolean(_), _) => 0.0,
            _ => UNKNOWN_SHARE,
        }
    }

    fn compare(&self, binary: &BinaryExpr, schema: &DFSchema) -> f64 {
        let BinaryExpr { left, op, right } = binary;
        let (column, op, value) = match (self.column(left, schema), self.column(right, schema)) {
            (Some(column), None) => (column, *op, position(right)),
            (None, Some(column)) => (column, op.swap().unwrap_or(*op), position(left)),
            (Some(a), Some(b)) if *op == Operator::Eq => return 1.0 / a.domain.max(b.domain).max(1.0),
            _ => return UNKNOWN_SHARE,
        };
        match (op, value) {
            (Operator::Eq, _) => 1.0 / column.distinct.max(1.0),
            (Operator::NotEq, _) => 1.0 - 1.0 / column.distinct.max(1.0),
            (Operator::Lt | Operator::LtEq, Some(value)) => range_share(column, f64::NEG_INFINITY, value),
            (Operator::Gt | Operator::GtEq, Some(value)) => range_share(column, value, f64::INFINITY),
            _ => UNKNOWN_SHARE,
        }
    }
}

/// The column, if values of one column alone decide a condition. Whether there is a value at all is none of their business.
fn only_column(condition: &Expr) -> Option<&Column> {
    if matches!(condition, Expr::IsNull(_) | Expr::IsNotNull(_)) {
        return None;
    }
    let columns = condition.column_refs();
    let mut columns = columns.into_iter();
    columns.next().filter(|_| columns.next().is_none())
}

/// Share of a column's values between two positions.
fn range_share(column: &ColumnEstimate, low: f64, high: f64) -> f64 {
    if let Some((mean, deviation)) = column.spread {
        let share = below(high, mean, deviation) - below(low, mean, deviation);
        return share.max(1.0 / column.distinct.max(1.0)).min(1.0);
    }
    let Some((min, max)) = column.range else { return UNKNOWN_SHARE };
    if max <= min {
        return if (low..=high).contains(&min) { 1.0 } else { 0.0 };
    }
    let share = (high.min(max) - low.max(min)) / (max - min);
    share.max(1.0 / column.distinct.max(1.0)).clamp(0.0, 1.0) * f64::from(u8::from(low <= max && high >= min))
}

/// Share of values below a position, by the logistic distribution. Its tails are heavier than those of the normal
/// distribution, as befits a guess.
fn below(value: f64, mean: f64, deviation: f64) -> f64 {
    if value.is_infinite() {
        return if value > 0.0 { 1.0 } else { 0.0 };
    }
    let scale = deviation.max(f64::MIN_POSITIVE) * 3_f64.sqrt() / std::f64::consts::PI;
    1.0 / (1.0 + (-(value - mean) / scale).exp())
}

/// The position of a literal on the line of its column's values.
fn position(expr: &Expr) -> Option<f64> {
    let scalar = match expr {
        Expr::Literal(scalar, _) => scalar,
        Expr::Cast(cast) => return position(&cast.expr),
        _ => return None,
    };
    let int = |value: i128| Some(Value::Int(value).position());
    match scalar {
        ScalarValue::Int8(Some(v)) => int(i128::from(*v)),
        ScalarValue::Int16(Some(v)) => int(i128::from(*v)),
        ScalarValue::Int32(Some(v)) | ScalarValue::Date32(Some(v)) => int(i128::from(*v)),
        ScalarValue::Int64(Some(v)) | ScalarValue::Date64(Some(v)) => int(i128::from(*v)),
        ScalarValue::UInt8(Some(v)) => int(i128::from(*v)),
        ScalarValue::UInt16(Some(v)) => int(i128::from(*v)),
        ScalarValue::UInt32(Some(v)) => int(i128::from(*v)),
        ScalarValue::UInt64(Some(v)) => int(i128::from(*v)),
        ScalarValue::Decimal128(Some(v), _, _) => int(*v),
        ScalarValue::TimestampSecond(Some(v), _)
        | ScalarValue::TimestampMillisecond(Some(v), _)
        | ScalarValue::TimestampMicrosecond(Some(v), _)
        | ScalarValue::TimestampNanosecond(Some(v), _) => int(i128::from(*v)),
        ScalarValue::Float32(Some(v)) => Some(f64::from(*v)),
        ScalarValue::Float64(Some(v)) => Some(*v),
        ScalarValue::Utf8(Some(v)) | ScalarValue::Utf8View(Some(v)) => Some(Value::Text(v.clone()).position()),
        _ => None,
    }
}

/// Bytes of a value as Arrow sends it.
fn width(data_type: &DataType) -> f64 {
    match data_type {
        DataType::Null => 0.0,
        DataType::Boolean => 0.125,
        DataType::FixedSizeBinary(n) => f64::from(*n),
        DataType::List(of) | DataType::LargeList(of) | DataType::ListView(of) | DataType::LargeListView(of) => {
            4.0 + LIST_VALUES * width(of.data_type())
        }
        DataType::FixedSizeList(of, values) => f64::from(*values) * width(of.data_type()),
        DataType::Struct(fields) => fields.iter().map(|field| width(field.data_type())).sum(),
        other => other.primitive_width().map_or(TEXT_BYTES, |bytes| bytes as f64),
    }
}

#[cfg(test)]
mod tests;
