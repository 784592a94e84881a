//! What a module's code may cost to compile, seen before it is compiled.
//!
//! A compiler's time and memory do not follow the bytes of a module: a few kilobytes of nested loops take it seconds, and a few
//! megabytes of jump tables gigabytes. So each instruction has a number of steps, by what was measured: one takes about 3 µs, and
//! the steps of one function are what is in memory at one time. The numbers for loops are those of the compiler's worst guests:
//! each loop is looked at for all others, and for all locals in all loops around it.

use wasmparser::{BlockType, CompositeInnerType, FunctionBody, Operator, Parser, Payload, TypeRef};

/// The most functions of a module.
const FUNCTIONS_MAX: u32 = 64 << 10;
/// The most parameters and results of a type together.
const ARITY_MAX: u64 = 64;
/// The most steps of one function.
const FUNCTION_STEPS_MAX: u64 = 300_000;
/// The most steps of a module.
const MODULE_STEPS_MAX: u64 = 12_000_000;

/// Steps of a function, of a local, of a call or what becomes one, of a value that a call or a block takes or gives, of a target
/// of a jump table, and of a loop.
const FUNCTION_STEPS: u64 = 32;
const LOCAL_STEPS: u64 = 2;
const CALL_STEPS: u64 = 32;
const VALUE_STEPS: u64 = 4;
const TARGET_STEPS: u64 = 2;
const LOOP_STEPS: u64 = 16;
/// So many loops before one in its function, and so many locals in a loop around it, are a step.
const LOOPS_A_STEP: u64 = 20;
const LOCALS_A_STEP: u64 = 3;

/// Refuses a module that would take the compiler too much time or memory. What is no module is left to the compiler, which says
/// more about it. The error is a sentence without the module's name.
pub(crate) fn check(bytes: &[u8]) -> Result<(), String> {
    let (mut known, mut functions, mut steps) = (ModuleTypes::default(), 0, 0);
    for payload in Parser::new(0).parse_all(bytes) {
        let Ok(payload) = payload else { return Ok(()) };
        let Payload::CodeSectionEntry(body) = payload else {
            match known.read(payload)? {
                Some(()) => continue,
                None => return Ok(()),
            }
        };
        functions += 1;
        let Some(of_body) = steps_of(&body, &known) else { return Ok(()) };
        if of_body > FUNCTION_STEPS_MAX {
            return Err(format!(
                "its function number {functions} would take more than the {FUNCTION_STEPS_MAX} steps to compile that a function \
                 may take. hint: divide it; docs/reference/program-abi.md says what steps are"
            ));
        }
        steps += of_body;
    }
    match steps > MODULE_STEPS_MAX {
        true => Err(format!(
            "it would take {steps} steps to compile, and a module may take {MODULE_STEPS_MAX}. hint: \
             docs/reference/program-abi.md says what steps are"
        )),
        false => Ok(()),
    }
}

/// What is known of a module before its code.
#[derive(Default)]
struct ModuleTypes {
    /// For each type, how many parameters and results it has together.
    arities: Vec<u64>,
    /// For each function, imported ones first, its type.
    functions: Vec<u32>,
}

impl ModuleTypes {
    /// Reads a section; none: it cannot be read. An error says what is out of bounds.
    fn read(&mut self, payload: Payload<'_>) -> Result<Option<()>, String> {
        match payload {
            Payload::TypeSection(types) => {
                for group in types {
                    let Ok(group) = group else { return Ok(None) };
                    self.arities.extend(group.types().map(|of| arity_of(&of.composite_type.inner)));
                }
                if let Some(arity) = self.arities.iter().find(|arity| **arity > ARITY_MAX) {
                    let what = format!("a function of it has {arity} parameters and results together");
                    return Err(format!("{what}; a function has at most {ARITY_MAX}"));
                }
            }
            Payload::ImportSection(imports) => {
                for import in imports.into_imports() {
                    let Ok(import) = import else { return Ok(None) };
                    if let TypeRef::Func(of) = import.ty {
                        self.functions.push(of);
                    }
                }
            }
            Payload::FunctionSection(functions) => {
                let count = functions.count();
                if count > FUNCTIONS_MAX {
                    return Err(format!("it has {count} functions; a module has at most {FUNCTIONS_MAX}"));
                }
                for of in functions {
                    let Ok(of) = of else { return Ok(None) };
                    self.functions.push(of);
                }
            }
            _ => {}
        }
        Ok(Some(()))
    }

    fn arity(&self, of: u32) -> u64 {
        self.arities.get(of as usize).copied().unwrap_or(0)
    }

    fn arity_of_function(&self, index: u32) -> u64 {
        self.functions.get(index as usize).map_or(0, |of| self.arity(*of))
    }
}

fn arity_of(of: &CompositeInnerType) -> u64 {
    match of {
        CompositeInnerType::Func(of) => (of.params().len() + of.results().len()) as u64,
        _ => 0,
    }
}

/// The steps of a function; none: it cannot be read. Counting ends beyond the bound.
fn steps_of(body: &FunctionBody<'_>, known: &ModuleTypes) -> Option<u64> {
    let mut locals = 0;
    for group in body.get_locals_reader().ok()? {
        locals += u64::from(group.ok()?.0);
    }
    let steps = FUNCTION_STEPS + LOCAL_STEPS * locals;
    let mut counted = Counted { known, locals, steps, loops: 0, open: Vec::new(), open_loops: 0, carried_max: 0 };
    for operator in body.get_operators_reader().ok()? {
        counted.add(&operator.ok()?);
        if counted.steps > FUNCTION_STEPS_MAX {
            break;
        }
    }
    Some(counted.steps)
}

/// A function as far as it was read.
struct Counted<'a> {
    known: &'a ModuleTypes,
    locals: u64,
    steps: u64,
    loops: u64,
    /// For each block that is open, whether it is a loop; and how many of them are.
    open: Vec<bool>,
    open_loops: u64,
    /// The steps of the most values that a block of the function takes and gives, and so a branch carries.
    carried_max: u64,
}

impl Counted<'_> {
    /// The innermost block ends.
    fn leave(&mut self) {
        if self.open.pop() == Some(true) {
            self.open_loops -= 1;
        }
    }

    fn add(&mut self, operator: &Operator<'_>) {
        self.steps += 1;
        match operator {
            Operator::Block { blockty } | Operator::If { blockty } => self.enter(*blockty, false),
            Operator::TryTable { try_table } => self.enter(try_table.ty, false),
            Operator::Loop { blockty } => {
                self.enter(*blockty, true);
                self.steps += LOOP_STEPS + self.loops / LOOPS_A_STEP + self.locals * self.open_loops / LOCALS_A_STEP;
                self.loops += 1;
            }
            Operator::End => self.leave(),
            Operator::Br { .. } | Operator::BrIf { .. } => self.steps += self.carried_max,
            // Each target may be the beginning of a loop around it.
            Operator::BrTable { targets } => {
                self.steps += u64::from(targets.len()) * (TARGET_STEPS + self.carried_max + self.open_loops);
            }
            Operator::CallIndirect { type_index, .. } | Operator::ReturnCallIndirect { type_index, .. } => {
                self.call(self.known.arity(*type_index));
            }
            Operator::Call { function_index } | Operator::ReturnCall { function_index } => {
                self.call(self.known.arity_of_function(*function_index));
            }
            Operator::MemoryGrow { .. }
            | Operator::MemoryInit { .. }
            | Operator::MemoryCopy { .. }
            | Operator::MemoryFill { .. }
            | Operator::TableGrow { .. }
            | Operator::TableInit { .. }
            | Operator::TableCopy { .. }
            | Operator::TableFill { .. }
            | Operator::RefFunc { .. } => self.call(0),
            _ => {}
        }
    }

    fn call(&mut self, arity: u64) {
        self.steps += CALL_STEPS + VALUE_STEPS * arity;
    }

    fn enter(&mut self, of: BlockType, is_loop: bool) {
        self.open.push(is_loop);
        self.open_loops += u64::from(is_loop);
        let carried = match of {
            BlockType::Empty => 0,
            BlockType::Type(_) => 1,
            BlockType::FuncType(index) => VALUE_STEPS * self.known.arity(index),
        };
        self.steps += carried;
        self.carried_max = self.carried_max.max(carried);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(text: &str) -> Result<(), String> {
        check(&wat::parse_str(text).unwrap())
    }

    /// A module with one function, with this before its body, and this body.
    fn function(head: &str, body: &str) -> String {
        format!("(module (memory 1) (func $f (param $at i32) {head} {body}))")
    }

    #[test]
    fn jump_tables_have_a_number_of_targets() {
        let table = |targets: usize| function("", &format!("(block (br_table {} (local.get $at)))", "0 ".repeat(targets)));
        assert_eq!(checked(&table(60_000)), Ok(()));
        let one = format!("(func (block (br_table {} (i32.const 0))))", "0 ".repeat(60_000));
        assert!(checked(&format!("(module {})", one.repeat(120))).unwrap_err().starts_with("it would take 144"));
        let long = checked(&table(300_000)).unwrap_err();
        let begins = "its function number 1 would take more than the 300000 steps to compile";
        assert!(long.starts_with(begins) && long.contains("hint: divide it"), "{long}");
    }

    #[test]
    fn loops_count_by_those_around_and_before_them() {
        let nested = |loops: usize, locals: usize| {
            let head = format!("(local {})", "i32 ".repeat(locals));
            function(&head, &format!("{}{}", "(loop ".repeat(loops), ")".repeat(loops)))
        };
        assert_eq!(checked(&nested(40, 50)), Ok(()));
        assert!(checked(&nested(400, 100)).is_err());
        assert_eq!(checked(&function("", &"(loop)".repeat(1_000))), Ok(()));
        assert!(checked(&function("", &"(loop)".repeat(5_000))).is_err());
        let table = format!("(br_table {} (local.get $at))", "0 ".repeat(3_000));
        let around = |loops: usize| function("", &format!("{}{table}{}", "(loop ".repeat(loops), ")".repeat(loops)));
        assert_eq!(checked(&around(2)), Ok(()));
        assert!(checked(&around(110)).is_err());
    }

    #[test]
    fn functions_are_bounded_in_number_and_size() {
        assert_eq!(checked(&function("", &"(drop (local.get $at))".repeat(20_000))), Ok(()));
        assert!(checked(&function("", &"(drop (memory.grow (i32.const 0)))".repeat(20_000))).is_err());
        assert!(checked(&function("", &"(call $f (local.get $at))".repeat(20_000))).is_err());
        let many = |count: usize| format!("(module {})", "(func)".repeat(count));
        assert_eq!(checked(&many(65_536)), Ok(()));
        assert_eq!(checked(&many(65_537)).unwrap_err(), "it has 65537 functions; a module has at most 65536");
        let wide = |count: usize| format!("(module (func (param {})))", "i32 ".repeat(count));
        assert_eq!(checked(&wide(64)), Ok(()));
        let wrong = "a function of it has 65 parameters and results together; a function has at most 64";
        assert_eq!(checked(&wide(65)).unwrap_err(), wrong);
    }

    #[test]
    fn what_is_no_module_is_left_to_the_compiler() {
        for bytes in [&b""[..], b"\0asm", b"\0asm\x01\0\0\0\x01\xff", b"\0asm\x01\0\0\0\x0a\x05\x01\x03\x00\xff\xff"] {
            assert_eq!(check(bytes), Ok(()));
        }
    }
}
