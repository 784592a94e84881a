//! What names of files and folders say: how a file is read, which columns a folder names, and what is no data.

use std::path::Path;

/// Folders within folders that are looked into at most.
pub(super) const DEPTH_MAX: usize = 32;

/// How a file is read, by the end of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Parquet,
    Arrow,
}

/// Names that writers give to what is no data, or not yet.
pub(super) fn is_hidden(name: &str) -> bool {
    name.starts_with(['.', '_'])
}

pub(super) fn format_of(path: &Path) -> Option<Format> {
    match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
        "parquet" | "pq" | "parq" => Some(Format::Parquet),
        "arrow" | "feather" | "ipc" => Some(Format::Arrow),
        _ => None,
    }
}

/// `column=value` of a folder's name, with what is written as `%XX` decoded.
pub(super) fn column_of(name: &str) -> Option<(String, String)> {
    let (column, value) = name.split_once('=')?;
    (!column.is_empty()).then(|| (decoded(column), decoded(value)))
}

fn decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = bytes.get(at + 1..at + 3).filter(|_| bytes[at] == b'%').and_then(|hex| std::str::from_utf8(hex).ok());
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => (out.push(byte), at += 3).0,
            None => (out.push(bytes[at]), at += 1).0,
        }
    }
    String::from_utf8(out).unwrap_or_else(|_| text.to_owned())
}

/// A column that several folders of a path name: which of their values it has, nobody can say.
pub(super) fn twice(folders: &[(String, String)]) -> Option<&str> {
    let is_before = |(at, (column, _)): &(usize, &(String, String))| folders[..*at].iter().any(|(other, _)| other == column);
    folders.iter().enumerate().find(is_before).map(|(_, (column, _))| column.as_str())
}

/// The columns that the folders of a path name.
pub(super) fn path_columns(path: &Path) -> Vec<(String, String)> {
    let folders = path.parent().into_iter().flat_map(Path::components);
    folders.filter_map(|folder| column_of(folder.as_os_str().to_str()?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_name_a_column_and_its_value() {
        let folder = |column: &str, value: &str| Some((column.to_owned(), value.to_owned()));
        assert_eq!(column_of("city=S%C3%A3o%20P"), folder("city", "São P"));
        assert_eq!((column_of("a=b=%2"), column_of("=b"), column_of("b")), (folder("a", "b=%2"), None, None));
    }

    #[test]
    fn folders_that_name_a_column_twice_are_told() {
        let of = |path: &str| twice(&path_columns(Path::new(path))).map(str::to_owned);
        assert_eq!((of("t/y=1/m=1/a.parquet"), of("y=1/m=2/y=1/a.parquet")), (None, Some("y".to_owned())));
    }
}
