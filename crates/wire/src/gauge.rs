//! [`SocketGauge`]: how a connection's link does, as the kernel's TCP has measured it.

use pithead_door::{LinkGauge, LinkReading};
use pithead_entry::{Peer, is_loopback};
use std::net::TcpStream;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// Where the kernel's `struct tcp_info` (include/uapi/linux/tcp.h) has what is needed here.
const BYTES_ACKED: usize = 120;
const NOT_SENT_BYTES: usize = 144;
const DELIVERY_RATE: usize = 160;
const BUSY_TIME_US: usize = 168;
/// As much of it as is read.
const INFO_BYTES: usize = 176;
/// A connection that has delivered less says little of its link.
const TELLING_BYTES: u64 = 256 << 10;

/// Asks the socket of a connection. It does not keep the connection open.
#[derive(Debug)]
pub(crate) struct SocketGauge {
    peer: Weak<Peer>,
    /// Whether the other end is another machine.
    is_abroad: bool,
    /// Bytes of rows, and those that they were sent as.
    rows: (AtomicU64, AtomicU64),
}

impl SocketGauge {
    pub(crate) fn of(peer: Option<&Arc<Peer>>) -> SocketGauge {
        let is_abroad = peer.and_then(|peer| is_abroad(peer.socket.as_ref()?)).unwrap_or(false);
        SocketGauge { peer: peer.map(Arc::downgrade).unwrap_or_default(), is_abroad, rows: Default::default() }
    }

    /// The rate of a link to another machine, where it has shown one.
    pub(crate) fn rate_abroad(&self) -> Option<f64> {
        self.read().filter(|_| self.is_abroad).map(|read| read.bytes_per_s)
    }

    /// So many bytes of rows were sent as so many.
    pub(crate) fn sent_rows(&self, bytes: u64, sent: u64) {
        self.rows.0.fetch_add(bytes, Ordering::Relaxed);
        self.rows.1.fetch_add(sent, Ordering::Relaxed);
    }
}

impl LinkGauge for SocketGauge {
    fn read(&self) -> Option<LinkReading> {
        let peer = self.peer.upgrade()?;
        let socket = peer.socket.as_ref()?;
        reading(&tcp_info(std::os::fd::AsFd::as_fd(socket))?)
    }

    fn rows_share(&self) -> f64 {
        match self.rows.0.load(Ordering::Relaxed) {
            0 => 1.0,
            bytes => self.rows.1.load(Ordering::Relaxed) as f64 / bytes as f64,
        }
    }
}

/// None where it cannot be told.
fn is_abroad(socket: &OwnedFd) -> Option<bool> {
    let address = TcpStream::from(socket.try_clone().ok()?).peer_addr().ok()?;
    Some(!is_loopback(address.ip()))
}

/// The rate of the last flight that filled the link, and the mean while there was something to send: a flight that the
/// application cut short tells too low a rate, and one that fits a buffer on the way too high a one. Of two that are far apart the
/// mean is right.
fn reading(info: &[u8; INFO_BYTES]) -> Option<LinkReading> {
    let acked = long(info, BYTES_ACKED)?;
    let busy_us = long(info, BUSY_TIME_US)?;
    let last = long(info, DELIVERY_RATE)? as f64;
    if acked < TELLING_BYTES || busy_us == 0 {
        return None;
    }
    let mean = acked as f64 / busy_us as f64 * 1e6;
    let bytes_per_s = if last > 2.0 * mean { (last * mean).sqrt() } else { last.max(mean) };
    Some(LinkReading { bytes_per_s, backlog_bytes: f64::from(word(info, NOT_SENT_BYTES)?) })
}

fn word(info: &[u8; INFO_BYTES], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(info.get(at..at + 4)?.try_into().ok()?))
}

fn long(info: &[u8; INFO_BYTES], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(info.get(at..at + 8)?.try_into().ok()?))
}

/// None where the kernel does not tell all of it.
fn tcp_info(socket: BorrowedFd<'_>) -> Option<[u8; INFO_BYTES]> {
    let mut info = [0_u8; INFO_BYTES];
    let mut length = INFO_BYTES as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes to `info`, which has as many, and then the number of them to `length`.
    let status = unsafe {
        libc::getsockopt(socket.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, info.as_mut_ptr().cast(), &raw mut length)
    };
    (status == 0 && length as usize == INFO_BYTES).then_some(info)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn the_kernel_tells_a_rate_once_enough_has_gone() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut sender = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut receiver, _) = listener.accept().unwrap();
        assert_eq!(reading(&tcp_info(sender.as_fd()).unwrap()), None);
        let reading_all = std::thread::spawn(move || {
            let mut sink = vec![0; 1 << 20];
            while receiver.read(&mut sink).unwrap() > 0 {}
        });
        // The kernel counts the time that it was busy in ticks of some milliseconds, and a fast machine sends megabytes in one.
        let piece = vec![7; 4 << 20];
        let told = (0..1_000).find_map(|_| {
            sender.write_all(&piece).unwrap();
            reading(&tcp_info(sender.as_fd()).unwrap())
        });
        let told = told.expect("4 GB take more than a tick");
        drop(sender);
        reading_all.join().unwrap();
        assert!(told.bytes_per_s > 1e5, "{told:?}");
        assert!(told.backlog_bytes < 5e6, "{told:?}");
    }

    #[test]
    fn what_is_no_tcp_socket_tells_nothing() {
        let (socket, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        assert!(tcp_info(socket.as_fd()).is_none());
        assert!(SocketGauge::of(None).read().is_none());
    }
}
