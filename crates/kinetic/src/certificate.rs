//! A certificate that the drive signs itself, for clients that do not ask who signed it.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use pithead_entry::ServerTlsFiles;
use pithead_model::{Blame, Fault};

const CERTIFICATE: &str = "kinetic.pem";
const KEY: &str = "kinetic.key";

/// The certificate and key in a drive's folder. At the first start they are made there.
pub fn self_signed(folder: &Path) -> Result<ServerTlsFiles, Fault> {
    let files = ServerTlsFiles { cert: folder.join(CERTIFICATE), key: folder.join(KEY), client_ca: None };
    // The certificate is written last: where it is, there is its key.
    if files.cert.exists() && files.key.exists() {
        return Ok(files);
    }
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned(), "pithead-kinetic".to_owned()])
        .map_err(|error| Fault::bug(format!("making a certificate: {error}")))?;
    for (file, text, mode) in [(&files.key, made.signing_key.serialize_pem(), 0o600), (&files.cert, made.cert.pem(), 0o644)] {
        write(file, &text, mode).map_err(|error| Fault::new(Blame::Device, error.to_string()).at(file.display()))?;
    }
    Ok(files)
}

/// Writes a file as a whole: it has its old content or its new one.
fn write(file: &Path, text: &str, mode: u32) -> io::Result<()> {
    let mut new = file.as_os_str().to_owned();
    new.push(".new");
    let mut options = fs::OpenOptions::new();
    let mut open = options.write(true).create(true).truncate(true).mode(mode).open(&new)?;
    open.write_all(text.as_bytes())?;
    open.sync_all()?;
    fs::rename(&new, file)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn it_is_made_once_and_its_key_is_secret() {
        let folder = tempfile::tempdir().unwrap();
        let files = self_signed(folder.path()).unwrap();
        let first = fs::read(&files.cert).unwrap();
        assert_eq!(self_signed(folder.path()).unwrap(), files);
        assert_eq!(fs::read(&files.cert).unwrap(), first);
        assert_eq!(fs::metadata(&files.key).unwrap().permissions().mode() & 0o777, 0o600);
        fs::remove_file(&files.cert).unwrap();
        self_signed(folder.path()).unwrap();
        assert_ne!(fs::read(&files.cert).unwrap(), first);
        let missing = self_signed(&folder.path().join("no such folder")).unwrap_err();
        assert_eq!(missing.blame, Blame::Device);
    }
}
