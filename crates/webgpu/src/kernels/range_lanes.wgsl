// What the threads of a workgroup of 256 find out together, four query rows at a time: the largest scores and the sums of
// weights of a range of positions, a thread each.

// In place of minus infinity.
const LOWEST = -3.4028234e38;

var<workgroup> queries: array<vec4<f32>, DIMS>;
var<workgroup> weights: array<vec4<f32>, 256>;
var<workgroup> lanes: array<vec4<f32>, 16>;

fn exponentials(x: vec4<f32>) -> vec4<f32> {
    return vec4<f32>(exp_(x.x), exp_(x.y), exp_(x.z), exp_(x.w));
}

// The largest scores of all threads.
fn largest_of(thread: u32, scores: vec4<f32>) -> vec4<f32> {
    weights[thread] = scores;
    workgroupBarrier();
    if thread < 16u {
        var largest = weights[thread];
        for (var i = thread + 16u; i < 256u; i += 16u) {
            largest = max(largest, weights[i]);
        }
        lanes[thread] = largest;
    }
    workgroupBarrier();
    var largest = lanes[0];
    for (var i = 1u; i < 16u; i += 1u) {
        largest = max(largest, lanes[i]);
    }
    return largest;
}

// The sum of the weights of all threads, which are in `weights` then.
fn sum_of(thread: u32, weight: vec4<f32>) -> vec4<f32> {
    weights[thread] = weight;
    workgroupBarrier();
    if thread < 16u {
        var sum = weights[thread];
        for (var i = thread + 16u; i < 256u; i += 16u) {
            sum += weights[i];
        }
        lanes[thread] = sum;
    }
    workgroupBarrier();
    return sum_of_lanes();
}

// The sum of the lanes, added in halves.
fn sum_of_lanes() -> vec4<f32> {
    var sums = array<vec4<f32>, 8>();
    for (var i = 0u; i < 8u; i += 1u) {
        sums[i] = lanes[i] + lanes[i + 8u];
    }
    for (var i = 0u; i < 4u; i += 1u) {
        sums[i] += sums[i + 4u];
    }
    return (sums[0] + sums[2]) + (sums[1] + sums[3]);
}
