//! Functions and implementations with `#[boxed]`, as the crates above write them.

use std::fmt::Display;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use async_trait::async_trait;
use pithead_model::boxed;

/// The output of a future that waits for nothing.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("nothing here waits"),
    }
}

struct Shelf {
    books: Vec<String>,
}

impl Shelf {
    #[boxed]
    async fn first(&self) -> Option<&str> {
        self.books.first().map(String::as_str)
    }

    /// Calls itself, which only a box can do.
    #[boxed]
    async fn add(&mut self, name: &str, times: usize) {
        if times > 0 {
            self.books.push(name.into());
            self.add(name, times - 1).await;
        }
    }
}

#[boxed]
async fn nothing() {}

#[boxed]
async fn text<T>(value: &T) -> String
where
    T: Display + Send + Sync,
{
    value.to_string()
}

/// What `seen` leads to is borrowed for longer than the call.
#[boxed]
async fn note<'a>(seen: &mut Vec<&'a str>, name: &'a str) {
    seen.push(name);
}

fn is_sent<T: Send + ?Sized>(_: &Pin<Box<T>>) {}

#[async_trait]
trait Library {
    type Copy: Send;

    async fn lend(&self, name: &str, _: usize) -> Option<Self::Copy>;

    fn count(&self) -> usize;
}

#[boxed]
impl Library for Shelf {
    type Copy = Box<str>;

    async fn lend(&self, name: &str, mut from: usize) -> Option<Self::Copy> {
        from = from.min(self.count());
        let found = self.books[from..].iter().find(|book| *book == name);
        let copy: Option<Self::Copy> = found.map(|book| book.as_str().into());
        copy
    }

    fn count(&self) -> usize {
        self.books.len()
    }
}

#[test]
fn functions_do_what_they_did() {
    let mut shelf = Shelf { books: Vec::new() };
    block_on(shelf.add("Emma", 2));
    assert_eq!((block_on(shelf.first()), shelf.count()), (Some("Emma"), 2));
    assert_eq!(block_on(text(&7)), "7");
    is_sent(&nothing());
    block_on(nothing());
}

#[test]
fn a_lifetime_with_a_name_is_its_own() {
    let name = String::from("Emma");
    let mut seen = Vec::new();
    block_on(note(&mut seen, &name));
    block_on(note(&mut seen, &name));
    assert_eq!(seen, ["Emma", "Emma"]);
}

#[test]
fn implementations_are_those_of_the_trait() {
    let shelf = Shelf { books: vec!["Emma".into(), "Ulysses".into()] };
    let library: &dyn Library<Copy = Box<str>> = &shelf;
    assert_eq!(block_on(library.lend("Ulysses", 1)).as_deref(), Some("Ulysses"));
    assert_eq!(block_on(library.lend("Emma", 1)), None);
}
