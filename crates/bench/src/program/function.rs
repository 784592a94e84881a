// A function of SQL, on the interface of docs/reference/program-abi.md itself: `rustc` makes a module of this file alone.

#[repr(C)]
struct Column {
    kind: u32,
    validity: *mut u8,
    values: *mut u8,
    text: *const u8,
    text_bytes: u32,
    reserved: u32,
}

#[repr(C)]
struct Frame {
    rows: u32,
    columns: u32,
    arguments: *const Column,
    result: *mut Column,
    wanted: *const u8,
    reserved: [u32; 3],
}

#[unsafe(no_mangle)]
extern "C" fn pithead_function_abi_1() {}

#[unsafe(no_mangle)]
extern "C" fn pithead_allocate(bytes: usize) -> *mut u8 {
    let words: Vec<u64> = Vec::with_capacity(bytes.div_ceil(8).max(1));
    std::mem::ManuallyDrop::new(words).as_mut_ptr().cast()
}

/// Whether some bits of a number are these. Of rows that are not wanted the result is not looked at.
#[unsafe(no_mangle)]
extern "C" fn pithead_function_passes(frame: &Frame) -> i32 {
    let rows = frame.rows as usize;
    // SAFETY: a frame has its rows in each column.
    let (numbers, bits) = unsafe {
        let numbers = std::slice::from_raw_parts((*frame.arguments).values.cast::<i64>(), rows);
        (numbers, std::slice::from_raw_parts_mut((*frame.result).values, rows.div_ceil(8)))
    };
    for (eight, byte) in numbers.chunks(8).zip(bits) {
        for (place, number) in eight.iter().enumerate() {
            *byte |= u8::from((number ^ (number >> 7)) & 255 == 17) << place;
        }
    }
    0
}
