//! Which files there are below what is attached, and of which dataset each is a part.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use pithead_door::{ATTACHED_FILES_MAX, Refusal};
use pithead_files::{RemoteObject, RemotePlace};
use pithead_model::DatasetName;

use crate::storage::attached::bucket::{Member, Role, role};
use crate::storage::attached::far::Far;
use crate::storage::attached::file::Stamp;
use crate::storage::attached::names::{DEPTH_MAX, Format, column_of, format_of, is_hidden, path_columns, twice};
use crate::storage::attached::spec::{Attach, AttachAt, Share};

/// A folder with one of these is a table of a format that lists its files elsewhere; not all files in it are part of it.
const LISTED_ELSEWHERE: [(&str, &str); 3] = [("_delta_log", "Delta Lake"), (".hoodie", "Hudi"), ("metadata", "Iceberg")];

/// A file of a dataset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listed {
    /// Where it is, without links; of an object at a server, its name.
    pub(crate) path: PathBuf,
    pub(crate) identity: Identity,
    pub(crate) format: Format,
    /// Columns that the folders above it name, `column=value`, from the outermost.
    pub(crate) folders: Vec<(String, String)>,
    /// The part of the dataset's row groups that is offered.
    pub(crate) share: Share,
}

/// What tells a file, as it was listed, from all others, and from itself after a change.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Identity {
    File(Stamp),
    Object(Arc<RemoteObject>),
}

impl Listed {
    /// Where it is: by path, and of objects at servers, which may share a name, by address.
    fn place(&self) -> (&OsStr, Option<&str>) {
        let address = match &self.identity {
            Identity::File(_) => None,
            Identity::Object(object) => Some(object.address()),
        };
        (self.path.as_os_str(), address)
    }
}

impl Identity {
    /// As bytes, to be hashed.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        match self {
            Identity::File(stamp) => stamp.to_bytes(),
            Identity::Object(object) => {
                let ((version, changed), mut bytes) = (object.version(), object.bytes().to_le_bytes().to_vec());
                for part in [object.address(), version, changed] {
                    bytes.extend_from_slice(&(part.len() as u64).to_le_bytes());
                    bytes.extend_from_slice(part.as_bytes());
                }
                bytes
            }
        }
    }
}

/// The files of each dataset in the order of their paths, or why there is none.
pub(crate) type Listing = BTreeMap<DatasetName, Result<Vec<Listed>, Refusal>>;

/// Lists what is there now. A dataset whose folders cannot be read is refused as a whole: some of its rows would be missing.
///
/// With the time for which files were waited that were changed a moment ago. `far`: the way to servers, if any is named. `tells`:
/// whether the log is told of names that cannot be datasets', once for all drives that share them. Blocks.
pub(crate) fn list(attached: &[Attach], far: Option<&Far>, tells: bool) -> (Listing, Duration) {
    let mut lister = Lister { found: Listing::new(), files: 0, waited: Duration::ZERO, tells };
    for attach in attached {
        match (&attach.at, far) {
            (AttachAt::Here(path), _) => lister.list(attach, path),
            (AttachAt::Far(place), Some(far)) => lister.list_place(attach, place, far),
            (AttachAt::Far(place), None) => lister.refuse(&root_name(attach), format!("{place}: no servers are asked")),
        }
    }
    lister.found.retain(|_, files| files.as_ref().map_or(true, |files| !files.is_empty()));
    for files in lister.found.values_mut().flatten() {
        // Paths are equal that differ in a doubled slash only. Names of objects are not, and several may have one name.
        files.sort_by(|a, b| a.place().cmp(&b.place()));
        files.dedup_by(|a, b| a.place() == b.place());
    }
    (lister.found, lister.waited)
}

struct Lister {
    found: Listing,
    files: usize,
    waited: Duration,
    tells: bool,
}

/// Where a walk is.
struct Walk<'a> {
    name: &'a DatasetName,
    /// What the walk must not leave, without links.
    root: &'a Path,
    share: Share,
    folders: Vec<(String, String)>,
}

impl Lister {
    /// The objects of a bucket. Where they cannot be listed, all datasets are refused that were there before.
    fn list_place(&mut self, attach: &Attach, place: &RemotePlace, far: &Far) {
        let root = root_name(attach);
        let objects = match far.servers.list(place) {
            Ok(objects) => objects,
            Err(fault) => {
                let mut known = far.known.of(attach).unwrap_or_default();
                if attach.name.is_some() || known.is_empty() {
                    known.insert(root);
                }
                return known.iter().for_each(|name| self.refuse(name, fault.clone()));
            }
        };
        let mut names = BTreeSet::new();
        for object in objects {
            match role(object.name(), object.path(), attach.name.as_ref(), &root) {
                Role::Member(Member { name, format, folders }) => {
                    let (path, identity) = (PathBuf::from(object.name()), Identity::Object(Arc::new(object)));
                    self.add(&name, Listed { path, identity, format, folders, share: attach.share });
                    names.insert(name);
                }
                Role::Refused(name, why) => {
                    self.refuse(&name, format!("{place}: {why}"));
                    names.insert(name);
                }
                Role::None => {}
            }
        }
        far.known.know(attach, names);
    }

    fn list(&mut self, attach: &Attach, path: &Path) {
        let root = match path.canonicalize() {
            Ok(root) => root,
            Err(error) => return self.refuse(&root_name(attach), unreadable(path, &error)),
        };
        let whole = match (&attach.name, root.is_file()) {
            (_, true) if format_of(&root).is_none() => {
                let what = format!("{} is no Parquet or Arrow file by the end of its name", path.display());
                return self.refuse(&root_name(attach), what);
            }
            (Some(name), _) => Some(name.clone()),
            (None, true) => match file_name(attach, path) {
                Ok(name) => Some(name),
                Err(what) => return self.refuse(&root_name(attach), what),
            },
            (None, false) => None,
        };
        if let Some(name) = &whole {
            // Of a file by itself, the folders are those of its path.
            let folders = if root.is_file() { path_columns(path) } else { vec![] };
            let mut walk = Walk { name, root: &root, share: attach.share, folders };
            return self.take(&mut walk, &root, 0);
        }
        let entries = match sorted_entries(&root) {
            Ok(entries) => entries,
            Err(error) => return self.refuse(&root_name(attach), unreadable(&root, &error)),
        };
        if let Some(format) = listed_elsewhere(&root) {
            return self.refuse(&root_name(attach), format);
        }
        for path in entries {
            self.list_entry(attach, &root, &path);
        }
    }

    /// An entry of a directory whose entries are datasets.
    fn list_entry(&mut self, attach: &Attach, root: &Path, path: &Path) {
        let Some(file_name) = path.file_name().and_then(|name| name.to_str()).filter(|name| !is_hidden(name)) else { return };
        let is_directory = path.is_dir();
        if is_directory && file_name.contains('=') {
            let what = format!(
                "{} holds parts of one dataset, such as {file_name}: attach it as NAME={}",
                root.display(),
                root.display()
            );
            return self.refuse(&root_name(attach), what);
        }
        let stem = match (is_directory, format_of(path)) {
            (true, _) => file_name,
            (false, Some(_)) => path.file_stem().and_then(|stem| stem.to_str()).unwrap_or(file_name),
            (false, None) => return,
        };
        let Ok(name) = DatasetName::new(attach.domain(), stem) else {
            if self.tells && attach.share.part == 0 {
                tracing::warn!(path = %path.display(), "not attached: its name cannot be a dataset's");
            }
            return;
        };
        self.take(&mut Walk { name: &name, root, share: attach.share, folders: vec![] }, path, 0);
    }

    /// A file, or all files below a folder.
    fn take(&mut self, walk: &mut Walk<'_>, path: &Path, depth: usize) {
        let real = match path.canonicalize() {
            Ok(real) => real,
            Err(error) => return self.refuse(walk.name, unreadable(path, &error)),
        };
        if !real.starts_with(walk.root) {
            let what = format!("{} leads to {}, out of what is attached", path.display(), real.display());
            return self.refuse(walk.name, what);
        }
        match Stamp::settled(&real, &mut self.waited) {
            Ok(metadata) if metadata.is_dir() => self.take_folder(walk, &real, depth),
            Ok(metadata) if metadata.is_file() => {
                if let Some(format) = format_of(path) {
                    let folders = walk.folders.clone();
                    let identity = Identity::File(Stamp::of(&metadata));
                    self.add(walk.name, Listed { path: real, identity, format, folders, share: walk.share });
                }
            }
            Ok(_) => {}
            Err(error) => self.refuse(walk.name, unreadable(&real, &error)),
        }
    }

    fn take_folder(&mut self, walk: &mut Walk<'_>, folder: &Path, depth: usize) {
        if depth > DEPTH_MAX {
            return self.refuse(walk.name, format!("{} lies in more than {DEPTH_MAX} folders", folder.display()));
        }
        if let Some(what) = listed_elsewhere(folder) {
            return self.refuse(walk.name, what);
        }
        let entries = match sorted_entries(folder) {
            Ok(entries) => entries,
            Err(error) => return self.refuse(walk.name, unreadable(folder, &error)),
        };
        for path in entries {
            let Some(name) = path.file_name().and_then(|name| name.to_str()).filter(|name| !is_hidden(name)) else { continue };
            let column = if path.is_dir() { column_of(name) } else { None };
            let deeper = column.is_some();
            walk.folders.extend(column);
            self.take(walk, &path, depth + 1);
            if deeper {
                walk.folders.pop();
            }
        }
    }

    fn add(&mut self, name: &DatasetName, file: Listed) {
        self.files += 1;
        if self.files > ATTACHED_FILES_MAX {
            return self.refuse(name, format!("more than {ATTACHED_FILES_MAX} files are attached"));
        }
        if let Some(column) = twice(&file.folders) {
            return self.refuse(name, format!("{}: its folders name the column {column} twice", file.path.display()));
        }
        if let Ok(files) = self.found.entry(name.clone()).or_insert_with(|| Ok(vec![])) {
            files.push(file);
        }
    }

    fn refuse(&mut self, name: &DatasetName, why: impl Into<Refusal>) {
        self.found.insert(name.clone(), Err(why.into()));
    }
}

/// The dataset of a file by itself, by the file's name.
fn file_name(attach: &Attach, path: &Path) -> Result<DatasetName, String> {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    DatasetName::new(attach.domain(), &*stem).map_err(|fault| {
        let place = path.display();
        format!("{place}: {}; attach it by another name: NAME={place}", fault.message)
    })
}

/// A name for a directory as a whole.
fn root_name(attach: &Attach) -> DatasetName {
    let path = attach.at.to_string();
    let stem = path.trim_end_matches('/').rsplit('/').next().unwrap_or("attached");
    let named = || DatasetName::new(attach.domain(), stem);
    attach
        .name
        .clone()
        .or_else(|| named().ok())
        .unwrap_or(DatasetName { domain: attach.domain().into(), dataset: "attached".into() })
}

fn unreadable(path: &Path, error: &io::Error) -> String {
    format!("cannot read {}: {error}", path.display())
}

/// Why a folder's files alone are not the rows of its table.
fn listed_elsewhere(folder: &Path) -> Option<String> {
    let is_there = |name: &str| match name {
        // Any folder may be called so; Iceberg's has the table's description.
        "metadata" => fs::read_dir(folder.join(name)).is_ok_and(|entries| {
            entries.flatten().any(|entry| entry.file_name().to_string_lossy().ends_with(".metadata.json"))
        }),
        _ => folder.join(name).is_dir(),
    };
    let (_, format) = LISTED_ELSEWHERE.iter().find(|(name, _)| is_there(name))?;
    let place = folder.display();
    Some(format!("{place} is a {format} table, of which some files may be deleted or replaced; attach a folder of plain files"))
}

fn sorted_entries(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut entries = fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    entries.sort();
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn touch(root: &Path, path: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, b"x").unwrap();
    }

    fn listing(root: &Path, name: Option<&str>) -> Listing {
        let at = AttachAt::Here(root.to_owned());
        list(&[Attach { name: name.map(|name| name.parse().unwrap()), at, share: Share::WHOLE }], None, true).0
    }

    fn names(listing: &Listing, dataset: &str) -> Vec<String> {
        let files = listing[&dataset.parse().unwrap()].as_ref().unwrap();
        files.iter().map(|file| file.path.file_name().unwrap().to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn entries_of_a_directory_are_datasets() {
        let root = tempfile::tempdir().unwrap();
        for path in
            ["orders.parquet", "t/2.parquet", "t/1.PARQUET", "t/_tmp/3.parquet", "t/.4.parquet", "notes.txt", "e/readme.md"]
        {
            touch(root.path(), path);
        }
        let found = listing(root.path(), None);
        assert_eq!(found.keys().map(ToString::to_string).collect::<Vec<_>>(), ["main.orders", "main.t"]);
        assert_eq!(names(&found, "t"), ["1.PARQUET", "2.parquet"]);
    }

    #[test]
    fn folders_name_columns() {
        let root = tempfile::tempdir().unwrap();
        touch(root.path(), "year=2024/city=S%C3%A3o%20P/a.parquet");
        let found = listing(root.path(), Some("lake.t"));
        let files = found[&"lake.t".parse().unwrap()].as_ref().unwrap();
        let folder = |column: &str, value: &str| (column.to_owned(), value.to_owned());
        assert_eq!(files[0].folders, [folder("year", "2024"), folder("city", "São P")]);
        let refused = listing(root.path(), None);
        assert!(
            refused.values().all(|files| files.as_ref().is_err_and(|refusal| refusal.why.contains("NAME="))),
            "{refused:?}"
        );
        let one = root.path().join("year=2024/city=S%C3%A3o%20P/a.parquet");
        let found = listing(&one, Some("lake.t"));
        let files = found[&"lake.t".parse().unwrap()].as_ref().unwrap();
        assert_eq!(files[0].folders.len(), 2, "a file by itself keeps the columns of its path");
        touch(root.path(), "year=2024/year=2025/b.parquet");
        let why = listing(root.path(), Some("lake.t")).into_values().next().unwrap().unwrap_err().why;
        assert!(why.ends_with("year=2025/b.parquet: its folders name the column year twice"), "{why}");
    }

    #[test]
    fn a_file_by_itself_is_a_dataset_of_its_name() {
        let root = tempfile::tempdir().unwrap();
        ["y=7/orders.parquet", "notes.txt"].iter().for_each(|path| touch(root.path(), path));
        let found = listing(&root.path().join("y=7/orders.parquet"), None);
        assert_eq!(found.keys().map(ToString::to_string).collect::<Vec<_>>(), ["main.orders"]);
        let files = found[&"main.orders".parse().unwrap()].as_ref().unwrap();
        assert_eq!(files[0].folders, [("y".to_owned(), "7".to_owned())]);
        let refused = |path: &str, name| listing(&root.path().join(path), name).into_values().next().unwrap().unwrap_err().why;
        assert!(refused("notes.txt", None).contains("no Parquet or Arrow file"));
        assert!(refused("notes.txt", Some("t")).contains("no Parquet or Arrow file"));
    }

    #[test]
    fn links_out_of_the_directory_and_tables_of_other_formats_are_refused() {
        let (root, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        touch(other.path(), "secret.parquet");
        touch(root.path(), "t/a.parquet");
        touch(root.path(), "d/_delta_log/0.json");
        touch(root.path(), "d/a.parquet");
        std::os::unix::fs::symlink(other.path().join("secret.parquet"), root.path().join("t/b.parquet")).unwrap();
        std::os::unix::fs::symlink(root.path().join("t/a.parquet"), root.path().join("in.parquet")).unwrap();
        let found = listing(root.path(), None);
        let refused = |name: &str| found[&name.parse().unwrap()].clone().unwrap_err().why;
        assert!(refused("t").contains("out of what is attached"), "{}", refused("t"));
        assert!(refused("d").contains("Delta"), "{}", refused("d"));
        assert_eq!(names(&found, "in"), ["a.parquet"], "a link within is a file like others");
    }
}
