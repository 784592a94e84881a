//! The measurements behind the constants of large reads and writes. They are run by hand, on the disk in question:
//! `TMPDIR=… cargo test --release -p pithead-store -- --ignored --nocapture measured`

use std::time::{Duration, Instant};

use super::*;

const MB: usize = 1 << 20;
const FILE_MB: usize = 1024;

fn medium(by: RequestsBy) -> (tempfile::TempDir, Arc<FolderMedium>) {
    let dir = tempfile::tempdir().unwrap();
    let medium = FolderMedium::open_by(dir.path(), by).unwrap();
    (dir, medium)
}

fn gb_s(bytes: usize, took: Duration) -> f64 {
    bytes as f64 / 1e9 / took.as_secs_f64()
}

/// Reads the whole file in values of `value_bytes`, by `threads`.
fn read_all(value_bytes: usize, threads: usize, read: &(dyn Fn(u64) + Sync)) -> f64 {
    let values = FILE_MB * MB / value_bytes;
    let start = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            scope.spawn(move || (thread..values).step_by(threads).for_each(|value| read((value * value_bytes) as u64)));
        }
    });
    gb_s(FILE_MB * MB, start.elapsed())
}

#[test]
#[ignore = "measures the disk"]
fn measured_reads() {
    for by in [RequestsBy::Ring, RequestsBy::Pool] {
        let (_dir, medium) = medium(by);
        let path = medium.dir.join("segments/1.seg");
        let file = medium.open("segments/1.seg", true).unwrap();
        file.reserve(0..(FILE_MB * MB) as u64).unwrap();
        let data: Vec<u8> = (0..16 * MB).map(|at| ((at * 31) >> 7) as u8).collect();
        (0..FILE_MB / 16).for_each(|at| file.write_large((at * data.len()) as u64, &data).unwrap());
        file.flush().unwrap();
        let direct = Arc::new(open_direct(&path).unwrap());
        for value_bytes in [MB, 8 * MB, 64 * MB] {
            for threads in [1, 4] {
                let one = |offset: u64| {
                    let mut memory = medium.io.memory.take(value_bytes).unwrap();
                    direct.read_exact_at(&mut memory.as_mut()[..value_bytes], offset).unwrap();
                };
                let plain = read_all(value_bytes, threads, &one);
                print!("{:?} value {:>2} MiB, {threads} readers: one pread {plain:.2}", by, value_bytes / MB);
                for (request_bytes, depth) in [
                    (128 << 10, 32),
                    (256 << 10, 8),
                    (256 << 10, 16),
                    (512 << 10, 4),
                    (512 << 10, 8),
                    (512 << 10, 16),
                    (MB, 4),
                    (MB, 8),
                    (MB, 16),
                    (2 * MB, 8),
                ] {
                    let read = |offset: u64| {
                        let memory = medium.io.memory.take(value_bytes).unwrap();
                        let wanted = ReadRequest { offset, bytes: value_bytes, request_bytes, depth };
                        medium.io.requests.read(&direct, wanted, memory, &mut |_| {}).unwrap();
                    };
                    print!("  {}Kx{depth} {:.2}", request_bytes >> 10, read_all(value_bytes, threads, &read));
                }
                let read = |offset: u64| {
                    file.read_large(offset..offset + value_bytes as u64).unwrap();
                };
                println!("  as chosen {:.2} GB/s", read_all(value_bytes, threads, &read));
            }
        }
    }
}

#[test]
#[ignore = "measures the disk"]
fn measured_writes() {
    const WRITES: usize = 64;
    let (_dir, medium) = medium(RequestsBy::Ring);
    let value = shifted(MB, 0);
    let askew = shifted(MB, 3);
    for (name, room, data) in [
        ("append", None, &value),
        ("reserved, longer at once", Some(FallocateFlags::empty()), &value),
        ("reserved, longer at once, memory askew", Some(FallocateFlags::empty()), &askew),
        ("reserved, longer as written", Some(FallocateFlags::KEEP_SIZE), &value),
    ] {
        for (how, writers) in [("direct", 1), ("direct", 4), ("cached", 1)] {
            let file = medium.open("segments/1.seg", true).unwrap();
            if let Some(flags) = room {
                let raw = OpenOptions::new().write(true).open(medium.dir.join("segments/1.seg")).unwrap();
                fallocate(&raw, flags, 0..(WRITES * MB) as u64).unwrap();
            }
            file.flush().unwrap();
            medium.flush_names("segments").unwrap();
            let start = Instant::now();
            std::thread::scope(|scope| {
                for writer in 0..writers {
                    let file = &file;
                    scope.spawn(move || {
                        for at in (writer..WRITES).step_by(writers) {
                            match how {
                                "direct" => file.write_large((at * MB) as u64, data).unwrap(),
                                _ => file.write((at * MB) as u64, data).unwrap(),
                            }
                            file.flush().unwrap();
                        }
                    });
                }
            });
            let each = start.elapsed() / WRITES as u32;
            println!("durable 1 MiB, {name}, {how}, {writers} writers: {each:.2?} each, {:.2} GB/s", gb_s(MB, each));
            medium.remove("segments/1.seg").unwrap();
        }
    }
    let file = medium.open("segments/1.seg", true).unwrap();
    file.reserve(0..(WRITES * MB) as u64).unwrap();
    file.flush().unwrap();
    let start = Instant::now();
    (0..WRITES).for_each(|at| file.write_large((at * MB) as u64, &value).unwrap());
    file.flush().unwrap();
    println!("sequential, one flush at the end: {:.2} GB/s", gb_s(WRITES * MB, start.elapsed()));
    let start = Instant::now();
    (0..WRITES).for_each(|at| {
        file.write_large((at * MB) as u64, &value).unwrap();
        file.flush().unwrap();
    });
    println!("over what was written before: {:.2?} each", start.elapsed() / WRITES as u32);
}

fn shifted(bytes: usize, by: usize) -> Bytes {
    let mut memory = Arc::new(MemoryPool::default()).take(bytes + by).unwrap();
    memory.as_mut().fill(3);
    Bytes::from_owner(memory).slice(by..by + bytes)
}
