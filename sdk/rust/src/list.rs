//! [`functions!`](crate::functions!): the list of a module's functions and aggregates of SQL.

/// Makes functions and aggregates known to SQL under their names. They take and give `bool`, `i32`, `i64`, `f64` and texts (`&str`, and
/// `String` as a result), and `Option`s of these; a result may also be a `Result`, whose error ends the query. A module has one such
/// list.
///
/// An aggregate has a state, which is a [`State`](crate::State), and three functions. `accumulate` adds a row to a state, `combine` adds
/// a state of other rows, and `finish` makes the result of a state. In whichever order rows come, and however they are divided among
/// states, the result has to be the same.
///
/// ```ignore
/// pithead_ssdlet::functions! {
///     fn initial(name: &str) -> Option<String> {
///         name.chars().next().map(String::from)
///     }
///
///     /// The root of the mean of squares. NULL where there is no row.
///     aggregate quadratic_mean {
///         fn accumulate(state: &mut (f64, i64), value: f64) {
///             state.0 += value * value;
///             state.1 += 1;
///         }
///         fn combine(state: &mut (f64, i64), other: (f64, i64)) {
///             state.0 += other.0;
///             state.1 += other.1;
///         }
///         fn finish(state: (f64, i64)) -> Option<f64> {
///             (state.1 > 0).then(|| (state.0 / state.1 as f64).sqrt())
///         }
///     }
/// }
/// ```
#[macro_export]
macro_rules! functions {
    ($($item:tt)+) => {
        #[unsafe(no_mangle)]
        extern "C" fn pithead_function_abi_1() {}

        #[unsafe(no_mangle)]
        extern "C" fn pithead_allocate(bytes: usize) -> *mut u8 {
            $crate::__allocate(bytes)
        }

        $crate::__functions! { $($item)+ }
    };
}

/// The items of [`functions!`](crate::functions!), one after the other.
#[doc(hidden)]
#[macro_export]
macro_rules! __functions {
    () => {};
    ($(#[$about:meta])* fn $name:ident($($argument:ident: $of:ty),* $(,)?) -> $gives:ty $body:block $($rest:tt)*) => {
        $(#[$about])*
        fn $name($($argument: $of),*) -> $gives $body

        const _: () = {
            #[unsafe(export_name = concat!("pithead_function_", stringify!($name)))]
            extern "C" fn call(frame: &$crate::Frame) -> i32 {
                use $crate::{FunctionArgument, FunctionResult};
                let takes: &[u32] = &[$(<$of as FunctionArgument>::KIND),*];
                frame.check(stringify!($name), takes, <$gives as FunctionResult>::KIND);
                let mut columns = frame.arguments().iter();
                // Copies, which no write of a result can change: so they are not read again for each row.
                $(let $argument = *columns.next().expect("checked");)*
                let _ = columns;
                let of = |row: usize| {
                    // SAFETY: the frame has the row, and types were checked.
                    $(let $argument = unsafe { <$of as FunctionArgument>::at(&$argument, row) };)*
                    $name($($argument),*)
                };
                let mut results = frame.results();
                if frame.are_all_wanted() {
                    FunctionResult::put_all(&mut results, frame.rows(), of);
                } else {
                    for row in 0..frame.rows() {
                        match frame.is_wanted(row) {
                            true => of(row).put(&mut results, row),
                            false => results.null(row),
                        }
                    }
                }
                results.finish();
                0
            }
        };

        $crate::__functions! { $($rest)* }
    };
    ($(#[$about:meta])* aggregate $name:ident {
        fn accumulate($state:ident: &mut $of_state:ty $(, $argument:ident: $of:ty)+ $(,)?) $add:block
        fn combine($into:ident: &mut $of_into:ty, $other:ident: $of_other:ty $(,)?) $merge:block
        fn finish($done:ident: $of_done:ty $(,)?) -> $gives:ty $end:block
    } $($rest:tt)*) => {
        $(#[$about])*
        mod $name {
            #[allow(unused_imports, reason = "an aggregate may use nothing of what is around it")]
            use super::*;

            fn accumulate($state: &mut $of_state $(, $argument: $of)+) $add
            fn combine($into: &mut $of_into, $other: $of_other) $merge
            fn finish($done: $of_done) -> $gives $end

            #[unsafe(export_name = concat!("pithead_accumulate_", stringify!($name)))]
            extern "C" fn accumulate_rows(frame: &$crate::Frame) -> i32 {
                use $crate::FunctionArgument;
                let takes: &[u32] = &[$(<$of as FunctionArgument>::KIND),+];
                frame.check(stringify!($name), takes, <Vec<u8> as $crate::FunctionResult>::KIND);
                let mut columns = frame.arguments().iter();
                $(let $argument = columns.next().expect("checked");)+
                let _ = columns;
                $crate::__accumulate::<$of_state>(frame, |state, row| {
                    // SAFETY: the frame has the row, and types were checked.
                    $(let $argument = unsafe { <$of as FunctionArgument>::at($argument, row) };)+
                    accumulate(state $(, $argument)+);
                })
            }

            #[unsafe(export_name = concat!("pithead_combine_", stringify!($name)))]
            extern "C" fn combine_states(frame: &$crate::Frame) -> i32 {
                $crate::__combine::<$of_into>(frame, stringify!($name), combine)
            }

            #[unsafe(export_name = concat!("pithead_finish_", stringify!($name)))]
            extern "C" fn finish_states(frame: &$crate::Frame) -> i32 {
                $crate::__finish::<$of_done, $gives>(frame, stringify!($name), finish)
            }
        }

        $crate::__functions! { $($rest)* }
    };
}
