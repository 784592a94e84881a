//! How drives on the network are connected to: whom to trust, and who this is.

use std::path::PathBuf;

use clap::Args;
use pithead_embed::{ConnectOptions, LinkFlags};

use crate::error::CliError;

/// Flags of the link to drives. Each has a variable of the environment that goes after it.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "The link to drives on the network")]
pub(crate) struct LinkArgs {
    /// Speak TLS, and trust drives whose certificate this CA has signed [default: $PITHEAD_TLS_CA]
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_ca: Option<PathBuf>,
    /// Certificate of this host, for drives that ask for one [default: $PITHEAD_TLS_CERT]
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// Its key [default: $PITHEAD_TLS_KEY]
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// File with the token that says who this is [default: $PITHEAD_TOKEN_FILE, or the token itself in $PITHEAD_TOKEN]
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// Connect to other machines without TLS: whoever is on the way can read and change everything, the token too
    #[arg(long)]
    pub(crate) insecure: bool,
}

impl LinkArgs {
    /// What the flags say, and where they are silent the environment.
    pub(crate) fn options(&self, variable: impl Fn(&str) -> Option<String>) -> Result<ConnectOptions, CliError> {
        let Self { tls_ca, tls_cert, tls_key, token_file, insecure } = self.clone();
        Ok(LinkFlags { tls_ca, tls_cert, tls_key, token_file, insecure }.options(variable)?)
    }
}

#[cfg(test)]
mod tests {
    use pithead_embed::Token;

    use super::*;

    #[test]
    fn flags_go_before_the_environment() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let (in_file, in_variable) = (Token::random(), Token::random());
        std::fs::write(&path, format!("{}\n", in_file.text())).unwrap();
        let variable = |name: &str| match name {
            "PITHEAD_TOKEN" => Some(in_variable.text().to_owned()),
            "PITHEAD_TLS_CA" => Some("/ca".to_owned()),
            _ => None,
        };
        let none = LinkArgs::default();
        assert_eq!(none.options(|_| None).unwrap(), ConnectOptions::default());
        let options = none.options(variable).unwrap();
        assert_eq!((options.token, options.tls.unwrap().ca), (Some(in_variable.clone()), "/ca".into()));
        let flags = LinkArgs { token_file: Some(path), tls_ca: Some("/other".into()), ..none };
        let options = flags.options(variable).unwrap();
        assert_eq!((options.token, options.tls.unwrap().ca), (Some(in_file), "/other".into()));
    }

    #[test]
    fn half_of_a_pair_is_refused() {
        let cert = |name: &str| (name == "PITHEAD_TLS_CERT").then(|| "c".to_owned());
        assert!(LinkArgs::default().options(cert).is_err());
        let pair = LinkArgs { tls_cert: Some("c".into()), tls_key: Some("k".into()), ..LinkArgs::default() };
        assert!(pair.options(|_| None).unwrap_err().to_string().contains("--tls-ca"));
        assert!(LinkArgs::default().options(|name| (name == "PITHEAD_TOKEN").then(|| "short".to_owned())).is_err());
    }
}
