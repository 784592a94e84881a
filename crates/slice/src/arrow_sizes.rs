//! What a batch of an Arrow IPC file says of its sizes, before the decoder makes room for it.

use arrow::ipc::RecordBatch;

/// Rows of a batch at most: those without values take no bytes.
const ROWS_MAX: i64 = 1 << 31;
/// What a batch may take in memory: so much, and so many times its bytes in the file.
const BYTES_MAX: u64 = 64 << 20;
const RATIO_MAX: u64 = 64;

/// Fills in the first bytes of a buffer, given by its number and where it begins in the body. Whether it is to be decoded.
pub type FirstBytes<'a> = dyn FnMut(usize, u64, &mut [u8]) -> Result<bool, String> + 'a;

/// The sizes of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchSizes {
    /// Rows.
    pub rows: u64,
    /// What its buffers take in memory.
    pub bytes: u64,
}

/// Checks what the decoder would make room for: the buffers of a batch whose body has so many bytes. Each is copied where it lies
/// at an odd place, and decompressed to the size in its first bytes, which `first` gives; buffers for which it says `false` are not
/// decoded. The error says which size does not hold.
pub fn check_batch(batch: &RecordBatch<'_>, body: u64, first: &mut FirstBytes<'_>) -> Result<BatchSizes, String> {
    let rows = u64::try_from(batch.length()).ok().filter(|_| batch.length() <= ROWS_MAX);
    let rows = rows.ok_or_else(|| format!("a batch of {} rows; at most {ROWS_MAX} are read", batch.length()))?;
    let allowed = BYTES_MAX.saturating_add(RATIO_MAX.saturating_mul(body));
    let mut bytes = 0_u64;
    for (number, buffer) in batch.buffers().into_iter().flatten().enumerate() {
        let wrong = || format!("a buffer of {} bytes at {} of a batch", buffer.length(), buffer.offset());
        let length = u64::try_from(buffer.length()).map_err(|_| wrong())?;
        let start = u64::try_from(buffer.offset()).map_err(|_| wrong())?;
        if start.checked_add(length).is_none_or(|end| end > body) {
            return Err(wrong());
        }
        let mut size = length;
        if batch.compression().is_some() && length > 0 {
            let mut prefix = [0; 8];
            if first(number, start, prefix.get_mut(..length.min(8) as usize).ok_or_else(wrong)?)? {
                // Below 0: as it is.
                size = u64::try_from(i64::from_le_bytes(prefix)).unwrap_or(length);
            }
        }
        bytes = bytes.saturating_add(size);
    }
    match bytes <= allowed {
        true => Ok(BatchSizes { rows, bytes }),
        false => {
            Err(format!("a batch of {bytes} bytes, {body} in the file; at most {allowed} are read: write smaller batches"))
        }
    }
}
