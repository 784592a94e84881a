//! The drives below, which an array keeps for life: where a run's slices are follows from them.

use std::fs;
use std::io::{ErrorKind, Write};
use std::path::Path;

use pithead_model::{Blame, DriveId, Fault};
use serde::{Deserialize, Serialize};

const FILE: &str = "array.json";

/// What the file holds.
#[derive(Debug, Serialize, Deserialize)]
struct Members {
    /// Identities, ascending.
    drives: Vec<DriveId>,
}

/// Notes the drives of a new array, or compares them with those that an array has. Blocks.
pub(crate) fn keep(data: &Path, drives: &[DriveId]) -> Result<(), Fault> {
    let path = data.join(FILE);
    match fs::read(&path) {
        Ok(bytes) => {
            let known: Members = serde_json::from_slice(&bytes)
                .map_err(|error| Fault::new(Blame::Corrupt, error.to_string()).at(path.display()))?;
            compare(&known.drives, drives)
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            write(&path, &Members { drives: drives.to_vec() }).map_err(|error| at(&path, &error))
        }
        Err(error) => Err(at(&path, &error)),
    }
}

/// All of the file or nothing, and durably: rows may follow at once.
fn write(path: &Path, members: &Members) -> std::io::Result<()> {
    let new = path.with_extension("new");
    let mut file = fs::File::create(&new)?;
    file.write_all(&serde_json::to_vec(members)?)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    path.parent().map_or(Ok(()), |directory| fs::File::open(directory)?.sync_all())
}

fn compare(known: &[DriveId], given: &[DriveId]) -> Result<(), Fault> {
    let list = |of: &[DriveId], but: &[DriveId]| -> Vec<String> {
        of.iter().filter(|drive| !but.contains(drive)).map(DriveId::to_string).collect()
    };
    let (missing, foreign) = (list(known, given), list(given, known));
    if missing.is_empty() && foreign.is_empty() {
        return Ok(());
    }
    let mut what = format!("the array has {} drives", known.len());
    if !missing.is_empty() {
        what += &format!("; not among those given: {}", missing.join(", "));
    }
    if !foreign.is_empty() {
        what += &format!("; given and not its own: {}", foreign.join(", "));
    }
    Err(Fault::new(Blame::User, what).hint("name the drives that the array was first started with, all of them"))
}

fn at(path: &Path, error: &std::io::Error) -> Fault {
    Fault::new(Blame::Device, format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_array_keeps_its_drives() {
        let folder = tempfile::tempdir().unwrap();
        let drives = |ids: &[u64]| -> Vec<DriveId> { ids.iter().map(|id| DriveId(*id)).collect() };
        keep(folder.path(), &drives(&[1, 2])).unwrap();
        keep(folder.path(), &drives(&[1, 2])).unwrap();
        let fault = keep(folder.path(), &drives(&[2, 3])).unwrap_err();
        assert_eq!(fault.blame, Blame::User);
        let (one, three) = (DriveId(1).to_string(), DriveId(3).to_string());
        assert!(fault.message.contains(&one) && fault.message.contains(&three), "{fault}");
        fs::write(folder.path().join(FILE), "{").unwrap();
        assert_eq!(keep(folder.path(), &drives(&[1, 2])).unwrap_err().blame, Blame::Corrupt);
    }
}
