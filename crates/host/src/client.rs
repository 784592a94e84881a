//! [`Client`]: whom a session is for, where it is not for the host's own process.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::DFSchema;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::execution::FunctionRegistry;
use datafusion::execution::SessionState;
use datafusion::logical_expr::expr::{Placeholder, ScalarFunction};
use datafusion::logical_expr::type_coercion::functions::fields_with_udf;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan};
use datafusion::sql::parser::Statement as Syntax;
use datafusion::sql::sqlparser::tokenizer::Token;
use pithead_entry::{Identity, Right};
use pithead_fleet::Snapshot;
use pithead_functions::check_clock;
use pithead_model::{DatasetName, Fault, FunctionKind, FunctionType, Volatility, boxed};
use pithead_pg_catalog::{ColumnStatistics, Facts, Listed, ListedFunction, Privilege, SearchPath, Shown, Source, type_named};

use crate::aside::aside;
use crate::dialect::{PostgresNames, name_as_postgres, view_names};
use crate::information::{self, Routine, routines_of};
use crate::session::{Session, logical_plan};
use crate::statement::{self, Named, Parsed};
use crate::tokens::tokens;
use crate::views::ViewDefinition;
use crate::{Host, Parameters, Settings, parameters, showing};

/// Most placeholders of a statement; PostgreSQL's protocol counts them in 16 bits.
const PLACEHOLDERS_MAX: usize = 65_535;

/// Somebody whose statements come over a protocol of PostgreSQL's. Its session sees the domains that it may read, writes those that it
/// may write, and finds PostgreSQL's catalogue over them.
#[derive(Clone)]
pub struct Client {
    /// Who it is.
    pub caller: Arc<Identity>,
    /// Its name, as `current_user` gives it.
    pub user: String,
    /// The number of its connection.
    pub process: i64,
    /// Its connection, which tells the values of its settings.
    pub shown: Shown,
}

impl Host {
    /// A new session with default settings, for a client.
    pub fn session_for(&self, client: Client) -> Session {
        let session = self.session();
        *session.client.lock() = Some(client);
        session
    }
}

impl Client {
    /// Puts PostgreSQL's functions over a snapshot into a state. The facts that they and the catalogue's tables are made of.
    pub(crate) fn extend(&self, state: &mut SessionState, snapshot: &Arc<Snapshot>) -> Arc<Facts> {
        let seen = Seen { snapshot: Arc::clone(snapshot), caller: Arc::clone(&self.caller) };
        let facts = Facts::new(self.user.clone(), self.process, Arc::clone(&self.shown), seen);
        for function in pithead_pg_catalog::functions(&facts) {
            // Functions of these names that the engine has make place.
            let _ = state.register_udf(Arc::new(function));
        }
        if self.shown.names_results() {
            state.config_mut().set_extension(Arc::new(PostgresNames));
        }
        facts
    }
}

/// What somebody sees of a snapshot.
struct Seen {
    snapshot: Arc<Snapshot>,
    caller: Arc<Identity>,
}

impl Source for Seen {
    fn list(&self) -> (Vec<String>, Vec<Listed>) {
        let (snapshot, may_read) = (&self.snapshot, |domain: &str| self.caller.may(Right::Read, domain));
        let domains = snapshot.domains().map(|(name, _)| name).filter(|name| may_read(name)).map(str::to_owned).collect();
        let found = snapshot.datasets().filter(|found| may_read(&found.name().domain));
        let list = found.map(|found| Listed {
            domain: found.name().domain.clone(),
            name: found.name().dataset.clone(),
            schema: Arc::clone(&found.dataset().schema),
            rows: found.dataset().rows(),
            bytes: found.dataset().bytes(),
            view: None,
        });
        let views = snapshot.views().filter(|(name, _)| may_read(&name.domain)).map(|(name, view)| Listed {
            domain: name.domain,
            name: name.dataset,
            schema: Arc::clone(&view.schema),
            rows: 0,
            bytes: 0,
            view: Some(view.sql.clone()),
        });
        (domains, list.chain(views).collect())
    }

    fn functions(&self) -> Vec<ListedFunction> {
        let routines = routines_of(&self.snapshot, |domain| self.caller.may(Right::Read, domain));
        routines.into_iter().map(listed_function).collect()
    }

    fn may(&self, privilege: Privilege, domain: Option<&str>) -> bool {
        let right = match privilege {
            Privilege::Read => Right::Read,
            Privilege::Write => Right::Write,
        };
        domain.map_or_else(|| self.caller.may_all(right), |domain| self.caller.may(right, domain))
    }

    fn statistics(&self, domain: &str, name: &str) -> Vec<ColumnStatistics> {
        let name = DatasetName { domain: domain.to_owned(), dataset: name.to_owned() };
        let Some((_, dataset)) = self.snapshot.dataset(&name) else { return Vec::new() };
        let rows = dataset.rows() as f64;
        let known = dataset.columns().into_iter().map(|column| ColumnStatistics {
            nulls: (!column.nulls_unknown && rows > 0.0).then(|| column.nulls as f64 / rows),
            distinct: column.distinct,
        });
        known.collect()
    }
}

/// A function as PostgreSQL's catalogue lists it, which has the names of its types.
fn listed_function(Routine { domain, name, function }: Routine) -> ListedFunction {
    let number = |of: FunctionType| type_named(&of.to_string()).unwrap_or_default();
    ListedFunction {
        domain,
        name,
        arguments: function.arguments.into_iter().map(|argument| (argument.name, number(argument.of))).collect(),
        returns: number(function.returns),
        is_aggregate: function.kind == FunctionKind::Aggregate,
        returns_set: function.kind == FunctionKind::Table,
        volatility: match function.volatility {
            Volatility::Immutable => 'i',
            Volatility::Stable => 's',
            Volatility::Volatile => 'v',
        },
        called_on_null: function.called_on_null,
        export: function.export,
        module: function.module,
    }
}

impl Session {
    /// From now on the client is known as this: its rights may have changed.
    pub fn set_caller(&self, caller: Arc<Identity>) {
        if let Some(client) = self.client.lock().as_mut()
            && client.caller != caller
        {
            client.caller = caller;
            self.changed();
        }
    }

    /// Refuses what the session's client has no right to.
    pub fn check(&self, right: Right, domain: &str) -> Result<(), Fault> {
        match &*self.client.lock() {
            Some(client) => client.caller.check(right, domain),
            None => Ok(()),
        }
    }

    /// The domain that bare names are of.
    pub fn domain(&self) -> String {
        self.state.lock().config_options().catalog.default_schema.clone()
    }

    /// Of these domains those that there are and that the client may read, in their order, and which names the first one does not have
    /// and a later one does.
    #[boxed]
    pub async fn search_path(&self, wanted: &[String]) -> Result<SearchPath, Fault> {
        let snapshot = self.host.fleet().snapshot().await?;
        let known =
            |wanted: &&String| snapshot.domains().any(|(name, _)| name == *wanted) && self.check(Right::Read, wanted).is_ok();
        let mut domains: Vec<String> = Vec::new();
        for domain in wanted.iter().filter(known) {
            if !domains.contains(domain) {
                domains.push(domain.clone());
            }
        }
        let elsewhere = if domains.len() > 1 { elsewhere(&snapshot, &domains) } else { BTreeMap::new() };
        Ok(SearchPath { domains, elsewhere })
    }

    /// How long a statement may take.
    pub fn statement_timeout(&self) -> Option<Duration> {
        Settings::of(&self.state.lock()).statement_timeout()
    }

    /// The domain of a bare name: the first of the client's search path that has it, or the session's.
    pub fn domain_of(&self, name: &str) -> String {
        let client = self.client.lock().clone();
        let elsewhere = client.and_then(|client| client.shown.path().elsewhere.get(name).cloned());
        elsewhere.unwrap_or_else(|| self.domain())
    }

    /// A statement as it is read for the session's client.
    pub(crate) fn parsed(&self, sql: &str, parameters: &Parameters) -> Result<Parsed, Fault> {
        let mut parsed = statement::parse(sql, parameters)?;
        if let Parsed::Query(query)
        | Parsed::Explain { query, .. }
        | Parsed::Pushdown { query }
        | Parsed::Substrait { query, .. }
        | Parsed::Summarize { query }
        | Parsed::Write { statement: query, .. } = &mut parsed
        {
            self.in_its_words(query)?;
        }
        if let Parsed::Write { returning: Some(query), .. } = &mut parsed {
            self.in_its_words(query)?;
        }
        match &mut parsed {
            Parsed::Drop { names, .. } | Parsed::Truncate(names) => names.iter_mut().for_each(|name| self.along_its_path(name)),
            Parsed::DropViews(dropped) => dropped.names.iter_mut().for_each(|name| self.along_its_path(name)),
            Parsed::Rename(renaming) => self.along_its_path(&mut renaming.name),
            Parsed::Alter(altering) => {
                self.along_its_path(&mut altering.name);
                if self.client.lock().is_some() {
                    altering.change_types(pithead_pg_catalog::floats);
                }
            }
            Parsed::CreateView(view) => self.view_in_its_words(view)?,
            _ => {}
        }
        Ok(parsed)
    }

    fn in_its_words(&self, statement: &mut Syntax) -> Result<(), Fault> {
        let client = self.client.lock().clone();
        if let Some(connection) = client.as_ref().map(|client| client.shown.as_ref()) {
            match connection.names_results() {
                true => name_as_postgres(statement, |statement| pithead_pg_catalog::rewrite(statement, connection)),
                false => pithead_pg_catalog::rewrite(statement, connection),
            }
        }
        // Their queries read the engine's tables, in the places of which a client finds PostgreSQL's: so they come last.
        showing::show_functions(statement)?;
        information::complete(statement);
        Ok(())
    }

    /// Gives a bare name the domain of the client's search path that has it.
    pub(crate) fn along_its_path(&self, name: &mut Named) {
        // Bare is what lies in whichever domain is said.
        let (Ok(one), Ok(other)) = (name.resolve("a"), name.resolve("b")) else { return };
        if one.domain != other.domain {
            *name = Named::new(vec![self.domain_of(&one.dataset), one.dataset]);
        }
    }

    /// The query of a view as the client means it, which whoever reads the view need not. Names its columns as PostgreSQL does, where the
    /// client's results are named so.
    fn view_in_its_words(&self, view: &mut ViewDefinition) -> Result<(), Fault> {
        let Some(client) = self.client.lock().clone() else { return Ok(()) };
        let Parsed::Query(query) = statement::parse(&view.sql, &Parameters::default())? else { return Ok(()) };
        if client.shown.names_results() && view.columns.is_empty() {
            view.columns = view_names(&query).unwrap_or_default();
        }
        let mut meant = query.clone();
        pithead_pg_catalog::rewrite(&mut meant, client.shown.as_ref());
        if meant != query {
            view.sql = meant.to_string();
        }
        Ok(())
    }

    /// The types of a statement's placeholders `$1`, `$2` and so on, where the statement says them.
    #[boxed]
    pub async fn placeholders(&self, sql: &str) -> Result<Vec<Option<DataType>>, Fault> {
        let fields = self.placeholder_fields(sql).await?;
        Ok(fields.into_iter().map(|field| field.map(|field| field.data_type().clone())).collect())
    }

    /// The same as fields, which also tell what their values mean: bytes that are an identifier, for example.
    #[boxed]
    pub async fn placeholder_fields(&self, sql: &str) -> Result<Vec<Option<FieldRef>>, Fault> {
        Box::pin(self.placeholders_of(sql)).await
    }

    async fn planned_over(&self, snapshot: Arc<Snapshot>, query: Syntax) -> Result<LogicalPlan, Fault> {
        let (over, _) = self.query_over(snapshot, None, &Parameters::default())?;
        logical_plan(&over.state, query).await.map(|(plan, _)| plan)
    }

    async fn placeholders_of(&self, sql: &str) -> Result<Vec<Option<FieldRef>>, Fault> {
        check_clock()?;
        let admitted = self.admit(sql).await?;
        let mut types = vec![None; aside(admitted.is_large(), || count(sql))?];
        if types.is_empty() {
            return Ok(types);
        }
        let plan = match self.read(sql, &Parameters::default(), &admitted).await? {
            Parsed::Query(query)
            | Parsed::Explain { query, .. }
            | Parsed::Pushdown { query }
            | Parsed::Substrait { query, .. }
            | Parsed::Summarize { query }
            | Parsed::CopyTo { query, .. } => {
                let before = self.host.fleet().connected().ids();
                match self.planned_over(self.host.fleet().snapshot().await?, query.clone()).await {
                    Err(fault) => match self.settled_after(fault, &before).await {
                        Ok(snapshot) => self.planned_over(snapshot, query).await,
                        Err(fault) => Err(fault),
                    },
                    planned => planned,
                }
            }
            Parsed::Write { statement, .. } => {
                let made = statement::made(&statement).map(|name| name?.resolve(&self.domain())).transpose()?;
                self.plan_write(&statement, made.as_ref(), &Parameters::default()).await.map(|(_, plan)| plan)
            }
            Parsed::Set { .. }
            | Parsed::Drop { .. }
            | Parsed::Alter(_)
            | Parsed::Rename(_)
            | Parsed::Truncate(_)
            | Parsed::CreateFunction(_)
            | Parsed::DropFunction(_)
            | Parsed::CreateView(_)
            | Parsed::DropViews(_)
            | Parsed::History(_)
            | Parsed::CopyFrom { .. }
            | Parsed::Plan(_) => return Ok(types),
        };
        // A statement that cannot be planned without values tells no types.
        if let Ok(plan) = plan {
            fill(&mut types, &plan);
        }
        Ok(types)
    }
}

/// The names that the first of some domains does not have, and the first of the others that does.
fn elsewhere(snapshot: &Snapshot, domains: &[String]) -> BTreeMap<String, String> {
    let place = |domain: &str| domains.iter().position(|known| known == domain);
    let datasets = snapshot.datasets().filter_map(|found| Some((place(&found.name().domain)?, found.name().dataset.clone())));
    let views = snapshot.views().filter_map(|(name, _)| Some((place(&name.domain)?, name.dataset)));
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    for (place, name) in datasets.chain(views) {
        places.entry(name).and_modify(|first| *first = place.min(*first)).or_insert(place);
    }
    places.into_iter().filter(|(_, place)| *place > 0).map(|(name, place)| (name, domains[place].clone())).collect()
}

/// Takes the types of placeholders from a plan. The first use of one that has a type tells it.
fn fill(types: &mut [Option<FieldRef>], plan: &LogicalPlan) {
    let mut tell = |placeholder: &Expr, field: &FieldRef| {
        let slot = |name: &str| name.get(1..)?.parse::<usize>().ok()?.checked_sub(1);
        if let Expr::Placeholder(Placeholder { id, .. }) = placeholder
            && let Some(unknown @ None) = slot(id).and_then(|place| types.get_mut(place))
            && !field.data_type().is_null()
        {
            *unknown = Some(Arc::clone(field));
        }
    };
    let _ = plan.apply_with_subqueries(|node| {
        each_part(node, |part| {
            if let Expr::Placeholder(Placeholder { field: Some(field), .. }) = part {
                tell(part, field);
            }
        })
    });
    // A placeholder that is cast has the type that it is cast to, one that a value is looked for in is a list of such values, one of LIMIT
    // and OFFSET is a whole number, and one that a function is given has the type that NULL would have there.
    let whole: FieldRef = Arc::new(Field::new("rows", DataType::Int64, true));
    let _ = plan.apply_with_subqueries(|node| {
        if let LogicalPlan::Limit(limit) = node {
            [&limit.skip, &limit.fetch].into_iter().flatten().for_each(|rows| tell(rows, &whole));
        }
        each_part(node, |part| match part {
            Expr::Cast(cast) => tell(&cast.expr, &cast.field),
            Expr::TryCast(cast) => tell(&cast.expr, &cast.field),
            Expr::ScalarFunction(function) if function.func.name() == "array_has" => {
                if let [list, item] = function.args.as_slice() {
                    let schema = merge_schema(&node.inputs());
                    if let Ok((_, of)) = item.to_field(&schema) {
                        let marks = of.extension_type_name().map(|_| of.metadata().clone()).unwrap_or_default();
                        let of = Field::new_list_field(of.data_type().clone(), true).with_metadata(marks);
                        tell(list, &Arc::new(Field::new("list", DataType::List(Arc::new(of)), true)));
                    }
                    if let Ok(DataType::List(of) | DataType::LargeList(of) | DataType::FixedSizeList(of, _)) =
                        list.get_type(&schema)
                    {
                        tell(item, &of);
                    }
                }
            }
            Expr::ScalarFunction(function) if function.args.iter().any(is_untyped) => {
                let taken = taken(function, &merge_schema(&node.inputs())).unwrap_or_default();
                function.args.iter().zip(&taken).for_each(|(arg, field)| tell(arg, field));
            }
            _ => {}
        })
    });
}

fn is_untyped(expr: &Expr) -> bool {
    matches!(expr, Expr::Placeholder(Placeholder { field: None, .. }))
}

/// What a function takes its arguments for.
fn taken(function: &ScalarFunction, schema: &DFSchema) -> datafusion::common::Result<Vec<FieldRef>> {
    let given = function.args.iter().map(|arg| arg.to_field(schema).map(|(_, field)| field));
    fields_with_udf(&given.collect::<datafusion::common::Result<Vec<_>>>()?, function.func.as_ref())
}

/// Looks at each part of a node's expressions.
fn each_part(node: &LogicalPlan, mut look: impl FnMut(&Expr)) -> datafusion::common::Result<TreeNodeRecursion> {
    node.apply_expressions(|expr| {
        expr.apply(|part| {
            look(part);
            Ok(TreeNodeRecursion::Continue)
        })
    })
}

/// How many placeholders there are, by the highest number.
fn count(sql: &str) -> Result<usize, Fault> {
    let mut tokens = tokens(sql)?;
    parameters::number(&mut tokens)?;
    let mut most = 0;
    for token in &tokens {
        if let Token::Placeholder(name) = &token.token {
            let number = name.get(1..).and_then(|digits| digits.parse::<usize>().ok());
            match number {
                Some(number @ 1..=PLACEHOLDERS_MAX) => most = most.max(number),
                _ => {
                    return Err(Fault::invalid(format!(
                        "{name} is no placeholder of this protocol; expected $1, $2 and so on"
                    )));
                }
            }
        }
    }
    Ok(most)
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray};
    use futures::{StreamExt, stream};
    use pithead_door::Door;
    use pithead_fakes::FakeDoor;

    use super::*;
    use crate::{HostOptions, LoadSpec};

    fn said(data_type: &DataType) -> String {
        match data_type {
            text if text.is_string() => "text".to_owned(),
            DataType::List(item) => format!("list of {}", said(item.data_type())),
            other => other.to_string(),
        }
    }

    #[tokio::test]
    async fn the_first_use_of_a_parameter_that_has_a_type_tells_it() {
        let options = HostOptions { threads: 2, ..HostOptions::default() };
        let host = Host::connect(vec![FakeDoor::new(1) as Arc<dyn Door>], options).await.unwrap();
        let columns: [(&str, ArrayRef); 3] = [
            ("k", Arc::new(Int64Array::from(vec![1]))),
            ("city", Arc::new(StringArray::from(vec!["Oslo"]))),
            ("fare", Arc::new(Float64Array::from(vec![1.5]))),
        ];
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let spec = LoadSpec::new("t".parse().unwrap(), vec![]);
        host.load_batches(spec, batch.schema(), stream::iter([Ok(batch)]).boxed()).await.unwrap();
        let session = host.session();
        for (condition, expected) in [
            ("k = $1 OR $1 IS NULL", &["Int64"][..]),
            ("$1 IS NULL OR k = $1", &["Int64"]),
            ("fare = $2 AND (k = $1 OR city = $1)", &["Int64", "Float64"]),
            ("city = ANY($1)", &["list of text"]),
            ("k = ANY($1) AND fare > $2", &["list of Int64", "Float64"]),
            ("NOT (k = ANY($1))", &["list of Int64"]),
            ("k = $1::int", &["Int32"]),
            ("left(city, $1) = $2", &["Int64", "text"]),
            ("substr($1, $2, $3) = city", &["text", "Int64", "Int64"]),
            ("coalesce($1, fare) > 0", &["Float64"]),
            ("starts_with(city, lower($1))", &["text"]),
        ] {
            let types = session.placeholders(&format!("SELECT k FROM t WHERE {condition}")).await.unwrap();
            let types: Vec<String> = types.iter().flatten().map(said).collect();
            assert_eq!(types, expected, "{condition}");
        }
        let types = session.placeholders("SELECT k FROM t LIMIT $1").await.unwrap();
        assert_eq!(types, [Some(DataType::Int64)]);
    }
}
