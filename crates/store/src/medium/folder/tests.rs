use std::sync::Barrier;
use std::thread;

use super::*;

const A: usize = ALIGNMENT as usize;

/// Bytes that depend on their position.
fn pattern(bytes: usize, seed: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at / 7 + at / 4_096 * 31 + seed) as u8).collect()
}

/// A copy of `data` that starts `by` bytes after an aligned address.
fn shifted(data: &[u8], by: usize) -> Bytes {
    let mut memory = Arc::new(MemoryPool::default()).take(data.len() + by).unwrap();
    memory.as_mut()[by..by + data.len()].copy_from_slice(data);
    Bytes::from_owner(memory).slice(by..by + data.len())
}

fn media() -> Vec<(tempfile::TempDir, Arc<FolderMedium>)> {
    let mut media = Vec::new();
    for by in [RequestsBy::Ring, RequestsBy::Pool] {
        let dir = tempfile::tempdir().unwrap();
        let medium = FolderMedium::open_by(dir.path(), by).unwrap();
        media.push((dir, medium));
    }
    let shared_memory = Path::new("/dev/shm");
    if shared_memory.is_dir() {
        let dir = tempfile::tempdir_in(shared_memory).unwrap();
        let medium = FolderMedium::open(dir.path()).unwrap();
        media.push((dir, medium));
    }
    media
}

#[test]
fn large_values_come_back_as_written() {
    for (_dir, medium) in media() {
        let file = medium.open("segments/1.seg", true).unwrap();
        let mut offset = 0_u64;
        for (bytes, shift) in [(1, 0), (A, 0), (A + 1, 8), (70_000, 0), (70_000, 3), ((5 << 20) + 17, 0), ((5 << 20) + 17, 1)] {
            let data = shifted(&pattern(bytes, shift), shift);
            file.write_large(offset, &data).unwrap();
            let end = offset + bytes as u64;
            let back = file.read_large(offset..end).unwrap();
            assert_eq!(back, data, "{bytes} bytes, {} by {}", medium.io_name(), shift);
            assert!(back.as_ptr().addr().is_multiple_of(A));
            let padded = file.read_large(offset..end.next_multiple_of(ALIGNMENT)).unwrap();
            assert!(padded[bytes..].iter().all(|byte| *byte == 0));
            if bytes > 10 {
                let mut seen = Vec::new();
                let part = file.read_large_with(offset + 3..end - 5, &mut |part| seen.extend_from_slice(part)).unwrap();
                assert!(part == data.slice(3..bytes - 5) && part == seen);
            }
            offset = end.next_multiple_of(ALIGNMENT);
        }
        assert_eq!(file.len().unwrap(), offset);
        file.flush().unwrap();
        medium.flush_names("segments").unwrap();
    }
}

#[test]
fn what_is_not_there_is_an_error() {
    for (_dir, medium) in media() {
        let file = medium.open("segments/1.seg", true).unwrap();
        file.write(0, &pattern(3 << 20, 0)).unwrap();
        file.flush().unwrap();
        let length = 3 << 20;
        for range in [0..length + 1, length..length + 1, 0..u64::MAX, u64::MAX - 1..u64::MAX] {
            assert_eq!(file.read_large(range).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        }
        let backwards = Range { start: 2, end: 1 };
        assert_eq!(file.read_large(backwards).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert!(file.read_large(length..length).unwrap().is_empty());
        assert_eq!(file.read(length - 1, &mut [0; 2]).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(file.write_large(1, b"x").unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert_eq!(medium.open("absent", false).unwrap_err().kind(), io::ErrorKind::NotFound);
        for name in ["../x", "/x", "a/b/c", "a/../x"] {
            assert_eq!(medium.open(name, true).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
        // The end of the file is not aligned, as in a file of an older format.
        file.write(length, &[1, 2, 3]).unwrap();
        file.flush().unwrap();
        assert_eq!(file.read_large(length - 1..length + 3).unwrap()[1..], [1, 2, 3]);
    }
}

#[test]
fn names_are_listed_given_and_taken() {
    for (_dir, medium) in media() {
        assert!(medium.list("segments").unwrap().is_empty() && medium.list("").unwrap().is_empty());
        medium.flush_names("segments").unwrap();
        medium.open("b", true).unwrap().write(0, b"b").unwrap();
        medium.open("segments/1.seg", true).unwrap();
        let kept = medium.open("a", true).unwrap();
        assert_eq!(medium.list("segments").unwrap(), ["1.seg"]);
        medium.rename("b", "a").unwrap();
        assert_eq!((medium.list("").unwrap(), medium.open("a", false).unwrap().len().unwrap()), (vec!["a".to_string()], 1));
        medium.remove("a").unwrap();
        assert!(medium.list("").unwrap().is_empty() && kept.is_empty().unwrap());
        medium.flush_names("").unwrap();
        assert!(medium.free_bytes().unwrap() > 0);
    }
}

#[test]
fn a_folder_is_opened_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("new/store");
    let medium = FolderMedium::open(&path).unwrap();
    assert!(matches!(FolderMedium::open(&path), Err(StoreError::InUse { .. })));
    drop(medium);
    FolderMedium::open(&path).unwrap();
}

#[test]
fn room_is_reserved_and_given_back() {
    for (dir, medium) in media() {
        let file = medium.open("segments/1.seg", true).unwrap();
        let blocks = || {
            use std::os::unix::fs::MetadataExt;
            dir.path().join("segments/1.seg").metadata().unwrap().blocks()
        };
        file.reserve(0..8 << 20).unwrap();
        assert!(blocks() >= (8 << 20) / 512);
        let data = pattern(2 << 20, 1);
        file.write_large(1 << 20, &data).unwrap();
        assert!(file.read_large(0..1 << 20).unwrap().iter().all(|byte| *byte == 0));
        assert!(file.punch(1 << 20..2 << 20).unwrap());
        assert!(blocks() <= (7 << 20) / 512 + 64);
        assert!(file.read_large(1 << 20..2 << 20).unwrap().iter().all(|byte| *byte == 0));
        assert_eq!(file.read_large(2 << 20..3 << 20).unwrap(), data[1 << 20..]);
        file.reserve(5..5).unwrap();
        file.set_len(1).unwrap();
        assert_eq!(file.len().unwrap(), 1);
    }
}

#[test]
fn many_readers_share_the_requests() {
    const READERS: usize = 24;
    for (_dir, medium) in media() {
        let file = medium.open("segments/1.seg", true).unwrap();
        let data = pattern(12 << 20, 9);
        file.write_large(0, &data).unwrap();
        let start = Barrier::new(READERS);
        thread::scope(|scope| {
            for reader in 0..READERS {
                let (file, data, start) = (&file, &data, &start);
                scope.spawn(move || {
                    start.wait();
                    for round in 0..4 {
                        let from = (reader * 37 + round * 11) * A;
                        let to = data.len() - (reader * 5 + round) * 1_000;
                        assert!(file.read_large(from as u64..to as u64).unwrap() == data[from..to]);
                    }
                });
            }
        });
    }
}

#[test]
fn reading_while_others_write_elsewhere_is_coherent() {
    for (_dir, medium) in media() {
        let file = medium.open("segments/1.seg", true).unwrap();
        file.reserve(0..64 << 20).unwrap();
        thread::scope(|scope| {
            for writer in 0..4_usize {
                let file = &file;
                scope.spawn(move || {
                    for step in 0..6_usize {
                        let offset = ((writer * 8 + step) << 20) as u64;
                        let data = pattern((1 << 20) - 100 * step, writer);
                        file.write_large(offset, &data).unwrap();
                        assert!(file.read_large(offset..offset + data.len() as u64).unwrap() == data);
                        file.flush().unwrap();
                    }
                });
            }
        });
    }
}

#[test]
fn files_stay_in_a_folder_that_is_moved() {
    let parent = tempfile::tempdir().unwrap();
    let (place, moved) = (parent.path().join("disk"), parent.path().join("moved"));
    let medium = FolderMedium::open(&place).unwrap();
    medium.open("segments/1.seg", true).unwrap().write(0, b"first").unwrap();
    fs::rename(&place, &moved).unwrap();
    // Another drive takes its place.
    let other = FolderMedium::open(&place).unwrap();
    other.open("segments/1.seg", true).unwrap().write(0, b"other").unwrap();
    medium.open("segments/2.seg", true).unwrap().write(0, b"later").unwrap();
    medium.flush_names("segments").unwrap();
    assert_eq!(
        (fs::read(moved.join("segments/1.seg")).unwrap(), medium.list("segments").unwrap().len()),
        (b"first".to_vec(), 2)
    );
    assert_eq!(other.list("segments").unwrap(), ["1.seg"]);
    assert!(matches!(FolderMedium::open(&moved), Err(StoreError::InUse { .. })));
}
