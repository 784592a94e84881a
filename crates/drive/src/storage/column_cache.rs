//! [`CachingReader`]: a slice of an attached file, whose columns are kept in a drive's own encoding once they are read again.
//!
//! Decoding a column of Parquet costs several times what the same column costs as it is loaded. So a column that is asked for a second
//! time is encoded in the background as a load would do it, and later scans read that, as long as there is room for it. What is sent
//! to a host as it is stored still comes from the file.

use std::fmt::Debug;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use futures::TryStreamExt;
use parking_lot::Mutex;
use pithead_model::{Blame, Fault, PageSet};
use pithead_sched::Class;
use pithead_slice::{
    Predicate, Scan, ScanRequest, Search, SliceError, SliceParts, SliceReader, encode_slice, encoding, encoding_names,
    open_slice,
};
use tokio::sync::Semaphore;

use crate::resources::Workers;

/// The place of one slice among those that are kept open.
pub(crate) trait Room: Send + Sync + Debug {
    /// Whether the slice is kept open at all.
    fn is_there(&self) -> bool;

    /// Takes so many bytes for it, for which others may have to go. False: there is no room.
    fn take(&self, bytes: u64) -> bool;
}

/// An open slice of a file, with the columns that are kept of it.
#[derive(Debug)]
pub(crate) struct CachingReader {
    file: Arc<dyn SliceReader>,
    cache: Arc<ColumnCache>,
}

/// What is read of a slice, and what is kept.
#[derive(Debug)]
struct ColumnCache {
    schema: SchemaRef,
    room: Box<dyn Room>,
    workers: Workers,
    /// One slice of a drive is encoded at a time.
    turn: Arc<Semaphore>,
    columns: Mutex<ColumnUse>,
}

#[derive(Debug, Default)]
struct ColumnUse {
    /// Those that were read at all, in their order.
    read: Vec<usize>,
    kept: Option<CachedColumns>,
    /// Whether they are being encoded, or cannot be.
    is_busy: bool,
}

#[derive(Clone, Debug)]
struct CachedColumns {
    columns: Arc<[usize]>,
    reader: Arc<dyn SliceReader>,
}

impl CachingReader {
    /// Over an open slice of a dataset with this schema.
    pub(crate) fn new(
        file: Arc<dyn SliceReader>,
        schema: SchemaRef,
        room: Box<dyn Room>,
        workers: Workers,
        turn: Arc<Semaphore>,
    ) -> CachingReader {
        CachingReader { file, cache: Arc::new(ColumnCache { schema, room, workers, turn, columns: Mutex::default() }) }
    }

    /// Has columns encoded in the background.
    fn keep(&self, columns: Vec<usize>) {
        let (file, cache) = (Arc::clone(&self.file), Arc::clone(&self.cache));
        let keep = async move {
            let Ok(_turn) = cache.turn.acquire().await else { return };
            match cache.encoded(&*file, &columns).await {
                Ok(kept) => cache.columns.lock().put(kept),
                Err(fault) => tracing::debug!(%fault, "columns of an attached slice are not kept"),
            }
        };
        self.cache.workers.spawn(Class::Background, keep);
    }
}

impl ColumnCache {
    /// The kept columns that this request can be answered from, and the request to them.
    fn kept(&self, request: &ScanRequest) -> Option<(Arc<dyn SliceReader>, ScanRequest)> {
        let kept = self.columns.lock().kept.clone()?;
        Some((kept.reader, request.among(&kept.columns)?))
    }

    /// Notes that columns are read from the file. If they were before, all that were ever read are to be kept.
    fn note(&self, needs: &[usize]) -> Option<Vec<usize>> {
        let mut columns = self.columns.lock();
        let is_repeated = needs.iter().all(|column| columns.read.contains(column));
        columns.read.extend(needs);
        columns.read.sort_unstable();
        columns.read.dedup();
        if columns.is_busy || !is_repeated || !self.room.is_there() {
            return None;
        }
        columns.is_busy = true;
        Some(columns.read.clone())
    }

    /// Columns as a slice in the drive's encoding.
    async fn encoded(&self, file: &dyn SliceReader, columns: &[usize]) -> Result<CachedColumns, Fault> {
        if !self.room.is_there() {
            return Err(Fault::new(Blame::Limit, "the slice is not kept open any longer"));
        }
        let schema = Arc::new(self.schema.project(columns).map_err(|error| SliceError::Schema(error.to_string()))?);
        let scan = file.scan(ScanRequest::all_rows(columns.to_vec()))?;
        let batches: Vec<RecordBatch> = scan.stream.try_collect().await?;
        let encode = move || -> Result<_, SliceError> {
            let encoding = encoding_names().first().and_then(|name| encoding(name));
            let encoding = encoding.ok_or_else(|| SliceError::Schema("there is no encoding".into()))?;
            let encoded = encode_slice(&*encoding, &schema, &batches)?;
            drop(batches);
            Ok((encoded.bytes.len() as u64, open_slice(&schema, encoded.bytes)?))
        };
        let (bytes, reader) = self.workers.blocking(encode).await??;
        if reader.rows() != file.rows() {
            return Err(Fault::new(Blame::Bug, format!("{} rows were read of {}", reader.rows(), file.rows())));
        }
        match self.room.take(bytes) {
            true => Ok(CachedColumns { columns: columns.into(), reader }),
            false => Err(Fault::new(Blame::Limit, format!("there is no room for {bytes} bytes"))),
        }
    }
}

impl ColumnUse {
    fn put(&mut self, kept: CachedColumns) {
        self.kept = Some(kept);
        self.is_busy = false;
    }
}

impl SliceReader for CachingReader {
    fn rows(&self) -> u64 {
        self.file.rows()
    }

    fn scan(&self, request: ScanRequest) -> Result<Scan, SliceError> {
        let needs = request.needs();
        // A sample is of the pages that the file has.
        if needs.is_empty() || request.sample.is_some() {
            return self.file.scan(request);
        }
        if let Some((reader, request)) = self.cache.kept(&request) {
            return reader.scan(request);
        }
        if let Some(columns) = self.cache.note(&needs) {
            self.keep(columns);
        }
        self.file.scan(request)
    }

    fn may_match(&self, predicates: &[Predicate]) -> Result<PageSet, SliceError> {
        self.file.may_match(predicates)
    }

    fn rows_of(&self, pages: &PageSet) -> u64 {
        self.file.rows_of(pages)
    }

    fn search(&self, request: ScanRequest) -> Result<Search, SliceError> {
        self.file.search(request)
    }

    fn parts(&self, columns: &[usize], pages: &PageSet) -> Result<SliceParts, SliceError> {
        self.file.parts(columns, pages)
    }

    fn is_far(&self) -> bool {
        self.file.is_far()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use arrow::array::{ArrayRef, Int64Array, StringViewArray};
    use pithead_model::Value;
    use pithead_sched::{Pool, PoolOptions};
    use pithead_slice::Compare;

    use super::*;

    /// A place that is there, or is not.
    #[derive(Debug)]
    struct Place(Arc<AtomicBool>);

    impl Room for Place {
        fn is_there(&self) -> bool {
            self.0.load(Ordering::Relaxed)
        }

        fn take(&self, bytes: u64) -> bool {
            bytes > 0 && self.is_there()
        }
    }

    /// 20,000 rows of three columns in the encoding that is not the default, as if they were a file's.
    fn reader(is_there: &Arc<AtomicBool>) -> CachingReader {
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..20_000));
        let texts: ArrayRef =
            Arc::new(StringViewArray::from_iter((0..20_000).map(|n| (n % 3 > 0).then(|| format!("text {n}")))));
        let halves: ArrayRef = Arc::new(Int64Array::from_iter_values((0..20_000).map(|n| n / 2)));
        let batch = RecordBatch::try_from_iter([("n", numbers), ("t", texts), ("h", halves)]).unwrap();
        let schema = batch.schema();
        let encoded = encode_slice(&*encoding("arrow").unwrap(), &schema, &[batch]).unwrap();
        let file = open_slice(&schema, encoded.bytes).unwrap();
        let options = PoolOptions { name: "test".into(), cores: None, reactors: 1, blocking_threads_max: 4 };
        let workers = Workers::new(Arc::new(Pool::new(options).unwrap()));
        CachingReader::new(file, schema, Box::new(Place(Arc::clone(is_there))), workers, Arc::new(Semaphore::new(1)))
    }

    /// Texts of the rows whose half is 5,000 or more.
    fn texts_of_halves() -> ScanRequest {
        let predicates = vec![Predicate::Compare { column: 2, op: Compare::Ge, value: Value::Int(5_000) }];
        ScanRequest { predicates, zone_maps: true, ..ScanRequest::all_rows(vec![1, 2]) }
    }

    async fn rows(reader: &CachingReader, request: ScanRequest) -> Vec<String> {
        let batches: Vec<RecordBatch> = reader.scan(request).unwrap().stream.try_collect().await.unwrap();
        let text =
            |batch: &RecordBatch| arrow::util::pretty::pretty_format_batches(std::slice::from_ref(batch)).unwrap().to_string();
        let lines = batches.iter().map(text).collect::<Vec<_>>();
        let lines = lines.iter().flat_map(|table| table.lines()).filter(|line| line.contains("text") || line.contains("5000"));
        lines.map(|line| line.replace(' ', "")).collect()
    }

    async fn kept(reader: &CachingReader) -> Vec<usize> {
        for _ in 0..500 {
            tokio::time::sleep(Duration::from_millis(10)).await;
            let columns = reader.cache.columns.lock();
            if !columns.is_busy {
                return columns.kept.as_ref().map(|kept| kept.columns.to_vec()).unwrap_or_default();
            }
        }
        vec![]
    }

    #[tokio::test]
    async fn columns_that_are_read_again_are_kept_and_give_the_same_rows() {
        let is_there = Arc::new(AtomicBool::new(true));
        let reader = reader(&is_there);
        let first = rows(&reader, texts_of_halves()).await;
        assert_eq!(kept(&reader).await, Vec::<usize>::new(), "they were read once");
        assert_eq!(rows(&reader, texts_of_halves()).await, first);
        assert_eq!(kept(&reader).await, [1, 2]);
        assert!(reader.cache.kept(&texts_of_halves()).is_some());
        assert!(reader.cache.kept(&ScanRequest::all_rows(vec![0])).is_none(), "another column");
        // Rows that the encodings leave in differ; those that are wanted do not.
        let wanted = |rows: Vec<String>| rows.into_iter().filter(|row| row.contains("text1999")).collect::<Vec<_>>();
        assert_eq!(wanted(rows(&reader, texts_of_halves()).await), wanted(first));
        // Others are kept beside them once they are read again.
        for _ in 0..2 {
            rows(&reader, ScanRequest::all_rows(vec![0])).await;
        }
        assert_eq!(kept(&reader).await, [0, 1, 2]);
    }

    #[tokio::test]
    async fn nothing_is_kept_without_a_place() {
        let is_there = Arc::new(AtomicBool::new(false));
        let reader = reader(&is_there);
        for _ in 0..3 {
            rows(&reader, texts_of_halves()).await;
        }
        assert_eq!(kept(&reader).await, Vec::<usize>::new());
    }
}
