//! Aggregates of SQL: [`functions!`](crate::functions!) makes them known.
//!
//! Between calls a state is bytes, which travel from drive to host. docs/reference/program-abi.md describes the frame underneath.

use crate::function::{Frame, FunctionArgument, FunctionResult};

/// The state of an aggregate: what it has to know of the rows so far. The default is that of no row.
///
/// Numbers, `bool`, `String`, and tuples, `Vec`s and `Option`s of these are states. A type of your own is one if it says how it is
/// written and read.
pub trait State: Default {
    /// Appends it as bytes.
    fn write(&self, bytes: &mut Vec<u8>);

    /// Takes it from the front of bytes; none: they are no such state.
    fn read(bytes: &mut &[u8]) -> Option<Self>;
}

macro_rules! numbers {
    ($($of:ty),*) => {$(
        impl State for $of {
            fn write(&self, bytes: &mut Vec<u8>) {
                bytes.extend_from_slice(&self.to_le_bytes());
            }

            fn read(bytes: &mut &[u8]) -> Option<Self> {
                let (own, rest) = bytes.split_first_chunk()?;
                *bytes = rest;
                Some(Self::from_le_bytes(*own))
            }
        }
    )*};
}

numbers!(u8, i32, u32, i64, u64, i128, u128, f64);

impl State for bool {
    fn write(&self, bytes: &mut Vec<u8>) {
        u8::from(*self).write(bytes);
    }

    fn read(bytes: &mut &[u8]) -> Option<Self> {
        match u8::read(bytes)? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }
}

impl State for String {
    fn write(&self, bytes: &mut Vec<u8>) {
        (self.len() as u32).write(bytes);
        bytes.extend_from_slice(self.as_bytes());
    }

    fn read(bytes: &mut &[u8]) -> Option<Self> {
        let length = u32::read(bytes)? as usize;
        let (own, rest) = bytes.split_at_checked(length)?;
        *bytes = rest;
        String::from_utf8(own.to_vec()).ok()
    }
}

impl<T: State> State for Vec<T> {
    fn write(&self, bytes: &mut Vec<u8>) {
        (self.len() as u32).write(bytes);
        self.iter().for_each(|one| one.write(bytes));
    }

    fn read(bytes: &mut &[u8]) -> Option<Self> {
        let length = u32::read(bytes)?;
        (0..length).map(|_| T::read(bytes)).collect()
    }
}

impl<T: State> State for Option<T> {
    fn write(&self, bytes: &mut Vec<u8>) {
        self.is_some().write(bytes);
        self.iter().for_each(|one| one.write(bytes));
    }

    fn read(bytes: &mut &[u8]) -> Option<Self> {
        Some(if bool::read(bytes)? { Some(T::read(bytes)?) } else { None })
    }
}

macro_rules! tuples {
    ($($($of:ident $at:tt)+;)*) => {$(
        impl<$($of: State),+> State for ($($of,)+) {
            fn write(&self, bytes: &mut Vec<u8>) {
                $(self.$at.write(bytes);)+
            }

            fn read(bytes: &mut &[u8]) -> Option<Self> {
                Some(($($of::read(bytes)?,)+))
            }
        }
    )*};
}

tuples! {
    A 0 B 1;
    A 0 B 1 C 2;
    A 0 B 1 C 2 D 3;
    A 0 B 1 C 2 D 3 E 4;
    A 0 B 1 C 2 D 3 E 4 F 5;
}

/// The state that the bytes are.
fn read<S: State>(bytes: Option<&[u8]>) -> S {
    let Some(mut bytes) = bytes else { return S::default() };
    match S::read(&mut bytes) {
        Some(state) if bytes.is_empty() => state,
        _ => crate::fail("the bytes of a state are not those of its type"),
    }
}

/// Adds rows to the states of their groups.
pub fn accumulate<S: State>(frame: &Frame, mut add: impl FnMut(&mut S, usize)) -> i32 {
    let mut states: Vec<S> = frame.states().map(read).collect();
    for (row, group) in frame.group_of().iter().enumerate() {
        add(&mut states[*group as usize], row);
    }
    let mut results = frame.results();
    for (group, state) in states.iter().enumerate() {
        let mut bytes = Vec::new();
        state.write(&mut bytes);
        bytes.put(&mut results, group);
    }
    results.finish();
    0
}

/// Adds states to the states of their groups.
pub fn combine<S: State>(frame: &Frame, name: &str, merge: fn(&mut S, S)) -> i32 {
    frame.check(name, &[<&[u8]>::KIND], <Vec<u8>>::KIND);
    let others = &frame.arguments()[0];
    accumulate(frame, |state, row| {
        // SAFETY: the frame has the row, and types were checked.
        merge(state, read(unsafe { <Option<&[u8]>>::at(others, row) }));
    })
}

/// Makes the results of states.
pub fn finish<S: State, R: FunctionResult>(frame: &Frame, name: &str, end: fn(S) -> R) -> i32 {
    frame.check(name, &[<&[u8]>::KIND], R::KIND);
    let states = &frame.arguments()[0];
    let mut results = frame.results();
    for row in 0..frame.rows() {
        // SAFETY: the frame has the row, and types were checked.
        end(read(unsafe { <Option<&[u8]>>::at(states, row) })).put(&mut results, row);
    }
    results.finish();
    0
}
