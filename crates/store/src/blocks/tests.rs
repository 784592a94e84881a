use std::ops::Range;

use bytes::Bytes;
use proptest::prelude::*;
use redb::{Database, ReadableDatabase as _, ReadableTable as _, StorageBackend as _, TableDefinition};

use super::*;

const TABLE: TableDefinition<u64, &[u8]> = TableDefinition::new("t");

/// A file in memory.
#[derive(Debug, Default)]
struct Plain(Mutex<Vec<u8>>);

impl MediumFile for Plain {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.lock().len() as u64)
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.0.lock().resize(bytes as usize, 0);
        Ok(())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let bytes = self.0.lock();
        let from = bytes.get(offset as usize..offset as usize + out.len());
        out.copy_from_slice(from.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut bytes = self.0.lock();
        let end = offset as usize + data.len();
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        bytes[offset as usize..end].copy_from_slice(data);
        Ok(())
    }

    fn read_large_with(&self, range: Range<u64>, _on: &mut dyn FnMut(&[u8])) -> io::Result<Bytes> {
        let mut out = vec![0; (range.end - range.start) as usize];
        self.read(range.start, &mut out).map(|()| out.into())
    }

    fn write_large(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.write(offset, data)
    }

    fn reserve(&self, _range: Range<u64>) -> io::Result<()> {
        Ok(())
    }

    fn punch(&self, _range: Range<u64>) -> io::Result<bool> {
        Ok(false)
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}

fn file() -> (Arc<Plain>, CheckedFile) {
    let plain = Arc::new(Plain::default());
    let checked = CheckedFile::open(Arc::clone(&plain) as Arc<dyn MediumFile>).unwrap();
    (plain, checked)
}

fn reopened(plain: &Arc<Plain>) -> CheckedFile {
    CheckedFile::open(Arc::clone(plain) as Arc<dyn MediumFile>).unwrap()
}

proptest! {
    #[test]
    fn it_is_a_file(steps in prop::collection::vec((0_u8..5, 0_u64..1_500, 1_u64..40, any::<u8>()), 1..40)) {
        let (plain, mut checked) = file();
        let mut model: Vec<u8> = Vec::new();
        for (step, block, blocks, byte) in steps {
            let (offset, bytes) = (block * BLOCK, (blocks * BLOCK) as usize);
            match step {
                0 => {
                    checked.set_len(offset).unwrap();
                    model.resize(offset as usize, 0);
                }
                // redb writes within the length that it has set: pages and its header.
                1 if model.len() >= offset as usize + bytes => {
                    checked.write(offset, &vec![byte; bytes]).unwrap();
                    model[offset as usize..offset as usize + bytes].fill(byte);
                }
                2 if model.len() >= 320 => {
                    checked.write(0, &[byte & !STATE_UNCLEAN; 320]).unwrap();
                    model[..320].fill(byte & !STATE_UNCLEAN);
                }
                3 => {
                    checked.sync_data().unwrap();
                    checked = reopened(&plain);
                }
                _ => {}
            }
            prop_assert_eq!(redb::StorageBackend::len(&checked).unwrap(), model.len() as u64);
            let mut all = vec![1; model.len()];
            checked.read(0, &mut all).unwrap();
            prop_assert!(all == model);
            prop_assert!(checked.read(1, &mut all).is_err() || model.is_empty());
        }
        checked.sync_data().unwrap();
        prop_assert_eq!(reopened(&plain).verify(&mut |_, _| ()).unwrap(), Vec::<u64>::new());
    }

    #[test]
    fn a_flipped_bit_is_seen(place in 0_usize..2 * GROUP_BYTES as usize, bit in 0_u8..8) {
        let (plain, checked) = file();
        checked.set_len(2 * GROUP_BLOCKS * BLOCK).unwrap();
        let data: Vec<u8> = (0..2 * GROUP_BLOCKS).flat_map(|block| [(block % 251) as u8; BLOCK as usize]).collect();
        checked.write(0, &data).unwrap();
        checked.sync_data().unwrap();
        plain.0.lock()[place] ^= 1 << bit;
        let checked = reopened(&plain);
        let bad = checked.verify(&mut |_, _| ()).unwrap();
        let at = place as u64 % GROUP_BYTES;
        let block = place as u64 / GROUP_BYTES * GROUP_BLOCKS + if at < BLOCK { at / 8 } else { at / BLOCK - 1 };
        prop_assert_eq!(bad, if block == 0 { vec![] } else { vec![block] });
        let mut read = vec![1; 2 * BLOCK as usize];
        checked.read(block / 2 * 2 * BLOCK, &mut read).unwrap();
        // The first block contains zeros anyway.
        prop_assert_eq!(read.iter().all(|byte| *byte == 0), block > 0);
    }
}

#[test]
fn a_bad_page_fails_what_needs_it_and_no_other() {
    let (plain, checked) = file();
    let database = redb::Builder::new().create_with_backend(checked.clone()).unwrap();
    for first in (0..3_000).step_by(100) {
        let write = database.begin_write().unwrap();
        for key in first..first + 100 {
            write
                .open_table(TABLE)
                .unwrap()
                .insert(key, xxh3_64(&key.to_le_bytes()).to_le_bytes().repeat(12).as_slice())
                .unwrap();
        }
        write.commit().unwrap();
    }
    drop(database);
    // This is a leaf: the block with the value of key 7, in the last place where it was written.
    let at =
        plain.0.lock().windows(96).rposition(|bytes| bytes == xxh3_64(&7_u64.to_le_bytes()).to_le_bytes().repeat(12)).unwrap();
    plain.0.lock()[at] ^= 1;
    let checked = reopened(&plain);
    let database = redb::Builder::new().create_with_backend(checked.clone()).unwrap();
    let table = database.begin_read().unwrap().open_table(TABLE).unwrap();
    let read = |key: u64| std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| table.get(key).unwrap().is_some()));
    let failed: Vec<u64> = (0..3_000).filter(|key| !matches!(read(*key), Ok(true))).collect();
    assert!(failed.contains(&7) && failed.len() < 100, "{failed:?}");
    assert_eq!(checked.damaged_blocks().len(), 1);
}

#[test]
fn sums_that_an_unclean_end_left_old_are_made_anew() {
    let (plain, checked) = file();
    let database = redb::Builder::new().create_with_backend(checked).unwrap();
    let write = database.begin_write().unwrap();
    write.open_table(TABLE).unwrap().insert(1, b"one".as_slice()).unwrap();
    write.commit().unwrap();
    let before = plain.0.lock().clone();
    let write = database.begin_write().unwrap();
    write.open_table(TABLE).unwrap().insert(2, b"two".as_slice()).unwrap();
    write.commit().unwrap();
    // The commit reached the medium, but its checksums did not.
    let mut torn = plain.0.lock().clone();
    for group in (0..torn.len()).step_by(GROUP_BYTES as usize) {
        let sums = group..group + BLOCK as usize;
        torn[sums.clone()].copy_from_slice(&before[sums]);
    }
    let torn = Arc::new(Plain(Mutex::new(torn)));
    let checked = reopened(&torn);
    assert!(checked.0.recovering.load(Ordering::Relaxed));
    let database: Database = redb::Builder::new().create_with_backend(checked.clone()).unwrap();
    checked.recovered().unwrap();
    let table = database.begin_read().unwrap().open_table(TABLE).unwrap();
    assert_eq!(table.iter().unwrap().count(), 2);
    drop(table);
    drop(database);
    let database = redb::Builder::new().create_with_backend(reopened(&torn)).unwrap();
    let table = database.begin_read().unwrap().open_table(TABLE).unwrap();
    assert_eq!(table.get(2).unwrap().unwrap().value(), b"two");
}
