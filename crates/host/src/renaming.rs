//! ALTER TABLE … RENAME TO and ALTER VIEW … RENAME TO: another name in the same domain, which is there once the old one is not.

use datafusion::sql::sqlparser::tokenizer::TokenWithSpan;
use pithead_entry::Right;
use pithead_fleet::{Committed, NotCommitted, Rename, check_free, discard};
use pithead_model::{Blame, Dataset, DatasetName, Fault};

use crate::rest::{Rest, places};
use crate::statement::Named;
use crate::views::{ViewRename, no_view};
use crate::writing::begins_again;
use crate::{Answer, Commitment, Parameters, Session};

/// A statement that gives another name.
pub(crate) struct Renaming {
    pub(crate) name: Named,
    to: Named,
    /// Whether one that is not there is no error.
    if_exists: bool,
    /// Whether it is said to be a view. ALTER TABLE renames views, too, as in PostgreSQL.
    of_view: bool,
}

/// Takes a statement for one of these if it is one; what else ALTER says is for others to read.
pub(crate) fn read(tokens: &[TokenWithSpan]) -> Option<Renaming> {
    let places = places(tokens);
    let mut rest = Rest::new(tokens, &places);
    let of_view = rest.take(&["ALTER", "VIEW"]);
    if !of_view && !rest.take(&["ALTER", "TABLE"]) {
        return None;
    }
    let if_exists = rest.take(&["IF", "EXISTS"]);
    let _ = !of_view && rest.take(&["ONLY"]);
    let name = Named::new(rest.names().ok()?);
    if !rest.take(&["RENAME", "TO"]) {
        return None;
    }
    let to = Named::new(rest.names().ok()?);
    rest.is_over().then_some(Renaming { name, to, if_exists, of_view })
}

impl Renaming {
    /// Gives the new name, again where others came first.
    pub(crate) async fn run(
        &self,
        session: &Session,
        parameters: &Parameters,
        commitment: &Commitment,
    ) -> Result<Answer, Fault> {
        parameters.refuse("ALTER … RENAME TO")?;
        let from = self.name.resolve(&session.domain())?;
        let to = self.to.resolve(&from.domain)?;
        session.check(Right::Write, &from.domain)?;
        if to.domain != from.domain {
            let what = format!("{from} stays in its domain: RENAME TO {to} is not a statement that this release runs");
            let hint = format!("CREATE TABLE {to} AS SELECT * FROM {from}; DROP TABLE {from}");
            return Err(Fault::new(Blame::Unsupported, what).hint(hint));
        }
        let mut attempt = 1;
        loop {
            match self.run_once(session, (&from, &to), commitment).await {
                Err(fault) if begins_again(&fault, attempt) => {
                    commitment.check()?;
                    attempt += 1;
                }
                done => return done.map(|()| Answer::done()),
            }
        }
    }

    async fn run_once(
        &self,
        session: &Session,
        (from, to): (&DatasetName, &DatasetName),
        commitment: &Commitment,
    ) -> Result<(), Fault> {
        let fleet = session.host.fleet();
        let snapshot = fleet.snapshot().await?;
        if snapshot.view(from).is_some() {
            return commitment.commit(fleet, &ViewRename { from, to }).await.map(drop).map_err(|not| not.fault);
        }
        let dataset = match snapshot.find(from) {
            Ok(_) if self.of_view => return Err(no_view(from)),
            Ok((manifest, dataset)) => {
                check_free(to, manifest)?;
                dataset.clone()
            }
            Err(fault) if self.if_exists && fault.blame == Blame::User => return Ok(()),
            Err(fault) => return Err(fault),
        };
        snapshot.versioned(from).map_or(Ok(()), |found| found.check_changeable())?;
        rename_dataset(session, (from, to), &dataset, commitment).await
    }
}

/// Gives another name to a dataset as it was read. What lies under the old one goes afterwards.
async fn rename_dataset(
    session: &Session,
    (from, to): (&DatasetName, &DatasetName),
    dataset: &Dataset,
    commitment: &Commitment,
) -> Result<(), Fault> {
    let fleet = session.host.fleet();
    let rename = Rename::new(from, to, dataset);
    // Nothing deletes what is copied before it has a name.
    let _writing = fleet.writing().await;
    let committed = match rename.copy(fleet).await {
        Ok(()) => commitment.commit(fleet, &rename).await,
        Err(fault) => Err(fault.into()),
    };
    match committed {
        Ok(Committed { made, manifest }) => {
            let (drives, from) = (fleet.connected(), from.clone());
            let deleting = async move {
                discard(&drives, &from, &made, manifest.version).await;
            };
            session.host.afterwards(deleting).await;
            Ok(())
        }
        Err(NotCommitted { fault, certain }) => {
            if certain {
                rename.give_up(fleet).await;
            }
            Err(fault)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokens::tokens;

    fn told(sql: &str) -> Option<(String, String, bool, bool)> {
        let renaming = read(&tokens(sql).unwrap())?;
        let name = |name: &Named| name.resolve("main").unwrap().to_string();
        Some((name(&renaming.name), name(&renaming.to), renaming.if_exists, renaming.of_view))
    }

    #[test]
    fn new_names_are_read() {
        let found = |from: &str, to: &str, if_exists, of_view| Some((from.to_owned(), to.to_owned(), if_exists, of_view));
        for (sql, expected) in [
            ("ALTER TABLE t__dbt_tmp RENAME TO T;", found("main.t__dbt_tmp", "main.t", false, false)),
            ("alter table if exists \"lab\".\"T\" rename /* now */ to \"U u\"", found("lab.T", "main.U u", true, false)),
            ("ALTER TABLE ONLY a RENAME TO b", found("main.a", "main.b", false, false)),
            ("ALTER VIEW v RENAME TO w", found("main.v", "main.w", false, true)),
            ("ALTER TABLE t RENAME COLUMN a TO b", None),
            ("ALTER TABLE t RENAME a TO b", None),
            ("ALTER TABLE t RENAME \"to\" TO b", None),
            ("ALTER TABLE t RENAME TO b, ADD COLUMN c INT", None),
            ("ALTER VIEW v AS SELECT 1", None),
            ("ALTER TABLE t ADD COLUMN a INT", None),
            ("SELECT 1", None),
        ] {
            assert_eq!(told(sql), expected, "{sql}");
        }
    }
}
