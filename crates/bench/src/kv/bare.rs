//! What there is at most: a socket without a protocol, and a medium without a store.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use pithead_model::{Blame, Fault};

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

/// Megabytes a second of 1 MiB, each flushed before the next, by writers with a file of its own each.
pub(super) fn medium_mb_s(folder: &Path, writers: usize, seconds: f64) -> Result<f64, Fault> {
    let started = Instant::now();
    let until = started + Duration::from_secs_f64(seconds);
    let counts: Vec<Result<u64, Fault>> = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..writers).map(|number| scope.spawn(move || write(folder, number, until))).collect();
        let joined = writers.into_iter().map(|writer| writer.join());
        joined.map(|count| count.unwrap_or_else(|_| Err(Fault::bug("a writer panicked")))).collect()
    });
    let taken = started.elapsed().as_secs_f64();
    let count: u64 = counts.into_iter().sum::<Result<u64, Fault>>()?;
    Ok(count as f64 * MIB as f64 / taken / 1e6)
}

fn write(folder: &Path, number: usize, until: Instant) -> Result<u64, Fault> {
    let path = folder.join(format!("bare-{number}"));
    let failed = |error: std::io::Error| io(&path, &error);
    let mut file = File::create(&path).map_err(failed)?;
    let value: Vec<u8> = (0..MIB).map(|at| (at * 31 + number) as u8).collect();
    let mut count = 0;
    while Instant::now() < until {
        file.write_all(&value).and_then(|()| file.sync_data()).map_err(failed)?;
        count += 1;
    }
    Ok(count)
}
