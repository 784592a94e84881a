//! What identifies a folder as a store: its marker and its identity.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use pithead_model::DriveId;
use xxhash_rust::xxh3::xxh3_64;

use crate::index::{INDEX, Index, LAST_NUMBER};
use crate::medium::Medium;
use crate::{StoreError, journal};

/// The format of a store without recipes. Earlier releases read it, too.
pub(crate) const FORMAT: u32 = 4;
/// The format of a store that may have recipes (see `recipe`), from the first deduplication on; the newest that this
/// release reads.
pub(crate) const WITH_RECIPES: u32 = 5;
/// The first format whose marker has a checksum.
pub(crate) const CHECKSUM_SINCE: u32 = 3;
pub(crate) const MARKER: &str = "FORMAT";
const NEW_MARKER: &str = "FORMAT.new";
/// A marker is three short lines. A longer file was not written by a store.
const MARKER_BYTES_MAX: u64 = 80;
/// The first bytes of the index's file in format 1, and in no later format.
const REDB_MAGIC: &[u8] = b"redb";

/// The content of the marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Marker {
    pub format: u32,
    /// A copy of the identity in the index, for the case that the index cannot be read. Format 1 has none.
    pub drive: Option<DriveId>,
}

/// The state of the marker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MarkerState {
    /// There is no marker, and no other file of a store.
    Nothing,
    /// There is no marker, but there are other files of a store.
    Missing,
    /// The marker is damaged.
    Damaged(String),
    Whole(Marker),
}

/// The store's marker, if there is one. A marker of a newer format is refused, and so is a damaged one.
pub(crate) fn read_marker(medium: &dyn Medium) -> Result<Option<Marker>, StoreError> {
    match find_marker(medium)? {
        MarkerState::Nothing | MarkerState::Missing => Ok(None),
        MarkerState::Whole(marker) => Ok(Some(marker)),
        MarkerState::Damaged(what) => Err(StoreError::Damaged { path: medium.path().to_path_buf(), what }),
    }
}

/// The store's marker, as far as it can be read. A marker of a newer format is refused.
pub(crate) fn find_marker(medium: &dyn Medium) -> Result<MarkerState, StoreError> {
    let failed = |error| io_error(&medium.path().join(MARKER), 0, error);
    let file = match medium.open(MARKER, false) {
        // A journal is begun after the marker was written, so this was a store.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let lost = !medium.list(journal::FOLDER).map_err(failed)?.is_empty();
            return Ok(if lost { MarkerState::Missing } else { MarkerState::Nothing });
        }
        opened => opened.map_err(failed)?,
    };
    let mut text = vec![0; file.len().map_err(failed)?.min(MARKER_BYTES_MAX) as usize];
    file.read(0, &mut text).map_err(failed)?;
    let text = String::from_utf8_lossy(&text);
    match parse(&text) {
        Some(marker) if marker.format <= WITH_RECIPES => Ok(MarkerState::Whole(marker)),
        Some(marker) => {
            let (path, found) = (medium.path().to_path_buf(), marker.format.to_string());
            Err(StoreError::Format { path, found, newest: WITH_RECIPES })
        }
        None => Ok(MarkerState::Damaged(format!("its FORMAT file is not what was written: {:?}", text.trim()))),
    }
}

/// The content of a marker's text; none if the text is damaged. From format 3 on it ends with a checksum.
fn parse(text: &str) -> Option<Marker> {
    let mut lines = text.strip_suffix('\n')?.split('\n');
    let format = lines.next()?.strip_prefix("pithead store ")?.parse::<u32>().ok().filter(|format| *format > 0)?;
    let id = lines.next().map(|line| line.strip_prefix("drive ").filter(|id| id.len() == 16));
    let drive = id.map(|id| u64::from_str_radix(id?, 16).ok().map(DriveId));
    let sum = lines.next();
    if format > WITH_RECIPES {
        // What else a future format says, and how that is checked, is not known to this release; unless all the rest is as it was
        // written by a format that is known.
        let is_of = |known, drive| text_of(known, drive).lines().last() == sum;
        let is_damaged = drive.flatten().is_some_and(|drive| (CHECKSUM_SINCE..=WITH_RECIPES).any(|known| is_of(known, drive)));
        return (!is_damaged).then_some(Marker { format, drive: None });
    }
    let whole = match (format, drive, sum) {
        (1, None, None) | (2, Some(Some(_)), None) => true,
        (CHECKSUM_SINCE.., Some(Some(drive)), Some(_)) => text == text_of(format, drive),
        _ => false,
    };
    (whole && lines.next().is_none()).then_some(Marker { format, drive: drive.flatten() })
}

fn text_of(format: u32, drive: DriveId) -> String {
    let text = format!("pithead store {format}\ndrive {:016x}\n", drive.0);
    let sum = xxh3_64(text.as_bytes());
    format!("{text}sum {sum:016x}\n")
}

/// The format of a store whose marker cannot be read, by the look of its index.
pub(crate) fn format_of_index(medium: &dyn Medium) -> Result<u32, StoreError> {
    let read = || {
        let file = medium.open(INDEX, false)?;
        let mut start = [0; REDB_MAGIC.len()];
        file.read(0, &mut start)?;
        Ok::<_, io::Error>(start == REDB_MAGIC)
    };
    match read() {
        Ok(true) => Ok(1),
        Ok(false) => Ok(FORMAT),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::UnexpectedEof) => Ok(FORMAT),
        Err(error) => Err(io_error(&medium.path().join(INDEX), 0, error)),
    }
}

/// The format that a store must have for what its index has, or has had.
pub(crate) fn format_needed(index: &Index) -> Result<u32, StoreError> {
    Ok(if index.fact(LAST_NUMBER)?.unwrap_or(0) > 0 { WITH_RECIPES } else { FORMAT })
}

/// Writes the marker, completely or not at all. This is the last step of making or upgrading a store. The names that
/// other files got before become durable with it.
pub(crate) fn write_marker(medium: &dyn Medium, format: u32, drive: DriveId) -> Result<(), StoreError> {
    let text = text_of(format, drive);
    let write = || {
        let file = medium.open(NEW_MARKER, true)?;
        file.set_len(0)?;
        file.write(0, text.as_bytes())?;
        file.flush()?;
        medium.flush_names("")?;
        medium.rename(NEW_MARKER, MARKER)?;
        medium.flush_names("")
    };
    write().map_err(|error| io_error(&medium.path().join(NEW_MARKER), text.len() as u64, error))
}

/// A new drive identity.
pub(crate) fn random_drive_id() -> Result<DriveId, StoreError> {
    random_u64().map(DriveId)
}

/// A number that nobody can guess.
pub(crate) fn random_u64() -> Result<u64, StoreError> {
    let path = Path::new("/dev/urandom");
    let mut bytes = [0; 8];
    File::open(path).and_then(|mut file| file.read_exact(&mut bytes)).map_err(|error| io_error(path, 0, error))?;
    Ok(u64::from_le_bytes(bytes))
}

/// The medium's error; a full medium gets an error of its own.
pub(crate) fn io_error(path: &Path, needed: u64, error: io::Error) -> StoreError {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => StoreError::NoSpace { path: path.to_path_buf(), needed },
        _ => StoreError::Io { path: path.to_path_buf(), source: error },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FolderMedium;

    #[test]
    fn a_full_medium_is_told_apart() {
        let full = io::Error::from_raw_os_error(libc::ENOSPC);
        assert!(matches!(io_error(Path::new("p"), 7, full), StoreError::NoSpace { needed: 7, .. }));
        let broken = io::Error::from_raw_os_error(libc::EIO);
        assert!(matches!(io_error(Path::new("p"), 7, broken), StoreError::Io { .. }));
    }

    #[test]
    fn markers_of_other_formats_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let medium = FolderMedium::open(dir.path()).unwrap();
        assert_eq!(read_marker(&*medium).unwrap(), None);
        write_marker(&*medium, FORMAT, DriveId(77)).unwrap();
        assert_eq!(read_marker(&*medium).unwrap(), Some(Marker { format: FORMAT, drive: Some(DriveId(77)) }));
        std::fs::write(dir.path().join(MARKER), "pithead store 1\n").unwrap();
        assert_eq!(read_marker(&*medium).unwrap(), Some(Marker { format: 1, drive: None }));
        std::fs::write(dir.path().join(MARKER), "pithead store 2\ndrive 000000000000004d\n").unwrap();
        assert_eq!(read_marker(&*medium).unwrap(), Some(Marker { format: 2, drive: Some(DriveId(77)) }));
        std::fs::write(dir.path().join(MARKER), text_of(5, DriveId(77))).unwrap();
        assert_eq!(read_marker(&*medium).unwrap(), Some(Marker { format: 5, drive: Some(DriveId(77)) }));
        let newer = text_of(6, DriveId(77));
        let other = "pithead store 9\ndrive 0123456789abcdef\nsum 0123456789abcdef\nmore 1\n";
        for text in ["pithead store 6\n", newer.as_str(), other] {
            std::fs::write(dir.path().join(MARKER), text).unwrap();
            assert!(matches!(read_marker(&*medium), Err(StoreError::Format { newest: WITH_RECIPES, .. })), "{text:?}");
        }
        std::fs::write(dir.path().join(MARKER), text_of(3, DriveId(77))).unwrap();
        assert_eq!(read_marker(&*medium).unwrap(), Some(Marker { format: 3, drive: Some(DriveId(77)) }));
        for text in [
            "pithead store 3\n",
            "pithead store 4\n",
            "pithead store 5\n",
            "pithead store 0\n",
            "",
            "something else",
            "pithead store 1 1",
            "pithead store 2\n",
        ] {
            std::fs::write(dir.path().join(MARKER), text).unwrap();
            let read = read_marker(&*medium);
            assert!(read.unwrap_err().to_string().contains("pithead check --repair"), "{text:?}");
        }
    }

    #[test]
    fn a_flipped_bit_of_a_marker_is_seen() {
        let dir = tempfile::tempdir().unwrap();
        let medium = FolderMedium::open(dir.path()).unwrap();
        write_marker(&*medium, FORMAT, DriveId(0x1234_5678_9abc_def0)).unwrap();
        let written = std::fs::read(dir.path().join(MARKER)).unwrap();
        for bit in 0..written.len() * 8 {
            let mut flipped = written.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            std::fs::write(dir.path().join(MARKER), flipped).unwrap();
            assert!(matches!(find_marker(&*medium), Ok(MarkerState::Damaged(_))), "bit {bit}");
        }
    }
}
