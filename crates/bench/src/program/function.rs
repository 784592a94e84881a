// A function of SQL, as docs/guides/functions.md has them written.

pithead_ssdlet::functions! {
    /// Whether some bits of a number are these.
    fn passes(number: i64) -> bool {
        (number ^ (number >> 7)) & 255 == 17
    }
}
