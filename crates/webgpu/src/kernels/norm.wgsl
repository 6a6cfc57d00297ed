// A row normalized by a workgroup: to mean 0 and variance 1 if it is CENTERED, else by the root of the mean square.

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let row = group_of(id);
    if (row >= p.groups) {
        return;
    }
    let first = row * p.columns;
    var mean = 0.0;
    if (CENTERED) {
        mean = mean_of(first, p.columns, lane);
    }
    let factor = 1.0 / sqrt(variance_of(first, p.columns, lane, mean) + bitcast<f32>(p.eps));
    for (var i = lane; i < p.columns; i += 4u * LANES) {
        let weights = vec4<f32>(weight(i), weight(i + LANES), weight(i + 2u * LANES), weight(i + 3u * LANES));
        let values = centered(first, i, p.columns, mean) * factor * weights;
        write(first, i, values.x);
        write(first, i + LANES, values.y);
        write(first, i + 2u * LANES, values.z);
        write(first, i + 3u * LANES, values.w);
    }
}

fn write(first: u32, i: u32, value: f32) {
    if (i < p.columns) {
        set_y(first + i, biased(value, i));
    }
}
