//! Keys of a drive's store: how they are made and read.

use pithead_model::{DatasetId, DatasetName, Fault, LoadId, SliceKey};
use pithead_store::Key;

/// Slices and metadata slices, as [`SliceKey`] shows them.
pub(crate) const SLICE_PREFIX: &str = "slice/";
/// Runs that wait for their last reader, so that they go after a restart, too. The value is the run's key as JSON.
pub(crate) const CONDEMNED_PREFIX: &str = "condemned/";
/// Up to which version of its manifest each run is claimed, eight bytes, big end first.
pub(crate) const CLAIM_PREFIX: &str = "claim/";

/// Runs that older versions of a manifest name: the entry says since when, and which version names them here no more.
pub(crate) const RETIRED_PREFIX: &str = "retired/";

/// Filters of columns' values.
pub(crate) const FILTER_PREFIX: &str = "filter/";

/// What the key of a slice or a metadata slice says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StoredSlice<'a> {
    pub(crate) domain: &'a str,
    pub(crate) dataset_name: &'a str,
    pub(crate) dataset: DatasetId,
    pub(crate) load: LoadId,
    pub(crate) partition: u32,
    /// Not the metadata slice.
    pub(crate) is_slice: bool,
}

/// Refuses names that could reach outside their part of a key.
pub(crate) fn check_name(name: &DatasetName) -> Result<(), Fault> {
    DatasetName::new(name.domain.clone(), name.dataset.clone()).map(drop)
}

pub(crate) fn slice_key(key: &SliceKey) -> Key {
    key.to_string().into()
}

pub(crate) fn condemned_key(run: &SliceKey) -> Key {
    format!("{CONDEMNED_PREFIX}{run}").into()
}

pub(crate) fn claim_key(run: &SliceKey) -> Key {
    format!("{CLAIM_PREFIX}{run}").into()
}

pub(crate) fn retired_key(run: &SliceKey) -> Key {
    format!("{RETIRED_PREFIX}{run}").into()
}

/// The filter of a slice's column, by its place among those that are stored.
pub(crate) fn filter_key(slice: &SliceKey, column: usize) -> Key {
    format!("{FILTER_PREFIX}{slice}/{column}").into()
}

/// The slice and the column that a filter is of.
pub(crate) fn parse_filter_key(key: &[u8]) -> Option<(SliceKey, usize)> {
    let (slice, column) = std::str::from_utf8(key).ok()?.strip_prefix(FILTER_PREFIX)?.rsplit_once('/')?;
    Some((parse_slice(slice.as_bytes())?, column.parse().ok()?))
}

/// The slice that a key is of.
pub(crate) fn parse_slice(key: &[u8]) -> Option<SliceKey> {
    let number = std::str::from_utf8(key).ok()?.rsplit_once('.')?.1.parse().ok()?;
    Some(SliceKey { number: Some(number), ..parse_run(key)? })
}

/// The run that a key is of.
pub(crate) fn parse_run(key: &[u8]) -> Option<SliceKey> {
    let slice = parse_slice_key(key)?;
    let name = DatasetName::new(slice.domain, slice.dataset_name).ok()?;
    Some(SliceKey { name, dataset: slice.dataset, load: slice.load, partition: slice.partition, number: None })
}

/// Reads `slice/domain/dataset@incarnation/load/partition.number`, or `.meta`. None: another key.
pub(crate) fn parse_slice_key(key: &[u8]) -> Option<StoredSlice<'_>> {
    let rest = std::str::from_utf8(key).ok()?.strip_prefix(SLICE_PREFIX)?;
    let (domain, rest) = rest.split_once('/')?;
    let (dataset, rest) = rest.split_once('/')?;
    let (dataset_name, dataset) = dataset.rsplit_once('@')?;
    let (load, rest) = rest.split_once('/')?;
    let (partition, number) = rest.split_once('.')?;
    Some(StoredSlice {
        domain,
        dataset_name,
        dataset: dataset.parse().ok()?,
        load: load.parse().ok()?,
        partition: partition.parse().ok()?,
        is_slice: number != "meta",
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use pithead_model::DatasetName;

    #[test]
    fn keys_of_slices_are_read_back() {
        let name = DatasetName::new("lab", "a.b@c").unwrap();
        let run = SliceKey { name, dataset: DatasetId(1), load: LoadId(2), partition: 3, number: None };
        for (key, is_slice) in [(run.clone(), false), (run.slice(7), true)] {
            let expected = StoredSlice {
                domain: "lab",
                dataset_name: "a.b@c",
                dataset: DatasetId(1),
                load: LoadId(2),
                partition: 3,
                is_slice,
            };
            assert_eq!(parse_slice_key(&slice_key(&key)), Some(expected));
        }
    }

    #[test]
    fn foreign_keys_are_no_slices() {
        for key in [&b""[..], b"slice/", b"slice/a/b/c", b"slice/a/b@1/2/x.meta", b"slice/\xff/b@1/2/3.meta", b"manifest/main"]
        {
            assert_eq!(parse_slice_key(key), None, "{}", key.escape_ascii());
        }
    }
}
