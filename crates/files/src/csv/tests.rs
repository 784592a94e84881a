use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::compute::concat_batches;
use arrow::datatypes::TimeUnit;
use arrow::util::display::array_value_to_string;

use super::*;
use crate::source::Source;

#[test]
fn a_records_line_is_found_past_quoted_line_ends_and_empty_lines() {
    let text = "a,b\n1,\"x\ny\"\n\n3,4\n5,6";
    assert_eq!(line_of(text.as_bytes(), 1), Some(1));
    assert_eq!(line_of(text.as_bytes(), 2), Some(2));
    assert_eq!(line_of(text.as_bytes(), 3), Some(5));
    assert_eq!(line_of(text.as_bytes(), 4), Some(6));
    assert_eq!(line_of(text.as_bytes(), 9), None);
}

#[test]
fn the_decoders_words_are_read() {
    let bad = BadValue::parse("Error while parsing value 'it's' as type 'Int64' for column 2 at line 7. Row data: '[x]'");
    assert_eq!(bad, Some(BadValue { value: "it's".into(), column: 2, row: 7 }));
    assert_eq!(BadValue::parse("something else"), None);
}

/// A file of CSV, of which the first rows are guessed from.
fn source(text: &str, options: &CsvOptions) -> (tempfile::TempDir, Result<TextSource<Csv>, Fault>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.csv");
    std::fs::write(&path, text).unwrap();
    let source = Csv::open(&Input::Local(path), options);
    (folder, source)
}

fn rows(source: &TextSource<Csv>, only: Option<usize>) -> Result<RecordBatch, Fault> {
    let batches = source.read(0, 2, only)?.map(|chunk| chunk.map(|chunk| chunk.batch)).collect::<Result<Vec<_>, _>>()?;
    Ok(concat_batches(&batches[0].schema(), &batches).unwrap())
}

fn texts(column: &ArrayRef) -> Vec<String> {
    (0..column.len()).map(|row| array_value_to_string(column, row).unwrap()).collect()
}

fn guessed(text: &str) -> DataType {
    let (_folder, source) = source(text, &CsvOptions::default());
    source.unwrap().schema().field(0).data_type().clone()
}

/// The first column of a file, read as a type.
fn read_as(text: &str, data_type: &DataType, options: &CsvOptions) -> Result<Vec<String>, String> {
    let (_folder, source) = source(text, options);
    let mut source = source.unwrap();
    let mut fields: Vec<Field> = source.schema().fields().iter().map(|field| field.as_ref().clone()).collect();
    fields[0] = fields[0].clone().with_data_type(data_type.clone());
    source.retype(Arc::new(Schema::new(fields)), false);
    let all = rows(&source, None).map(|batch| batch.column(0).clone());
    let alone = rows(&source, Some(0)).map(|batch| batch.column(0).clone());
    match (all, alone) {
        (Ok(all), Ok(alone)) => {
            assert_eq!((&all, all.data_type()), (&alone, data_type));
            Ok(texts(&all))
        }
        (Err(all), Err(alone)) => {
            assert_eq!(all, alone);
            Err(all.message.rsplit_once("rows.csv: ").unwrap().1.to_owned())
        }
        (all, alone) => panic!("{all:?} beside the others, {alone:?} alone"),
    }
}

fn wall(unit: TimeUnit) -> DataType {
    DataType::Timestamp(unit, None)
}

fn zoned(unit: TimeUnit) -> DataType {
    DataType::Timestamp(unit, Some("UTC".into()))
}

#[test]
fn guessed_moments_have_microseconds_at_least() {
    assert_eq!(guessed("t\n2024-01-01 00:00:00\n"), wall(TimeUnit::Microsecond));
    assert_eq!(guessed("t\n2024-01-01 00:00:00.5\n2024-01-01\n"), wall(TimeUnit::Microsecond));
    assert_eq!(guessed("t\n2024-01-01 00:00:00.123456789\n"), wall(TimeUnit::Nanosecond));
    let (_folder, source) = source("t\n2024-01-01 00:00:00\n2024-01-01 00:00:00.75\n", &first_row());
    assert_eq!(texts(rows(&source.unwrap(), None).unwrap().column(0)), ["2024-01-01T00:00:00", "2024-01-01T00:00:00.750"]);
}

#[test]
fn moments_that_each_say_a_zone_keep_it_and_are_texts_where_only_some_do() {
    let text = "a,t,b\n1,2024-01-01T10:00:00+02:00,2024-01-01\n2,,\n3,2024-01-01 10:00:00.5Z,2024-01-02\n";
    let (_folder, source) = source(text, &CsvOptions::default());
    let source = source.unwrap();
    let types: Vec<&DataType> = source.schema().fields().iter().map(|field| field.data_type()).collect();
    assert_eq!(types, [&DataType::Int64, &zoned(TimeUnit::Microsecond), &DataType::Date32]);
    assert_eq!(texts(rows(&source, None).unwrap().column(1)), ["2024-01-01T08:00:00Z", "", "2024-01-01T10:00:00.500Z"]);
    for other in ["2024-01-01T10:00:00", "2024-01-01"] {
        assert_eq!(guessed(&format!("t\n2024-01-01T10:00:00Z\n{other}\n")), DataType::Utf8, "{other}");
    }
    // Both of the first rows are looked at, and no later one.
    let of_two = CsvOptions { schema_rows: 2, ..CsvOptions::default() };
    let (_folder, source) = self::source("t\n2024-01-01T10:00:00Z\n2024-01-01T10:00:00Z\nx\n", &of_two);
    assert_eq!(source.unwrap().schema().field(0).data_type(), &zoned(TimeUnit::Microsecond));
}

/// A regression: types were guessed that the very rows which they were guessed from did not fit.
#[test]
fn what_types_are_guessed_from_fits_them() {
    let read = |text: &str| {
        let (_folder, source) = source(text, &CsvOptions::default());
        texts(rows(&source.unwrap(), None).unwrap().column(0))
    };
    for (first, other) in [
        ("2024-01-01 00:00:00.123456789", "2500-01-01 00:00:00"),
        ("2024-01-01 23:00:00", "2024-01-01 24:00:00"),
        ("2024-02-28", "2024-02-30"),
    ] {
        assert_eq!(read(&format!("t\n{first}\n{other}\n")), [first, other]);
    }
    let years = read("t\n2024-01-01 00:00:00.123456000\n2500-01-01 00:00:00\n");
    assert_eq!(years, ["2024-01-01T00:00:00.123456", "2500-01-01T00:00:00"]);
}

#[test]
fn bytes_are_read_from_hex_and_no_bytes_are_not_null() {
    let read = |text: &str| read_as(text, &DataType::BinaryView, &CsvOptions::default());
    assert_eq!(read("x,n\n00ff,1\n\\xABcd,2\n\"\",3\n").unwrap(), ["00ff", "abcd", ""]);
    let (_folder, source) = source("x,n\n00ff,1\n,2\n\"\",3\n", &CsvOptions::default());
    let mut source = source.unwrap();
    let of_bytes = Field::new("x", DataType::BinaryView, true);
    source.retype(Arc::new(Schema::new(vec![of_bytes, source.schema().field(1).clone()])), false);
    let nulls: Vec<bool> = (0..3).map(|row| rows(&source, None).unwrap().column(0).is_null(row)).collect();
    assert_eq!(nulls, [false, true, false]);
    for wrong in ["0", "zz", "0 ff", "é"] {
        let expected = format!("line 2: expected BinaryView in column x, got {wrong:?}");
        assert_eq!(read(&format!("x,n\n{wrong},1\n")).unwrap_err(), expected);
    }
}

#[test]
fn columns_that_csv_has_no_values_for_are_named() {
    let list = DataType::List(Arc::new(Field::new_list_field(DataType::Int64, true)));
    for data_type in [list, DataType::FixedSizeBinary(2), DataType::Duration(TimeUnit::Second)] {
        let fault = read_as("l,n\n\"[1, 2]\",1\n", &data_type, &CsvOptions::default()).unwrap_err();
        assert_eq!(fault, format!("column l is {data_type}, which is not read from CSV"));
    }
}

#[test]
fn hints_say_whose_types_do_not_hold_a_value() {
    let (_folder, source) = source("n\n1\nx\n", &first_row());
    let mut source = source.unwrap();
    let hint = |source: &TextSource<Csv>| rows(source, None).unwrap_err().hint.unwrap();
    assert!(hint(&source).contains("guessed") && hint(&source).contains("--csv-null"), "{}", hint(&source));
    source.retype(Arc::clone(source.schema()), false);
    assert!(!hint(&source).contains("guessed") && hint(&source).contains("NULL '…' of COPY"), "{}", hint(&source));
}

fn first_row() -> CsvOptions {
    CsvOptions { schema_rows: 1, ..CsvOptions::default() }
}

#[test]
fn a_later_moment_that_its_column_would_cut_or_shift_is_an_error_with_its_line() {
    for (first, later, expected) in [
        ("2024-01-01 00:00:00", "2024-01-01 00:00:00.1234567", wall(TimeUnit::Microsecond)),
        ("2024-01-01 00:00:00", "2024-01-01 00:00:00+02:00", wall(TimeUnit::Microsecond)),
        ("2024-01-01 00:00:00Z", "2024-01-01 00:00:00", zoned(TimeUnit::Microsecond)),
        ("2024-01-01", "2024-01-01 10:30:00", DataType::Date32),
    ] {
        let text = format!("t,n\n{first},\"two\nlines\"\n{first},\n{first},\n{later},\n");
        let fault = read_as(&text, &guessed(&format!("t\n{first}\n")), &first_row()).unwrap_err();
        assert_eq!(fault, format!("line 6: expected {expected} in column t, got {later:?}"));
    }
}

#[test]
fn columns_of_coarser_moments_take_those_that_fit_and_no_others() {
    let second = wall(TimeUnit::Second);
    let text = |later: &str| format!("t\n2024-01-01 00:00:00\n{later}\n");
    let read = |later: &str, data_type: &DataType| read_as(&text(later), data_type, &CsvOptions::default());
    assert_eq!(read("2024-01-01 00:00:01.000", &second).unwrap(), ["2024-01-01T00:00:00", "2024-01-01T00:00:01"]);
    let expected = "line 3: expected Timestamp(s) in column t, got \"2024-01-01 00:00:01.75\"";
    assert_eq!(read("2024-01-01 00:00:01.75", &second).unwrap_err(), expected);
    assert_eq!(read("2024-01-02", &DataType::Date32).unwrap(), ["2024-01-01", "2024-01-02"]);
    assert!(read("2024-01-02 10:30:00", &DataType::Date32).unwrap_err().starts_with("line 3: expected Date32 in column t"));
    let without_header = CsvOptions { header: false, ..CsvOptions::default() };
    let fault = read_as("2024-01-01\n2024-01-02\n2024-01-03 10:30:00\n", &DataType::Date32, &without_header).unwrap_err();
    assert!(fault.starts_with("line 3: expected Date32 in column column_1"), "{fault}");
    let times = DataType::Time64(TimeUnit::Microsecond);
    assert_eq!(read_as("t\n10:00:00.5\n", &times, &CsvOptions::default()).unwrap(), ["10:00:00.500"]);
    assert!(read_as("t\n10:00:00.1234567\n", &times, &CsvOptions::default()).is_err());
}

#[test]
fn a_column_that_says_its_zone_decides_for_moments_that_do_not() {
    let options = CsvOptions::default();
    let berlin = DataType::Timestamp(TimeUnit::Second, Some("Europe/Berlin".into()));
    assert_eq!(read_as("t\n2024-01-01 10:00:00\n", &berlin, &options).unwrap(), ["2024-01-01T10:00:00+01:00"]);
    // A wall time of a moment is that of UTC, as a cast has it.
    let offset = "t\n2024-01-01 10:00:00+02:00\n";
    assert_eq!(read_as(offset, &wall(TimeUnit::Second), &options).unwrap(), ["2024-01-01T08:00:00"]);
}

#[test]
fn decimals_are_rounded_and_not_cut() {
    let decimal = DataType::Decimal128(10, 2);
    let read = |value: &str| read_as(&format!("p\n{value}\n\"\"\n"), &decimal, &CsvOptions::default());
    for (value, expected) in [("1.009", "1.01"), ("1.005", "1.01"), ("-1.005", "-1.01"), ("2", "2.00"), ("1.5e-1", "0.15")] {
        assert_eq!(read(value).unwrap()[0], expected);
    }
    assert_eq!(read("12345678901").unwrap_err(), "line 2: expected Decimal128(10, 2) in column p, got \"12345678901\"");
    assert!(read("99999999.995").is_err(), "it has 11 digits once it is rounded");
}

#[test]
fn a_text_in_quotes_is_never_null_and_quotes_mean_nothing_elsewhere() {
    let options = CsvOptions::default();
    let read = |text: &str, options: &CsvOptions, only: Option<usize>| {
        let (_folder, source) = source(text, options);
        let batch = rows(&source.unwrap(), only).unwrap();
        let column = batch.column(batch.num_columns() - 1);
        (0..column.len()).map(|row| (!column.is_null(row)).then(|| texts(column)[row].clone())).collect::<Vec<_>>()
    };
    let some = |text: &str| Some(text.to_owned());
    let text = "k,s\n1,\"\"\n2,\n3,x\n\"\",\"a\nb\"\n5,\"\"\n";
    for only in [None, Some(1)] {
        assert_eq!(read(text, &options, only), [some(""), None, some("x"), some("a\nb"), some("")]);
    }
    assert_eq!(read(text, &options, Some(0)), [some("1"), some("2"), some("3"), None, some("5")]);
    let word = CsvOptions { null: Some("NULL".to_owned()), ..CsvOptions::default() };
    let text = "k,s\n1,\"NULL\"\n2,NULL\n3,\n\"NULL\",x\n";
    assert_eq!(read(text, &word, None), [some("NULL"), None, some(""), some("x")]);
    assert_eq!(read(text, &word, Some(0)), [some("1"), some("2"), some("3"), None]);
    // Files of one column have no other way to write an empty field.
    assert_eq!(read("s\nx\n\"\"\n", &options, None), [some("x"), None]);
}

#[test]
fn texts_that_look_like_null_come_back_as_they_were_written() {
    let strings = [Some(""), None, Some("NULL"), Some("\"\""), Some("a,\"b\"\n"), Some("x")];
    let numbers: ArrayRef = Arc::new(arrow::array::Int64Array::from(vec![Some(1), None, Some(3), None, Some(5), Some(6)]));
    let strings: ArrayRef = Arc::new(arrow::array::StringArray::from(strings.to_vec()));
    let batch = RecordBatch::try_from_iter_with_nullable([("k", numbers, true), ("s", strings, true)]).unwrap();
    for null in ["", "NULL", "-"] {
        let mut text = Vec::new();
        let options = crate::WriteOptions { null: null.to_owned(), ..crate::WriteOptions::new(crate::Format::Csv) };
        let mut writer = crate::file_writer(&options, &batch.schema(), &mut text).unwrap();
        writer.write(&batch).unwrap();
        writer.finish().unwrap();
        let options = CsvOptions { null: Some(null.to_owned()), ..CsvOptions::default() };
        let (_folder, source) = source(std::str::from_utf8(&text).unwrap(), &options);
        assert_eq!(rows(&source.unwrap(), None).unwrap().columns(), batch.columns(), "{null:?}");
    }
}
