//! Functions that users bring as WebAssembly: what a domain's manifest says of them, and how a sub-plan names them.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Blame, Fault};

/// What an engine announces that runs functions of WebAssembly, among its extensions.
pub const RUNS_USER_FUNCTIONS: &str = "pithead_wasm/3";

/// The most functions of a domain.
pub const FUNCTIONS_MAX: usize = 1_024;
/// The most arguments of a function.
pub const FUNCTION_ARGUMENTS_MAX: usize = 32;
/// The most bytes of a function's name, and of the names in its definition.
pub const FUNCTION_NAME_BYTES_MAX: usize = 64;
/// The most bytes of a function's module.
pub const FUNCTION_MODULE_BYTES_MAX: usize = 8 << 20;
/// The most bytes of a definition as it travels.
const DEFINITION_BYTES_MAX: usize = 16 << 10;
/// What parts the name by which a plan calls a function from its definition.
const VERSION: &str = "/wasm1 ";

/// A function of SQL that is computed by WebAssembly.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Function {
    /// What it takes, in order.
    pub arguments: Vec<FunctionArgument>,
    /// What it gives, of which a table function has any number.
    pub returns: FunctionType,
    /// When it gives the same again.
    pub volatility: Volatility,
    /// Whether it is called where an argument is NULL. Otherwise NULL is its result there.
    #[serde(default)]
    pub called_on_null: bool,
    /// The SHA-256 of its module, in hexadecimal digits. Modules are found by it, so that two versions never mix.
    pub module: String,
    /// Its name in the module.
    pub export: String,
    /// How it goes over rows. Definitions of earlier releases say nothing of it, and are of scalar functions.
    #[serde(default, skip_serializing_if = "FunctionKind::is_scalar")]
    pub kind: FunctionKind,
}

/// How a function goes over rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FunctionKind {
    /// One result for each row.
    #[default]
    Scalar,
    /// One result for the rows of a group.
    Aggregate,
    /// Any number of results for each row.
    Table,
}

impl FunctionKind {
    fn is_scalar(&self) -> bool {
        *self == FunctionKind::Scalar
    }
}

/// An argument of a function.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FunctionArgument {
    /// Its name, which only people read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its type.
    pub of: FunctionType,
}

/// The types that functions take and give.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FunctionType {
    /// True or false.
    Boolean,
    /// 32 bits, signed.
    Integer,
    /// 64 bits, signed.
    Bigint,
    /// 64 bits, floating.
    Double,
    /// UTF-8.
    Text,
}

impl FunctionType {
    /// All of them.
    pub const ALL: [FunctionType; 5] =
        [FunctionType::Boolean, FunctionType::Integer, FunctionType::Bigint, FunctionType::Double, FunctionType::Text];
}

impl fmt::Display for FunctionType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FunctionType::Boolean => "boolean",
            FunctionType::Integer => "integer",
            FunctionType::Bigint => "bigint",
            FunctionType::Double => "double precision",
            FunctionType::Text => "text",
        })
    }
}

/// When a function gives the same result again, as its author declares it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Volatility {
    /// Always.
    Immutable,
    /// Within one statement.
    Stable,
    /// Never. Such a function runs at the host only.
    Volatile,
}

impl fmt::Display for Volatility {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Volatility::Immutable => "IMMUTABLE",
            Volatility::Stable => "STABLE",
            Volatility::Volatile => "VOLATILE",
        })
    }
}

impl Function {
    /// Refuses one that is beyond the bounds. `name`: for people.
    pub fn check(&self, name: &str) -> Result<(), Fault> {
        let wrong = |what: String| Err(Fault::new(Blame::User, format!("function {name}: {what}")));
        check_word("a function's name", name)?;
        check_word("the name in the module", &self.export)?;
        if self.arguments.len() > FUNCTION_ARGUMENTS_MAX {
            let count = self.arguments.len();
            return wrong(format!("it has {count} arguments; at most {FUNCTION_ARGUMENTS_MAX} are allowed"));
        }
        let names = self.arguments.iter().filter_map(|argument| argument.name.as_ref());
        names.into_iter().try_for_each(|name| check_word("the name of an argument", name))?;
        if self.kind == FunctionKind::Aggregate && self.arguments.is_empty() {
            return wrong("an aggregate takes at least one argument".to_owned());
        }
        if self.kind == FunctionKind::Aggregate && self.volatility == Volatility::Volatile {
            return wrong("an aggregate cannot be VOLATILE: drives compute parts of it".to_owned());
        }
        if self.module.len() != 64 || !self.module.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
            return wrong(format!("{:?} is no SHA-256 of a module", self.module));
        }
        Ok(())
    }
}

fn check_word(what: &str, word: &str) -> Result<(), Fault> {
    let is_good = |place: usize, letter: char| {
        letter == '_' || letter.is_ascii_lowercase() || (place > 0 && letter.is_ascii_digit()) || letter.is_ascii_uppercase()
    };
    if !word.is_empty() && word.len() <= FUNCTION_NAME_BYTES_MAX && word.chars().enumerate().all(|(at, one)| is_good(at, one)) {
        return Ok(());
    }
    let expected = format!("expected 1 to {FUNCTION_NAME_BYTES_MAX} letters, digits and underscores, no digit first");
    Err(Fault::new(Blame::User, format!("{what} cannot be {word:?}; {expected}")))
}

/// A function as plans call it: by a name that no other version of it has.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CalledFunction {
    /// `DOMAIN.NAME@` and a hash of the definition.
    pub called: String,
    /// The definition.
    pub function: Function,
}

impl CalledFunction {
    /// The domain's name and the function's, as people write it.
    pub fn name(&self) -> &str {
        self.called.rsplit_once('@').map_or(&self.called, |(name, _)| name)
    }

    /// The domain.
    pub fn domain(&self) -> &str {
        self.name().rsplit_once('.').map_or("", |(domain, _)| domain)
    }

    /// As OPEN names it: all that its result hangs on.
    pub fn extension(&self) -> String {
        // A definition is texts and numbers.
        let definition = serde_json::to_string(&self.function).unwrap_or_default();
        format!("{}{VERSION}{definition}", self.called)
    }

    /// Whether an extension is a user's function, by its form.
    pub fn is(extension: &str) -> bool {
        extension.contains(VERSION)
    }

    /// A function as OPEN names it; none: the extension is none of a user.
    pub fn parse(extension: &str) -> Option<Result<CalledFunction, Fault>> {
        let (called, definition) = extension.split_once(VERSION)?;
        Some(Self::parsed(called, definition))
    }

    fn parsed(called: &str, definition: &str) -> Result<CalledFunction, Fault> {
        let wrong =
            |why: &str| Fault::new(Blame::User, format!("what OPEN says of the function {called:?} cannot be read: {why}"));
        if definition.len() > DEFINITION_BYTES_MAX {
            return Err(wrong("it is too long"));
        }
        let function: Function = serde_json::from_str(definition).map_err(|error| wrong(&error.to_string()))?;
        let found = CalledFunction { called: called.to_owned(), function };
        let Some((domain, name)) = found.name().rsplit_once('.') else { return Err(wrong("it has no domain")) };
        if !called.contains('@') || domain.is_empty() {
            return Err(wrong("expected DOMAIN.NAME@HASH"));
        }
        found.function.check(name)?;
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) fn function() -> Function {
        Function {
            arguments: vec![
                FunctionArgument { name: Some("x".into()), of: FunctionType::Bigint },
                FunctionArgument { name: None, of: FunctionType::Double },
            ],
            returns: FunctionType::Text,
            volatility: Volatility::Immutable,
            called_on_null: false,
            module: "0f".repeat(32),
            export: "hash".into(),
            kind: FunctionKind::Scalar,
        }
    }

    #[test]
    fn an_aggregate_says_so_and_has_rules_of_its_own() {
        let aggregate = Function { kind: FunctionKind::Aggregate, ..function() };
        aggregate.check("f").unwrap();
        let called = CalledFunction { called: "lab.hash@00ff".into(), function: aggregate.clone() };
        assert!(called.extension().ends_with(r#""export":"hash","kind":"aggregate"}"#), "{}", called.extension());
        assert_eq!(CalledFunction::parse(&called.extension()).unwrap().unwrap(), called);
        for wrong in [
            Function { arguments: vec![], ..aggregate.clone() },
            Function { volatility: Volatility::Volatile, ..aggregate.clone() },
        ] {
            assert_eq!(wrong.check("f").unwrap_err().blame, Blame::User);
        }
    }

    #[test]
    fn a_call_comes_back_from_what_open_says() {
        let called = CalledFunction { called: "lab.hash@00ff".into(), function: function() };
        let extension = called.extension();
        assert_eq!(
            extension,
            format!(
                r#"lab.hash@00ff/wasm1 {{"arguments":[{{"name":"x","of":"bigint"}},{{"of":"double"}}],"returns":"text","volatility":"immutable","called_on_null":false,"module":"{}","export":"hash"}}"#,
                "0f".repeat(32)
            )
        );
        assert!(CalledFunction::is(&extension) && !CalledFunction::is("accumulate/1"));
        let back = CalledFunction::parse(&extension).unwrap().unwrap();
        assert_eq!((back.name(), back.domain()), ("lab.hash", "lab"));
        assert_eq!(back, called);
        assert!(CalledFunction::parse("accumulate/1").is_none());
    }

    #[test]
    fn what_is_no_function_is_refused() {
        let good = CalledFunction { called: "lab.hash@00ff".into(), function: function() }.extension();
        for (from, to) in [
            ("lab.hash@00ff", "hash@00ff"),
            ("lab.hash@00ff", "lab.hash"),
            ("lab.hash@00ff", "lab.ha sh@00ff"),
            ("0f0f", "0f0"),
            ("0f0f", "0F0F"),
            ("bigint", "int"),
            ("\"hash\"", "\"\""),
            ("\"x\"", "\"x y\""),
            ("\"export\"", "\"e\""),
        ] {
            let bad = good.replacen(from, to, 1);
            assert!(CalledFunction::parse(&bad).unwrap().is_err(), "{bad}");
        }
        let many = vec![FunctionArgument { name: None, of: FunctionType::Text }; FUNCTION_ARGUMENTS_MAX + 1];
        assert!(Function { arguments: many, ..function() }.check("f").is_err());
    }
}
