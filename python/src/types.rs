//! Columns and datasets as Python is told of them.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema, SchemaRef, TimeUnit, UnionFields};
use arrow_array::ffi::FFI_ArrowSchema;
use pithead_emulate::Prediction;
use pithead_host::{Emulated, ProfileSnapshot};
use pithead_model::{Dataset, DatasetName, is_uuid};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict};

/// The schema with the types that every consumer of Arrow knows: texts and binaries with offsets, instead of views.
pub(crate) fn plain(schema: &Schema) -> SchemaRef {
    let fields: Fields = schema.fields().iter().map(plain_field).collect();
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}

/// The schema as the engine has it, under other names: texts as views. Dates of 64 bits are dates of 32, since polars takes the former
/// for moments.
pub(crate) fn viewed(schema: &Schema, names: Vec<String>) -> SchemaRef {
    let field = |(field, name): (&FieldRef, String)| {
        let field = field.as_ref().clone().with_name(name);
        match field.data_type() {
            DataType::Date64 => field.with_data_type(DataType::Date32),
            _ => field,
        }
    };
    let fields: Fields = schema.fields().iter().zip(names).map(field).collect();
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}

fn plain_field(field: &FieldRef) -> FieldRef {
    let data_type = plain_type(field.data_type());
    match data_type == *field.data_type() {
        true => Arc::clone(field),
        false => Arc::new(Field::new(field.name(), data_type, field.is_nullable()).with_metadata(field.metadata().clone())),
    }
}

fn plain_type(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Utf8View => DataType::Utf8,
        DataType::BinaryView => DataType::Binary,
        DataType::List(field) | DataType::ListView(field) => DataType::List(plain_field(field)),
        DataType::LargeList(field) | DataType::LargeListView(field) => DataType::LargeList(plain_field(field)),
        DataType::FixedSizeList(field, size) => DataType::FixedSizeList(plain_field(field), *size),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(plain_field).collect()),
        DataType::Map(field, sorted) => DataType::Map(plain_field(field), *sorted),
        other => other.clone(),
    }
}

/// A type as Python's Arrow writes it.
pub(crate) fn type_name(data_type: &DataType) -> String {
    let unit = |unit: &TimeUnit| match unit {
        TimeUnit::Second => "s",
        TimeUnit::Millisecond => "ms",
        TimeUnit::Microsecond => "us",
        TimeUnit::Nanosecond => "ns",
    };
    let item = |field: &Field| type_name(field.data_type());
    match data_type {
        DataType::Boolean => "bool".to_owned(),
        DataType::Float16 => "halffloat".to_owned(),
        DataType::Float32 => "float".to_owned(),
        DataType::Float64 => "double".to_owned(),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => "string".to_owned(),
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => "binary".to_owned(),
        DataType::FixedSizeBinary(size) => format!("fixed_size_binary[{size}]"),
        DataType::Date32 => "date32[day]".to_owned(),
        DataType::Date64 => "date64[ms]".to_owned(),
        DataType::Timestamp(u, None) => format!("timestamp[{}]", unit(u)),
        DataType::Timestamp(u, Some(zone)) => format!("timestamp[{}, tz={zone}]", unit(u)),
        DataType::Time32(u) => format!("time32[{}]", unit(u)),
        DataType::Time64(u) => format!("time64[{}]", unit(u)),
        DataType::Duration(u) => format!("duration[{}]", unit(u)),
        DataType::Interval(_) => "month_day_nano_interval".to_owned(),
        DataType::Decimal32(p, s) | DataType::Decimal64(p, s) | DataType::Decimal128(p, s) | DataType::Decimal256(p, s) => {
            format!("decimal({p}, {s})")
        }
        DataType::List(field) | DataType::LargeList(field) | DataType::ListView(field) | DataType::LargeListView(field) => {
            format!("list<{}>", item(field))
        }
        DataType::FixedSizeList(field, size) => format!("list<{}>[{size}]", item(field)),
        DataType::Struct(fields) => {
            let parts: Vec<String> = fields.iter().map(|field| format!("{}: {}", field.name(), item(field))).collect();
            format!("struct<{}>", parts.join(", "))
        }
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(fields) if fields.len() == 2 => format!("map<{}, {}>", item(&fields[0]), item(&fields[1])),
            _ => "map".to_owned(),
        },
        DataType::Dictionary(_, values) => type_name(values),
        DataType::RunEndEncoded(_, values) => item(values),
        DataType::Union(fields, _) => union_name(fields),
        other => other.to_string().to_lowercase(),
    }
}

fn field_type_name(field: &Field) -> String {
    if is_uuid(field) { "uuid".to_owned() } else { type_name(field.data_type()) }
}

fn union_name(fields: &UnionFields) -> String {
    let parts: Vec<String> = fields.iter().map(|(_, field)| type_name(field.data_type())).collect();
    format!("union<{}>", parts.join(", "))
}

/// The columns of a result.
#[pyclass(frozen, module = "pithead._pithead")]
pub(crate) struct Columns {
    schema: SchemaRef,
}

#[pymethods]
impl Columns {
    /// Name, type and whether there may be nulls, of each column.
    #[getter]
    fn columns(&self) -> Vec<(String, String, bool)> {
        let column = |field: &FieldRef| (field.name().clone(), field_type_name(field), field.is_nullable());
        self.schema.fields().iter().map(column).collect()
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        let exported = FFI_ArrowSchema::try_from(self.schema.as_ref()).map_err(crate::stream::arrow_error)?;
        PyCapsule::new_with_value(py, exported, c"arrow_schema")
    }
}

impl Columns {
    pub(crate) fn new(schema: &SchemaRef) -> Self {
        Self { schema: Arc::clone(schema) }
    }
}

/// What `Connection.datasets` says of a dataset.
pub(crate) fn dataset_facts(py: Python<'_>, name: &DatasetName, dataset: &Dataset) -> PyResult<Py<PyDict>> {
    let facts = PyDict::new(py);
    facts.set_item("domain", &name.domain)?;
    facts.set_item("name", &name.dataset)?;
    facts.set_item("rows", dataset.rows())?;
    facts.set_item("stored_bytes", dataset.bytes())?;
    facts.set_item("slices", dataset.slices())?;
    facts.set_item("encoding", &dataset.encoding)?;
    facts.set_item("metadata", &dataset.metadata)?;
    let column = |field: &FieldRef| (field.name().clone(), field_type_name(field));
    facts.set_item("columns", dataset.schema.fields().iter().map(column).collect::<Vec<_>>())?;
    Ok(facts.unbind())
}

/// Whose time emulated figures are in.
const CLOCK: &str = "emulated, virtual time";

/// What a statement would have taken on drives of a profile, in seconds, bytes and joules. Without sub-plans all is 0.
pub(crate) fn emulated(py: Python<'_>, device: &str, emulated: Option<Emulated>) -> PyResult<Py<PyDict>> {
    let facts = PyDict::new(py);
    facts.set_item("device", device)?;
    facts.set_item("clock", CLOCK)?;
    facts.set_item("drives", emulated.map_or(0, |emulated| emulated.drives))?;
    let prediction = emulated.map(|emulated| emulated.prediction);
    let bytes = |of: fn(&Prediction) -> u64| prediction.as_ref().map_or(0, of);
    let figure = |of: fn(&Prediction) -> f64| prediction.as_ref().map_or(0.0, of);
    facts.set_item("seconds", figure(|it| it.elapsed_s))?;
    facts.set_item("medium_bytes", bytes(|it| it.medium_bytes))?;
    facts.set_item("link_bytes", bytes(|it| it.link_bytes))?;
    facts.set_item("system_joules", figure(|it| it.energy.system_j()))?;
    facts.set_item("host_cpu_joules", figure(|it| it.energy.host_cpu_j))?;
    facts.set_item("drive_cpu_joules", figure(|it| it.energy.device_cpu_j))?;
    facts.set_item("medium_joules", figure(|it| it.energy.medium_j))?;
    facts.set_item("link_joules", figure(|it| it.energy.link_j))?;
    facts.set_item("drive_on_joules", figure(|it| it.energy.device_idle_j))?;
    facts.set_item("host_on_joules", figure(|it| it.energy.host_idle_j))?;
    Ok(facts.unbind())
}

/// What a statement has cost, in seconds and bytes.
pub(crate) fn costs(py: Python<'_>, sums: &ProfileSnapshot) -> PyResult<Py<PyDict>> {
    let facts = PyDict::new(py);
    facts.set_item("seconds", sums.elapsed_us as f64 / 1e6)?;
    facts.set_item("rows_from_drives", sums.rows_from_drives)?;
    facts.set_item("link_bytes", sums.link_bytes)?;
    facts.set_item("medium_bytes", sums.medium_bytes)?;
    facts.set_item("slices_read", sums.slices_read)?;
    facts.set_item("slices_skipped", sums.slices_skipped)?;
    facts.set_item("rounds", sums.rounds)?;
    facts.set_item("sessions", sums.sessions)?;
    facts.set_item("drive_cpu_seconds", sums.drive_cpu_ns as f64 / 1e9)?;
    facts.set_item("failovers", sums.failovers)?;
    facts.set_item("busy_seconds", sums.busy_us as f64 / 1e6)?;
    Ok(facts.unbind())
}
