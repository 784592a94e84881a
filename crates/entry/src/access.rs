//! Who may do what: identities, how they are known, and their rights by domain.

use std::fmt;

use pithead_model::{Blame, Fault, IDENTITIES_MAX, NAME_BYTES_MAX};
use serde::Deserialize;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::token::{HASH_PREFIX, Token};

/// Stands for every domain, and for every module.
const ANY_DOMAIN: &str = "*";

/// What may be done with a domain. Each right includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Right {
    /// See datasets and ask them.
    Read,
    /// Load, replace and drop datasets.
    Write,
    /// Change which drives the domain and its partitions are on, and its functions.
    Administer,
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Right::Read => "read",
            Right::Write => "write",
            Right::Administer => "administer",
        })
    }
}

/// What may be done with a module of SSDlets. Each right includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProgramRight {
    /// Run it, and see that it is there.
    Run,
    /// Load, replace and remove it, and end applications that run it.
    Load,
}

impl fmt::Display for ProgramRight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ProgramRight::Run => "run",
            ProgramRight::Load => "load",
        })
    }
}

/// Somebody who calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// How people know it.
    pub name: String,
    is_named: bool,
    /// Hashes of its tokens: while it changes over from one to the next, it has both.
    tokens: Vec<[u8; 32]>,
    certificate: Option<String>,
    /// Domains by right, in the order of [`Right`].
    domains: [Vec<String>; 3],
    /// Modules by right, in the order of [`ProgramRight`].
    programs: [Vec<String>; 2],
}

impl Identity {
    /// Whoever calls where callers are not told apart: it may do everything.
    pub fn anyone() -> Identity {
        Identity { is_named: false, ..Identity::unlimited("anyone") }
    }

    /// One that may do everything.
    pub fn unlimited(name: impl Into<String>) -> Identity {
        let domains = [Vec::new(), Vec::new(), vec![ANY_DOMAIN.to_owned()]];
        let programs = [Vec::new(), vec![ANY_DOMAIN.to_owned()]];
        Identity { name: name.into(), is_named: true, tokens: vec![], certificate: None, domains, programs }
    }

    /// What its sessions are counted by, whichever of its hosts opens them; none: it is anyone.
    pub fn number(&self) -> Option<u64> {
        let digest = Sha256::digest(self.name.as_bytes());
        let number = digest.iter().take(8).fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
        self.is_named.then_some(number.max(1))
    }

    /// Whether it has a right to a domain.
    pub fn may(&self, right: Right, domain: &str) -> bool {
        let granting = self.domains.iter().skip(right as usize).flatten();
        granting.into_iter().any(|granted| granted == ANY_DOMAIN || granted == domain)
    }

    /// Whether it has a right to every domain, those to come too.
    pub fn may_all(&self, right: Right) -> bool {
        self.domains.iter().skip(right as usize).flatten().any(|granted| granted == ANY_DOMAIN)
    }

    /// Whether it has a right to a module.
    pub fn may_program(&self, right: ProgramRight, module: &str) -> bool {
        let mut granting = self.programs.iter().skip(right as usize).flatten();
        granting.any(|granted| granted == ANY_DOMAIN || granted == module)
    }

    /// Refuses what it has no right to.
    pub fn check_program(&self, right: ProgramRight, module: &str) -> Result<(), Fault> {
        if self.may_program(right, module) {
            return Ok(());
        }
        let message = format!("{:?} has no right to {right} the module {module:?}", self.name);
        let list = format!("{right}_programs");
        Err(Fault::new(Blame::Access, message).hint(format!("in the access file, add the module to its list {list:?}")))
    }

    /// Refuses what it has no right to.
    pub fn check(&self, right: Right, domain: &str) -> Result<(), Fault> {
        if self.may(right, domain) {
            return Ok(());
        }
        let message = format!("{:?} has no right to {right} the domain {domain:?}", self.name);
        Err(Fault::new(Blame::Access, message)
            .hint(format!("in the access file, add the domain to its list {right:?}", right = right.to_string())))
    }
}

/// All identities of a drive. See `docs/guides/securing.md` for the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    identities: Vec<Identity>,
}

/// The file as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    identity: Vec<IdentityEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct IdentityEntry {
    name: String,
    token: Option<String>,
    certificate: Option<String>,
    #[serde(default)]
    read: Vec<String>,
    #[serde(default)]
    write: Vec<String>,
    #[serde(default)]
    administer: Vec<String>,
    #[serde(default)]
    run_programs: Vec<String>,
    #[serde(default)]
    load_programs: Vec<String>,
}

impl Access {
    /// Reads the text of an access file.
    pub fn parse(text: &str) -> Result<Access, Fault> {
        let file: File = toml::from_str(text).map_err(|error| wrong(error.to_string().trim_end()))?;
        if file.identity.len() > IDENTITIES_MAX {
            return Err(wrong(format!("{} identities; at most {IDENTITIES_MAX} are allowed", file.identity.len())));
        }
        let mut identities: Vec<Identity> = Vec::with_capacity(file.identity.len());
        for entry in file.identity {
            let identity = identity(entry)?;
            if let Some(other) = identities.iter().find(|other| other.is_known_like(&identity)) {
                return Err(wrong(format!("{:?} and {:?} share a token or a certificate", other.name, identity.name)));
            }
            match identities.iter_mut().find(|other| other.name == identity.name) {
                Some(first) => first.add(identity)?,
                None => identities.push(identity),
            }
        }
        Ok(Access { identities })
    }

    /// Whether nobody is named, so that nobody could call.
    pub fn is_empty(&self) -> bool {
        self.identities.is_empty()
    }

    /// Whether somebody is known by a token.
    pub fn has_tokens(&self) -> bool {
        self.identities.iter().any(|identity| !identity.tokens.is_empty())
    }

    /// Whether somebody has this name.
    pub fn has_name(&self, name: &str) -> bool {
        self.identities.iter().any(|identity| identity.name == name)
    }

    /// Whose token it is. Takes as long whether or not it is anybody's.
    pub(crate) fn by_token(&self, token: &[u8]) -> Option<&Identity> {
        let hash: [u8; 32] = Sha256::digest(token).into();
        let mut found = None;
        for identity in &self.identities {
            for known in &identity.tokens {
                if bool::from(known.ct_eq(&hash)) {
                    found = Some(identity);
                }
            }
        }
        found
    }

    /// Whose certificate it is, by the names in it.
    pub(crate) fn by_certificate(&self, names: &[String]) -> Option<&Identity> {
        self.identities.iter().find(|identity| identity.certificate.as_ref().is_some_and(|name| names.contains(name)))
    }
}

impl Identity {
    fn is_known_like(&self, other: &Identity) -> bool {
        let token = self.tokens.iter().any(|token| other.tokens.contains(token));
        let certificate = self.certificate.is_some() && self.certificate == other.certificate;
        token || certificate
    }

    fn has_rights(&self) -> bool {
        self.domains.iter().chain(&self.programs).any(|names| !names.is_empty())
    }

    /// Another entry of the same name: one more token.
    fn add(&mut self, other: Identity) -> Result<(), Fault> {
        if other.certificate.is_some() || other.has_rights() {
            let message = format!("{:?} is named twice: an entry that only adds a token has a name and a token", self.name);
            return Err(wrong(message).hint("change its rights and its certificate in its first entry"));
        }
        self.tokens.extend(other.tokens);
        Ok(())
    }
}

fn identity(entry: IdentityEntry) -> Result<Identity, Fault> {
    let IdentityEntry { name, token, certificate, read, write, administer, run_programs, load_programs } = entry;
    let plain = |text: &str| (1..=NAME_BYTES_MAX).contains(&text.len()) && !text.chars().any(char::is_control);
    if !plain(&name) {
        return Err(wrong(format!("{name:?} is not a name: expected 1 to {NAME_BYTES_MAX} bytes without control characters")));
    }
    if token.is_none() && certificate.is_none() {
        return Err(wrong(format!("{name:?} has neither token nor certificate, so nobody can be it")));
    }
    let hash = |text: String| {
        Token::parse_hash(&text).ok_or_else(|| {
            wrong(format!("the token of {name:?} is not a hash: expected {HASH_PREFIX} and 64 hexadecimal digits"))
                .hint("`pithead token NAME` makes a token and its hash; the token itself does not belong into this file")
        })
    };
    let tokens = token.map(hash).transpose()?.into_iter().collect();
    let (domains, programs) = ([read, write, administer], [run_programs, load_programs]);
    Ok(Identity { name, is_named: true, tokens, certificate, domains, programs })
}

fn wrong(why: impl fmt::Display) -> Fault {
    Fault::new(Blame::User, format!("not an access file: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> (Token, String) {
        let token = Token::random();
        let text = format!(
            "# who may do what\n[[identity]]\nname = \"reports\"\ntoken = \"{}\"\nread = [\"main\"]\nwrite = [\"staging\"]\n\
             [[identity]]\nname = \"ops\"\ncertificate = \"ops.example\"\nadminister = [\"*\"]\n",
            token.hash()
        );
        (token, text)
    }

    #[test]
    fn rights_go_by_domain_and_higher_ones_include_lower_ones() {
        let (token, text) = file();
        let access = Access::parse(&text).unwrap();
        let reports = access.by_token(token.text().as_bytes()).unwrap();
        let may = |right, domain| reports.may(right, domain);
        assert!(may(Right::Read, "main") && !may(Right::Write, "main") && !may(Right::Administer, "main"));
        assert!(may(Right::Read, "staging") && may(Right::Write, "staging") && !may(Right::Administer, "staging"));
        assert!(!may(Right::Read, "other") && !may(Right::Read, "*"));
        let ops = access.by_certificate(&["x".into(), "ops.example".into()]).unwrap();
        assert!(ops.may(Right::Administer, "any") && ops.may(Right::Read, "any"));
        let fault = reports.check(Right::Write, "main").unwrap_err();
        assert_eq!(fault.blame, Blame::Access);
        assert!(
            fault.message.contains("reports") && fault.message.contains("write") && fault.message.contains("main"),
            "{fault}"
        );
    }

    #[test]
    fn strangers_are_nobody() {
        let (token, text) = file();
        let access = Access::parse(&text).unwrap();
        let hash = token.hash();
        for other in [Token::random().text(), "", "reports", &hash] {
            assert_eq!(access.by_token(other.as_bytes()), None);
        }
        assert_eq!(access.by_certificate(&[]), None);
        assert_eq!(access.by_certificate(&["reports".into()]), None);
        assert_eq!(Access::parse("").unwrap().by_token(b""), None);
    }

    #[test]
    fn an_identity_may_have_several_tokens() {
        let (token, text) = file();
        let next = Token::random();
        let added = format!("{text}[[identity]]\nname = \"reports\"\ntoken = \"{}\"\n", next.hash());
        let access = Access::parse(&added).unwrap();
        let by = |token: &Token| access.by_token(token.text().as_bytes()).cloned();
        assert!(by(&token).is_some() && by(&token) == by(&next));
        assert!(access.has_name("reports") && !access.has_name("other"));
        let twice = format!("{added}[[identity]]\nname = \"ops\"\ntoken = \"{}\"\n", next.hash());
        assert!(Access::parse(&twice).unwrap_err().to_string().contains("share"));
    }

    #[test]
    fn rights_to_modules_are_apart_from_those_to_domains() {
        let (token, text) = file();
        let text = text.replacen("write = [\"staging\"]", "run_programs = [\"count\"]\nload_programs = [\"mine\"]", 1);
        let access = Access::parse(&text).unwrap();
        let reports = access.by_token(token.text().as_bytes()).unwrap();
        let may = |right, module| reports.may_program(right, module);
        assert!(may(ProgramRight::Run, "count") && !may(ProgramRight::Load, "count"));
        assert!(may(ProgramRight::Run, "mine") && may(ProgramRight::Load, "mine") && !may(ProgramRight::Run, "other"));
        let fault = reports.check_program(ProgramRight::Load, "count").unwrap_err();
        assert!(fault.blame == Blame::Access && fault.hint.unwrap().contains("load_programs"));
        let ops = access.by_certificate(&["ops.example".to_owned()]).unwrap();
        assert!(ops.may(Right::Administer, "main") && !ops.may_program(ProgramRight::Run, "count"));
        assert!(Identity::anyone().may_program(ProgramRight::Load, "any"));
        let twice =
            format!("{text}[[identity]]\nname = \"ops\"\ntoken = \"{}\"\nrun_programs = [\"*\"]\n", Token::random().hash());
        assert!(Access::parse(&twice).unwrap_err().to_string().contains("named twice"));
    }

    #[test]
    fn a_file_that_cannot_be_meant_is_refused() {
        let (_, text) = file();
        let twice = format!("{text}[[identity]]\nname = \"ops\"\ncertificate = \"b\"\n");
        let same_certificate = format!("{text}[[identity]]\nname = \"ops2\"\ncertificate = \"ops.example\"\n");
        let cases = [
            ("name = 3", "access file"),
            ("[[identity]]\nname = \"a\"", "neither"),
            ("[[identity]]\nname = \"\"\ncertificate = \"a\"", "not a name"),
            ("[[identity]]\nname = \"a\"\ntoken = \"secret\"", "not a hash"),
            ("[[identity]]\nname = \"a\"\ncertificate = \"a\"\nreads = []", "reads"),
            (twice.as_str(), "named twice"),
            (same_certificate.as_str(), "share"),
        ];
        for (text, expected) in cases {
            let fault = Access::parse(text).unwrap_err();
            assert!(fault.blame == Blame::User && fault.to_string().contains(expected), "{text}: {fault}");
        }
    }
}
