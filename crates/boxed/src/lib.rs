//! [`boxed`], the attribute of async functions whose future is a box.
//!
//! `async-recursion` and `async-trait` do the same with a lifetime for each reference, and a bound for each of these. The compiler keeps
//! no proof that a type is `Send` beyond a function with such bounds, and for each other number of them proves again what plans and
//! sessions are made of, thousands of types: most of the time that the crates above DataFusion took to compile. Here all references live
//! as long as the future, one lifetime without a bound.

mod function;
mod implementation;

use proc_macro::TokenStream;
use quote::quote;
use syn::parse::Nothing;
use syn::{Item, parse_macro_input};

/// Put on an async function that other crates await: its future is boxed, so that it is compiled once, in the crate that
/// defines it. A future that is not becomes part of whatever awaits it, and each program compiles it again.
///
/// All references without a name for their lifetime live as long as the future. Name that of what a `&mut` leads to, if it is to be
/// borrowed for less.
///
/// Put on the implementation of a trait that `async_trait` has made, it takes the place of `async_trait` there.
#[proc_macro_attribute]
pub fn boxed(arguments: TokenStream, item: TokenStream) -> TokenStream {
    parse_macro_input!(arguments as Nothing);
    let boxed = match parse_macro_input!(item as Item) {
        Item::Fn(function) if function.sig.asyncness.is_some() => {
            let function = function::boxed(function);
            quote!(#function)
        }
        Item::Impl(block) if block.trait_.is_some() => implementation::boxed(block),
        other => {
            syn::Error::new_spanned(other, "expected an async function, or the implementation of a trait").into_compile_error()
        }
    };
    boxed.into()
}
