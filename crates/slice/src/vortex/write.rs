//! Writing a Vortex file into memory.

use std::sync::Arc;

use ::vortex::VortexSessionDefault;
use ::vortex::array::iter::ArrayIteratorAdapter;
use ::vortex::arrow::ArrowSessionExt;
use ::vortex::compressor::BtrBlocksCompressorBuilder;
use ::vortex::editions::{CORE_2026_08_3, EditionId, EditionSessionExt};
use ::vortex::error::{VortexResult, vortex_err};
use ::vortex::file::WriteOptionsSessionExt;
use ::vortex::io::runtime::BlockingRuntime;
use ::vortex::io::runtime::single::SingleThreadRuntime;
use ::vortex::io::session::RuntimeSessionExt;
use ::vortex::layout::LayoutStrategy;
use ::vortex::layout::layouts::buffered::BufferedStrategy;
use ::vortex::layout::layouts::chunked::writer::ChunkedLayoutStrategy;
use ::vortex::layout::layouts::collect::CollectStrategy;
use ::vortex::layout::layouts::compressed::{CompressingStrategy, CompressorPlugin};
use ::vortex::layout::layouts::dict::writer::DictStrategy;
use ::vortex::layout::layouts::flat::writer::FlatLayoutStrategy;
use ::vortex::layout::layouts::repartition::{RepartitionStrategy, RepartitionWriterOptions};
use ::vortex::layout::layouts::struct_::StructStrategy;
use ::vortex::session::VortexSession;
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use pithead_model::PAGE_ROWS;
use vortex_btrblocks::SchemeExt;
use vortex_btrblocks::schemes::integer::IntDictScheme;
use vortex_btrblocks::schemes::string::OnPairScheme;

use super::types::{row_type, stored_schema, to_stored};

/// The edition in which files are written: the encodings that they may use. Readers of this release know all of it.
const EDITION: EditionId = CORE_2026_08_3;
/// The intended uncompressed bytes of one segment: small enough that a scan of few pages reads little.
const SEGMENT_BYTES: u64 = 1 << 20;

thread_local! {
    /// Compression runs on the calling thread. Loads that want more threads encode more slices at a time.
    static WRITER: (SingleThreadRuntime, VortexSession) = writer();
}

fn writer() -> (SingleThreadRuntime, VortexSession) {
    let runtime = SingleThreadRuntime::default();
    let session = <VortexSession as VortexSessionDefault>::default().with_handle(runtime.handle());
    (runtime, session)
}

/// The rows as a Vortex file.
pub(super) fn write_file(schema: &SchemaRef, batches: &[RecordBatch]) -> VortexResult<Vec<u8>> {
    WRITER.with(|(runtime, session)| {
        session.enable_edition(EDITION).map_err(|error| vortex_err!("{error}"))?;
        let stored = Arc::new(stored_schema(schema));
        let chunks = batches
            .iter()
            .filter(|batch| batch.num_rows() > 0)
            .map(|batch| session.arrow().from_arrow_record_batch(to_stored(batch, &stored)?, &stored))
            .collect::<Vec<_>>();
        let mut file = Vec::new();
        session
            .write_options()
            .with_strategy(strategy(session))
            .with_file_statistics(Vec::new())
            .blocking(runtime)
            .write(&mut file, ArrayIteratorAdapter::new(row_type(&stored)?, chunks.into_iter()))?;
        Ok(file)
    })
}

/// Vortex's default way to write, except for its statistics of zones; Pithead's bounds are behind the file (see
/// [`crate::pages`]). It writes column by column: rows in blocks of a page, dictionaries where they help, and otherwise
/// segments of whole pages, each compressed as a sample of it suggests.
fn strategy(session: &VortexSession) -> Arc<dyn LayoutStrategy> {
    // Where OnPair is a little smaller than FSST, it takes several times as long to search: its codes have 12 bits.
    let builder = BtrBlocksCompressorBuilder::from_session(session).exclude_schemes([OnPairScheme.id()]);
    let compressor: Arc<dyn CompressorPlugin> = Arc::new(builder.clone().build());
    // The codes of a dictionary do not get a dictionary of their own.
    let data_compressor: Arc<dyn CompressorPlugin> = Arc::new(builder.exclude_schemes([IntDictScheme.id()]).build());
    let flat: Arc<dyn LayoutStrategy> = Arc::new(FlatLayoutStrategy::default());
    let chunks = BufferedStrategy::new(ChunkedLayoutStrategy::new(flat.clone()), 2 * SEGMENT_BYTES);
    let segments = RepartitionStrategy::new(
        CompressingStrategy::new(chunks, data_compressor),
        RepartitionWriterOptions {
            block_size_minimum: SEGMENT_BYTES,
            block_len_multiple: PAGE_ROWS,
            block_size_target: Some(SEGMENT_BYTES),
            canonicalize: true,
        },
    );
    let small = CompressingStrategy::new(flat, compressor.clone());
    let dictionaries = DictStrategy::new(segments.clone(), small.clone(), segments, Default::default(), compressor);
    let pages = RepartitionStrategy::new(
        dictionaries,
        RepartitionWriterOptions {
            block_size_minimum: 0,
            block_len_multiple: PAGE_ROWS,
            block_size_target: None,
            canonicalize: false,
        },
    );
    Arc::new(StructStrategy::new(Arc::new(CollectStrategy::new(small)), Arc::new(pages)))
}
