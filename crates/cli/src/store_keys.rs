//! Keys of a drive's store, as people say them and as they type them.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use pithead_model::{Blame, Fault};
use pithead_store::{DiskStore, StoreOptions};

use crate::error::CliError;

/// A marker is a short line.
const MARKER_BYTES_MAX: u64 = 64;

/// What a key stands for in a drive; none for keys that are no drive's.
pub(crate) fn key_words(key: &str) -> Option<String> {
    if let Some(domain) = key.strip_prefix("manifest/") {
        return Some(format!("manifest of domain {domain}"));
    }
    if let Some(run) = key.strip_prefix("condemned/") {
        return Some(format!("note that a run is to go: {}", slice_words(run)?));
    }
    if let Some(run) = key.strip_prefix("claim/") {
        return Some(format!("up to which manifest a run is claimed: {}", slice_words(run)?));
    }
    if let Some((slice, column)) = key.strip_prefix("filter/").and_then(|rest| rest.rsplit_once('/')) {
        return Some(format!("which values column {column} has: {}", slice_words(slice)?));
    }
    if let Some(run) = key.strip_prefix("retired/") {
        return Some(format!("since when only older versions name a run: {}", slice_words(run)?));
    }
    if let Some((domain, version)) = key.strip_prefix("manifest-old/").and_then(|rest| rest.rsplit_once('/')) {
        return Some(format!("version {} of the manifest of domain {domain}", u64::from_str_radix(version, 16).ok()?));
    }
    if key == "history/default" {
        return Some("how long versions are kept of domains that do not say it".to_owned());
    }
    if key == "kinetic/state" {
        return Some("identities, PINs and cluster version of Kinetic clients".to_owned());
    }
    if let Some(name) = key.strip_prefix("kinetic/key/") {
        return Some(format!("a Kinetic client's key {name:?}"));
    }
    if let Some(name) = key.strip_prefix("program/module/") {
        return Some(format!("the module {name} of SSDlets"));
    }
    if let Some(name) = key.strip_prefix("program/about/") {
        return Some(format!("version, hash and SSDlets of the module {name}"));
    }
    if key.starts_with("program/code/") {
        return Some("compiled code of a module of SSDlets".to_owned());
    }
    if let Some((service, what)) = key.strip_prefix("background/").and_then(|rest| rest.split_once('/')) {
        let what = if what == "told" { "what it was told" } else { "how far it is" };
        return Some(format!("the background service {service}: {what}"));
    }
    if let Some(domain) = key.strip_prefix("manifest-aside/").and_then(|rest| rest.split('/').next()) {
        return Some(format!("manifest of domain {domain} that another home did not know"));
    }
    slice_words(key)
}

/// `slice/DOMAIN/DATASET@INCARNATION/LOAD/PARTITION.NUMBER`, or `.meta` instead of a number.
fn slice_words(key: &str) -> Option<String> {
    let mut parts = key.strip_prefix("slice/")?.split('/');
    let (domain, dataset, load, last) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let (dataset, _incarnation) = dataset.rsplit_once('@')?;
    let (partition, number) = last.split_once('.')?;
    let partition: u32 = partition.parse().ok()?;
    let what = match number {
        "meta" => "metadata slice".to_owned(),
        number => format!("slice {}", number.parse::<u32>().ok()?),
    };
    parts.next().is_none().then(|| format!("{what} of partition {partition} of {domain}.{dataset}, load {load}"))
}

/// The bytes of a key as stores show it: `\x00`, `\n`, `\\` and so on stand for one byte each.
pub(crate) fn key_bytes(text: &str) -> Result<Vec<u8>, CliError> {
    let bad = || CliError::user(format!("{text:?} has a \\ that starts no escape: write \\\\ for itself, \\x0a for a byte"));
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        bytes.push(match rest.next().ok_or_else(bad)? {
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'0' => 0,
            quoted @ (b'\\' | b'\'' | b'"') => quoted,
            b'x' => {
                let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
                let (high, low) = (digit(rest.next()), digit(rest.next()));
                let value = high.zip(low).map(|(high, low)| high * 16 + low).ok_or_else(bad)?;
                u8::try_from(value).map_err(|_| bad())?
            }
            _ => return Err(bad()),
        });
    }
    Ok(bytes)
}

/// The stores in a folder: itself, or its `drive-0`, `drive-1` and so on.
pub(crate) fn store_folders(folder: &Path) -> Result<Vec<PathBuf>, CliError> {
    // Any of them: a check can put right that the others are missing.
    let is_store = |folder: &Path| ["FORMAT", "index.redb", "journal"].iter().any(|name| folder.join(name).exists());
    if is_store(folder) {
        return Ok(vec![folder.to_owned()]);
    }
    let mut numbered = Vec::new();
    for entry in
        std::fs::read_dir(folder).map_err(|error| no_store(&format!("cannot look into {}: {error}", folder.display())))?
    {
        let entry = entry.map_err(|error| CliError::file(folder, error))?;
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix("drive-")?.parse::<u32>().ok());
        numbered.extend(number.filter(|_| is_store(&entry.path())).map(|number| (number, entry.path())));
    }
    numbered.sort();
    if numbered.is_empty() {
        return Err(no_store(&format!("{} holds no store", folder.display())));
    }
    Ok(numbered.into_iter().map(|(_, folder)| folder).collect())
}

fn no_store(what: &str) -> CliError {
    Fault::new(Blame::User, what).hint("give a drive's folder, or a data directory with drive-0, drive-1 and so on").into()
}

/// Opens a store to look at single values. One of the first format is refused: opening would upgrade it.
pub(crate) fn open(folder: &Path) -> Result<DiskStore, CliError> {
    let (path, mut marker) = (folder.join("FORMAT"), String::new());
    let read = File::open(&path).and_then(|file| file.take(MARKER_BYTES_MAX).read_to_string(&mut marker));
    read.map_err(|error| CliError::file(&path, error))?;
    if marker.trim() == "pithead store 1" {
        let fault =
            Fault::new(Blame::User, format!("the store in {} has format 1, and looking must not change it", folder.display()));
        return Err(fault.hint("any command that uses the drive upgrades it to this release's format").into());
    }
    let options = StoreOptions { cache_bytes: 0, background: false, ..StoreOptions::default() };
    DiskStore::open_read_only(folder, options).map_err(|error| Fault::from(error).into())
}

#[cfg(test)]
mod tests {
    use pithead_model::{DatasetId, LoadId, SliceKey};
    use pithead_store::show_key;

    use super::*;

    #[test]
    fn keys_of_a_drive_are_put_in_words() {
        let run =
            SliceKey { name: "lab.t".parse().unwrap(), dataset: DatasetId(1), load: LoadId(2), partition: 3, number: None };
        let words = |key: &str| key_words(key).unwrap_or_default();
        assert_eq!(words(&run.slice(4).to_string()), format!("slice 4 of partition 3 of lab.t, load {}", LoadId(2)));
        assert!(words(&run.to_string()).starts_with("metadata slice of partition 3 of lab.t"));
        assert_eq!(words("manifest/lab"), "manifest of domain lab");
        assert!(words(&format!("filter/{}/5", run.slice(4))).starts_with("which values column 5 has: slice 4 of partition 3"));
        assert!(words(&format!("condemned/{run}")).starts_with("note that a run is to go: metadata slice"));
        assert!(words("history/default").starts_with("how long versions are kept"));
        for other in ["", "slice/", "slice/a/b/c/1.2", "slice/a/b@1/c/x.2", "slice/a/b@1/c/1.2/d", "user"] {
            assert_eq!(key_words(other), None, "{other}");
        }
    }

    #[test]
    fn a_key_that_was_shown_can_be_typed() {
        for key in [&b""[..], b"slice/main/t@1/2/3.4", b"\x00\xff\\ \"'\n\t\r", "山".as_bytes()] {
            let shown = if key.is_empty() { String::new() } else { show_key(key) };
            assert_eq!(key_bytes(&shown).unwrap(), key, "{shown}");
        }
        assert_eq!(key_bytes("山").unwrap(), "山".as_bytes());
        for bad in ["\\", "\\x4", "\\xgg", "\\q"] {
            assert!(key_bytes(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn stores_are_found_by_their_marker_in_the_order_of_their_numbers() {
        let folder = tempfile::tempdir().unwrap();
        for nothing in [folder.path().to_owned(), folder.path().join("none")] {
            let CliError::Fault(fault) = store_folders(&nothing).unwrap_err() else { panic!("not said why") };
            assert!(fault.hint.is_some_and(|hint| hint.contains("drive-0")), "{}", fault.message);
        }
        for name in ["drive-10", "drive-2", "other"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
            std::fs::write(folder.path().join(name).join("FORMAT"), "").unwrap();
        }
        std::fs::create_dir(folder.path().join("drive-0")).unwrap();
        let found = store_folders(folder.path()).unwrap();
        assert_eq!(found, [folder.path().join("drive-2"), folder.path().join("drive-10")]);
        assert_eq!(store_folders(&found[0]).unwrap(), found[..1]);
    }
}
