// The module of the benchmark, on the interface of docs/reference/program-abi.md itself: `rustc` makes it of this file alone.

#[path = "kernels.rs"]
mod kernels;

#[link(wasm_import_module = "pithead")]
unsafe extern "C" {
    fn declare(text: *const u8, length: usize);
    fn arguments(into: *mut u8, length: usize) -> usize;
    fn input_get(port: u32, into: *mut u8, length: usize) -> i32;
    fn input_wait(port: u32);
    fn output_put(port: u32, bytes: *const u8, length: usize) -> i32;
    fn output_wait(port: u32, length: usize);
    fn file_size(file: u32) -> u64;
    fn file_read(file: u32, offset: u64, into: *mut u8, length: usize) -> usize;
    fn file_find(file: u32, from: u64, to: u64, patterns: *const u8, length: usize, hits: *mut u64, hits_max: u32) -> u32;
    fn time_ns() -> u64;
    #[link_name = "yield"]
    fn give_way();
}

const AGAIN: i32 = -2;
/// Bytes of a read.
const BATCH: usize = 256 << 10;

#[unsafe(no_mangle)]
extern "C" fn pithead_abi_1() {}

const SSDLETS: [&str; 11] = [
    "name words\nargument file\noutput u64,u64,u64\n",
    "name count\nargument file\noutput u64,u64,u64\n",
    "name select\nargument file\noutput u64,u64,u64\n",
    "name calls\nargument file\noutput u64,u64,u64\n",
    "name yields\nargument file\noutput u64,u64,u64\n",
    "name empty\n",
    "name echo\ninput u64\noutput u64\n",
    "name serve\ninput u64\noutput u64\noutput u64,u64,u64\n",
    "name read\nargument file\noutput u64,u64,u64\n",
    "name search\nargument file\noutput u64,u64,u64\n",
    "name chase\nargument file\noutput u64,u64,u64\n",
];

#[unsafe(no_mangle)]
extern "C" fn pithead_describe() {
    for ssdlet in SSDLETS {
        unsafe { declare(ssdlet.as_ptr(), ssdlet.len()) }
    }
}

#[unsafe(no_mangle)]
extern "C" fn pithead_run(number: u32) -> i32 {
    match number {
        0 => measured(|file| {
            let mut words = kernels::Words::new();
            batches(file, |bytes| words.take(bytes));
            words.finish()
        }),
        1 => measured(|file| {
            let mut found = 0;
            numbers(file, |numbers| found += kernels::count(numbers, 250, 500));
            (found, 0)
        }),
        2 => measured(|file| {
            let (mut found, mut sum, mut places) = (0, 0, vec![0; BATCH / 8]);
            numbers(file, |numbers| {
                let count = kernels::select(numbers, 250, 500, &mut places);
                found += count as u64;
                sum += places[..count].iter().map(|place| u64::from(*place)).sum::<u64>();
            });
            (found, sum)
        }),
        3 => measured(|file| (0..CALLS).fold((0, 0), |(calls, size), _| (calls + 1, size.max(unsafe { file_size(file) })))),
        4 => measured(|_| {
            (0..YIELDS).for_each(|_| unsafe { give_way() });
            (YIELDS, 0)
        }),
        6 => echo(),
        7 => serve(),
        8 => measured(|file| {
            let mut read = 0;
            batches(file, |bytes| read += bytes.len() as u64);
            (read, 0)
        }),
        9 => measured(|file| (search(file), 0)),
        10 => measured(|file| ((0..kernels::STEPS).fold(0, |node, _| number_at(file, node)), kernels::STEPS)),
        _ => {}
    }
    0
}

const HITS_MAX: usize = 4096;
const CALLS: u64 = 5_000_000;
const YIELDS: u64 = 200_000;
const HOPS: u64 = 50_000;

/// Puts out what came of the file that is the argument, and the nanoseconds that it took.
fn measured(work: impl FnOnce(u32) -> (u64, u64)) {
    let mut file = [0; 4];
    unsafe { arguments(file.as_mut_ptr(), 4) };
    let started = unsafe { time_ns() };
    let (one, other) = work(u32::from_le_bytes(file));
    let took = unsafe { time_ns() } - started;
    put(0, &[one, other, took]);
}

fn put(port: u32, row: &[u64]) {
    let bytes: Vec<u8> = row.iter().flat_map(|number| number.to_le_bytes()).collect();
    while unsafe { output_put(port, bytes.as_ptr(), bytes.len()) } == AGAIN {
        unsafe { output_wait(port, bytes.len()) }
    }
}

/// The next number of an input; none at its end.
fn get(port: u32) -> Option<u64> {
    let mut bytes = [0; 8];
    loop {
        match unsafe { input_get(port, bytes.as_mut_ptr(), 8) } {
            8 => return Some(u64::from_le_bytes(bytes)),
            AGAIN => unsafe { input_wait(port) },
            _ => return None,
        }
    }
}

fn echo() {
    while let Some(number) = get(0) {
        put(0, &[number]);
    }
}

/// Sends a number to whoever echoes it, again and again.
fn serve() {
    let started = unsafe { time_ns() };
    for number in 0..HOPS {
        put(0, &[number]);
        if get(0) != Some(number) {
            return;
        }
    }
    put(1, &[2 * HOPS, 0, unsafe { time_ns() } - started]);
}

/// How often the needle is in a file, as the drive finds it.
fn search(file: u32) -> u64 {
    let pattern = [&(kernels::NEEDLE.len() as u32).to_le_bytes(), kernels::NEEDLE].concat();
    let (mut hits, mut found, mut from) = (vec![0_u64; HITS_MAX], 0, 0);
    loop {
        let (bytes, into) = (pattern.as_ptr(), hits.as_mut_ptr());
        let count = unsafe { file_find(file, from, u64::MAX, bytes, pattern.len(), into, HITS_MAX as u32) } as usize;
        found += count as u64;
        if count < HITS_MAX {
            return found;
        }
        // The place of a hit is in all but its highest byte.
        from = (hits[count - 1] & ((1 << 56) - 1)) + 1;
    }
}

fn number_at(file: u32, place: u64) -> u64 {
    let mut bytes = [0; 8];
    unsafe { file_read(file, 8 * place, bytes.as_mut_ptr(), 8) };
    u64::from_le_bytes(bytes)
}

fn batches(file: u32, mut take: impl FnMut(&[u8])) {
    let (mut buffer, mut at) = (vec![0_u64; BATCH / 8], 0);
    loop {
        let bytes = unsafe { std::slice::from_raw_parts_mut(buffer.as_mut_ptr().cast::<u8>(), BATCH) };
        let length = unsafe { file_read(file, at, bytes.as_mut_ptr(), BATCH) };
        if length == 0 {
            return;
        }
        take(&bytes[..length]);
        at += length as u64;
    }
}

fn numbers(file: u32, mut take: impl FnMut(&[i64])) {
    batches(file, |bytes| take(unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast(), bytes.len() / 8) }));
}
