//! Flight messages back to batches. Every byte may be hostile: what Arrow's reader does not check, or checks by
//! panicking, is checked here first, and a panic that is left becomes an error.

use pithead_door::check_columns;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::buffer::Buffer;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use arrow::ipc::reader::{RecordBatchDecoder, read_dictionary};
use arrow::ipc::{self, MessageHeader, MetadataVersion};
use arrow_flight::FlightData;
use pithead_model::Fault;

use crate::check::{check_arrays, check_dictionary, check_header, check_rows};
use crate::error::WireError;

/// What one message held.
#[derive(Debug)]
pub enum Decoded {
    /// Metadata only.
    Nothing,
    /// A schema or a dictionary, kept for the batches that follow.
    Context,
    /// Rows.
    Batch(RecordBatch),
}

/// Decodes the batches of one stream.
#[derive(Debug, Default)]
pub struct BatchDecoder {
    schema: Option<SchemaRef>,
    dictionaries: HashMap<i64, ArrayRef>,
}

impl BatchDecoder {
    /// Takes the next message of a stream that is no drive's.
    pub fn read(&mut self, data: &FlightData) -> Result<Decoded, Fault> {
        Ok(self.decode(data)?)
    }

    /// The schema of the batches, once it has come.
    pub fn schema_ref(&self) -> Option<&SchemaRef> {
        self.schema.as_ref()
    }

    /// Takes the next message.
    pub(crate) fn decode(&mut self, data: &FlightData) -> Result<Decoded, WireError> {
        if data.data_header.is_empty() {
            return Ok(Decoded::Nothing);
        }
        let message = ipc::root_as_message(&data.data_header).map_err(|error| WireError::malformed("Arrow message", error))?;
        if message.version() != MetadataVersion::V5 {
            return Err(WireError::malformed("Arrow message", format!("expected format V5, got {:?}", message.version())));
        }
        match message.header_type() {
            MessageHeader::NONE => Ok(Decoded::Nothing),
            MessageHeader::Schema => self.schema(message),
            MessageHeader::DictionaryBatch => self.dictionary(message, data),
            MessageHeader::RecordBatch => self.batch(message, data),
            other => Err(WireError::malformed(
                "Arrow message",
                format!("expected rows, got {:?}", other.variant_name().unwrap_or("nothing known")),
            )),
        }
    }

    fn schema(&mut self, message: ipc::Message<'_>) -> Result<Decoded, WireError> {
        let header = message.header_as_schema().ok_or_else(|| WireError::malformed("Arrow schema", "it is not there"))?;
        check_header(header)?;
        let schema = guard("Arrow schema", || Ok(ipc::convert::fb_to_schema(header)))?;
        check_columns(&schema)?;
        self.schema = Some(Arc::new(schema));
        self.dictionaries.clear();
        Ok(Decoded::Context)
    }

    fn dictionary(&mut self, message: ipc::Message<'_>, data: &FlightData) -> Result<Decoded, WireError> {
        let schema = self.known_schema()?;
        let header =
            message.header_as_dictionary_batch().ok_or_else(|| WireError::malformed("Arrow dictionary", "it is not there"))?;
        let values = header.data().ok_or_else(|| WireError::malformed("Arrow dictionary", "no values"))?;
        if header.isDelta() {
            return Err(WireError::malformed("Arrow dictionary", "deltas are not part of the protocol"));
        }
        check_rows(values, data)?;
        check_dictionary(header.id(), values, &schema)?;
        let (body, version) = (aligned(data), message.version());
        guard("Arrow dictionary", || read_dictionary(&body, header, &schema, &mut self.dictionaries, &version))?;
        Ok(Decoded::Context)
    }

    fn batch(&mut self, message: ipc::Message<'_>, data: &FlightData) -> Result<Decoded, WireError> {
        let schema = self.known_schema()?;
        let header = message.header_as_record_batch().ok_or_else(|| WireError::malformed("Arrow batch", "it is not there"))?;
        check_rows(header, data)?;
        check_arrays(header, schema.fields().iter().map(|field| field.data_type()))?;
        let (body, version): (Buffer, MetadataVersion) = (aligned(data), message.version());
        let batch = guard("Arrow batch", || {
            RecordBatchDecoder::try_new(&body, header, schema, &self.dictionaries, &version)?.read_record_batch()
        })?;
        Ok(Decoded::Batch(batch))
    }

    fn known_schema(&self) -> Result<SchemaRef, WireError> {
        self.schema.clone().ok_or_else(|| WireError::malformed("Arrow stream", "rows before their schema"))
    }
}

/// A body in an allocation of its own: messages arrive at any alignment, in network buffers that a small batch would
/// keep whole.
fn aligned(data: &FlightData) -> Buffer {
    Buffer::from(data.data_body.as_ref())
}

fn guard<T>(what: &'static str, read: impl FnOnce() -> Result<T, ArrowError>) -> Result<T, WireError> {
    match catch_unwind(AssertUnwindSafe(read)) {
        Ok(result) => result.map_err(|error| WireError::malformed(what, error)),
        Err(_) => Err(WireError::malformed(what, "it contradicts itself")),
    }
}
