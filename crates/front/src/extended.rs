//! The extended protocol: Parse, Bind, Describe, Execute and Close.

use std::sync::Arc;

use arrow::array::new_null_array;
use arrow::datatypes::{DataType, FieldRef, Schema, SchemaRef};
use pithead_host::{Deadline, Parameters, Session, Statement};
use pithead_model::Fault;
use pithead_pg_catalog::{ConnectionFacts, pg_type};

use crate::bind::{Bound, parameters};
use crate::connection::{Halt, Talk, during};
use crate::control::{mentions, shown_schema};
use crate::cursor::not_a_query;
use crate::deadline::{STATEMENT, in_time, in_time_of};
use crate::decode::without_marks;
use crate::decode_text::arrow_type;
use crate::error::Complaint;
use crate::kind::StatementKind;
use crate::lexer::{Token, tokens};
use crate::message::{Message, Target};
use crate::portal::{Portal, PortalState, Prepared, Started, Taking};
use crate::rows::{DataRows, described};
use crate::simple::completed;
use crate::sql_state::{
    KNOWN_STATEMENT, NOT_SUPPORTED, PROTOCOL_VIOLATION, SYNTAX, TOO_LARGE, UNKNOWN_PORTAL, UNKNOWN_STATEMENT,
};
use crate::work::in_own_task;

/// Most statements that a connection may have prepared.
const STATEMENTS_MAX: usize = 4_096;
/// Most bytes of their texts.
const STATEMENT_BYTES_MAX: usize = 64 << 20;
/// Most portals that a connection may have open.
const PORTALS_MAX: usize = 256;
/// The type of a parameter about which nothing is known.
const TEXT: u32 = 25;

impl Talk {
    pub(crate) async fn extended(&mut self, message: Message) -> Result<(), Halt> {
        match message {
            Message::Parse { name, sql, types } => self.parse(name, sql, types).await,
            Message::Bind { portal, statement, formats, values, results } => {
                self.bind(portal, &statement, Bound { formats, values, results }).await
            }
            Message::Describe(Target::Statement(name)) => self.describe_statement(&name),
            Message::Describe(Target::Portal(name)) => self.describe_portal(&name),
            Message::Execute { portal, rows } => self.execute(&portal, rows).await,
            Message::Close(target) => {
                match target {
                    Target::Statement(name) => drop(self.statements.remove(&name)),
                    Target::Portal(name) => drop(self.portals.remove(&name)),
                }
                self.link.out.empty(b'3');
                Ok(())
            }
            _ => Err(Complaint::error(PROTOCOL_VIOLATION, "a message that is none of the extended protocol's").into()),
        }
    }

    async fn parse(&mut self, name: String, sql: String, types: Vec<u32>) -> Result<(), Halt> {
        if !name.is_empty() && self.statements.contains_key(&name) {
            return Err(Complaint::error(KNOWN_STATEMENT, format!("prepared statement {name:?} already exists")).into());
        }
        self.check_statements(&name, &sql)?;
        let prepared = self.prepared(sql, types).await?;
        self.statements.insert(name, Arc::new(prepared));
        self.link.out.empty(b'1');
        Ok(())
    }

    /// An error where a connection has as many statements as it may have prepared.
    pub(crate) fn check_statements(&self, name: &str, sql: &str) -> Result<(), Complaint> {
        let others = self.statements.iter().filter(|(known, _)| *known != name);
        let bytes: usize = others.map(|(_, prepared)| prepared.sql.len()).sum();
        if self.statements.len() < STATEMENTS_MAX && bytes + sql.len() <= STATEMENT_BYTES_MAX {
            return Ok(());
        }
        let message = format!("a connection has {STATEMENTS_MAX} statements or {STATEMENT_BYTES_MAX} bytes of them prepared");
        Err(Complaint::error(TOO_LARGE, message).hint("DEALLOCATE those that are not needed"))
    }

    /// A statement, read and planned, with the types that a client gives its first parameters.
    pub(crate) async fn prepared(&mut self, sql: String, given: Vec<u32>) -> Result<Prepared, Halt> {
        let mut statements = self.split(sql.into()).await?;
        let sql = statements.pop().unwrap_or_default();
        if !statements.is_empty() {
            return Err(Complaint::error(SYNTAX, "cannot insert multiple commands into a prepared statement").into());
        }
        let (told, sql) = self.told(sql).await?;
        let kept = self.front.host.keep_text(sql.len())?;
        let mut prepared = Prepared { kept, ..Prepared::of(sql, told) };
        match &prepared.kind {
            StatementKind::Declare(declare) => {
                let (inner, _) = self.told(declare.query.clone()).await?;
                if !matches!(inner, StatementKind::Statement { .. }) {
                    return Err(not_a_query().into());
                }
                let mut query = Prepared::of(declare.query.clone(), inner);
                self.plan(&mut query, given).await?;
                (prepared.types, prepared.inferred) = (query.types.clone(), query.inferred.clone());
                prepared.query = Some(Arc::new(query));
            }
            StatementKind::Statement { .. } => self.plan(&mut prepared, given).await?,
            StatementKind::Show(name) => prepared.schema = Some(shown_schema(name)),
            StatementKind::NoColumns => prepared.schema = Some(Arc::new(Schema::empty())),
            _ => {}
        }
        Ok(prepared)
    }

    /// Plans a statement where statements run: it may take long.
    async fn plan(&mut self, prepared: &mut Prepared, given: Vec<u32>) -> Result<(), Halt> {
        self.before_statement(&prepared.sql).await?;
        self.admit()?;
        prepared.path = self.settings.path();
        let (session, sql) = (Arc::clone(&self.session), prepared.sql.clone());
        let planning = in_own_task(&self.entrance.work, async move { plan(&session, &sql, &given).await });
        let deadline = Deadline::after(self.session.statement_timeout());
        let planned = in_time_of(deadline, STATEMENT, during(&mut self.link, &self.place.cancel, planning)).await?;
        let planned = planned.map_err(|fault| Complaint::of(&fault, &prepared.sql))??;
        (prepared.types, prepared.inferred) = (planned.types, planned.inferred);
        // What takes much memory is planned anew each time that it runs.
        prepared.statement = Some(planned.statement).filter(|statement| !statement.is_large());
        prepared.schema = planned.schema;
        Ok(())
    }

    /// An error where a connection has as many portals as it may have.
    pub(crate) fn check_portals(&self) -> Result<(), Complaint> {
        match self.portals.len() < PORTALS_MAX {
            true => Ok(()),
            false => Err(Complaint::error(TOO_LARGE, format!("a connection has {PORTALS_MAX} portals, which is its limit"))
                .hint("CLOSE those that are not needed")),
        }
    }

    /// The columns of a statement; those of FETCH are its cursor's, and those of EXECUTE its statement's.
    pub(crate) fn schema_of(&self, prepared: &Prepared) -> Option<SchemaRef> {
        match &prepared.kind {
            StatementKind::Fetch(fetch) if fetch.is_move => None,
            StatementKind::Fetch(fetch) => self.cursor(&fetch.name).ok().and_then(|portal| portal.prepared.schema.clone()),
            StatementKind::Execute(execute) => self.prepared_by_name(execute).ok().and_then(|known| known.schema.clone()),
            _ => prepared.schema.clone(),
        }
    }

    pub(crate) fn prepared_as(&self, name: &str) -> Result<Arc<Prepared>, Halt> {
        let found = self.statements.get(name).cloned();
        found.ok_or_else(|| Complaint::error(UNKNOWN_STATEMENT, format!("prepared statement {name:?} does not exist")).into())
    }

    fn describe_statement(&mut self, name: &str) -> Result<(), Halt> {
        let prepared = self.prepared_as(name)?;
        self.link.out.parameters(&prepared.types);
        match self.schema_of(&prepared) {
            Some(schema) => self.link.out.columns(&described(&schema, &vec![false; schema.fields().len()])),
            None => self.link.out.empty(b'n'),
        }
        Ok(())
    }

    fn describe_portal(&mut self, name: &str) -> Result<(), Halt> {
        let portal = self.portals.get(name).ok_or_else(|| unknown_portal(name))?;
        match self.schema_of(&portal.prepared) {
            Some(schema) => {
                let columns = described(&schema, &portal.binary);
                self.link.out.columns(&columns);
            }
            None => self.link.out.empty(b'n'),
        }
        Ok(())
    }

    /// Runs a portal, or goes on with it. While it runs it is not among the others: where it fails it is gone.
    async fn execute(&mut self, name: &str, rows: u32) -> Result<(), Halt> {
        let known = self.portals.get(name).ok_or_else(|| unknown_portal(name))?;
        if !known.prepared.kind.is_an_end() {
            self.admit()?;
        }
        let mut portal = self.portals.remove(name).ok_or_else(|| unknown_portal(name))?;
        let prepared = Arc::clone(&portal.prepared);
        match &prepared.kind {
            StatementKind::Empty => {
                self.link.out.empty(b'I');
                return Ok(());
            }
            StatementKind::CopyOut(copy) => return self.copy_out(copy).await,
            StatementKind::CopyIn(copy) => return self.copy_in(copy).await,
            _ => {}
        }
        let done = self.run_portal(&mut portal, rows).await;
        if let Err(Halt::Fault(fault)) = done {
            return Err(Complaint::of(&fault, &prepared.sql).into());
        }
        done?;
        if !matches!(prepared.kind, StatementKind::Commit { .. } | StatementKind::Rollback { .. }) {
            self.portals.insert(name.to_owned(), portal);
        }
        Ok(())
    }

    /// Begins what a portal runs.
    pub(crate) async fn begin_portal(&mut self, portal: &mut Portal, taking: Taking) -> Result<(), Halt> {
        let prepared = Arc::clone(&portal.prepared);
        let started = self.start(&prepared.sql, &prepared.kind, Some(&prepared), &portal.parameters, taking).await?;
        portal.state = match started {
            Started::Rows(rows, _, tag) => PortalState::Running(rows, tag),
            Started::Done(tag) => {
                self.set_what_was_asked().await?;
                PortalState::Done(tag)
            }
        };
        Ok(())
    }

    async fn run_portal(&mut self, portal: &mut Portal, rows: u32) -> Result<(), Halt> {
        // What is taken at once, the host times.
        let is_at_once = rows == 0 && matches!(portal.state, PortalState::New);
        let deadline = Deadline::after(self.session.statement_timeout().filter(|_| !is_at_once));
        if let (StatementKind::Fetch(fetch), PortalState::New) = (&portal.prepared.kind, &portal.state) {
            portal.state = PortalState::Fetching(fetch.rows, 0);
        }
        if matches!(portal.state, PortalState::New) {
            self.begin_portal(portal, if is_at_once { Taking::AtOnce } else { Taking::InParts }).await?;
        }
        match &mut portal.state {
            PortalState::Running(running, tag) => {
                let limit = if rows == 0 { u64::MAX } else { u64::from(rows) };
                let mut writer = DataRows { binary: portal.binary.clone(), zone: self.settings.zone().1 };
                let before = running.sent;
                let deadline = deadline.filter(|_| !running.is_sent());
                let sending = running.send(&mut self.link, &self.place.cancel, limit, &mut writer);
                match in_time(deadline, sending).await? {
                    false => self.link.out.empty(b's'),
                    true => {
                        self.set_what_was_asked().await?;
                        self.link.out.complete(&completed(tag, running.sent - before));
                        portal.state = PortalState::Done(completed(tag, 0));
                    }
                }
            }
            PortalState::Fetching(wanted, sent) => {
                let StatementKind::Fetch(fetch) = &portal.prepared.kind else {
                    return Err(Fault::bug("no FETCH fetches").into());
                };
                let limit = if rows == 0 || fetch.is_move { *wanted } else { u64::from(rows).min(*wanted) };
                let found = self.fetch(fetch, limit, portal.binary.clone()).await?;
                // MOVE 0 finds one.
                (*wanted, *sent) = (wanted.saturating_sub(found), *sent + found);
                match found == limit && *wanted > 0 {
                    true => self.link.out.empty(b's'),
                    false => {
                        let tag = fetch.tag(*sent);
                        self.link.out.complete(&tag);
                        portal.state = PortalState::Done(tag);
                    }
                }
            }
            PortalState::Done(tag) => self.link.out.complete(tag),
            PortalState::New => return Err(Fault::bug("a portal has not begun").into()),
        }
        Ok(())
    }
}

fn unknown_portal(name: &str) -> Halt {
    Complaint::error(UNKNOWN_PORTAL, format!("portal {name:?} does not exist")).into()
}

/// PostgreSQL's types of object numbers, and of arrays of them, and those that such parameters have here or where nothing is known.
const OID_AS: [(u32, u32); 4] = [(26, 20), (26, TEXT), (1028, 1016), (1028, TEXT)];

/// The parameters that are written with these types, by place: `$1::oid`.
fn written_oids(sql: &str) -> Vec<(usize, u32)> {
    if !mentions(sql, "oid") {
        return Vec::new();
    }
    let all: Vec<Token> = tokens(sql).collect();
    let mut found = Vec::new();
    for (at, token) in all.iter().enumerate().filter(|(at, token)| *at >= 3 && token.is("oid")) {
        let is_cast = all[at - 1].is_sign(':') && all[at - 2].is_sign(':');
        let place = all[at - 3].text().strip_prefix('$').and_then(|number| number.parse::<usize>().ok()).filter(|_| is_cast);
        let is_array = all.get(at + 1).is_some_and(|next| next.is_sign('[') && next.start == token.end);
        found.extend(place.and_then(|place| place.checked_sub(1)).map(|place| (place, if is_array { 1028 } else { 26 })));
    }
    found
}

/// What planning finds out of a statement.
struct Planned {
    types: Vec<u32>,
    inferred: Vec<Option<DataType>>,
    schema: Option<SchemaRef>,
    statement: Statement,
}

/// NULL for each parameter, of the type that its client is told; `fields`: what the statement wants there. Columns hang on the types of
/// the values, and not on the values.
pub(crate) fn nulls(types: &[u32], fields: &[Option<FieldRef>]) -> Result<Parameters, Fault> {
    let null = |(oid, field): (&u32, &Option<FieldRef>)| {
        let own = arrow_type(*oid).unwrap_or(DataType::Utf8);
        let same = field.as_ref().filter(|field| pg_type(field) == *oid);
        new_null_array(&same.map_or(own, |field| without_marks(field.data_type())), 1)
    };
    parameters(types.iter().zip(fields).map(null).collect())
}

/// Finds out the types of a statement's parameters, and its columns.
async fn plan(session: &Session, sql: &str, given: &[u32]) -> Result<Result<Planned, Complaint>, Fault> {
    let fields = session.placeholder_fields(sql).await?;
    let known = |place: usize, field: &Option<FieldRef>| match given.get(place) {
        Some(oid) if *oid != 0 && *oid != 705 => *oid,
        _ => field.as_ref().map_or(TEXT, |field| pg_type(field)),
    };
    let mut types: Vec<u32> = fields.iter().enumerate().map(|(place, field)| known(place, field)).collect();
    for (place, oid) in written_oids(sql) {
        if let Some(told) = types.get_mut(place).filter(|told| OID_AS.contains(&(oid, **told))) {
            *told = oid;
        }
    }
    if let Some(oid) = types.iter().find(|oid| arrow_type(**oid).is_none()) {
        let what = format!("parameters of the type with the number {oid} are not supported");
        return Ok(Err(Complaint::error(NOT_SUPPORTED, what)));
    }
    let statement = session.prepare(sql, &nulls(&types, &fields)?).await?;
    let inferred = fields.iter().map(|field| field.as_ref().map(|field| field.data_type().clone())).collect();
    Ok(Ok(Planned { types, inferred, schema: statement.schema().cloned(), statement }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_objects_are_told_as_they_are_written() {
        let sql = "SELECT '$1::oid' FROM t WHERE a = any($1::oid[]) AND b = $3::oid AND c::oid = $2";
        assert_eq!(written_oids(sql), [(0, 1028), (2, 26)]);
    }
}
