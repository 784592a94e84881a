//! Which objects at a server are files of which dataset: as for the files of a directory, by their paths below what is attached.

use pithead_model::DatasetName;

use crate::storage::attached::names::{DEPTH_MAX, Format, column_of, format_of, is_hidden};

/// An object that is a file of a dataset.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) name: DatasetName,
    pub(crate) format: Format,
    /// Columns that the folders above it name, from the outermost.
    pub(crate) folders: Vec<(String, String)>,
}

/// What an object is to what is attached.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Member(Member),
    /// A dataset that cannot be read, and why.
    Refused(DatasetName, String),
    /// No file of a dataset.
    None,
}

/// What an object of this name is, with a path below what is attached; none: it is that itself. `whole`: the dataset that all objects make; none: each entry of the place is one, in `domain`. `root`: a
/// name for the place as a whole.
pub(crate) fn role(object: &str, path: Option<&str>, whole: Option<&DatasetName>, root: &DatasetName) -> Role {
    // Of an object by itself, the folders are those of its name.
    let mut parts: Vec<&str> = path.unwrap_or(object).split('/').collect();
    let Some(file) = parts.pop() else { return Role::None };
    if path.is_none() {
        let folders = parts.into_iter().filter_map(column_of).collect();
        return member(whole.cloned().map_or_else(|| dataset(root, stem(file)), Some), file, folders);
    }
    let entry = parts.first().copied().filter(|_| whole.is_none());
    let name = match (whole, entry) {
        (Some(whole), _) => Some(whole.clone()),
        (None, Some(entry)) if is_hidden(entry) => return special(&parts, file, root).unwrap_or(Role::None),
        (None, Some(entry)) => dataset(root, entry),
        (None, None) => dataset(root, stem(file)),
    };
    let owner = name.clone().unwrap_or_else(|| root.clone());
    if let Some(refused) = special(&parts, file, if whole.is_none() && parts.len() == 1 { root } else { &owner }) {
        return refused;
    }
    if parts.iter().any(|folder| is_hidden(folder)) || is_hidden(file) || format_of(file.as_ref()).is_none() {
        return Role::None;
    }
    if let Some(folder) = entry.filter(|entry| column_of(entry).is_some()) {
        let what = format!("it holds parts of one dataset, such as {folder}: attach it with NAME= before it");
        return Role::Refused(root.clone(), what);
    }
    if parts.len() > DEPTH_MAX {
        return Role::Refused(owner, format!("{object} lies in more than {DEPTH_MAX} folders"));
    }
    let folders = parts[usize::from(entry.is_some())..].iter().filter_map(|folder| column_of(folder)).collect();
    member(name, file, folders)
}

fn member(name: Option<DatasetName>, file: &str, folders: Vec<(String, String)>) -> Role {
    match (name, format_of(file.as_ref())) {
        (Some(name), Some(format)) => Role::Member(Member { name, format, folders }),
        (None, Some(_)) => {
            tracing::warn!(file, "not attached: its name cannot be a dataset's");
            Role::None
        }
        (_, None) => Role::None,
    }
}

fn stem(file: &str) -> &str {
    file.rsplit_once('.').map_or(file, |(stem, _)| stem)
}

fn dataset(root: &DatasetName, name: &str) -> Option<DatasetName> {
    DatasetName::new(&*root.domain, name).ok()
}

/// The refusal of a table of a format that lists its files elsewhere, if this is one of its own files.
fn special(parts: &[&str], file: &str, owner: &DatasetName) -> Option<Role> {
    let format = match parts {
        _ if parts.contains(&"_delta_log") => "Delta Lake",
        _ if parts.contains(&".hoodie") => "Hudi",
        [.., "metadata"] if file.ends_with(".metadata.json") => "Iceberg",
        _ => return None,
    };
    let what =
        format!("it is a {format} table, of which some files may be deleted or replaced; attach a folder of plain files");
    Some(Role::Refused(owner.clone(), what))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roles(paths: &[Option<&str>], whole: Option<&str>) -> Vec<String> {
        let (whole, root) = (whole.map(|name| name.parse().unwrap()), "lake".parse().unwrap());
        let shown = |path: &Option<&str>| match role("s3://b/y=7/one.parquet", *path, whole.as_ref(), &root) {
            Role::Member(member) => format!("{} {:?} {:?}", member.name, member.format, member.folders),
            Role::Refused(name, why) => format!("{name}: {}", why.split([',', ':']).next().unwrap_or_default()),
            Role::None => "-".to_owned(),
        };
        paths.iter().map(shown).collect()
    }

    #[test]
    fn objects_are_files_as_those_of_a_directory_are() {
        let paths = [
            Some("orders.parquet"),
            Some("t/y=2024/c=S%C3%A3o/a.PARQUET"),
            Some("t/b.arrow"),
            Some("t/_tmp/c.parquet"),
            Some(".hidden/c.parquet"),
            Some("notes.txt"),
            Some("y=1/a.parquet"),
            Some("d/_delta_log/0.json"),
            Some("_delta_log/0.json"),
            Some("i/metadata/v1.metadata.json"),
            Some("i/metadata/a.parquet"),
            None,
        ];
        let expected = [
            "main.orders Parquet []",
            "main.t Parquet [(\"y\", \"2024\"), (\"c\", \"São\")]",
            "main.t Arrow []",
            "-",
            "-",
            "-",
            "main.lake: it holds parts of one dataset",
            "main.d: it is a Delta Lake table",
            "main.lake: it is a Delta Lake table",
            "main.i: it is a Iceberg table",
            "main.i Parquet []",
            "main.one Parquet [(\"y\", \"7\")]",
        ];
        assert_eq!(roles(&paths, None), expected);
        let whole = [
            "lab.x Parquet []",
            "lab.x Parquet [(\"y\", \"2024\"), (\"c\", \"São\")]",
            "lab.x Arrow []",
            "-",
            "-",
            "-",
            "lab.x Parquet [(\"y\", \"1\")]",
            "lab.x: it is a Delta Lake table",
            "lab.x: it is a Delta Lake table",
            "lab.x: it is a Iceberg table",
            "lab.x Parquet []",
            "lab.x Parquet [(\"y\", \"7\")]",
        ];
        assert_eq!(roles(&paths, Some("lab.x")), whole);
    }
}
