//! Columns of UUIDs: 16 bytes, by Arrow's "Canonical Extension Types".

use std::collections::HashMap;

use arrow_schema::{DataType, Field};

/// The bytes of a UUID.
pub const UUID_BYTES: i32 = 16;
/// The key of a field's metadata that names its extension type, and the name of UUIDs.
const EXTENSION: (&str, &str) = ("ARROW:extension:name", "arrow.uuid");

/// Whether a column holds UUIDs, and not any 16 bytes.
///
/// ```
/// use arrow_schema::{DataType, Field};
///
/// let bytes = Field::new("id", DataType::FixedSizeBinary(16), true);
/// assert!(!pithead_model::is_uuid(&bytes));
/// assert!(pithead_model::is_uuid(&bytes.with_metadata(pithead_model::uuid_metadata())));
/// ```
#[must_use]
pub fn is_uuid(field: &Field) -> bool {
    let (key, name) = EXTENSION;
    *field.data_type() == DataType::FixedSizeBinary(UUID_BYTES) && field.metadata().get(key).is_some_and(|found| found == name)
}

/// The metadata that makes a field of 16 bytes one of UUIDs.
#[must_use]
pub fn uuid_metadata() -> HashMap<String, String> {
    let (key, name) = EXTENSION;
    HashMap::from([(key.to_owned(), name.to_owned())])
}
