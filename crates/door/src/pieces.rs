//! A run on its way from drive to drive: its stored values in [`Pieces`].

use bytes::{Bytes, BytesMut};
use futures::stream::{self, BoxStream, StreamExt};
use pithead_model::{Blame, Fault, SLICE_BYTES_MAX};

/// A part of a stored value of a run, on its way from drive to drive. The metadata slice comes first, so that each slice can
/// be compared with it when it comes; then the slices by number. The parts of a value come in order.
#[derive(Clone, Debug, PartialEq)]
pub struct RunPiece {
    /// The slice; none: the metadata slice.
    pub number: Option<u32>,
    /// Bytes of the whole value.
    pub total: u64,
    /// The next bytes of it, at most [`PIECE_BYTES_MAX`].
    pub bytes: Bytes,
}

/// Bytes of a [`RunPiece`] at most.
pub const PIECE_BYTES_MAX: usize = 2 << 20;

/// A run on its way from drive to drive.
pub type Pieces = BoxStream<'static, Result<RunPiece, Fault>>;

/// A stored value of a run: the slice's number, none for the metadata slice; its bytes.
pub type RunValue = (Option<u32>, Bytes);

/// The pieces of one value, in order. Nothing is copied.
pub fn value_pieces((number, value): RunValue) -> impl Iterator<Item = RunPiece> + Send {
    let total = value.len() as u64;
    let starts = (0..value.len()).step_by(PIECE_BYTES_MAX);
    starts.map(move |start| {
        let end = value.len().min(start + PIECE_BYTES_MAX);
        RunPiece { number, total, bytes: value.slice(start..end) }
    })
}

/// The values of a run from its pieces, each in an allocation of its own: the metadata slice, then the slices by number from 0
/// on. Pieces that are out of order or bounds, or end in the midst of a value, are a fault, and nothing follows it.
pub fn run_values(pieces: Pieces) -> BoxStream<'static, Result<RunValue, Fault>> {
    let state = Some((pieces, PieceOrder::default()));
    stream::unfold(state, |state| async move {
        let (mut pieces, mut order) = state?;
        match next_value(&mut pieces, &mut order).await.transpose()? {
            Ok(value) => Some((Ok(value), Some((pieces, order)))),
            Err(fault) => Some((Err(fault), None)),
        }
    })
    .boxed()
}

async fn next_value(pieces: &mut Pieces, order: &mut PieceOrder) -> Result<Option<RunValue>, Fault> {
    let mut value = BytesMut::new();
    while let Some(piece) = pieces.next().await.transpose()? {
        order.take(&piece)?;
        // The order has checked that it is no more than a value may have.
        let total = piece.total as usize;
        if value.is_empty() {
            value = BytesMut::with_capacity(total);
        }
        value.extend_from_slice(&piece.bytes);
        if value.len() == total {
            return Ok(Some((piece.number, value.freeze())));
        }
    }
    order.finish()?;
    Ok(None)
}

/// Follows the pieces of one run: the metadata slice, then slices from 0 on without a gap, each value whole.
#[derive(Debug, Default)]
pub struct PieceOrder {
    /// The value that is not whole yet, with the bytes that are missing.
    begun: Option<Begun>,
    /// What comes next: none, the metadata slice.
    next: Option<u32>,
    started: bool,
}

impl PieceOrder {
    /// Takes the next piece.
    pub fn take(&mut self, piece: &RunPiece) -> Result<(), Fault> {
        let bytes = piece.bytes.len();
        if bytes > PIECE_BYTES_MAX {
            return Err(wrong(format!("a piece of {bytes} bytes; at most {PIECE_BYTES_MAX} are allowed")));
        }
        let Begun { number, total, missing } = match self.begun.take() {
            Some(begun) => begun,
            None => Begun { number: self.next, total: piece.total, missing: piece.total },
        };
        if total > SLICE_BYTES_MAX as u64 {
            return Err(wrong(format!("a value of {total} bytes; at most {SLICE_BYTES_MAX} are allowed")));
        }
        if (piece.number, piece.total) != (number, total) {
            let (found, expected) = (show(piece.number), show(number));
            return Err(wrong(format!(
                "{found} of {} bytes where {missing} of {total} of {expected} were expected",
                piece.total
            )));
        }
        match missing.checked_sub(bytes as u64) {
            _ if bytes == 0 => return Err(wrong(format!("an empty piece of {}", show(number)))),
            None => return Err(wrong(format!("{bytes} bytes of {} where {missing} of {total} are missing", show(number)))),
            Some(0) => self.whole(number),
            Some(missing) => self.begun = Some(Begun { number, total, missing }),
        }
        Ok(())
    }

    fn whole(&mut self, number: Option<u32>) {
        self.started = true;
        // A run of more slices than numbers cannot come: the next one would have to have the last number again.
        self.next = Some(number.map_or(0, |number| number.saturating_add(1)));
    }

    /// Checks that no value is cut. Whether slices are missing at the end, the metadata slice tells.
    pub fn finish(&self) -> Result<(), Fault> {
        match &self.begun {
            Some(begun) => Err(wrong(format!("it ends in {}", show(begun.number)))),
            None if !self.started => Err(wrong("it ends before its metadata slice".to_owned())),
            None => Ok(()),
        }
    }
}

fn wrong(why: String) -> Fault {
    Fault::new(Blame::User, format!("malformed run: {why}"))
}

fn show(number: Option<u32>) -> String {
    number.map_or("the metadata slice".to_owned(), |number| format!("slice {number}"))
}

/// A value that is not whole yet.
#[derive(Debug)]
struct Begun {
    number: Option<u32>,
    total: u64,
    missing: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::TryStreamExt;
    use futures::executor::block_on;

    fn values() -> Vec<RunValue> {
        let value = |bytes: usize| Bytes::from_iter((0..bytes).map(|i| (i % 253) as u8));
        vec![(None, value(7)), (Some(0), value(PIECE_BYTES_MAX)), (Some(1), value(2 * PIECE_BYTES_MAX + 1))]
    }

    fn pieces() -> Vec<RunPiece> {
        values().into_iter().flat_map(value_pieces).collect()
    }

    fn read(pieces: Vec<Result<RunPiece, Fault>>) -> Result<Vec<RunValue>, Fault> {
        block_on(run_values(stream::iter(pieces).boxed()).try_collect())
    }

    #[test]
    fn values_come_back_from_their_pieces() {
        assert_eq!(pieces().len(), 5);
        assert!(pieces().iter().all(|piece| piece.bytes.len() <= PIECE_BYTES_MAX));
        assert_eq!(read(pieces().into_iter().map(Ok).collect()).unwrap(), values());
    }

    #[test]
    fn pieces_that_break_off_are_no_value() {
        let fault = Fault::new(Blame::Device, "the link is gone");
        for kept in [0, 3, 4] {
            let broken = pieces().into_iter().take(kept).map(Ok);
            assert!(read(broken.clone().collect()).is_err(), "{kept} pieces of 5");
            assert_eq!(read(broken.chain([Err(fault.clone())]).collect()).unwrap_err(), fault);
        }
    }

    fn piece(number: Option<u32>, total: u64, bytes: usize) -> RunPiece {
        RunPiece { number, total, bytes: Bytes::from(vec![7; bytes]) }
    }

    fn order(pieces: &[RunPiece]) -> Result<(), Fault> {
        let mut order = PieceOrder::default();
        pieces.iter().try_for_each(|piece| order.take(piece))?;
        order.finish()
    }

    #[test]
    fn pieces_in_order_are_a_run() {
        order(&[piece(None, 1, 1)]).unwrap();
        order(&[piece(None, 4, 3), piece(None, 4, 1), piece(Some(0), 3, 2), piece(Some(0), 3, 1), piece(Some(1), 1, 1)])
            .unwrap();
    }

    #[test]
    fn what_is_no_run_is_refused() {
        let large = SLICE_BYTES_MAX as u64 + 1;
        let meta = || piece(None, 1, 1);
        let wrong = [
            vec![],
            vec![piece(Some(0), 1, 1)],
            vec![piece(None, 2, 1)],
            vec![meta(), meta()],
            vec![meta(), piece(Some(1), 1, 1)],
            vec![meta(), piece(Some(0), 1, 1), piece(Some(0), 1, 1)],
            vec![meta(), piece(Some(0), 1, 1), piece(Some(2), 1, 1)],
            vec![meta(), piece(Some(0), 2, 1), piece(Some(1), 1, 1)],
            vec![meta(), piece(Some(0), 2, 1), meta()],
            vec![meta(), piece(Some(0), 2, 1), piece(Some(0), 3, 1)],
            vec![meta(), piece(Some(0), 2, 1)],
            vec![meta(), piece(Some(0), 2, 3)],
            vec![meta(), piece(Some(0), 2, 1), piece(Some(0), 2, 2)],
            vec![meta(), piece(Some(0), 0, 0)],
            vec![meta(), piece(Some(0), 2, 0)],
            vec![meta(), piece(Some(0), u64::MAX, 1)],
            vec![meta(), piece(Some(0), large, 1)],
            vec![piece(None, large, 1)],
            vec![piece(None, large, PIECE_BYTES_MAX + 1)],
        ];
        for pieces in wrong {
            let shape: Vec<_> = pieces.iter().map(|piece| (piece.number, piece.total, piece.bytes.len())).collect();
            assert!(order(&pieces).is_err(), "{shape:?}");
        }
    }
}
