//! Where in a batch of an Arrow IPC file the buffers of a column lie, by what the batch's message says. The message lists
//! buffers column by column, and those of nested columns depth first.

use std::ops::Range;

use arrow::array::ArrayData;
use arrow::datatypes::{DataType, Schema};
use arrow::ipc::RecordBatch;

/// The range of each column's buffers among those of a message.
///
/// None: a column has a type of which this release does not know how many buffers it has, or the message has another
/// number of them. Then a batch can only be taken as a whole.
pub(crate) fn buffers_by_column(schema: &Schema, batch: &RecordBatch<'_>) -> Option<Vec<Range<usize>>> {
    let mut variadic = batch.variadicBufferCounts().into_iter().flatten();
    let mut next = 0;
    let mut columns = Vec::with_capacity(schema.fields().len());
    for field in schema.fields() {
        let buffers = buffers_of(field.data_type(), &mut variadic)?;
        columns.push(next..next + buffers);
        next += buffers;
    }
    let all = batch.buffers().map_or(0, |buffers| buffers.len());
    (next == all && variadic.next().is_none()).then_some(columns)
}

/// Where a column's bytes lie in the body of its batch, from its first buffer to its last one.
pub(crate) fn bytes_of(batch: &RecordBatch<'_>, buffers: &Range<usize>) -> Option<Range<u64>> {
    let all = batch.buffers()?;
    let mut bytes: Option<Range<u64>> = None;
    for place in buffers.clone().filter(|place| *place < all.len()) {
        let buffer = all.get(place);
        let start = u64::try_from(buffer.offset()).ok()?;
        let end = start.checked_add(u64::try_from(buffer.length()).ok()?)?;
        if start < end {
            bytes = Some(bytes.map_or(start..end, |known| known.start.min(start)..known.end.max(end)));
        }
    }
    Some(bytes.unwrap_or(0..0))
}

/// How many buffers a column of a type has, with those of its children.
fn buffers_of(data_type: &DataType, variadic: &mut impl Iterator<Item = i64>) -> Option<usize> {
    // One says which values are NULL.
    Some(match data_type {
        DataType::Null => 0,
        DataType::Utf8View | DataType::BinaryView => 2 + usize::try_from(variadic.next()?).ok()?,
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Binary | DataType::LargeBinary => 3,
        DataType::List(item) | DataType::LargeList(item) | DataType::Map(item, _) => {
            2 + buffers_of(item.data_type(), variadic)?
        }
        DataType::FixedSizeList(item, _) => 1 + buffers_of(item.data_type(), variadic)?,
        DataType::Struct(members) => {
            let mut sum = 1_usize;
            for member in members {
                sum = sum.checked_add(buffers_of(member.data_type(), variadic)?)?;
            }
            sum
        }
        // Its values are in a batch of their own.
        DataType::Boolean | DataType::FixedSizeBinary(_) | DataType::Dictionary(..) => 2,
        plain if plain.primitive_width().is_some() => 2,
        _ => return None,
    })
}

/// The number of bytes of the buffers that an array was read from.
pub(crate) fn buffer_bytes(data: &ArrayData) -> usize {
    let own: usize = data.buffers().iter().map(|buffer| buffer.len()).sum();
    let nulls = data.nulls().map_or(0, |nulls| nulls.buffer().len());
    own + nulls + data.child_data().iter().map(buffer_bytes).sum::<usize>()
}
