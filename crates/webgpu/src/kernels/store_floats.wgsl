// Writes two elements of a cache of f32 that lie side by side, if they are new.
fn store(element: u32, first: f32, second: f32, is_first_new: bool, is_second_new: bool) {
    if is_first_new {
        set_cache(element, first);
    }
    if is_second_new {
        set_cache(element + 1u, second);
    }
}
