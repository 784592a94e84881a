//! `pithead cert`: a small CA, and certificates for drives and hosts.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::{Args, Subcommand};
use pithead_model::{Blame, Fault};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose,
};

use crate::error::CliError;
use crate::secret_file::{Mode, Ready, write_new};
use crate::terminal;

const EXAMPLES: &str = "\
Examples:
  pithead cert ca                       # certs/ca.pem is for everyone, certs/ca.key for nobody
  pithead cert drive server1 10.0.0.7   # certs/server1.pem and .key: a drive of this name and address
  pithead cert client reports           # certs/reports.pem and .key: a host that is known as reports";

/// What every CA of ours is called. Certificates name it; which CA is meant, keys decide.
const CA_NAME: &str = "Pithead CA";
const DAY: Duration = Duration::from_secs(24 * 3600);
/// How long a CA is good for.
const CA_DAYS: u32 = 3650;

/// What a certificate is for.
#[derive(Clone, Copy, Debug)]
struct Purpose {
    text: &'static str,
    /// What stands for it among a certificate's extended key usages: an identifier of RFC 5280 as DER.
    usage: &'static [u8],
}

/// `id-kp-serverAuth`.
const DRIVE: Purpose = Purpose { text: "a drive", usage: b"\x06\x08\x2b\x06\x01\x05\x05\x07\x03\x01" };
/// `id-kp-clientAuth`.
const CLIENT: Purpose = Purpose { text: "a host", usage: b"\x06\x08\x2b\x06\x01\x05\x05\x07\x03\x02" };

/// What can be made.
#[derive(Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
pub(crate) enum CertCommand {
    /// Make a CA: whoever has its key decides who is trusted. It is good for ten years
    Ca(CaArgs),
    /// Make a certificate for a drive, by the names and addresses that hosts connect to
    Drive(DriveArgs),
    /// Make a certificate that says who a host is, for `drive serve --client-ca`
    Client(ClientArgs),
}

/// Flags of all of them.
#[derive(Debug, Args)]
pub(crate) struct CaArgs {
    /// Folder of the CA, and of what is made
    #[arg(long, value_name = "DIR", default_value = "certs")]
    dir: PathBuf,
}

/// Flags of `drive`.
#[derive(Debug, Args)]
pub(crate) struct DriveArgs {
    /// Names and IP addresses of the drive; the first one names the files
    #[arg(value_name = "HOST", required = true)]
    hosts: Vec<String>,
    /// Days that the certificate is good for
    #[arg(long, value_name = "N", default_value_t = 825, value_parser = clap::value_parser!(u32).range(1..=36_500))]
    days: u32,
    #[command(flatten)]
    ca: CaArgs,
}

/// Flags of `client`.
#[derive(Debug, Args)]
pub(crate) struct ClientArgs {
    /// Who the host is: the certificate's common name, and `certificate` in an access file
    #[arg(value_name = "NAME")]
    name: String,
    /// Days that the certificate is good for
    #[arg(long, value_name = "N", default_value_t = 825, value_parser = clap::value_parser!(u32).range(1..=36_500))]
    days: u32,
    #[command(flatten)]
    ca: CaArgs,
}

/// Runs the command.
pub(crate) fn run(command: CertCommand) -> Result<(), CliError> {
    let made = match command {
        CertCommand::Ca(args) => make_ca(&args.dir)?,
        CertCommand::Drive(DriveArgs { hosts, days, ca }) => {
            let name = hosts.first().cloned().unwrap_or_default();
            let mut params = CertificateParams::new(hosts).map_err(|error| CliError::user(format!("not a host: {error}")))?;
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
            issue(&ca.dir, &name, &DRIVE, days, params)?
        }
        CertCommand::Client(ClientArgs { name, days, ca }) => {
            let mut params = CertificateParams::default();
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
            issue(&ca.dir, &name, &CLIENT, days, params)?
        }
    };
    terminal::tell(format_args!("made {} and {}", made.0.display(), made.1.display()));
    Ok(())
}

fn ca_params() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = common_name(CA_NAME);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    good_for(&mut params, CA_DAYS);
    params
}

fn make_ca(dir: &Path) -> Result<(PathBuf, PathBuf), CliError> {
    let (cert, key) = paths(dir, "ca")?;
    if cert.exists() || key.exists() {
        let fault = Fault::new(Blame::User, format!("there is a CA in {} already", dir.display()));
        return Err(fault
            .hint("name another folder with --dir; replacing a CA makes all of its certificates worthless")
            .into());
    }
    fs::create_dir_all(dir).map_err(|error| CliError::file(dir, error))?;
    let ca = CertifiedIssuer::self_signed(ca_params(), new_key()?).map_err(ours)?;
    let otherwise = "name another folder with --dir";
    write_new(&key, &ca.key().serialize_pem(), Mode::Secret, otherwise)?;
    write_new(&cert, &ca.pem(), Mode::Public, otherwise)?;
    Ok((cert, key))
}

/// Makes a certificate that the CA of a folder signs. One of the same name and purpose is replaced: it is renewed.
fn issue(
    dir: &Path,
    name: &str,
    purpose: &Purpose,
    days: u32,
    mut params: CertificateParams,
) -> Result<(PathBuf, PathBuf), CliError> {
    let (cert, key_file) = paths(dir, name)?;
    let (_, ca_key) = paths(dir, "ca")?;
    if name == "ca" {
        return Err(CliError::user("ca is the name of the CA's own files; choose another"));
    }
    check_purpose(&cert, &key_file, purpose)?;
    let pem = fs::read_to_string(&ca_key).map_err(|error| {
        let fault = Fault::new(Blame::User, format!("cannot read the CA's key {}: {error}", ca_key.display()));
        fault.hint(format!("make a CA first: pithead cert ca --dir {}", dir.display()))
    })?;
    let ca_key = KeyPair::from_pem(&pem).map_err(|error| CliError::user(format!("{}: {error}", ca_key.display())))?;
    let issuer = Issuer::new(ca_params(), ca_key);
    params.distinguished_name = common_name(name);
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    good_for(&mut params, days);
    let key = new_key()?;
    let signed = params.signed_by(&key, &issuer).map_err(ours)?;
    // Both are written before either is replaced, so that hardly anybody reads one of the old and one of the new.
    let pair = [Ready::make(&key_file, &key.serialize_pem(), Mode::Secret)?, Ready::make(&cert, &signed.pem(), Mode::Public)?];
    pair.into_iter().try_for_each(Ready::put)?;
    Ok((cert, key_file))
}

/// Refuses to put a certificate into the place of one that is for something else: whoever uses that one would be refused.
fn check_purpose(cert: &Path, key: &Path, purpose: &Purpose) -> Result<(), CliError> {
    let pem = match fs::read_to_string(cert) {
        Ok(pem) => pem,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(CliError::file(cert, error)),
    };
    let lines = pem.lines().map(str::trim).skip_while(|line| *line != "-----BEGIN CERTIFICATE-----").skip(1);
    let body: String = lines.take_while(|line| !line.starts_with('-')).collect();
    let is_for = |der: &[u8]| der.windows(purpose.usage.len()).any(|part| part == purpose.usage);
    if STANDARD.decode(&body).is_ok_and(|der| is_for(&der)) {
        return Ok(());
    }
    let fault =
        Fault::new(Blame::User, format!("{} is there already, and not a certificate for {}", cert.display(), purpose.text));
    Err(fault.hint(format!("choose another name, or remove it and {}", key.display())).into())
}

fn paths(dir: &Path, name: &str) -> Result<(PathBuf, PathBuf), CliError> {
    let plain =
        !name.is_empty() && name.len() <= 64 && !name.starts_with('.') && !name.chars().any(|c| c.is_control() || c == '/');
    match plain {
        true => Ok((dir.join(format!("{name}.pem")), dir.join(format!("{name}.key")))),
        false => {
            Err(CliError::user(format!("{name:?} is not a name: expected 1 to 64 bytes without '/' and control characters")))
        }
    }
}

fn common_name(name: &str) -> DistinguishedName {
    let mut names = DistinguishedName::new();
    names.push(DnType::CommonName, name);
    names
}

/// Good from a day ago, for clocks that are behind.
fn good_for(params: &mut CertificateParams, days: u32) {
    let now = SystemTime::now();
    params.not_before = (now - DAY).into();
    params.not_after = (now + DAY * days).into();
}

fn new_key() -> Result<KeyPair, CliError> {
    KeyPair::generate().map_err(ours)
}

fn ours(error: rcgen::Error) -> CliError {
    Fault::new(Blame::Bug, format!("making a certificate: {error}")).into()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_ca_is_made_once_and_signs_for_names() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("certs");
        let ca = || CaArgs { dir: dir.clone() };
        let client = |name: &str| run(CertCommand::Client(ClientArgs { name: name.into(), days: 1, ca: ca() }));
        assert!(client("reports").unwrap_err().to_string().contains("CA's key"));
        run(CertCommand::Ca(ca())).unwrap();
        assert!(run(CertCommand::Ca(ca())).unwrap_err().to_string().contains("already"));
        client("reports").unwrap();
        let first = fs::read(dir.join("reports.pem")).unwrap();
        client("reports").unwrap();
        assert_ne!(fs::read(dir.join("reports.pem")).unwrap(), first, "it is renewed");
        let hosts = vec!["server1".to_owned(), "10.0.0.7".to_owned(), "::1".to_owned()];
        run(CertCommand::Drive(DriveArgs { hosts, days: 1, ca: ca() })).unwrap();
        for key in ["ca.key", "reports.key", "server1.key"] {
            assert_eq!(fs::metadata(dir.join(key)).unwrap().permissions().mode() & 0o777, 0o600, "{key}");
        }
        for name in ["", "../x", "a/b", ".hidden", "ca"] {
            assert!(client(name).is_err(), "{name}");
        }
    }

    #[test]
    fn a_certificate_is_renewed_and_never_becomes_another_kind() {
        let folder = tempfile::tempdir().unwrap();
        let ca = || CaArgs { dir: folder.path().to_owned() };
        let client = |name: &str| run(CertCommand::Client(ClientArgs { name: name.into(), days: 1, ca: ca() }));
        let drive = |name: &str| run(CertCommand::Drive(DriveArgs { hosts: vec![name.into()], days: 1, ca: ca() }));
        let files = |name: &str| ["pem", "key"].map(|end| fs::read(folder.path().join(format!("{name}.{end}"))).unwrap());
        run(CertCommand::Ca(ca())).unwrap();
        drive("server1").unwrap();
        client("reports").unwrap();
        let (of_drive, of_client) = (files("server1"), files("reports"));
        for refused in [client("server1"), drive("reports")] {
            let CliError::Fault(fault) = refused.unwrap_err() else { panic!("a fault") };
            let hint = fault.hint.as_deref().unwrap_or_default();
            assert!(fault.blame == Blame::User && hint.starts_with("choose another name"), "{fault:?}");
        }
        assert_eq!((files("server1"), files("reports")), (of_drive.clone(), of_client.clone()));
        drive("server1").unwrap();
        client("reports").unwrap();
        assert!(files("server1").iter().zip(&of_drive).all(|(new, old)| new != old));
        assert!(files("reports").iter().zip(&of_client).all(|(new, old)| new != old));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 6, "nothing is left beside them");
    }
}
