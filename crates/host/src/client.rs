//! [`Client`]: whom a session is for, where it is not for the host's own process.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::execution::FunctionRegistry;
use datafusion::execution::SessionState;
use datafusion::logical_expr::expr::Placeholder;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::sql::parser::Statement as Syntax;
use datafusion::sql::sqlparser::tokenizer::Token;
use pithead_entry::{Identity, Right};
use pithead_fleet::Snapshot;
use pithead_functions::check_clock;
use pithead_model::{Fault, boxed};
use pithead_pg_catalog::{Facts, Listed, Shown};

use crate::session::{Session, logical_plan};
use crate::statement::{self, Parsed};
use crate::tokens::tokens;
use crate::views::only_views;
use crate::writing;
use crate::{Host, Parameters, parameters};

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
    /// The values of its settings.
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
        let (snapshot, caller) = (Arc::clone(snapshot), Arc::clone(&self.caller));
        let facts = Facts::new(self.user.clone(), self.process, Arc::clone(&self.shown), move || listed(&snapshot, &caller));
        for function in pithead_pg_catalog::functions(&facts) {
            // Functions of these names that the engine has make place.
            let _ = state.register_udf(Arc::new(function));
        }
        facts
    }
}

/// The domains and datasets that somebody may read.
fn listed(snapshot: &Snapshot, caller: &Identity) -> (Vec<String>, Vec<Listed>) {
    let may_read = |domain: &str| caller.may(Right::Read, domain);
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
            self.in_its_words(query);
        }
        if let Parsed::Write { returning: Some(query), .. } = &mut parsed {
            self.in_its_words(query);
        }
        Ok(parsed)
    }

    fn in_its_words(&self, statement: &mut Syntax) {
        match self.client.lock().is_some() {
            true => pithead_pg_catalog::rewrite(statement),
            false => only_views(statement),
        }
    }

    /// The types of a statement's placeholders `$1`, `$2` and so on, where the statement says them.
    #[boxed]
    pub async fn placeholders(&self, sql: &str) -> Result<Vec<Option<DataType>>, Fault> {
        Box::pin(self.placeholders_of(sql)).await
    }

    async fn placeholders_of(&self, sql: &str) -> Result<Vec<Option<DataType>>, Fault> {
        check_clock()?;
        let mut types = vec![None; count(sql)?];
        if types.is_empty() {
            return Ok(types);
        }
        let plan = match self.parsed(sql, &Parameters::default())? {
            Parsed::Query(query)
            | Parsed::Explain { query, .. }
            | Parsed::Pushdown { query }
            | Parsed::Substrait { query, .. }
            | Parsed::Summarize { query }
            | Parsed::CopyTo { query, .. } => {
                let (over, _) = self.query_over(self.host.fleet().snapshot().await?, None, &Parameters::default())?;
                logical_plan(&over.state, query).await.map(|(plan, _)| plan)
            }
            Parsed::Write { statement, .. } => {
                let made = statement::made(&statement).map(|name| name?.resolve(&self.domain())).transpose()?;
                let (over, _) = self.query_over(self.host.fleet().snapshot().await?, made, &Parameters::default())?;
                writing::planned(&over.state, statement).await
            }
            Parsed::Set { .. }
            | Parsed::Drop { .. }
            | Parsed::Alter(_)
            | Parsed::CreateFunction(_)
            | Parsed::DropFunction(_)
            | Parsed::CreateView(_)
            | Parsed::DropView(_)
            | Parsed::History(_)
            | Parsed::CopyFrom { .. } => return Ok(types),
        };
        // A statement that cannot be planned without values tells no types.
        if let Ok(plan) = plan {
            fill(&mut types, &plan);
        }
        Ok(types)
    }
}

fn fill(types: &mut [Option<DataType>], plan: &LogicalPlan) {
    let slot = |name: &str| name.get(1..)?.parse::<usize>().ok()?.checked_sub(1);
    for (name, field) in plan.get_parameter_fields().unwrap_or_default() {
        if let Some(slot) = slot(&name).and_then(|place| types.get_mut(place)) {
            *slot = field.map(|field| field.data_type().clone()).filter(|data_type| !data_type.is_null());
        }
    }
    // A placeholder that is cast has the type that it is cast to, and one of LIMIT and OFFSET is a whole number.
    let mut tell = |placeholder: &Expr, data_type: &DataType| {
        if let Expr::Placeholder(Placeholder { id, .. }) = placeholder
            && let Some(unknown @ None) = slot(id).and_then(|place| types.get_mut(place))
        {
            *unknown = Some(data_type.clone());
        }
    };
    let _ = plan.apply_with_subqueries(|node| {
        let is_limit = matches!(node, LogicalPlan::Limit(_));
        node.apply_expressions(|expr| {
            if is_limit {
                tell(expr, &DataType::Int64);
            }
            expr.apply(|part| {
                match part {
                    Expr::Cast(cast) => tell(&cast.expr, cast.field.data_type()),
                    Expr::TryCast(cast) => tell(&cast.expr, cast.field.data_type()),
                    _ => {}
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    });
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
