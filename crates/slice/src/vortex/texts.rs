//! Search in texts that are compressed with FSST (Boncz et al. 2020; see `docs/bibliography.md`): the byte-pattern matcher
//! goes over their codes.
//!
//! Vortex matches codes one by one, or makes a text of each row first; both take many times longer.

use std::cell::OnceCell;
use std::ops::Range;

use ::vortex::array::arrays::PrimitiveArray;
use ::vortex::array::arrays::primitive::PrimitiveArrayExt;
use ::vortex::array::builtins::ArrayBuiltins;
use ::vortex::array::dtype::{DType, Nullability, PType};
use ::vortex::array::{ArrayRef, ExecutionCtx};
use ::vortex::buffer::{BitBuffer, Buffer, ByteBuffer};
use ::vortex::encodings::fsst::{FSST, FSSTArraySlotsExt};
use ::vortex::error::{VortexResult, vortex_err};
use ::vortex::mask::{AllOr, Mask};

use crate::matcher::{CodeSearch, Coded, Matcher, RowSet, Symbols};

/// A part of a column whose texts are compressed with one table of symbols.
pub(super) struct CodedTexts {
    symbols: Symbols,
    codes: ByteBuffer,
    offsets: Offsets,
    valid: Mask,
    /// The matcher's patterns, each prepared when it is first searched for.
    searches: Vec<OnceCell<CodeSearch>>,
}

/// Where the codes of each text start, and where those of the last one end.
enum Offsets {
    /// As they are stored; offsets below 0 are beyond all codes here.
    Stored(Buffer<u32>),
    Converted(Vec<u32>),
}

impl CodedTexts {
    /// The texts, with what is needed to search for the patterns of one matcher. None if they are not compressed with
    /// FSST.
    pub(super) fn new(texts: &ArrayRef, matcher: &Matcher, context: &mut ExecutionCtx) -> VortexResult<Option<Box<Self>>> {
        let Some(compressed) = texts.as_opt::<FSST>() else { return Ok(None) };
        Ok(Some(Box::new(Self {
            symbols: Symbols::new(compressed.symbols().iter().map(|symbol| symbol.to_u64()), compressed.symbol_lengths()),
            codes: compressed.codes_bytes().clone(),
            offsets: Offsets::new(compressed.codes_offsets(), context)?,
            valid: texts.validity()?.execute_mask(texts.len(), context)?,
            searches: matcher.patterns().iter().map(|_| OnceCell::new()).collect(),
        })))
    }

    /// The rows of `mask`, which selects among `rows` of the texts, that the matcher lets through.
    pub(super) fn search(&self, matcher: &Matcher, rows: Range<usize>, mask: &Mask) -> VortexResult<Mask> {
        let lie = || vortex_err!("codes of texts lie outside their bytes");
        let texts = self.coded(rows.clone()).ok_or_else(lie)?;
        let wanted = to_rows(mask).and(&to_rows(&self.valid.slice(rows)));
        let found = matcher.search(wanted, &mut |index, wanted| {
            let (pattern, prepared) = (&matcher.patterns()[index], &self.searches[index]);
            prepared.get_or_init(|| CodeSearch::new(pattern, &texts)).search(pattern, &texts, wanted)
        });
        Ok(to_mask(found))
    }

    fn coded(&self, rows: Range<usize>) -> Option<Coded<'_>> {
        let offsets = match &self.offsets {
            Offsets::Stored(offsets) => offsets.as_slice(),
            Offsets::Converted(offsets) => offsets.as_slice(),
        };
        Coded::new(&self.symbols, self.codes.as_slice(), offsets.get(rows.start..rows.end.checked_add(1)?)?)
    }
}

impl Offsets {
    fn new(offsets: &ArrayRef, context: &mut ExecutionCtx) -> VortexResult<Self> {
        let stored = offsets.clone().execute::<PrimitiveArray>(context)?;
        if matches!(stored.ptype(), PType::U32 | PType::I32) {
            return Ok(Self::Stored(stored.reinterpret_cast(PType::U32).to_buffer::<u32>()));
        }
        let wide = offsets.clone().cast(DType::Primitive(PType::U64, Nullability::NonNullable))?;
        let wide = wide.execute::<PrimitiveArray>(context)?;
        // A slice is far below 4 GiB.
        let narrow = wide.as_slice::<u64>().iter().map(|offset| u32::try_from(*offset).unwrap_or(u32::MAX));
        Ok(Self::Converted(narrow.collect()))
    }
}

fn to_rows(mask: &Mask) -> RowSet {
    match mask.bit_buffer() {
        AllOr::All => RowSet::all(mask.len()),
        AllOr::None => RowSet::none(mask.len()),
        AllOr::Some(bits) => RowSet::from_words(bits.chunks().iter_padded(), mask.len()),
    }
}

fn to_mask(found: RowSet) -> Mask {
    let rows = found.rows();
    Mask::from_buffer(BitBuffer::new(Buffer::from(found.into_words()).into_byte_buffer(), rows))
}

#[cfg(test)]
mod tests {
    use ::vortex::array::arrays::VarBinViewArray;
    use ::vortex::array::{IntoArray, VortexSessionExecute};
    use ::vortex::encodings::fsst::{fsst_compress, fsst_train_compressor};

    use super::*;
    use crate::Predicate;
    use crate::vortex::SESSION;

    #[test]
    fn compressed_texts_match_as_plain_ones_do() {
        let text = |row: usize| match row % 7 {
            0 => None,
            1 => Some(String::new()),
            _ => Some(format!("{} requests of \u{1f980} {row} sleep", ["special", "packages", "pending"][row % 3])),
        };
        let texts: Vec<Option<String>> = (0..3_000).map(text).collect();
        let mut context = SESSION.create_execution_ctx();
        let plain = VarBinViewArray::from_iter_nullable_str(texts.iter().map(Option::as_deref)).into_array();
        let compressor = fsst_train_compressor(&plain, &mut context).unwrap();
        let compressed = fsst_compress(&plain, &compressor, &mut context).unwrap().into_array();
        for pattern in
            ["%packages%", "%e%s", "spec%", "%special%\u{1f980}%", "%12%sleep", "%no such%", "%s%s%s%s%", "", "_ack%"]
        {
            for negated in [false, true] {
                let predicate = Predicate::Like { column: 0, pattern: pattern.into(), negated };
                let matcher = Matcher::of(&[&predicate]).unwrap();
                let coded = CodedTexts::new(&compressed, &matcher, &mut context).unwrap().expect("texts compressed with FSST");
                for (rows, step) in [(0..3_000, 1), (17..1_234, 2), (5..6, 1), (100..2_999, 500)] {
                    let mask = Mask::from_iter(rows.clone().map(|row| row % step == 0));
                    let found = coded.search(&matcher, rows.clone(), &mask).unwrap();
                    let matches = |text: &Option<String>| {
                        text.as_ref().is_some_and(|text| matcher.patterns()[0].matches(text.as_bytes()) != negated)
                    };
                    let expected: Vec<bool> = rows.clone().map(|row| row % step == 0 && matches(&texts[row])).collect();
                    assert_eq!(found.iter().collect::<Vec<bool>>(), expected, "{pattern:?} {negated} {rows:?}");
                }
                assert!(CodedTexts::new(&plain, &matcher, &mut context).unwrap().is_none());
            }
        }
    }
}
