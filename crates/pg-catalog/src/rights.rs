//! What somebody may do, as functions such as `has_table_privilege` tell it: rights are of domains.

use crate::call::{Call, of_no_table};
use crate::facts::Privilege;
use crate::tables::{CALLER, CATALOG_SCHEMA, OWNER, OWNER_NAME, is_table};

/// Whose rights are asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Who {
    Caller,
    /// The role that owns everything.
    Owner,
    /// Somebody of whom nothing is known here.
    Other,
}

/// A question: whose rights, the place of the first argument after that, and the privileges of which one is enough.
struct Question {
    who: Who,
    object: usize,
    privileges: Vec<String>,
}

/// Reads `([user,] object…, privileges)`, with so many arguments for the object.
fn question(call: &Call, row: usize, objects: usize) -> Option<Question> {
    let object = call.count().checked_sub(objects + 1).filter(|before| *before <= 1)?;
    let who = if object == 0 { Who::Caller } else { who(call, row)? };
    let privileges = call.text(call.count() - 1, row)?.to_uppercase();
    let privileges = privileges.split(',').map(|one| one.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    Some(Question { who, object, privileges })
}

fn who(call: &Call, row: usize) -> Option<Who> {
    let (name, number) = (call.text(0, row)?, call.int(0, row));
    Some(match (name, number) {
        (_, Some(CALLER)) => Who::Caller,
        (_, Some(OWNER)) => Who::Owner,
        (name, _) if name == call.facts.user => Who::Caller,
        (OWNER_NAME, _) => Who::Owner,
        _ => Who::Other,
    })
}

impl Question {
    /// Whether one of the privileges is there, by what the caller has.
    fn answered(&self, may: impl Fn(&str) -> bool) -> bool {
        match self.who {
            Who::Owner => true,
            Who::Other => false,
            Who::Caller => self.privileges.iter().any(|privilege| may(privilege)),
        }
    }
}

/// Of a table, or of its columns, which have the rights of their table.
fn of_relation(call: &Call, row: usize, objects: usize) -> Result<Option<bool>, String> {
    let Some(question) = question(call, row, objects) else { return Ok(None) };
    let Some(table) = call.table_of(question.object, row) else {
        let Some(name) = call.text(question.object, row).filter(|_| call.int(question.object, row).is_none()) else {
            return Ok(None);
        };
        // PostgreSQL's own tables are for everybody.
        let of_catalog = is_table(name.trim_start_matches("pg_catalog.")) || name.starts_with("information_schema.");
        return match of_catalog {
            true => Ok(Some(question.answered(|privilege| privilege == "SELECT"))),
            false => of_no_table(name),
        };
    };
    Ok(Some(question.answered(|privilege| match privilege {
        "SELECT" => call.facts.may(Privilege::Read, Some(&table.domain)),
        "INSERT" | "UPDATE" | "DELETE" | "TRUNCATE" => {
            table.view.is_none() && call.facts.may(Privilege::Write, Some(&table.domain))
        }
        _ => false,
    })))
}

pub(crate) fn of_table(call: &Call, row: usize) -> Result<Option<bool>, String> {
    of_relation(call, row, 1)
}

pub(crate) fn of_column(call: &Call, row: usize) -> Result<Option<bool>, String> {
    of_relation(call, row, 2)
}

pub(crate) fn of_schema(call: &Call, row: usize) -> Option<bool> {
    let question = question(call, row, 1)?;
    let numbered = call.facts.numbered();
    let name = match call.int(question.object, row) {
        Some(CATALOG_SCHEMA) => "pg_catalog".to_owned(),
        Some(oid) => numbered.domains.iter().find(|(known, _)| *known == oid).map(|(_, name)| name.clone())?,
        None => call.text(question.object, row)?.to_owned(),
    };
    let is_own = ["pg_catalog", "information_schema"].contains(&name.as_str());
    Some(question.answered(|privilege| match privilege {
        "USAGE" => is_own || call.facts.may(Privilege::Read, Some(&name)),
        "CREATE" => !is_own && call.facts.may(Privilege::Write, Some(&name)),
        _ => false,
    }))
}

pub(crate) fn of_database(call: &Call, row: usize) -> Option<bool> {
    let question = question(call, row, 1)?;
    Some(question.answered(|privilege| match privilege {
        "CONNECT" => true,
        // A domain is there with its first table.
        "CREATE" => call.facts.may(Privilege::Write, None),
        _ => false,
    }))
}

/// Whether somebody is a member of a role: everybody is one of their own, and who may change everything acts as the owner.
pub(crate) fn of_role(call: &Call, row: usize) -> Option<bool> {
    let question = question(call, row, 1)?;
    let (name, number) = (call.text(question.object, row)?, call.int(question.object, row));
    let is_own = number == Some(CALLER) || name == call.facts.user;
    let is_owner = number == Some(OWNER) || name == OWNER_NAME;
    Some(question.answered(|_| is_own || is_owner && call.facts.may(Privilege::Write, None)))
}
