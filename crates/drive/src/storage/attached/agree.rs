//! One schema for all files of an attached dataset, and where each file has its columns.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{Array, AsArray, StringViewArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use pithead_slice::Origin;

/// The value of a folder that stands for NULL.
const NULL_FOLDER: &str = "__HIVE_DEFAULT_PARTITION__";
/// What the values of folders are taken for, if all of them are.
const FOLDER_TYPES: [DataType; 2] = [DataType::Int64, DataType::Date32];

/// A file's own columns, and those that its folders name.
pub(crate) struct Member<'a> {
    pub(crate) path: &'a Path,
    pub(crate) schema: &'a SchemaRef,
    pub(crate) folders: &'a [(String, String)],
}

/// The columns of all files: those of the first file in its order, then what others have besides, then those of folders. A column
/// has a type that holds the values of every file; where there is none, the message names two files.
pub(crate) fn agree(members: &[Member<'_>]) -> Result<SchemaRef, String> {
    members.iter().try_for_each(check_folders)?;
    let folders = folder_columns(members);
    let mut fields: Vec<Field> = Vec::new();
    let mut said_by: Vec<&Path> = Vec::new();
    for member in members {
        for field in member.schema.fields().iter().filter(|field| !folders.contains_key(field.name().as_str())) {
            match fields.iter().position(|known| known.name() == field.name()) {
                Some(known) => fields[known] = widened(&fields[known], field, said_by[known], member.path)?,
                None => {
                    fields.push(field.as_ref().clone());
                    said_by.push(member.path);
                }
            }
        }
    }
    for field in &mut fields {
        let everywhere = members.iter().all(|member| member.schema.field_with_name(field.name()).is_ok());
        if !everywhere {
            *field = field.clone().with_nullable(true);
        }
    }
    fields.extend(folders.into_iter().map(|(name, data_type)| Field::new(name, data_type, true)));
    pithead_slice::normalise(&Schema::new(fields)).map_err(|error| error.to_string())
}

/// Refuses a file with a column that its folders name, too: which of the values it has, nobody can say.
fn check_folders(member: &Member<'_>) -> Result<(), String> {
    let has_own = |(column, _): &&(String, String)| member.schema.index_of(column).is_ok();
    match member.folders.iter().find(has_own) {
        Some((column, value)) => Err(format!(
            "{}: its folder {column}={value} names a column that the file has, too; write the files without it, or rename \
             the folders",
            member.path.display()
        )),
        None => Ok(()),
    }
}

/// Where a file has each column of the agreed schema.
pub(crate) fn origins(schema: &Schema, member: &Member<'_>) -> Vec<Origin> {
    let origin = |field: &Arc<Field>| {
        // The innermost folder counts where two name one column.
        if let Some((_, value)) = member.folders.iter().rev().find(|(column, _)| column == field.name()) {
            return Origin::Text(value.clone());
        }
        member.schema.index_of(field.name()).map_or(Origin::Null, Origin::Column)
    };
    schema.fields().iter().map(origin).collect()
}

/// The columns that folders name, by name, each with the type that all of its values have.
fn folder_columns<'a>(members: &[Member<'a>]) -> BTreeMap<&'a str, DataType> {
    let mut values: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (column, value) in members.iter().flat_map(|member| member.folders) {
        values.entry(column).or_default().push(value);
    }
    let typed = |(column, mut values): (_, Vec<&str>)| {
        values.sort_unstable();
        values.dedup();
        (column, folder_type(&values))
    };
    values.into_iter().map(typed).collect()
}

fn folder_type(values: &[&str]) -> DataType {
    let texts = StringViewArray::from_iter_values(values.iter().filter(|value| **value != NULL_FOLDER));
    // A value that would not be written so again, as 007, is a text.
    let holds = |data_type: &DataType| {
        let again = cast(&texts, data_type).and_then(|values| cast(&values, &DataType::Utf8View));
        !texts.is_empty() && again.is_ok_and(|again| again.as_string_view() == &texts)
    };
    FOLDER_TYPES.into_iter().find(|data_type| holds(data_type)).unwrap_or(DataType::Utf8View)
}

fn widened(known: &Field, other: &Field, known_in: &Path, other_in: &Path) -> Result<Field, String> {
    let nullable = known.is_nullable() || other.is_nullable();
    let same = known.data_type().equals_datatype(other.data_type());
    let data_type = if same { Some(known.data_type().clone()) } else { wider(known.data_type(), other.data_type()) };
    match data_type {
        Some(data_type) => Ok(known.clone().with_data_type(data_type).with_nullable(nullable)),
        None => Err(format!(
            "column {} is {} in {} and {} in {}, and no type holds both without loss",
            known.name(),
            known.data_type(),
            known_in.display(),
            other.data_type(),
            other_in.display()
        )),
    }
}

/// A type that has every value of both, without loss.
fn wider(a: &DataType, b: &DataType) -> Option<DataType> {
    use DataType::{Decimal128, Float32, Float64, Int8, Int16, Int32, Int64, Null, Timestamp, UInt8, UInt16, UInt32, UInt64};
    const SIGNED: [DataType; 4] = [Int8, Int16, Int32, Int64];
    const UNSIGNED: [DataType; 4] = [UInt8, UInt16, UInt32, UInt64];
    let rank = |types: &[DataType; 4], of: &DataType| types.iter().position(|known| known == of);
    let either = |x: &DataType, y: &DataType| -> Option<DataType> {
        match (rank(&SIGNED, x), rank(&UNSIGNED, y)) {
            // A wider signed type has all values of an unsigned one.
            (Some(signed), Some(unsigned)) => SIGNED.get(signed.max(unsigned + 1)).cloned(),
            _ => match (x, y) {
                (Float32, Float64) | (Int8 | Int16 | Int32 | UInt8 | UInt16 | UInt32, Float64) => Some(Float64),
                (Int8 | Int16 | UInt8 | UInt16, Float32) => Some(Float32),
                (Null, other) => Some(other.clone()),
                _ => None,
            },
        }
    };
    match (a, b) {
        (Timestamp(x, zone), Timestamp(y, other)) if zone == other => Some(Timestamp(*x.max(y), zone.clone())),
        (Decimal128(p, s), Decimal128(q, t)) => {
            let (scale, whole) = ((*s).max(*t), (i16::from(*p) - i16::from(*s)).max(i16::from(*q) - i16::from(*t)));
            let precision = u8::try_from(whole + i16::from(scale)).ok().filter(|precision| *precision <= 38)?;
            Some(Decimal128(precision, scale))
        }
        _ => {
            let same_family = [&SIGNED, &UNSIGNED].into_iter().find_map(|family| {
                let widest = rank(family, a)?.max(rank(family, b)?);
                Some(family[widest].clone())
            });
            same_family.or_else(|| either(a, b)).or_else(|| either(b, a))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema(fields: &[(&str, DataType)]) -> SchemaRef {
        Arc::new(Schema::new(fields.iter().map(|(name, of)| Field::new(*name, of.clone(), false)).collect::<Vec<_>>()))
    }

    fn folders(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(column, value)| ((*column).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn columns_are_matched_by_name_and_folders_come_last() {
        let (one, other) = (schema(&[("a", DataType::Int32)]), schema(&[("b", DataType::Utf8View), ("a", DataType::Int64)]));
        let (of_one, of_other) =
            (folders(&[("y", "7"), ("d", "2024-01-31"), ("m", "01")]), folders(&[("y", NULL_FOLDER), ("d", "x"), ("m", "10")]));
        let members = [
            Member { path: Path::new("one"), schema: &one, folders: &of_one },
            Member { path: Path::new("other"), schema: &other, folders: &of_other },
        ];
        let agreed = agree(&members).unwrap();
        let found: Vec<_> =
            agreed.fields().iter().map(|f| (f.name().as_str(), f.data_type().clone(), f.is_nullable())).collect();
        let expected = [
            ("a", DataType::Int64, false),
            ("b", DataType::Utf8View, true),
            ("d", DataType::Utf8View, true),
            ("m", DataType::Utf8View, true),
            ("y", DataType::Int64, true),
        ];
        assert_eq!(found, expected);
        let text = |text: &str| Origin::Text(text.to_owned());
        assert_eq!(origins(&agreed, &members[0]), [Origin::Column(0), Origin::Null, text("2024-01-31"), text("01"), text("7")]);
        assert_eq!(
            origins(&agreed, &members[1]),
            [Origin::Column(1), Origin::Column(0), text("x"), text("10"), text(NULL_FOLDER)]
        );
    }

    /// A regression: the folder's value stood in the place of the file's own, and nobody was told.
    #[test]
    fn a_file_with_a_column_that_its_folders_name_is_refused() {
        let (one, other) = (schema(&[("a", DataType::Int32)]), schema(&[("a", DataType::Int32), ("y", DataType::Int64)]));
        let of_folder = folders(&[("y", "7")]);
        let of = |path, schema| Member { path: Path::new(path), schema, folders: &of_folder };
        let why = agree(&[of("y=7/one.parquet", &one), of("y=7/other.parquet", &other)]).unwrap_err();
        assert!(why.starts_with("y=7/other.parquet: its folder y=7 names a column that the file has, too"), "{why}");
        assert!(agree(&[of("y=7/one.parquet", &one)]).is_ok());
    }

    #[test]
    fn types_widen_without_loss_or_are_refused() {
        use DataType::{Decimal128, Float32, Float64, Int8, Int16, Int64, UInt8, UInt32, UInt64, Utf8View};
        let cases = [
            (Int8, Int64, Some(Int64)),
            (UInt8, Int8, Some(Int16)),
            (UInt32, Int8, Some(Int64)),
            (UInt64, Int8, None),
            (Float32, Float64, Some(Float64)),
            (Int64, Float64, None),
            (Decimal128(9, 2), Decimal128(10, 4), Some(Decimal128(11, 4))),
            (Decimal128(38, 0), Decimal128(10, 4), None),
            (Utf8View, Int64, None),
        ];
        for (a, b, expected) in cases {
            assert_eq!((wider(&a, &b), wider(&b, &a)), (expected.clone(), expected), "{a} and {b}");
        }
        let (one, other) = (schema(&[("a", Utf8View)]), schema(&[("a", Int64)]));
        let of = |path, schema| Member { path: Path::new(path), schema, folders: &[] };
        let why = agree(&[of("one.parquet", &one), of("other.parquet", &other)]).unwrap_err();
        assert!(why.contains("one.parquet") && why.contains("other.parquet"), "{why}");
    }
}
