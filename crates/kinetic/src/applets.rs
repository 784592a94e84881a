//! [`Applets`]: what answers MANAGE_APPLET, the protocol's way to run a program at the drive.

use std::fmt::Debug;

use bytes::Bytes;

use crate::code::{Code, Failure};
use crate::identity::Identity;
use crate::proto::ManageApplet;

/// Output of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Output {
    /// The exit code, the signal, a message and the output, with colons between: the form that clients read.
    pub message: String,
    /// The value of the answer.
    pub value: Bytes,
}

/// Runs programs of Kinetic clients. Calls block.
pub trait Applets: Send + Sync + Debug {
    /// Does what a request asks for. The identity was found to have the permission.
    fn manage(&self, request: &ManageApplet, identity: &Identity) -> Result<Output, Failure>;
}

/// No programs: every request is refused.
#[derive(Debug)]
pub struct NoApplets;

impl Applets for NoApplets {
    fn manage(&self, _: &ManageApplet, _: &Identity) -> Result<Output, Failure> {
        Err(Failure::new(Code::InvalidExecute, "this drive runs no programs of Kinetic clients"))
    }
}
