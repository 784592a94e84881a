//! The host calls. Pointers are to the guest's own memory.

#[link(wasm_import_module = "pithead")]
unsafe extern "C" {
    pub fn declare(text: *const u8, length: usize);
    pub fn arguments(into: *mut u8, length: usize) -> usize;
    pub fn log(level: u32, text: *const u8, length: usize);
    pub fn fail(text: *const u8, length: usize) -> !;
    pub fn time_ns() -> u64;
    pub fn input_get(port: u32, into: *mut u8, length: usize) -> i32;
    pub fn input_wait(port: u32);
    pub fn input_close(port: u32);
    pub fn output_put(port: u32, bytes: *const u8, length: usize) -> i32;
    pub fn output_wait(port: u32, length: usize);
    pub fn output_close(port: u32);
    pub fn file_open(name: *const u8, length: usize) -> i32;
    pub fn file_size(file: u32) -> u64;
    pub fn file_read(file: u32, offset: u64, into: *mut u8, length: usize) -> usize;
    pub fn file_find(file: u32, from: u64, to: u64, patterns: *const u8, length: usize, hits: *mut u64, hits_max: u32) -> u32;
    pub fn close(handle: u32);
    pub fn value_get(key: *const u8, key_length: usize, into: *mut u8, length: usize) -> i64;
    pub fn dataset_open(name: *const u8, length: usize, columns: *const u8, columns_length: usize) -> i32;
    pub fn dataset_get(dataset: u32, into: *mut u8, length: usize) -> usize;
}

/// Nothing is there yet, or no room.
pub const AGAIN: i32 = -2;
/// The stream was cut off before its end.
pub const CUT: i32 = -3;
