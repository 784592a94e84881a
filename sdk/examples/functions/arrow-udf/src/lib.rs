//! Functions of SQL that are written against the crate `arrow-udf`, without a word of Pithead. Build them with
//! `cargo build --release`, and make them known with
//! `CREATE FUNCTION common_divisor(integer, integer) RETURNS integer LANGUAGE wasm AS '…/arrow_udf_functions.wasm', 'gcd'`.

use arrow_udf::function;

/// The greatest common divisor.
#[function("gcd(int, int) -> int")]
fn gcd(mut a: i32, mut b: i32) -> i32 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// The same for 64 bits: a function of the same name and other types.
#[function("gcd(bigint, bigint) -> bigint")]
fn gcd_wide(mut a: i64, mut b: i64) -> i64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// The quotient. A divisor of 0 ends the query.
#[function("quotient(bigint, bigint) -> bigint")]
fn quotient(a: i64, b: i64) -> Result<i64, String> {
    a.checked_div(b).ok_or_else(|| format!("{a} cannot be divided by {b}"))
}

/// The text after the last `@`, or NULL.
#[function("mail_host(varchar) -> varchar")]
fn mail_host(address: &str) -> Option<&str> {
    address.rsplit_once('@').map(|(_, host)| host)
}

/// Whether it is known. It is created CALLED ON NULL INPUT.
#[function("is_known(double precision) -> boolean")]
fn is_known(value: Option<f64>) -> bool {
    value.is_some()
}

/// A mean of two numbers.
#[function("middle(double precision, double precision) -> double precision")]
fn middle(a: f64, b: f64) -> f64 {
    a / 2.0 + b / 2.0
}

/// The words of a text, each a row.
#[function("words(varchar) ->> varchar")]
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split_whitespace()
}

/// The prime factors of a number, each a row. What is no positive number ends the query.
#[function("factors(bigint) ->> bigint")]
fn factors(number: i64) -> Result<impl Iterator<Item = i64>, String> {
    if number < 1 {
        return Err(format!("{number} has no prime factors"));
    }
    let (mut rest, mut factor) = (number, 2);
    Ok(std::iter::from_fn(move || {
        while rest > 1 {
            if factor * factor > rest {
                return Some(std::mem::replace(&mut rest, 1));
            }
            if rest % factor == 0 {
                rest /= factor;
                return Some(factor);
            }
            factor += 1;
        }
        None
    }))
}
