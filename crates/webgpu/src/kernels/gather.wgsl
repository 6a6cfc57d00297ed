// An index from the end if it is negative, within the axis whatever it is.
fn value(i: u32) -> TYPE {
    let inner = i % p.inner;
    let outer = i / p.inner;
    let index = index_of(outer % p.indices);
    let row = (outer / p.indices) * p.rows + min(index, p.rows - 1u);
    return table(row * p.inner + inner);
}
