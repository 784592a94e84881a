//! The C interface of host programs: applications of SSDlets, in this process over a folder as the drive's files, or on one or
//! several drives on the network.
//!
//! sdk/cpp/include/pithead/ssd.h declares these functions for C, and host.hpp beside it wraps them for C++. Functions that can fail
//! return null, -1 or 0 as said there, and [`pithead_last_error`] then tells why. A panic becomes such an error.

mod application;
mod drives;
mod error;
mod ports;
mod ssd;
#[cfg(test)]
mod tests;

pub use application::{
    PitheadApplication, pithead_application_free, pithead_application_new, pithead_application_over, pithead_application_start,
    pithead_application_stop, pithead_application_wait, pithead_connect, pithead_ssdlet_new,
};
pub use error::pithead_last_error;
pub use ports::{
    PitheadReader, PitheadWriter, pithead_reader_free, pithead_reader_get, pithead_reader_new, pithead_writer_free,
    pithead_writer_new, pithead_writer_put,
};
pub use ssd::{PitheadSsd, pithead_module_load, pithead_module_unload, pithead_ssd_close, pithead_ssd_open};
