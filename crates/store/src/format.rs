//! What makes a folder a store: its marker, its identity.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use pithead_model::DriveId;

use crate::StoreError;
use crate::medium::Medium;

/// The format that this release writes, and the newest that it reads.
pub(crate) const FORMAT: u32 = 2;
const MARKER: &str = "FORMAT";
const NEW_MARKER: &str = "FORMAT.new";
/// A marker is two short lines; more than this is none of ours.
const MARKER_BYTES_MAX: u64 = 64;

/// What the marker says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Marker {
    pub format: u32,
    /// A copy of the identity in the index, for when that cannot be read. Format 1 has none.
    pub drive: Option<DriveId>,
}

/// The store's marker, if there is one. One of a newer format is refused.
pub(crate) fn read_marker(medium: &dyn Medium) -> Result<Option<Marker>, StoreError> {
    let failed = |error| io_error(&medium.path().join(MARKER), 0, error);
    let file = match medium.open(MARKER, false) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(failed)?,
    };
    let mut text = vec![0; file.len().map_err(failed)?.min(MARKER_BYTES_MAX) as usize];
    file.read(0, &mut text).map_err(failed)?;
    let text = String::from_utf8_lossy(&text);
    let (first, second) = text.trim().split_once('\n').unwrap_or((text.trim(), ""));
    let drive = second.strip_prefix("drive ").and_then(|id| u64::from_str_radix(id, 16).ok()).map(DriveId);
    match first.strip_prefix("pithead store ").and_then(|number| number.parse::<u32>().ok()) {
        Some(format @ 1..=FORMAT) => Ok(Some(Marker { format, drive })),
        Some(number) => Err(other_format(medium, number.to_string())),
        None => Err(other_format(medium, format!("{first:?}"))),
    }
}

/// Writes the marker, whole or not at all: the last step of making or upgrading a store. Names that other files were given
/// before are durable with it.
pub(crate) fn write_marker(medium: &dyn Medium, drive: DriveId) -> Result<(), StoreError> {
    let text = format!("pithead store {FORMAT}\ndrive {:016x}\n", drive.0);
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

/// A drive's identity, new.
pub(crate) fn random_drive_id() -> Result<DriveId, StoreError> {
    let path = Path::new("/dev/urandom");
    let mut bytes = [0; 8];
    File::open(path).and_then(|mut file| file.read_exact(&mut bytes)).map_err(|error| io_error(path, 0, error))?;
    Ok(DriveId(u64::from_le_bytes(bytes)))
}

/// What the medium said, told apart where the medium is full.
pub(crate) fn io_error(path: &Path, needed: u64, error: io::Error) -> StoreError {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => StoreError::NoSpace { path: path.to_path_buf(), needed },
        _ => StoreError::Io { path: path.to_path_buf(), source: error },
    }
}

fn other_format(medium: &dyn Medium, found: String) -> StoreError {
    StoreError::Format { path: medium.path().to_path_buf(), found, newest: FORMAT }
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
        write_marker(&*medium, DriveId(77)).unwrap();
        assert_eq!(read_marker(&*medium).unwrap(), Some(Marker { format: FORMAT, drive: Some(DriveId(77)) }));
        std::fs::write(dir.path().join(MARKER), "pithead store 1\n").unwrap();
        assert_eq!(read_marker(&*medium).unwrap(), Some(Marker { format: 1, drive: None }));
        for text in ["pithead store 3\n", "pithead store 0\n", "", "something else", "pithead store 1 1"] {
            std::fs::write(dir.path().join(MARKER), text).unwrap();
            assert!(matches!(read_marker(&*medium), Err(StoreError::Format { newest: 2, .. })), "{text:?}");
        }
    }
}
