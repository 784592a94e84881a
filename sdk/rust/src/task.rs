//! [`Ssdlet`]: a task with its ports and arguments.

use std::io::Write;

use crate::ports::flush_all;
use crate::rows::Column;
use crate::{Bytes, File, Input, Output, Row, abi, fail};

/// A task that runs in a drive.
pub trait Ssdlet {
    /// A tuple of [`Input`]s.
    type Inputs: Inputs;
    /// A tuple of [`Output`]s.
    type Outputs: Outputs;
    /// A tuple of numbers, strings, bytes and [`File`]s.
    type Arguments: Arguments;

    /// Runs until its work is done. An error ends the application with its message.
    fn run(inputs: Self::Inputs, outputs: Self::Outputs, arguments: Self::Arguments) -> Result<(), String>;
}

/// All inputs of an SSDlet.
pub trait Inputs {
    fn declare(text: &mut String);
    fn take() -> Self;
}

/// All outputs of an SSDlet.
pub trait Outputs {
    fn declare(text: &mut String);
    fn take() -> Self;
}

/// All arguments of an SSDlet.
pub trait Arguments {
    fn declare(text: &mut String);
    fn take(bytes: &mut &[u8]) -> Self;
}

/// One argument.
pub trait Argument {
    const NAME: &'static str;
    fn take(bytes: &mut &[u8]) -> Self;
}

macro_rules! arguments {
    ($($of:ty),+) => {
        $(impl Argument for $of {
            const NAME: &'static str = <$of as Column>::NAME;
            fn take(bytes: &mut &[u8]) -> Self {
                Column::decode(bytes)
            }
        })+
    };
}

arguments!(bool, i8, i16, i32, i64, u8, u16, u32, u64, f32, f64, String, Bytes);

impl Argument for File {
    const NAME: &'static str = "file";
    fn take(bytes: &mut &[u8]) -> Self {
        Self::from_handle(Column::decode(bytes))
    }
}

macro_rules! tuples {
    ($(($($of:ident $at:tt),*))+) => {
        $(impl<$($of: Row),*> Inputs for ($(Input<$of>,)*) {
            fn declare(_text: &mut String) {
                $(*_text += &format!("input {}\n", $of::types());)*
            }
            fn take() -> Self {
                ($(Input::<$of>::new($at),)*)
            }
        }
        impl<$($of: Row),*> Outputs for ($(Output<$of>,)*) {
            fn declare(_text: &mut String) {
                $(*_text += &format!("output {}\n", $of::types());)*
            }
            fn take() -> Self {
                ($(Output::<$of>::new($at),)*)
            }
        }
        impl<$($of: Argument),*> Arguments for ($($of,)*) {
            fn declare(_text: &mut String) {
                $(*_text += &format!("argument {}\n", $of::NAME);)*
            }
            fn take(_bytes: &mut &[u8]) -> Self {
                ($($of::take(_bytes),)*)
            }
        })+
    };
}

tuples! {
    ()
    (A 0)
    (A 0, B 1)
    (A 0, B 1, C 2)
    (A 0, B 1, C 2, D 3)
    (A 0, B 1, C 2, D 3, E 4)
    (A 0, B 1, C 2, D 3, E 4, F 5)
    (A 0, B 1, C 2, D 3, E 4, F 5, G 6)
    (A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7)
}

#[doc(hidden)]
pub fn declare<T: Ssdlet>(name: &str) {
    let mut text = format!("name {name}\n");
    T::Arguments::declare(&mut text);
    T::Inputs::declare(&mut text);
    T::Outputs::declare(&mut text);
    // SAFETY: the host reads the text only.
    unsafe { abi::declare(text.as_ptr(), text.len()) }
}

#[doc(hidden)]
pub fn run<T: Ssdlet>() {
    // SAFETY: without room nothing is written.
    let mut bytes = vec![0; unsafe { abi::arguments(std::ptr::null_mut(), 0) }];
    // SAFETY: the host writes into the bytes only.
    unsafe { abi::arguments(bytes.as_mut_ptr(), bytes.len()) };
    let arguments = T::Arguments::take(&mut bytes.as_slice());
    if let Err(message) = T::run(T::Inputs::take(), T::Outputs::take(), arguments) {
        fail(&message);
    }
    flush_all();
    // A line of text that no line feed has ended; a module that stays has no exit that would send it.
    let _ = std::io::stdout().flush();
}
