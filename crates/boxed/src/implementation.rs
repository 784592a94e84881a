//! The implementation of a trait with async functions. `async_trait` gives these many lifetimes, with bounds: here they only call
//! functions with one.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::visit_mut::{self, VisitMut};
use syn::{FnArg, Ident, ImplItem, ImplItemFn, ItemFn, ItemImpl, Path, ReturnType, TypePath, Visibility, parse_quote};

use crate::function::{self, Elided};

/// The implementation, and functions of the type that do what its async functions did.
pub(crate) fn boxed(mut block: ItemImpl) -> TokenStream {
    let mut functions = Vec::new();
    let mut associated = Associated::of(&block);
    for item in &mut block.items {
        if let ImplItem::Fn(method) = item
            && method.sig.asyncness.is_some()
        {
            let mut function = function_of(method);
            associated.visit_item_fn_mut(&mut function);
            functions.push(function);
            call(method);
        }
    }
    let (generics, bounds) = (&block.generics.params, &block.generics.where_clause);
    let implementer = &block.self_ty;
    quote! {
        #block

        impl<#generics> #implementer #bounds {
            #(#functions)*
        }
    }
}

/// What the method does, under another name.
fn function_of(method: &ImplItemFn) -> ItemFn {
    let mut signature = method.sig.clone();
    signature.ident = name(&method.sig.ident);
    let (block, output) = (&method.block, &method.sig.output);
    // What it ends with may be of a type that becomes the one the trait wants.
    let block = match output {
        ReturnType::Default => parse_quote!(#block),
        ReturnType::Type(_, output) => parse_quote!({ ::core::convert::identity::<#output>(#block) }),
    };
    function::boxed(ItemFn { attrs: Vec::new(), vis: Visibility::Inherited, sig: signature, block })
}

/// Makes the method one as `async_trait` declares it, which calls that function.
fn call(method: &mut ImplItemFn) {
    let signature = &mut method.sig;
    let callee = name(&signature.ident);
    signature.asyncness = None;
    let mut elided = Elided { lifetimes: Vec::new(), each: Some("'life") };
    let mut arguments: Vec<TokenStream> = Vec::new();
    for (index, input) in signature.inputs.iter_mut().enumerate() {
        elided.visit_fn_arg_mut(input);
        match input {
            FnArg::Receiver(_) => arguments.push(quote!(self)),
            FnArg::Typed(typed) => {
                let name = format_ident!("argument_{index}");
                typed.pat = parse_quote!(#name);
                arguments.push(quote!(#name));
            }
        }
    }
    signature.output = function::future(signature, Some(parse_quote!('async_trait)));
    let lifetimes = &elided.lifetimes;
    signature.generics.params.extend(lifetimes.iter().map(|lifetime| -> syn::GenericParam { parse_quote!(#lifetime) }));
    signature.generics.params.push(parse_quote!('async_trait));
    let bounds = lifetimes.iter().map(|lifetime| -> syn::WherePredicate { parse_quote!(#lifetime: 'async_trait) });
    signature.generics.make_where_clause().predicates.extend(bounds);
    method.block = parse_quote!({ Self::#callee(#(#arguments),*) });
}

fn name(method: &Ident) -> Ident {
    format_ident!("boxed_{method}")
}

/// Says of which trait the associated types are that the implementation names, for where that does not say it.
struct Associated {
    names: Vec<Ident>,
    of: Option<Path>,
}

impl Associated {
    fn of(block: &ItemImpl) -> Associated {
        let names = block.items.iter().filter_map(|item| match item {
            ImplItem::Type(named) => Some(named.ident.clone()),
            _ => None,
        });
        Associated { names: names.collect(), of: block.trait_.as_ref().map(|(_, path, _)| path.clone()) }
    }
}

impl VisitMut for Associated {
    fn visit_type_path_mut(&mut self, named: &mut TypePath) {
        if let (None, Some(of)) = (&named.qself, &self.of)
            && named.path.segments.len() == 2
            && named.path.segments[0].ident == "Self"
            && self.names.contains(&named.path.segments[1].ident)
        {
            let name = &named.path.segments[1];
            *named = parse_quote!(<Self as #of>::#name);
        }
        visit_mut::visit_type_path_mut(self, named);
    }
}
