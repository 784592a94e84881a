//! Functions of SQL: [`functions!`](crate::functions!) makes them known under the names by which CREATE FUNCTION asks for them.
//!
//! A function is called for each row whose arguments are not NULL, or for every row where it was created CALLED ON NULL INPUT and
//! takes [`Option`]s. docs/reference/program-abi.md describes the frame underneath.

use std::fmt::Display;

/// A batch of arguments, and where its results go.
#[repr(C)]
pub struct Frame {
    rows: u32,
    columns: u32,
    arguments: *const Column,
    result: *mut Column,
    wanted: *const u8,
    reserved: [u32; 3],
}

/// Buffers of Arrow.
#[repr(C)]
pub struct Column {
    kind: u32,
    validity: *mut u8,
    values: *mut u8,
    text: *const u8,
    text_bytes: u32,
    reserved: u32,
}

/// The SQL types, by their numbers in a frame.
const KINDS: [&str; 6] = ["", "boolean", "integer", "bigint", "double precision", "text"];

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
}

/// Results on their way into a frame.
pub struct Results {
    column: *mut Column,
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
            let (takes, given) = (text(takes), text(&given));
            crate::fail(&format!(
                "{name} takes ({takes}) and gives {}; it was created with ({given}) and {}",
                named(gives),
                named(wanted)
            ));
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

    /// Where the results go.
    pub fn results(&self) -> Results {
        // SAFETY: a frame has a result.
        let is_text = unsafe { (*self.result).kind } == 5;
        Results { column: self.result, text: is_text.then(Vec::new) }
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
        unsafe { *(*self.column).validity.add(row / 8) &= !(1 << (row % 8)) };
        if self.text.is_some() {
            self.put_text("", row);
        }
    }

    fn put_text(&mut self, text: &str, row: usize) {
        let Some(texts) = &mut self.text else { return };
        texts.extend_from_slice(text.as_bytes());
        let end = texts.len() as i32;
        // SAFETY: there is an offset more than there are rows.
        unsafe { (*self.column).values.cast::<i32>().add(row + 1).write(end) };
    }

    fn put_number<T>(&mut self, value: T, row: usize) {
        // SAFETY: there is room for a value of each row.
        unsafe { (*self.column).values.cast::<T>().add(row).write(value) };
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
        unsafe { *(*results.column).values.add(row / 8) |= u8::from(self) << (row % 8) };
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

impl FunctionResult for String {
    const KIND: u32 = 5;
    fn put(self, results: &mut Results, row: usize) {
        results.put_text(&self, row);
    }
}

impl FunctionResult for &str {
    const KIND: u32 = 5;
    fn put(self, results: &mut Results, row: usize) {
        results.put_text(self, row);
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

/// Memory for a frame. The instance ends after the call, so nobody has to free it.
pub fn allocate(bytes: usize) -> *mut u8 {
    let words: Vec<u128> = Vec::with_capacity(bytes.div_ceil(16).max(1));
    std::mem::ManuallyDrop::new(words).as_mut_ptr().cast()
}

/// Makes functions known to SQL under their names. They take and give `bool`, `i32`, `i64`, `f64` and texts (`&str`, and `String` as a
/// result), and `Option`s of these; a result may also be a `Result`, whose error ends the query. A module has one such list.
///
/// ```ignore
/// pithead_ssdlet::functions! {
///     fn initial(name: &str) -> Option<String> {
///         name.chars().next().map(String::from)
///     }
/// }
/// ```
#[macro_export]
macro_rules! functions {
    ($($(#[$about:meta])* fn $name:ident($($argument:ident: $of:ty),* $(,)?) -> $gives:ty $body:block)+) => {
        #[unsafe(no_mangle)]
        extern "C" fn pithead_function_abi_1() {}

        #[unsafe(no_mangle)]
        extern "C" fn pithead_allocate(bytes: usize) -> *mut u8 {
            $crate::__allocate(bytes)
        }

        $(
            $(#[$about])*
            fn $name($($argument: $of),*) -> $gives $body

            const _: () = {
                #[unsafe(export_name = concat!("pithead_function_", stringify!($name)))]
                extern "C" fn call(frame: &$crate::Frame) -> i32 {
                    use $crate::{FunctionArgument, FunctionResult};
                    let takes: &[u32] = &[$(<$of as FunctionArgument>::KIND),*];
                    frame.check(stringify!($name), takes, <$gives as FunctionResult>::KIND);
                    let mut columns = frame.arguments().iter();
                    $(let $argument = columns.next().expect("checked");)*
                    let _ = columns;
                    let mut results = frame.results();
                    for row in 0..frame.rows() {
                        if frame.is_wanted(row) {
                            // SAFETY: the frame has the row, and types were checked.
                            $(let $argument = unsafe { <$of as FunctionArgument>::at($argument, row) };)*
                            FunctionResult::put($name($($argument),*), &mut results, row);
                        } else {
                            results.null(row);
                        }
                    }
                    results.finish();
                    0
                }
            };
        )+
    };
}
