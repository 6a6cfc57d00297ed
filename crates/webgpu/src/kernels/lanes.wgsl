// Folds over the 64 lanes of a workgroup, in the order of the CPU's vectors: four of sixteen lanes, then halves.

const LANES = 64u;

var<workgroup> lane_sums: array<f32, 64>;
var<workgroup> quarter_sums: array<f32, 16>;
var<workgroup> lane_keys: array<u32, 64>;

// The sum of a value of each lane.
fn sum_of_lanes(lane: u32, value: f32) -> f32 {
    lane_sums[lane] = value;
    workgroupBarrier();
    if (lane < 16u) {
        quarter_sums[lane] =
            (lane_sums[lane] + lane_sums[lane + 16u]) + (lane_sums[lane + 32u] + lane_sums[lane + 48u]);
    }
    workgroupBarrier();
    return (sum_of_four(0u) + sum_of_four(2u)) + (sum_of_four(1u) + sum_of_four(3u));
}

fn sum_of_four(i: u32) -> f32 {
    return (quarter_sums[i] + quarter_sums[i + 8u]) + (quarter_sums[i + 4u] + quarter_sums[i + 12u]);
}

// The largest value of all lanes.
fn largest_of_lanes(lane: u32, value: u32) -> u32 {
    lane_keys[lane] = value;
    for (var half = LANES / 2u; half > 0u; half >>= 1u) {
        workgroupBarrier();
        if (lane < half) {
            lane_keys[lane] = max(lane_keys[lane], lane_keys[lane + half]);
        }
    }
    workgroupBarrier();
    return lane_keys[0];
}
