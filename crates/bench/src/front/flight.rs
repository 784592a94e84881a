//! All rows of a table by Flight SQL from `pithead serve`, beside the same batches from memory by a bare server of Flight.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::compute::sum;
use arrow::datatypes::Int64Type;
use arrow_flight::encode::FlightDataEncoderBuilder;
use arrow_flight::error::FlightError;
use arrow_flight::flight_service_client::FlightServiceClient;
use arrow_flight::flight_service_server::{FlightService, FlightServiceServer};
use arrow_flight::sql::client::FlightSqlServiceClient;
use arrow_flight::sql::server::FlightSqlService;
use arrow_flight::sql::{Any, SqlInfo};
use arrow_flight::{FlightInfo, Ticket};
use futures::stream::{self, Stream, StreamExt, TryStreamExt};
use pithead_model::{Blame, Fault};
use serde::Serialize;
use tokio::sync::oneshot;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Request, Response, Status};

use crate::timing::Spread;

/// Most bytes of a message that the client takes.
const MESSAGE_BYTES_MAX: usize = 64 << 20;
/// Bytes that a server may send before the client has taken any.
const STREAM_WINDOW_BYTES: u32 = 4 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 16 << 20;

/// A client of Flight SQL.
pub(super) type Client = FlightSqlServiceClient<Channel>;

/// What it took to have all rows of one table as Arrow.
#[derive(Debug, Serialize)]
pub(super) struct FlightFetch {
    pub(super) rows: u64,
    /// Of the batches in memory.
    pub(super) arrow_bytes: u64,
    /// From `pithead serve`, from the statement to the last row.
    pub(super) pithead_seconds: Spread,
    /// The same batches, from a server of Flight that has them in memory, in the process of the client.
    pub(super) bare_seconds: Spread,
}

impl FlightFetch {
    /// Bytes a second of Pithead's over those of the bare stream.
    pub(super) fn share(&self) -> f64 {
        self.bare_seconds.median / self.pithead_seconds.median
    }
}

/// A connection to a server of Flight.
pub(super) async fn client(address: &str) -> Result<Client, Fault> {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).map_err(Fault::bug)?;
    let channel = endpoint
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .connect()
        .await
        .map_err(|error| Fault::new(Blame::Device, format!("Flight at {address}: {error}")))?;
    let inner = FlightServiceClient::new(channel).max_decoding_message_size(MESSAGE_BYTES_MAX);
    Ok(Client::new_from_inner(inner))
}

/// Fetches `table` in turns from both. `rows` are those that it has, whose column `id` counts them from 0.
pub(super) async fn fetches(address: &str, table: &str, rows: u64, runs: usize) -> Result<FlightFetch, Fault> {
    let mut pithead = client(address).await?;
    let sql = format!("SELECT * FROM {table}");
    let batches = asked(&mut pithead, &sql).await?;
    let ids: i64 = batches.iter().filter_map(|batch| sum(batch.column(0).as_primitive::<Int64Type>())).sum();
    let expected = i64::try_from(rows * rows.saturating_sub(1) / 2).unwrap_or(i64::MAX);
    if count(&batches) != rows || ids != expected {
        return Err(Fault::new(Blame::Bug, format!("{table}: other rows than were written, {} for {rows}", count(&batches))));
    }
    let arrow_bytes = batches.iter().flat_map(RecordBatch::columns).map(|column| bytes(column.as_ref())).sum();
    let bare = Bare::start(batches).await?;
    let mut beside = client(&bare.address).await?;
    // Once to warm up.
    ticket_rows(&mut beside, Ticket::default()).await?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..runs {
        let started = Instant::now();
        let info = pithead.execute(sql.clone(), None).await.map_err(failed)?;
        let mut got = 0;
        for ticket in tickets(info) {
            got += ticket_rows(&mut pithead, ticket).await?;
        }
        ours.push(started.elapsed().as_secs_f64());
        let started = Instant::now();
        let from_bare = ticket_rows(&mut beside, Ticket::default()).await?;
        theirs.push(started.elapsed().as_secs_f64());
        if (got, from_bare) != (rows, rows) {
            return Err(Fault::new(Blame::Bug, format!("{table}: {got} and {from_bare} rows for {rows}")));
        }
    }
    drop(beside);
    bare.stop().await?;
    Ok(FlightFetch { rows, arrow_bytes, pithead_seconds: Spread::of(ours), bare_seconds: Spread::of(theirs) })
}

/// All batches of an answer.
pub(super) async fn asked(client: &mut Client, sql: &str) -> Result<Vec<RecordBatch>, Fault> {
    let info = client.execute(sql.to_owned(), None).await.map_err(failed)?;
    rows(client, info).await
}

/// All batches of an answer that was announced.
pub(super) async fn rows(client: &mut Client, info: FlightInfo) -> Result<Vec<RecordBatch>, Fault> {
    let mut batches = Vec::new();
    for ticket in tickets(info) {
        let stream = client.do_get(ticket).await.map_err(failed)?;
        batches.extend(stream.try_collect::<Vec<_>>().await.map_err(failed)?);
    }
    Ok(batches)
}

fn tickets(info: FlightInfo) -> impl Iterator<Item = Ticket> {
    info.endpoint.into_iter().filter_map(|endpoint| endpoint.ticket)
}

/// Takes all batches of a ticket, and counts their rows.
async fn ticket_rows(client: &mut Client, ticket: Ticket) -> Result<u64, Fault> {
    let mut stream = client.do_get(ticket).await.map_err(failed)?;
    let mut rows = 0;
    while let Some(batch) = stream.try_next().await.map_err(failed)? {
        rows += batch.num_rows() as u64;
    }
    Ok(rows)
}

fn count(batches: &[RecordBatch]) -> u64 {
    batches.iter().map(|batch| batch.num_rows() as u64).sum()
}

/// Bytes of a column's values, without what its buffers have beside them.
fn bytes(column: &dyn Array) -> u64 {
    column.to_data().get_slice_memory_size().unwrap_or(0) as u64
}

/// A fault of a call.
pub(super) fn failed(error: impl std::fmt::Display) -> Fault {
    Fault::new(Blame::Device, format!("Flight: {error}"))
}

/// A server of Flight in this process, which answers any ticket with the same batches.
struct Bare {
    address: String,
    stop: oneshot::Sender<()>,
    served: tokio::task::JoinHandle<Result<(), tonic::transport::Error>>,
}

impl Bare {
    async fn start(batches: Vec<RecordBatch>) -> Result<Bare, Fault> {
        let connections = TcpIncoming::bind(([127, 0, 0, 1], 0).into()).map_err(failed)?.with_nodelay(Some(true));
        let address = connections.local_addr().map_err(failed)?.to_string();
        let (stop, stopped) = oneshot::channel::<()>();
        let service = FlightServiceServer::new(Batches(batches.into())).max_encoding_message_size(usize::MAX);
        let stopped = async { drop(stopped.await) };
        let serving = Server::builder().add_service(service).serve_with_incoming_shutdown(connections, stopped);
        Ok(Bare { address, stop, served: tokio::spawn(serving) })
    }

    async fn stop(self) -> Result<(), Fault> {
        // It may have ended by itself; its end tells why.
        let _ = self.stop.send(());
        self.served.await.map_err(Fault::bug)?.map_err(failed)
    }
}

/// What the bare server has.
#[derive(Clone)]
struct Batches(Arc<[RecordBatch]>);

type Messages = Pin<Box<dyn Stream<Item = Result<arrow_flight::FlightData, Status>> + Send>>;

#[async_trait::async_trait]
impl FlightSqlService for Batches {
    type FlightService = Batches;

    async fn do_get_fallback(
        &self,
        _: Request<Ticket>,
        _: Any,
    ) -> Result<Response<<Self as FlightService>::DoGetStream>, Status> {
        let batches = Arc::clone(&self.0);
        let count = batches.len();
        let batches = stream::iter(0..count).map(move |index| Ok::<_, FlightError>(batches[index].clone()));
        let messages: Messages = Box::pin(FlightDataEncoderBuilder::new().build(batches).map_err(Status::from));
        Ok(Response::new(messages))
    }

    async fn register_sql_info(&self, _: i32, _: &SqlInfo) {}
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, Int64Array};

    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn the_bare_server_answers_with_its_batches_and_ends() {
        let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(0..100));
        let batch = RecordBatch::try_from_iter([("id", ids)]).unwrap();
        let bare = Bare::start(vec![batch.clone(), batch.slice(0, 20)]).await.unwrap();
        let mut client = client(&bare.address).await.unwrap();
        assert_eq!(ticket_rows(&mut client, Ticket::default()).await.unwrap(), 120);
        drop(client);
        bare.stop().await.unwrap();
        assert_eq!(bytes(batch.slice(0, 20).column(0).as_ref()), 160);
    }
}
