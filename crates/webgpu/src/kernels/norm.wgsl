// A row normalized by a workgroup: to mean 0 and variance 1 if it is CENTERED, else by the root of the mean square.

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let row = group_of(id);
    if (row >= p.groups) {
        return;
    }
    let first = row * p.columns;
    let count = f32(p.columns);
    var mean = 0.0;
    if (CENTERED) {
        var sum = 0.0;
        for (var i = lane; i < p.columns; i += LANES) {
            sum += x(first + i);
        }
        mean = sum_of_lanes(lane, sum) / count;
    }
    var squares = 0.0;
    for (var i = lane; i < p.columns; i += LANES) {
        let value = x(first + i) - mean;
        squares = fma(value, value, squares);
    }
    let variance = sum_of_lanes(lane, squares) / count;
    let factor = 1.0 / sqrt(variance + bitcast<f32>(p.eps));
    for (var i = lane; i < p.columns; i += LANES) {
        set_y(first + i, biased((x(first + i) - mean) * factor * weight(i), i));
    }
}
