//! UUIDs as texts. They are 16 bytes, in columns that say so by Arrow's extension type `arrow.uuid`.

use std::borrow::Cow;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, FixedSizeBinaryArray, RecordBatch, RecordBatchOptions, StringViewBuilder};
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use pithead_model::is_uuid;
use uuid::Uuid;

use super::{RowWriter, WriteError};

/// The batch with texts such as `00000000-0000-0000-0000-00000000002a` in the place of its columns of UUIDs.
pub fn uuids_as_texts(batch: &RecordBatch) -> Cow<'_, RecordBatch> {
    let schema = batch.schema();
    if !schema.fields().iter().any(|field| is_uuid(field)) {
        return Cow::Borrowed(batch);
    }
    let column = |(column, field): (&ArrayRef, &FieldRef)| match is_uuid(field) {
        true => texts(column).unwrap_or_else(|| Arc::clone(column)),
        false => Arc::clone(column),
    };
    let columns = batch.columns().iter().zip(schema.fields()).map(column).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(with_texts(&schema), columns, &options).map_or(Cow::Borrowed(batch), Cow::Owned)
}

/// The schema of such batches.
pub(super) fn with_texts(schema: &SchemaRef) -> SchemaRef {
    let field = |field: &FieldRef| match is_uuid(field) {
        true => Arc::new(Field::new(field.name(), DataType::Utf8View, field.is_nullable())),
        false => Arc::clone(field),
    };
    let fields: Vec<FieldRef> = schema.fields().iter().map(field).collect();
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}

fn texts(column: &ArrayRef) -> Option<ArrayRef> {
    let uuids = column.as_any().downcast_ref::<FixedSizeBinaryArray>()?;
    let mut texts = StringViewBuilder::with_capacity(uuids.len());
    for uuid in uuids {
        match uuid.map(Uuid::from_slice) {
            Some(uuid) => texts.append_value(uuid.ok()?.hyphenated().encode_lower(&mut Uuid::encode_buffer())),
            None => texts.append_null(),
        }
    }
    Some(Arc::new(texts.finish()))
}

/// Writes UUIDs as texts.
pub(super) struct UuidTexts<'a>(pub(super) Box<dyn RowWriter + Send + 'a>);

impl RowWriter for UuidTexts<'_> {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), WriteError> {
        self.0.write(&uuids_as_texts(batch))
    }

    fn finish(self: Box<Self>) -> Result<(), WriteError> {
        self.0.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{WriteOptions, file_writer};
    use super::*;
    use crate::Format;

    #[test]
    fn uuids_are_written_with_hyphens_and_other_bytes_without() {
        let [uuid, bytes] = ["u", "b"].map(|name| Field::new(name, DataType::FixedSizeBinary(16), true));
        let schema: SchemaRef = Arc::new(Schema::new(vec![uuid.with_metadata(pithead_model::uuid_metadata()), bytes]));
        let values = FixedSizeBinaryArray::try_from_sparse_iter_with_size([Some([7_u8; 16]), None].into_iter(), 16).unwrap();
        let values: ArrayRef = Arc::new(values);
        let batch = RecordBatch::try_new(Arc::clone(&schema), vec![Arc::clone(&values), values]).unwrap();
        for (format, expected) in [
            (Format::Csv, "u,b\n07070707-0707-0707-0707-070707070707,07070707070707070707070707070707\n,\n"),
            (
                Format::Json,
                "{\"u\":\"07070707-0707-0707-0707-070707070707\",\"b\":\"07070707070707070707070707070707\"}\n{\"u\":null,\"b\":null}\n",
            ),
        ] {
            let mut out = Vec::new();
            let mut writer = file_writer(&WriteOptions::new(format), &schema, &mut out).unwrap();
            writer.write(&batch).unwrap();
            writer.finish().unwrap();
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        }
        assert!(matches!(uuids_as_texts(&batch.project(&[1]).unwrap()), Cow::Borrowed(_)));
    }
}
