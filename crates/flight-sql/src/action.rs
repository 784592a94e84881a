//! Actions: statements are prepared and closed, and answers are cancelled.

use std::sync::Arc;

use arrow_flight::sql::{
    ActionCancelQueryRequest, ActionCancelQueryResult, ActionClosePreparedStatementRequest,
    ActionCreatePreparedStatementRequest, ActionCreatePreparedStatementResult, ActionCreatePreparedSubstraitPlanRequest, Any,
    Command, ProstMessageExt,
};
use arrow_flight::{Action, ActionType, CancelFlightInfoRequest, CancelFlightInfoResult, CancelStatus, FlightInfo};
use bytes::Bytes;
use prost::Message;

use crate::answer::{command, no_transaction, plan_bytes};
use crate::caller::Caller;
use crate::error::Refused;
use crate::flight::FlightSql;
use crate::plain::schema_bytes;
use crate::prepared::Prepared;

/// The actions that are taken.
const ACTIONS: [(&str, &str); 8] = [
    ("CreatePreparedStatement", "prepares a statement: ActionCreatePreparedStatementRequest"),
    ("CreatePreparedSubstraitPlan", "prepares a query: ActionCreatePreparedSubstraitPlanRequest"),
    ("ClosePreparedStatement", "closes a prepared statement: ActionClosePreparedStatementRequest"),
    ("CancelFlightInfo", "cancels a statement: CancelFlightInfoRequest"),
    ("CancelQuery", "cancels a statement: ActionCancelQueryRequest"),
    ("SetSessionOptions", "sets options of a session, or begins one: SetSessionOptionsRequest"),
    ("GetSessionOptions", "tells the options of a session: GetSessionOptionsRequest"),
    ("CloseSession", "ends a session: CloseSessionRequest"),
];

/// All of them, with what each is for.
pub(crate) fn kinds() -> impl Iterator<Item = ActionType> {
    ACTIONS.into_iter().map(|(kind, what)| ActionType { r#type: kind.to_owned(), description: what.to_owned() })
}

impl FlightSql {
    /// Does an action. Its answer, where it has one.
    pub(crate) async fn action(&self, caller: &Caller, action: &Action) -> Result<Option<Bytes>, Refused> {
        match action.r#type.as_str() {
            "CreatePreparedStatement" => self.prepare(caller, unpacked(action)?).await.map(Some),
            "ClosePreparedStatement" => {
                let request: ActionClosePreparedStatementRequest = unpacked(action)?;
                self.statements.take(caller.owner(), &request.prepared_statement_handle)?;
                Ok(None)
            }
            "CancelFlightInfo" => {
                let request = CancelFlightInfoRequest::decode(&*action.body).map_err(|error| malformed(action, &error))?;
                let status = self.cancel(caller, &request.info.unwrap_or_default())?;
                Ok(Some(CancelFlightInfoResult { status: status.into() }.encode_to_vec().into()))
            }
            "CancelQuery" => {
                let request: ActionCancelQueryRequest = unpacked(action)?;
                let info = FlightInfo::decode(&*request.info).map_err(|error| malformed(action, &error))?;
                // The numbers of both results are the same.
                let result = self.cancel(caller, &info)?.into();
                Ok(Some(ActionCancelQueryResult { result }.as_any().encode_to_vec().into()))
            }
            "CreatePreparedSubstraitPlan" => self.prepare_plan(caller, unpacked(action)?).await.map(Some),
            "BeginTransaction" | "EndTransaction" | "BeginSavepoint" | "EndSavepoint" => Err(Refused::unimplemented(
                "there are no transactions over several statements: each statement that writes is visible as a whole when it ends",
            )),
            other => {
                let known = ACTIONS.map(|(kind, _)| kind).join(", ");
                Err(Refused::unimplemented(format!("the action {other:?} is not known; the actions are {known}")))
            }
        }
    }

    async fn prepare(&self, caller: &Caller, request: ActionCreatePreparedStatementRequest) -> Result<Bytes, Refused> {
        no_transaction(request.transaction_id.as_deref())?;
        let session = self.session(caller).await?;
        self.keep(caller, Prepared::new(session, &request.query).await?)
    }

    async fn prepare_plan(&self, caller: &Caller, request: ActionCreatePreparedSubstraitPlanRequest) -> Result<Bytes, Refused> {
        no_transaction(request.transaction_id.as_deref())?;
        let session = self.session(caller).await?;
        self.keep(caller, Prepared::of_plan(session, plan_bytes(request.plan.as_ref())?).await?)
    }

    /// Keeps a prepared statement; what the client is told of it.
    fn keep(&self, caller: &Caller, prepared: Prepared) -> Result<Bytes, Refused> {
        let is_tight = self.statements.would_be_half_full(caller.owner(), prepared.bytes());
        let prepared = Arc::new(if is_tight { prepared.without_plan() } else { prepared });
        let dataset_schema = match &prepared.schema {
            Some(schema) => schema_bytes(schema)?,
            None => Bytes::new(),
        };
        let parameter_schema = schema_bytes(&prepared.parameters)?;
        let prepared_statement_handle = self.statements.keep(caller.owner(), prepared.bytes(), prepared)?;
        let result = ActionCreatePreparedStatementResult { prepared_statement_handle, dataset_schema, parameter_schema };
        Ok(result.as_any().encode_to_vec().into())
    }

    /// Cancels what the tickets of an answer stand for, whether it runs or waits.
    fn cancel(&self, caller: &Caller, info: &FlightInfo) -> Result<CancelStatus, Refused> {
        let mut status = CancelStatus::NotCancellable;
        for ticket in info.endpoint.iter().filter_map(|endpoint| endpoint.ticket.as_ref()) {
            let Command::TicketStatementQuery(ticket) = command(&ticket.ticket)? else { continue };
            let handle = &ticket.statement_handle;
            if self.running.cancel(caller.owner(), handle) || self.tickets.take(caller.owner(), handle).is_ok() {
                status = CancelStatus::Cancelled;
            }
        }
        Ok(status)
    }
}

fn unpacked<M: ProstMessageExt>(action: &Action) -> Result<M, Refused> {
    let any = Any::decode(&*action.body).map_err(|error| malformed(action, &error))?;
    let message = any.unpack::<M>().map_err(|error| malformed(action, &error))?;
    message.ok_or_else(|| malformed(action, &format!("expected {}, got {:?}", M::type_url(), any.type_url)))
}

pub(crate) fn malformed(action: &Action, why: &dyn std::fmt::Display) -> Refused {
    Refused::invalid(format!("the body of {} cannot be read: {why}", action.r#type))
}
