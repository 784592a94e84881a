//! Who may do what: identities, how they are known, and their rights by domain.

use std::fmt;

use pithead_model::{Blame, Fault, IDENTITIES_MAX, NAME_BYTES_MAX};
use serde::Deserialize;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::scram::{Challenge, Key, Salting, Verifier, secret_of};
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

/// A token, as far as the file knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct KnownToken {
    hash: [u8; 32],
    /// Proves the token without it.
    verifier: Option<Verifier>,
}

/// Somebody who calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// How people know it.
    pub name: String,
    is_named: bool,
    /// Its tokens: while it changes over from one to the next, it has both.
    tokens: Vec<KnownToken>,
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
    /// What questions to names that nobody has are made up from. It is of the file, so that all servers with the same one ask the same,
    /// and of two identities: who has the token of one of them does not find it, and changes of all others leave it as it is.
    secret: Key,
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
    scram: Option<String>,
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
        let secret = secret_of(identities.iter().filter_map(|identity| identity.verifiers().next()).take(2));
        Ok(Access { identities, secret })
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

    /// What the file may hold beside the hash of a token that an identity is to have, so that the token can be proven without being sent.
    /// The tokens of an identity share a salt, since a server asks for a proof before it knows for which of them.
    pub fn verifier(&self, name: &str, token: &Token) -> Verifier {
        let mut known = self.identities.iter().filter(|identity| identity.name == name).flat_map(Identity::verifiers);
        Verifier::new(token.text(), known.next().map_or_else(Salting::random, |known| known.salting.clone()))
    }

    /// Whose token it is. Takes as long whether or not it is anybody's.
    pub(crate) fn by_token(&self, token: &[u8]) -> Option<&Identity> {
        let hash: [u8; 32] = Sha256::digest(token).into();
        let mut found = None;
        for identity in &self.identities {
            for known in &identity.tokens {
                if bool::from(known.hash.ct_eq(&hash)) {
                    found = Some(identity);
                }
            }
        }
        found
    }

    /// Whose client's key it is, as a proof of a token has shown it. Takes as long whether or not it is anybody's.
    pub(crate) fn by_client_key(&self, key: &Key) -> Option<&Identity> {
        let stored: Key = Sha256::digest(key).into();
        let mut found = None;
        for identity in &self.identities {
            for verifier in identity.verifiers() {
                if bool::from(verifier.stored_key.ct_eq(&stored)) {
                    found = Some(identity);
                }
            }
        }
        found
    }

    /// How somebody is asked who says this name, so that its token need not be sent; none: only the token itself says who it is. That is
    /// so where an identity has a token that no proof is kept for, and where the file has none at all. Of a file that has proofs of some
    /// tokens alone, it can so be found which names have others.
    pub(crate) fn challenge(&self, name: &str) -> Option<Challenge> {
        let like = self.identities.iter().flat_map(Identity::verifiers).next()?;
        match self.identities.iter().find(|identity| identity.name == name) {
            Some(identity) if !identity.tokens.is_empty() => {
                let verifiers = identity.tokens.iter().map(|token| token.verifier.clone());
                Challenge::new(verifiers.collect::<Option<Vec<_>>>()?)
            }
            _ => Some(Challenge::invented(like, &self.secret, name)),
        }
    }

    /// Whose certificate it is, by the names in it.
    pub(crate) fn by_certificate(&self, names: &[String]) -> Option<&Identity> {
        self.identities.iter().find(|identity| identity.certificate.as_ref().is_some_and(|name| names.contains(name)))
    }
}

impl Identity {
    fn is_known_like(&self, other: &Identity) -> bool {
        let is_same = |one: &KnownToken, other: &KnownToken| {
            let keys = [one, other].map(|token| token.verifier.as_ref().map(|verifier| verifier.stored_key));
            one.hash == other.hash || keys[0].is_some() && keys[0] == keys[1]
        };
        let token = self.tokens.iter().any(|one| other.tokens.iter().any(|other| is_same(one, other)));
        let certificate = self.certificate.is_some() && self.certificate == other.certificate;
        token || certificate
    }

    fn verifiers(&self) -> impl Iterator<Item = &Verifier> {
        self.tokens.iter().filter_map(|token| token.verifier.as_ref())
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
        if let Some(first) = self.verifiers().next()
            && other.verifiers().any(|verifier| verifier.salting != first.salting)
        {
            let message = format!(
                "the lines `scram` of {:?} have different salts or rounds: one question asks for all of them",
                self.name
            );
            let hint = "`pithead token NAME` beside this file makes a token with the salt of those that the name has";
            return Err(wrong(message).hint(hint));
        }
        self.tokens.extend(other.tokens);
        Ok(())
    }
}

fn identity(entry: IdentityEntry) -> Result<Identity, Fault> {
    let IdentityEntry { name, token, scram, certificate, read, write, administer, run_programs, load_programs } = entry;
    let plain = |text: &str| (1..=NAME_BYTES_MAX).contains(&text.len()) && !text.chars().any(char::is_control);
    if !plain(&name) {
        return Err(wrong(format!("{name:?} is not a name: expected 1 to {NAME_BYTES_MAX} bytes without control characters")));
    }
    if token.is_none() && certificate.is_none() {
        return Err(wrong(format!("{name:?} has neither token nor certificate, so nobody can be it")));
    }
    let tokens = known_token(&name, token, scram)?.into_iter().collect();
    let (domains, programs) = ([read, write, administer], [run_programs, load_programs]);
    Ok(Identity { name, is_named: true, tokens, certificate, domains, programs })
}

/// The token of an entry, by its hash and what proves it.
fn known_token(name: &str, token: Option<String>, scram: Option<String>) -> Result<Option<KnownToken>, Fault> {
    let hint =
        "`pithead token NAME` makes a token and what the file holds of it; the token itself does not belong into this file";
    let verifier = match scram {
        Some(text) => Some(Verifier::parse(&text).ok_or_else(|| {
            wrong(format!("scram of {name:?} is not as expected: SCRAM-SHA-256$4096:SALT$STORED:SERVER")).hint(hint)
        })?),
        None => None,
    };
    let Some(token) = token else {
        return match verifier {
            Some(_) => Err(wrong(format!("{name:?} has scram and no token: the two lines of an entry are of one token"))),
            None => Ok(None),
        };
    };
    let hash = Token::parse_hash(&token).ok_or_else(|| {
        wrong(format!("the token of {name:?} is not a hash: expected {HASH_PREFIX} and 64 hexadecimal digits")).hint(hint)
    })?;
    Ok(Some(KnownToken { hash, verifier }))
}

fn wrong(why: impl fmt::Display) -> Fault {
    Fault::new(Blame::User, format!("not an access file: {why}"))
}

#[cfg(test)]
mod tests;
