//! A data directory: `drive-0`, `drive-1` and so on, each the store of one drive.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use pithead_model::{Blame, Fault};

const PREFIX: &str = "drive-";
/// Most drives of one directory.
const DRIVES_MAX: usize = 64;

/// The stores in `directory`, by number. A new directory gets `new` of them; one that there is keeps what it has.
///
/// A directory with other things but no drive in it is refused, as is one where a number is missing.
pub(crate) fn drive_directories(directory: &Path, new: usize) -> Result<Vec<PathBuf>, Fault> {
    let failed = |error: io::Error| at(directory, &error);
    if directory.exists() && !directory.is_dir() {
        let fault = Fault::new(Blame::User, format!("{} is no directory", directory.display()));
        return Err(fault.hint("name a new or empty directory, or one of Pithead's"));
    }
    fs::create_dir_all(directory).map_err(failed)?;
    let mut numbers = Vec::new();
    let mut foreign = None;
    for entry in fs::read_dir(directory).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        let name = name.to_string_lossy();
        match drive_number(&name) {
            Some(number) => numbers.push(number),
            // Hidden files, and what a new file system has.
            None if name.starts_with('.') || name == "lost+found" => {}
            None => foreign = Some(name.into_owned()),
        }
    }
    numbers.sort_unstable();
    match (numbers.as_slice(), foreign) {
        ([], Some(foreign)) => Err(not_ours(directory, &foreign)),
        ([], None) => make(directory, new),
        (numbers, _) => {
            check_dense(directory, numbers)?;
            Ok(numbers.iter().map(|number| path_of(directory, *number)).collect())
        }
    }
}

/// Refuses a number of drives that was asked for where there is another.
pub(crate) fn check_count(directory: &Path, there: usize, wanted: Option<usize>) -> Result<(), Fault> {
    match wanted.filter(|wanted| *wanted != there) {
        None => Ok(()),
        Some(wanted) => {
            let drives = if there == 1 { "drive" } else { "drives" };
            let what = format!("{} has {there} {drives} already, and {wanted} were asked for", directory.display());
            Err(Fault::new(Blame::User, what)
                .hint("a number of drives is for a new directory; `pithead drive add` adds one to this one"))
        }
    }
}

/// Makes the store of one more drive, after those that there are.
pub(crate) fn make_another(directory: &Path) -> Result<PathBuf, Fault> {
    let count = drive_directories(directory, 1)?.len();
    if count >= DRIVES_MAX {
        return Err(Fault::new(Blame::User, format!("{} has {DRIVES_MAX} drives; it may not have more", directory.display())));
    }
    let path = path_of(directory, count);
    fs::create_dir(&path).map_err(|error| at(&path, &error))?;
    Ok(path)
}

fn make(directory: &Path, count: usize) -> Result<Vec<PathBuf>, Fault> {
    if !(1..=DRIVES_MAX).contains(&count) {
        return Err(Fault::new(Blame::User, format!("expected 1 to {DRIVES_MAX} drives in one directory, got {count}")));
    }
    let paths: Vec<PathBuf> = (0..count).map(|number| path_of(directory, number)).collect();
    // Last to first, so that a directory whose making was cut short has a gap and is not taken for a smaller one.
    for path in paths.iter().rev() {
        fs::create_dir(path).map_err(|error| at(path, &error))?;
    }
    Ok(paths)
}

fn check_dense(directory: &Path, numbers: &[usize]) -> Result<(), Fault> {
    let Some(missing) = (0..numbers.len()).find(|index| numbers[*index] != *index) else { return Ok(()) };
    let last = numbers[numbers.len() - 1];
    Err(Fault::new(Blame::User, format!("{} has {PREFIX}{last} but no {PREFIX}{missing}", directory.display()))
        .hint("put the missing drive's directory back; if nothing was loaded yet, remove the data directory"))
}

fn not_ours(directory: &Path, foreign: &str) -> Fault {
    Fault::new(Blame::User, format!("{} is not a data directory: it has {foreign:?} and no {PREFIX}0", directory.display()))
        .hint("give an empty or new directory, or serve a single drive's directory with `pithead drive serve`")
}

fn at(path: &Path, error: &io::Error) -> Fault {
    let blame = match error.kind() {
        io::ErrorKind::NotFound
        | io::ErrorKind::PermissionDenied
        | io::ErrorKind::NotADirectory
        | io::ErrorKind::AlreadyExists => Blame::User,
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Blame::Limit,
        _ => Blame::Device,
    };
    Fault::new(blame, format!("{}: {error}", path.display()))
}

fn path_of(directory: &Path, number: usize) -> PathBuf {
    directory.join(format!("{PREFIX}{number}"))
}

/// The number in `drive-7`; nothing with leading zeros or signs.
fn drive_number(name: &str) -> Option<usize> {
    let digits = name.strip_prefix(PREFIX)?;
    let number = digits.parse().ok()?;
    (digits == usize::to_string(&number)).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_directory_gets_drives_and_keeps_them() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("a/b");
        let made = drive_directories(&data, 3).unwrap();
        assert_eq!(made, [data.join("drive-0"), data.join("drive-1"), data.join("drive-2")]);
        assert_eq!(drive_directories(&data, 7).unwrap(), made);
        assert_eq!(make_another(&data).unwrap(), data.join("drive-3"));
        assert_eq!(drive_directories(&data, 7).unwrap().len(), 4);
    }

    #[test]
    fn a_directory_of_something_else_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("thesis.txt"), "x").unwrap();
        let fault = drive_directories(folder.path(), 1).unwrap_err();
        assert_eq!(fault.blame, Blame::User);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_is_no_data_directory_and_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("thesis.txt");
        fs::write(&file, "x").unwrap();
        let fault = drive_directories(&file, 1).unwrap_err();
        assert_eq!((fault.blame, fault.message), (Blame::User, format!("{} is no directory", file.display())));
    }

    #[test]
    fn a_missing_drive_is_named() {
        let folder = tempfile::tempdir().unwrap();
        for number in [0, 2] {
            fs::create_dir(path_of(folder.path(), number)).unwrap();
        }
        let fault = drive_directories(folder.path(), 1).unwrap_err();
        assert!(fault.message.contains("no drive-1"), "{fault}");
    }

    #[test]
    fn bounds_hold() {
        let folder = tempfile::tempdir().unwrap();
        assert!(drive_directories(folder.path(), 0).is_err());
        assert!(drive_directories(folder.path(), 65).is_err());
        assert_eq!(
            [drive_number("drive-7"), drive_number("drive-07"), drive_number("drive-+7"), drive_number("drives")],
            [Some(7), None, None, None]
        );
    }
}
