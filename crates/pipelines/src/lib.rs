//! How tokens are made: tokenizer, sequences, scheduler, KV pages, runner, sampler, generator.
