// Where positions lie in the cache `[pages, layers, parts, kv_heads, page_size * p.dims]`.

// The first element that a head keeps of a position's tile of 16: of its keys, or of its rows.
fn tile_start(sequence: u32, kv_head: u32, position: u32) -> u32 {
    let entry = sequence * p.max_pages + min(position >> p.page_shift, p.max_pages - 1u);
    let page = min(page_table(entry), p.pages - 1u);
    let slot = position & ((1u << p.page_shift) - 1u);
    return page * p.page_len + p.layer_start + ((kv_head << p.page_shift) + slot / 16u * 16u) * p.dims;
}
