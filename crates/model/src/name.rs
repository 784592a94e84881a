//! Names and ids. A slice's name is its partition's name with a dense numeric suffix (Montana et al. 2023, Skytether,
//! section 5.1; see `docs/bibliography.md`), so any CSE can name any slice without asking.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{Blame, Fault, FaultKind, NAME_BYTES_MAX};

/// The first character of the names of columns and tables that plans make up. Hosts refuse it in SQL text and in the
/// columns of datasets, so that no name of a user can be one of these.
pub const RESERVED: char = '\0';

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(into = "String", try_from = "String")]
        pub struct $name(pub u64);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:016x}", self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({:x})", stringify!($name), self.0)
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> String {
                id.to_string()
            }
        }

        impl TryFrom<String> for $name {
            type Error = Fault;
            fn try_from(text: String) -> Result<Self, Fault> {
                text.parse()
            }
        }

        impl FromStr for $name {
            type Err = Fault;
            fn from_str(text: &str) -> Result<Self, Fault> {
                u64::from_str_radix(text, 16)
                    .map($name)
                    .map_err(|_| Fault::new(Blame::User, format!("expected {} as up to 16 hexadecimal digits, got {text:?}", stringify!($name))))
            }
        }
    };
}

id!(
    /// A drive's identity, chosen at random when its store is made and kept for life.
    DriveId
);
id!(
    /// One incarnation of a dataset: a dataset that is dropped and loaded again gets a new one.
    DatasetId
);
id!(
    /// One load: its slices become visible together or not at all.
    LoadId
);
id!(
    /// One session at one drive, from OPEN to CLOSE.
    SessionId
);

/// A dataset's full name: domain and dataset (schema and table, to SQL).
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct DatasetName {
    /// The namespace, a SQL schema.
    pub domain: String,
    /// The dataset's name within its domain, a SQL table.
    pub dataset: String,
}

impl DatasetName {
    /// The domain that a bare name belongs to.
    pub const DEFAULT_DOMAIN: &'static str = "main";

    /// Checks both parts: 1 to [`NAME_BYTES_MAX`] bytes, no control character, no `/`.
    pub fn new(domain: impl Into<String>, dataset: impl Into<String>) -> Result<Self, Fault> {
        let name = Self { domain: domain.into(), dataset: dataset.into() };
        for part in [&name.domain, &name.dataset] {
            check_name(part)?;
        }
        Ok(name)
    }
}

/// What is between a dataset's name and the version of its domain that a plan reads it at.
const AT_VERSION: &str = "\0@";

impl DatasetName {
    /// The name under which a plan reads the dataset as it was in a version of its domain: another table than the dataset as it is, or
    /// as it was in another version. No user's name is like it.
    #[must_use]
    pub fn at_version(&self, version: u64) -> Self {
        Self { domain: self.domain.clone(), dataset: format!("{}{AT_VERSION}{version}", self.dataset) }
    }

    /// The name that the dataset's runs are stored under, and the version that it is read at; none: as it is.
    pub fn stored(&self) -> (Self, Option<u64>) {
        match self.dataset.split_once(AT_VERSION) {
            Some((dataset, version)) => {
                (Self { domain: self.domain.clone(), dataset: dataset.to_owned() }, version.parse().ok())
            }
            None => (self.clone(), None),
        }
    }
}

impl FromStr for DatasetName {
    type Err = Fault;

    /// `dataset` or `domain.dataset`.
    fn from_str(text: &str) -> Result<Self, Fault> {
        match text.split_once('.') {
            Some((domain, dataset)) => Self::new(domain, dataset),
            None => Self::new(Self::DEFAULT_DOMAIN, text),
        }
    }
}

impl fmt::Display for DatasetName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.dataset.split_once(AT_VERSION) {
            Some((dataset, version)) => write!(f, "{}.{dataset} AS OF VERSION {version}", self.domain),
            None => write!(f, "{}.{}", self.domain, self.dataset),
        }
    }
}

fn check_name(part: &str) -> Result<(), Fault> {
    let bad = part.is_empty() || part.len() > NAME_BYTES_MAX || part.chars().any(|c| c.is_control() || c == '/');
    if bad {
        return Err(Fault::new(
            Blame::User,
            format!("{part:?} is not a name: expected 1 to {NAME_BYTES_MAX} bytes without '/' and control characters"),
        )
        .of_kind(FaultKind::WrongName));
    }
    Ok(())
}

/// Where a slice, or a partition's metadata slice, lives in a drive's key-value store.
///
/// Shown as `domain/dataset@incarnation/load/partition.number`, the number dense from 0 within a load and partition,
/// or `.meta` for the metadata slice.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SliceKey {
    /// Domain and dataset.
    pub name: DatasetName,
    /// The dataset's incarnation.
    pub dataset: DatasetId,
    /// The load that wrote it.
    pub load: LoadId,
    /// The partition's number.
    pub partition: u32,
    /// The slice's number, or none for the metadata slice.
    pub number: Option<u32>,
}

impl SliceKey {
    /// The same partition and load, slice `number`.
    pub fn slice(&self, number: u32) -> Self {
        Self { number: Some(number), ..self.clone() }
    }

    /// The prefix that all keys of `load` in this dataset share.
    pub fn load_prefix(name: &DatasetName, dataset: DatasetId, load: LoadId) -> String {
        format!("slice/{}/{}@{dataset}/{load}/", name.domain, name.dataset)
    }
}

impl fmt::Display for SliceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:05}.", Self::load_prefix(&self.name, self.dataset, self.load), self.partition)?;
        match self.number {
            Some(number) => write!(f, "{number:08}"),
            None => f.write_str("meta"),
        }
    }
}

/// Up to three of `names` that a person may have meant by `wanted`, nearest first.
pub fn near_names<'a>(wanted: &str, names: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let wanted = wanted.to_lowercase();
    let mut scored: Vec<(usize, &str)> = names
        .into_iter()
        .map(|name| (edit_distance(&wanted, &name.to_lowercase()), name))
        .filter(|(distance, name)| *distance <= 1 + name.chars().count().min(wanted.chars().count()) / 3)
        .collect();
    scored.sort();
    scored.into_iter().take(3).map(|(_, name)| name).collect()
}

/// Levenshtein's distance, in characters.
fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(ca != *cb);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(row[j + 1] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bare_names_belong_to_the_default_domain() {
        assert_eq!("t".parse::<DatasetName>().unwrap().to_string(), "main.t");
        assert_eq!("lab.t".parse::<DatasetName>().unwrap().to_string(), "lab.t");
        assert!("".parse::<DatasetName>().is_err());
        assert!("a/b".parse::<DatasetName>().is_err());
    }

    #[test]
    fn a_name_at_a_version_is_another_one_for_plans_alone() {
        let name: DatasetName = "lab.t".parse().unwrap();
        let old = name.at_version(12);
        assert!(old != name && old != name.at_version(1) && DatasetName::new("lab", old.dataset.clone()).is_err());
        assert_eq!((old.stored(), name.stored()), ((name.clone(), Some(12)), (name.clone(), None)));
        assert_eq!(old.to_string(), "lab.t AS OF VERSION 12");
    }

    #[test]
    fn slice_names_sort_as_their_numbers() {
        let key = SliceKey { name: "t".parse().unwrap(), dataset: DatasetId(1), load: LoadId(2), partition: 3, number: None };
        assert!(key.slice(9).to_string() < key.slice(10).to_string());
        assert!(key.to_string().ends_with("00003.meta"));
    }

    #[test]
    fn near_names_come_nearest_first() {
        assert_eq!(near_names("lineitm", ["orders", "lineitem", "line"]), ["lineitem"]);
        assert!(near_names("zzz", ["orders"]).is_empty());
    }
}
