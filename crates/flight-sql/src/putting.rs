//! What clients send rows with: statements that change something, values to bind, and rows to load.

use arrow_flight::sql::{Command, DoPutPreparedStatementResult, DoPutUpdateResult};
use arrow_flight::{FlightData, PutResult};
use prost::Message;
use tonic::Streaming;

use crate::answer::{no_transaction, unknown};
use crate::caller::Caller;
use crate::error::Refused;
use crate::flight::FlightSql;
use crate::ingest::ingest;
use crate::put::Put;
use crate::statement;
use crate::values::Values;

impl FlightSql {
    /// Does what the command says with the rows that follow it, of which the first message may bring the schema.
    pub(crate) async fn put(
        &self,
        caller: &Caller,
        command: Command,
        first: FlightData,
        messages: Streaming<FlightData>,
    ) -> Result<PutResult, Refused> {
        let put = Put::new(first, messages);
        match command {
            Command::CommandStatementUpdate(update) => {
                no_transaction(update.transaction_id.as_deref())?;
                let session = self.session(caller).await?;
                counted(statement::update(&session, &update.query, &Values::default()).await?)
            }
            Command::CommandPreparedStatementUpdate(update) => {
                let prepared = self.prepared(caller, &update.prepared_statement_handle)?;
                counted(prepared.update(put.values().await?).await?)
            }
            Command::CommandPreparedStatementQuery(query) => {
                // A handle of nothing is refused before rows are read.
                self.prepared(caller, &query.prepared_statement_handle)?;
                self.bind(caller, &query.prepared_statement_handle, put.values().await?)?;
                let prepared_statement_handle = Some(query.prepared_statement_handle);
                let bound = DoPutPreparedStatementResult { prepared_statement_handle };
                Ok(PutResult { app_metadata: bound.encode_to_vec().into() })
            }
            Command::CommandStatementIngest(command) => {
                no_transaction(command.transaction_id.as_deref())?;
                let session = self.session(caller).await?;
                let rows = ingest(&self.host, &session, command, put).await?;
                self.metrics.loaded_rows.inc_by(rows);
                counted(rows)
            }
            other => Err(unknown(&other)),
        }
    }
}

fn counted(rows: u64) -> Result<PutResult, Refused> {
    let result = DoPutUpdateResult { record_count: i64::try_from(rows).unwrap_or(i64::MAX) };
    Ok(PutResult { app_metadata: result.encode_to_vec().into() })
}
