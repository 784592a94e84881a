//! Stored values and the pieces that they travel in.

use bytes::{Bytes, BytesMut};
use futures::stream::{self, BoxStream, StreamExt};
use pithead_model::Fault;

use crate::door::{PIECE_BYTES_MAX, Pieces, RunPiece};
use crate::run::PieceOrder;

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

#[cfg(test)]
mod tests {
    use super::*;
    use futures::TryStreamExt;
    use futures::executor::block_on;
    use pithead_model::Blame;

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
}
