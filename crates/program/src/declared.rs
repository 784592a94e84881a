//! [`Declared`]: an SSDlet as its module declares it.

use crate::limits::{DECLARATION_BYTES_MAX, PORTS_MAX};
use crate::{Signature, Type};

/// The type of an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArgumentType {
    Value(Type),
    /// A file, which the host program names and the guest gets opened.
    File,
}

impl std::fmt::Display for ArgumentType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Value(of) => of.fmt(f),
            Self::File => f.write_str("file"),
        }
    }
}

/// An SSDlet of a module: its name, and the types of its ports and arguments in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declared {
    pub name: String,
    pub inputs: Vec<Signature>,
    pub outputs: Vec<Signature>,
    pub arguments: Vec<ArgumentType>,
}

impl Declared {
    /// Parses a declaration: lines of a word and a text, `name idMapper`, `input string`, `output string,u32`,
    /// `argument file`. The order of the lines is the order of ports and arguments.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, String> {
        if bytes.len() > DECLARATION_BYTES_MAX {
            return Err(format!("a declaration has at most {DECLARATION_BYTES_MAX} bytes, not {}", bytes.len()));
        }
        let text = std::str::from_utf8(bytes).map_err(|_| "a declaration is not UTF-8".to_owned())?;
        let mut declared = Self { name: String::new(), inputs: Vec::new(), outputs: Vec::new(), arguments: Vec::new() };
        for line in text.lines() {
            declared.take(line).map_err(|what| format!("the line {line:?} of a declaration: {what}"))?;
        }
        match declared.name.is_empty() {
            true => Err("a declaration has no name".to_owned()),
            false => Ok(declared),
        }
    }

    fn take(&mut self, line: &str) -> Result<(), String> {
        let (word, text) = line.split_once(' ').ok_or("a word and a text with a space between them were expected")?;
        match word {
            "name" if !self.name.is_empty() => return Err("a name is there already".to_owned()),
            "name" => self.name = checked_name(text)?,
            "input" => self.inputs.push(text.parse()?),
            "output" => self.outputs.push(text.parse()?),
            "argument" if text == "file" => self.arguments.push(ArgumentType::File),
            "argument" => self.arguments.push(ArgumentType::Value(text.parse()?)),
            _ => return Err(format!("{word:?} is none of name, input, output and argument")),
        }
        let most = self.inputs.len().max(self.outputs.len()).max(self.arguments.len());
        if most > PORTS_MAX { Err(format!("an SSDlet has at most {PORTS_MAX} of each")) } else { Ok(()) }
    }
}

fn checked_name(text: &str) -> Result<String, String> {
    let fits =
        (1..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.:".contains(&byte));
    if fits { Ok(text.to_owned()) } else { Err("a name is 1 to 64 letters, digits, _, -, . and :".to_owned()) }
}
