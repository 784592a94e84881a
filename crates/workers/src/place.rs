//! [`Workers`]: divides the super-plans of a host's queries among workers.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use datafusion::catalog::Session;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DataFusionError, Result as EngineResult};
use datafusion::execution::context::QueryPlanner;
use datafusion::execution::{SessionState, SessionStateBuilder};
use datafusion::logical_expr::{LogicalPlan, LogicalPlanBuilder};
use datafusion::physical_plan::ExecutionPlan;
use datafusion_distributed::{
    ChannelResolver, DesiredTaskCountEvent, DistributedExec, DistributedExt, GetWorkerInfoRequest, NetworkBoundaryExt,
    SessionStateBuilderExt, WorkerResolver,
};
use http::{HeaderMap, HeaderValue};
use pithead_entry::ConnectOptions;
use pithead_functions::{Registry, bare, fault_from_datafusion};
use pithead_host::{Elsewhere, Placed};
use pithead_model::{Blame, Fault, boxed};
use pithead_remote::RemoteScanExec;
use url::Url;

use crate::codec::ScanCodec;
use crate::links::{Links, url_of};
use crate::may::Functions;
use crate::serve::{BATCH_ROWS, RELEASE, TIME_ZONE};
use crate::{gather, leaves};

/// How long a worker may take to say that it is there.
const GREET_WAIT: Duration = Duration::from_secs(5);
/// Operators that are worth dividing. Without any of them a plan hands on what drives send.
const WORK: &[&str] = &[
    "AggregateExec",
    "BoundedWindowAggExec",
    "CrossJoinExec",
    "HashJoinExec",
    "NestedLoopJoinExec",
    "SortExec",
    "SortMergeJoinExec",
    "WindowAggExec",
];

/// The workers of a coordinator.
pub struct Workers {
    urls: Vec<Url>,
    links: Links,
    functions: Functions,
}

impl fmt::Debug for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} workers", self.urls.len())
    }
}

impl Workers {
    /// The workers at these addresses, reached as drives are. Refuses one that does not let this host in, or is of another release. One
    /// that does not answer may come later: until then queries run at the host alone.
    #[boxed]
    pub async fn connect(
        addresses: &[String],
        options: &ConnectOptions,
        functions: &Arc<Registry>,
    ) -> Result<Arc<Self>, Fault> {
        let links = Links::new(options.clone());
        let urls = addresses.iter().map(|address| url_of(address)).collect::<Result<Vec<_>, Fault>>()?;
        for (address, url) in addresses.iter().zip(&urls) {
            let greeting = async {
                let mut worker = links.get_worker_client_for_url(url).await?;
                worker.get_worker_info(GetWorkerInfoRequest {}).await
            };
            match tokio::time::timeout(GREET_WAIT, greeting).await {
                Ok(Ok(info)) if info.version == RELEASE => {}
                Ok(Ok(info)) => {
                    let message = format!("worker {address} is of release {:?}, and this is {RELEASE}", info.version);
                    return Err(Fault::new(Blame::User, message).hint("start workers of the same release"));
                }
                Ok(Err(error)) => {
                    let fault = fault_from_datafusion(error);
                    if fault.blame != Blame::Device {
                        let is_named = fault.message.contains(address);
                        return Err(if is_named { fault } else { fault.at(format_args!("worker {address}")) });
                    }
                    tracing::warn!("worker {address} does not answer; queries run at this host alone: {}", fault.message);
                }
                Err(_) => tracing::warn!("worker {address} does not answer; queries run at this host alone until it does"),
            }
        }
        Ok(Arc::new(Self { urls, links, functions: Functions::new(functions) }))
    }

    /// A state that divides this plan, whatever it is asked to plan.
    fn state(&self, plan: Arc<dyn ExecutionPlan>, state: &SessionState) -> EngineResult<SessionState> {
        let workers = self.urls.len();
        let state = SessionStateBuilder::new_from_existing(state.clone())
            .with_query_planner(Arc::new(Planned(plan)))
            .with_distributed_worker_resolver(Urls(self.urls.clone()))
            .with_distributed_channel_resolver(self.links.clone())
            .with_distributed_user_codec(ScanCodec::sending())
            .with_distributed_desired_task_count_handler(move |event: DesiredTaskCountEvent<'_>| leaves::tasks(&event, workers))
            .with_distributed_scale_up_leaf_node_handler(leaves::divided)
            .with_distributed_passthrough_headers(settings(state)?)?
            .with_distributed_planner()
            .build();
        Ok(state)
    }

    /// Why a plan stays at this host; none: it can be divided.
    fn stays(&self, plan: &Arc<dyn ExecutionPlan>) -> EngineResult<Option<String>> {
        let (mut scans, mut works, mut why) = (0, false, None);
        plan.apply(|node| {
            works |= WORK.contains(&node.name());
            if let Some(scan) = node.downcast_ref::<RemoteScanExec>() {
                scans += 1;
                why = why.or_else(|| scan.stays(self.functions.announced()));
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(match why {
            Some(why) => Some(why.to_owned()),
            None if scans == 0 => Some("nothing of it comes from drives".to_owned()),
            None if !works => Some("it only hands on what drives send".to_owned()),
            None => self.functions.refusal(plan),
        })
    }

    async fn divided(&self, plan: Arc<dyn ExecutionPlan>, state: &SessionState) -> EngineResult<Placed> {
        let plan = bare(plan)?;
        if let Some(why) = self.stays(&plan)? {
            return Ok(Placed::Here(why));
        }
        let logs = gather::logs(&plan)?;
        let state = self.state(plan, state)?;
        let nothing = LogicalPlanBuilder::empty(false).build()?;
        let plan = state.query_planner().create_physical_plan(&nothing, &state).await?;
        if !plan.is::<DistributedExec>() {
            return Ok(Placed::Here("it has no part for more than one machine".to_owned()));
        }
        let mut stages = 0;
        plan.apply(|node| {
            stages += usize::from(node.is_network_boundary());
            Ok(TreeNodeRecursion::Continue)
        })?;
        tracing::debug!(plan = %datafusion_distributed::display_plan_ascii(plan.as_ref(), false), "divided");
        let told = format!("among {} workers, in {stages} {}", self.urls.len(), if stages == 1 { "stage" } else { "stages" });
        Ok(Placed::There { rows: gather::rows(plan, state.task_ctx(), logs), told })
    }
}

#[boxed]
impl Elsewhere for Workers {
    async fn place(&self, plan: Arc<dyn ExecutionPlan>, state: &SessionState) -> Result<Placed, Fault> {
        self.divided(plan, state).await.map_err(fault_from_datafusion)
    }
}

/// What of a session's settings a task needs.
fn settings(state: &SessionState) -> EngineResult<HeaderMap> {
    let options = &state.config_options().execution;
    let mut headers = HeaderMap::new();
    headers.insert(BATCH_ROWS, HeaderValue::from(options.batch_size.get()));
    if let Some(zone) = &options.time_zone {
        let zone = HeaderValue::from_str(zone).map_err(|error| DataFusionError::External(Box::new(error)))?;
        headers.insert(TIME_ZONE, zone);
    }
    Ok(headers)
}

/// Where the workers are.
struct Urls(Vec<Url>);

impl WorkerResolver for Urls {
    fn get_urls(&self) -> EngineResult<Vec<Url>> {
        Ok(self.0.clone())
    }
}

/// Gives the plan that there is already.
#[derive(Debug)]
struct Planned(Arc<dyn ExecutionPlan>);

#[boxed]
impl QueryPlanner for Planned {
    async fn create_physical_plan(&self, _plan: &LogicalPlan, _session: &dyn Session) -> EngineResult<Arc<dyn ExecutionPlan>> {
        Ok(Arc::clone(&self.0))
    }
}
