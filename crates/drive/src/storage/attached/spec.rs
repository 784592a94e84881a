//! [`Attach`]: a directory or a file that a drive is to offer as datasets.

use std::fmt;
use std::ops::Range;
use std::path::PathBuf;
use std::str::FromStr;

use pithead_model::{Blame, DatasetName, Fault};

/// What is attached: each entry of a directory as a dataset of its name, or all files below a path as one dataset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attach {
    /// The dataset that all files make; none: one for each entry of the directory.
    pub name: Option<DatasetName>,
    /// The directory, or a file.
    pub path: PathBuf,
    /// The part of the rows that this drive offers.
    pub share: Share,
}

/// One of several equal parts. Drives of one process share files, so that each has work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Share {
    /// Which part, from 0.
    pub part: usize,
    /// How many there are.
    pub of: usize,
}

impl Share {
    /// All of it.
    pub const WHOLE: Share = Share { part: 0, of: 1 };

    /// Which of `count` things, in order, are in this part.
    pub(crate) fn range(self, count: usize) -> Range<usize> {
        count * self.part / self.of..count * (self.part + 1) / self.of
    }
}

impl Attach {
    /// The domain of its datasets.
    pub(crate) fn domain(&self) -> &str {
        self.name.as_ref().map_or(DatasetName::DEFAULT_DOMAIN, |name| &name.domain)
    }
}

impl FromStr for Attach {
    type Err = Fault;

    /// `PATH`, or `[DOMAIN.]DATASET=PATH`. What is before the first `=` is a name if it has no `/`, so that `./k=v` is a path.
    fn from_str(text: &str) -> Result<Self, Fault> {
        let (name, path) = match text.split_once('=') {
            Some((name, path)) if !name.contains('/') => (Some(name.parse()?), path),
            _ => (None, text),
        };
        match path.is_empty() {
            true => Err(Fault::new(Blame::User, format!("expected DIR or NAME=DIR to attach, got {text:?}"))),
            false => Ok(Attach { name, path: path.into(), share: Share::WHOLE }),
        }
    }
}

impl fmt::Display for Attach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(name) = &self.name {
            write!(f, "{name}=")?;
        }
        self.path.display().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_all_of_it_together() {
        for (count, of) in [(0, 3), (1, 4), (10, 3), (7, 7)] {
            let all: Vec<usize> = (0..of).flat_map(|part| Share { part, of }.range(count)).collect();
            assert!(all.iter().copied().eq(0..count), "{all:?}");
        }
    }

    #[test]
    fn a_name_stands_before_the_path() {
        let of = |text: &str| text.parse::<Attach>().map(|attach| (attach.name, attach.path.display().to_string()));
        assert_eq!(of("/data").unwrap(), (None, "/data".to_owned()));
        assert_eq!(of("t=/data/k=v").unwrap(), (Some("main.t".parse().unwrap()), "/data/k=v".to_owned()));
        assert_eq!(of("lake.t=data").unwrap(), (Some("lake.t".parse().unwrap()), "data".to_owned()));
        assert_eq!(of("./k=v").unwrap(), (None, "./k=v".to_owned()));
        for wrong in ["", "t=", "=x"] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }
}
