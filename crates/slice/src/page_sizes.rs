//! What Parquet's pages say of their size, before the decoder makes room for it.
//!
//! A page's header is Thrift's compact form, of which the first three fields matter here: kind, bytes decompressed, bytes
//! stored (<https://github.com/apache/parquet-format>, `PageHeader`), and how many values it says it has. The library
//! does not show it.

/// Bytes of a header that are read at first, and at most: it holds bounds of the page's values.
const HEADER_BYTES: usize = 512;
const HEADER_BYTES_MAX: usize = 1 << 20;
/// Structures inside each other at most; Parquet has three.
const DEPTH_MAX: usize = 8;
/// The kind of a page with a dictionary.
const DICTIONARY_PAGE: i64 = 2;
/// What a page may be decompressed: so much, and so many times its stored bytes.
const PAGE_BYTES_MAX: u64 = 64 << 20;
const RATIO_MAX: u64 = 64;
/// Values of a page, NULLs among them: they may take no bytes at all.
const VALUES_MAX: i64 = 1 << 24;

/// Fills its bytes with those of a file from a place on.
pub type ReadInto<'a> = dyn Fn(u64, &mut [u8]) -> Result<(), String> + 'a;

/// Checks all pages of a column chunk, which lies within the file, up to its end or to what is no page: the decoder will say so,
/// if it comes that far. The error says which size does not hold.
pub fn check_pages(read: &ReadInto<'_>, start: u64, end: u64) -> Result<(), String> {
    let mut at = start;
    while at < end {
        let Some((header, PageSizes { decompressed, stored, values })) = read_header(read, at, end)? else { break };
        let (Ok(stored), Ok(decompressed)) = (u32::try_from(stored), u32::try_from(decompressed)) else {
            return Err(format!("a page of {decompressed} bytes decompressed and {stored} stored"));
        };
        let allowed = PAGE_BYTES_MAX + RATIO_MAX * u64::from(stored);
        if u64::from(decompressed) > allowed {
            return Err(format!("a page of {decompressed} bytes decompressed and {stored} stored; at most {allowed} are read"));
        }
        if values > VALUES_MAX {
            return Err(format!("a page of {values} values; at most {VALUES_MAX} are read"));
        }
        at = at.saturating_add(header).saturating_add(stored.into());
    }
    Ok(())
}

struct PageSizes {
    decompressed: i64,
    stored: i64,
    values: i64,
}

/// How many values the page at a chunk's start has, where it is a page of a dictionary.
pub(crate) fn dictionary_values(bytes: &[u8]) -> Option<u64> {
    let (kind, page) = Thrift(bytes).page()?;
    (kind == DICTIONARY_PAGE).then(|| u64::try_from(page.values).ok())?
}

/// Bytes of the header at `at`, and what it says. None: it is none.
fn read_header(read: &ReadInto<'_>, at: u64, end: u64) -> Result<Option<(u64, PageSizes)>, String> {
    let there = usize::try_from(end - at).unwrap_or(usize::MAX).min(HEADER_BYTES_MAX);
    let mut bytes = vec![0; there.min(HEADER_BYTES)];
    loop {
        read(at, &mut bytes)?;
        let mut thrift = Thrift(&bytes);
        if let Some((_, page)) = thrift.page() {
            return Ok(Some(((bytes.len() - thrift.0.len()) as u64, page)));
        }
        if bytes.len() == HEADER_BYTES_MAX {
            return Err(format!("a page's header has more than {HEADER_BYTES_MAX} bytes"));
        }
        if bytes.len() == there {
            return Ok(None);
        }
        bytes.resize(there.min(bytes.len() * 8), 0);
    }
}

/// Thrift's compact protocol; each read takes what it reads. None: the bytes end, or are none of it.
struct Thrift<'a>(&'a [u8]);

impl Thrift<'_> {
    /// The page's kind and sizes.
    fn page(&mut self) -> Option<(i64, PageSizes)> {
        let (mut field, mut sizes, mut values) = (0_i64, [None; 3], 0);
        while let Some((number, kind)) = self.field(field)? {
            field = number;
            match (number, kind) {
                (1..=3, 5) => sizes[number as usize - 1] = Some(self.zigzag()?),
                // What is told of pages of data, of dictionaries, and of data in the second version.
                (5 | 7 | 8, 12) => values = self.values()?,
                _ => self.skip(kind, DEPTH_MAX)?,
            }
        }
        Some((sizes[0]?, PageSizes { decompressed: sizes[1]?, stored: sizes[2]?, values }))
    }

    /// The number of values, which is the first field of each of these structures.
    fn values(&mut self) -> Option<i64> {
        let (mut field, mut values) = (0, 0);
        while let Some((number, kind)) = self.field(field)? {
            field = number;
            match (number, kind) {
                (1, 5) => values = self.zigzag()?,
                _ => self.skip(kind, DEPTH_MAX)?,
            }
        }
        Some(values)
    }

    /// The next field's number and kind; none at the structure's end.
    fn field(&mut self, before: i64) -> Option<Option<(i64, u8)>> {
        let head = self.byte()?;
        match (head >> 4, head & 0xf) {
            (_, 0) => Some(None),
            (0, kind) => Some(Some((self.zigzag()?, kind))),
            (more, kind) => Some(Some((before.checked_add(more.into())?, kind))),
        }
    }

    fn skip(&mut self, kind: u8, depth: usize) -> Option<()> {
        let depth = depth.checked_sub(1)?;
        match kind {
            1 | 2 => Some(()),
            3 => self.byte().map(drop),
            4..=6 => self.varint().map(drop),
            7 => self.take(8),
            8 => {
                let bytes = self.varint()?;
                self.take(usize::try_from(bytes).ok()?)
            }
            9 | 10 => {
                let head = self.byte()?;
                let count = if head >> 4 == 15 { self.varint()? } else { u64::from(head >> 4) };
                (0..count).try_for_each(|_| self.skip_item(head & 0xf, depth))
            }
            12 => {
                while let Some((_, kind)) = self.field(0)? {
                    self.skip(kind, depth)?;
                }
                Some(())
            }
            _ => None,
        }
    }

    /// Within lists, truths take a byte; so every item takes one, and the bytes bound their number.
    fn skip_item(&mut self, kind: u8, depth: usize) -> Option<()> {
        if matches!(kind, 1 | 2) { self.byte().map(drop) } else { self.skip(kind, depth) }
    }

    fn take(&mut self, bytes: usize) -> Option<()> {
        self.0 = self.0.get(bytes..)?;
        Some(())
    }

    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    fn zigzag(&mut self) -> Option<i64> {
        let number = self.varint()?;
        Some((number >> 1) as i64 ^ -((number & 1) as i64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Kind 0, the sizes as zigzag numbers, then a structure with a list and a text.
    fn page(decompressed: u8, stored: u8) -> Vec<u8> {
        let header = [0x15, 0, 0x15, 2 * decompressed, 0x15, 2 * stored, 0x2c, 0x19, 0x25, 1, 2, 0x18, 2, b'a', b'b', 0, 0];
        [&header[..], &vec![7; stored.into()]].concat()
    }

    fn check(bytes: &[u8]) -> Result<(), String> {
        let read = |at: u64, into: &mut [u8]| {
            let there = bytes.get(at as usize..at as usize + into.len()).ok_or("too short")?;
            into.copy_from_slice(there);
            Ok(())
        };
        check_pages(&read, 0, bytes.len() as u64)
    }

    #[test]
    fn pages_that_say_what_they_are_pass() {
        check(&[page(9, 5), page(20, 63)].concat()).unwrap();
    }

    #[test]
    fn a_page_that_asks_for_too_much_is_refused() {
        let size = [0xfe, 0xff, 0xff, 0xff, 0x0f];
        let lying = [&[0x15, 0, 0x15][..], &size, &[0x15, 10, 0], &[7; 5]].concat();
        let error = check(&lying).unwrap_err();
        assert_eq!(error, "a page of 2147483647 bytes decompressed and 5 stored; at most 67109184 are read");
    }

    #[test]
    fn a_page_behind_others_is_seen_and_what_is_no_page_is_left_to_the_decoder() {
        let negative = [0x15, 0, 0x15, 9, 0x15, 10, 0, 7, 7, 7, 7, 7];
        assert!(check(&[page(9, 5), negative.to_vec()].concat()).is_err());
        let deep = [&[0x1c; 30][..], &[0; 31]].concat();
        for bytes in [&[0x15; 40][..], &[0], &page(9, 5)[..8], &deep] {
            check(bytes).unwrap();
        }
    }

    #[test]
    fn a_header_without_end_is_refused() {
        // A text of 2 MiB before the sizes.
        let long = [&[0x18, 0x80, 0x80, 0x80, 0x01][..], &vec![7; 2 << 20]].concat();
        assert!(check(&long).is_err());
    }
}
