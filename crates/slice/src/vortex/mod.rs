//! The default encoding: a Vortex file, compressed by sampling (BtrBlocks), read without a copy and page by page.
//!
//! The file's columns are named by their positions, so that no name of a dataset can mean something to Vortex.

mod column;
mod members;
mod predicate;
mod read;
mod runs;
mod sound;
mod texts;
mod types;
mod unseen;
mod write;

use std::sync::{Arc, LazyLock};

use ::vortex::VortexSessionDefault;
use ::vortex::error::VortexError;
use ::vortex::session::VortexSession;
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use bytes::Bytes;

use crate::guard::guarded;
use crate::pages;
use crate::stored::{SliceParts, Stored};
use crate::{Encoding, SliceError, SliceReader};

const NAME: &str = "vortex";

/// The registries of encodings and layouts, which are all that reading needs. There is no runtime, since nothing is
/// spawned.
static SESSION: LazyLock<VortexSession> = LazyLock::new(<VortexSession as VortexSessionDefault>::default);

/// Vortex.
#[derive(Debug)]
pub(crate) struct VortexEncoding;

impl Encoding for VortexEncoding {
    fn name(&self) -> &'static str {
        NAME
    }

    /// The version means release 0.90 and the edition that [`write`] pins. A change of either takes a new version.
    fn id(&self) -> (u16, u16) {
        (2, 1)
    }

    fn supports(&self, schema: &SchemaRef) -> Result<(), SliceError> {
        schema.fields().iter().try_for_each(|field| types::supports(field))
    }

    fn encode(&self, schema: &SchemaRef, batches: &[RecordBatch]) -> Result<Vec<u8>, SliceError> {
        let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
        let mut body = guarded(|| write::write_file(schema, batches).map_err(codec))?;
        pages::append(&mut body, rows as u64, &pages::page_bounds(batches))?;
        Ok(body)
    }

    fn open(&self, schema: &SchemaRef, body: Bytes) -> Result<Arc<dyn SliceReader>, SliceError> {
        self.supports(schema)?;
        let slice = guarded(|| read::VortexSlice::open(schema.clone(), Stored::whole(body), None))?;
        Ok(Arc::new(slice))
    }

    fn open_parts(&self, schema: &SchemaRef, parts: SliceParts, pages: &[u8]) -> Result<Arc<dyn SliceReader>, SliceError> {
        self.supports(schema)?;
        let body = Stored::some(parts.body_bytes, parts.parts)?;
        let slice = guarded(|| read::VortexSlice::open(schema.clone(), body, Some(pages)))?;
        Ok(Arc::new(slice))
    }
}

fn codec(error: VortexError) -> SliceError {
    SliceError::Codec { encoding: NAME, what: first_line(&error) }
}

fn damaged(error: VortexError) -> SliceError {
    SliceError::Corrupt(first_line(&error))
}

/// The message without the backtrace that Vortex appends.
fn first_line(error: &VortexError) -> String {
    error.to_string().lines().next().unwrap_or_default().to_string()
}
