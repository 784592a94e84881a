//! [`Frame`]: a batch of arguments as it lies in a guest's memory, with room for the result.
//!
//! All numbers are little-endian, all addresses are the guest's. A frame begins with a header, which is followed by descriptions of
//! the columns, and by their buffers in Arrow's layout, each at a multiple of 8.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, BinaryViewArray, BooleanArray, Float64Array, Int32Array, Int64Array, StringArray,
    StringViewArray,
};
use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{DataType, Float64Type, Int32Type, Int64Type};

/// The bytes of a header: rows, arguments, where their descriptions are, where the result's is, which rows are wanted; and of rows in
/// groups where each row's group is, the number of groups, and where the description of their states is.
const HEADER_BYTES: usize = 32;
/// The bytes of a description: the type's number, and where validity, values and texts are.
const COLUMN_BYTES: usize = 24;

/// The types that functions know, by their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FrameType {
    Boolean = 1,
    Int32 = 2,
    Int64 = 3,
    Float64 = 4,
    Text = 5,
    /// The states of aggregates, which lie like texts.
    Bytes = 6,
}

impl FrameType {
    fn of(data_type: &DataType) -> Result<FrameType, String> {
        Ok(match data_type {
            DataType::Boolean => FrameType::Boolean,
            DataType::Int32 => FrameType::Int32,
            DataType::Int64 => FrameType::Int64,
            DataType::Float64 => FrameType::Float64,
            DataType::Utf8View => FrameType::Text,
            DataType::BinaryView => FrameType::Bytes,
            other => return Err(format!("functions know no {other}")),
        })
    }

    /// The bytes of the values, offsets for texts.
    fn values_bytes(self, rows: usize) -> usize {
        match self {
            FrameType::Boolean => bits(rows),
            FrameType::Int32 => rows * 4,
            FrameType::Int64 | FrameType::Float64 => rows * 8,
            FrameType::Text | FrameType::Bytes => (rows + 1) * 4,
        }
    }
}

/// The bytes of a bit for each row.
fn bits(rows: usize) -> usize {
    rows.div_ceil(8)
}

/// An argument, and where in the frame its buffers are.
struct Column<'a> {
    kind: FrameType,
    array: &'a ArrayRef,
    nulls: Option<NullBuffer>,
    validity: usize,
    values: usize,
    text: usize,
    text_bytes: usize,
}

/// Rows in groups, for aggregates.
#[derive(Clone, Copy)]
pub(super) struct Groups<'a> {
    /// For each row the number of its group.
    pub of_rows: &'a [u32],
    /// For each group its state before the rows; NULL: it has had no row yet.
    pub states: &'a ArrayRef,
}

/// [`Groups`], and where in the frame they are.
struct PlacedGroups<'a> {
    groups: Groups<'a>,
    of_rows: usize,
    description: usize,
    states: Column<'a>,
}

/// A batch that is about to be written.
pub(super) struct Frame<'a> {
    rows: usize,
    columns: Vec<Column<'a>>,
    groups: Option<PlacedGroups<'a>>,
    /// The rows of the result: those of the batch, or its groups.
    results: usize,
    returns: FrameType,
    /// Rows whose result is wanted; none: all.
    wanted: Option<NullBuffer>,
    wanted_at: usize,
    result: usize,
    result_validity: usize,
    result_values: usize,
    bytes: usize,
}

/// Where the result is in the guest's memory, and what it is.
pub(super) struct ResultPlace {
    rows: usize,
    returns: FrameType,
    wanted: Option<NullBuffer>,
    description: usize,
    validity: usize,
    values: usize,
}

/// Hands out places in a frame.
struct Room(usize);

impl Room {
    fn take(&mut self, bytes: usize) -> usize {
        let at = self.0;
        self.0 += bytes.next_multiple_of(8);
        at
    }
}

/// The bytes of a column's texts, or of its states.
pub(super) fn text_bytes(array: &ArrayRef) -> usize {
    let views = match array.data_type() {
        DataType::Utf8View => array.as_string_view().views(),
        DataType::BinaryView => array.as_binary_view().views(),
        _ => return 0,
    };
    let length = |row: usize| if array.is_valid(row) { views[row] as u32 as usize } else { 0 };
    (0..array.len()).map(length).sum()
}

impl<'a> Frame<'a> {
    /// `strict`: rows with a NULL are not wanted.
    pub fn new(columns: &'a [ArrayRef], rows: usize, returns: &DataType, strict: bool) -> Result<Self, String> {
        Frame::of(columns, rows, returns, strict, None)
    }

    /// Rows in groups, each of which gets another state.
    pub fn grouped(columns: &'a [ArrayRef], groups: Groups<'a>) -> Result<Self, String> {
        Frame::of(columns, groups.of_rows.len(), &DataType::BinaryView, false, Some(groups))
    }

    fn of(
        columns: &'a [ArrayRef],
        rows: usize,
        returns: &DataType,
        strict: bool,
        groups: Option<Groups<'a>>,
    ) -> Result<Self, String> {
        let mut room = Room(HEADER_BYTES);
        room.take(columns.len() * COLUMN_BYTES);
        let result = room.take(COLUMN_BYTES);
        let mut wanted = None;
        let mut placed = Vec::with_capacity(columns.len());
        for array in columns {
            let column = Column::new(array, &mut room)?;
            if strict {
                wanted = NullBuffer::union(wanted.as_ref(), column.nulls.as_ref());
            }
            placed.push(column);
        }
        let wanted_at = if wanted.is_some() { room.take(bits(rows)) } else { 0 };
        let place = |groups: Groups<'a>| {
            let (of_rows, description) = (room.take(rows * 4), room.take(COLUMN_BYTES));
            Ok::<_, String>(PlacedGroups { groups, of_rows, description, states: Column::new(groups.states, &mut room)? })
        };
        let groups = groups.map(place).transpose()?;
        let results = groups.as_ref().map_or(rows, |placed| placed.groups.states.len());
        let returns = FrameType::of(returns)?;
        let (result_validity, result_values) = (room.take(bits(results)), room.take(returns.values_bytes(results)));
        Ok(Self {
            rows,
            columns: placed,
            groups,
            results,
            returns,
            wanted,
            wanted_at,
            result,
            result_validity,
            result_values,
            bytes: room.0,
        })
    }

    /// The bytes that it takes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Writes it to a region of its size, which the guest has at the address `at`.
    pub fn write(&self, region: &mut [u8], at: u32) -> ResultPlace {
        let address = |place: usize| if place == 0 { 0 } else { at + place as u32 };
        let (rows, count) = (self.rows as u32, self.columns.len() as u32);
        let arguments = at + HEADER_BYTES as u32;
        put(region, 0, &[rows, count, arguments, address(self.result), address(self.wanted_at), 0, 0, 0]);
        for (index, column) in self.columns.iter().enumerate() {
            column.write(region, HEADER_BYTES + index * COLUMN_BYTES, at);
        }
        if let Some(PlacedGroups { groups, of_rows, description, states }) = &self.groups {
            put(region, 20, &[address(*of_rows), groups.states.len() as u32, address(*description)]);
            put(region, *of_rows, groups.of_rows);
            states.write(region, *description, at);
        }
        if let Some(wanted) = &self.wanted {
            put_bits(region, self.wanted_at, wanted.inner(), self.rows);
        }
        let result = [self.returns as u32, address(self.result_validity), address(self.result_values), 0, 0, 0];
        put(region, self.result, &result);
        region[self.result_validity..][..bits(self.results)].fill(0xff);
        region[self.result_values..][..self.returns.values_bytes(self.results)].fill(0);
        ResultPlace {
            rows: self.results,
            returns: self.returns,
            wanted: self.wanted.clone(),
            description: at as usize + self.result,
            validity: at as usize + self.result_validity,
            values: at as usize + self.result_values,
        }
    }
}

fn put(region: &mut [u8], at: usize, numbers: &[u32]) {
    for (place, number) in region[at..].chunks_exact_mut(4).zip(numbers) {
        place.copy_from_slice(&number.to_le_bytes());
    }
}

fn put_bits(region: &mut [u8], at: usize, values: &BooleanBuffer, rows: usize) {
    region[at..][..bits(rows)].copy_from_slice(&values.sliced().as_slice()[..bits(rows)]);
}

impl<'a> Column<'a> {
    fn new(array: &'a ArrayRef, room: &mut Room) -> Result<Column<'a>, String> {
        let kind = FrameType::of(array.data_type())?;
        let nulls = array.nulls().filter(|nulls| nulls.null_count() > 0).cloned();
        let validity = if nulls.is_some() { room.take(bits(array.len())) } else { 0 };
        let values = room.take(kind.values_bytes(array.len()));
        let text_bytes = text_bytes(array);
        let text = room.take(text_bytes);
        Ok(Column { kind, array, nulls, validity, values, text, text_bytes })
    }

    /// Writes the buffers, and at `description` where they are. What stands under a NULL is nobody's value: it is written as 0, so
    /// that no result can hang on it.
    fn write(&self, region: &mut [u8], description: usize, at: u32) {
        let rows = self.array.len();
        let address = |place: usize| if place == 0 { 0 } else { at + place as u32 };
        let text = if matches!(self.kind, FrameType::Text | FrameType::Bytes) { address(self.text) } else { 0 };
        let numbers = [self.kind as u32, address(self.validity), address(self.values), text, self.text_bytes as u32, 0];
        put(region, description, &numbers);
        if let Some(nulls) = &self.nulls {
            put_bits(region, self.validity, nulls.inner(), rows);
        }
        match self.kind {
            FrameType::Boolean => {
                let values = self.array.as_boolean().values();
                match &self.nulls {
                    Some(nulls) => put_bits(region, self.values, &(values & nulls.inner()), rows),
                    None => put_bits(region, self.values, values, rows),
                }
            }
            FrameType::Int32 => self.numbers(region, self.array.as_primitive::<Int32Type>().values().inner(), 4),
            FrameType::Int64 => self.numbers(region, self.array.as_primitive::<Int64Type>().values().inner(), 8),
            FrameType::Float64 => self.numbers(region, self.array.as_primitive::<Float64Type>().values().inner(), 8),
            FrameType::Text => self.texts(region, self.array.as_string_view().iter().map(|text| text.map(str::as_bytes))),
            FrameType::Bytes => self.texts(region, self.array.as_binary_view().iter()),
        }
    }

    fn numbers(&self, region: &mut [u8], values: &Buffer, width: usize) {
        let into = &mut region[self.values..][..values.len()];
        into.copy_from_slice(values.as_slice());
        if let Some(nulls) = &self.nulls {
            let unknown = into.chunks_exact_mut(width).zip(nulls.iter()).filter(|(_, is_valid)| !is_valid);
            unknown.for_each(|(place, _)| place.fill(0));
        }
    }

    fn texts<'t>(&self, region: &mut [u8], texts: impl Iterator<Item = Option<&'t [u8]>>) {
        let mut end = 0;
        put(region, self.values, &[0]);
        for (row, text) in texts.enumerate() {
            let text = text.unwrap_or_default();
            region[self.text + end..][..text.len()].copy_from_slice(text);
            end += text.len();
            put(region, self.values + (row + 1) * 4, &[end as u32]);
        }
    }
}

impl ResultPlace {
    /// The result, out of the guest's memory. Whatever is there was written by the guest.
    pub fn read(&self, memory: &[u8]) -> Result<ArrayRef, String> {
        let rows = self.rows;
        let valid = BooleanBuffer::new(Buffer::from(part(memory, self.validity, bits(rows))?), 0, rows);
        let nulls = NullBuffer::union(Some(&NullBuffer::new(valid)), self.wanted.as_ref());
        let nulls = nulls.filter(|nulls| nulls.null_count() > 0);
        let values = Buffer::from(part(memory, self.values, self.returns.values_bytes(rows))?);
        Ok(match self.returns {
            FrameType::Boolean => Arc::new(BooleanArray::new(BooleanBuffer::new(values, 0, rows), nulls)),
            FrameType::Int32 => Arc::new(Int32Array::new(ScalarBuffer::new(values, 0, rows), nulls)),
            FrameType::Int64 => Arc::new(Int64Array::new(ScalarBuffer::new(values, 0, rows), nulls)),
            FrameType::Float64 => Arc::new(Float64Array::new(ScalarBuffer::new(values, 0, rows), nulls)),
            FrameType::Text => {
                let (offsets, texts) = self.texts(memory, ScalarBuffer::new(values, 0, rows + 1))?;
                let texts = StringArray::try_new(offsets, texts, nulls);
                Arc::new(StringViewArray::from(&texts.map_err(|error| format!("its texts are not UTF-8: {error}"))?))
            }
            FrameType::Bytes => {
                let (offsets, states) = self.texts(memory, ScalarBuffer::new(values, 0, rows + 1))?;
                Arc::new(BinaryViewArray::from(&BinaryArray::new(offsets, states, nulls)))
            }
        })
    }

    /// The guest says where the texts are, and the offsets are its own.
    fn texts(&self, memory: &[u8], offsets: ScalarBuffer<i32>) -> Result<(OffsetBuffer<i32>, Buffer), String> {
        let what = if self.returns == FrameType::Bytes { "states" } else { "texts" };
        let told = part(memory, self.description, COLUMN_BYTES)?;
        let number = |at: usize| u32::from_le_bytes([told[at], told[at + 1], told[at + 2], told[at + 3]]) as usize;
        let (at, bytes) = (number(12), number(16));
        let texts = part(memory, at, bytes).map_err(|_| {
            format!("it says that its {what} are {bytes} bytes at {at:#x}, beyond its memory of {} bytes", memory.len())
        })?;
        let is_rising = offsets.windows(2).all(|pair| pair[0] <= pair[1]);
        let (first, last) = (offsets[0], offsets[self.rows]);
        if first < 0 || !is_rising || last as usize > bytes {
            return Err(format!(
                "the offsets of its {what} go from {first} to {last} and have to rise within the {bytes} bytes that it wrote"
            ));
        }
        Ok((OffsetBuffer::new(offsets), Buffer::from(&texts[..last as usize])))
    }
}

fn part(memory: &[u8], at: usize, bytes: usize) -> Result<&[u8], String> {
    let end = at.checked_add(bytes).filter(|end| *end <= memory.len());
    end.map(|end| &memory[at..end]).ok_or_else(|| format!("it left {bytes} bytes of its result beyond its memory"))
}
