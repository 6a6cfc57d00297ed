//! Chooses the next token from its logits.
