//! Checks of what Vortex takes on trust. Vortex believes a file's statistics of its arrays, and hands values to Arrow
//! unchecked. Bytes that were written to do harm could otherwise end the process, or be read past their end.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

use ::vortex::array::arrays::list::ListArraySlotsExt;
use ::vortex::array::arrays::listview::ListViewArraySlotsExt;
use ::vortex::array::arrays::{List, ListView, PrimitiveArray};
use ::vortex::array::match_each_integer_ptype;
use ::vortex::array::{ArrayRef, ExecutionCtx};
use ::vortex::error::{VortexResult, vortex_ensure, vortex_err};
use arrow::array::{Array, ArrayRef as ArrowRef, AsArray, ByteView};
use arrow::buffer::Buffer;
use arrow::datatypes::DataType;
use arrow::error::ArrowError;

/// The bytes of a view that hold a short value.
const INLINE_BYTES: u32 = 12;
/// The high bits of these bytes.
const INLINE_HIGH: u128 = 0x8080_8080_8080_8080_8080_8080 << 32;
/// For each length of a short value, the bits of its view that come behind it. Behind them, the bits of a longer one's: all.
const BEHIND: [u128; INLINE_BYTES as usize + 2] = {
    let mut behind = [u128::MAX; INLINE_BYTES as usize + 2];
    let mut length = 0;
    while length < INLINE_BYTES {
        behind[length as usize] = u128::MAX << (u32::BITS + 8 * length);
        length += 1;
    }
    behind[INLINE_BYTES as usize] = 0;
    behind
};
/// Values that are looked at together.
const TOGETHER: usize = 1_024;

/// Checks that the lists of a parsed array, and of the arrays within, lie within their items. Callers run this before
/// they use the array.
pub(super) fn check_lists(array: &ArrayRef, context: &mut ExecutionCtx) -> VortexResult<()> {
    if !array.dtype().is_nested() {
        return Ok(());
    }
    for part in array.depth_first_traversal() {
        if let Some(list) = part.as_opt::<List>() {
            let ends = whole_numbers(list.offsets(), context)?;
            vortex_ensure!(ends.is_sorted(), "lists that begin before others end");
            check_end(ends.last().copied().unwrap_or(0), list.elements())?;
        } else if let Some(list) = part.as_opt::<ListView>() {
            let (starts, sizes) = (whole_numbers(list.offsets(), context)?, whole_numbers(list.sizes(), context)?);
            for (start, size) in starts.iter().zip(sizes) {
                check_end(start.saturating_add(size), list.elements())?;
            }
        }
    }
    Ok(())
}

fn check_end(end: u64, items: &ArrayRef) -> VortexResult<()> {
    vortex_ensure!(end <= items.len() as u64, "a list up to item {end} of {}", items.len());
    Ok(())
}

fn whole_numbers(array: &ArrayRef, context: &mut ExecutionCtx) -> VortexResult<Vec<u64>> {
    let numbers = array.clone().execute::<PrimitiveArray>(context)?;
    vortex_ensure!(numbers.ptype().is_int(), "places of lists that are no whole numbers");
    let places = match_each_integer_ptype!(numbers.ptype(), |T| { places(numbers.as_slice::<T>()) });
    places.ok_or_else(|| vortex_err!("a list at a place below 0"))
}

fn places<T: TryInto<u64> + Copy>(numbers: &[T]) -> Option<Vec<u64>> {
    numbers.iter().map(|number| (*number).try_into().ok()).collect()
}

/// The parts of an open slice that were found sound. Bytes in memory do not change, so one check is enough. This is
/// true for windows of which all rows were decoded. Selected rows take other ways through the decoders, and are checked
/// each time; they are few.
pub(super) struct Sound {
    page_rows: u64,
    pages: u64,
    /// For each column and page, the number of rows of the window that starts there and is sound. 0: no such window is
    /// known.
    rows: Vec<AtomicU32>,
}

impl Sound {
    /// The state in which nothing is known yet. A slice's index takes at least two bytes for each column and page.
    pub(super) fn new(columns: usize, pages: u64, page_rows: u64) -> Self {
        let entries = usize::try_from(pages).unwrap_or(0).saturating_mul(columns);
        Self { page_rows, pages, rows: std::iter::repeat_with(AtomicU32::default).take(entries).collect() }
    }

    /// Checks all rows of a column in a window, unless that was done before.
    pub(super) fn check_window(&self, column: usize, window: &Range<u64>, values: &ArrowRef) -> Result<(), ArrowError> {
        let Some(known) = self.entry(column, window.start) else { return check_values(values) };
        let rows = u32::try_from(window.end - window.start).unwrap_or(0);
        if rows == 0 || known.load(Ordering::Relaxed) != rows {
            check_values(values)?;
            known.store(rows, Ordering::Relaxed);
        }
        Ok(())
    }

    /// None if the window starts within a page.
    fn entry(&self, column: usize, start: u64) -> Option<&AtomicU32> {
        let page = start.checked_div(self.page_rows).filter(|page| page * self.page_rows == start && *page < self.pages)?;
        self.rows.get(usize::try_from(page + column as u64 * self.pages).ok()?)
    }
}

/// Checks that decoded values are what Arrow takes them for: texts are UTF-8, and lie within their bytes.
pub(super) fn check_values(array: &ArrowRef) -> Result<(), ArrowError> {
    match array.data_type() {
        DataType::Utf8View => {
            let texts = array.as_string_view();
            check_views(texts.views(), texts.data_buffers(), true)
        }
        DataType::BinaryView => {
            let values = array.as_binary_view();
            check_views(values.views(), values.data_buffers(), false)
        }
        nested if nested.is_nested() => array.to_data().validate_full(),
        _ => Ok(()),
    }
}

/// Short values of ASCII need no look at each. Of others, one pass over the bytes shows for most pages that no text needs a check of
/// its own. Where there are many more bytes than the texts use, as with the bytes of a dictionary, each text is checked instead.
fn check_views(views: &[u128], buffers: &[Buffer], is_text: bool) -> Result<(), ArrowError> {
    let look = || {
        let texts: usize = views.iter().map(|view| *view as u32 as usize).sum();
        is_text && (buffers.iter().map(|buffer| buffer.len()).sum::<usize>() > 2 * texts || !are_ascii(buffers))
    };
    let mut known = None;
    let are_sound = |views: &[u128]| {
        are_short(views, is_text) || {
            let look = *known.get_or_insert_with(look);
            views.iter().all(|view| is_sound(*view, buffers, is_text, look))
        }
    };
    match views.chunks(TOGETHER).all(are_sound) {
        true => Ok(()),
        false => Err(ArrowError::InvalidArgumentError("a text that is not UTF-8, or not where it should be".to_owned())),
    }
}

/// Whether all values are in their views, with nothing behind them, and texts are ASCII.
fn are_short(views: &[u128], is_text: bool) -> bool {
    let high = if is_text { INLINE_HIGH } else { 0 };
    let odd = views.iter().fold(0, |odd, view| odd | view & (BEHIND[(*view as u32).min(INLINE_BYTES + 1) as usize] | high));
    odd == 0
}

fn are_ascii(buffers: &[Buffer]) -> bool {
    buffers.iter().all(|buffer| buffer.is_ascii())
}

fn is_sound(view: u128, buffers: &[Buffer], is_text: bool, look: bool) -> bool {
    let length = view as u32;
    if length <= INLINE_BYTES {
        let is_ascii = view & INLINE_HIGH == 0;
        let is_utf8 = || std::str::from_utf8(&view.to_le_bytes()[4..4 + length as usize]).is_ok();
        // What comes behind the value is zero.
        let is_clean = view.checked_shr(u32::BITS + 8 * length).unwrap_or(0) == 0;
        return is_clean && (is_ascii || !is_text || is_utf8());
    }
    let view = ByteView::from(view);
    let start = view.offset as usize;
    let value = buffers.get(view.buffer_index as usize).and_then(|buffer| buffer.get(start..start + length as usize));
    value.is_some_and(|value| value.starts_with(&view.prefix.to_le_bytes()) && (!look || std::str::from_utf8(value).is_ok()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{BinaryViewArray, StringViewArray};

    use super::*;

    #[test]
    fn texts_pass_and_other_bytes_do_not() {
        let texts = ["", "short", "a text that is not inline", "é", "日本語 – a text that is not inline"];
        let sound: ArrowRef = Arc::new(StringViewArray::from_iter_values(texts));
        check_values(&sound).unwrap();
        for bytes in [&b"\xff"[..], b"a text that is not inline\xff", b"\xc3", b"twelve bytes\xc3"] {
            let values = BinaryViewArray::from_iter_values([b"plain", bytes]);
            assert!(check_views(values.views(), values.data_buffers(), true).is_err(), "{}", bytes.escape_ascii());
            check_views(values.views(), values.data_buffers(), false).unwrap();
        }
    }

    #[test]
    fn short_values_have_nothing_behind_them() {
        for length in 0..=INLINE_BYTES {
            let text = "abcdefghijkl".get(..length as usize).unwrap();
            let view = StringViewArray::from_iter_values([text]).views()[0];
            assert!(are_short(&[view, view], true), "{length}");
            for byte in length..INLINE_BYTES {
                assert!(!are_short(&[view, view | 1 << (u32::BITS + 8 * byte)], false), "{length} {byte}");
            }
        }
        let long = StringViewArray::from_iter_values(["thirteen byte"]).views()[0];
        let other = StringViewArray::from_iter_values(["é"]).views()[0];
        assert!(!are_short(&[long], true) && !are_short(&[other], true) && are_short(&[other], false));
        assert!(!are_short(&[u128::from(u32::MAX)], false) && are_short(&[], true));
    }

    #[test]
    fn a_window_is_looked_at_once() {
        let damaged = BinaryViewArray::from_iter_values([b"twelve bytes\xc3"]);
        // SAFETY: no text is made of it; it is only read as bytes.
        let damaged: ArrowRef = Arc::new(unsafe { damaged.to_string_view_unchecked() });
        let sound: ArrowRef = Arc::new(StringViewArray::from_iter_values(["short"]));
        let known = Sound::new(2, 3, 8);
        known.check_window(1, &(8..16), &sound).unwrap();
        known.check_window(1, &(8..16), &damaged).unwrap();
        for (column, window) in [(0, 8..16), (1, 0..8), (1, 8..24), (1, 9..16), (1, 24..32), (2, 8..16)] {
            assert!(known.check_window(column, &window, &damaged).is_err(), "{column} {window:?}");
            assert!(known.check_window(column, &window, &damaged).is_err(), "again {column} {window:?}");
        }
    }

    #[test]
    fn views_that_lie_do_not_pass() {
        let values = BinaryViewArray::from_iter_values([b"a text that is not inline"]);
        let (view, buffers) = (values.views()[0], values.data_buffers());
        check_views(&[view], buffers, true).unwrap();
        let (length, prefix, buffer, offset) = (1, 1 << 32, 1 << 64, 1 << 96);
        for lie in [length, prefix, buffer, offset, u128::MAX << 96] {
            assert!(check_views(&[view.wrapping_add(lie)], buffers, true).is_err(), "{lie:x}");
        }
        assert!(check_views(&[(u128::from(b'a') << 32 | 1) | 1 << 60], &[], true).is_err(), "bytes behind a short text");
    }
}
