//! A certificate that the drive signs itself, for clients that do not ask who signed it.

use std::fs;
use std::io::{self, Write as _};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use pithead_entry::ServerTlsFiles;
use pithead_model::{Blame, Fault};
use tokio_rustls::rustls::pki_types::ServerName;

use crate::server::entry_of;

const CERTIFICATE: &str = "kinetic.pem";
const KEY: &str = "kinetic.key";
/// What every drive's certificate is of.
const NAMES: [&str; 4] = ["localhost", "pithead-kinetic", "127.0.0.1", "::1"];
/// Where Linux has the machine's name.
const HOST: &str = "/proc/sys/kernel/hostname";

/// The certificate and key in a drive's folder. At the first start they are made there, for this machine and for the addresses where
/// the protocol is served. Files that are there are kept as they are.
pub fn self_signed(folder: &Path, addresses: &[IpAddr]) -> Result<ServerTlsFiles, Fault> {
    let files = ServerTlsFiles { cert: folder.join(CERTIFICATE), key: folder.join(KEY), client_ca: None };
    // The certificate is written last: where it is, there is its key.
    if files.cert.exists() && files.key.exists() {
        let read = entry_of(files.clone());
        return read
            .map(|_| files)
            .map_err(|fault| fault.hint(format!("delete both {CERTIFICATE} and {KEY}: the drive makes new ones")));
    }
    let host = fs::read_to_string(HOST).unwrap_or_default();
    let made = rcgen::generate_simple_self_signed(names(&host, addresses))
        .map_err(|error| Fault::bug(format!("making a certificate: {error}")))?;
    for (file, text, mode) in [(&files.key, made.signing_key.serialize_pem(), 0o600), (&files.cert, made.cert.pem(), 0o644)] {
        write(file, &text, mode).map_err(|error| Fault::new(Blame::Device, error.to_string()).at(file.display()))?;
    }
    Ok(files)
}

/// What a certificate is of. No client calls an address that stands for all of the machine's, or a host by what is no name.
fn names(host: &str, addresses: &[IpAddr]) -> Vec<String> {
    let host = Some(host.trim()).filter(|host| ServerName::try_from(*host).is_ok()).map(str::to_owned);
    let called = addresses.iter().map(IpAddr::to_canonical).filter(|address| !address.is_unspecified());
    let mut names = Vec::from(NAMES.map(str::to_owned));
    for name in host.into_iter().chain(called.map(|address| address.to_string())) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
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
        let files = self_signed(folder.path(), &[]).unwrap();
        let first = fs::read(&files.cert).unwrap();
        assert_eq!(self_signed(folder.path(), &[[10, 0, 0, 1].into()]).unwrap(), files);
        assert_eq!(fs::read(&files.cert).unwrap(), first);
        assert_eq!(fs::metadata(&files.key).unwrap().permissions().mode() & 0o777, 0o600);
        fs::remove_file(&files.cert).unwrap();
        self_signed(folder.path(), &[]).unwrap();
        assert_ne!(fs::read(&files.cert).unwrap(), first);
        let missing = self_signed(&folder.path().join("no such folder"), &[]).unwrap_err();
        assert_eq!(missing.blame, Blame::Device);
    }

    #[test]
    fn it_is_of_the_machine_and_of_what_clients_call() {
        let of = |host: &str, addresses: &[&str]| {
            let addresses: Vec<IpAddr> = addresses.iter().map(|address| address.parse().unwrap()).collect();
            names(host, &addresses)[NAMES.len()..].to_vec()
        };
        assert_eq!(of("server1\n", &["10.0.0.1", "fd00::1"]), ["server1", "10.0.0.1", "fd00::1"]);
        assert_eq!(of("server1.example\n", &["::ffff:10.0.0.1"]), ["server1.example", "10.0.0.1"]);
        for (host, address) in [("localhost\n", "127.0.0.1"), ("(none)\n", "0.0.0.0"), ("", "::")] {
            assert_eq!(of(host, &[address]), [] as [&str; 0], "{host}");
        }
    }
}
