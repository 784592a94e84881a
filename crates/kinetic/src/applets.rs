//! [`Applets`]: what answers MANAGE_APPLET, the protocol's way to run a program at the drive.

use std::fmt::Debug;
use std::sync::Arc;

use bytes::Bytes;

use crate::code::{Code, Failure};
use crate::identity::{Identity, Permission};
use crate::proto::ManageApplet;

/// Output of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Output {
    /// The exit code, the signal, a message and the output, with colons between: the form that clients read.
    pub message: String,
    /// The value of the answer.
    pub value: Bytes,
}

/// Who asks for a program.
#[derive(Clone, Debug)]
pub struct Caller {
    /// Whose signature the request has.
    pub identity: Arc<Identity>,
    /// Whether it came over TLS.
    pub tls: bool,
}

impl Caller {
    /// Refuses what no scope of the identity allows, with a key or, without one, at all.
    pub fn check(&self, permission: Permission, key: Option<&[u8]>) -> Result<(), Failure> {
        self.identity.check(permission, key, self.tls)
    }
}

/// Runs programs of Kinetic clients. Calls block.
pub trait Applets: Send + Sync + Debug {
    /// Does what a request asks for. A scope of the caller has the permission; whether for these keys is not known yet.
    fn manage(&self, request: &ManageApplet, caller: &Caller) -> Result<Output, Failure>;
}

/// No programs: every request is refused.
#[derive(Debug)]
pub struct NoApplets;

impl Applets for NoApplets {
    fn manage(&self, _: &ManageApplet, _: &Caller) -> Result<Output, Failure> {
        Err(Failure::new(Code::InvalidExecute, "this drive runs no programs of Kinetic clients"))
    }
}
