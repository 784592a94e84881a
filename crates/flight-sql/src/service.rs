//! [`Service`]: the methods of Flight, of which each reads a command and has it done.

use pithead_model::boxed;
use std::sync::Arc;

use arrow_flight::flight_service_server::FlightService;
use arrow_flight::{
    Action, ActionType, Criteria, Empty, FlightData, FlightDescriptor, FlightInfo, HandshakeRequest, HandshakeResponse,
    PollInfo, PutResult, SchemaResult, Ticket,
};
use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt};
use tokio::sync::watch;
use tonic::{Request, Response, Status, Streaming};

use crate::action;
use crate::answer::{Messages, command};
use crate::caller::Caller;
use crate::client_session::is_about_session;
use crate::error::{Refused, broken};
use crate::flight::FlightSql;
use crate::reception::Credentials;

/// What a put is answered with that does not say what it is for. Drivers send nothing at all of a table without batches.
const NO_COMMAND: &str = "expected a command in the descriptor of the first message, and there is none\n\
     hint: a table that is loaded may have no record batches, and drivers send nothing of such a one: give it an empty batch, \
     `pa.Table.from_batches([pa.RecordBatch.from_pylist([], schema=table.schema)])`";

/// What calls of all connections meet.
pub(crate) struct Service {
    pub(crate) flight: Arc<FlightSql>,
    pub(crate) stopped: watch::Receiver<bool>,
}

type Answers<T> = BoxStream<'static, Result<T, Status>>;

impl Service {
    /// Counts a call. Who makes it, with the settings of the call alone.
    fn called<T>(&self, method: &str, request: &Request<T>) -> Result<Caller, Status> {
        self.flight.metrics.called(method);
        Caller::of(request).map_err(|fault| self.told(fault.into()))
    }

    /// The same, with the settings of the session that the call belongs to.
    fn caller<T>(&self, method: &str, request: &Request<T>) -> Result<Caller, Status> {
        self.flight.in_session(self.called(method, request)?).map_err(|refused| self.told(refused))
    }

    /// An error that the client is told of.
    fn told(&self, refused: Refused) -> Status {
        self.flight.metrics.errors.inc();
        refused.into()
    }

    fn answered<T>(&self, answer: Result<T, Refused>) -> Result<Response<T>, Status> {
        answer.map(Response::new).map_err(|refused| self.told(refused))
    }

    async fn info(&self, request: Request<FlightDescriptor>) -> Result<FlightInfo, Status> {
        let caller = self.caller("info", &request)?;
        let descriptor = request.into_inner();
        let command = command(&descriptor.cmd)?;
        self.flight.info(&caller, command, descriptor).await.map_err(|refused| self.told(refused))
    }

    /// Ends once the server stops.
    fn stop(&self) -> impl Future<Output = Status> + Send + 'static + use<> {
        let mut stopped = self.stopped.clone();
        async move {
            // An error says that the server is gone.
            let _ = stopped.wait_for(|stopped| *stopped).await;
            Status::unavailable("the server stops")
        }
    }
}

/// What an action gives.
fn answers(body: Option<Bytes>) -> Answers<arrow_flight::Result> {
    stream::iter(body.map(|body| Ok(arrow_flight::Result { body }))).boxed()
}

fn not_served<T>(what: &str) -> Result<T, Status> {
    Err(Status::unimplemented(format!("{what} is not part of Flight SQL; statements are asked for by GetFlightInfo and DoGet")))
}

#[boxed]
impl FlightService for Service {
    type HandshakeStream = Answers<HandshakeResponse>;
    type ListFlightsStream = Answers<FlightInfo>;
    type DoGetStream = Messages;
    type DoPutStream = Answers<PutResult>;
    type DoExchangeStream = Messages;
    type DoActionStream = Answers<arrow_flight::Result>;
    type ListActionsStream = Answers<ActionType>;

    /// The guard has looked at the credentials. From now on the token alone suffices.
    async fn handshake(
        &self,
        request: Request<Streaming<HandshakeRequest>>,
    ) -> Result<Response<Self::HandshakeStream>, Status> {
        self.called("other", &request)?;
        let credentials = request.extensions().get::<Credentials>().cloned().unwrap_or_default();
        let token = credentials.token.unwrap_or_default();
        let answer = HandshakeResponse { protocol_version: 0, payload: token.clone().into() };
        let mut response = Response::new(stream::iter([Ok(answer)]).boxed());
        let bearer = String::from_utf8(token).ok().filter(|token| !token.is_empty());
        if let Some(bearer) = bearer.and_then(|token| format!("Bearer {token}").parse().ok()) {
            response.metadata_mut().insert("authorization", bearer);
        }
        Ok(response)
    }

    async fn get_flight_info(&self, request: Request<FlightDescriptor>) -> Result<Response<FlightInfo>, Status> {
        self.info(request).await.map(Response::new)
    }

    async fn poll_flight_info(&self, request: Request<FlightDescriptor>) -> Result<Response<PollInfo>, Status> {
        let info = Some(self.info(request).await?);
        Ok(Response::new(PollInfo { info, flight_descriptor: None, progress: Some(1.0), expiration_time: None }))
    }

    async fn get_schema(&self, request: Request<FlightDescriptor>) -> Result<Response<SchemaResult>, Status> {
        let caller = self.caller("schema", &request)?;
        let command = command(&request.get_ref().cmd)?;
        self.answered(self.flight.columns(&caller, command).await)
    }

    async fn do_get(&self, request: Request<Ticket>) -> Result<Response<Self::DoGetStream>, Status> {
        let caller = self.caller("get", &request)?;
        let command = command(&request.get_ref().ticket)?;
        let answering = self.flight.get(&caller, command).await.map_err(|refused| self.told(refused))?;
        Ok(Response::new(answering.until(self.stop()).boxed()))
    }

    async fn do_put(&self, request: Request<Streaming<FlightData>>) -> Result<Response<Self::DoPutStream>, Status> {
        let caller = self.caller("put", &request)?;
        let mut messages = request.into_inner();
        let first = messages.message().await.map_err(|status| self.told(broken(&status).into()))?;
        let descriptor = first.as_ref().and_then(|first| first.flight_descriptor.clone());
        let Some((descriptor, first)) = descriptor.zip(first) else {
            return Err(self.told(Refused::invalid(NO_COMMAND)));
        };
        let command = command(&descriptor.cmd)?;
        let result = self.flight.put(&caller, command, first, messages).await;
        self.answered(result.map(|result| stream::iter([Ok(result)]).boxed()))
    }

    async fn do_action(&self, request: Request<Action>) -> Result<Response<Self::DoActionStream>, Status> {
        let caller = self.called("action", &request)?;
        let action = request.get_ref();
        if is_about_session(&action.r#type) {
            let answer = self.flight.session_action(&caller, action).await.map_err(|refused| self.told(refused))?;
            let mut response = Response::new(answers(Some(answer.body)));
            if let Some(cookie) = answer.cookie.and_then(|cookie| cookie.parse().ok()) {
                response.metadata_mut().insert("set-cookie", cookie);
            }
            return Ok(response);
        }
        let caller = self.flight.in_session(caller).map_err(|refused| self.told(refused))?;
        let answer = self.flight.action(&caller, action).await;
        self.answered(answer.map(answers))
    }

    async fn list_actions(&self, request: Request<Empty>) -> Result<Response<Self::ListActionsStream>, Status> {
        self.called("other", &request)?;
        Ok(Response::new(stream::iter(action::kinds().map(Ok)).boxed()))
    }

    async fn list_flights(&self, _request: Request<Criteria>) -> Result<Response<Self::ListFlightsStream>, Status> {
        not_served("ListFlights")
    }

    async fn do_exchange(&self, _request: Request<Streaming<FlightData>>) -> Result<Response<Self::DoExchangeStream>, Status> {
        not_served("DoExchange")
    }
}
