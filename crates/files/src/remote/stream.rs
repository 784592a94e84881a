//! [`RemoteStream`]: a file from its first byte to its last, of which a thread of its own reads ahead.

use std::io::{self, Cursor, Read};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use pithead_model::{Blame, Fault};

/// Pieces that are read ahead at most.
const AHEAD: usize = 2;

/// Takes pieces of a file, in order.
pub(crate) type Sink<'a> = &'a mut dyn FnMut(Vec<u8>) -> Result<(), Fault>;

/// The bytes of a file.
#[derive(Debug)]
pub(crate) struct RemoteStream {
    pieces: Receiver<Piece>,
    piece: Cursor<Vec<u8>>,
    is_over: bool,
}

type Piece = Result<Next, Fault>;

enum Next {
    Bytes(Vec<u8>),
    End,
}

impl RemoteStream {
    /// Starts the thread, which gives all bytes to a sink.
    pub(crate) fn start(read: impl FnOnce(Sink<'_>) -> Result<(), Fault> + Send + 'static) -> Result<RemoteStream, Fault> {
        let (sender, pieces) = sync_channel(AHEAD);
        let thread = std::thread::Builder::new().name("pithead-fetch".to_owned());
        // It ends by itself: when nobody takes its pieces, and because each of its own waits has a limit.
        thread.spawn(move || fetch(read, &sender)).map_err(|error| Fault::new(Blame::Device, format!("no thread: {error}")))?;
        Ok(RemoteStream { pieces, piece: Cursor::default(), is_over: false })
    }
}

fn fetch(read: impl FnOnce(Sink<'_>) -> Result<(), Fault>, sender: &SyncSender<Piece>) {
    let gone = |_| Fault::new(Blame::Cancelled, "nobody reads on");
    let read = read(&mut |piece| sender.send(Ok(Next::Bytes(piece))).map_err(gone));
    // Whoever is gone needs no end.
    let _ = sender.send(read.map(|()| Next::End));
}

impl Read for RemoteStream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            let bytes = self.piece.read(into)?;
            if bytes > 0 || self.is_over || into.is_empty() {
                return Ok(bytes);
            }
            match self.pieces.recv() {
                Ok(Ok(Next::Bytes(piece))) => self.piece = Cursor::new(piece),
                Ok(Ok(Next::End)) => self.is_over = true,
                Ok(Err(fault)) => return Err(io::Error::other(fault)),
                Err(_) => return Err(io::Error::other("the reader of the file stopped")),
            }
        }
    }
}
