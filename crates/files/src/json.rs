//! JSON lines: one object a line.

mod place;

use std::fmt;
use std::io::BufRead;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};

use arrow::datatypes::{FieldRef, Schema};
use arrow::json::reader::{ValueIter, infer_json_schema_from_iterator};
use pithead_model::Fault;
use place::{Place, unguessed};
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};

use crate::any_floats::{AnyFloats, StandIn};
use crate::batches::BoundedBatches;
use crate::exact::{Reading, decoded, is_cut, read_batch};
use crate::guessed_numbers::SeenNumbers;
use crate::input::Input;
use crate::moments::Zones;
use crate::source::damaged;
use crate::text::{Batches, GuessedText, TextFormat, TextSource, open_plain_text, told};

/// Lines that say in which order columns come: those that only later lines have follow, by their names.
const ORDER_LINES: usize = 1_000;

/// JSON lines.
#[derive(Debug)]
pub(crate) struct JsonLines {
    schema_rows: usize,
}

impl JsonLines {
    /// Guesses columns and types from the first rows.
    pub(crate) fn open(input: &Input, schema_rows: usize) -> Result<TextSource<JsonLines>, Fault> {
        let path = input.name();
        let met: Arc<OnceLock<Fault>> = Arc::default();
        let opened = || open_plain_text(input, &Arc::default()).map(|text| GuessedText::new(text, &met));
        let text = || opened().map(|text| AnyFloats::new(text, StandIn::Number));
        let (mut numbers, mut row) = (SeenNumbers::default(), 0);
        let values = ValueIter::new(text()?, Some(schema_rows)).inspect(|value| {
            row += 1;
            value.iter().for_each(|value| numbers.look(value));
        });
        let inferred = infer_json_schema_from_iterator(values);
        let inferred = inferred.map_err(|error| met.get().cloned().unwrap_or_else(|| unguessed(input, row, &error)))?;
        let order = key_order(text()?);
        if let Some(fault) = met.get() {
            return Err(fault.clone());
        }
        let mut fields: Vec<FieldRef> = numbers.of_fields(inferred.fields()).iter().cloned().collect();
        let place = |field: &FieldRef| order.iter().position(|key| key == field.name()).unwrap_or(order.len());
        fields.sort_by(|a, b| (place(a), a.name()).cmp(&(place(b), b.name())));
        if fields.is_empty() {
            let what = if input.bytes()? == 0 { "the file is empty" } else { "it has no object with a name and a value" };
            return Err(damaged(path, what).hint("expected JSON lines: one object a line; leave a file without rows out"));
        }
        TextSource::new(input, Schema::new(fields), JsonLines { schema_rows })
    }
}

impl TextFormat for JsonLines {
    fn read(
        &self,
        file: &TextSource<JsonLines>,
        read: &Arc<AtomicU64>,
        batch_rows: usize,
        only: Option<usize>,
    ) -> Result<Batches, Fault> {
        let schema = match only {
            Some(column) => Arc::new(file.schema.project(&[column]).map_err(Fault::bug)?),
            None => Arc::clone(&file.schema),
        };
        let place = Place {
            input: file.input.clone(),
            schema_rows: self.schema_rows,
            is_guessed: file.is_guessed,
            decoded: decoded(&schema, &|data_type| is_cut(data_type, true)),
            // A column that was not seen at first must not be lost.
            is_strict: only.is_none(),
            batch_rows,
        };
        let text = AnyFloats::new(open_plain_text(&file.input, read)?, StandIn::Text);
        let decoder = place.decoder(batch_rows).map_err(|error| told(file.input.name(), &error))?;
        let batches = BoundedBatches::new(text, decoder, batch_rows);
        let readings = vec![Reading { zones: Zones::Any, counts: true }; schema.fields().len()];
        let mut rows = 0;
        Ok(Box::new(batches.map(move |batch| {
            let batch = batch.map_err(|error| place.unreadable(rows, &error))?;
            let before = rows;
            rows += batch.num_rows();
            read_batch(batch, &schema, &readings).map_err(|unread| place.unread(before, &unread))
        })))
    }
}

/// The keys of the first lines, in the order in which they came.
fn key_order(text: impl BufRead) -> Vec<String> {
    let mut order: Vec<String> = Vec::new();
    for line in text.lines().take(ORDER_LINES).map_while(Result::ok) {
        let keys = serde_json::from_str::<Keys>(&line).map(|keys| keys.0).unwrap_or_default();
        for key in keys {
            if !order.contains(&key) {
                order.push(key);
            }
        }
    }
    order
}

/// The keys of an object, in order; its values are passed over.
struct Keys(Vec<String>);

impl<'de> Deserialize<'de> for Keys {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(KeyVisitor)
    }
}

struct KeyVisitor;

impl<'de> Visitor<'de> for KeyVisitor {
    type Value = Keys;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Keys, A::Error> {
        let mut keys = Vec::new();
        while let Some((key, IgnoredAny)) = map.next_entry()? {
            keys.push(key);
        }
        Ok(Keys(keys))
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Array, ArrayRef, Int16Array, RecordBatch, UInt64Array};
    use arrow::compute::concat_batches;
    use arrow::datatypes::{DataType, Field, TimeUnit};
    use arrow::util::display::array_value_to_string;

    use super::*;
    use crate::source::Source;

    fn source(text: &str, schema_rows: usize) -> (tempfile::TempDir, Result<TextSource<JsonLines>, Fault>) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows.jsonl");
        std::fs::write(&path, text).unwrap();
        let source = JsonLines::open(&Input::Local(path), schema_rows);
        (folder, source)
    }

    fn rows(source: &TextSource<JsonLines>, only: Option<usize>) -> Result<RecordBatch, Fault> {
        let batches = source.read(0, 2, only)?.map(|chunk| chunk.map(|chunk| chunk.batch)).collect::<Result<Vec<_>, _>>()?;
        Ok(concat_batches(&batches[0].schema(), &batches).unwrap())
    }

    #[test]
    fn columns_are_in_the_order_in_which_they_come() {
        let (_folder, source) =
            source("{\"z\":1,\"b\":\"x\"}\n{\"b\":null,\"a\":[1,2],\"z\":2}\n\n{\"z\":3,\"m\":{\"k\":1.5}}\n", 100);
        let source = source.unwrap();
        let names: Vec<&str> = source.schema().fields().iter().map(|field| field.name().as_str()).collect();
        assert_eq!(names, ["z", "b", "a", "m"]);
        let batch = rows(&source, None).unwrap();
        assert_eq!((batch.num_rows(), batch.column(1).null_count(), batch.column(3).null_count()), (3, 2, 2));
        assert_eq!(*batch.column(0).data_type(), DataType::Int64);
        let only = rows(&source, Some(0)).unwrap();
        assert_eq!((only.num_columns(), only.column(0)), (1, batch.column(0)));
    }

    #[test]
    fn numbers_among_texts_are_texts() {
        let (_folder, source) = source("{\"a\":1}\n{\"a\":\"x\"}\n", 100);
        let batch = rows(&source.unwrap(), None).unwrap();
        assert_eq!(*batch.column(0).data_type(), DataType::Utf8);
    }

    #[test]
    fn what_does_not_fit_is_an_error_that_says_where() {
        let (_folder, later) = source("{\"a\":1}\n{\"a\":2}\n{\"a\":3,\"b\":4}\n", 2);
        let fault = rows(&later.unwrap(), None).unwrap_err();
        assert!(fault.message.contains("line 3: column b was not in the first 2 rows"), "{}", fault.message);
        let (_folder, wrong) = source("{\"a\":1}\n{\"a\":2}\n{\"a\":{}}\n", 2);
        let fault = rows(&wrong.unwrap(), None).unwrap_err();
        assert!(fault.message.contains("line 3: "), "{}", fault.message);
    }

    fn retyped(text: &str, data_type: &DataType) -> Result<ArrayRef, Fault> {
        let (_folder, source) = source(text, 100);
        let mut source = source.unwrap();
        source.retype(Arc::new(Schema::new(vec![Field::new("v", data_type.clone(), true)])), false);
        let column = rows(&source, None)?.column(0).clone();
        assert_eq!(column.data_type(), data_type);
        Ok(column)
    }

    #[test]
    fn a_number_with_a_fraction_is_an_error_in_a_column_of_whole_numbers() {
        for (last, expected, got) in [
            ("1.75", "Int64", "1.75"),
            ("15e-1", "Int64", "15e-1"),
            ("9223372036854775808", "Int64", "9223372036854775808"),
            ("true", "Int64", "true"),
        ] {
            let (_folder, source) = source(&format!("{{\"v\":1}}\n{{\"v\":1.0}}\n{{\"v\":1e3}}\n{{\"v\":{last}}}\n"), 1);
            let fault = rows(&source.unwrap(), None).unwrap_err();
            let expected = format!("line 4: expected {expected} in column v, got {got:?}");
            assert!(fault.message.ends_with(&expected) && fault.hint.is_some(), "{}", fault.message);
        }
        let column =
            retyped("{\"v\":1}\n{\"v\":2.0}\n{\"v\":null}\n{\"v\":\"4\"}\n{}\n{\"v\":1e2}\n", &DataType::Int16).unwrap();
        assert_eq!(column.as_ref(), &Int16Array::from(vec![Some(1), Some(2), None, Some(4), None, Some(100)]));
        assert!(retyped("{\"v\":40000}\n", &DataType::Int16).is_err());
        assert!(retyped("{\"v\":-1}\n", &DataType::UInt64).is_err());
    }

    #[test]
    fn whole_numbers_within_lists_and_objects_have_no_fractions_either() {
        let text = "{\"v\":[{\"a\":[1,2]}]}\n{\"v\":[]}\n{\"v\":[{\"a\":null},{\"a\":[]},{\"a\":[3,LAST]}]}\n";
        let (_folder, fits) = source(&text.replace("LAST", "4.0"), 1);
        let fits = fits.unwrap();
        let numbers = rows(&fits, None).unwrap();
        assert_eq!(numbers.schema(), fits.schema);
        assert_eq!(array_value_to_string(numbers.column(0), 2).unwrap(), "[{a: }, {a: []}, {a: [3, 4]}]");
        let (_folder, cut) = source(&text.replace("LAST", "4.5"), 1);
        let fault = rows(&cut.unwrap(), None).unwrap_err();
        assert!(fault.message.ends_with("line 3: expected Int64 in column v, got \"4.5\""), "{}", fault.message);
    }

    #[test]
    fn large_whole_numbers_keep_their_digits() {
        let guess = |text: &str| source(text, 100).1.unwrap().schema.field(0).data_type().clone();
        let large = "18446744073709551615";
        let (_folder, ids) = source(&format!("{{\"id\":1}}\n{{\"id\":{large}}}\n{{\"id\":-1}}\n"), 2);
        let ids = ids.unwrap();
        assert_eq!(ids.schema.field(0).data_type(), &DataType::UInt64);
        let fault = rows(&ids, None).unwrap_err();
        assert!(fault.message.ends_with("line 3: expected UInt64 in column id, got \"-1\""), "{}", fault.message);
        let (_folder, ids) = source(&format!("{{\"id\":1}}\n{{\"id\":{large}}}\n"), 100);
        assert_eq!(rows(&ids.unwrap(), None).unwrap().column(0).as_ref(), &UInt64Array::from(vec![1, u64::MAX]));
        for floats in ["-1", "0.5", "18446744073709551616"] {
            assert_eq!(guess(&format!("{{\"id\":{floats}}}\n{{\"id\":{large}}}\n")), DataType::Float64, "{floats}");
        }
        let list = DataType::List(Arc::new(Field::new_list_field(DataType::UInt64, true)));
        let inner = DataType::Struct(vec![Field::new("b", list, true)].into());
        assert_eq!(guess(&format!("{{\"a\":{{\"b\":[1]}}}}\n{{\"a\":{{\"b\":[{large}]}}}}\n")), inner);
    }

    #[test]
    fn decimals_are_rounded_and_moments_are_not_cut() {
        let text = |value: &str| format!("{{\"v\":{value}}}\n");
        let shown = |value: &str, data_type: &DataType| {
            retyped(&text(value), data_type).map(|column| array_value_to_string(&column, 0).unwrap())
        };
        let second = DataType::Timestamp(TimeUnit::Second, None);
        for (value, data_type, expected) in [
            ("1.009", DataType::Decimal128(10, 2), "1.01"),
            ("\"1.005\"", DataType::Decimal128(10, 2), "1.01"),
            ("1e2", DataType::Decimal128(10, 2), "100.00"),
            ("\"2024-01-01\"", DataType::Date32, "2024-01-01"),
            ("19723", DataType::Date32, "2024-01-01"),
            ("\"2024-01-01 10:30:00\"", second.clone(), "2024-01-01T10:30:00"),
            ("1704105000", second.clone(), "2024-01-01T10:30:00"),
        ] {
            assert_eq!(shown(value, &data_type).unwrap(), expected, "{value}");
        }
        for (value, data_type) in [
            ("123456789.5", DataType::Decimal128(10, 2)),
            ("\"2024-01-01 10:30:00\"", DataType::Date32),
            ("\"2024-01-01 10:30:00.75\"", second.clone()),
            ("1704105000.75", second),
        ] {
            let fault = shown(value, &data_type).unwrap_err();
            assert!(fault.message.contains(&format!("line 1: expected {data_type} in column v, got ")), "{}", fault.message);
        }
    }

    #[test]
    fn floats_that_json_has_no_numbers_for_are_read_as_they_are_written() {
        let text = "{\"x\":1,\"l\":[-Infinity,1.5,null],\"s\":{\"t\":\"NaN\",\"f\":[{\"g\":NaN}]},\"n\":1}\n\
                    {\"x\":NaN,\"l\":[NaN],\"s\":{\"t\":\"a: NaN,\",\"f\":[{\"g\":Infinity}]},\"n\":2}\n";
        let (_folder, source) = source(text, 100);
        let source = source.unwrap();
        let batch = rows(&source, None).unwrap();
        assert_eq!(batch.column(0).data_type(), &DataType::Float64);
        let mut written = Vec::new();
        let options = crate::WriteOptions::new(crate::Format::Json);
        let mut writer = crate::file_writer(&options, &batch.schema(), &mut written).unwrap();
        writer.write(&batch).unwrap();
        writer.finish().unwrap();
        assert_eq!(String::from_utf8(written).unwrap(), text.replace(":1,\"l", ":1.0,\"l"));
        let fault = retyped("{\"v\":1}\n{\"v\":NaN}\n", &DataType::Int64).unwrap_err();
        assert!(fault.message.ends_with("line 2: expected Int64 in column v, got \"NaN\""), "{}", fault.message);
    }

    #[test]
    fn what_is_no_list_of_objects_is_refused() {
        for text in ["", "1\n2\n", "[1]", "{\"a\":", "{}\n"] {
            let (_folder, source) = source(text, 100);
            let fault = source.map(drop).unwrap_err();
            assert!(
                fault.hint.is_some() && (text.is_empty() == fault.message.ends_with("the file is empty")),
                "{text}: {fault}"
            );
        }
    }

    /// A regression: the line was always the first one, and after the rows that types are guessed from there was none.
    #[test]
    fn errors_say_the_line_and_a_hint_only_where_it_fits() {
        let list = "expected JSON lines: one object a line, without a list around them";
        let lines = "expected JSON lines: one object a line";
        let sound = "{\"a\":1}\n\n{\"a\":2}\n";
        for (rest, expected, hint) in [
            ("{\"a\":oops}\n", "line 4, column 6: not valid JSON: expected value", None),
            ("  {\"a\" 1}\n{\"a\":1}", "line 4, column 8: not valid JSON: expected `:`", None),
            ("[1]\n", "line 4: invalid type: sequence, expected an object", Some(list)),
            ("7\n", "line 4: invalid type: integer `7`, expected an object", Some(lines)),
            ("{\"a\":", "line 4, column 5: not valid JSON: EOF while parsing a value", Some(lines)),
        ] {
            let text = format!("{sound}{rest}");
            let seen = source(&text, 100).1.map(drop).unwrap_err();
            let (_folder, later) = source(&text, 1);
            let later = rows(&later.unwrap(), None).unwrap_err();
            for fault in [seen, later] {
                assert!(fault.message.ends_with(&format!("rows.jsonl: {expected}")), "{rest}: {fault}");
                assert_eq!(fault.hint.as_deref(), hint, "{rest}");
            }
        }
        let pretty = source("[\n{\"a\":1},\n{\"a\":2}\n]\n", 100).1.map(drop).unwrap_err();
        assert!(pretty.message.contains("line 1: ") && pretty.hint.as_deref() == Some(list), "{pretty}");
    }

    #[test]
    fn where_rows_are_no_lines_an_error_counts_rows() {
        for (rest, expected) in [
            ("{\"a\":\n2}\n{\"a\":3}\n{\"a\":[1]}\n", "after row 2: "),
            ("{\"a\":2} {\"a\":3}\n{\"a\":oops}\n", "after row 2: "),
            ("{\"a\":\n2}\n{\"a\":\"x\"}\n", "row 3: expected Int64 in column a, got \"x\""),
        ] {
            let (_folder, source) = source(&format!("{{\"a\":1}}\n{rest}"), 1);
            let fault = rows(&source.unwrap(), None).unwrap_err();
            assert!(fault.message.contains(&format!("rows.jsonl: {expected}")), "{rest}: {fault}");
        }
    }

    #[test]
    fn a_mark_of_the_encoding_is_passed_over() {
        let (_folder, source) = source("\u{feff}{\"a\":1}\n{\"a\":2}\n", 100);
        let source = source.unwrap();
        assert_eq!((source.schema.field(0).name().as_str(), rows(&source, None).unwrap().num_rows()), ("a", 2));
        let within = self::source("{\"a\":1}\n\u{feff}{\"a\":2}\n", 100).1.map(drop).unwrap_err();
        assert!(within.message.contains("line 2, column 1"), "{within}");
    }
}
