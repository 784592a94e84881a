//! A cache of decoded [`Cells`]: every batch of a query brings the same bytes.

use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use datafusion::common::Result;
use parking_lot::Mutex;
use pithead_matrix::Cells;

use crate::blobs::malformed;

/// The most descriptions in the cache. Queries that run at one time have a few.
const KEPT: usize = 8;
/// The most cells of all descriptions in the cache. Decoded, each takes some 40 bytes, however small its description
/// is.
const KEPT_CELLS: usize = 2 << 20;

static KNOWN: Mutex<Vec<(Vec<u8>, Arc<Cells>)>> = Mutex::new(Vec::new());

/// The cells that the bytes describe. The bytes may be base64, because an engine that writes literals as text, as
/// DataFusion does in the names of columns, copies a text but spells out bytes.
pub(crate) fn cells(bytes: &[u8], function: &str) -> Result<Arc<Cells>> {
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
    // The one that was used last comes first.
    kept[..=place].rotate_right(1);
    Some(Arc::clone(&kept[0].1))
}
