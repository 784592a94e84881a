//! The 22 queries of TPC-H, with the parameters of the specification's validation.

/// One query.
#[derive(Clone, Copy, Debug)]
pub struct TpchQuery {
    /// `Q1` to `Q22`.
    pub name: &'static str,
    /// Its SQL, one statement.
    pub sql: &'static str,
}

macro_rules! queries {
    ($($name:literal $file:literal),* $(,)?) => {
        /// Q1 to Q22, in order.
        pub const QUERIES: &[TpchQuery] = &[$(TpchQuery { name: $name, sql: include_str!(concat!("../queries/", $file)) }),*];
    };
}

queries!(
    "Q1" "q01.sql", "Q2" "q02.sql", "Q3" "q03.sql", "Q4" "q04.sql", "Q5" "q05.sql", "Q6" "q06.sql", "Q7" "q07.sql", "Q8" "q08.sql",
    "Q9" "q09.sql", "Q10" "q10.sql", "Q11" "q11.sql", "Q12" "q12.sql", "Q13" "q13.sql", "Q14" "q14.sql", "Q15" "q15.sql",
    "Q16" "q16.sql", "Q17" "q17.sql", "Q18" "q18.sql", "Q19" "q19.sql", "Q20" "q20.sql", "Q21" "q21.sql", "Q22" "q22.sql",
);

impl TpchQuery {
    /// The SQL without a closing semicolon.
    pub fn statement(&self) -> &'static str {
        self.sql.trim().trim_end_matches(';')
    }
}
