// The elements that `top_k.wgsl` found.

fn value(i: u32) -> Element {
    let row = i / (p.k * p.inner);
    let index = min(indices(i).x, p.n - 1u);
    return x((row * p.n + index) * p.inner + i % p.inner);
}
