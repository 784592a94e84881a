//! Tail probabilities of the t and normal distributions, to the relative precision of floats even where they are tiny.

use std::f64::consts::PI;

/// Half of the degrees of freedom from which the expansion for large ones holds to 1e-14.
const LARGE: f64 = 20.0;
/// Terms of the expansion.
const TERMS: usize = 24;
/// Taylor coefficients of √(τ / (1 − e^−τ)) about 0.
const SERIES: [f64; TERMS] = series();

/// Probability that a standard normal variable is at least as far from 0 as `z`.
pub fn normal_two_sided(z: f64) -> f64 {
    libm::erfc(z.abs() / std::f64::consts::SQRT_2)
}

/// Probability that a variable of Student's t distribution (Student 1908) is at least as far from 0 as `t`. NaN where
/// an argument is NaN or `df` is not above 0.
///
/// It is the regularised incomplete beta function I(df / (df + t²); df/2, 1/2). For large `df` its integral over τ =
/// −ln x is expanded about 0, where each term is an incomplete gamma function that follows from the one before (DLMF,
/// section 8.18(ii), gives the expansion about the end of the range). For other `df` it is the continued fraction of
/// DLMF, equation 8.17.22.
pub fn student_two_sided(t: f64, df: f64) -> f64 {
    if t.is_nan() || df.is_nan() || df <= 0.0 {
        return f64::NAN;
    }
    let squared = t * t;
    if squared.is_infinite() {
        return 0.0;
    }
    let half = df / 2.0;
    let tau = (squared / df).ln_1p();
    if half >= LARGE && tau <= 1.0 {
        return expansion(half, tau);
    }
    let (x, y) = (df / (df + squared), squared / (df + squared));
    // The fraction converges fast on one side of the distribution's mean.
    if x < (half + 1.0) / (half + 2.5) { fraction(half, 0.5, x, y, tau) } else { 1.0 - fraction(0.5, half, y, x, -y.ln()) }
}

/// I(e^−τ; a, 1/2) for large `a`.
fn expansion(a: f64, tau: f64) -> f64 {
    let z = a * tau;
    // Γ(k + 1/2, z) for k = 0, 1, …
    let mut gamma = PI.sqrt() * libm::erfc(z.sqrt());
    let mut power = z.sqrt() * (-z).exp();
    let mut scale = 1.0;
    let mut sum = 0.0;
    for (k, coefficient) in SERIES.iter().enumerate() {
        let term = coefficient * gamma * scale;
        sum += term;
        if term.abs() <= 1e-17 * sum.abs() && k > 1 {
            break;
        }
        gamma = (k as f64 + 0.5) * gamma + power;
        power *= z;
        scale /= a;
    }
    // Γ(a + 1/2) / Γ(a) is √a times the ratio.
    (sum * gamma_ratio(a) / PI.sqrt()).min(1.0)
}

/// Γ(a + 1/2) / (Γ(a) √a) for large `a` (Abramowitz and Stegun 1964, formula 6.1.47, gives such ratios).
fn gamma_ratio(a: f64) -> f64 {
    const TERMS: [f64; 8] = [
        1.0,
        -1.0 / 8.0,
        1.0 / 128.0,
        5.0 / 1_024.0,
        -21.0 / 32_768.0,
        -399.0 / 262_144.0,
        869.0 / 4_194_304.0,
        39_325.0 / 33_554_432.0,
    ];
    TERMS.iter().rev().fold(0.0, |sum, term| sum / a + term)
}

/// I(x; a, b) by its continued fraction, evaluated by the method of Lentz 1976. `y` is 1 − x, and `minus_log` is −ln x.
fn fraction(a: f64, b: f64, x: f64, y: f64, minus_log: f64) -> f64 {
    const TINY: f64 = 1e-300;
    let log_beta = libm::lgamma(a) + libm::lgamma(b) - libm::lgamma(a + b);
    let front = (b * y.ln() - a * minus_log - log_beta).exp() / a;
    let away = |value: f64| if value.abs() < TINY { TINY } else { value };
    let mut d = 1.0 / away(1.0 - (a + b) * x / (a + 1.0));
    let mut c = 1.0;
    let mut value = d;
    for m in 1..2_000 {
        let m = f64::from(m);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        d = 1.0 / away(1.0 + even * d);
        c = away(1.0 + even / c);
        value *= d * c;
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        d = 1.0 / away(1.0 + odd * d);
        c = away(1.0 + odd / c);
        let step = d * c;
        value *= step;
        if (step - 1.0).abs() < 1e-16 {
            break;
        }
    }
    front * value
}

/// As (1 − e^−τ) / τ = Σ (−τ)^k / (k + 1)! is f, the series sought is f^−1/2; it solves 2·f·s′ = −f′·s.
const fn series() -> [f64; TERMS] {
    let mut f = [0.0; TERMS];
    let mut k = 0;
    let mut term = 1.0;
    while k < TERMS {
        f[k] = term;
        term /= -((k + 2) as f64);
        k += 1;
    }
    let mut s = [0.0; TERMS];
    s[0] = 1.0;
    let mut n = 1;
    while n < TERMS {
        // n·s(n) = −Σ f(j)·s(n−j)·(n − j + j/2), over j from 1.
        let mut sum = 0.0;
        let mut j = 1;
        while j <= n {
            sum += f[j] * s[n - j] * ((n - j) as f64 + j as f64 / 2.0);
            j += 1;
        }
        s[n] = -sum / n as f64;
        n += 1;
    }
    s
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(found: f64, wanted: f64, relative: f64) {
        assert!((found - wanted).abs() <= relative * wanted.abs(), "{found:e} for {wanted:e}");
    }

    #[test]
    fn closed_forms_are_met() {
        // One and two degrees of freedom have closed forms.
        for t in [0.0, 1e-8, 0.1, 1.0, 3.0, 40.0, 1e6] {
            let t: f64 = t;
            near(student_two_sided(t, 1.0), 2.0 * (1.0_f64).atan2(t) / PI, 1e-13);
            let two = 2.0 + t * t;
            near(student_two_sided(t, 2.0), 2.0 / (two + t * two.sqrt()), 1e-13);
        }
    }

    #[test]
    fn both_ways_agree_where_they_meet() {
        for df in [40.0, 41.5, 60.0, 200.0, 5_000.0] {
            for t in [0.3, 1.0, 2.5, 5.0, 7.0] {
                let (squared, half): (f64, f64) = (t * t, df / 2.0);
                let (x, y, tau) = (df / (df + squared), squared / (df + squared), (squared / df).ln_1p());
                let other = if x < (half + 1.0) / (half + 2.5) {
                    fraction(half, 0.5, x, y, tau)
                } else {
                    1.0 - fraction(0.5, half, y, x, -y.ln())
                };
                near(expansion(half, tau), other, 2e-11);
            }
        }
    }

    #[test]
    fn many_degrees_of_freedom_come_near_the_normal() {
        for z in [0.0, 0.5, 2.0, 10.0, 30.0] {
            near(student_two_sided(z, 1e13), normal_two_sided(z), 1e-7);
        }
    }

    #[test]
    fn ends_are_met() {
        assert_eq!(student_two_sided(f64::INFINITY, 3.0), 0.0);
        assert_eq!(student_two_sided(0.0, 3.0), 1.0);
        near(student_two_sided(0.0, 1e5), 1.0, 1e-14);
        assert!(student_two_sided(f64::NAN, 3.0).is_nan() && student_two_sided(1.0, 0.0).is_nan());
    }
}
