//! [`Identity`]: who signs requests, and what they may do.

use serde::{Deserialize, Serialize};

use crate::code::{Code, Failure};
use crate::limits::Limits;
use crate::proto::{Acl, AclScope};
use crate::slices::SLICES;

/// The identity that a new drive knows.
pub const FACTORY_IDENTITY: i64 = 1;
/// Its key, which everybody knows.
pub const FACTORY_KEY: &[u8] = b"asdfasdf";
/// HMAC with SHA-1, the only algorithm of the protocol.
const HMAC_SHA1: i32 = 1;
/// The priority of requests that name none.
const PRIORITY_NORMAL: i32 = 5;
/// The lowest and the highest priority.
pub(crate) const PRIORITIES: std::ops::RangeInclusive<i32> = 1..=9;

/// What an identity may be allowed to do, by the protocol's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Permission {
    /// Get values.
    Read = 0,
    /// Put values.
    Write = 1,
    /// Delete keys.
    Delete = 2,
    /// List keys.
    Range = 3,
    /// Set the cluster version.
    Setup = 4,
    /// Push entries to another drive.
    Push = 5,
    /// Read logs.
    GetLog = 7,
    /// Change identities and PINs.
    Security = 8,
    /// Change the power level.
    Power = 9,
    /// Run programs.
    Applet = 10,
}

impl Permission {
    /// All of them.
    pub const ALL: [Permission; 10] = [
        Permission::Read,
        Permission::Write,
        Permission::Delete,
        Permission::Range,
        Permission::Setup,
        Permission::Push,
        Permission::GetLog,
        Permission::Security,
        Permission::Power,
        Permission::Applet,
    ];

    /// The permission with this number; none if there is no such permission.
    pub fn of(number: i32) -> Option<Permission> {
        Permission::ALL.into_iter().find(|permission| *permission as i32 == number)
    }
}

/// What an identity may do with keys that have a value at an offset.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scope {
    /// Where in a key the value has to be.
    pub offset: u64,
    /// What has to be there; empty: every key belongs to the scope.
    pub value: Vec<u8>,
    /// What may be done.
    pub permissions: Vec<Permission>,
    /// Only over TLS.
    pub tls_required: bool,
}

/// Somebody who signs requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Its number.
    pub number: i64,
    /// The key of its signatures.
    pub key: Vec<u8>,
    /// What it may do.
    pub scopes: Vec<Scope>,
    /// The highest priority that its requests may have; none: any.
    pub max_priority: Option<i32>,
}

impl Scope {
    /// Every permission, for every key.
    pub fn everything() -> Scope {
        Scope { offset: 0, value: Vec::new(), permissions: Permission::ALL.to_vec(), tls_required: false }
    }

    fn allows(&self, permission: Permission, key: Option<&[u8]>, tls: bool) -> bool {
        self.permissions.contains(&permission) && (tls || !self.tls_required) && key.is_none_or(|key| self.has(key))
    }

    fn has(&self, key: &[u8]) -> bool {
        let rest = usize::try_from(self.offset).ok().and_then(|offset| key.get(offset..));
        self.value.is_empty() || rest.is_some_and(|rest| rest.starts_with(&self.value))
    }

    fn read(scope: &AclScope, limits: &Limits) -> Result<Scope, Failure> {
        let most = limits.key_bytes as u64;
        let offset = u64::try_from(scope.offset.unwrap_or(0)).ok().filter(|offset| *offset <= most);
        let offset = offset.ok_or_else(|| Failure::invalid(format!("the offset of a scope is from 0 to {most}")))?;
        let permissions: Option<Vec<_>> = scope.permission.iter().map(|number| Permission::of(*number)).collect();
        let permissions = permissions.filter(|permissions| !permissions.is_empty());
        let permissions =
            permissions.ok_or_else(|| Failure::invalid("a scope has at least one permission, each a known one"))?;
        let value = scope.value.as_deref().unwrap_or_default().to_vec();
        if offset + value.len() as u64 > most {
            let what = format!("the offset and the bytes of a scope's value are {most} together at most, as no key is longer");
            return Err(Failure::invalid(what));
        }
        Ok(Scope { offset, value, permissions, tls_required: scope.tls_required.unwrap_or(false) })
    }
}

impl Identity {
    /// The one that a new drive knows: it may do everything, and everybody knows its key.
    pub fn factory() -> Identity {
        let scopes = vec![Scope::everything()];
        Identity { number: FACTORY_IDENTITY, key: FACTORY_KEY.to_vec(), scopes, max_priority: None }
    }

    /// Whether everybody knows its key.
    pub fn is_factory(&self) -> bool {
        self.number == FACTORY_IDENTITY && self.key == FACTORY_KEY
    }

    /// Whether one of its scopes allows something, with a key or, if there is none, at all. With a slice that it sees, only scopes
    /// that name slices count. One that it does not see is to it as any key that is not there.
    pub fn may(&self, permission: Permission, key: Option<&[u8]>, tls: bool) -> bool {
        match key {
            Some(key) if self.shows(key, tls) => self.may_under(SLICES, permission, key, tls),
            _ => self.scopes.iter().any(|scope| scope.allows(permission, key, tls)),
        }
    }

    /// Refuses what no scope allows.
    pub(crate) fn check(&self, permission: Permission, key: Option<&[u8]>, tls: bool) -> Result<(), Failure> {
        if self.may(permission, key, tls) {
            return Ok(());
        }
        let what = format!("identity {} has no scope that allows {permission:?} here", self.number);
        Err(Failure::not_authorized(what))
    }

    /// Whether one of its scopes that name `prefix` allows something with a key. Scopes for every key, or for others, do not.
    pub fn may_under(&self, prefix: &[u8], permission: Permission, key: &[u8], tls: bool) -> bool {
        let names_it = |scope: &&Scope| scope.offset == 0 && scope.value.starts_with(prefix);
        self.scopes.iter().filter(names_it).any(|scope| scope.allows(permission, Some(key), tls))
    }

    /// What names the slices that appear to it over such a link: they begin with one of these. A scope for every key names none.
    pub fn slices(&self, tls: bool) -> impl Iterator<Item = &[u8]> {
        let names_some =
            move |scope: &&Scope| scope.offset == 0 && scope.value.starts_with(SLICES) && (tls || !scope.tls_required);
        self.scopes.iter().filter(names_some).map(|scope| &scope.value[..])
    }

    /// The same in order, without those that begin with another one of them, so that no slice belongs to two.
    pub(crate) fn slice_prefixes(&self, tls: bool) -> Vec<&[u8]> {
        let mut prefixes: Vec<&[u8]> = self.slices(tls).collect();
        prefixes.sort_unstable();
        // Whatever begins with a prefix comes right behind it.
        prefixes.dedup_by(|next, kept| next.starts_with(kept));
        prefixes
    }

    /// Whether a key is that of a slice which appears to it over such a link.
    pub fn shows(&self, key: &[u8], tls: bool) -> bool {
        key.starts_with(SLICES) && self.slices(tls).any(|value| key.starts_with(value))
    }

    /// The priority of a request that may name one: the normal one, or the highest of the identity where that is less.
    pub(crate) fn priority(&self, named: Option<i32>) -> i32 {
        named.unwrap_or_else(|| self.max_priority.map_or(PRIORITY_NORMAL, |most| most.min(PRIORITY_NORMAL)))
    }

    pub(crate) fn check_priority(&self, priority: i32) -> Result<(), Failure> {
        if !PRIORITIES.contains(&priority) {
            return Err(Failure::invalid("a priority is from 1 to 9"));
        }
        match self.max_priority {
            Some(most) if priority > most => {
                Err(Failure::not_authorized(format!("identity {} has priorities up to {most}", self.number)))
            }
            _ => Ok(()),
        }
    }

    /// Reads an identity that a client sends.
    pub(crate) fn read(acl: &Acl, limits: &Limits) -> Result<Identity, Failure> {
        if acl.hmac_algorithm != Some(HMAC_SHA1) {
            return Err(Failure::new(Code::NoSuchHmacAlgorithm, "identities sign with HmacSHA1 (1)"));
        }
        let number = acl.identity.ok_or_else(|| Failure::invalid("an identity has a number"))?;
        let key = acl.key.as_deref().unwrap_or_default().to_vec();
        if key.is_empty() || key.len() > limits.key_bytes {
            return Err(Failure::invalid("the key of an identity has 1 to 4096 bytes"));
        }
        if acl.max_priority.is_some_and(|most| !PRIORITIES.contains(&most)) {
            return Err(Failure::invalid("a priority is from 1 to 9"));
        }
        if acl.scope.len() > limits.scopes {
            let what = format!("identity {number} has {} scopes; at most {} are allowed", acl.scope.len(), limits.scopes);
            return Err(Failure::invalid(what));
        }
        let scopes = acl.scope.iter().map(|scope| Scope::read(scope, limits)).collect::<Result<_, _>>()?;
        Ok(Identity { number, key, scopes, max_priority: acl.max_priority })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(offset: u64, value: &[u8], permissions: &[Permission]) -> Scope {
        Scope { offset, value: value.to_vec(), permissions: permissions.to_vec(), tls_required: false }
    }

    fn identity(scopes: Vec<Scope>) -> Identity {
        Identity { number: 7, key: b"k".to_vec(), scopes, max_priority: Some(5) }
    }

    #[test]
    fn a_scope_holds_for_keys_with_its_value_at_its_offset() {
        let id = identity(vec![scope(2, b"ab", &[Permission::Read]), scope(0, b"", &[Permission::Range])]);
        let reads = |key: &[u8]| id.may(Permission::Read, Some(key), false);
        assert!(reads(b"xxab") && reads(b"xxabc"));
        assert!(!reads(b"xxa") && !reads(b"ab") && !reads(b"") && !reads(b"xab"));
        assert!(id.may(Permission::Range, Some(b""), false) && !id.may(Permission::Write, Some(b"xxab"), false));
        assert!(id.may(Permission::Read, None, false) && !id.may(Permission::GetLog, None, false));
        let beyond = identity(vec![scope(u64::MAX, b"a", &[Permission::Read])]);
        assert!(!beyond.may(Permission::Read, Some(b"a"), true));
    }

    #[test]
    fn what_needs_tls_is_not_allowed_without() {
        let mut only_tls = scope(0, b"", &[Permission::Read]);
        only_tls.tls_required = true;
        let id = identity(vec![only_tls]);
        assert!(id.may(Permission::Read, Some(b"a"), true) && !id.may(Permission::Read, Some(b"a"), false));
        assert!(identity(vec![]).check(Permission::Read, None, true).is_err());
    }

    #[test]
    fn priorities_have_a_range_and_a_bound() {
        let id = identity(vec![]);
        let code = |priority| id.check_priority(priority).map_err(|failure| failure.code);
        assert_eq!(
            [code(1), code(5), code(6), code(0), code(10)],
            [Ok(()), Ok(()), Err(Code::NotAuthorized), Err(Code::InvalidRequest), Err(Code::InvalidRequest)]
        );
        assert!(Identity::factory().check_priority(9).is_ok());
    }

    #[test]
    fn only_a_scope_that_names_slices_shows_them() {
        let sees = |identity: &Identity, tls| identity.slices(tls).next().is_some();
        assert!(!sees(&Identity::factory(), true));
        assert!(sees(&identity(vec![scope(0, SLICES, &[Permission::Read])]), false));
        assert!(sees(&identity(vec![scope(0, b"pithead/slice/main/", &[Permission::Read])]), false));
        assert!(!sees(&identity(vec![scope(1, SLICES, &[Permission::Read])]), true));
        let only_tls = identity(vec![Scope { tls_required: true, ..scope(0, SLICES, &[Permission::Read]) }]);
        assert!(sees(&only_tls, true) && !sees(&only_tls, false));
    }

    #[test]
    fn a_scope_for_every_key_opens_no_slice_that_another_one_shows() {
        let main = scope(0, b"pithead/slice/main/", &[Permission::Range]);
        let id = identity(vec![scope(0, b"", &Permission::ALL), main]);
        let key = Some(&b"pithead/slice/main/t.00"[..]);
        assert!(id.may(Permission::Range, key, false) && !id.may(Permission::Read, key, false));
        assert!(id.shows(b"pithead/slice/main/t.00", false) && !id.shows(b"pithead/slice/lab/t.00", false));
        assert!(!id.shows(b"own", false) && id.may(Permission::Read, Some(b"own"), false));
    }

    #[test]
    fn one_scope_names_the_prefix_and_allows_the_key() {
        let engine = b"pithead/engine/";
        let may = |scopes: Vec<Scope>, tls| identity(scopes).may_under(engine, Permission::Read, b"pithead/engine/main/t", tls);
        let named = |value: &[u8], permission| scope(0, value, &[permission]);
        assert!(may(vec![named(b"pithead/engine/main/", Permission::Read)], false));
        let everything = || scope(0, b"", &[Permission::Read]);
        assert!(!may(vec![everything()], false));
        assert!(!may(vec![everything(), named(b"pithead/engine/other/", Permission::Read)], false));
        assert!(!may(vec![everything(), named(b"pithead/engine/main/", Permission::Applet)], false));
        let only_tls = || Scope { tls_required: true, ..named(engine, Permission::Read) };
        assert!(!may(vec![everything(), only_tls()], false) && may(vec![only_tls()], true));
    }

    #[test]
    fn identities_that_cannot_be_meant_are_refused() {
        let good = AclScope { permission: vec![0], ..AclScope::default() };
        let acl = Acl {
            identity: Some(2),
            key: Some("key".into()),
            hmac_algorithm: Some(1),
            scope: vec![good.clone()],
            max_priority: None,
        };
        let code = |acl: &Acl| Identity::read(acl, &Limits::default()).map(|_| ()).map_err(|failure| failure.code);
        let with = |scope: AclScope| Acl { scope: vec![scope], ..acl.clone() };
        assert_eq!(code(&acl), Ok(()));
        assert_eq!(code(&with(AclScope { offset: Some(4_096), ..good.clone() })), Ok(()));
        assert_eq!(code(&Acl { hmac_algorithm: None, ..acl.clone() }), Err(Code::NoSuchHmacAlgorithm));
        assert_eq!(code(&Acl { hmac_algorithm: Some(2), ..acl.clone() }), Err(Code::NoSuchHmacAlgorithm));
        for wrong in [
            Acl { identity: None, ..acl.clone() },
            Acl { key: None, ..acl.clone() },
            Acl { max_priority: Some(0), ..acl.clone() },
            with(AclScope { offset: Some(-1), ..good.clone() }),
            with(AclScope { offset: Some(4_097), ..good.clone() }),
            with(AclScope { offset: Some(i64::MAX), ..good.clone() }),
            with(AclScope { permission: vec![], ..good.clone() }),
            with(AclScope { permission: vec![6], ..good }),
        ] {
            assert_eq!(code(&wrong), Err(Code::InvalidRequest), "{wrong:?}");
        }
    }

    /// An identity could have as many scopes as a message has room for, and each range listed slices for each of them.
    #[test]
    fn scopes_have_a_size_and_a_number() {
        let scope = |offset, bytes| AclScope {
            offset: Some(offset),
            value: Some(vec![b'x'; bytes].into()),
            permission: vec![0],
            tls_required: None,
        };
        let read = |scopes: Vec<AclScope>| {
            let (identity, key) = (Some(2), Some("key".into()));
            let acl = Acl { identity, key, hmac_algorithm: Some(1), scope: scopes, max_priority: None };
            Identity::read(&acl, &Limits::default()).map(|read| read.scopes.len()).map_err(|failure| failure.code)
        };
        for (offset, bytes) in [(0, 4_096), (96, 4_000), (4_095, 1), (4_096, 0)] {
            assert_eq!(read(vec![scope(offset, bytes)]), Ok(1), "{offset} and {bytes}");
            assert_eq!(read(vec![scope(offset, bytes + 1)]), Err(Code::InvalidRequest), "{offset} and {bytes} and one");
        }
        assert_eq!(read(vec![scope(0, 1); 256]), Ok(256));
        assert_eq!(read(vec![scope(0, 1); 257]), Err(Code::InvalidRequest));
    }

    #[test]
    fn prefixes_of_slices_lie_beside_each_other() {
        let names = |value: &str| scope(0, format!("pithead/slice/{value}").as_bytes(), &[Permission::Range]);
        let all = ["main/t", "lab/", "main/", "main/t@1", "main", "lab/", "main/u"].map(names);
        let id = identity(all.into());
        assert_eq!(id.slice_prefixes(false), [&b"pithead/slice/lab/"[..], b"pithead/slice/main"]);
        let id = identity(["b", "a", "ab"].map(names).into());
        assert_eq!(id.slice_prefixes(false), [&b"pithead/slice/a"[..], b"pithead/slice/b"]);
    }
}
