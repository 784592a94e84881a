//! Functions of SQL: [`functions!`](crate::functions!) makes them known under the names by which CREATE FUNCTION asks for them.
//!
//! A function is called for each row whose arguments are not NULL, or for every row where it was created CALLED ON NULL INPUT and
//! takes [`Option`]s. docs/reference/program-abi.md describes the frame underneath.

use std::cell::UnsafeCell;
use std::fmt::Display;

/// A batch of arguments, and where its results go.
#[repr(C)]
pub struct Frame {
    rows: u32,
    columns: u32,
    arguments: *const Column,
    result: *mut Column,
    wanted: *const u8,
    group_of: *const u32,
    groups: u32,
    states: *const Column,
}

/// Buffers of Arrow.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Column {
    kind: u32,
    validity: *mut u8,
    values: *mut u8,
    text: *const u8,
    text_bytes: u32,
    reserved: u32,
}

/// The SQL types, by their numbers in a frame, and the states of aggregates.
const KINDS: [&str; 7] = ["", "boolean", "integer", "bigint", "double precision", "text", "a state"];

/// The number of states.
const STATE_KIND: u32 = 6;

/// What a function takes.
pub trait FunctionArgument<'a>: Sized {
    /// The type's number.
    const KIND: u32;

    /// The value of a row.
    ///
    /// # Safety
    ///
    /// The column has the type, and the row.
    unsafe fn at(column: &'a Column, row: usize) -> Self;
}

/// What a function gives.
pub trait FunctionResult: Sized {
    /// The type's number.
    const KIND: u32;

    /// Writes the value of a row. Rows come in order.
    fn put(self, results: &mut Results, row: usize);

    /// Writes the values of all rows.
    #[inline(always)]
    fn put_all(results: &mut Results, rows: usize, mut of: impl FnMut(usize) -> Self) {
        for row in 0..rows {
            of(row).put(results, row);
        }
    }
}

/// Results on their way into a frame.
pub struct Results {
    column: *mut Column,
    /// The column's own, said here so that no loop has to read them again for each row.
    validity: *mut u8,
    values: *mut u8,
    text: Option<Vec<u8>>,
}

impl Frame {
    /// Fails unless the types are those that the function was written for.
    pub fn check(&self, name: &str, takes: &[u32], gives: u32) {
        let given: Vec<u32> = self.arguments().iter().map(|column| column.kind).collect();
        // SAFETY: a frame has a result.
        let wanted = unsafe { (*self.result).kind };
        if given != takes || wanted != gives {
            let text = |kinds: &[u32]| kinds.iter().map(|kind| named(*kind)).collect::<Vec<_>>().join(", ");
            let (are_states, takes, given) = (takes == [STATE_KIND], text(takes), text(&given));
            let (gives, wanted) = (named(gives), named(wanted));
            // Of an aggregate, `accumulate` knows what it takes, and `finish` what it gives.
            crate::fail(&match (gives == named(STATE_KIND), are_states) {
                (true, _) => format!("{name} takes ({takes}); it was created with ({given})"),
                (false, true) => format!("{name} gives {gives}; it was created with {wanted}"),
                _ => format!("{name} takes ({takes}) and gives {gives}; it was created with ({given}) and {wanted}"),
            });
        }
    }

    /// The arguments.
    pub fn arguments(&self) -> &[Column] {
        // SAFETY: a frame has as many as it says.
        unsafe { std::slice::from_raw_parts(self.arguments, self.columns as usize) }
    }

    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.rows as usize
    }

    /// Whether a row's result is wanted.
    pub fn is_wanted(&self, row: usize) -> bool {
        // SAFETY: there is a bit for each row.
        self.wanted.is_null() || unsafe { bit(self.wanted, row) }
    }

    /// Whether each row's result is wanted.
    pub fn are_all_wanted(&self) -> bool {
        self.wanted.is_null()
    }

    /// Where the results go.
    pub fn results(&self) -> Results {
        // SAFETY: a frame has a result.
        let Column { kind, validity, values, .. } = unsafe { *self.result };
        Results { column: self.result, validity, values, text: (kind >= 5).then(Vec::new) }
    }

    /// For each row, the number of its group; of an aggregate.
    pub(crate) fn group_of(&self) -> &[u32] {
        match self.group_of.is_null() {
            true => &[],
            // SAFETY: there is one for each row.
            false => unsafe { std::slice::from_raw_parts(self.group_of, self.rows()) },
        }
    }

    /// For each group, its state as bytes; of an aggregate. None: the group has had no row.
    pub(crate) fn states(&self) -> impl Iterator<Item = Option<&[u8]>> {
        let groups = if self.states.is_null() { 0 } else { self.groups as usize };
        // SAFETY: a frame has as many states as groups.
        (0..groups).map(|group| unsafe { <Option<&[u8]> as FunctionArgument>::at(&*self.states, group) })
    }
}

fn named(kind: u32) -> &'static str {
    KINDS.get(kind as usize).copied().unwrap_or("something else")
}

/// # Safety
///
/// There are as many bits.
unsafe fn bit(bits: *const u8, row: usize) -> bool {
    // SAFETY: see above.
    unsafe { *bits.add(row / 8) >> (row % 8) & 1 == 1 }
}

impl Results {
    /// A row whose result is NULL, or not wanted.
    pub fn null(&mut self, row: usize) {
        // SAFETY: there is a bit for each row.
        unsafe { *self.validity.add(row / 8) &= !(1 << (row % 8)) };
        if self.text.is_some() {
            self.put_bytes(&[], row);
        }
    }

    fn put_bytes(&mut self, bytes: &[u8], row: usize) {
        let Some(texts) = &mut self.text else { return };
        texts.extend_from_slice(bytes);
        let end = texts.len() as i32;
        // SAFETY: there is an offset more than there are rows.
        unsafe { self.values.cast::<i32>().add(row + 1).write(end) };
    }

    fn put_number<T>(&mut self, value: T, row: usize) {
        // SAFETY: there is room for a value of each row.
        unsafe { self.values.cast::<T>().add(row).write(value) };
    }

    /// Hands the texts over. The instance ends after the call, so nobody has to free them.
    pub fn finish(self) {
        let Some(text) = self.text else { return };
        let text = text.leak();
        // SAFETY: a frame has a result.
        unsafe {
            (*self.column).text = text.as_ptr();
            (*self.column).text_bytes = text.len() as u32;
        }
    }
}

macro_rules! numbers {
    ($($of:ty => $kind:literal),*) => {$(
        impl<'a> FunctionArgument<'a> for $of {
            const KIND: u32 = $kind;
            #[inline(always)]
            unsafe fn at(column: &'a Column, row: usize) -> Self {
                // SAFETY: the caller says so.
                unsafe { column.values.cast::<$of>().add(row).read() }
            }
        }

        impl FunctionResult for $of {
            const KIND: u32 = $kind;
            #[inline(always)]
            fn put(self, results: &mut Results, row: usize) {
                results.put_number(self, row);
            }
        }
    )*};
}

numbers!(i32 => 2, i64 => 3, f64 => 4);

impl<'a> FunctionArgument<'a> for bool {
    const KIND: u32 = 1;
    unsafe fn at(column: &'a Column, row: usize) -> Self {
        // SAFETY: the caller says so.
        unsafe { bit(column.values, row) }
    }
}

impl FunctionResult for bool {
    const KIND: u32 = 1;
    fn put(self, results: &mut Results, row: usize) {
        // SAFETY: there is a bit for each row, which is 0 at first.
        unsafe { *results.values.add(row / 8) |= u8::from(self) << (row % 8) };
    }

    /// A byte at a time, which is made of eight rows without a branch.
    #[inline(always)]
    fn put_all(results: &mut Results, rows: usize, mut of: impl FnMut(usize) -> Self) {
        let whole = rows / 8;
        for at in 0..whole {
            let byte = (0..8).fold(0, |byte, place| byte | u8::from(of(at * 8 + place)) << place);
            // SAFETY: there is a bit for each row.
            unsafe { results.values.add(at).write(byte) };
        }
        for row in whole * 8..rows {
            of(row).put(results, row);
        }
    }
}

impl<'a> FunctionArgument<'a> for &'a str {
    const KIND: u32 = 5;
    unsafe fn at(column: &'a Column, row: usize) -> Self {
        // SAFETY: the caller says so; offsets are within the texts, which are UTF-8.
        unsafe {
            let offsets = column.values.cast::<i32>();
            let (from, to) = (offsets.add(row).read() as usize, offsets.add(row + 1).read() as usize);
            std::str::from_utf8_unchecked(std::slice::from_raw_parts(column.text.add(from), to - from))
        }
    }
}

impl<'a> FunctionArgument<'a> for &'a [u8] {
    const KIND: u32 = STATE_KIND;
    unsafe fn at(column: &'a Column, row: usize) -> Self {
        // SAFETY: bytes lie as texts do.
        unsafe { <&str as FunctionArgument>::at(column, row).as_bytes() }
    }
}

impl FunctionResult for Vec<u8> {
    const KIND: u32 = STATE_KIND;
    fn put(self, results: &mut Results, row: usize) {
        results.put_bytes(&self, row);
    }
}

impl FunctionResult for String {
    const KIND: u32 = 5;
    fn put(self, results: &mut Results, row: usize) {
        results.put_bytes(self.as_bytes(), row);
    }
}

impl FunctionResult for &str {
    const KIND: u32 = 5;
    fn put(self, results: &mut Results, row: usize) {
        results.put_bytes(self.as_bytes(), row);
    }
}

/// None is NULL.
impl<'a, T: FunctionArgument<'a>> FunctionArgument<'a> for Option<T> {
    const KIND: u32 = T::KIND;
    unsafe fn at(column: &'a Column, row: usize) -> Self {
        // SAFETY: the caller says so.
        unsafe { (column.validity.is_null() || bit(column.validity, row)).then(|| T::at(column, row)) }
    }
}

/// None is NULL.
impl<T: FunctionResult> FunctionResult for Option<T> {
    const KIND: u32 = T::KIND;
    fn put(self, results: &mut Results, row: usize) {
        match self {
            Some(value) => value.put(results, row),
            None => results.null(row),
        }
    }
}

/// An error ends the query with its message.
impl<T: FunctionResult, E: Display> FunctionResult for Result<T, E> {
    const KIND: u32 = T::KIND;
    fn put(self, results: &mut Results, row: usize) {
        match self {
            Ok(value) => value.put(results, row),
            Err(error) => crate::fail(&error.to_string()),
        }
    }
}

/// Memory that an instance has for its frame from the start. If its memory had to grow for it, the pages would be protected anew before
/// each call, and made accessible again, which takes a tenth of a simple function's time.
const FRAME_BYTES: usize = 256 << 10;

#[repr(C, align(16))]
struct FrameMemory(UnsafeCell<[u8; FRAME_BYTES]>);

// SAFETY: an instance has one thread.
unsafe impl Sync for FrameMemory {}

static FRAME_MEMORY: FrameMemory = FrameMemory(UnsafeCell::new([0; FRAME_BYTES]));

/// Memory for the frame of an instance's one call. The instance ends after it, so nobody has to free it.
pub fn allocate(bytes: usize) -> *mut u8 {
    if bytes <= FRAME_BYTES {
        return FRAME_MEMORY.0.get().cast();
    }
    let words: Vec<u128> = Vec::with_capacity(bytes.div_ceil(16));
    std::mem::ManuallyDrop::new(words).as_mut_ptr().cast()
}
