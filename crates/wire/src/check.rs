//! Checks of Arrow's messages before Arrow reads them. Its reader trusts schemas and counts in places, and panics where
//! they lie.

use arrow::datatypes::{DataType, Schema, UnionMode};
use arrow::ipc;
use arrow_flight::FlightData;
use pithead_door::children;

use crate::encode::BATCH_ROWS_MAX;
use crate::error::WireError;

/// Most values of one array, nested ones included: a bit for each fills a message.
const VALUES_MAX: i64 = 1 << 31;

fn wrong_batch(why: impl ToString) -> WireError {
    WireError::malformed("Arrow batch", why)
}

/// Checks a batch's counts against each other and its body: rows, values, buffers.
pub(crate) fn check_rows(header: ipc::RecordBatch<'_>, data: &FlightData) -> Result<(), WireError> {
    let wrong = |why: String| Err(wrong_batch(why));
    if header.compression().is_some() {
        return wrong("compressed bodies are not part of the protocol".to_owned());
    }
    if !(0..=BATCH_ROWS_MAX as i64).contains(&header.length()) {
        return wrong(format!("expected at most {BATCH_ROWS_MAX} rows, got {}", header.length()));
    }
    for node in header.nodes().into_iter().flatten() {
        if !(0..=VALUES_MAX).contains(&node.length()) || !(0..=node.length()).contains(&node.null_count()) {
            return wrong(format!("an array of {} values and {} nulls", node.length(), node.null_count()));
        }
    }
    let body = data.data_body.len() as i64;
    let mut bytes_left = body;
    for buffer in header.buffers().into_iter().flatten() {
        let inside = buffer.offset() >= 0 && buffer.length() >= 0 && buffer.length() <= bytes_left;
        // Arrow's format asks for this alignment, and its reader relies on it in places.
        let fits = inside && buffer.offset() <= body - buffer.length() && buffer.offset() % 8 == 0;
        if !fits {
            return wrong(format!("a buffer of {} bytes at {} in a body of {body}", buffer.length(), buffer.offset()));
        }
        // Buffers do not overlap. If they could, copies made for alignment would multiply a message.
        bytes_left -= buffer.length();
    }
    Ok(())
}

/// Checks the counts of a batch against the types of its columns: values, validity, data buffers of views.
pub(crate) fn check_arrays<'a>(
    header: ipc::RecordBatch<'_>,
    types: impl IntoIterator<Item = &'a DataType>,
) -> Result<(), WireError> {
    let mut arrays = Arrays {
        nodes: header.nodes().into_iter().flatten(),
        buffers: header.buffers().into_iter().flatten(),
        views: header.variadicBufferCounts().into_iter().flatten(),
    };
    types.into_iter().try_for_each(|data_type| arrays.check(data_type))?;
    match arrays.views.next() {
        None => Ok(()),
        Some(_) => Err(wrong_batch("more counts of buffers than view arrays")),
    }
}

/// The same for a dictionary's values.
pub(crate) fn check_dictionary(id: i64, header: ipc::RecordBatch<'_>, schema: &Schema) -> Result<(), WireError> {
    #[allow(deprecated, reason = "it is how Arrow's reader finds the type as well")]
    let fields = schema.fields_with_dict_id(id);
    match fields.first().map(|field| field.data_type()) {
        Some(DataType::Dictionary(_, value)) => check_arrays(header, [value.as_ref()]),
        _ => Err(WireError::malformed("Arrow dictionary", format!("no column has the dictionary {id}"))),
    }
}

/// A batch's counts, taken in the order in which the reader takes them.
struct Arrays<N, B, V> {
    nodes: N,
    buffers: B,
    views: V,
}

impl<'a, N, B, V> Arrays<N, B, V>
where
    N: Iterator<Item = &'a ipc::FieldNode>,
    B: Iterator<Item = &'a ipc::Buffer>,
    V: Iterator<Item = i64>,
{
    fn check(&mut self, data_type: &DataType) -> Result<(), WireError> {
        let node = self.nodes.next().ok_or_else(|| wrong_batch("too few arrays for the schema"))?;
        let values = node.length();
        match data_type {
            DataType::Null | DataType::RunEndEncoded(_, _) => {}
            DataType::Union(_, mode) => {
                self.buffer(values)?;
                if *mode == UnionMode::Dense {
                    self.buffer(4 * values)?;
                }
            }
            _ => self.buffer(if node.null_count() > 0 { (values + 7) / 8 } else { 0 })?,
        }
        let (typed, untyped) = self.data_buffers(data_type)?;
        (0..typed).try_for_each(|_| self.elements(element_bytes(data_type)))?;
        (0..untyped).try_for_each(|_| self.buffer(0))?;
        children(data_type).into_iter().try_for_each(|child| self.check(child.data_type()))
    }

    /// Buffers besides validity: those that hold elements of a width, and those that hold any bytes. How much they must
    /// hold at least is checked by the reader.
    fn data_buffers(&mut self, data_type: &DataType) -> Result<(i64, i64), WireError> {
        use DataType::*;
        Ok(match data_type {
            Null | RunEndEncoded(_, _) | Union(_, _) | Struct(_) | FixedSizeList(_, _) => (0, 0),
            Utf8 | LargeUtf8 | Binary | LargeBinary => (1, 1),
            ListView(_) | LargeListView(_) => (2, 0),
            Utf8View | BinaryView => match self.views.next() {
                Some(count @ 0..=VALUES_MAX) => (1, count),
                _ => return Err(wrong_batch("a view array without its count of buffers")),
            },
            _ => (1, 0),
        })
    }

    /// A buffer of whole elements, which the reader asserts.
    fn elements(&mut self, width: usize) -> Result<(), WireError> {
        match self.buffers.next() {
            Some(buffer) if buffer.length() % width as i64 == 0 => Ok(()),
            Some(buffer) => Err(wrong_batch(format!("{} bytes of elements of {width}", buffer.length()))),
            None => Err(wrong_batch("too few buffers for the schema")),
        }
    }

    fn buffer(&mut self, bytes_min: i64) -> Result<(), WireError> {
        match self.buffers.next() {
            Some(buffer) if buffer.length() >= bytes_min => Ok(()),
            Some(buffer) => Err(wrong_batch(format!("a buffer of {} bytes where {bytes_min} are needed", buffer.length()))),
            None => Err(wrong_batch("too few buffers for the schema")),
        }
    }
}

/// Bytes of an element of a type's own buffer: a value, offset, view or key; 1 for bits and bytes.
fn element_bytes(data_type: &DataType) -> usize {
    match data_type {
        DataType::Utf8 | DataType::Binary | DataType::List(_) | DataType::ListView(_) | DataType::Map(_, _) => 4,
        DataType::LargeUtf8 | DataType::LargeBinary | DataType::LargeList(_) | DataType::LargeListView(_) => 8,
        DataType::Utf8View | DataType::BinaryView => 16,
        DataType::Dictionary(key, _) => key.primitive_width().unwrap_or(1),
        other => other.primitive_width().unwrap_or(1),
    }
}

/// Checks a schema message: each field's type must be one that there is, with the children that it needs.
pub(crate) fn check_header(header: ipc::Schema<'_>) -> Result<(), WireError> {
    let fields = header.fields().ok_or_else(|| WireError::malformed("Arrow schema", "no fields"))?;
    if header.endianness() != ipc::Endianness::Little {
        return Err(WireError::malformed("Arrow schema", "only little-endian is part of the protocol"));
    }
    fields.iter().try_for_each(check_field)
}

fn check_field(field: ipc::Field<'_>) -> Result<(), WireError> {
    let keys =
        field.dictionary().is_none_or(|dictionary| dictionary.indexType().is_some_and(|key| is_integer_width(key.bitWidth())));
    if !keys || !is_known(field) {
        let why = format!("column {:?} has a type that there is not", field.name().unwrap_or_default());
        return Err(WireError::malformed("Arrow schema", why));
    }
    field.children().into_iter().flatten().try_for_each(check_field)
}

fn is_integer_width(bits: i32) -> bool {
    matches!(bits, 8 | 16 | 32 | 64)
}

fn is_known(field: ipc::Field<'_>) -> bool {
    use ipc::Type;
    let children = field.children().map_or(0, |children| children.len());
    let unit = |unit: ipc::TimeUnit| (0..=3).contains(&unit.0);
    match field.type_type() {
        Type::Null | Type::Bool | Type::Binary | Type::LargeBinary | Type::Utf8 | Type::LargeUtf8 => true,
        Type::BinaryView | Type::Utf8View | Type::Struct_ => true,
        Type::Int => field.type_as_int().is_some_and(|int| is_integer_width(int.bitWidth())),
        Type::FloatingPoint => field.type_as_floating_point().is_some_and(|float| (0..=2).contains(&float.precision().0)),
        Type::FixedSizeBinary => field.type_as_fixed_size_binary().is_some(),
        Type::Date => field.type_as_date().is_some_and(|date| (0..=1).contains(&date.unit().0)),
        Type::Time => {
            field.type_as_time().is_some_and(|time| matches!((time.bitWidth(), time.unit().0), (32, 0 | 1) | (64, 2 | 3)))
        }
        Type::Timestamp => field.type_as_timestamp().is_some_and(|time| unit(time.unit())),
        Type::Duration => field.type_as_duration().is_some_and(|duration| unit(duration.unit())),
        Type::Interval => field.type_as_interval().is_some_and(|interval| (0..=2).contains(&interval.unit().0)),
        Type::List | Type::LargeList | Type::ListView | Type::LargeListView => children == 1,
        Type::FixedSizeList => children == 1 && field.type_as_fixed_size_list().is_some(),
        Type::Map => children == 1 && field.type_as_map().is_some(),
        Type::RunEndEncoded => children == 2,
        Type::Decimal => field.type_as_decimal().is_some_and(is_known_decimal),
        Type::Union => field.type_as_union().is_some_and(|union| is_known_union(union, children)),
        _ => false,
    }
}

fn is_known_decimal(decimal: ipc::Decimal<'_>) -> bool {
    matches!(decimal.bitWidth(), 32 | 64 | 128 | 256)
        && u8::try_from(decimal.precision()).is_ok()
        && i8::try_from(decimal.scale()).is_ok()
}

fn is_known_union(union: ipc::Union<'_>, children: usize) -> bool {
    let ids_fit = match union.typeIds() {
        None => children <= 128,
        Some(ids) => {
            let mut seen = 0_u128;
            let distinct = ids.iter().all(|id| {
                let bit = if (0..128).contains(&id) { 1_u128 << id } else { 0 };
                let new = bit & !seen != 0;
                seen |= bit;
                new
            });
            distinct && ids.len() == children
        }
    };
    ids_fit && (0..=1).contains(&union.mode().0)
}
