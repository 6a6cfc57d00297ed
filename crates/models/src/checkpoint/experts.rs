//! The matrices of experts, which files store one by one, all together, or gate and up in one.

use super::layout::{Layout, one_after_the_other};
use crate::{Config, Error};

impl Layout<'_> {
    /// Gives all matrices of a layer's experts the name of one weight [experts, rows, columns], and the gate of a shared
    /// expert that of a vector.
    ///
    /// # Errors
    /// If there are not as many experts as the configuration says, or their matrices are not alike.
    pub(super) fn gather_experts(&mut self, config: &Config) -> Result<(), Error> {
        let Some(experts) = config.experts else { return Ok(()) };
        for layer in 0..config.layers {
            let name = |stem: &str| format!("blk.{layer}.{stem}.weight");
            let parts = [name("ffn_gate_exps"), name("ffn_up_exps")].map(|name| (name, experts.width));
            self.take_apart(&name("ffn_gate_up_exps"), 1, one_after_the_other(parts))?;
            for stem in ["ffn_gate", "ffn_up", "ffn_down"] {
                let target = format!("{stem}_exps");
                self.stack(&format!("blk.{layer}.{stem}"), experts.count, &name(&target))?;
            }
            self.flatten(&name("ffn_gate_inp_shexp"));
        }
        Ok(())
    }
}
