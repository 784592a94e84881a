//! What there is at most: a socket without a protocol, and a medium without a store.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use pithead_model::{Blame, Fault};
use pithead_store::{FolderMedium, Medium, MediumFile};

use super::KEYS;
use crate::tables::io;

const MIB: usize = 1 << 20;

/// Megabytes a second of 1 MiB for each byte that is sent, one after the other, between two threads over loopback.
pub(super) fn loopback_mb_s(seconds: f64) -> Result<f64, Fault> {
    let failed = |error: std::io::Error| Fault::new(Blame::Device, format!("loopback: {error}"));
    let listener = TcpListener::bind("127.0.0.1:0").map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let serving = std::thread::spawn(move || -> std::io::Result<()> {
        let (mut socket, _) = listener.accept()?;
        socket.set_nodelay(true)?;
        let (mut asked, value) = ([0], vec![7; MIB]);
        while socket.read(&mut asked)? == 1 {
            socket.write_all(&value)?;
        }
        Ok(())
    });
    let mut socket = TcpStream::connect(address).map_err(failed)?;
    socket.set_nodelay(true).map_err(failed)?;
    let mut value = vec![0; MIB];
    let (started, mut count) = (Instant::now(), 0_u64);
    while started.elapsed() < Duration::from_secs_f64(seconds) {
        socket.write_all(b"?").and_then(|()| socket.read_exact(&mut value)).map_err(failed)?;
        count += 1;
    }
    let rate = count as f64 * MIB as f64 / started.elapsed().as_secs_f64() / 1e6;
    drop(socket);
    serving.join().map_err(|_| Fault::bug("the thread at the other end panicked"))?.map_err(failed)?;
    Ok(rate)
}

/// Megabytes a second of 1 MiB, each flushed before the next, by writers that have places of their own in one file, as many as a connection
/// has keys. All are written once before the clock starts, so that nothing is left to allocate, as in a drive's segments. What flushes share
/// is what the kernel lets them share.
pub(super) fn medium_mb_s(folder: &Path, writers: usize, seconds: f64) -> Result<f64, Fault> {
    let folder = folder.join("bare");
    std::fs::create_dir_all(&folder).map_err(|error| io(&folder, &error))?;
    let medium = FolderMedium::open(&folder).map_err(Fault::from)?;
    let rate = rate(&medium, writers, seconds).map_err(|error| io(&folder, &error))?;
    std::fs::remove_dir_all(&folder).map_err(|error| io(&folder, &error))?;
    Ok(rate)
}

fn rate(medium: &FolderMedium, writers: usize, seconds: f64) -> std::io::Result<f64> {
    let file = medium.open("reserved", true)?;
    file.reserve(0..writers as u64 * KEYS * MIB as u64)?;
    let values: Vec<Vec<u8>> = (0..writers).map(|number| (0..MIB).map(|at| (at * 31 + number) as u8).collect()).collect();
    let place = |number: usize, count: u64| (number as u64 * KEYS + count % KEYS) * MIB as u64;
    for (number, value) in values.iter().enumerate() {
        (0..KEYS).try_for_each(|count| file.write_large(place(number, count), value))?;
    }
    file.flush()?;
    medium.flush_names("")?;
    let started = Instant::now();
    let until = started + Duration::from_secs_f64(seconds);
    let write = |file: &dyn MediumFile, number: usize, value: &[u8]| {
        let mut count = 0;
        while Instant::now() < until {
            file.write_large(place(number, count), value)?;
            file.flush()?;
            count += 1;
        }
        std::io::Result::Ok(count)
    };
    let counts: Vec<std::io::Result<u64>> = std::thread::scope(|scope| {
        let (file, write) = (&*file, &write);
        let writers: Vec<_> =
            values.iter().enumerate().map(|(number, value)| scope.spawn(move || write(file, number, value))).collect();
        let joined = writers.into_iter().map(|writer| writer.join());
        joined.map(|count| count.unwrap_or_else(|_| Err(std::io::Error::other("a writer panicked")))).collect()
    });
    let taken = started.elapsed().as_secs_f64();
    let count: u64 = counts.into_iter().sum::<std::io::Result<u64>>()?;
    Ok(count as f64 * MIB as f64 / taken / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_medium_is_written_where_there_is_room_and_nothing_stays() {
        let folder = tempfile::tempdir().unwrap();
        assert!(medium_mb_s(folder.path(), 2, 0.05).unwrap() > 0.0);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        let medium = FolderMedium::open(folder.path()).unwrap();
        rate(&medium, 2, 0.05).unwrap();
        let bytes = medium.open("reserved", false).unwrap().len().unwrap();
        assert_eq!(bytes, 2 * KEYS * MIB as u64, "it does not grow");
    }
}
