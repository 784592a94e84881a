//! [`serve`]: a worker, which runs tasks of others' super-plans over its own connections to the drives.

use std::sync::Arc;
use std::time::Duration;

use datafusion::common::Result as EngineResult;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::execution::{SessionState, SessionStateBuilder};
use datafusion_distributed::{
    DistributedConfig, DistributedExt, Worker, WorkerPlanRewriteEvent, WorkerPlanRewriteEventResponse, WorkerQueryContext,
};
use http::header::AUTHORIZATION;
use http::{Extensions, HeaderMap, HeaderValue};
use pithead_entry::{Identity, Right, ServeOptions, Shutdown, bearer, not_known};
use pithead_functions::{EngineOptions, session_state};
use pithead_host::Host;
use pithead_model::{Blame, Fault, PAGE_ROWS, boxed};
use pithead_wire::{Reception, ServeLimits, serve_calls};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tonic::Status;

use crate::codec::{ScanCodec, external};
use crate::links::Links;
use crate::may::{Functions, register};
use crate::stand_in::StandIn;

/// What a worker says that it is.
pub(crate) const RELEASE: &str = env!("CARGO_PKG_VERSION");
/// The header with the rows of a batch.
pub(crate) const BATCH_ROWS: &str = "x-pithead-batch-rows";
/// The header with the session's time zone.
pub(crate) const TIME_ZONE: &str = "x-pithead-time-zone";

/// Most bytes of a message: a task with the rows that it ships.
const MESSAGE_BYTES_MAX: usize = 1 << 30;
/// The call that lasts as long as its query, mostly without a message.
const QUERY_CALL: &str = "/CoordinatorChannel";
/// Longest query.
const QUERY_MAX: Duration = Duration::from_secs(24 * 3_600);
const PAUSE_MAX: Duration = Duration::from_secs(30);
const LIMITS: ServeLimits = ServeLimits {
    stream_window_bytes: 16 << 20,
    connection_window_bytes: 256 << 20,
    frame_bytes: Some(256 << 10),
    calls: 4_096,
    header_bytes: 32 << 10,
    ping_interval: Duration::from_secs(10),
    ping_timeout: Duration::from_secs(20),
    stop_grace: Duration::from_secs(5),
};

/// Serves tasks until `shutdown` ends, over the drives of `host`. `links` reach the other workers.
///
/// A caller has to be one that may read every domain, since tasks read with this worker's own credentials.
#[boxed]
pub async fn serve(
    host: Host,
    links: Links,
    listener: TcpListener,
    options: ServeOptions,
    shutdown: Shutdown,
) -> Result<(), Fault> {
    let (stop, _stopped) = watch::channel(false);
    let runtime = host.runtime();
    let tasks =
        Tasks { functions: Arc::new(Functions::new(&host.options().functions)), runtime: Arc::clone(&runtime), host, links };
    let worker = Worker::from_session_builder(move |context: WorkerQueryContext| {
        let state = tasks.state(context);
        async move { state }
    });
    let service = worker.with_runtime_env(runtime).with_version(RELEASE).into_worker_server();
    let service = service.max_decoding_message_size(MESSAGE_BYTES_MAX);
    serve_calls((service, WorkerReception), listener, &options, LIMITS, (stop, shutdown)).await
}

/// What all tasks share.
struct Tasks {
    host: Host,
    links: Links,
    functions: Arc<Functions>,
    runtime: Arc<RuntimeEnv>,
}

impl Tasks {
    /// The engine of one task, which is that of all engines of ours.
    fn state(&self, context: WorkerQueryContext) -> EngineResult<SessionState> {
        let WorkerQueryContext { mut builder, headers } = context;
        let links = self.links.in_the_name_of(headers.get(AUTHORIZATION).cloned());
        let mut config = builder.config().take().unwrap_or_default();
        let own = session_state(&EngineOptions {
            batch_rows: header(&headers, BATCH_ROWS)?.map_or(Ok(PAGE_ROWS), parse_rows)?,
            target_partitions: 1,
            time_zone: header(&headers, TIME_ZONE)?.map(str::to_owned),
            runtime: Arc::clone(&self.runtime),
            functions: Arc::clone(&self.host.options().functions),
        });
        let divided = DistributedConfig::from_session_config(&config)?.clone();
        let mut options = own.config_options().as_ref().clone();
        options.extensions.insert(divided);
        *config.options_mut() = options;
        config.set_extension(Arc::clone(&self.host.options().functions));
        let functions = Arc::clone(&self.functions);
        let mut state = SessionStateBuilder::new_from_existing(own)
            .with_config(config)
            .with_distributed_user_codec(ScanCodec::receiving(self.host.clone()))
            .with_distributed_channel_resolver(links)
            .with_distributed_worker_plan_rewrite_handler(move |event: WorkerPlanRewriteEvent<'_>| checked(&functions, event))
            .build();
        register(&mut state);
        Ok(state)
    }
}

/// Refuses a task that is none of ours. Others let other tasks run in between, and their errors keep their blame.
fn checked(functions: &Functions, event: WorkerPlanRewriteEvent<'_>) -> EngineResult<WorkerPlanRewriteEventResponse> {
    match functions.refusal(&event.plan) {
        None => Ok(WorkerPlanRewriteEventResponse::new(StandIn::of_task(StandIn::giving_way(event.plan)?))),
        Some(why) => Err(external(Fault::new(Blame::Access, format!("a worker runs no such task: {why}")))),
    }
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> EngineResult<Option<&'a str>> {
    let text = headers.get(name).map(|value| value.to_str()).transpose();
    text.map_err(|_| external(Fault::new(Blame::User, format!("the header {name} is no text"))))
}

fn parse_rows(text: &str) -> EngineResult<usize> {
    match text.parse() {
        Ok(rows @ 1..=1_048_576) => Ok(rows),
        _ => Err(external(Fault::new(Blame::User, format!("expected 1 to 1048576 rows of a batch, got {text:?}")))),
    }
}

/// `Bearer TOKEN`, as drives have it.
#[derive(Clone, Copy)]
struct WorkerReception;

impl Reception for WorkerReception {
    type Credentials = Option<Vec<u8>>;

    fn credentials(&self, headers: &HeaderMap) -> Result<Option<Vec<u8>>, Fault> {
        Ok(bearer(headers.get(AUTHORIZATION).map(HeaderValue::as_bytes))?.map(<[u8]>::to_vec))
    }

    fn token<'a>(&self, credentials: &'a Option<Vec<u8>>) -> Option<&'a [u8]> {
        credentials.as_deref()
    }

    fn introduce(&self, caller: Arc<Identity>, _: Option<Vec<u8>>, extensions: &mut Extensions) -> Result<(), Fault> {
        if !caller.may_all(Right::Read) {
            return Err(not_known(format!(
                "{:?} may not read every domain, and whoever gives a worker tasks can",
                caller.name
            )));
        }
        extensions.insert(caller);
        Ok(())
    }

    fn status(&self, fault: &Fault) -> Status {
        Status::unavailable(fault.to_string())
    }

    fn not_known(&self, fault: &Fault) -> Status {
        Status::unauthenticated(fault.message.replace("this drive", "this worker").replace("the drive", "the worker"))
    }

    fn pause_max(&self, path: &str) -> Duration {
        if path.ends_with(QUERY_CALL) { QUERY_MAX } else { PAUSE_MAX }
    }
}
