// Writes two elements of a cache of halves that share a word, if they are new. `half_bits` rounds.
fn store(element: u32, first: f32, second: f32, is_first_new: bool, is_second_new: bool) {
    let word = (p.cache_at + element) / 2u;
    let bits = half_bits(first) | (half_bits(second) << 16u);
    let mask = select(0u, 0xffffu, is_first_new) | select(0u, 0xffff0000u, is_second_new);
    cache_words[word] = (cache_words[word] & ~mask) | (bits & mask);
}
