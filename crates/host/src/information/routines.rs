//! [`Routines`]: functions of users, as `information_schema` lists functions.

use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, RecordBatch, StringArray, UInt8Array, UInt64Array};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::streaming::StreamingTable;
use datafusion::catalog::{SchemaProvider, TableProvider};
use datafusion::common::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::PartitionStream;
use pithead_fleet::Snapshot;
use pithead_model::{Function, FunctionArgument, FunctionKind, FunctionType, Volatility, boxed};

/// A function of a domain.
#[derive(Clone, Debug)]
pub(crate) struct Routine {
    pub(crate) domain: String,
    pub(crate) name: String,
    pub(crate) function: Function,
}

/// The functions of a snapshot's domains, without those of domains that may not be read.
pub(crate) fn routines_of(snapshot: &Snapshot, may_read: impl Fn(&str) -> bool) -> Vec<Routine> {
    let manifests = snapshot.domains().filter(|(domain, _)| may_read(domain)).filter_map(|(_, manifest)| manifest.ok());
    let functions =
        manifests.flat_map(|manifest| manifest.functions.iter().map(move |(name, of)| (&manifest.domain, name, of)));
    let routines = functions.map(|(domain, name, function)| Routine {
        domain: domain.clone(),
        name: name.clone(),
        function: function.clone(),
    });
    routines.collect()
}

impl Routine {
    /// How a statement of a session calls it: by its bare name where the session knows it by that.
    fn called(&self, context: &TaskContext) -> String {
        let scalar = context.scalar_functions().get(&self.name).map(|function| function.name());
        let aggregate = context.aggregate_functions().get(&self.name).map(|function| function.name());
        match scalar.into_iter().chain(aggregate).any(|planned| self.is_planned_as(planned)) {
            true => self.name.clone(),
            false => format!("{}.{}", self.domain, self.name),
        }
    }

    /// Whether plans call it so.
    fn is_planned_as(&self, planned: &str) -> bool {
        planned
            .strip_prefix(self.domain.as_str())
            .and_then(|rest| rest.strip_prefix('.')?.strip_prefix(self.name.as_str()))
            .is_some_and(|rest| rest.starts_with('@'))
    }
}

/// A schema of their rows: tables that are as those of `information_schema` are which have their names.
#[derive(Debug)]
pub(crate) struct Routines(Arc<[Routine]>);

impl Routines {
    pub(crate) fn new(routines: Vec<Routine>) -> Self {
        Self(routines.into())
    }
}

#[boxed]
impl SchemaProvider for Routines {
    fn table_names(&self) -> Vec<String> {
        Vec::new()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        let Some(listing) = Listing::named(name) else { return Ok(None) };
        let rows = Rows { listing, schema: listing.schema(), routines: Arc::clone(&self.0) };
        Ok(Some(Arc::new(StreamingTable::try_new(Arc::clone(&rows.schema), vec![Arc::new(rows)])?)))
    }

    fn table_exist(&self, name: &str) -> bool {
        Listing::named(name).is_some()
    }
}

/// Which of the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Listing {
    Routines,
    Parameters,
}

/// Columns: names, types, and whether they may be NULL.
type Columns = [(&'static str, DataType, bool)];

static ROUTINES: [(&str, DataType, bool); 12] = [
    ("specific_catalog", DataType::Utf8, false),
    ("specific_schema", DataType::Utf8, false),
    ("specific_name", DataType::Utf8, false),
    ("routine_catalog", DataType::Utf8, false),
    ("routine_schema", DataType::Utf8, false),
    ("routine_name", DataType::Utf8, false),
    ("routine_type", DataType::Utf8, false),
    ("is_deterministic", DataType::Boolean, true),
    ("data_type", DataType::Utf8, true),
    ("function_type", DataType::Utf8, true),
    ("description", DataType::Utf8, true),
    ("syntax_example", DataType::Utf8, true),
];

static PARAMETERS: [(&str, DataType, bool); 10] = [
    ("specific_catalog", DataType::Utf8, false),
    ("specific_schema", DataType::Utf8, false),
    ("specific_name", DataType::Utf8, false),
    ("ordinal_position", DataType::UInt64, false),
    ("parameter_mode", DataType::Utf8, false),
    ("parameter_name", DataType::Utf8, true),
    ("data_type", DataType::Utf8, false),
    ("parameter_default", DataType::Utf8, true),
    ("is_variadic", DataType::Boolean, false),
    ("rid", DataType::UInt8, false),
];

impl Listing {
    fn named(name: &str) -> Option<Listing> {
        match name {
            "routines" => Some(Listing::Routines),
            "parameters" => Some(Listing::Parameters),
            _ => None,
        }
    }

    fn schema(self) -> SchemaRef {
        let columns: &Columns = match self {
            Listing::Routines => &ROUTINES,
            Listing::Parameters => &PARAMETERS,
        };
        let fields = columns.iter().map(|(name, of, is_nullable)| Field::new(*name, of.clone(), *is_nullable));
        Arc::new(Schema::new(fields.collect::<Vec<_>>()))
    }
}

/// The rows of one of the tables. What they say hangs on the session that asks, which is known when they are read.
#[derive(Debug)]
struct Rows {
    listing: Listing,
    schema: SchemaRef,
    routines: Arc<[Routine]>,
}

impl PartitionStream for Rows {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let rows = self.batch(&context);
        let stream = futures::stream::once(async move { rows });
        Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.schema), stream))
    }
}

impl Rows {
    fn batch(&self, context: &TaskContext) -> Result<RecordBatch> {
        let catalog = &context.session_config().options().catalog.default_catalog;
        let called = self.routines.iter().map(|routine| (routine, routine.called(context))).collect::<Vec<_>>();
        let columns = match self.listing {
            Listing::Routines => routines(catalog, &called),
            Listing::Parameters => parameters(catalog, &called),
        };
        Ok(RecordBatch::try_new(Arc::clone(&self.schema), columns)?)
    }
}

/// Functions, and how statements call them.
type Called<'a> = [(&'a Routine, String)];

fn routines(catalog: &str, called: &Called<'_>) -> Vec<ArrayRef> {
    let all = |of: &dyn Fn(&Routine, &str) -> Option<String>| texts(called.iter().map(|(routine, name)| of(routine, name)));
    let same = |value: &str| all(&|_, _| Some(value.to_owned()));
    let is_deterministic = called.iter().map(|(routine, _)| routine.function.volatility == Volatility::Immutable);
    vec![
        same(catalog),
        all(&|routine, _| Some(routine.domain.clone())),
        all(&|_, name| Some(name.to_owned())),
        same(catalog),
        all(&|routine, _| Some(routine.domain.clone())),
        all(&|routine, _| Some(routine.name.clone())),
        same("FUNCTION"),
        Arc::new(BooleanArray::from(is_deterministic.collect::<Vec<bool>>())),
        all(&|routine, _| Some(type_name(routine.function.returns).to_owned())),
        all(&|routine, _| Some(kind_name(routine.function.kind).to_owned())),
        all(&|_, _| None),
        all(&|routine, name| Some(example(name, &routine.function))),
    ]
}

/// What a function gives, or what it takes.
struct Parameter<'a> {
    domain: &'a str,
    called: &'a str,
    position: u64,
    mode: &'static str,
    name: Option<&'a str>,
    of: FunctionType,
}

fn parameters(catalog: &str, called: &Called<'_>) -> Vec<ArrayRef> {
    let rows: Vec<Parameter<'_>> = called.iter().flat_map(|(routine, name)| parameters_of(routine, name)).collect();
    let all = |of: &dyn Fn(&Parameter<'_>) -> Option<String>| texts(rows.iter().map(of));
    vec![
        all(&|_| Some(catalog.to_owned())),
        all(&|row| Some(row.domain.to_owned())),
        all(&|row| Some(row.called.to_owned())),
        Arc::new(UInt64Array::from(rows.iter().map(|row| row.position).collect::<Vec<u64>>())),
        all(&|row| Some(row.mode.to_owned())),
        all(&|row| row.name.map(str::to_owned)),
        all(&|row| Some(type_name(row.of).to_owned())),
        all(&|_| None),
        Arc::new(BooleanArray::from(vec![false; rows.len()])),
        // There is one function of a name.
        Arc::new(UInt8Array::from(vec![0_u8; rows.len()])),
    ]
}

fn parameters_of<'a>(routine: &'a Routine, called: &'a str) -> Vec<Parameter<'a>> {
    let (domain, function) = (routine.domain.as_str(), &routine.function);
    let given = Parameter { domain, called, position: 1, mode: "OUT", name: None, of: function.returns };
    let taken = (1..).zip(&function.arguments).map(|(position, argument)| {
        let name = argument.name.as_deref();
        Parameter { domain, called, position, mode: "IN", name, of: argument.of }
    });
    std::iter::once(given).chain(taken).collect()
}

fn texts(values: impl Iterator<Item = Option<String>>) -> ArrayRef {
    Arc::new(values.collect::<StringArray>())
}

/// A call, with the names and the types of its arguments.
fn example(called: &str, function: &Function) -> String {
    let argument = |argument: &FunctionArgument| match &argument.name {
        Some(name) => format!("{name} {}", argument.of),
        None => argument.of.to_string(),
    };
    let arguments: Vec<String> = function.arguments.iter().map(argument).collect();
    format!("{called}({})", arguments.join(", "))
}

/// A type as the engine names those of its own functions.
fn type_name(of: FunctionType) -> &'static str {
    match of {
        FunctionType::Boolean => "Boolean",
        FunctionType::Integer => "Int32",
        FunctionType::Bigint => "Int64",
        FunctionType::Double => "Float64",
        FunctionType::Text => "String",
    }
}

fn kind_name(kind: FunctionKind) -> &'static str {
    match kind {
        FunctionKind::Scalar => "SCALAR",
        FunctionKind::Aggregate => "AGGREGATE",
        FunctionKind::Table => "TABLE",
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::AsArray;
    use arrow::datatypes::UInt64Type;
    use datafusion::catalog::MemoryCatalogProviderList;
    use datafusion::catalog::information_schema::InformationSchemaProvider;

    use super::*;

    fn routine(kind: FunctionKind) -> Routine {
        let function = Function {
            arguments: vec![
                FunctionArgument { name: Some("digits".into()), of: FunctionType::Text },
                FunctionArgument { name: None, of: FunctionType::Double },
            ],
            returns: FunctionType::Boolean,
            volatility: Volatility::Stable,
            called_on_null: false,
            module: "0f".repeat(32),
            export: "luhn".into(),
            kind,
        };
        Routine { domain: "lab".into(), name: "luhn".into(), function }
    }

    fn rows(listing: Listing) -> RecordBatch {
        let rows = Rows { listing, schema: listing.schema(), routines: vec![routine(FunctionKind::Table)].into() };
        rows.batch(&TaskContext::default()).unwrap()
    }

    fn column(batch: &RecordBatch, name: &str) -> Vec<Option<String>> {
        let column = batch.column_by_name(name).unwrap().as_string::<i32>();
        column.iter().map(|text| text.map(str::to_owned)).collect()
    }

    #[tokio::test]
    async fn tables_are_as_those_of_the_engine() {
        let engine = InformationSchemaProvider::new(Arc::new(MemoryCatalogProviderList::new()));
        let own = Routines::new(vec![routine(FunctionKind::Scalar)]);
        for name in ["routines", "parameters"] {
            let [theirs, ours] = [engine.table(name).await, own.table(name).await].map(|table| table.unwrap().unwrap());
            assert_eq!(theirs.schema(), ours.schema(), "{name}");
        }
        assert!(own.table("tables").await.unwrap().is_none() && !own.table_exist("tables"));
    }

    #[test]
    fn a_function_of_another_domain_is_called_with_that() {
        let found = rows(Listing::Routines);
        assert_eq!(found.num_rows(), 1);
        for (name, expected) in [
            ("specific_schema", "lab"),
            ("specific_name", "lab.luhn"),
            ("routine_name", "luhn"),
            ("data_type", "Boolean"),
            ("function_type", "TABLE"),
            ("syntax_example", "lab.luhn(digits text, double precision)"),
        ] {
            assert_eq!(column(&found, name), [Some(expected.to_owned())], "{name}");
        }
        let is_deterministic = found.column_by_name("is_deterministic").unwrap();
        assert!(!is_deterministic.as_boolean().value(0), "it is STABLE");
        let routine = routine(FunctionKind::Scalar);
        assert!(routine.is_planned_as("lab.luhn@74b1") && !routine.is_planned_as("main.luhn@74b1"));
        assert!(!routine.is_planned_as("lab.luhns@74b1") && !routine.is_planned_as("luhn"));
    }

    #[test]
    fn parameters_have_the_names_that_were_declared() {
        let found = rows(Listing::Parameters);
        let some = |texts: [&str; 3]| texts.map(|text| Some(text.to_owned()));
        assert_eq!(column(&found, "parameter_mode"), some(["OUT", "IN", "IN"]));
        assert_eq!(column(&found, "data_type"), some(["Boolean", "String", "Float64"]));
        assert_eq!(column(&found, "parameter_name"), [None, Some("digits".to_owned()), None]);
        let positions = found.column_by_name("ordinal_position").unwrap().as_primitive::<UInt64Type>();
        assert_eq!(positions.values().to_vec(), [1, 1, 2]);
    }
}
