//! First contact: [`Hello`] and [`Welcome`].

use pithead_model::{Blame, DriveId, Fault};
use serde::{Deserialize, Serialize};

/// First contact, from the host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Hello {
    /// [`pithead_model::PROTOCOL_VERSION`] of the caller.
    pub protocol: u32,
    /// The caller's release.
    pub release: String,
    /// Extension functions that the caller may use, `name/version`.
    pub extensions: Vec<String>,
}

/// First contact, the drive's answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Welcome {
    /// [`pithead_model::PROTOCOL_VERSION`] of the drive.
    pub protocol: u32,
    /// The drive's release.
    pub release: String,
    /// The drive's identity.
    pub drive: DriveId,
    /// Extension functions that the drive has, `name/version`.
    pub extensions: Vec<String>,
    /// Encodings that the drive reads and writes.
    pub encodings: Vec<String>,
    /// Threads that it can grant at most.
    pub threads: u32,
    /// The rate that its sends are paced to, bits a second; none: not paced.
    pub link_bits_per_second: Option<f64>,
    /// The speed that its CPU is paced to, as a share of the real one's; 1: not paced.
    #[serde(default = "whole")]
    pub cpu_share: f64,
    /// The profile whose device it is slowed to, by its name; none: it is the machine as it is.
    #[serde(default)]
    pub profile: Option<String>,
    /// Whether it merges runs and marks their rows, and collects runs that nothing names any more.
    #[serde(default)]
    pub merges: bool,
    /// Whether it offers datasets over files that it did not write: see [`crate::Door::attached`].
    #[serde(default)]
    pub attaches: bool,
    /// The drives beneath an array, and beneath arrays beneath it. None: it is a drive, or it does not say.
    #[serde(default)]
    pub beneath: Vec<DriveId>,
}

/// A CPU that is not paced.
pub(crate) fn whole() -> f64 {
    1.0
}

/// Refuses ends that speak different protocols, naming both: what each end of a first contact does, with or without a network
/// between them.
pub fn check_hello(hello: &Hello, welcome: &Welcome) -> Result<(), Fault> {
    check_protocol((hello.protocol, &hello.release), (welcome.protocol, &welcome.release))
}

/// The same from what every release can read of another's hello: protocol and release of the host, and of the drive.
///
/// ```
/// use pithead_door::check_protocol;
///
/// assert!(check_protocol((12, "0.2.0"), (12, "0.2.1")).is_ok());
/// let fault = check_protocol((12, "0.2.0"), (11, "0.1.0")).unwrap_err();
/// assert!(fault.to_string().contains("the drive protocol 11 (pithead 0.1.0)"));
/// ```
pub fn check_protocol((host, host_release): (u32, &str), (drive, drive_release): (u32, &str)) -> Result<(), Fault> {
    if host == drive {
        return Ok(());
    }
    let message = format!(
        "the host speaks protocol {host} (pithead {host_release}), the drive protocol {drive} (pithead {drive_release}); they \
         must be the same"
    );
    Err(Fault::new(Blame::Unsupported, message)
        .hint("install the same release of pithead at both ends; `pithead --version` shows it"))
}
