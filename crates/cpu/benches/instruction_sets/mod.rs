//! The instruction sets that a bench measures.

use perihelion_cpu::InstructionSet;

/// The one that `PERIHELION_INSTRUCTION_SET` names, as in sessions; otherwise all of this architecture, the fastest first.
pub(crate) fn to_measure() -> Vec<InstructionSet> {
    match std::env::var("PERIHELION_INSTRUCTION_SET") {
        Ok(name) if !name.is_empty() => {
            vec![
                InstructionSet::named(&name)
                    .expect("PERIHELION_INSTRUCTION_SET is a set of this architecture"),
            ]
        }
        _ => InstructionSet::ALL.iter().rev().copied().collect(),
    }
}
