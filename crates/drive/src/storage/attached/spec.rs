//! [`Attach`]: a directory, a bucket or a file that a drive is to offer as datasets.

use std::fmt;
use std::ops::Range;
use std::path::PathBuf;
use std::str::FromStr;

use pithead_files::RemotePlace;
use pithead_model::{Blame, DatasetName, Fault};

/// What is attached: each entry of a directory as a dataset of its name, or all files below a path as one dataset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attach {
    /// The dataset that all files make; none: one for each entry of the directory or the bucket.
    pub name: Option<DatasetName>,
    /// Where the files are.
    pub at: AttachAt,
    /// The part of the rows that this drive offers.
    pub share: Share,
}

/// Where files are that a drive attaches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttachAt {
    /// A directory of the drive's machine, or a file.
    Here(PathBuf),
    /// A bucket, a folder of one, or a file at a server.
    Far(RemotePlace),
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

    /// `PATH`, or `[DOMAIN.]DATASET=PATH`; the path may be `s3://BUCKET/FOLDER` or `https://HOST/FILE`. What is before the first `=` is a name if it has no `/`, so that `./k=v` is a path.
    fn from_str(text: &str) -> Result<Self, Fault> {
        let (name, path) = match text.split_once('=') {
            Some((name, path)) if !name.contains('/') => (Some(name.parse()?), path),
            _ => (None, text),
        };
        match path.is_empty() {
            true => Err(Fault::new(
                Blame::User,
                "expected DIR, s3://BUCKET/FOLDER or https://HOST/FILE to attach, or NAME= and one",
            )),
            false => Ok(Attach { name, at: path.parse()?, share: Share::WHOLE }),
        }
    }
}

impl fmt::Display for Attach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(name) = &self.name {
            write!(f, "{name}=")?;
        }
        self.at.fmt(f)
    }
}

impl FromStr for AttachAt {
    type Err = Fault;

    fn from_str(text: &str) -> Result<Self, Fault> {
        Ok(RemotePlace::parse(text)?.map_or_else(|| AttachAt::Here(text.into()), AttachAt::Far))
    }
}

impl fmt::Display for AttachAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AttachAt::Here(path) => path.display().fmt(f),
            AttachAt::Far(place) => place.fmt(f),
        }
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
        let of = |text: &str| text.parse::<Attach>().map(|attach| (attach.name, attach.at.to_string()));
        assert_eq!(of("/data").unwrap(), (None, "/data".to_owned()));
        assert_eq!(of("t=/data/k=v").unwrap(), (Some("main.t".parse().unwrap()), "/data/k=v".to_owned()));
        assert_eq!(of("lake.t=data").unwrap(), (Some("lake.t".parse().unwrap()), "data".to_owned()));
        assert_eq!(of("./k=v").unwrap(), (None, "./k=v".to_owned()));
        assert_eq!(of("lake.t=s3://b/k=v/").unwrap(), (Some("lake.t".parse().unwrap()), "s3://b/k=v".to_owned()));
        assert_eq!(of("https://me:word@host/a?t=x").unwrap(), (None, "https://host/a".to_owned()), "without what is secret");
        for wrong in ["", "t=", "=x", "s3://", "gs://b"] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }
}
