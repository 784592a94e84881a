//! One column of a file: its segments, which a scan parses once and decodes a page at a time.
//!
//! Vortex's own readers of layouts parse a segment again for each range of rows, which for pages costs more than
//! decoding them. This reader knows only the layouts that [`super::write`] makes, and needs no futures.

use std::cell::OnceCell;
use std::ops::{BitAnd, Range};

use ::vortex::array::arrays::{ChunkedArray, DictArray};
use ::vortex::array::builtins::ArrayBuiltins;
use ::vortex::array::dtype::DType;
use ::vortex::array::expr::BoundExpression;
use ::vortex::array::serde::SerializedArray;
use ::vortex::array::{ArrayRef, Canonical, ExecutionCtx, IntoArray};
use ::vortex::error::{VortexResult, vortex_bail, vortex_ensure, vortex_err};
use ::vortex::layout::LayoutRef;
use ::vortex::layout::layouts::chunked::Chunked;
use ::vortex::layout::layouts::dict::Dict;
use ::vortex::layout::layouts::flat::{Flat, FlatLayout};
use ::vortex::mask::Mask;

use super::SESSION;
use super::members::Members;
use super::read::CountedSegments;
use super::runs::Runs;
use super::sound::check_lists;
use super::texts::CodedTexts;
use crate::matcher::Matcher;

/// The deepest nesting of layouts: chunks of dictionaries of chunks, and one level to spare.
const DEPTH_MAX: usize = 5;
/// The most parts of a column: some for each page that a slice can have.
const PARTS_MAX: usize = 1 << 16;
/// The most values of a dictionary: its codes have 16 bits. The values are decoded as a whole.
const VALUES_MAX: u64 = 1 << 16;

/// A column, or a part of one.
pub(super) struct Column {
    rows: u64,
    dtype: DType,
    kind: ColumnLayout,
}

enum ColumnLayout {
    Flat {
        layout: FlatLayout,
        parsed: OnceCell<Parsed>,
        /// Its texts, prepared for the scan's condition on this column; none if the matcher cannot search in them.
        texts: OnceCell<Option<Box<CodedTexts>>>,
    },
    Chunks {
        /// The start of each chunk, and the end of the last one.
        starts: Vec<u64>,
        chunks: Vec<Column>,
    },
    Dictionary {
        codes: Box<Column>,
        values: Box<Column>,
        decoded: OnceCell<ArrayRef>,
        /// The verdict of the scan's condition on this column for each value, NULL being false; none where it is false
        /// for all values.
        verdicts: OnceCell<Option<ArrayRef>>,
    },
}

/// A segment, parsed but not decoded.
struct Parsed {
    whole: ArrayRef,
    runs: Option<Runs>,
}

/// A condition on one column.
#[derive(Debug)]
pub(super) struct Condition {
    /// The condition over the column's values. A scan has at most one for each column, since its verdicts on a
    /// dictionary are cached.
    pub(super) test: Test,
    /// Whether NULL never satisfies it, so that it can be evaluated on a dictionary's values.
    pub(super) strict: bool,
    /// Below this share of a page's rows, the condition is evaluated on those rows only.
    pub(super) few: f64,
    /// What of the condition is patterns of bytes, if something is.
    pub(super) matcher: Option<Matcher>,
}

/// How values are found that satisfy a condition.
#[derive(Debug)]
pub(super) enum Test {
    /// They are looked up among whole numbers.
    Members(Members),
    /// An expression is evaluated.
    Expression(BoundExpression),
}

impl Test {
    /// The rows of `mask` whose values satisfy it. `values` are those of all rows. With less than a share of `few`, only the rows of
    /// the mask are looked at.
    pub(super) fn among(&self, values: ArrayRef, mask: Mask, few: f64, context: &mut ExecutionCtx) -> VortexResult<Mask> {
        match self {
            Test::Members(members) if mask.density() < few => {
                let among = members.among(values.filter(mask.clone())?, context)?;
                Ok(mask.intersect_by_rank(&among))
            }
            Test::Members(members) => Ok(mask.bitand(&members.among(values, context)?)),
            Test::Expression(expression) => select(values.apply_bound(expression)?, mask, few, context),
        }
    }

    /// The values that satisfy it.
    fn among_all(&self, values: ArrayRef, context: &mut ExecutionCtx) -> VortexResult<Mask> {
        let all = Mask::new_true(values.len());
        self.among(values, all, 0.0, context)
    }
}

/// Rows of a part, whose number fits into memory.
fn within(rows: &Range<u64>) -> Range<usize> {
    rows.start as usize..rows.end as usize
}

impl Column {
    pub(super) fn new(layout: &LayoutRef) -> VortexResult<Self> {
        let mut parts_left = PARTS_MAX;
        Self::at_depth(layout, 0, &mut parts_left)
    }

    /// A few bytes can name the same part again and again, so parts are counted.
    fn at_depth(layout: &LayoutRef, depth: usize, parts_left: &mut usize) -> VortexResult<Self> {
        vortex_ensure!(depth < DEPTH_MAX, "layouts are nested too deep");
        *parts_left = parts_left.checked_sub(1).ok_or_else(|| vortex_err!("a layout has too many parts"))?;
        let mut slot = |slot: usize| -> VortexResult<Self> {
            let child = layout.slot(slot)?.ok_or_else(|| vortex_err!("a layout lacks a part"))?;
            Self::at_depth(&child, depth + 1, parts_left)
        };
        let kind = if let Some(flat) = layout.as_opt::<Flat>() {
            ColumnLayout::Flat { layout: flat.to_owned(), parsed: OnceCell::new(), texts: OnceCell::new() }
        } else if layout.is::<Chunked>() {
            let chunks = (0..layout.nslots()).map(slot).collect::<VortexResult<Vec<_>>>()?;
            let mut starts = vec![0u64];
            for chunk in &chunks {
                let end = starts.last().copied().unwrap_or(0).checked_add(chunk.rows);
                starts.push(end.ok_or_else(|| vortex_err!("chunks have too many rows"))?);
            }
            ColumnLayout::Chunks { starts, chunks }
        } else if layout.is::<Dict>() {
            ColumnLayout::Dictionary {
                values: Box::new(slot(0)?),
                codes: Box::new(slot(1)?),
                decoded: OnceCell::new(),
                verdicts: OnceCell::new(),
            }
        } else {
            vortex_bail!("layout {} is not one that slices are written with", layout.encoding_id());
        };
        let column = Self { rows: layout.row_count(), dtype: layout.dtype().clone(), kind };
        column.check()?;
        Ok(column)
    }

    /// Checks that the parts have as many rows as the whole.
    fn check(&self) -> VortexResult<()> {
        if let ColumnLayout::Dictionary { values, .. } = &self.kind {
            vortex_ensure!(values.rows <= VALUES_MAX, "a dictionary of {} values; at most {VALUES_MAX} are read", values.rows);
        }
        let rows = match &self.kind {
            ColumnLayout::Flat { .. } => self.rows,
            ColumnLayout::Chunks { starts, .. } => starts.last().copied().unwrap_or(0),
            ColumnLayout::Dictionary { codes, .. } => codes.rows,
        };
        vortex_ensure!(rows == self.rows, "a layout of {} rows has parts of {rows}", self.rows);
        Ok(())
    }

    /// Adds the numbers of the segments that hold these rows, which ascend. Parses nothing.
    pub(super) fn segments(&self, rows: &[Range<u64>], found: &mut Vec<usize>) {
        if rows.is_empty() {
            return;
        }
        match &self.kind {
            ColumnLayout::Flat { layout, .. } => found.push(*layout.segment_id() as usize),
            ColumnLayout::Chunks { starts, chunks } => {
                for (chunk, start) in chunks.iter().zip(starts) {
                    let within = |rows: &Range<u64>| {
                        let part = rows.start.max(*start)..rows.end.min(start + chunk.rows);
                        (!part.is_empty()).then(|| part.start - start..part.end - start)
                    };
                    chunk.segments(&rows.iter().filter_map(within).collect::<Vec<_>>(), found);
                }
            }
            ColumnLayout::Dictionary { codes, values, .. } => {
                codes.segments(rows, found);
                let all = 0..values.rows;
                values.segments(std::slice::from_ref(&all), found);
            }
        }
    }

    /// The rows of the part, not decoded yet.
    pub(super) fn rows(
        &self,
        rows: Range<u64>,
        segments: &CountedSegments,
        context: &mut ExecutionCtx,
    ) -> VortexResult<ArrayRef> {
        vortex_ensure!(rows.start <= rows.end && rows.end <= self.rows, "rows {rows:?} of {} are asked for", self.rows);
        match &self.kind {
            ColumnLayout::Flat { layout, parsed, .. } => {
                let (Parsed { whole, runs }, rows) = (parse(layout, parsed, segments, context)?, within(&rows));
                match runs {
                    Some(runs) => runs.rows(rows, context),
                    None => whole.slice(rows),
                }
            }
            ColumnLayout::Chunks { starts, chunks } => {
                let first = starts.partition_point(|start| *start <= rows.start).saturating_sub(1);
                let mut parts = Vec::with_capacity(1);
                for (chunk, start) in chunks[first..].iter().zip(&starts[first..]).take_while(|(_, start)| **start < rows.end) {
                    let part = rows.start.max(*start) - start..rows.end.min(start + chunk.rows) - start;
                    parts.push(chunk.rows(part, segments, context)?);
                }
                match parts.len() {
                    1 => Ok(parts.swap_remove(0)),
                    _ => Ok(ChunkedArray::try_new(parts, self.dtype.clone())?.into_array()),
                }
            }
            ColumnLayout::Dictionary { codes, .. } => {
                let codes = codes.rows(rows, segments, context)?;
                Ok(DictArray::try_new(codes, self.dictionary(segments, context)?.clone())?.into_array())
            }
        }
    }

    /// The rows of `mask`, which selects among `rows`, that satisfy a condition on this column.
    pub(super) fn filter(
        &self,
        rows: Range<u64>,
        condition: &Condition,
        mut mask: Mask,
        segments: &CountedSegments,
        context: &mut ExecutionCtx,
    ) -> VortexResult<Mask> {
        match &self.kind {
            ColumnLayout::Chunks { starts, chunks } => {
                let chunk = starts.partition_point(|start| *start <= rows.start).saturating_sub(1);
                if let Some(chunk_at) = chunks.get(chunk)
                    && rows.end <= starts[chunk] + chunk_at.rows
                {
                    let part = rows.start - starts[chunk]..rows.end - starts[chunk];
                    return chunk_at.filter(part, condition, mask, segments, context);
                }
            }
            ColumnLayout::Dictionary { codes, verdicts, .. } if condition.strict => {
                let verdicts = match verdicts.get() {
                    Some(verdicts) => verdicts,
                    None => {
                        let found = self.judge(condition, segments, context)?;
                        verdicts.get_or_init(|| found)
                    }
                };
                return match verdicts {
                    None => Ok(Mask::new_false(mask.len())),
                    Some(verdicts) => {
                        select(verdicts.take(codes.rows(rows, segments, context)?)?, mask, condition.few, context)
                    }
                };
            }
            ColumnLayout::Flat { layout, parsed, texts } => {
                if let Some(matcher) = &condition.matcher {
                    let Parsed { whole, .. } = parse(layout, parsed, segments, context)?;
                    let texts = match texts.get() {
                        Some(texts) => texts,
                        None => {
                            let found = CodedTexts::new(whole, matcher, context)?;
                            texts.get_or_init(|| found)
                        }
                    };
                    if let Some(texts) = texts {
                        let found = texts.search(matcher, within(&rows), &mask)?;
                        segments.stats.matched(mask.true_count(), found.true_count());
                        if matcher.is_exact() || found.all_false() {
                            return Ok(found);
                        }
                        mask = found;
                    }
                }
            }
            _ => {}
        }
        if mask.density() >= condition.few
            && let Some((runs, rows)) = self.runs(&rows, segments, context)?
        {
            let judge = |values: ArrayRef| condition.test.among_all(values, context);
            return runs.select(rows, &mask, judge);
        }
        let values = self.rows(rows, segments, context)?;
        condition.test.among(values, mask, condition.few, context)
    }

    /// The runs of the part that holds these rows, and which of its rows they are; none where they are not stored as runs, or are in
    /// several parts.
    pub(super) fn runs(
        &self,
        rows: &Range<u64>,
        segments: &CountedSegments,
        context: &mut ExecutionCtx,
    ) -> VortexResult<Option<(&Runs, Range<usize>)>> {
        match &self.kind {
            ColumnLayout::Flat { layout, parsed, .. } => {
                vortex_ensure!(rows.start <= rows.end && rows.end <= self.rows, "rows {rows:?} of {} are asked for", self.rows);
                let runs = &parse(layout, parsed, segments, context)?.runs;
                Ok(runs.as_ref().map(|runs| (runs, within(rows))))
            }
            ColumnLayout::Chunks { starts, chunks } => {
                let chunk = starts.partition_point(|start| *start <= rows.start).saturating_sub(1);
                match chunks.get(chunk).filter(|_| rows.end <= starts[chunk + 1]) {
                    Some(part) => part.runs(&(rows.start - starts[chunk]..rows.end - starts[chunk]), segments, context),
                    None => Ok(None),
                }
            }
            ColumnLayout::Dictionary { .. } => Ok(None),
        }
    }

    /// The verdict of a condition for each value of the dictionary.
    fn judge(
        &self,
        condition: &Condition,
        segments: &CountedSegments,
        context: &mut ExecutionCtx,
    ) -> VortexResult<Option<ArrayRef>> {
        let values = self.dictionary(segments, context)?.clone();
        let found = condition.test.among_all(values, context)?;
        Ok((!found.all_false()).then(|| found.into_array()))
    }

    /// The values of a dictionary, decoded.
    fn dictionary(&self, segments: &CountedSegments, context: &mut ExecutionCtx) -> VortexResult<&ArrayRef> {
        let ColumnLayout::Dictionary { values, decoded, .. } = &self.kind else { vortex_bail!("the column has no dictionary") };
        if let Some(values) = decoded.get() {
            return Ok(values);
        }
        let values = values.rows(0..values.rows, segments, context)?.execute::<Canonical>(context)?.into_array();
        Ok(decoded.get_or_init(|| values))
    }
}

/// The rows of `mask` for which `verdicts` is true. `verdicts` has one value for each row that the mask selects among,
/// and is not evaluated yet. If the mask has less than a share of `few`, only its rows are evaluated.
pub(super) fn select(verdicts: ArrayRef, mask: Mask, few: f64, context: &mut ExecutionCtx) -> VortexResult<Mask> {
    if mask.density() < few {
        let among = verdicts.filter(mask.clone())?.fill_null(false)?.execute::<Mask>(context)?;
        return Ok(mask.intersect_by_rank(&among));
    }
    let verdicts = verdicts.fill_null(false)?.execute::<Mask>(context)?;
    Ok(mask.bitand(&verdicts))
}

/// The segment of a layout, parsed and checked once.
fn parse<'a>(
    layout: &FlatLayout,
    parsed: &'a OnceCell<Parsed>,
    segments: &CountedSegments,
    context: &mut ExecutionCtx,
) -> VortexResult<&'a Parsed> {
    if let Some(parsed) = parsed.get() {
        return Ok(parsed);
    }
    let segment = segments.segment(layout.segment_id())?;
    let serialized = match layout.array_tree() {
        Some(tree) => SerializedArray::from_flatbuffer_and_segment(tree.clone(), segment)?,
        None => SerializedArray::try_from(segment)?,
    };
    let rows = usize::try_from(layout.row_count())?;
    let whole = serialized.decode(layout.dtype(), rows, layout.array_ctx(), &SESSION)?;
    check_lists(&whole, context)?;
    let runs = Runs::of(&whole, context)?;
    Ok(parsed.get_or_init(|| Parsed { whole, runs }))
}
