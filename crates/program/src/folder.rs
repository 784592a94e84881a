//! [`FolderServices`]: the files of one folder, as the services of a process without a drive.

use std::collections::VecDeque;
use std::fmt::Display;
use std::fs;
use std::io::{BufReader, IoSliceMut};
use std::os::fd::AsFd;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use arrow::array::Array;
use arrow::error::ArrowError;
use arrow::ipc::reader::FileReader;
use arrow::record_batch::RecordBatch;
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use rustix::fs::{Advice, fadvise};
use rustix::io::{Errno, ReadWriteFlags, preadv2};

use crate::arrow_port::to_ipc;
use crate::services::{Dataset, File, Level, LogLine, ServiceError, Services};

/// Files, key-values and datasets of one folder: `a/b` is the file `a/b`, the value of the key `k` is the file `keys/k`, and the
/// dataset `d` is the Arrow IPC file `d.arrow`. Lines of the log go to `tracing`. Symbolic links that lead out of the folder
/// are refused.
#[derive(Clone, Debug)]
pub struct FolderServices {
    folder: PathBuf,
}

impl FolderServices {
    /// Fails if there is no such folder.
    pub fn new(folder: impl AsRef<Path>) -> Result<Self, ServiceError> {
        let folder = folder.as_ref();
        let failed = |error| ServiceError::Failed(format!("the folder {} cannot be used: {error}", folder.display()));
        let folder = folder.canonicalize().map_err(failed)?;
        match folder.is_dir() {
            true => Ok(Self { folder }),
            false => Err(ServiceError::Failed(format!("{} is no folder", folder.display()))),
        }
    }

    /// Opens a file below the folder. A leading slash stands for the folder itself.
    fn file(&self, name: &str) -> Result<fs::File, ServiceError> {
        let relative = Path::new(name.trim_start_matches('/'));
        let inside = relative.components().all(|part| matches!(part, Component::Normal(_)));
        if !inside || relative.as_os_str().is_empty() {
            return Err(ServiceError::Denied(format!("{name:?} does not name a file below the folder of the drive")));
        }
        let path = self.folder.join(relative).canonicalize().map_err(|error| missing(name, &error))?;
        if !path.starts_with(&self.folder) {
            return Err(ServiceError::Denied(format!("{name:?} leads out of the folder of the drive")));
        }
        if !path.is_file() {
            return Err(ServiceError::NotFound(format!("{name:?} is no file")));
        }
        fs::File::open(path).map_err(|error| missing(name, &error))
    }
}

fn missing(name: &str, error: &std::io::Error) -> ServiceError {
    match error.kind() {
        std::io::ErrorKind::NotFound => ServiceError::NotFound(format!("there is no file {name:?}")),
        _ => ServiceError::Failed(format!("the file {name:?} cannot be read: {error}")),
    }
}

impl Services for FolderServices {
    fn open<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Arc<dyn File>, ServiceError>> {
        let opened = self.file(name).and_then(|file| {
            let size = file.metadata().map_err(|error| missing(name, &error))?.len();
            Ok(Arc::new(FolderFile { file: Arc::new(file), size, name: name.to_owned() }) as Arc<dyn File>)
        });
        std::future::ready(opened).boxed()
    }

    fn value<'a>(&'a self, key: &'a [u8]) -> BoxFuture<'a, Result<Option<Bytes>, ServiceError>> {
        async move {
            let key = std::str::from_utf8(key).map_err(|_| ServiceError::Failed("keys of a folder are UTF-8".to_owned()))?;
            let file = match self.open(&format!("keys/{key}")).await {
                Ok(file) => file,
                Err(ServiceError::NotFound(_)) => return Ok(None),
                Err(error) => return Err(error),
            };
            let mut bytes = vec![0; file.size() as usize];
            let length = file.read(0, &mut bytes).await?;
            bytes.truncate(length);
            Ok(Some(bytes.into()))
        }
        .boxed()
    }

    fn dataset<'a>(&'a self, name: &'a str, columns: &'a [&'a str]) -> BoxFuture<'a, Result<Box<dyn Dataset>, ServiceError>> {
        let opened = self.file(&format!("{name}.arrow")).and_then(|file| open_dataset(name, file, columns));
        std::future::ready(opened.map(|dataset| Box::new(dataset) as Box<dyn Dataset>)).boxed()
    }

    fn log(&self, line: LogLine<'_>) {
        let LogLine { application, module, ssdlet, level, text } = line;
        match level {
            Level::Debug => tracing::debug!(application, module, ssdlet, "{text}"),
            Level::Info => tracing::info!(application, module, ssdlet, "{text}"),
            Level::Warning => tracing::warn!(application, module, ssdlet, "{text}"),
            Level::Error => tracing::error!(application, module, ssdlet, "{text}"),
        }
    }
}

struct FolderFile {
    file: Arc<fs::File>,
    size: u64,
    name: String,
}

impl File for FolderFile {
    fn size(&self) -> u64 {
        self.size
    }

    fn read<'a>(&'a self, offset: u64, into: &'a mut [u8]) -> BoxFuture<'a, Result<usize, ServiceError>> {
        async move {
            let mut done = 0;
            while done < into.len() {
                let read = match self.read_cached(offset + done as u64, &mut into[done..]) {
                    Err(Errno::AGAIN | Errno::OPNOTSUPP) => self.read_blocking(offset + done as u64, &mut into[done..]).await,
                    other => other.map_err(|error| missing(&self.name, &error.into())),
                }?;
                if read == 0 {
                    break;
                }
                done += read;
            }
            Ok(done)
        }
        .boxed()
    }

    fn ahead(&self, offset: u64, bytes: u64) {
        // Only a hint: where it is refused, reads wait a little longer.
        let _ = fadvise(self.file.as_fd(), offset, std::num::NonZeroU64::new(bytes), Advice::WillNeed);
    }
}

impl FolderFile {
    /// Reads what the system has in memory, straight into the guest's memory; fails with `AGAIN` where the medium would be
    /// waited for.
    fn read_cached(&self, offset: u64, into: &mut [u8]) -> Result<usize, Errno> {
        preadv2(self.file.as_fd(), &mut [IoSliceMut::new(into)], offset, ReadWriteFlags::NOWAIT)
    }

    /// Reads on a thread that may wait for the medium.
    async fn read_blocking(&self, offset: u64, into: &mut [u8]) -> Result<usize, ServiceError> {
        let (file, length) = (Arc::clone(&self.file), into.len());
        let read = tokio::task::spawn_blocking(move || {
            let mut bytes = vec![0; length];
            std::os::unix::fs::FileExt::read_at(&*file, &mut bytes, offset).map(|length| (bytes, length))
        });
        let lost = |error| ServiceError::Failed(format!("a read of {:?} was lost: {error}", self.name));
        let (bytes, length) = read.await.map_err(lost)?.map_err(|error| missing(&self.name, &error))?;
        into[..length].copy_from_slice(&bytes[..length]);
        Ok(length)
    }
}

/// A batch with more bytes is halved: a guest takes 16 MiB in one call at most.
const DATASET_BATCH_BYTES_MAX: usize = 4 << 20;

struct FolderDataset {
    name: String,
    /// None while a batch is being read, and if that was cut off.
    batches: Option<FolderBatches>,
}

/// The batches of an Arrow file, small enough for guests.
struct FolderBatches {
    reader: FileReader<BufReader<fs::File>>,
    /// What is left of a batch that was halved, in order.
    rest: VecDeque<RecordBatch>,
}

fn open_dataset(name: &str, file: fs::File, columns: &[&str]) -> Result<FolderDataset, ServiceError> {
    let failed = |error: ArrowError| ServiceError::Failed(format!("the dataset {name} cannot be read: {error}"));
    let dataset = |reader| {
        let batches = FolderBatches { reader, rest: VecDeque::new() };
        FolderDataset { name: name.to_owned(), batches: Some(batches) }
    };
    let reader =
        FileReader::try_new_buffered(file.try_clone().map_err(|error| missing(name, &error))?, None).map_err(failed)?;
    if columns.is_empty() {
        return Ok(dataset(reader));
    }
    let schema = reader.schema();
    let index = |column: &&str| {
        let names = || schema.fields().iter().map(|field| field.name().as_str()).collect::<Vec<_>>().join(", ");
        schema.index_of(column).map_err(|_| {
            ServiceError::NotFound(format!("the dataset {name} has no column {column}; the columns are {}", names()))
        })
    };
    let projection = columns.iter().map(index).collect::<Result<Vec<_>, _>>()?;
    FileReader::try_new_buffered(file, Some(projection)).map(dataset).map_err(failed)
}

impl FolderBatches {
    fn next(&mut self) -> Result<Option<Bytes>, ArrowError> {
        loop {
            let batch = match self.rest.pop_front() {
                Some(batch) => batch,
                None => match self.reader.next().transpose()? {
                    Some(batch) => batch,
                    None => return Ok(None),
                },
            };
            let (rows, bytes) = (batch.num_rows(), data_bytes(&batch));
            let halves = [(0, rows / 2), (rows / 2, rows - rows / 2)].map(|(from, count)| batch.slice(from, count));
            // Parts of views have all texts of the whole: they are not halved for ever.
            let is_halved = bytes > DATASET_BATCH_BYTES_MAX && rows > 1 && data_bytes(&halves[0]) < bytes;
            match rows {
                0 => {}
                _ if is_halved => halves.into_iter().rev().for_each(|half| self.rest.push_front(half)),
                _ => return to_ipc(&batch).map(Some),
            }
        }
    }
}

/// Bytes of the rows of a batch, which may be a part of another one.
fn data_bytes(batch: &RecordBatch) -> usize {
    batch.columns().iter().map(|column| column.to_data().get_slice_memory_size().unwrap_or(0)).sum()
}

impl Dataset for FolderDataset {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Bytes>, ServiceError>> {
        async move {
            let failed =
                |error: &dyn Display| ServiceError::Failed(format!("the dataset {} cannot be read: {error}", self.name));
            let mut batches = self.batches.take().ok_or_else(|| failed(&"a read was cut off"))?;
            // Decoding waits for the medium, so it is done on a thread that may.
            let read = tokio::task::spawn_blocking(move || (batches.next(), batches));
            let (batch, batches) = read.await.map_err(|error| failed(&error))?;
            self.batches = Some(batches);
            batch.map_err(|error| failed(&error))
        }
        .boxed()
    }

    /// Batches are read one by one, and only what is left of one is kept.
    fn held_bytes(&self) -> usize {
        self.batches.iter().flat_map(|batches| &batches.rest).map(data_bytes).sum()
    }
}
