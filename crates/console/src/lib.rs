//! The console: one page before a host that shows its drives, the statements that run and what of their work stayed at the drives, and
//! takes statements itself.
//!
//! The page (`page/`) is plain HTML and JavaScript, and asks for JSON at `/api`. Callers pass the same doorman as those of SQL, and what
//! they send runs in a host's session as any other statement. Front door: [`serve`]; `route.rs` says what is asked for where.

mod caller;
mod checks;
mod console;
mod drives;
mod entrance;
mod files;
mod query;
mod refused;
mod route;
mod serve;
mod stalled;
mod state;
mod statements;
mod values;

pub use console::Console;
pub use serve::serve;
