//! Search in texts that are compressed with FSST (Boncz et al. 2020; see `docs/bibliography.md`): a page of texts is
//! decompressed into one buffer, and one search goes over it.
//!
//! Vortex matches codes one by one, or makes a text of each row first; both take several times longer.

use ::vortex::array::arrays::PrimitiveArray;
use ::vortex::array::builtins::ArrayBuiltins;
use ::vortex::array::dtype::{DType, Nullability, PType};
use ::vortex::array::{ArrayRef, ExecutionCtx};
use ::vortex::encodings::fsst::{FSST, FSSTArraySlotsExt};
use ::vortex::error::{VortexResult, vortex_ensure, vortex_err};
use ::vortex::mask::Mask;

use super::pattern::TextPattern;

/// The most bytes that a code represents.
const SYMBOL_BYTES: usize = 8;
/// The code that precedes a byte which represents itself.
const ESCAPE: u8 = 255;

/// The rows whose texts match a pattern or, with `negated`, those whose texts do not; NULL is in neither. None if the
/// texts are not compressed with FSST.
pub(super) fn search(
    texts: &ArrayRef,
    pattern: &TextPattern,
    negated: bool,
    context: &mut ExecutionCtx,
) -> VortexResult<Option<Mask>> {
    let Some(compressed) = texts.as_opt::<FSST>() else { return Ok(None) };
    let offsets = whole_numbers(compressed.codes_offsets(), context)?;
    let range = offsets.as_slice::<u64>().first().zip(offsets.as_slice::<u64>().last());
    let codes = range.and_then(|(first, last)| {
        compressed.codes_bytes().as_slice().get(usize::try_from(*first).ok()?..usize::try_from(*last).ok()?)
    });
    let codes = codes.ok_or_else(|| vortex_err!("codes of texts lie outside their bytes"))?;
    let lengths = whole_numbers(compressed.uncompressed_lengths(), context)?;
    let mut end = 0u32;
    let ends = lengths.as_slice::<u64>().iter().map(|length| {
        end = end.checked_add(u32::try_from(*length).ok()?)?;
        Some(end)
    });
    let ends = ends.collect::<Option<Vec<u32>>>().ok_or_else(|| vortex_err!("texts are too long"))?;
    let total = ends.last().map_or(0, |end| *end as usize);
    vortex_ensure!(
        codes.len().div_ceil(2) <= total && total <= codes.len().saturating_mul(SYMBOL_BYTES),
        "texts of {total} bytes cannot come from {} codes",
        codes.len()
    );
    let symbols = Symbols::new(compressed.symbols().iter().map(|symbol| symbol.to_u64()), compressed.symbol_lengths());
    let text = symbols.decompress(codes, total).ok_or_else(|| vortex_err!("texts do not have their lengths"))?;
    let found = Mask::from_indices(texts.len(), pattern.search(&text, &ends));
    if !negated {
        return Ok(Some(found));
    }
    let valid = texts.validity()?.execute_mask(texts.len(), context)?;
    Ok(Some(!found & &valid))
}

/// Whole numbers of any width, none below 0.
fn whole_numbers(numbers: &ArrayRef, context: &mut ExecutionCtx) -> VortexResult<PrimitiveArray> {
    numbers.clone().cast(DType::Primitive(PType::U64, Nullability::NonNullable))?.execute::<PrimitiveArray>(context)
}

/// The bytes that each code represents.
struct Symbols {
    bytes: [[u8; SYMBOL_BYTES]; 256],
    lengths: [u8; 256],
}

impl Symbols {
    fn new(symbols: impl Iterator<Item = u64>, lengths: &[u8]) -> Self {
        let mut made = Self { bytes: [[0; SYMBOL_BYTES]; 256], lengths: [0; 256] };
        for (code, (symbol, length)) in symbols.zip(lengths).take(usize::from(ESCAPE)).enumerate() {
            made.bytes[code] = symbol.to_le_bytes();
            made.lengths[code] = (*length).min(SYMBOL_BYTES as u8);
        }
        made
    }

    /// The decompressed bytes, of which there must be `total`.
    fn decompress(&self, codes: &[u8], total: usize) -> Option<Vec<u8>> {
        // Each symbol is written with all of its eight bytes, and the next symbol overwrites those that are too many.
        let mut text = vec![0; total + SYMBOL_BYTES];
        let (mut end, mut codes) = (0, codes.iter());
        while let Some(code) = codes.next() {
            let out = text.get_mut(end..end + SYMBOL_BYTES)?;
            if *code == ESCAPE {
                *out.first_mut()? = *codes.next()?;
                end += 1;
            } else {
                out.copy_from_slice(&self.bytes[usize::from(*code)]);
                end += usize::from(self.lengths[usize::from(*code)]);
            }
        }
        text.truncate(total);
        (end == total).then_some(text)
    }
}

#[cfg(test)]
mod tests {
    use ::vortex::array::arrays::VarBinViewArray;
    use ::vortex::array::{IntoArray, VortexSessionExecute};
    use ::vortex::encodings::fsst::{fsst_compress, fsst_train_compressor};

    use super::*;
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
        for pattern in ["%packages%", "%e%s", "spec%", "%special%\u{1f980}%", "%12%sleep", "%no such%", "%s%s%s%s%"] {
            let Some(pattern) = TextPattern::new(pattern) else { continue };
            for (from, to) in [(0, 3_000), (17, 1_234), (5, 6)] {
                let rows = compressed.slice(from..to).unwrap();
                for negated in [false, true] {
                    let found = search(&rows, &pattern, negated, &mut context).unwrap().expect("texts compressed with FSST");
                    let matches = |text: &Option<String>| text.as_ref().map(|text| pattern.matches(text.as_bytes()) != negated);
                    let expected: Vec<bool> = texts[from..to].iter().map(|text| matches(text).unwrap_or(false)).collect();
                    assert_eq!(found.iter().collect::<Vec<bool>>(), expected, "{pattern:?} {negated} {from}..{to}");
                }
            }
        }
        assert!(search(&plain, &TextPattern::new("%a%").unwrap(), false, &mut context).unwrap().is_none());
    }

    #[test]
    fn codes_that_lie_give_nothing() {
        let symbols = Symbols::new([u64::from_le_bytes(*b"abcdefgh"), u64::from_le_bytes(*b"xy000000")].into_iter(), &[8, 2]);
        assert_eq!(symbols.decompress(&[0, 1, ESCAPE, b'!', 1], 13).as_deref(), Some(b"abcdefghxy!xy".as_slice()));
        assert_eq!(symbols.decompress(&[0, 1], 9), None);
        assert_eq!(symbols.decompress(&[0, 1], 11), None);
        assert_eq!(symbols.decompress(&[0, ESCAPE], 9), None);
        assert_eq!(symbols.decompress(&[7; 100], 10), None);
    }
}
