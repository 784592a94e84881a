//! Batches as Flight messages.

use std::collections::VecDeque;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::ipc::MetadataVersion;
use arrow::ipc::writer::{DictionaryTracker, EncodedData, IpcDataGenerator, IpcWriteContext, IpcWriteOptions};
use arrow_flight::FlightData;
use bytes::Bytes;
use pithead_door::{compact_views, needed_bytes};
use pithead_model::MESSAGE_BYTES_MAX;
use prost::Message;

use crate::error::WireError;

/// What a message's batch is aimed at: large enough to make calls cheap, small enough to stay in caches.
const BATCH_BYTES_TARGET: usize = 2 << 20;
/// A batch whose message came out above this, because its rows differ much in size, is halved.
pub(crate) const BATCH_BYTES_MAX: usize = 16 << 20;
/// Most rows of one message: bounds what a few bytes can make a reader allocate.
pub(crate) const BATCH_ROWS_MAX: usize = 1 << 24;
/// Buffers start on multiples of this, which suffices for all Arrow types and costs small batches little.
const ALIGNMENT: usize = 16;
/// Every gRPC message is preceded by a flag and its length.
const PREFIX_BYTES: usize = 5;

/// Bytes that a message puts on the link: itself and gRPC's prefix, without HTTP/2's framing.
pub(crate) fn link_bytes(message: &impl Message) -> u64 {
    (message.encoded_len() + PREFIX_BYTES) as u64
}

/// Encodes batches of one stream. A schema message goes before the first batch, and again where the schema changes.
pub(crate) struct BatchEncoder {
    options: IpcWriteOptions,
    generator: IpcDataGenerator,
    context: IpcWriteContext,
    dictionaries: DictionaryTracker,
    schema: Option<SchemaRef>,
}

impl BatchEncoder {
    pub(crate) fn new() -> Self {
        let options =
            IpcWriteOptions::try_new(ALIGNMENT, false, MetadataVersion::V5).expect("16 is an alignment that IPC allows");
        Self {
            options,
            generator: IpcDataGenerator::default(),
            context: IpcWriteContext::default(),
            dictionaries: DictionaryTracker::new(false),
            schema: None,
        }
    }

    /// Appends a batch's messages: one batch message at least, each with `metadata`, before it the schema and
    /// dictionaries that it needs.
    pub(crate) fn encode(
        &mut self,
        batch: &RecordBatch,
        metadata: &Bytes,
        out: &mut VecDeque<FlightData>,
    ) -> Result<(), WireError> {
        self.announce(batch.schema_ref(), out);
        if batch.num_rows() == 0 {
            // Not the slice itself: an empty slice of runs comes out as a run that ends at 0, which readers refuse.
            return self.piece(&RecordBatch::new_empty(batch.schema()), metadata, out);
        }
        let batch = compact_views(batch);
        let needed: usize = batch.columns().iter().map(|column| needed_bytes(column)).sum();
        let pieces = needed.div_ceil(BATCH_BYTES_TARGET).max(batch.num_rows().div_ceil(BATCH_ROWS_MAX)).max(1);
        let rows = batch.num_rows().div_ceil(pieces).max(1);
        if rows >= batch.num_rows() {
            return self.piece(&batch, metadata, out);
        }
        for first in (0..batch.num_rows()).step_by(rows) {
            self.piece(&compact_views(&batch.slice(first, rows.min(batch.num_rows() - first))), metadata, out)?;
        }
        Ok(())
    }

    fn announce(&mut self, schema: &SchemaRef, out: &mut VecDeque<FlightData>) {
        if self.schema.as_ref() == Some(schema) {
            return;
        }
        self.dictionaries = DictionaryTracker::new(false);
        let message = self.generator.schema_to_bytes_with_dictionary_tracker(schema, &mut self.dictionaries, &self.options);
        self.schema = Some(schema.clone());
        out.push_back(message.into());
    }

    fn piece(&mut self, batch: &RecordBatch, metadata: &Bytes, out: &mut VecDeque<FlightData>) -> Result<(), WireError> {
        let (dictionaries, encoded) = self
            .generator
            .encode(batch, &mut self.dictionaries, &self.options, &mut self.context)
            .map_err(|error| WireError::encode("a batch", error))?;
        for dictionary in dictionaries {
            out.push_back(bounded(dictionary)?);
        }
        if encoded.arrow_data.len() > BATCH_BYTES_MAX && batch.num_rows() > 1 {
            let half = batch.num_rows() / 2;
            self.piece(&compact_views(&batch.slice(0, half)), metadata, out)?;
            return self.piece(&compact_views(&batch.slice(half, batch.num_rows() - half)), metadata, out);
        }
        out.push_back(bounded(encoded)?.with_app_metadata(metadata.clone()));
        Ok(())
    }
}

fn bounded(encoded: EncodedData) -> Result<FlightData, WireError> {
    let bytes = encoded.ipc_message.len() + encoded.arrow_data.len();
    // The rest is for field tags and metadata.
    let max = MESSAGE_BYTES_MAX - (64 << 10);
    if bytes > max {
        return Err(WireError::TooLarge { what: "a batch's message", bytes, max });
    }
    Ok(encoded.into())
}
