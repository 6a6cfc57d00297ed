// What a lane has in common. Where its formula gives NaN, which is if its largest value is infinite or NaN, NaN is written
// rather than computed.

// The largest value, or 0 where that is no number.
fn largest_number(key: u32) -> f32 {
    return select(0.0, value_f32(key), is_number(key));
}

// The bits of what `softmax.wgsl` computes with, of the sum of exponentials.
fn share(key: u32, sum: f32) -> u32 {
    return select(0x7fc00000u, bitcast<u32>(share_of_sum(sum)), is_number(key));
}

// Whether the key is that of a finite number.
fn is_number(key: u32) -> bool {
    return key > 0x007fffffu && key < 0xff800000u;
}
