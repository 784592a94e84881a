//! [`describe`]: the description of a slice, for tools that look into a store.

use bytes::Bytes;
use pithead_model::ColumnSummary;

use crate::marks::check_marked;
use crate::pages::PageIndex;
use crate::{Header, SliceError, encoding_by_id, unseal, verify};

/// A description of a slice without its values.
#[derive(Clone, Debug, PartialEq)]
pub struct SliceFacts {
    /// Its header.
    pub header: Header,
    /// The encoding's name.
    pub encoding: &'static str,
    /// Rows of each page but the last, those that are gone among them.
    pub page_rows: u64,
    /// Rows that deletion marks take from it.
    pub rows_gone: u64,
    /// The bytes that the encoding wrote.
    pub encoded_bytes: u64,
    /// Bytes of the pages' bounds.
    pub bounds_bytes: u64,
    /// Bounds and nulls, by column and then by page. The index has no distinct counts.
    pub columns: Vec<Vec<ColumnSummary>>,
}

/// Reads a slice's header and the bounds of its pages, after it has checked both checksums. It decodes no value, and
/// does not need the dataset's schema.
pub fn describe(slice: Bytes) -> Result<SliceFacts, SliceError> {
    let (header, body) = unseal(slice)?;
    verify(&header, &body)?;
    let encoding = encoding_by_id(header.encoding)?.name();
    check_marked(header.encoding, &body)?;
    let columns = header.columns as usize;
    let (encoded, index) = PageIndex::split(body, columns)?;
    if index.live_rows() != header.rows {
        let there = index.live_rows();
        return Err(SliceError::Corrupt(format!("the header names {} rows, its pages hold {there}", header.rows)));
    }
    Ok(SliceFacts {
        header,
        encoding,
        page_rows: index.page_rows,
        rows_gone: index.rows - index.live_rows(),
        encoded_bytes: encoded.len() as u64,
        bounds_bytes: index.bytes(),
        columns: (0..columns).map(|column| index.column(column)).collect::<Result<_, _>>()?,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringViewArray};
    use pithead_model::Value;
    use proptest::prelude::*;

    use super::*;
    use crate::{encode_slice, encoding, encoding_names};

    fn slice(encoding_name: &str) -> Bytes {
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..10_000));
        let texts: ArrayRef = Arc::new(StringViewArray::from_iter((0..10_000).map(|n| (n >= 8_192).then_some("t"))));
        let batch = RecordBatch::try_from_iter_with_nullable([("n", numbers, true), ("t", texts, true)]).unwrap();
        encode_slice(&*encoding(encoding_name).unwrap(), &batch.schema(), &[batch]).unwrap().bytes
    }

    #[test]
    fn every_encoding_is_described_alike() {
        for name in encoding_names() {
            let slice = slice(name);
            let facts = describe(slice.clone()).unwrap();
            assert_eq!((facts.encoding, facts.header.rows, facts.header.columns, facts.page_rows), (name, 10_000, 2, 8_192));
            let pages: Vec<usize> = facts.columns.iter().map(Vec::len).collect();
            assert_eq!(pages, [2, 2]);
            let last = &facts.columns[0][1];
            assert_eq!((last.min.clone(), last.max.clone()), (Some(Value::Int(8_192)), Some(Value::Int(9_999))));
            assert_eq!((facts.columns[1][0].nulls, facts.columns[1][1].nulls), (8_192, 0));
            assert!(facts.encoded_bytes + facts.bounds_bytes < slice.len() as u64);
        }
    }

    #[test]
    fn what_is_no_slice_is_refused() {
        for bytes in [&b""[..], b"manifest", &[0; 64]] {
            assert!(matches!(describe(Bytes::copy_from_slice(bytes)), Err(SliceError::Corrupt(_))), "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn damage_is_an_error(at in 0usize..1 << 20, bit in 0u8..8) {
            let mut bytes = slice("arrow").to_vec();
            let at = at % bytes.len();
            bytes[at] ^= 1 << bit;
            prop_assert!(describe(bytes.into()).is_err());
        }
    }
}
