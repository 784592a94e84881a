//! CREATE VIEW: the view's query is planned once, to see that it can be, and the manifest names it.

use arrow::datatypes::Schema;
use pithead_entry::Right;
use pithead_fleet::Edit;
use pithead_model::{Blame, DatasetName, Fault, FaultKind, Manifest, VIEWS_MAX, View};

use super::ViewDefinition;
use super::reading::{listed, planned};
use crate::{Commitment, Parameters, Session};

/// Makes a view.
pub(crate) async fn create(
    session: &Session,
    definition: &ViewDefinition,
    parameters: &Parameters,
    commitment: &Commitment,
) -> Result<(), Fault> {
    parameters.refuse("CREATE VIEW")?;
    let domain = session.domain();
    let name = definition.name.resolve(&domain)?;
    session.check(Right::Write, &name.domain)?;
    let snapshot = session.host.fleet().snapshot().await?;
    if snapshot.dataset(&name).is_some() {
        return Err(is_table(&name));
    }
    if snapshot.view(&name).is_some() && !definition.replaces {
        return if definition.if_not_exists { Ok(()) } else { Err(already_there(&name)) };
    }
    let schema = Schema::empty().into();
    let mut view = View { sql: definition.sql.clone(), domain, columns: definition.columns.clone(), schema };
    view.check(&name.to_string())?;
    let scope = session.scope_of_views(snapshot);
    let plan = planned(&scope, &name, &view).await.map_err(|fault| fault.at(format_args!("view {name}")))?;
    if !plan.get_parameter_names().map_err(pithead_functions::fault_from_datafusion)?.is_empty() {
        return Err(Fault::invalid(format!("view {name}: its query has a placeholder, which nobody gives a value")));
    }
    view.schema = listed(&plan);
    let edit = ViewEdit { name, view, replaces: definition.replaces };
    match commitment.commit(session.host.fleet(), &edit).await {
        Err(not) if definition.if_not_exists && not.certain && not.fault == already_there(&edit.name) => Ok(()),
        Err(not) => Err(not.fault),
        Ok(_) => Ok(()),
    }
}

fn already_there(name: &DatasetName) -> Fault {
    Fault::invalid(format!("view {name} exists already"))
        .of_kind(FaultKind::Exists)
        .hint("CREATE OR REPLACE VIEW puts this one in its place")
}

fn is_table(name: &DatasetName) -> Fault {
    Fault::invalid(format!("{name} is a table; a view cannot have its name"))
        .of_kind(FaultKind::Exists)
        .hint(format!("give the view another name; DROP TABLE {name} drops the table"))
}

/// A table where a view is meant.
pub(crate) fn no_view(name: &DatasetName) -> Fault {
    Fault::invalid(format!("{name} is a table, and no view")).hint("ALTER TABLE changes tables")
}

/// A view that comes.
struct ViewEdit {
    name: DatasetName,
    view: View,
    replaces: bool,
}

impl Edit for ViewEdit {
    type Output = ();

    fn domain(&self) -> &str {
        &self.name.domain
    }

    fn subject(&self) -> String {
        format!("view {}", self.name)
    }

    fn apply(&self, manifest: &mut Manifest) -> Result<(), Fault> {
        let name = &self.name.dataset;
        if manifest.datasets.contains_key(name) {
            return Err(is_table(&self.name));
        }
        if !self.replaces && manifest.views.contains_key(name) {
            return Err(already_there(&self.name));
        }
        if manifest.views.len() >= VIEWS_MAX && !manifest.views.contains_key(name) {
            let what = format!("domain {} has {VIEWS_MAX} views, and may not have more", self.name.domain);
            return Err(Fault::new(Blame::Limit, what).hint("DROP VIEW removes one"));
        }
        manifest.views.insert(name.clone(), self.view.clone());
        Ok(())
    }

    fn is_in(&self, manifest: &Manifest) -> bool {
        manifest.views.get(&self.name.dataset) == Some(&self.view)
    }
}
