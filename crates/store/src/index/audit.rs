//! What checking, repairing and inspecting a store need from its index.

use std::collections::BTreeMap;
use std::ops::Bound;

use redb::ReadableDatabase as _;

use super::{ENTRIES, Index, Named, PLACES, SEGMENTS, SegmentRow, USES};
use crate::format::io_error;
use crate::record::ValueLocation;
use crate::{Key, StoreError};

/// A key and its record.
type Row = (Key, Vec<u8>);

impl Index {
    /// Reads each block of the file, and returns those that are damaged. `on` is called with the number of blocks done
    /// and of all blocks.
    pub fn verify_blocks(&self, on: &mut dyn FnMut(u64, u64)) -> Result<Vec<u64>, StoreError> {
        let checked = self.opened()?.checked.clone();
        checked.verify(on).map_err(|error| io_error(&self.medium.path().join(self.name), 0, error))
    }

    /// The blocks that reads have found damaged since the file was opened.
    pub fn damaged_blocks(&self) -> Result<Vec<u64>, StoreError> {
        Ok(self.opened()?.checked.damaged_blocks())
    }

    /// Bytes of the file.
    pub fn bytes(&self) -> Result<u64, StoreError> {
        let file = self.medium.open(self.name, false).and_then(|file| file.len());
        file.map_err(|error| io_error(&self.medium.path().join(self.name), 0, error))
    }

    /// Keys and records of a range as they are stored, up to the first that cannot be read.
    pub fn rows(
        &self,
        start: &Bound<Key>,
        end: &Bound<Key>,
        reverse: bool,
        limit: usize,
    ) -> (Vec<Row>, Result<(), StoreError>) {
        let mut found = Vec::new();
        let bounds = (start.as_ref().map(AsRef::as_ref), end.as_ref().map(AsRef::as_ref));
        let done = self.run(|database| {
            let entries = database.begin_read()?.open_table(ENTRIES)?;
            let mut rows = entries.range::<&[u8]>(bounds)?;
            while found.len() < limit {
                let Some(row) = (if reverse { rows.next_back() } else { rows.next() }) else { break };
                let (key, record) = row?;
                found.push((Key::copy_from_slice(key.value()), record.value().to_vec()));
            }
            Ok(())
        });
        (found, done)
    }

    /// At most `limit` large values from a place on, in the order of files and offsets.
    pub fn places_from(&self, file: u64, offset: u64, limit: usize) -> Result<Vec<(ValueLocation, Key)>, StoreError> {
        self.run(|database| {
            let places = database.begin_read()?.open_table(PLACES)?;
            let rows = places.range((file, offset)..)?.take(limit);
            rows.map(|row| {
                let (at, held) = row?;
                let ((file, offset), (bytes, key)) = (at.value(), held.value());
                Ok((ValueLocation { file, offset, bytes }, Key::copy_from_slice(key)))
            })
            .collect()
        })
    }

    /// Puts records unchanged, with what they name.
    pub fn put_rows(&self, rows: &[(Key, Vec<u8>, Named)]) -> Result<(), StoreError> {
        self.change(|transaction| {
            let mut entries = transaction.open_table(ENTRIES)?;
            let mut places = transaction.open_table(PLACES)?;
            let mut uses = transaction.open_table(USES)?;
            for (key, record, named) in rows {
                entries.insert(&key[..], record.as_slice())?;
                if let Some(place) = named.place {
                    places.insert((place.file, place.offset), (place.bytes, &key[..]))?;
                }
                for pack in named.recipe.iter().flat_map(|(_, packs)| packs) {
                    uses.insert((*pack, &key[..]), ())?;
                }
            }
            Ok(())
        })
    }

    /// Puts the account of segments.
    pub fn put_segments(&self, rows: &BTreeMap<u64, SegmentRow>) -> Result<(), StoreError> {
        self.change(|transaction| {
            let mut segments = transaction.open_table(SEGMENTS)?;
            for (file, row) in rows {
                segments.insert(*file, (row.written, row.live, row.punched))?;
            }
            Ok(())
        })
    }
}
