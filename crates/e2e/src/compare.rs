//! Whether two answers are the same.

use std::collections::HashMap;

use arrow::datatypes::DataType;

const ROWS_SHOWN_MAX: usize = 5;

/// How a column compares.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Column {
    /// Its type letter.
    pub letter: char,
    /// Digits after the point of a decimal.
    pub scale: Option<i8>,
}

impl Column {
    /// Of a column with this type.
    pub fn of(data_type: &DataType) -> Self {
        let scale = match data_type {
            DataType::Decimal32(_, scale) | DataType::Decimal64(_, scale) => Some(*scale),
            DataType::Decimal128(_, scale) | DataType::Decimal256(_, scale) => Some(*scale),
            _ => None,
        };
        Self { letter: letter(data_type), scale }
    }

    /// Of a column of which only the letter is known.
    pub fn lettered(letter: char) -> Self {
        Self { letter, scale: None }
    }
}

/// The type letter of a column.
pub fn letter(data_type: &DataType) -> char {
    match data_type {
        DataType::Dictionary(_, values) => letter(values),
        DataType::Boolean => 'B',
        other if other.is_integer() => 'I',
        DataType::Decimal32(_, scale)
        | DataType::Decimal64(_, scale)
        | DataType::Decimal128(_, scale)
        | DataType::Decimal256(_, scale) => {
            if *scale == 0 {
                'I'
            } else {
                'D'
            }
        }
        other if other.is_floating() => 'R',
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => 'T',
        _ => '?',
    }
}

/// An answer as cells.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// Its columns.
    pub columns: Vec<Column>,
    /// Its rows.
    pub rows: Vec<Vec<String>>,
}

/// How a column of one answer compares with that of another.
enum Rule {
    Exact,
    /// Within 1e-9 of the larger magnitude and this much more.
    Close(f64),
}

/// What is different between two answers whose order counts.
pub fn row_difference(got: &Table, expected: &Table) -> Option<String> {
    if let Some(told) = shape_difference(got, expected) {
        return Some(told);
    }
    let rules = rules(got, expected);
    let differs = |(place, (a, b)): (usize, (&Vec<String>, &Vec<String>))| {
        (!same_row(&rules, a, b)).then(|| format!("row {} is\n  {}\nexpected\n  {}", place + 1, a.join("\t"), b.join("\t")))
    };
    got.rows.iter().zip(&expected.rows).enumerate().find_map(differs)
}

/// What is different between two answers as bags of rows.
pub fn bag_difference(got: &Table, expected: &Table) -> Option<String> {
    if let Some(told) = shape_difference(got, expected) {
        return Some(told);
    }
    let rules = rules(got, expected);
    let mut left: HashMap<Vec<&str>, Vec<&Vec<String>>> = HashMap::new();
    for row in &expected.rows {
        left.entry(exact_part(&rules, row)).or_default().push(row);
    }
    let mut surplus = Vec::new();
    for row in &got.rows {
        let alike = left.get_mut(&exact_part(&rules, row));
        let place = alike.as_ref().and_then(|rows| rows.iter().position(|other| same_row(&rules, row, other)));
        match (alike, place) {
            (Some(rows), Some(place)) => drop(rows.swap_remove(place)),
            _ => surplus.push(row),
        }
    }
    let missing: Vec<&Vec<String>> = left.into_values().flatten().collect();
    (!surplus.is_empty() || !missing.is_empty()).then(|| format!("surplus:{}\nmissing:{}", listed(&surplus), listed(&missing)))
}

fn shape_difference(got: &Table, expected: &Table) -> Option<String> {
    if got.columns.len() != expected.columns.len() {
        return Some(format!("{} columns, expected {}", got.columns.len(), expected.columns.len()));
    }
    let place = got.columns.iter().zip(&expected.columns).position(|(a, b)| !comparable(a.letter, b.letter));
    if let Some(place) = place {
        let (a, b) = (got.columns[place].letter, expected.columns[place].letter);
        return Some(format!("column {} is of kind {a}, expected {b}", place + 1));
    }
    if got.rows.len() != expected.rows.len() {
        let shown: Vec<&Vec<String>> = got.rows.iter().collect();
        return Some(format!("{} rows, expected {}:{}", got.rows.len(), expected.rows.len(), listed(&shown)));
    }
    None
}

fn comparable(a: char, b: char) -> bool {
    let number = |letter| "IDR".contains(letter);
    // A column of nothing but NULL may have any type.
    a == b || number(a) && number(b) || a == '?' || b == '?'
}

fn rules(got: &Table, expected: &Table) -> Vec<Rule> {
    let rule = |(a, b): (&Column, &Column)| match (a.letter, b.letter) {
        ('R', _) | (_, 'R') => {
            let scale = a.scale.or(b.scale);
            Rule::Close(scale.map_or(0.0, |scale| 10f64.powi(-i32::from(scale)) * 1.000_001))
        }
        _ => Rule::Exact,
    };
    got.columns.iter().zip(&expected.columns).map(rule).collect()
}

fn exact_part<'a>(rules: &[Rule], row: &'a [String]) -> Vec<&'a str> {
    let exact = rules.iter().zip(row).filter(|(rule, _)| matches!(rule, Rule::Exact));
    exact.map(|(_, cell)| cell.as_str()).collect()
}

fn same_row(rules: &[Rule], a: &[String], b: &[String]) -> bool {
    rules.iter().zip(a.iter().zip(b)).all(|(rule, (a, b))| a == b || matches!(rule, Rule::Close(more) if close(a, b, *more)))
}

fn close(a: &str, b: &str, more: f64) -> bool {
    match (a.parse::<f64>(), b.parse::<f64>()) {
        (Ok(a), Ok(b)) if a.is_nan() || b.is_nan() => a.is_nan() && b.is_nan(),
        (Ok(a), Ok(b)) if a.is_infinite() || b.is_infinite() => a == b,
        (Ok(a), Ok(b)) => (a - b).abs() <= 1e-9 * a.abs().max(b.abs()) + more,
        _ => false,
    }
}

fn listed(rows: &[&Vec<String>]) -> String {
    let mut shown: String = rows.iter().take(ROWS_SHOWN_MAX).map(|row| format!("\n  {}", row.join("\t"))).collect();
    if rows.len() > ROWS_SHOWN_MAX {
        shown += &format!("\n  … {} rows", rows.len());
    }
    shown
}
