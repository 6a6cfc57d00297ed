//! A template as instructions, with a charge before each whose cost grows with its operands.
//!
//! `minijinja` counts instructions, but one instruction may double a string, and forty of them fill any memory.
//! So operators that make values are calls of our own functions (see [`super::rewrite`]; their names are not identifiers,
//! so no template can call or shadow them), and instructions that walk values charge for the walk first.

use std::collections::BTreeMap;

use minijinja::machinery::{CodeGenerator, Instruction, Instructions, parse};
use minijinja::{Error, Value};

use super::work::{CHARGE, EACH, HOLD, KEEP};
use super::{rewrite, syntax};

/// A template ready to be evaluated.
pub(super) struct Program<'source> {
    pub(super) root: Instructions<'source>,
    pub(super) blocks: BTreeMap<&'source str, Instructions<'source>>,
}

/// Compiles a source.
pub(super) fn compile<'source>(name: &'source str, source: &'source str) -> Result<Program<'source>, Error> {
    syntax::check(source)?;
    let template = parse(source, name, syntax::config())?;
    let mut generator = CodeGenerator::new(name, source);
    generator.compile_stmt(&rewrite::rewritten(&template));
    let (root, blocks) = generator.finish();
    let blocks = blocks.into_iter().map(|(block, code)| (block, charged(name, source, &code))).collect();
    Ok(Program { root: charged(name, source, &root), blocks })
}

/// The same instructions with their charges; jumps lead to where their targets moved.
fn charged<'source>(
    name: &'source str,
    source: &'source str,
    code: &Instructions<'source>,
) -> Instructions<'source> {
    let expansions: Vec<Vec<Instruction<'source>>> =
        (0..).map_while(|index| code.get(index)).map(expansion).collect();
    let mut places = Vec::with_capacity(expansions.len() + 1);
    let mut place = 0;
    for expansion in &expansions {
        places.push(place);
        place += expansion.len() as u32;
    }
    places.push(place);
    let mut moved = Instructions::new(name, source);
    for (index, expansion) in (0..).zip(expansions) {
        let line = code.get_line(index).unwrap_or(0).min(usize::from(u16::MAX)) as u16;
        for instruction in expansion {
            moved.add_with_line(retargeted(instruction, &places), line);
        }
    }
    moved
}

/// The instructions that replace one. A jump to it leads to the first of them.
fn expansion<'source>(instruction: &Instruction<'source>) -> Vec<Instruction<'source>> {
    use Instruction as I;
    let pay = |name| [I::DupTop, I::CallFunction(name, Some(1)), I::DiscardTop];
    let charge_top = || pay(CHARGE);
    match instruction {
        I::EmitRaw(text) => {
            [I::LoadConst(Value::from(*text))].into_iter().chain(charge_top()).chain([I::Emit]).collect()
        }
        I::PushLoop(_) => pay(EACH).into_iter().chain([instruction.clone()]).collect(),
        I::StoreLocal(_) => pay(KEEP).into_iter().chain([instruction.clone()]).collect(),
        I::Emit | I::Eq | I::Ne | I::Gt | I::Gte | I::Lt | I::Lte | I::In | I::CompareAndPreserve(_) => {
            charge_top().into_iter().chain([instruction.clone()]).collect()
        }
        // The value lies below the namespace that is to hold it.
        I::SetAttr(_) => {
            let hold = [I::Swap, I::DupTop, I::CallFunction(HOLD, Some(1)), I::DiscardTop, I::Swap];
            hold.into_iter().chain([instruction.clone()]).collect()
        }
        // The key lies above.
        I::GetItem => charge_top().into_iter().chain([instruction.clone()]).collect(),
        I::BuildList(_) | I::BuildMap(_) | I::BuildTuple(_) => {
            [instruction.clone()].into_iter().chain(pay(KEEP)).collect()
        }
        other => vec![other.clone()],
    }
}

fn retargeted<'source>(instruction: Instruction<'source>, places: &[u32]) -> Instruction<'source> {
    use Instruction as I;
    let moved = |target: u32| places[target as usize];
    match instruction {
        I::Iterate(target) => I::Iterate(moved(target)),
        I::Jump(target) => I::Jump(moved(target)),
        I::JumpIfFalse(target) => I::JumpIfFalse(moved(target)),
        I::JumpIfFalseOrPop(target) => I::JumpIfFalseOrPop(moved(target)),
        I::JumpIfTrueOrPop(target) => I::JumpIfTrueOrPop(moved(target)),
        I::BuildMacro(name, target, flags) => I::BuildMacro(name, moved(target), flags),
        other => other,
    }
}
