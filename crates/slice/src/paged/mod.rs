//! Pages of rows as databases have them on a medium: what the encodings `nsm` (row by row) and `pax` (column by column)
//! share. They differ in how a page is laid out ([`Layout`]).
//!
//! ```text
//! +--------+--------+-----+--------+--------------+------------------+---------+--------+----------+--------+------------+
//! | page 0 | page 1 | ... | page n | the columns, | where each group | bytes   | groups | bytes of | layout | "PHPAGES1" |
//! |        |        |     |        | as Arrow's   | of pages starts  | of a    | 4      | the      | 4      | 8          |
//! |        |        |     |        | flatbuffer   | 4 x (groups + 1) | page 4  |        | columns 4|        |            |
//! +--------+--------+-----+--------+--------------+------------------+---------+--------+----------+--------+------------+
//! ```
//!
//! A group of pages has the 8,192 rows that everything above counts as one page: bounds, hints and what travels are for
//! groups. Pages here are what a medium reads: 8 KiB with as many rows as fit. A row that does not fit into one has a
//! run of pages to itself.

mod file;
mod header;
mod layout;
mod open;
mod scan;
mod shape;
mod sink;
mod slice;
mod source;

use std::marker::PhantomData;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use bytes::Bytes;

pub(crate) use header::HEADER_BYTES;
pub(crate) use layout::{Layout, PageColumn};
pub(crate) use shape::{Form, Shape, Width};
pub(crate) use source::Source;

use crate::guard::guarded;
use crate::pages;
use crate::stored::{SliceParts, Stored};
use crate::{Encoding, SliceError, SliceReader};

/// Pages of one layout.
#[derive(Debug)]
pub(crate) struct PagedEncoding<L>(PhantomData<L>);

impl<L> PagedEncoding<L> {
    pub(crate) const fn new() -> Self {
        Self(PhantomData)
    }
}

impl<L: Layout> Encoding for PagedEncoding<L> {
    fn name(&self) -> &'static str {
        L::NAME
    }

    fn id(&self) -> (u16, u16) {
        L::ID
    }

    fn supports(&self, schema: &SchemaRef) -> Result<(), SliceError> {
        shape::supports(schema, L::NAME)
    }

    fn encode(&self, schema: &SchemaRef, batches: &[RecordBatch]) -> Result<Vec<u8>, SliceError> {
        let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
        let mut body = file::write::<L>(schema, batches)?;
        pages::append(&mut body, rows as u64, &pages::page_bounds(batches))?;
        Ok(body)
    }

    fn open(&self, schema: &SchemaRef, body: Bytes) -> Result<Arc<dyn SliceReader>, SliceError> {
        let slice = guarded(|| slice::PagedSlice::<L>::open(schema.clone(), Stored::whole(body), None))?;
        Ok(Arc::new(slice))
    }

    fn open_parts(&self, schema: &SchemaRef, parts: SliceParts, pages: &[u8]) -> Result<Arc<dyn SliceReader>, SliceError> {
        let body = Stored::some(parts.body_bytes, parts.parts)?;
        let slice = guarded(|| slice::PagedSlice::<L>::open(schema.clone(), body, Some(pages)))?;
        Ok(Arc::new(slice))
    }
}
