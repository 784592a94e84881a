//! [`ScanCodec`]: a remote scan as bytes, and back over a worker's own drives; and the operator that hides what a plan claims of its
//! rows, which has one input and no more than a name.
//!
//! The bytes of a scan are parts, each behind its length in four bytes (little-endian): a header in JSON, the columns as DataFusion's protocol
//! buffers have them, and for each partition that is asked its OPEN, as a drive gets it.

use std::sync::Arc;
use std::time::Duration;

use arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::{DataFusionError, Result as EngineResult, not_impl_err};
use datafusion::execution::TaskContext;
use datafusion::physical_plan::ExecutionPlan;
use datafusion_proto::physical_plan::{PhysicalExtensionCodec, PhysicalProtoConverterExtension};
use datafusion_proto::protobuf;
use pithead_functions::{any_order, is_any_order};
use pithead_host::Host;
use pithead_model::{Blame, DriveId, Fault};
use pithead_remote::{Expected, RemoteScanExec, ScanSpec, Slot};
use pithead_wire::{open_from_bytes, open_to_bytes};
use prost::Message;
use serde::{Deserialize, Serialize};

/// Streams of a scan at most.
const STREAMS_MAX: usize = 65_536;
/// Longest wait for busy drives.
const BUSY_WAIT_MAX: Duration = Duration::from_secs(24 * 3_600);

/// The operator that hides what its input claims.
const ANY_ORDER: &[u8] = b"any order";

/// The header.
#[derive(Serialize, Deserialize)]
struct Header {
    number: usize,
    log: u64,
    busy_wait_ms: u64,
    expected: Expected,
    slots: Vec<Option<SlotHeader>>,
}

#[derive(Serialize, Deserialize)]
struct SlotHeader {
    partition: usize,
    copies: Vec<DriveId>,
    slice_cache: u64,
    summaries: bool,
}

/// Remote scans as bytes, and back where there is a host whose drives they run at.
#[derive(Debug)]
pub(crate) struct ScanCodec {
    host: Option<Host>,
}

impl ScanCodec {
    /// For one who only sends.
    pub(crate) fn sending() -> Self {
        Self { host: None }
    }

    /// For a worker with this host's drives.
    pub(crate) fn receiving(host: Host) -> Self {
        Self { host: Some(host) }
    }
}

impl PhysicalExtensionCodec for ScanCodec {
    fn try_decode(
        &self,
        buf: &[u8],
        inputs: &[Arc<dyn ExecutionPlan>],
        ctx: &TaskContext,
        _proto_converter: &dyn PhysicalProtoConverterExtension,
    ) -> EngineResult<Arc<dyn ExecutionPlan>> {
        let Some(host) = &self.host else { return not_impl_err!("a coordinator takes no tasks") };
        match inputs {
            [] => {}
            [input] if buf == ANY_ORDER => return Ok(any_order(Arc::clone(input))),
            _ => return Err(external(wrong("it has inputs"))),
        }
        let spec = decode(buf).map_err(external)?;
        let scan = spec.scan(host.remote(), &host.options().functions, &ctx.runtime_env()).map_err(external)?;
        Ok(Arc::new(scan))
    }

    fn try_encode(
        &self,
        node: Arc<dyn ExecutionPlan>,
        buf: &mut Vec<u8>,
        _proto_converter: &dyn PhysicalProtoConverterExtension,
    ) -> EngineResult<()> {
        if is_any_order(&node) {
            buf.extend(ANY_ORDER);
            return Ok(());
        }
        let Some(scan) = node.downcast_ref::<RemoteScanExec>() else {
            return not_impl_err!("the operator {} does not travel", node.name());
        };
        buf.extend(encode(&scan.spec()).map_err(external)?);
        Ok(())
    }
}

pub(crate) fn external(fault: Fault) -> DataFusionError {
    DataFusionError::External(Box::new(fault))
}

fn wrong(why: impl ToString) -> Fault {
    Fault::new(Blame::User, format!("a remote scan of a task cannot be read: {}", why.to_string()))
        .hint("start coordinator and workers with the same release of pithead")
}

/// A scan as it travels.
pub(crate) fn encode(spec: &ScanSpec) -> Result<Vec<u8>, Fault> {
    let slot = |slot: &Slot| SlotHeader {
        partition: slot.partition,
        copies: slot.copies.clone(),
        slice_cache: slot.slice_cache,
        summaries: slot.summaries,
    };
    let header = Header {
        number: spec.number,
        log: spec.log,
        busy_wait_ms: u64::try_from(spec.busy_wait.as_millis()).unwrap_or(u64::MAX),
        expected: spec.expected.clone(),
        slots: spec.slots.iter().map(|it| it.as_ref().map(slot)).collect(),
    };
    let columns = protobuf::Schema::try_from(spec.schema.as_ref()).map_err(Fault::bug)?;
    let mut bytes = Vec::new();
    add(&mut bytes, &serde_json::to_vec(&header).map_err(Fault::bug)?)?;
    add(&mut bytes, &columns.encode_to_vec())?;
    for slot in spec.slots.iter().flatten() {
        add(&mut bytes, &open_to_bytes(&slot.request)?)?;
    }
    Ok(bytes)
}

fn add(bytes: &mut Vec<u8>, part: &[u8]) -> Result<(), Fault> {
    let length = u32::try_from(part.len())
        // The query can run at its host.
        .map_err(|_| Fault::new(Blame::Unsupported, format!("{} bytes to ship are more than a task may have", part.len())))?;
    bytes.extend(length.to_le_bytes());
    bytes.extend(part);
    Ok(())
}

/// The scan in these bytes, which may be anything.
pub(crate) fn decode(bytes: &[u8]) -> Result<ScanSpec, Fault> {
    let mut rest = bytes;
    let header: Header = serde_json::from_slice(part(&mut rest)?).map_err(wrong)?;
    if header.slots.len() > STREAMS_MAX {
        return Err(wrong(format!("it has {} streams, and {STREAMS_MAX} is the most", header.slots.len())));
    }
    let busy_wait = Duration::from_millis(header.busy_wait_ms);
    if busy_wait > BUSY_WAIT_MAX {
        return Err(wrong(format!("it waits {} s for busy drives", busy_wait.as_secs())));
    }
    let columns = protobuf::Schema::decode(part(&mut rest)?).map_err(wrong)?;
    let schema: SchemaRef = Arc::new(Schema::try_from(&columns).map_err(wrong)?);
    let mut slots = Vec::new();
    for slot in header.slots {
        let Some(slot) = slot else {
            slots.push(None);
            continue;
        };
        let request = open_from_bytes(part(&mut rest)?)?;
        if request.schema.fields().len() != schema.fields().len() {
            return Err(wrong("a partition has other columns than the scan"));
        }
        let SlotHeader { partition, copies, slice_cache, summaries } = slot;
        slots.push(Some(Slot { partition, request, copies, slice_cache, summaries }));
    }
    if !rest.is_empty() {
        return Err(wrong("bytes follow its end"));
    }
    Ok(ScanSpec { number: header.number, log: header.log, schema, busy_wait, expected: header.expected, slots })
}

/// The next part.
fn part<'a>(rest: &mut &'a [u8]) -> Result<&'a [u8], Fault> {
    let (length, after) = rest.split_first_chunk::<4>().ok_or_else(|| wrong("it is broken off"))?;
    let length = u32::from_le_bytes(*length) as usize;
    let (part, after) = after.split_at_checked(length).ok_or_else(|| wrong("it is broken off"))?;
    *rest = after;
    Ok(part)
}
