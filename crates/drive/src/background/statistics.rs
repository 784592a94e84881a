//! [`StatisticsService`]: columns of slices that queries have read in vain get a filter of their values.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::executor::block_on;
use pithead_model::SliceKey;
use pithead_sched::{Progress, Service, Stepped};
use pithead_slice::{ScanRequest, SliceStream, ValueFilter, open_slice};
use pithead_store::Store;

use crate::storage::{Filters, Leases, WantedFilter, gone, slice_key};

/// Rows of a step.
const STEP_ROWS: usize = 1_024;
/// How long to wait where no filter is wanted.
const IDLE: Duration = Duration::from_secs(1);
/// How long to wait after a slice could not be read.
const FAILED: Duration = Duration::from_secs(2);
/// A filter is worth at most this share of what it may save to read.
const SHARE_MAX: u64 = 4;

/// Makes the filters that are wanted, one after the other. Nothing has to survive: what is wanted still is asked for again.
pub(super) struct StatisticsService {
    store: Arc<dyn Store>,
    filters: Arc<Filters>,
    leases: Arc<Leases>,
    making: Option<Making>,
    done_bytes: u64,
}

/// A filter that is being made. It holds no lease: the value is in memory, and whoever pauses the service must not keep a
/// run from being deleted.
struct Making {
    wanted: WantedFilter,
    rows: SliceStream,
    filter: ValueFilter,
    /// Bytes of the slice.
    slice_bytes: u64,
    /// Whether all rows were read.
    is_filled: bool,
}

impl StatisticsService {
    pub(super) fn new(store: Arc<dyn Store>, filters: Arc<Filters>, leases: Arc<Leases>) -> StatisticsService {
        StatisticsService { store, filters, leases, making: None, done_bytes: 0 }
    }

    /// Opens the slice of a filter that is wanted; none: it is being deleted.
    fn begin(&self, wanted: WantedFilter) -> Result<Option<Making>, String> {
        let Ok(_lease) = self.leases.lease(vec![run_of(&wanted)]) else { return Ok(None) };
        let value = self.store.get(&slice_key(&wanted.slice)).map_err(|error| error.to_string())?;
        let Some((value, entry)) = value else { return Err(gone(&wanted.slice).message) };
        let scan = || {
            let reader = open_slice(&wanted.schema, value)?;
            let request = ScanRequest { batch_rows: STEP_ROWS, ..ScanRequest::all_rows(vec![wanted.column]) };
            Ok((reader.scan(request)?.stream, ValueFilter::with_room(reader.rows())?))
        };
        let (rows, filter) = scan().map_err(|error: pithead_slice::SliceError| error.to_string())?;
        Ok(Some(Making { wanted, rows, filter, slice_bytes: entry.bytes, is_filled: false }))
    }

    fn end(&self, mut made: Making) -> Result<(), String> {
        made.filter.shrink();
        if made.filter.bytes() > made.slice_bytes / SHARE_MAX {
            self.filters.refuse(&made.wanted);
            return Ok(());
        }
        // So that the slice is not deleted, and the filter left over.
        let Ok(_lease) = self.leases.lease(vec![run_of(&made.wanted)]) else { return Ok(()) };
        let there = self.store.entry(&slice_key(&made.wanted.slice)).map_err(|error| error.to_string())?;
        if there.is_none() {
            return Ok(());
        }
        self.filters.put(&made.wanted, &made.filter).map_err(|fault| fault.message)
    }

    /// One step; none: there is nothing to do.
    fn advance(&mut self) -> Result<Option<u64>, String> {
        let Some(mut making) = self.making.take() else {
            let Some(wanted) = self.filters.next_wanted() else { return Ok(None) };
            self.making = self.begin(wanted)?;
            return Ok(Some(0));
        };
        if making.is_filled {
            return self.end(making).map(|()| Some(0));
        }
        match block_on(making.rows.next()) {
            Some(Ok(batch)) => {
                let bytes = batch.get_array_memory_size() as u64;
                making.filter.insert(batch.column(0));
                self.making = Some(making);
                Ok(Some(bytes))
            }
            Some(Err(error)) => Err(error.to_string()),
            None => {
                making.is_filled = true;
                self.making = Some(making);
                Ok(Some(0))
            }
        }
    }
}

/// The run of the slice that a filter is wanted for.
fn run_of(wanted: &WantedFilter) -> SliceKey {
    SliceKey { number: None, ..wanted.slice.clone() }
}

impl Service for StatisticsService {
    fn step(&mut self) -> Stepped {
        match self.advance() {
            Ok(Some(bytes)) => {
                self.done_bytes += bytes;
                Stepped::Did { bytes }
            }
            Ok(None) => {
                self.done_bytes = 0;
                Stepped::Idle { pause: IDLE }
            }
            Err(why) => Stepped::Failed { why, pause: FAILED },
        }
    }

    fn blocks(&self) -> bool {
        true
    }

    /// While a slice is read whole, or its filter is written, others may wait for that.
    fn only_reads(&self) -> bool {
        self.making.as_ref().is_some_and(|making| !making.is_filled)
    }

    fn progress(&self) -> Progress {
        Progress { done_bytes: self.done_bytes, total_bytes: 0, found: self.filters.count() }
    }

    fn position(&self) -> Vec<u8> {
        Vec::new()
    }

    fn restart(&mut self) {
        (self.making, self.done_bytes) = (None, 0);
    }
}
