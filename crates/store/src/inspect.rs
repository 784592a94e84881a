//! `pithead inspect store|segment`: the contents of a store, without changing it.

use std::path::Path;
use std::sync::Arc;

use pithead_model::DriveId;
use serde::Serialize;

use crate::StoreError;
use crate::api::show_key;
use crate::check::{open_index, open_medium};
use crate::format::io_error;
use crate::index::{Index, Totals, corrupt_index};
use crate::medium::Medium;
use crate::segments::file_name;

/// The number of rows of the index that are read at once.
const PLACES_MAX: usize = 1_024;

/// The contents of a store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StoreFacts {
    /// Its format.
    pub format: u32,
    /// The drive's identity.
    pub drive: DriveId,
    /// Keys.
    pub keys: u64,
    /// Bytes of values.
    pub value_bytes: u64,
    /// Those of them that are deduplicated.
    pub deduplicated_bytes: u64,
    /// Values of the store's own that have what deduplicated ones share.
    pub packs: u64,
    /// Bytes of packs.
    pub pack_bytes: u64,
    /// Bytes in segment files that no value uses and that were not given back.
    pub dead_bytes: u64,
    /// Bytes free on the medium.
    pub free_bytes: u64,
    /// Bytes of the index's file.
    pub index_bytes: u64,
    /// Its segment files, in order.
    pub segments: Vec<SegmentSummary>,
}

/// A segment file in a list of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SegmentSummary {
    /// Its number.
    pub file: u64,
    /// Its name, relative to the store.
    pub name: String,
    /// Bytes written.
    pub bytes: u64,
    /// Bytes of the values that keys name, each with the bytes up to the next multiple of 4,096.
    pub live_bytes: u64,
    /// Values that keys name.
    pub values: u64,
}

/// The contents of a segment file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SegmentFacts {
    /// Its number.
    pub file: u64,
    /// Its name, relative to the store.
    pub name: String,
    /// Bytes written.
    pub bytes: u64,
    /// Bytes of the values that keys name, each with the bytes up to the next multiple of 4,096.
    pub live_bytes: u64,
    /// Its parts, in order.
    pub extents: Vec<Extent>,
}

/// A part of a segment file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Extent {
    /// Its offset.
    pub offset: u64,
    /// The bytes of the value; for a dead part, all of its bytes.
    pub bytes: u64,
    /// The key that names it, for people; none if the part is dead.
    pub key: Option<String>,
}

/// The contents of the store in `dir`, which must not be open.
pub fn store_facts(dir: &Path) -> Result<StoreFacts, StoreError> {
    let medium = open_medium(dir, false)?;
    let (index, format) = open_index(&medium)?;
    let drive = index.drive_id()?.ok_or_else(|| corrupt_index(&*medium, "it names no drive"))?;
    let (keys, totals) = index.totals()?;
    let Totals { value_bytes, recipe_bytes: deduplicated_bytes, packs, pack_bytes, .. } = totals;
    let free_bytes = medium.free_bytes().map_err(|error| io_error(medium.path(), 0, error))?;
    let mut dead_bytes = 0;
    let mut segments = Vec::new();
    for (file, row) in index.segments()? {
        dead_bytes += row.written.saturating_sub(row.live.saturating_add(row.punched));
        let values = extents(&index, file, row.written)?.iter().filter(|extent| extent.key.is_some()).count() as u64;
        segments.push(SegmentSummary { file, name: file_name(file), bytes: row.written, live_bytes: row.live, values });
    }
    let index_bytes = index.bytes()?;
    Ok(StoreFacts {
        format,
        drive,
        keys,
        value_bytes,
        deduplicated_bytes,
        packs,
        pack_bytes,
        dead_bytes,
        free_bytes,
        index_bytes,
        segments,
    })
}

/// The contents of a segment file of the store in `dir`, which must not be open.
pub fn segment_facts(dir: &Path, file: u64) -> Result<SegmentFacts, StoreError> {
    let medium: Arc<dyn Medium> = open_medium(dir, false)?;
    let (index, _) = open_index(&medium)?;
    let row = index.segments()?.into_iter().find(|(other, _)| *other == file);
    let (_, row) = row.ok_or_else(|| StoreError::Index {
        path: dir.to_path_buf(),
        what: format!("no key names a value in {}; `pithead inspect store` lists the segments", file_name(file)),
    })?;
    let extents = extents(&index, file, row.written)?;
    Ok(SegmentFacts { file, name: file_name(file), bytes: row.written, live_bytes: row.live, extents })
}

fn extents(index: &Index, file: u64, written: u64) -> Result<Vec<Extent>, StoreError> {
    let mut extents = Vec::new();
    let mut at = 0;
    loop {
        let places = index.places(file, at, PLACES_MAX)?;
        let full = places.len() == PLACES_MAX;
        for (place, key) in places {
            if place.offset > at {
                extents.push(Extent { offset: at, bytes: place.offset - at, key: None });
            }
            extents.push(Extent { offset: place.offset, bytes: place.bytes, key: Some(show_key(&key)) });
            at = place.end().max(at);
        }
        if !full {
            break;
        }
    }
    if written > at {
        extents.push(Extent { offset: at, bytes: written - at, key: None });
    }
    Ok(extents)
}
