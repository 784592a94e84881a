use super::*;
use crate::medium::memory::MemoryPool;

const A: usize = ALIGNMENT as usize;

fn file(bytes: usize) -> Arc<File> {
    let file = tempfile::tempfile().unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &vec![5; bytes], 0).unwrap();
    Arc::new(file)
}

fn memory(bytes: usize) -> Memory {
    Arc::new(MemoryPool::default()).take(bytes).unwrap()
}

fn wanted(bytes: usize, request_bytes: usize) -> ReadRequest {
    ReadRequest { offset: 0, bytes, request_bytes, depth: 6 }
}

fn job(bytes: usize, request_bytes: usize) -> Job {
    Job::new(file(bytes), wanted(bytes, request_bytes), memory(bytes)).unwrap()
}

fn both() -> [Requests; 2] {
    [Requests::start(RequestsBy::Ring), Requests::start(RequestsBy::Pool)]
}

#[test]
fn parts_cover_a_job_without_overlap() {
    for (wanted, request_bytes) in [(1, A), (A, A), (A + 1, A), (10 * A, 3 * A), (10 * A + 5, 4 * A)] {
        let job = job(wanted, request_bytes);
        let mut next = 0;
        while let Some(part) = job.take() {
            assert_eq!(part.at, next);
            assert!(part.bytes <= request_bytes && part.bytes.is_multiple_of(A));
            next += part.bytes;
        }
        assert_eq!(next, wanted.next_multiple_of(A));
    }
}

#[test]
fn a_request_cut_short_is_continued_and_one_past_the_end_is_not() {
    let job = job(8 * A, 8 * A);
    let part = job.take().unwrap();
    assert!(matches!(job.after(part, Ok(8 * A)), After::Done));
    let After::Again(rest) = job.after(part, Ok(3 * A)) else { panic!("it goes on") };
    assert_eq!((rest.at, rest.bytes), (3 * A, 5 * A));
    for bytes in [0, 1, 3 * A + 1] {
        assert!(matches!(job.after(part, Ok(bytes)), After::Failed(error) if error.kind() == io::ErrorKind::UnexpectedEof));
    }
    let mut part = part;
    for _ in 0..ATTEMPTS {
        let After::Again(again) = job.after(part, Err(io::ErrorKind::Interrupted.into())) else { panic!("it is repeated") };
        part = again;
    }
    assert!(matches!(job.after(part, Err(io::ErrorKind::Interrupted.into())), After::Failed(_)));
    assert!(matches!(job.after(part, Err(io::Error::from_raw_os_error(libc::EIO))), After::Failed(_)));
}

#[test]
fn a_failed_read_harms_no_other() {
    for requests in both() {
        let (good, short) = (file(64 * A), file(40 * A));
        // Refuses to be read.
        let bad = Arc::new(std::fs::OpenOptions::new().write(true).open("/dev/null").unwrap());
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..20 {
                        let read = |file, bytes| requests.read(file, wanted(bytes, A), memory(bytes), &mut |_| {});
                        let back = read(&good, 64 * A - 3).unwrap();
                        assert!(back.as_ref()[..64 * A - 3].iter().all(|byte| *byte == 5));
                        assert_eq!(read(&short, 64 * A).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
                        assert_eq!(read(&bad, 64 * A).unwrap_err().raw_os_error(), Some(libc::EBADF));
                    }
                });
            }
        });
    }
}

#[test]
fn memory_outlives_a_reader_that_gives_up() {
    for requests in both() {
        let file = file(64 * A);
        for _ in 0..50 {
            let job = Arc::new(Job::new(Arc::clone(&file), wanted(64 * A, A), memory(64 * A)).unwrap());
            match &requests {
                Requests::Ring(ring) => ring.read(&job, 8).unwrap(),
                Requests::Pool(pool) => pool.call(&job, 8),
            }
            // The reader is gone before its parts have landed.
            drop(job);
        }
        drop(requests);
    }
}

#[test]
fn a_read_that_fails_by_hand_returns_at_once() {
    let job = job(4 * A, A);
    let part = job.take().unwrap();
    job.fail(io::Error::from_raw_os_error(libc::EIO));
    assert_eq!(job.wait(false, &mut |_| {}).unwrap_err().raw_os_error(), Some(libc::EIO));
    assert!(job.take().is_none());
    job.land(part, Ok(()));
    assert_eq!(job.wait(false, &mut |_| {}).unwrap_err().raw_os_error(), Some(libc::EIO));
}

#[test]
fn bytes_are_shown_in_order_however_they_land() {
    let data: Vec<u8> = (0..40 * A + 9).map(|at| (at / 5) as u8).collect();
    let file = tempfile::tempfile().unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &data, 0).unwrap();
    let file = Arc::new(file);
    for requests in both() {
        for _ in 0..50 {
            let mut seen = Vec::new();
            let back =
                requests.read(&file, wanted(data.len(), A), memory(data.len()), &mut |part| seen.extend_from_slice(part));
            assert!(seen == data && back.unwrap().as_ref()[..data.len()] == data);
        }
    }
    let job = Job::new(file, wanted(3 * A, A), memory(3 * A)).unwrap();
    let parts: Vec<RequestPart> = std::iter::from_fn(|| job.take()).collect();
    job.land(parts[1], Ok(()));
    assert_eq!(job.landed(0, None).unwrap(), 0);
    job.land(parts[0], Ok(()));
    assert_eq!(job.landed(0, None).unwrap(), 2 * A);
}

#[test]
fn bad_memory_is_refused() {
    for (bytes, room, request_bytes) in [(3 * A, A, A), (A, A, 100), (A, A, 0), (0, A, A)] {
        let refused = Job::new(file(bytes), wanted(bytes, request_bytes), memory(room));
        assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}
