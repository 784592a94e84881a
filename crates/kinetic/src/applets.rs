//! [`Applets`]: what answers MANAGE_APPLET, the protocol's way to run a program at the drive.

use std::fmt::Debug;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use pithead_store::Write;

use crate::code::{Code, Failure};
use crate::identity::{Identity, Permission};
use crate::keys;
use crate::limits::{Limits, check_bytes};
use crate::proto::ManageApplet;
use crate::space::is_slices;

/// Programs of all clients that run at one time.
pub(crate) const RUNNING_MAX: usize = 8;

/// Output of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Output {
    /// The exit code, the signal, a message and the output, with colons between: the form that clients read.
    pub message: String,
    /// The value of the answer.
    pub value: Bytes,
    /// What the client wants put before the answer. It is put whether or not the time is over meanwhile.
    pub put: Option<Write>,
}

/// Who asks for a program.
#[derive(Clone, Debug)]
pub struct Caller {
    /// Whose signature the request has.
    pub identity: Arc<Identity>,
    /// Whether it came over TLS.
    pub tls: bool,
    /// What its keys and values are held to.
    pub limits: Limits,
}

impl Caller {
    /// Refuses what no scope of the identity allows, with a key or, without one, at all.
    pub fn check(&self, permission: Permission, key: Option<&[u8]>) -> Result<(), Failure> {
        self.identity.check(permission, key, self.tls)
    }

    /// Refuses a key that the caller could not PUT a value of so many bytes to: what has to hold of every value that a client has
    /// written, by PUT or as the output of a program.
    pub fn check_put(&self, key: &[u8], value_bytes: usize) -> Result<(), Failure> {
        check_bytes("key", key.len(), self.limits.key_bytes)?;
        check_bytes("value", value_bytes, self.limits.value_bytes)?;
        self.check_writable(Permission::Write, key)
    }

    /// Refuses a key that the caller may not change.
    pub(crate) fn check_writable(&self, permission: Permission, key: &[u8]) -> Result<(), Failure> {
        self.check(permission, Some(key))?;
        match is_slices(key) {
            true => Err(Failure::not_authorized("slices are read-only, and their names belong to the drive")),
            false => Ok(()),
        }
    }

    /// The write of a value to one of the caller's keys, whatever is there, if a PUT might do it.
    pub fn put(&self, key: &[u8], value: Bytes) -> Result<Write, Failure> {
        self.check_put(key, value.len())?;
        Ok(Write::put(keys::stored(key), value))
    }
}

/// What a program is waited for as.
pub type Managing<'a> = Pin<Box<dyn Future<Output = Result<Output, Failure>> + Send + 'a>>;

/// Runs programs of Kinetic clients.
pub trait Applets: Send + Sync + Debug {
    /// Does what a request asks for. A scope of the caller has the permission; whether for these keys is not known yet. It waits
    /// without blocking, and whoever drops it ends the program.
    fn manage<'a>(&'a self, request: &'a ManageApplet, caller: &'a Caller) -> Managing<'a>;
}

/// No programs: every request is refused.
#[derive(Debug)]
pub struct NoApplets;

impl Applets for NoApplets {
    fn manage<'a>(&'a self, _: &'a ManageApplet, _: &'a Caller) -> Managing<'a> {
        let refused = Failure::new(Code::InvalidExecute, "this drive runs no programs of Kinetic clients");
        Box::pin(async { Err(refused) })
    }
}
