//! [`LastListings`]: the datasets that each place at a server had when it was listed last, kept in the drive's directory. Where
//! a place cannot be listed, these are refused: without the drive's part of them, others would answer with some of their rows.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use pithead_model::DatasetName;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use crate::storage::attached::spec::Attach;

/// The file that they are kept in.
const FILE: &str = "attached.json";
/// Largest file that is read.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// By what is attached, as it was written.
type Places = BTreeMap<String, BTreeSet<DatasetName>>;

/// The datasets of each place, as it was listed last.
#[derive(Debug)]
pub(crate) struct LastListings {
    file: PathBuf,
    places: Mutex<Places>,
}

/// The file's content.
#[derive(Serialize, Deserialize)]
struct ListingsFile {
    /// A hash of the places as they are written.
    check: u64,
    places: Places,
}

impl LastListings {
    /// Reads the listings in a drive's directory. A damaged file counts as missing. Blocks.
    pub(crate) fn open(directory: &Path) -> LastListings {
        let file = directory.join(FILE);
        let fits = std::fs::metadata(&file).is_ok_and(|facts| facts.len() <= FILE_BYTES_MAX);
        let text = fits.then(|| std::fs::read(&file).ok()).flatten();
        let kept = text.and_then(|text| serde_json::from_slice::<ListingsFile>(&text).ok());
        let sound = kept.filter(|kept| check(&kept.places).is_ok_and(|check| check == kept.check));
        LastListings { file, places: Mutex::new(sound.map(|kept| kept.places).unwrap_or_default()) }
    }

    /// The datasets that it had when it was listed last; none: it never was.
    pub(crate) fn of(&self, attach: &Attach) -> Option<BTreeSet<DatasetName>> {
        self.places.lock().get(&attach.to_string()).cloned()
    }

    /// Notes the datasets that it has. Blocks.
    pub(crate) fn know(&self, attach: &Attach, names: BTreeSet<DatasetName>) {
        let mut places = self.places.lock();
        if places.insert(attach.to_string(), names.clone()) == Some(names) {
            return;
        }
        if let Err(error) = self.keep(&places) {
            tracing::warn!(%error, file = %self.file.display(), "which datasets are attached could not be kept");
        }
    }

    fn keep(&self, places: &Places) -> std::io::Result<()> {
        let kept = ListingsFile { check: check(places)?, places: places.clone() };
        let beside = self.file.with_extension("new");
        let mut file = std::fs::File::create(&beside)?;
        file.write_all(&serde_json::to_vec(&kept)?)?;
        file.sync_all()?;
        std::fs::rename(&beside, &self.file)
    }
}

fn check(places: &Places) -> serde_json::Result<u64> {
    Ok(xxh3_64(&serde_json::to_vec(places)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_place_had_outlives_the_drive_and_is_no_other_ones() {
        let folder = tempfile::tempdir().unwrap();
        let attach = |text: &str| -> Attach { text.parse().unwrap() };
        let names = |names: &[&str]| names.iter().map(|name| name.parse().unwrap()).collect::<BTreeSet<DatasetName>>();
        let known = LastListings::open(folder.path());
        assert_eq!(known.of(&attach("s3://lake/t")), None);
        known.know(&attach("s3://lake/t"), names(&["main.a", "main.b"]));
        known.know(&attach("u=s3://lake/t"), names(&["main.u"]));
        known.know(&attach("s3://lake/empty"), names(&[]));
        let again = LastListings::open(folder.path());
        assert_eq!(again.of(&attach("s3://lake/t")), Some(names(&["main.a", "main.b"])));
        assert_eq!(again.of(&attach("u=s3://lake/t")), Some(names(&["main.u"])));
        assert_eq!(again.of(&attach("s3://lake/empty")), Some(names(&[])));
        let file = folder.path().join(FILE);
        let sound = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, sound.replace("\"a\"", "\"x\"").replace("main.a", "main.x")).unwrap();
        assert_eq!(LastListings::open(folder.path()).of(&attach("s3://lake/t")), None, "a damaged name is not believed");
    }
}
