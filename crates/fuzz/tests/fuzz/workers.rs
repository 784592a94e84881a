//! What a worker reads of a task: a remote scan.

use std::time::Duration;

use bytes::Bytes;
use pithead_door::PlanBytes;
use pithead_fuzz::{Bound, Parts, Seed, Target};
use pithead_model::DriveId;
use pithead_workers::fuzz::{Expected, ScanSpec, Slot, decode_scan, scan_bytes};

use crate::{link, outcome};

pub const NAMES: [&str; 1] = ["worker_scan"];

/// The header in JSON, the columns, and an OPEN for each partition, which is held as it came and as what it decodes to.
const BOUND: Bound = Bound { bytes: 1 << 20, factor: 64 };
/// Each part behind its length.
const PARTS: Parts = Parts {
    split: |mut bytes| {
        let mut parts = Vec::new();
        while !bytes.is_empty() {
            let (length, rest) = bytes.split_first_chunk::<4>()?;
            let (part, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
            parts.push(part.to_vec());
            bytes = rest;
        }
        Some(parts)
    },
    join: |parts| {
        parts.iter().flat_map(|part| (part.len() as u32).to_le_bytes().into_iter().chain(part.iter().copied())).collect()
    },
    piece: 1,
};

pub fn targets() -> Vec<Target> {
    let run = Box::new(|bytes: &[u8]| outcome(decode_scan(bytes)));
    vec![Target { name: NAMES[0], seeds: seeds(), parts: PARTS, bound: BOUND, run }]
}

fn seeds() -> Vec<Seed> {
    let seed = |(number, rows)| {
        let plan = PlanBytes::Substrait(Bytes::from_static(b"\x0a\x02\x08\x01 any bytes"));
        let request = link::open_request(plan, &[rows]);
        let slot = Slot { partition: 3, copies: vec![DriveId(1), DriveId(2)], slice_cache: 1 << 20, summaries: true, request };
        let spec = ScanSpec {
            number: 1,
            log: u64::MAX,
            schema: slot.request.schema.clone(),
            busy_wait: Duration::from_secs(30),
            expected: Expected { rows: 20.0, bytes: 800.0, distinct: vec![20.0, 2.0] },
            slots: vec![Some(slot.clone()), None, Some(slot)],
        };
        Seed::valid(format!("scan {number}"), scan_bytes(&spec).expect("a scan that can be encoded"))
    };
    link::batches().into_iter().enumerate().map(seed).collect()
}
