//! What clients ask: which answer there will be (FlightInfo), its columns, and the answer itself (DoGet).

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};
use arrow_flight::encode::{FlightDataEncoder, FlightDataEncoderBuilder};
use arrow_flight::error::FlightError;
use arrow_flight::sql::{Any, Command, ProstMessageExt, SubstraitPlan, TicketStatementQuery};
use arrow_flight::{FlightData, FlightDescriptor, FlightEndpoint, FlightInfo, SchemaResult, Ticket};
use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt, select};
use futures::stream::{self, BoxStream, Stream, StreamExt};
use pithead_model::{Blame, Fault};
use prost::Message;
use tonic::Status;

use crate::caller::{Caller, refuse_set};
use crate::cancel::RunningAnswer;
use crate::catalog;
use crate::error::{Refused, to_status};
use crate::flight::FlightSql;
use crate::metrics::Metrics;
use crate::plain::{answer_schema, schema_bytes};
use crate::prepared::planned;
use crate::statement::{self, PlannedQuery, Ready, Rows};
use crate::values::Values;

/// What a message is aimed at. Clients take 4 MiB and more without being told.
const MESSAGE_BYTES: usize = 1 << 20;

/// The handle of a ticket for the rows of a statement that has none. Nothing is kept for it, so that a statement which is done is never
/// refused for want of a place.
const NOTHING: Bytes = Bytes::new();

/// Reads a command, or a ticket that is one.
pub fn command(bytes: &[u8]) -> Result<Command, Status> {
    let malformed = |why: String| Status::invalid_argument(format!("the bytes are no command of Flight SQL: {why}"));
    let any = Any::decode(bytes).map_err(|error| malformed(error.to_string()))?;
    Command::try_from(any).map_err(|error| malformed(error.to_string()))
}

/// Messages of an answer.
pub(crate) type Messages = BoxStream<'static, Result<FlightData, Status>>;

impl FlightSql {
    /// Says where the answer to a command is. A statement that changes something is done by then.
    pub(crate) async fn info(
        &self,
        caller: &Caller,
        command: Command,
        descriptor: FlightDescriptor,
    ) -> Result<FlightInfo, Refused> {
        let ready = match &command {
            Command::CommandStatementQuery(query) => {
                no_transaction(query.transaction_id.as_deref())?;
                let session = self.session(caller).await?;
                statement::ready(session, &query.query, &Values::default(), None).await?
            }
            Command::CommandStatementSubstraitPlan(command) => {
                no_transaction(command.transaction_id.as_deref())?;
                let session = self.session(caller).await?;
                let statement = Arc::new(session.prepare_substrait(plan_bytes(command.plan.as_ref())?).await?);
                statement::ready(session, "", &Values::default(), Some(statement)).await?
            }
            Command::CommandPreparedStatementQuery(query) => {
                self.prepared(caller, &query.prepared_statement_handle)?.ready().await?
            }
            other => {
                let schema = catalog::schema(other)?.ok_or_else(|| unknown(&command))?;
                return flight_info(&schema, other.clone().into_any(), descriptor, -1);
            }
        };
        let (schema, statement_handle, records) = match ready {
            Ready::Rows(asked) => {
                let schema = Arc::clone(&asked.schema);
                (schema, self.tickets.keep(caller.owner(), asked.bytes, asked)?, -1)
            }
            Ready::Returning(returning) => {
                // Without a place for the rows nothing is changed.
                let place = self.tickets.reserve(caller.owner(), returning.bytes())?;
                let asked = returning.run(|bytes| place.count(bytes)).await?;
                (Arc::clone(&asked.schema), place.keep(asked), -1)
            }
            Ready::Done(changed) => (Arc::new(Schema::empty()), NOTHING, i64::try_from(changed).unwrap_or(i64::MAX)),
        };
        flight_info(&schema, TicketStatementQuery { statement_handle }.as_any(), descriptor, records)
    }

    /// The columns of a command's answer. Nothing is run.
    pub(crate) async fn columns(&self, caller: &Caller, command: Command) -> Result<SchemaResult, Refused> {
        let none = || Refused::invalid("the statement has no rows as its answer, and so no columns");
        let schema = match &command {
            Command::CommandStatementQuery(query) => {
                refuse_set(&query.query)?;
                let session = self.session(caller).await?;
                let (_, statement) = planned(&session, &query.query).await?;
                statement.schema().map(|schema| answer_schema(schema)).ok_or_else(none)?
            }
            Command::CommandStatementSubstraitPlan(command) => {
                let session = self.session(caller).await?;
                let statement = session.prepare_substrait(plan_bytes(command.plan.as_ref())?).await?;
                statement.schema().map(|schema| answer_schema(schema)).ok_or_else(none)?
            }
            Command::CommandPreparedStatementQuery(query) => {
                let prepared = self.prepared(caller, &query.prepared_statement_handle)?;
                prepared.schema.clone().ok_or_else(none)?
            }
            other => catalog::schema(other)?.ok_or_else(|| unknown(other))?,
        };
        Ok(SchemaResult { schema: schema_bytes(&schema)? })
    }

    /// The answer to a ticket.
    pub(crate) async fn get(&self, caller: &Caller, command: Command) -> Result<Answering, Refused> {
        match command {
            Command::TicketStatementQuery(ticket) if ticket.statement_handle == NOTHING => Ok(self.nothing()),
            Command::TicketStatementQuery(ticket) => {
                let asked = self.tickets.take(caller.owner(), &ticket.statement_handle)?;
                let place = self.running.begin(caller.owner(), ticket.statement_handle);
                self.answer(caller, asked, Some(place)).await
            }
            Command::CommandPreparedStatementQuery(query) => {
                let prepared = self.prepared(caller, &query.prepared_statement_handle)?;
                match prepared.ready().await? {
                    Ready::Rows(asked) => self.answer(caller, asked, None).await,
                    Ready::Returning(returning) => {
                        let place = self.tickets.reserve(caller.owner(), returning.bytes())?;
                        let asked = returning.run(|bytes| place.count(bytes)).await?;
                        self.answer(caller, asked, None).await
                    }
                    Ready::Done(_) => Ok(self.nothing()),
                }
            }
            other => {
                catalog::schema(&other)?.ok_or_else(|| unknown(&other))?;
                let batch = catalog::batch(&self.host, caller, &other).await?;
                let schema = batch.schema();
                Ok(Answering::new(stream::iter([Ok(batch)]).boxed(), schema, None, &self.metrics))
            }
        }
    }

    /// The answer of a statement that is done.
    fn nothing(&self) -> Answering {
        Answering::new(stream::empty().boxed(), Arc::new(Schema::empty()), None, &self.metrics)
    }

    async fn answer(&self, caller: &Caller, asked: PlannedQuery, place: Option<RunningAnswer>) -> Result<Answering, Refused> {
        let schema = Arc::clone(&asked.schema);
        let cancelled = place.as_ref().map(RunningAnswer::asked);
        let rows = match cancelled {
            None => asked.rows(caller).await?,
            Some(cancelled) => tokio::select! {
                biased;
                () = cancelled => return Err(cancelled_fault().into()),
                rows = asked.rows(caller) => rows?,
            },
        };
        Ok(Answering::new(rows, schema, place, &self.metrics))
    }
}

/// A transaction would have to be begun first, which is refused.
pub(crate) fn no_transaction(id: Option<&[u8]>) -> Result<(), Refused> {
    match id.unwrap_or_default().is_empty() {
        true => Ok(()),
        false => Err(Refused::unimplemented("there are no transactions over several statements; leave the transaction out")),
    }
}

/// The bytes of a Substrait plan.
pub(crate) fn plan_bytes(plan: Option<&SubstraitPlan>) -> Result<&[u8], Refused> {
    plan.map(|plan| &plan.plan[..]).ok_or_else(|| Refused::invalid("expected a Substrait plan, and none came"))
}

pub(crate) fn unknown(command: &Command) -> Refused {
    match command {
        Command::CommandStatementSubstraitPlan(_) => {
            Refused::unimplemented("Substrait plans that change something are not taken; send the statement as SQL")
        }
        Command::Unknown(_) => Refused::invalid("the command is none of Flight SQL's"),
        other => Refused::invalid(format!("{} does not belong here", other.type_url().rsplit('.').next().unwrap_or_default())),
    }
}

fn flight_info(schema: &SchemaRef, ticket: Any, descriptor: FlightDescriptor, records: i64) -> Result<FlightInfo, Refused> {
    let endpoint = FlightEndpoint::new().with_ticket(Ticket::new(ticket.encode_to_vec()));
    Ok(FlightInfo {
        schema: schema_bytes(schema)?,
        flight_descriptor: Some(descriptor),
        endpoint: vec![endpoint],
        total_records: records,
        total_bytes: -1,
        ordered: true,
        ..FlightInfo::default()
    })
}

fn cancelled_fault() -> Fault {
    Fault::new(Blame::Cancelled, "the statement was cancelled")
}

/// An answer that is on its way. Its rows are encoded as they are taken; dropping it ends the work at the drives.
pub(crate) struct Answering {
    messages: Option<FlightDataEncoder>,
    /// Ends with the reason why the answer is to end.
    ended: BoxFuture<'static, Status>,
    _place: Option<RunningAnswer>,
    metrics: Arc<Metrics>,
}

impl Answering {
    fn new(rows: Rows, schema: SchemaRef, place: Option<RunningAnswer>, metrics: &Arc<Metrics>) -> Answering {
        metrics.running.inc();
        let sent = metrics.sent_rows.clone();
        let counted = move |batch: Result<RecordBatch, Fault>| match batch {
            Ok(batch) => {
                sent.inc_by(batch.num_rows() as u64);
                Ok(batch)
            }
            Err(fault) => Err(FlightError::from(to_status(&fault))),
        };
        let builder = FlightDataEncoderBuilder::new().with_schema(schema).with_max_flight_data_size(MESSAGE_BYTES);
        let ended: BoxFuture<'static, Status> = match &place {
            Some(place) => Box::pin(place.asked().map(|()| to_status(&cancelled_fault()))),
            None => Box::pin(std::future::pending()),
        };
        let messages = Some(builder.build(rows.map(counted)));
        Answering { messages, ended, _place: place, metrics: Arc::clone(metrics) }
    }

    /// The same answer, which ends for a further reason.
    pub(crate) fn until(mut self, reason: impl Future<Output = Status> + Send + 'static) -> Answering {
        let before = std::mem::replace(&mut self.ended, Box::pin(std::future::pending()));
        self.ended = Box::pin(select(before, Box::pin(reason)).map(|first| first.factor_first().0));
        self
    }

    fn failed(&mut self, status: Status) -> Poll<Option<Result<FlightData, Status>>> {
        self.messages = None;
        self.metrics.errors.inc();
        Poll::Ready(Some(Err(status)))
    }
}

impl Stream for Answering {
    type Item = Result<FlightData, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.messages.is_some()
            && let Poll::Ready(status) = self.ended.as_mut().poll(context)
        {
            return self.failed(status);
        }
        let Some(messages) = &mut self.messages else { return Poll::Ready(None) };
        match messages.poll_next_unpin(context) {
            Poll::Ready(Some(Err(error))) => {
                let status = match error {
                    FlightError::Tonic(status) => *status,
                    other => to_status(&Fault::bug(other)),
                };
                self.failed(status)
            }
            Poll::Ready(None) => {
                self.messages = None;
                Poll::Ready(None)
            }
            Poll::Ready(Some(Ok(message))) => Poll::Ready(Some(Ok(message))),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.metrics.running.dec();
    }
}

#[cfg(test)]
mod tests {
    use arrow_flight::sql::{CommandStatementQuery, ProstMessageExt, TicketStatementQuery};
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn whatever_bytes_come_they_are_a_command_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = command(&bytes);
        }

        #[test]
        fn damaged_commands_are_read_or_refused(query in ".{0,40}", place in any::<prop::sample::Index>(), byte in any::<u8>()) {
            let mut bytes = CommandStatementQuery { query, transaction_id: None }.as_any().encode_to_vec();
            let place = place.index(bytes.len());
            bytes[place] = byte;
            let _ = command(&bytes);
            bytes.truncate(place);
            let _ = command(&bytes);
        }
    }

    #[test]
    fn tickets_are_read_as_they_were_made() {
        let ticket = TicketStatementQuery { statement_handle: vec![7; 32].into() };
        let read = command(&ticket.as_any().encode_to_vec()).unwrap();
        assert_eq!(read, Command::TicketStatementQuery(ticket));
        assert_eq!(command(&[]).unwrap(), Command::Unknown(Any::default()));
    }
}
