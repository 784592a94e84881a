//! The pages of a slice, and their bounds: a grid of equal rows, over whatever pages the columns of a file have.

use std::ops::Range;

use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData};
use parquet::file::page_index::column_index::ColumnIndexMetaData;
use parquet::file::page_index::offset_index::PageLocation;
use pithead_model::{ColumnSummary, PAGE_ROWS, merge_columns};

use super::statistics::{Raw, Types};

/// A page of a column chunk: its rows, and what is known of them.
struct Page {
    rows: Range<u64>,
    summary: ColumnSummary,
}

/// Where the pages of each column chunk of a row group lie, if that is known of all of them and fits the chunks.
pub(super) fn locations(group: &ParquetMetaData) -> Option<Vec<&[PageLocation]>> {
    let found = group.offset_index()?.first()?;
    let columns = group.row_group(0).columns();
    if found.len() != columns.len() {
        return None;
    }
    let rows = group.row_group(0).num_rows();
    let each = found.iter().zip(columns).map(|(index, chunk)| {
        let locations = index.page_locations.as_slice();
        fit(locations, chunk, rows).then_some(locations)
    });
    each.collect()
}

/// Whether pages lie within their chunk, one behind the other, and so do their rows.
fn fit(locations: &[PageLocation], chunk: &ColumnChunkMetaData, rows: i64) -> bool {
    let Some(within) = super::footer::chunk_range(chunk) else { return false };
    let Ok(end) = i64::try_from(within.end) else { return false };
    let mut free = within.start as i64;
    let mut row = -1;
    for location in locations {
        let page_end = location.offset.checked_add(location.compressed_page_size.into());
        let fits = location.offset >= free && location.compressed_page_size > 0 && page_end.is_some_and(|page| page <= end);
        if !fits || location.first_row_index <= row || location.first_row_index >= rows {
            return false;
        }
        (free, row) = (location.offset + i64::from(location.compressed_page_size), location.first_row_index);
    }
    locations.first().is_some_and(|first| first.first_row_index == 0 && first.offset == chunk.data_page_offset())
}

/// Summaries of the pages of these rows of a row group, page by page, for one column.
///
/// `whole` is the summary of all rows of the group. The index counts where it has the same pages as `locations`.
pub(super) fn column_pages(
    rows: &Range<u64>,
    whole: &ColumnSummary,
    index: Option<(&ColumnIndexMetaData, &[PageLocation], u64)>,
    types: &Types<'_>,
) -> Vec<ColumnSummary> {
    let grid = (rows.start..rows.end).step_by(PAGE_ROWS).map(|start| start..rows.end.min(start + PAGE_ROWS as u64));
    let pages = index.and_then(|(index, locations, group_rows)| chunk_pages(index, locations, group_rows, types));
    let Some(pages) = pages else { return grid.map(|page| part_of(whole, page.end - page.start)).collect() };
    let mut first = 0;
    grid.map(|page| {
        while pages.get(first).is_some_and(|other| other.rows.end <= page.start) {
            first += 1;
        }
        let overlapping = pages[first..].iter().take_while(|other| other.rows.start < page.end);
        let parts: Vec<ColumnSummary> = overlapping.map(|other| overlap(other, &page)).collect();
        let merged = merge_columns(parts.iter().map(std::slice::from_ref)).pop();
        merged.unwrap_or_else(|| part_of(whole, page.end - page.start))
    })
    .collect()
}

/// What is known of some rows of those that a summary is of.
pub(crate) fn part_of(whole: &ColumnSummary, rows: u64) -> ColumnSummary {
    let none = whole.nulls == 0 && !whole.nulls_unknown;
    let all = whole.exact && whole.min.is_none() && whole.max.is_none() && !none;
    match all {
        true => ColumnSummary { exact: true, nulls: rows, ..Default::default() },
        false => {
            ColumnSummary { exact: false, nulls: 0, nulls_unknown: !none, distinct: whole.distinct.min(rows), ..whole.clone() }
        }
    }
}

fn overlap(page: &Page, rows: &Range<u64>) -> ColumnSummary {
    let shared = page.rows.end.min(rows.end) - page.rows.start.max(rows.start);
    match shared == page.rows.end - page.rows.start {
        true => page.summary.clone(),
        false => part_of(&page.summary, shared),
    }
}

/// The pages of a chunk with their bounds; none where the index cannot be true.
fn chunk_pages(
    index: &ColumnIndexMetaData,
    locations: &[PageLocation],
    group_rows: u64,
    types: &Types<'_>,
) -> Option<Vec<Page>> {
    if matches!(index, ColumnIndexMetaData::NONE) || index.num_pages() != locations.len() as u64 {
        return None;
    }
    let required = types.required;
    let starts = locations.iter().map(|location| location.first_row_index as u64);
    let ends = locations.iter().skip(1).map(|location| location.first_row_index as u64).chain([group_rows]);
    starts
        .zip(ends)
        .enumerate()
        .map(|(number, (start, end))| {
            let rows = end.checked_sub(start)?;
            if index.is_null_page(number) && !required {
                return Some(Page {
                    rows: start..end,
                    summary: ColumnSummary { exact: true, nulls: rows, ..Default::default() },
                });
            }
            let nulls = index.null_count(number).and_then(|nulls| u64::try_from(nulls).ok()).filter(|nulls| *nulls <= rows);
            let (min, max) = raw_bounds(index, number);
            let bounds = types.bounds(min, max, false);
            let summary = ColumnSummary {
                min: bounds.min,
                max: bounds.max,
                exact: false,
                nulls: if required { 0 } else { nulls.unwrap_or(0) },
                nulls_unknown: !required && nulls.is_none(),
                distinct: 0,
            };
            Some(Page { rows: start..end, summary })
        })
        .collect()
}

fn raw_bounds(index: &ColumnIndexMetaData, page: usize) -> (Option<Raw<'_>>, Option<Raw<'_>>) {
    match index {
        ColumnIndexMetaData::BOOLEAN(index) => {
            (index.min_value(page).copied().map(Raw::Bool), index.max_value(page).copied().map(Raw::Bool))
        }
        ColumnIndexMetaData::INT32(index) => {
            let raw = |value: Option<&i32>| value.map(|value| Raw::Int(i64::from(*value)));
            (raw(index.min_value(page)), raw(index.max_value(page)))
        }
        ColumnIndexMetaData::INT64(index) => {
            (index.min_value(page).copied().map(Raw::Int), index.max_value(page).copied().map(Raw::Int))
        }
        ColumnIndexMetaData::FLOAT(index) => {
            let raw = |value: Option<&f32>| value.map(|value| Raw::Float(f64::from(*value)));
            (raw(index.min_value(page)), raw(index.max_value(page)))
        }
        ColumnIndexMetaData::DOUBLE(index) => {
            (index.min_value(page).copied().map(Raw::Float), index.max_value(page).copied().map(Raw::Float))
        }
        ColumnIndexMetaData::BYTE_ARRAY(index) | ColumnIndexMetaData::FIXED_LEN_BYTE_ARRAY(index) => {
            (index.min_value(page).map(Raw::Bytes), index.max_value(page).map(Raw::Bytes))
        }
        ColumnIndexMetaData::NONE | ColumnIndexMetaData::INT96(_) => (None, None),
    }
}
