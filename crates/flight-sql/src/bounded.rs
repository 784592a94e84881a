//! [`Bounded`]: the service with bounds on what a client sends in one message. Rows that are loaded come in larger ones than commands do.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};

use arrow_flight::flight_service_server::FlightServiceServer;
use futures::future::BoxFuture;
use http::{Request, Response};
use pithead_model::RECEIVING_BYTES_PER_CONNECTION_MAX;
use tonic::body::Body;
use tonic::server::NamedService;
use tower_service::Service as Calls;

use crate::service::Service;

/// Most bytes of a message from a client, unless it is one of rows.
const COMMAND_BYTES_MAX: usize = 64 << 20;
/// Most bytes of a message of rows: clients send a record batch as one message, whatever its size. These bytes are counted as they come,
/// and until they have been handed on: so many may be there of a connection, and four times as many in all. Values that are bound come by
/// the same method, and are bounded once it is known that they are values ([`Put::values`](crate::put::Put::values)).
const ROWS_BYTES_MAX: usize = RECEIVING_BYTES_PER_CONNECTION_MAX as usize;
/// The method whose messages have rows.
const PUT: &str = "/DoPut";

/// The service, once for each of the bounds.
#[derive(Clone)]
pub(crate) struct Bounded {
    commands: FlightServiceServer<Service>,
    rows: FlightServiceServer<Service>,
}

impl Bounded {
    pub(crate) fn new(service: Service) -> Bounded {
        let service = Arc::new(service);
        let server = |bytes_max| {
            FlightServiceServer::from_arc(Arc::clone(&service))
                .max_decoding_message_size(bytes_max)
                .max_encoding_message_size(usize::MAX)
        };
        Bounded { commands: server(COMMAND_BYTES_MAX), rows: server(ROWS_BYTES_MAX) }
    }
}

impl NamedService for Bounded {
    const NAME: &'static str = <FlightServiceServer<Service> as NamedService>::NAME;
}

impl Calls<Request<Body>> for Bounded {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    /// Both are always ready.
    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        match request.uri().path().ends_with(PUT) {
            true => self.rows.call(request),
            false => self.commands.call(request),
        }
    }
}
