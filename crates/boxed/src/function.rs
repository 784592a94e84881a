//! An async function as one that returns a box.

use quote::quote;
use syn::visit_mut::{self, VisitMut};
use syn::{ItemFn, Lifetime, Receiver, ReturnType, Signature, TypeReference, WherePredicate, parse_quote};

/// The same function with one lifetime for all references.
pub(crate) fn boxed(mut function: ItemFn) -> ItemFn {
    let signature = &mut function.sig;
    signature.asyncness = None;
    let mut elided = Elided { lifetimes: Vec::new(), each: None };
    elided.visit_signature_mut(signature);
    let mut bounds: Vec<WherePredicate> = Vec::new();
    bounds.extend(signature.generics.lifetimes().map(|named| &named.lifetime).map(|name| parse_quote!(#name: 'boxed)));
    bounds.extend(signature.generics.type_params().map(|named| &named.ident).map(|name| parse_quote!(#name: 'boxed)));
    let is_borrowed = !elided.lifetimes.is_empty() || !bounds.is_empty();
    if is_borrowed {
        signature.generics.params.insert(0, parse_quote!('boxed));
        signature.generics.make_where_clause().predicates.extend(bounds);
    }
    signature.output = future(signature, is_borrowed.then(|| parse_quote!('boxed)));
    let block = &function.block;
    function.block = parse_quote!({ ::std::boxed::Box::pin(async move #block) });
    function
}

/// The box of a future that has the output of the function.
pub(crate) fn future(signature: &Signature, lives: Option<Lifetime>) -> ReturnType {
    let output = match &signature.output {
        ReturnType::Default => quote!(()),
        ReturnType::Type(_, output) => quote!(#output),
    };
    let lives = lives.map(|lifetime| quote!(+ #lifetime));
    parse_quote!(
        -> ::core::pin::Pin<::std::boxed::Box<dyn ::core::future::Future<Output = #output> + ::core::marker::Send #lives>>
    )
}

/// Names the lifetimes that have no name: all of them alike, or each by a number.
pub(crate) struct Elided {
    /// The names given.
    pub(crate) lifetimes: Vec<Lifetime>,
    /// What stands before the numbers.
    pub(crate) each: Option<&'static str>,
}

impl Elided {
    fn name(&mut self) -> Lifetime {
        let name: Lifetime = match self.each {
            None => parse_quote!('boxed),
            Some(before) => Lifetime::new(&format!("{before}{}", self.lifetimes.len()), proc_macro2::Span::call_site()),
        };
        self.lifetimes.push(name.clone());
        name
    }
}

impl VisitMut for Elided {
    fn visit_receiver_mut(&mut self, receiver: &mut Receiver) {
        match &receiver.reference {
            Some((_, Some(_))) => {}
            Some((_, None)) => {
                let (lifetime, mutability) = (self.name(), receiver.mutability);
                *receiver = parse_quote!(&#lifetime #mutability self);
            }
            None => visit_mut::visit_receiver_mut(self, receiver),
        }
    }

    fn visit_type_reference_mut(&mut self, reference: &mut TypeReference) {
        if reference.lifetime.is_none() {
            reference.lifetime = Some(self.name());
        }
        visit_mut::visit_type_reference_mut(self, reference);
    }

    fn visit_lifetime_mut(&mut self, lifetime: &mut Lifetime) {
        if lifetime.ident == "_" {
            *lifetime = self.name();
        }
    }
}
