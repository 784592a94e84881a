//! Cells that were decoded lately: every batch of a query brings the same bytes.

use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use datafusion::common::Result;
use parking_lot::Mutex;
use pithead_matrix::Cells;

use super::blobs::malformed;

/// Descriptions kept. Queries that run at one time have a few.
const KEPT: usize = 8;
/// Cells of all descriptions kept. Decoded, they take some 40 bytes each, however few the description has.
const KEPT_CELLS: usize = 2 << 20;

static KNOWN: Mutex<Vec<(Vec<u8>, Arc<Cells>)>> = Mutex::new(Vec::new());

/// What the bytes say of the cells. They may be base64: an engine that writes a literal as text, as DataFusion does in the names of
/// columns, copies a text and spells out bytes.
pub(super) fn cells(bytes: &[u8], function: &str) -> Result<Arc<Cells>> {
    if let Some(cells) = known(bytes) {
        return Ok(cells);
    }
    let decoded = if bytes.is_ascii() { BASE64_STANDARD.decode(bytes).ok() } else { None };
    let cells = Cells::decode(decoded.as_deref().unwrap_or(bytes)).map_err(|error| malformed(function, error))?;
    let cells = Arc::new(cells);
    let mut kept = KNOWN.lock();
    kept.insert(0, (bytes.to_vec(), Arc::clone(&cells)));
    kept.truncate(KEPT);
    while kept.len() > 1 && kept.iter().map(|(_, cells)| cells.n_cells).sum::<usize>() > KEPT_CELLS {
        kept.pop();
    }
    Ok(cells)
}

fn known(bytes: &[u8]) -> Option<Arc<Cells>> {
    let mut kept = KNOWN.lock();
    let place = kept.iter().position(|(known, _)| known == bytes)?;
    // The last one used comes first.
    kept[..=place].rotate_right(1);
    Some(Arc::clone(&kept[0].1))
}
