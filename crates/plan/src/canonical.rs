//! The meaning of a plan as a structure, so that two plans can be compared.
//!
//! In this structure, columns are replaced by the expressions that compute them, so that aliases, qualifiers, names and
//! projections do not count. The conditions of a filter or join are a set. Literals, casts and the columns of scans
//! have their types. Plans are compared by `==` on the structure and never by a text of it, because a text can be read
//! in two ways.

mod expression;
#[cfg(test)]
mod tests;

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Column, DFSchema, JoinType, NullEquality, NullHandling, Result, TableReference, not_impl_err};
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{
    Aggregate, Cast, Distinct, Expr, FetchType, Join, Limit, LogicalPlan, Operator, SkipType, Sort, TableScan, Unnest,
    binary_expr,
};

use expression::{expression, split_between};

use crate::unnest_rel::{repeated, unnested};

/// The meaning of a plan. Two plans that are equal in this form give equal bags of rows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Canonical {
    rows: Bag,
    columns: Vec<Expr>,
    types: Vec<DataType>,
}

impl Canonical {
    /// The meaning of a plan. An error if the plan has an operator that does not travel.
    pub(crate) fn of(plan: &LogicalPlan) -> Result<Canonical> {
        let Relation { rows, columns } = Relation::of(plan)?;
        let types = plan.schema().fields().iter().map(|field| expression::plain_type(field.data_type())).collect();
        Ok(Canonical { rows, columns, types })
    }
}

impl fmt::Display for Canonical {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} => {} : {:?}", self.rows, listed(&self.columns), self.types)
    }
}

/// Rows, and the expressions that compute their columns.
pub(crate) struct Relation {
    pub(crate) rows: Bag,
    pub(crate) columns: Vec<Expr>,
}

/// Rows without their columns: their source, and the conditions on them.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Bag {
    source: Box<Source>,
    conditions: Conditions,
}

/// The source of rows.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Source {
    /// A scan, by its number in pre-order.
    Scan {
        number: usize,
        table: TableReference,
        fetch: Option<usize>,
    },
    Aggregate {
        input: Bag,
        groups: Vec<Expr>,
        functions: Vec<Expr>,
    },
    Join {
        join_type: JoinType,
        null_aware: bool,
        left: Bag,
        right: Bag,
        on: Conditions,
    },
    Sort {
        input: Bag,
        keys: Vec<(Expr, bool, bool)>,
    },
    Limit {
        input: Bag,
        skip: usize,
        fetch: Option<usize>,
    },
    /// Rows of lists, by number in pre-order.
    Unnest {
        number: usize,
        input: Bag,
        /// What is unnested, and how many lists, one in the other; 0: a struct.
        unnested: Vec<(Expr, usize)>,
        nulls: NullHandling,
    },
}

/// A set of conditions, in the order of their hashes.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
struct Conditions(Vec<Expr>);

impl Conditions {
    fn add(&mut self, condition: Expr) {
        let place = hash_of(&condition);
        let after = self.0.partition_point(|known| hash_of(known) < place);
        if !self.0[after..].iter().take_while(|known| hash_of(*known) == place).any(|known| *known == condition) {
            self.0.insert(after, condition);
        }
    }

    /// Adds the parts of conjunctions over a relation with these columns.
    fn extend<'a>(&mut self, parts: impl IntoIterator<Item = &'a Expr>, schema: &DFSchema, columns: &[Expr]) -> Result<()> {
        for part in parts.into_iter().flat_map(split_conjunction) {
            for part in split_between(part.clone().unalias()) {
                self.add(condition(&part, schema, columns)?);
            }
        }
        Ok(())
    }
}

/// A number that is the same for equal values within one process.
pub(crate) fn hash_of(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

impl Relation {
    /// The rows and columns of a plan.
    pub(crate) fn of(plan: &LogicalPlan) -> Result<Relation> {
        Reader::default().relation(plan)
    }

    /// The expressions that expressions over a relation are computed from; `schema` has the relation's columns.
    pub(crate) fn resolved(&self, exprs: &[Expr], schema: &DFSchema) -> Result<Vec<Expr>> {
        exprs.iter().map(|expr| expression(expr, schema, &self.columns)).collect()
    }

    fn new(source: Source, columns: Vec<Expr>) -> Relation {
        Relation { rows: Bag { source: Box::new(source), conditions: Conditions::default() }, columns }
    }
}

/// Numbers scans, marks and rows of lists in the order in which they occur.
#[derive(Default)]
struct Reader {
    scans: usize,
    marks: usize,
    unnests: usize,
}

impl Reader {
    fn relation(&mut self, plan: &LogicalPlan) -> Result<Relation> {
        match plan {
            LogicalPlan::TableScan(scan) => self.scan(scan),
            LogicalPlan::SubqueryAlias(alias) => self.relation(&alias.input),
            LogicalPlan::Projection(projection) => {
                let input = self.relation(&projection.input)?;
                let columns = input.resolved(&projection.expr, projection.input.schema())?;
                Ok(Relation { columns, ..input })
            }
            LogicalPlan::Filter(filter) => {
                let mut input = self.relation(&filter.input)?;
                input.rows.conditions.extend([&filter.predicate], filter.input.schema(), &input.columns)?;
                Ok(input)
            }
            LogicalPlan::Aggregate(aggregate) => self.aggregate(aggregate),
            LogicalPlan::Distinct(Distinct::All(input)) => {
                let Relation { rows, columns } = self.relation(input)?;
                let source = Source::Aggregate { input: rows, groups: columns.clone(), functions: vec![] };
                Ok(Relation::new(source, columns))
            }
            LogicalPlan::Join(join) => self.join(join),
            LogicalPlan::Sort(sort) => self.sort(sort),
            LogicalPlan::Limit(limit) => self.limit(limit),
            LogicalPlan::Unnest(unnest) => self.unnest(unnest),
            other => not_impl_err!("{} does not travel", other.display()),
        }
    }

    fn scan(&mut self, scan: &TableScan) -> Result<Relation> {
        self.scans += 1;
        let number = self.scans;
        let column = |name: &str, data_type: &DataType| {
            let column = Column::new(Some(TableReference::bare(number.to_string())), name);
            // The cast only states the type.
            Expr::Cast(Cast::new(Box::new(Expr::Column(column)), expression::plain_type(data_type)))
        };
        let fields = scan.projected_schema.fields().iter();
        let columns = fields.map(|field| column(field.name(), field.data_type())).collect();
        let source = DFSchema::try_from_qualified_schema(scan.table_name.clone(), &scan.source.schema())?;
        let all: Vec<Expr> = source.fields().iter().map(|field| column(field.name(), field.data_type())).collect();
        let table = Source::Scan { number, table: scan.table_name.clone(), fetch: scan.fetch };
        let mut relation = Relation::new(table, columns);
        relation.rows.conditions.extend(&scan.filters, &source, &all)?;
        Ok(relation)
    }

    fn aggregate(&mut self, aggregate: &Aggregate) -> Result<Relation> {
        let input = self.relation(&aggregate.input)?;
        let groups = input.resolved(&aggregate.group_expr, aggregate.input.schema())?;
        let functions = input.resolved(&aggregate.aggr_expr, aggregate.input.schema())?;
        let columns = groups.iter().chain(&functions).cloned().collect();
        Ok(Relation::new(Source::Aggregate { input: input.rows, groups, functions }, columns))
    }

    fn join(&mut self, join: &Join) -> Result<Relation> {
        let left = self.relation(&join.left)?;
        let right = self.relation(&join.right)?;
        let columns: Vec<Expr> = left.columns.iter().chain(&right.columns).cloned().collect();
        let schema = join.left.schema().join(join.right.schema())?;
        let equal = match join.null_equality {
            NullEquality::NullEqualsNothing => Operator::Eq,
            NullEquality::NullEqualsNull => Operator::IsNotDistinctFrom,
        };
        let mut on = Conditions::default();
        for (left_key, right_key) in &join.on {
            on.add(condition(&binary_expr(left_key.clone(), equal, right_key.clone()), &schema, &columns)?);
        }
        on.extend(&join.filter, &schema, &columns)?;
        let columns = match join.join_type {
            JoinType::LeftSemi | JoinType::LeftAnti => left.columns,
            JoinType::RightSemi | JoinType::RightAnti => right.columns,
            JoinType::LeftMark => self.with_mark(left.columns),
            JoinType::RightMark => self.with_mark(right.columns),
            JoinType::Inner | JoinType::Left | JoinType::Right | JoinType::Full => columns,
        };
        let (join_type, null_aware) = (join.join_type, join.null_aware);
        Ok(Relation::new(Source::Join { join_type, null_aware, left: left.rows, right: right.rows, on }, columns))
    }

    fn with_mark(&mut self, mut columns: Vec<Expr>) -> Vec<Expr> {
        self.marks += 1;
        columns.push(Expr::Column(Column::new(Some(TableReference::bare("mark")), self.marks.to_string())));
        columns
    }

    fn sort(&mut self, sort: &Sort) -> Result<Relation> {
        let input = self.relation(&sort.input)?;
        let key = |key: &datafusion::logical_expr::SortExpr| {
            Ok((expression(&key.expr, sort.input.schema(), &input.columns)?, key.asc, key.nulls_first))
        };
        let keys = sort.expr.iter().map(key).collect::<Result<_>>()?;
        let sorted = Relation::new(Source::Sort { input: input.rows, keys }, input.columns);
        Ok(match sort.fetch {
            None => sorted,
            fetch => Relation::new(Source::Limit { input: sorted.rows, skip: 0, fetch }, sorted.columns),
        })
    }

    fn limit(&mut self, limit: &Limit) -> Result<Relation> {
        let input = self.relation(&limit.input)?;
        let (SkipType::Literal(skip), FetchType::Literal(fetch)) = (limit.get_skip_type()?, limit.get_fetch_type()?) else {
            return not_impl_err!("a LIMIT that is not a number does not travel");
        };
        Ok(Relation::new(Source::Limit { input: input.rows, skip, fetch }, input.columns))
    }

    fn unnest(&mut self, unnest: &Unnest) -> Result<Relation> {
        let input = self.relation(&unnest.input)?;
        self.unnests += 1;
        let number = self.unnests;
        let columns = repeated(unnest).enumerate().map(|(at, of)| match of {
            Some(of) => input.columns[of].clone(),
            None => Expr::Column(Column::new(Some(TableReference::bare(format!("unnested {number}"))), at.to_string())),
        });
        let columns = columns.collect();
        let unnested = unnested(unnest).into_iter().map(|(column, depth)| (input.columns[column].clone(), depth)).collect();
        let nulls = unnest.options.null_handling;
        Ok(Relation::new(Source::Unnest { number, input: input.rows, unnested, nulls }, columns))
    }
}

/// A condition. The sides of an equality are in the order of their hashes.
fn condition(expr: &Expr, schema: &DFSchema, columns: &[Expr]) -> Result<Expr> {
    let resolved = expression(expr, schema, columns)?;
    Ok(match resolved {
        Expr::BinaryExpr(mut equality) if matches!(equality.op, Operator::Eq | Operator::IsNotDistinctFrom) => {
            if hash_of(&equality.left) > hash_of(&equality.right) {
                std::mem::swap(&mut equality.left, &mut equality.right);
            }
            Expr::BinaryExpr(equality)
        }
        other => other,
    })
}

impl fmt::Debug for Bag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.conditions.0.is_empty() {
            true => write!(f, "{:?}", self.source),
            false => write!(f, "filter({:?}; {})", self.source, listed(&self.conditions.0)),
        }
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Scan { number, table, fetch } => write!(f, "scan({number}: {table}, {fetch:?})"),
            Source::Aggregate { input, groups, functions } => {
                write!(f, "aggregate({input:?}; {}; {})", listed(groups), listed(functions))
            }
            Source::Join { join_type, null_aware, left, right, on } => {
                let aware = if *null_aware { ", null-aware" } else { "" };
                write!(f, "join({join_type:?}{aware}; {left:?}; {right:?}; {})", listed(&on.0))
            }
            Source::Sort { input, keys } => {
                let keys: Vec<String> = keys.iter().map(|(key, asc, first)| format!("{key} {asc} {first}")).collect();
                write!(f, "sort({input:?}; {})", keys.join(", "))
            }
            Source::Limit { input, skip, fetch } => write!(f, "limit({input:?}; {skip}, {fetch:?})"),
            Source::Unnest { number, input, unnested, nulls } => {
                let unnested: Vec<String> = unnested.iter().map(|(expr, depth)| format!("{expr} {depth}")).collect();
                write!(f, "unnest({number}: {input:?}; {}; {nulls:?})", unnested.join(", "))
            }
        }
    }
}

fn listed(exprs: &[Expr]) -> String {
    exprs.iter().map(|expr| expr.to_string()).collect::<Vec<_>>().join(", ")
}
