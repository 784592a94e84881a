//! [`Call`]: a call of one of PostgreSQL's functions over a batch, and [`Body`]: what a function does with it.

use arrow::array::{Array, ArrayRef, AsArray, new_empty_array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Int64Type};
use datafusion::common::config::ConfigOptions;

use crate::facts::{Facts, Listed, ListedFunction};
use crate::formatting::quoted;

/// Texts, or none for NULL; the error is what is wrong with the arguments.
type TextsOrWrong = Result<Option<Vec<String>>, String>;

/// What a function does with a row's arguments.
#[derive(Clone, Copy)]
pub(crate) enum Body {
    Text(fn(&Call, usize) -> Option<String>),
    /// The same of one whose arguments may be wrong; the error is what is said of them.
    TextOrWrong(fn(&Call, usize) -> Result<Option<String>, String>),
    Int(fn(&Call, usize) -> Option<i64>),
    IntOrWrong(fn(&Call, usize) -> Result<Option<i64>, String>),
    Bool(fn(&Call, usize) -> Option<bool>),
    BoolOrWrong(fn(&Call, usize) -> Result<Option<bool>, String>),
    Texts(fn(&Call, usize) -> Vec<String>),
    /// As with texts, of one whose arguments may be wrong. None: NULL.
    TextsOrWrong(fn(&Call, usize) -> TextsOrWrong),
    /// Of rows that there never are: calling it is an error.
    Never(fn() -> DataType),
}

impl Body {
    pub(crate) fn data_type(self) -> DataType {
        match self {
            Body::Text(_) | Body::TextOrWrong(_) => DataType::Utf8,
            Body::Int(_) | Body::IntOrWrong(_) => DataType::Int64,
            Body::Bool(_) | Body::BoolOrWrong(_) => DataType::Boolean,
            Body::Texts(_) | Body::TextsOrWrong(_) => DataType::new_list(DataType::Utf8, true),
            Body::Never(data_type) => data_type(),
        }
    }
}

/// A call over a batch.
pub(crate) struct Call<'a> {
    pub(crate) facts: &'a Facts,
    pub(crate) types: Vec<&'a Field>,
    config: &'a ConfigOptions,
    arrays: &'a [ArrayRef],
    texts: Vec<Option<ArrayRef>>,
    ints: Vec<Option<ArrayRef>>,
}

impl<'a> Call<'a> {
    pub(crate) fn new(facts: &'a Facts, config: &'a ConfigOptions, types: Vec<&'a Field>, arrays: &'a [ArrayRef]) -> Self {
        let all_as = |data_type: &DataType| arrays.iter().map(|array| cast(array, data_type).ok()).collect();
        let (texts, ints) = (all_as(&DataType::Utf8), all_as(&DataType::Int64));
        Call { facts, types, config, arrays, texts, ints }
    }

    /// How many arguments there are.
    pub(crate) fn count(&self) -> usize {
        self.arrays.len()
    }

    pub(crate) fn text(&self, argument: usize, row: usize) -> Option<&str> {
        let array = self.texts.get(argument)?.as_ref()?.as_string::<i32>();
        array.is_valid(row).then(|| array.value(row))
    }

    pub(crate) fn int(&self, argument: usize, row: usize) -> Option<i64> {
        let array = self.ints.get(argument)?.as_ref()?.as_primitive::<Int64Type>();
        array.is_valid(row).then(|| array.value(row))
    }

    pub(crate) fn bool(&self, argument: usize, row: usize) -> Option<bool> {
        let array = cast(self.arrays.get(argument)?, &DataType::Boolean).ok()?;
        let array = array.as_boolean();
        array.is_valid(row).then(|| array.value(row))
    }

    /// The items of an array, or of a text that is one: `{a,b}`.
    pub(crate) fn items(&self, argument: usize, row: usize) -> Vec<String> {
        let Some(list) = self.arrays.get(argument).and_then(|array| array.as_list_opt::<i32>()) else {
            let text = self.text(argument, row).and_then(|text| text.trim().strip_prefix('{')?.strip_suffix('}'));
            let items = text.unwrap_or_default().split(',').filter(|item| !item.is_empty());
            return items.map(|item| item.trim().trim_matches('"').to_owned()).collect();
        };
        let texts = list.is_valid(row).then(|| cast(&list.value(row), &DataType::Utf8).ok()).flatten();
        let texts = texts.unwrap_or_else(|| new_empty_array(&DataType::Utf8));
        texts.as_string::<i32>().iter().flatten().map(str::to_owned).collect()
    }

    /// How many items an array has in one of its dimensions, which are counted from 1; none: it has none there.
    pub(crate) fn length(&self, argument: usize, dimension: i64, row: usize) -> Option<i64> {
        let array = self.arrays.get(argument)?;
        let lists = cast_to_lists(array)?;
        let mut items = lists.as_list::<i32>().is_valid(row).then(|| lists.as_list::<i32>().value(row))?;
        for _ in 1..dimension {
            items = cast_to_lists(&items).filter(|lists| !lists.is_empty())?.as_list::<i32>().value(0);
        }
        (dimension >= 1 && !items.is_empty()).then_some(items.len() as i64)
    }

    /// The domain that is searched first, where new tables go.
    pub(crate) fn schema(&self) -> &str {
        &self.config.catalog.default_schema
    }

    /// The domains that bare names are looked up in.
    pub(crate) fn path(&self) -> Vec<String> {
        match self.facts.path.domains.as_slice() {
            [] => vec![self.schema().to_owned()],
            some => some.to_vec(),
        }
    }

    /// Whether a table is found by its bare name.
    pub(crate) fn is_visible(&self, table: &Listed) -> bool {
        table.domain == self.schema() || self.facts.path.elsewhere.get(&table.name) == Some(&table.domain)
    }

    /// Whether a function is called by its bare name, as those of the first domain alone are.
    pub(crate) fn is_called_bare(&self, function: &ListedFunction) -> bool {
        function.domain == self.schema()
    }

    /// The function that the first argument is, by its number.
    pub(crate) fn function(&self, row: usize) -> Option<&ListedFunction> {
        let oid = self.int(0, row)?;
        self.facts.numbered().functions.iter().find(|(known, _)| *known == oid).map(|(_, function)| function)
    }

    /// The number of a table that is written as SQL writes it.
    pub(crate) fn number_of(&self, name: &str) -> Option<i64> {
        let numbered = self.facts.numbered();
        self.path().iter().find_map(|domain| numbered.find(name, domain))
    }

    /// A table by its number or by its name, which the argument is.
    pub(crate) fn table_of(&self, argument: usize, row: usize) -> Option<&Listed> {
        self.table_numbered(self.int(argument, row).or_else(|| self.number_of(self.text(argument, row)?))?)
    }

    /// A table by its number.
    pub(crate) fn table_numbered(&self, oid: i64) -> Option<&Listed> {
        self.facts.numbered().tables.iter().find(|(known, _)| *known == oid).map(|(_, table)| table)
    }

    /// A table's name as SQL writes it: with its domain, unless it is found without.
    pub(crate) fn name_of(&self, table: &Listed) -> String {
        match self.is_visible(table) {
            true => quoted(&table.name),
            false => format!("{}.{}", quoted(&table.domain), quoted(&table.name)),
        }
    }

    /// The table that the first argument is.
    pub(crate) fn table(&self, row: usize) -> Option<&Listed> {
        self.table_of(0, row)
    }
}

/// What is made of a name of no table: an error, unless it is that of one of PostgreSQL's own, of which not all are here.
pub(crate) fn of_no_table<T>(name: &str) -> Result<Option<T>, String> {
    let bare = name.replace('"', "");
    let bare = bare.strip_prefix("pg_catalog.").unwrap_or(&bare);
    match bare.starts_with("pg_") || bare.starts_with("information_schema.") {
        true => Ok(None),
        // By these words, errors of the engine are known as being about a table.
        false => Err(format!("table '{name}' does not exist")),
    }
}

/// Lists of any kind as those of one kind; none: there are no lists.
fn cast_to_lists(array: &ArrayRef) -> Option<ArrayRef> {
    match array.data_type() {
        DataType::List(_) => Some(ArrayRef::clone(array)),
        DataType::LargeList(item) | DataType::FixedSizeList(item, _) => cast(array, &DataType::List(item.clone())).ok(),
        _ => None,
    }
}
