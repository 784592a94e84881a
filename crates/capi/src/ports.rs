//! Ports between a host program and its SSDlets.

use std::ffi::c_char;

use bytes::Bytes;
use futures::executor::block_on;
use pithead_program::{HostReader, HostWriter, Signature};
use pithead_span as span;

use crate::PitheadApplication;
use crate::application::{Deployment, numbered};
use crate::error::{bytes, free, guard, handle, text};

/// Takes what an SSDlet puts out.
pub struct PitheadReader {
    from: From,
    batch: Bytes,
}

enum From {
    Here(HostReader),
    /// What comes from a drive on the network is checked: programs decode it by the port's types.
    There(span::HostReader, Signature),
}

/// Sends to the inputs of SSDlets.
pub struct PitheadWriter {
    to: To,
}

enum To {
    Here(HostWriter),
    There(span::HostWriter),
}

impl From {
    fn new(application: &PitheadApplication, ssdlet: i32, output: usize, types: &str) -> Result<Self, String> {
        match &application.kind {
            Deployment::Here { application, ssdlets } => {
                let output = numbered(ssdlets, ssdlet)?.output(output);
                check(&output.signature().map_err(|error| error.to_string())?, types)?;
                application.reader(&output).map(Self::Here).map_err(|error| error.to_string())
            }
            Deployment::There { application, ssdlets, .. } => {
                let output = numbered(ssdlets, ssdlet)?.output(output);
                let signature: Signature = output.signature().map_err(|fault| fault.to_string())?.parse()?;
                check(&signature, types)?;
                let reader = application.reader(&[output]).map_err(|fault| fault.to_string())?;
                Ok(Self::There(reader, signature))
            }
        }
    }

    fn get(&self) -> Result<Option<Bytes>, String> {
        match self {
            Self::Here(reader) => Ok(block_on(reader.get()).map_err(|error| error.to_string())?.map(Bytes::from)),
            Self::There(reader, signature) => {
                let batch = block_on(reader.get()).map_err(|fault| fault.to_string())?;
                batch.map(|batch| came(signature, batch)).transpose()
            }
        }
    }
}

impl To {
    fn new(application: &PitheadApplication, ssdlet: i32, input: usize, types: &str) -> Result<Self, String> {
        match &application.kind {
            Deployment::Here { application, ssdlets } => {
                let input = numbered(ssdlets, ssdlet)?.input(input);
                check(&input.signature().map_err(|error| error.to_string())?, types)?;
                application.writer(&input).map(Self::Here).map_err(|error| error.to_string())
            }
            Deployment::There { application, ssdlets, .. } => {
                let input = numbered(ssdlets, ssdlet)?.input(input);
                check(&input.signature().map_err(|fault| fault.to_string())?.parse()?, types)?;
                application.writer(&[input]).map(Self::There).map_err(|fault| fault.to_string())
            }
        }
    }

    fn put(&self, batch: &[u8]) -> Result<bool, String> {
        match self {
            Self::Here(writer) => block_on(writer.put(batch.to_vec())).map_err(|error| error.to_string()),
            Self::There(writer) => block_on(writer.put(batch.to_vec())).map_err(|fault| fault.to_string()),
        }
    }
}

/// A batch that a drive sent, if it is one.
fn came(signature: &Signature, batch: Bytes) -> Result<Bytes, String> {
    let wrong = |what| format!("the drive sent what is no batch of {signature}: {what}");
    signature.check(&batch).map(|()| batch).map_err(wrong)
}

fn check(port: &Signature, types: &str) -> Result<(), String> {
    let expected: Signature = types.parse()?;
    match *port == expected {
        true => Ok(()),
        false => Err(format!("the port carries {port}, and the host program asks for {expected}")),
    }
}

/// Connects an output to the host program, which expects `types`. Null if it cannot be.
///
/// # Safety
/// `application` is live, and `types` is a text that ends with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pithead_reader_new(
    application: *const PitheadApplication,
    ssdlet: i32,
    output: u32,
    types: *const c_char,
) -> *mut PitheadReader {
    guard(std::ptr::null_mut(), || {
        // SAFETY: the caller's promise.
        let (application, types) = unsafe { (handle(application)?, text(types)?) };
        let from = From::new(application, ssdlet, output as usize, types)?;
        Ok(Box::into_raw(Box::new(PitheadReader { from, batch: Bytes::new() })))
    })
}

/// Waits for the next batch. Returns 1 with its place, which holds until the next call; 0 at the end; -1 if the application failed.
///
/// # Safety
/// `reader` is live and used by one thread at a time, and `batch` and `length` can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pithead_reader_get(reader: *mut PitheadReader, batch: *mut *const u8, length: *mut usize) -> i32 {
    guard(-1, || {
        // SAFETY: the caller's promise.
        let reader = unsafe { reader.as_mut() }.ok_or("a reader was expected, not a null pointer")?;
        let Some(next) = reader.from.get()? else { return Ok(0) };
        reader.batch = next;
        // SAFETY: the caller's promise.
        unsafe {
            batch.write(reader.batch.as_ptr());
            length.write(reader.batch.len());
        }
        Ok(1)
    })
}

/// Ends a reader.
///
/// # Safety
/// `reader` came from [`pithead_reader_new`], and is used no more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pithead_reader_free(reader: *mut PitheadReader) {
    // SAFETY: the caller's promise.
    unsafe { free(reader) }
}

/// Connects the host program, which puts `types`, to an input. Null if it cannot be.
///
/// # Safety
/// `application` is live, and `types` is a text that ends with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pithead_writer_new(
    application: *const PitheadApplication,
    ssdlet: i32,
    input: u32,
    types: *const c_char,
) -> *mut PitheadWriter {
    guard(std::ptr::null_mut(), || {
        // SAFETY: the caller's promise.
        let (application, types) = unsafe { (handle(application)?, text(types)?) };
        Ok(Box::into_raw(Box::new(PitheadWriter { to: To::new(application, ssdlet, input as usize, types)? })))
    })
}

/// Sends a batch of whole rows, and waits while the connection is full. Returns 1; 0 if nobody reads any more; -1 if the rows are not of
/// the port's types or the application failed.
///
/// # Safety
/// `writer` is live, and there are `length` bytes at `batch`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pithead_writer_put(writer: *const PitheadWriter, batch: *const u8, length: usize) -> i32 {
    guard(-1, || {
        // SAFETY: the caller's promise.
        let (writer, batch) = unsafe { (handle(writer)?, bytes(batch, length)) };
        writer.to.put(batch).map(i32::from)
    })
}

/// Ends the writer's part of the stream.
///
/// # Safety
/// `writer` came from [`pithead_writer_new`], and is used no more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pithead_writer_free(writer: *mut PitheadWriter) {
    // SAFETY: the caller's promise.
    unsafe { free(writer) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program in C++ read four gigabytes behind a text's length.
    #[test]
    fn what_a_drive_sends_is_checked() {
        let came = |types: &str, bytes: &'static [u8]| came(&types.parse().expect("types"), Bytes::from_static(bytes));
        assert_eq!(came("string", b"\x01\0\0\0a").expect("a row").as_ref(), b"\x01\0\0\0a");
        let error = came("string", &[0xff; 4]).expect_err("it is cut off");
        let wanted =
            "the drive sent what is no batch of string: column 0 of row 0 is cut off: its string has less bytes than it says";
        assert_eq!(error, wanted);
        assert!(came("i64", &[0; 7]).is_err() && came("i64", b"").is_err() && came("arrow", b"ARROW").is_err());
    }
}
