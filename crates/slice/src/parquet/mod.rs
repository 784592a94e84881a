//! Parquet: files that lie where they are, of which each row group is a slice, and an encoding of slices.
//!
//! A slice's body is a file of one row group, with the index of pages behind it as every encoding has it. Such a body is
//! also made of a row group of an attached file, without copying its column chunks, so one reader reads what was stored,
//! what came over the link, and what lies in a directory of somebody else.

mod body;
mod casts;
mod chunks;
mod columns;
mod file;
mod footer;
mod grid;
mod read;
mod row_group;
mod rows;
mod statistics;
mod whole;
mod write;

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use bytes::Bytes;

pub use columns::Origin;
pub use file::ParquetFile;

pub(crate) use columns::{Columns, Source};
pub(crate) use file::constant_summary;
pub(crate) use footer::dataset_schema;
pub(crate) use grid::part_of;

use crate::guard::guarded;
use crate::pages;
use crate::stored::{SliceParts, Stored};
use crate::{Encoding, SliceError, SliceReader};

const NAME: &str = "parquet";
/// Parquet.
#[derive(Debug)]
pub(crate) struct ParquetEncoding;

impl Encoding for ParquetEncoding {
    fn name(&self) -> &'static str {
        NAME
    }

    fn id(&self) -> (u16, u16) {
        (3, 1)
    }

    fn supports(&self, schema: &SchemaRef) -> Result<(), SliceError> {
        schema.fields().iter().try_for_each(|field| write::supports(field))
    }

    fn encode(&self, schema: &SchemaRef, batches: &[RecordBatch]) -> Result<Vec<u8>, SliceError> {
        let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
        let mut body = guarded(|| write::write_file(schema, batches))?;
        pages::append(&mut body, rows as u64, &pages::page_bounds(batches))?;
        Ok(body)
    }

    fn open(&self, schema: &SchemaRef, body: Bytes) -> Result<Arc<dyn SliceReader>, SliceError> {
        let slice = guarded(|| read::ParquetSlice::open(schema.clone(), Stored::whole(body), None))?;
        Ok(Arc::new(slice))
    }

    fn open_parts(&self, schema: &SchemaRef, parts: SliceParts, pages: &[u8]) -> Result<Arc<dyn SliceReader>, SliceError> {
        let body = Stored::some(parts.body_bytes, parts.parts)?;
        let slice = guarded(|| read::ParquetSlice::open(schema.clone(), body, Some(pages)))?;
        Ok(Arc::new(slice))
    }
}
