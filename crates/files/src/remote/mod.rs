//! Files that lie at a server: `http://`, `https://` and `s3://`.
//!
//! A file is asked for in ranges, so that one that breaks off goes on where it was, and each range must be of the same file as the
//! ones before. A server is asked again a few times where that may help; every wait has a limit, and what a server says is believed
//! only as far as its bytes came. Errors name a URL without what may be secret in it. Loads read files from end to end ([`RemoteFile`]);
//! drives read some bytes of files that stay where they are ([`Servers`]).

mod address;
mod answer;
mod client;
mod file;
mod listing;
mod request;
mod s3;
mod servers;
mod sign;
mod stream;
mod trouble;
mod xml;

#[cfg(test)]
pub(crate) mod fake;

pub(crate) use address::Address;
pub(crate) use client::Client;
pub(crate) use file::RemoteFile;
pub use servers::{RemoteObject, RemotePlace, Servers};
pub(crate) use stream::RemoteStream;
#[cfg(test)]
pub(crate) use {s3::S3Settings, trouble::Patience};
